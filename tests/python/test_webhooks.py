#!/usr/bin/env python3
"""A webhook server in Python, with the standard library alone, judges writes to a gateway process.

test_webhooks.py TORANA_BINARY
"""
import http.client
import json
import ssl
import sys
import unittest

from gateway import Gateway, wait_for
from webhook import Webhook

TORANA = sys.argv[1]
TOKEN = "admintoken"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations"
MUTATING, VALIDATING = CONFIGURATIONS.format("mutating"), CONFIGURATIONS.format("validating")
PODS, MAPS = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/configmaps"

# How it behaves, whether it mutates, the end of the error with failure policy Fail, and whether Ignore admits the write.
MISBEHAVIOURS = [
    ("hang", VALIDATING, "/hang?timeout=1s\": context deadline exceeded", True),
    ("die", MUTATING, "/die?timeout=10s\": EOF", True),
    ("garbage", VALIDATING, None, True),
    ("much", MUTATING, None, True),
    ("redirect", VALIDATING, "the server responded with the status code 307 but did not return more information", True),
    ("uid", MUTATING, "got \"another\"", True),
    ("misplaced", MUTATING, None, False),
]


class Webhooks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = Gateway(TORANA, ["--disable-admission-plugins=ServiceAccount"],
                              tokens=f"{TOKEN},admin,admin-uid,\"system:masters\"\n")
        cls.addClassCleanup(cls.gateway.stop)
        wait_for("the gateway is ready", lambda: cls.send("GET", "/readyz")[0] == 200)
        wait_for("the namespace is there", lambda: cls.send("GET", "/api/v1/namespaces/default")[0] == 200)
        cls.webhook = Webhook(cls.gateway.path)
        cls.addClassCleanup(cls.webhook.stop)

    @classmethod
    def send(cls, method, path, body=None):
        """The status, the object and the warnings."""
        # The gateway's certificate is not what is tested here.
        context = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection("127.0.0.1", cls.gateway.port, context=context, timeout=60)
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, body and json.dumps(body), headers)
            response = connection.getresponse()
            text = response.read()
        except OSError:  # not listening yet
            return 0, {}, []
        finally:
            connection.close()
        try:
            document = json.loads(text)
        except ValueError:
            document = {}
        return response.status, document, response.headers.get_all("Warning") or []

    def configure(self, kind, behaviour, resource, policy="Fail"):
        # Upstream's default, which a busy machine does not exceed, except for the webhook that never answers.
        seconds = 1 if behaviour == "hang" else 10
        hook = {"name": "py.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": seconds,
                "failurePolicy": policy, "clientConfig": {"url": self.webhook.url(behaviour), "caBundle": self.webhook.bundle},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource]}]}
        status, made, _ = self.send("POST", kind, {"metadata": {"name": "py"}, "webhooks": [hook]})
        self.assertEqual(status, 201, made)

    def remove(self, kind):
        self.assertEqual(self.send("DELETE", f"{kind}/py")[0], 200)

    def test_a_sidecar_is_added_and_the_review_says_who_asks_for_what(self):
        self.configure(MUTATING, "sidecar", "pods")
        pod = {"metadata": {"name": "with-sidecar"}, "spec": {"containers": [{"name": "main", "image": "main:1"}]}}
        status, made, _ = self.send("POST", PODS, pod)
        self.remove(MUTATING)
        self.assertEqual(status, 201, made)
        containers = made["spec"]["containers"]
        self.assertEqual([c["name"] for c in containers], ["main", "sidecar"])
        self.assertEqual(containers[1]["imagePullPolicy"], "IfNotPresent", "what was added is defaulted")
        request = self.webhook.seen[-1]
        self.assertEqual(request["userInfo"]["username"], "admin")
        self.assertEqual((request["operation"], request["dryRun"]), ("CREATE", False))
        self.assertEqual(request["resource"], {"group": "", "version": "v1", "resource": "pods"})
        self.assertIsNone(request["oldObject"])

    def test_a_refusal_carries_its_status_and_warnings(self):
        self.configure(VALIDATING, "refuse", "configmaps")
        status, refused, warnings = self.send("POST", MAPS, {"metadata": {"name": "refused"}})
        self.remove(VALIDATING)
        self.assertEqual(status, 403)
        self.assertEqual(refused["message"], "admission webhook \"py.example.com\" denied the request: not on a Friday")
        self.assertEqual(warnings, ["299 - \"this will be refused\""])

    def test_misbehaviour_follows_the_failure_policy(self):
        for behaviour, kind, text, ignorable in MISBEHAVIOURS:
            for policy in ("Fail", "Ignore"):
                with self.subTest(behaviour=behaviour, policy=policy):
                    self.configure(kind, behaviour, "configmaps", policy)
                    name = f"{behaviour}-{policy.lower()}"
                    status, answer, _ = self.send("POST", MAPS, {"metadata": {"name": name}})
                    self.remove(kind)
                    if policy == "Ignore" and ignorable:
                        self.assertEqual(status, 201, answer)
                        continue
                    self.assertEqual((status, answer["reason"]), (500, "InternalError"), answer)
                    begin = "Internal error occurred: " + ("failed calling webhook \"py.example.com\": " if ignorable else "")
                    self.assertTrue(answer["message"].startswith(begin), answer)
                    self.assertTrue(text is None or answer["message"].endswith(text), answer)


unittest.main(argv=sys.argv[:1], verbosity=1)
