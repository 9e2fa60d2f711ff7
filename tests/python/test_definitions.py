#!/usr/bin/env python3
"""Definitions that people use, from packages of PyPI which ship them, and one of a megabyte, as kubectl uses them.

test_definitions.py TORANA_BINARY DIRECTORY

The directory holds the wheels; scripts/python-client.sh downloads them.
"""
import glob
import json
import os
import re
import subprocess
import sys
import unittest
import zipfile

import yaml

from gateway import Gateway, wait_for

TORANA, WHEELS = sys.argv[1:3]

DASK = ("dask_kubernetes", r"operator/deployment/helm/.*/crds/.*\.yaml$", 4)
CALICO = ("magnum_cluster_api", r"manifests/calico/v3\.32\.1\.yaml$", 23)

CLUSTER = """
apiVersion: kubernetes.dask.org/v1
kind: DaskCluster
metadata: {name: simple}
spec:
  worker:
    replicas: 2
    spec:
      containers:
      - {name: worker, image: dask, args: [dask-worker], resources: {limits: {cpu: "2", memory: 1Gi}}, ports: [{containerPort: 8788, protocol: TCP}]}
  scheduler:
    spec: {containers: [{name: scheduler, image: dask, args: [dask-scheduler]}]}
    service: {type: NodePort, selector: {app: dask}, ports: [{name: tcp, protocol: TCP, port: 8786, targetPort: tcp}]}
"""

POOL = {"apiVersion": "crd.projectcalico.org/v1", "kind": "IPPool", "metadata": {"name": "pool"},
        "spec": {"cidr": "192.168.0.0/16", "blockSize": 26, "natOutgoing": True}}

# What server-side apply says of a text for the port of a pod template below this field.
PORT_IS_TEXT = r"^Error from server.*: \.spec\.{}\.spec\.containers\[0\]\.ports\[.*\]\.containerPort: expected numeric \(int or float\), got string"


def shipped(package, files, count):
    """The definitions in the package's files whose path matches."""
    [wheel] = glob.glob(os.path.join(WHEELS, package + "-*.whl"))
    found = []
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if re.search(files, name):
                found += [d for d in yaml.safe_load_all(archive.read(name))
                          if d and d["kind"] == "CustomResourceDefinition"]
    assert len(found) == count, f"{package} ships {len(found)} definitions, not {count}"
    return found


def stored(definition):
    return next(v for v in definition["spec"]["versions"] if v["storage"])


def least(schema):
    """The smallest value that the schema's types, required members and enums allow."""
    if "default" in schema:
        return schema["default"]
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type", "object")
    if kind == "object":
        members = schema.get("properties", {})
        return {name: least(members[name]) for name in schema.get("required", [])}
    return {"string": "a" * schema.get("minLength", 1), "boolean": False, "array": [],
            "integer": int(schema.get("minimum", 0)), "number": schema.get("minimum", 0)}[kind]


# What rules and formats require beyond that.
MORE = {
    "HostEndpoint": {"node": "node-1", "interfaceName": "eth0"},
    "IPPool": {"cidr": "10.0.0.0/16"},
    "ClusterNetworkPolicy": {"subject": {"namespaces": {}}},
}


def instance(definition):
    """An object with every member that is required of it."""
    spec, version = definition["spec"], stored(definition)
    schema = version["schema"]["openAPIV3Schema"]
    kind = spec["names"]["kind"]
    own = least(schema["properties"].get("spec", {"type": "object"}))
    return {**least(schema), "apiVersion": f"{spec['group']}/{version['name']}", "kind": kind, "metadata": {"name": "least"},
            "spec": {**own, **MORE.get(kind, {})}}


class Definitions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = Gateway(TORANA)
        cls.addClassCleanup(cls.gateway.stop)
        wait_for("the gateway is ready", lambda: cls.run_kubectl("get", "--raw", "/readyz").returncode == 0)

    @classmethod
    def run_kubectl(cls, *args, given=None):
        environment = {**os.environ, "KUBECONFIG": cls.gateway.kubeconfig, "HOME": cls.gateway.path}
        return subprocess.run(["kubectl", *args], input=given, env=environment, text=True, capture_output=True, timeout=120)

    def kubectl(self, *args, given=None):
        done = self.run_kubectl(*args, given=given if given is None or isinstance(given, str) else json.dumps(given))
        self.assertEqual(done.returncode, 0, f"kubectl {' '.join(args)}: {done.stderr}")
        return done.stdout

    def refused(self, *args, given):
        done = self.run_kubectl(*args, given=json.dumps(given))
        self.assertNotEqual(done.returncode, 0, done.stdout)
        return done.stderr

    def install(self, definitions):
        text = yaml.safe_dump_all(definitions)
        self.kubectl("apply", "--server-side", "-f", "-", given=text)
        names = ["crd/" + d["metadata"]["name"] for d in definitions]
        # Repeated, because `kubectl wait` fails on conditions that are still null, as those of a new definition are at
        # first (with kube-apiserver, too).
        established = ("wait", "--for=condition=Established", "--timeout=30s", *names)
        wait_for("the definitions are established", lambda: self.run_kubectl(*established).returncode == 0)
        return [d["spec"]["names"]["plural"] + "." + d["spec"]["group"] for d in definitions]

    def use(self, definitions):
        """Creates, applies, lists and explains the smallest object of each definition."""
        smallest = [instance(d) for d in definitions]
        self.kubectl("create", "-f", "-", given=yaml.safe_dump_all(smallest))
        for one in smallest:
            one["metadata"]["labels"] = {"applied": "true"}
        applied = self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", given=yaml.safe_dump_all(smallest))
        self.assertEqual(applied.count("serverside-applied"), len(definitions))
        for definition in definitions:
            with self.subTest(definition["metadata"]["name"]):
                self.show(definition)

    def show(self, definition):
        resource = definition["metadata"]["name"]
        columns = [c["name"].upper() for c in stored(definition).get("additionalPrinterColumns", []) if not c.get("priority")]
        heading, row = self.kubectl("get", resource, "-l", "applied=true").splitlines()
        self.assertEqual(re.split(r"\s{2,}", heading.strip()), ["NAME"] + (columns or ["AGE"]))
        self.assertTrue(row.startswith("least "), row)
        explained = self.kubectl("explain", resource, "--recursive")
        for name in stored(definition)["schema"]["openAPIV3Schema"]["properties"]:
            self.assertRegex(explained, rf"(?m)^  {name}\t", resource)

    def test_every_definition_of_dask_and_calico_is_used(self):
        definitions = shipped(*DASK) + shipped(*CALICO)
        self.install(definitions)
        self.use(definitions)

    def test_a_cluster_with_pod_templates_is_scaled_and_validated(self):
        self.install(shipped(*DASK))
        cluster = yaml.safe_load(CLUSTER)
        self.kubectl("apply", "-f", "-", given=cluster)
        self.assertIn("unchanged", self.kubectl("apply", "-f", "-", given=cluster))
        self.kubectl("scale", "--replicas=3", "daskcluster/simple")
        row = self.kubectl("get", "dsk", "--no-headers").split()
        self.assertEqual(row[:2], ["simple", "3"])
        deep = self.kubectl("explain", "daskcluster.spec.worker.spec.containers.securityContext.capabilities")
        self.assertIn("add\t<[]string>", deep)
        cluster["spec"]["worker"]["spec"]["containers"][0]["ports"][0]["containerPort"] = "http"
        error = self.refused("apply", "--server-side", "--force-conflicts", "-f", "-", given=cluster)
        self.assertRegex(error, PORT_IS_TEXT.format("worker"))
        cluster["spec"]["worker"]["spec"]["containers"][0]["ports"] = []
        cluster["spec"]["worker"]["replicaz"] = 1
        error = self.refused("apply", "-f", "-", given=cluster)
        self.assertIn('unknown field "spec.worker.replicaz"', error)

    def test_the_rules_of_a_pool_hold(self):
        self.install(shipped(*CALICO))
        self.kubectl("create", "-f", "-", given=POOL)
        moved = {**POOL, "spec": {**POOL["spec"], "cidr": "10.0.0.0/16"}}
        self.assertIn("spec.cidr: Invalid value", self.refused("apply", "--server-side", "--force-conflicts", "-f", "-", given=moved))
        wrong = {**POOL, "metadata": {"name": "wrong"}, "spec": {**POOL["spec"], "cidr": "x"}}
        self.assertIn("spec.cidr", self.refused("create", "-f", "-", given=wrong))

    def pod_template(self):
        """The schema of a pod template, as controller-gen writes it into definitions: without references."""
        document = json.loads(self.kubectl("get", "--raw", "/openapi/v3/api/v1"))
        schemas = document["components"]["schemas"]

        def inlined(schema):
            if "allOf" in schema and len(schema["allOf"]) == 1:
                schema = {**schema["allOf"][0], **{k: v for k, v in schema.items() if k not in ("allOf", "default")}}
            if "$ref" in schema:
                name = schema["$ref"].rsplit("/", 1)[1]
                if name.endswith(".ObjectMeta"):
                    return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                return inlined({**schemas[name], **{k: v for k, v in schema.items() if k != "$ref"}})
            if "oneOf" in schema:
                known = schema.get("format")
                return {"x-kubernetes-int-or-string": True} if known == "int-or-string" else {"type": "string"}
            out = {k: v for k, v in schema.items() if k in ("type", "format", "description", "required")}
            if "properties" in schema:
                out["properties"] = {k: inlined(v) for k, v in schema["properties"].items()}
            for word in ("items", "additionalProperties"):
                if word in schema:
                    out[word] = inlined(schema[word])
            return out

        return inlined(schemas["io.k8s.api.core.v1.PodTemplateSpec"])

    def test_a_definition_of_a_megabyte_is_used(self):
        template = self.pod_template()
        roles = ["head", "worker"]
        spec = {"type": "object", "properties": {**{r: template for r in roles}, "mode": {"type": "string", "default": "auto"}}}
        schema = {"type": "object", "properties": {"spec": spec}}
        version = {"served": True, "schema": {"openAPIV3Schema": schema}, "additionalPrinterColumns": [
            {"name": "Mode", "type": "string", "jsonPath": ".spec.mode"},
            {"name": "Image", "type": "string", "jsonPath": ".spec.head.spec.containers[0].image"}]}
        definition = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                      "metadata": {"name": "fleets.large.example.com"},
                      "spec": {"group": "large.example.com", "scope": "Namespaced", "names": {"plural": "fleets", "kind": "Fleet"},
                               "versions": [{"name": "v1", "storage": True, **version}, {"name": "v1beta1", "storage": False, **version}]}}
        size = len(json.dumps(definition))
        self.assertGreater(size, 1 << 20)
        self.assertLess(size, 3 << 19, "larger objects are refused")
        self.install([definition])
        self.use([definition])
        fleet = {"apiVersion": "large.example.com/v1", "kind": "Fleet", "metadata": {"name": "f"},
                 "spec": {"head": {"spec": {"containers": [{"name": "a", "image": "x"}]}}}}
        self.kubectl("apply", "--server-side", "-f", "-", given=fleet)
        read = self.kubectl("get", "fleets.v1beta1.large.example.com", "f", "-o", "jsonpath={.apiVersion} {.spec.mode}")
        self.assertEqual(read, "large.example.com/v1beta1 auto")
        self.assertEqual(self.kubectl("get", "fleets", "f", "--no-headers").split(), ["f", "auto", "x"])
        deep = self.kubectl("explain", "fleet.spec.worker.spec.ephemeralContainers.lifecycle.preStop.httpGet")
        self.assertIn("httpHeaders", deep)
        fleet["spec"]["head"]["spec"]["containers"][0]["ports"] = [{"containerPort": "x"}]
        error = self.refused("apply", "--server-side", "-f", "-", given=fleet)
        self.assertRegex(error, PORT_IS_TEXT.format("head"))


unittest.main(argv=sys.argv[:1], verbosity=1)
