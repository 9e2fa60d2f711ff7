#!/usr/bin/env python3
"""The official Python client, unmodified, against a gateway process with the example extension server behind it.

test_client.py TORANA_BINARY EXAMPLE_BINARY
"""
import os
import sys
import unittest

from kubernetes import client, config, dynamic, watch
from kubernetes.client.rest import ApiException

import gateway
from gateway import wait_for

TORANA, EXAMPLE = sys.argv[1:3]


class Client(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = gateway.Gateway(TORANA)
        cls.addClassCleanup(cls.gateway.stop)
        cls.api = config.new_client_from_config(cls.gateway.kubeconfig)
        cls.core = client.CoreV1Api(cls.api)

        def ready():
            try:
                url = cls.api.configuration.host + "/readyz"
                return cls.api.rest_client.pool_manager.request("GET", url, retries=False).status == 200
            except Exception:  # not listening yet
                return False

        wait_for("the gateway is ready", ready)
        cls.gateway.spawn(
            [EXAMPLE, f"--kubeconfig={cls.gateway.kubeconfig}", f"--data-dir={os.path.join(cls.gateway.path, 'example')}",
             "--secure-port=0", "--register"], "example.log")

    def test_objects_go_through_all_verbs(self):
        body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="py", labels={"a": "b"}), data={"k": "v"})
        made = self.core.create_namespaced_config_map("default", body)
        self.assertEqual(self.core.read_namespaced_config_map("py", "default").data, {"k": "v"})
        patched = self.core.patch_namespaced_config_map("py", "default", {"data": {"k": "w"}})
        self.assertEqual(patched.data, {"k": "w"})
        made.data = {"k": "x"}
        with self.assertRaises(ApiException) as refused:
            self.core.replace_namespaced_config_map("py", "default", made)
        self.assertEqual(refused.exception.status, 409)
        found = self.core.list_namespaced_config_map("default", label_selector="a=b")
        self.assertEqual([m.metadata.name for m in found.items], ["py"])
        self.core.delete_namespaced_config_map("py", "default")
        with self.assertRaises(ApiException) as gone:
            self.core.read_namespaced_config_map("py", "default")
        self.assertEqual(gone.exception.status, 404)

    def test_a_watch_delivers_changes_in_order(self):
        version = self.core.list_namespaced_secret("default").metadata.resource_version
        secret = client.V1Secret(metadata=client.V1ObjectMeta(name="watched"), string_data={"p": "q"})
        self.core.create_namespaced_secret("default", secret)
        self.core.patch_namespaced_secret("watched", "default", {"metadata": {"labels": {"n": "1"}}})
        self.core.delete_namespaced_secret("watched", "default")
        stream = watch.Watch().stream(
            self.core.list_namespaced_secret, "default", resource_version=version, timeout_seconds=20)
        seen = []
        for event in stream:
            seen.append(event["type"])
            if len(seen) == 3:
                break
        self.assertEqual(seen, ["ADDED", "MODIFIED", "DELETED"])

    def test_an_aggregated_kind_is_found_by_discovery_and_used(self):
        def available():
            try:
                api = client.ApiregistrationV1Api(self.api).read_api_service("v1.gadgets.example.com")
                return any(c.type == "Available" and c.status == "True" for c in api.status.conditions or [])
            except ApiException:
                return False

        wait_for("the APIService is Available", available)
        gadgets = dynamic.DynamicClient(self.api).resources.get(api_version="gadgets.example.com/v1", kind="Gadget")
        body = {"apiVersion": "gadgets.example.com/v1", "kind": "Gadget", "metadata": {"name": "py"}, "spec": {"size": 2}}
        gadgets.create(body=body, namespace="default")
        self.assertEqual(gadgets.get(name="py", namespace="default").spec.size, 2)
        with self.assertRaises(ApiException) as refused:
            gadgets.create(body={**body, "metadata": {"name": "bad"}, "spec": {"size": -1}}, namespace="default")
        self.assertEqual(refused.exception.status, 422)
        gadgets.delete(name="py", namespace="default")

    def test_an_invalid_object_is_refused_with_causes(self):
        with self.assertRaises(ApiException) as refused:
            self.core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name="Not_A_Name")))
        self.assertEqual(refused.exception.status, 422)
        self.assertIn("metadata.name", refused.exception.body)


unittest.main(argv=sys.argv[:1], verbosity=1)
