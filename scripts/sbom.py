#!/usr/bin/env python3
"""What the binary is made of, from Cargo.lock: an SBOM (CycloneDX 1.5) or the licence texts of all crates in it.

    scripts/sbom.py cyclonedx [--target TRIPLE] [--package NAME]  > torana.cdx.json
    scripts/sbom.py licenses  [--target TRIPLE] [--package NAME]  > THIRD-PARTY-LICENSES

Crates that are only used to build or to test are left out. Both outputs depend on Cargo.lock and the crates alone.
"""
import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys
import uuid

LICENSE_FILE = re.compile(r"^(licen[cs]e|copying|notice|copyright|unlicense)", re.IGNORECASE)


def metadata(target):
    command = ["cargo", "metadata", "--format-version=1", "--locked", "--filter-platform", target]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def linked(data, root):
    """The packages linked into the binary of `root`, and what each of them depends on, by package id."""
    nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
    packages = {package["id"]: package for package in data["packages"]}
    macros = {i for i, p in packages.items() if any("proc-macro" in t["kind"] for t in p["targets"])}
    dependencies = {}
    waiting = [root]
    while waiting:
        package = waiting.pop()
        if package in dependencies:
            continue
        normal = [d["pkg"] for d in nodes[package]["deps"] if any(k["kind"] is None for k in d["dep_kinds"])]
        dependencies[package] = sorted(d for d in normal if d not in macros)
        waiting.extend(dependencies[package])
    return {i: packages[i] for i in dependencies}, dependencies


def reference(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package):
    found = {
        "type": "library",
        "bom-ref": reference(package),
        "name": package["name"],
        "version": package["version"],
        "purl": reference(package),
    }
    if package["license"]:
        found["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if package["repository"]:
        found["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return found


def checksums():
    """SHA-256 of each crate's archive, as Cargo.lock has it."""
    text = pathlib.Path("Cargo.lock").read_text()
    entry = r'name = "([^"]+)"\nversion = "([^"]+)"\nsource = "[^"]+"\nchecksum = "([0-9a-f]+)"'
    return {(name, version): checksum for name, version, checksum in re.findall(entry, text)}


def cyclonedx(root, packages, dependencies):
    sums = checksums()
    components = []
    for package in sorted(packages.values(), key=reference):
        if package["id"] == root["id"]:
            continue
        found = component(package)
        if checksum := sums.get((package["name"], package["version"])):
            found["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        components.append(found)
    main = component(root) | {"type": "application"}
    graph = [
        {"ref": reference(packages[i]), "dependsOn": sorted(reference(packages[d]) for d in needed)}
        for i, needed in dependencies.items()
    ]
    graph.sort(key=lambda entry: entry["ref"])
    content = json.dumps([components, graph], sort_keys=True)
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        # The same content has the same number.
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, reference(root) + content)}",
        "version": 1,
        "metadata": {"component": main},
        "components": components,
        "dependencies": graph,
    }
    json.dump(document, sys.stdout, indent=1)
    sys.stdout.write("\n")


def licenses(root, packages):
    """Each distinct text once, with the crates that it covers."""
    covered = collections.defaultdict(list)
    without = []
    for package in sorted(packages.values(), key=reference):
        if package["source"] is None:
            continue
        directory = pathlib.Path(package["manifest_path"]).parent
        files = sorted(f for f in directory.iterdir() if f.is_file() and LICENSE_FILE.match(f.name))
        label = f"{package['name']} {package['version']} ({package['license']})"
        if not files:
            without.append(f"{label} {package['repository'] or ''}".rstrip())
        for file in files:
            covered[file.read_text(errors="replace").strip()].append(label)
    out = [f"{root['name']} {root['version']} contains the following crates. Their licences ask for these texts.\n"]
    for text, labels in sorted(covered.items(), key=lambda item: item[1]):
        out.append("=" * 100 + "\n" + "\n".join(sorted(set(labels))) + "\n\n" + text + "\n")
    if without:
        out.append("=" * 100 + "\nThese crates come without a text; the licence is the one named:\n" + "\n".join(without) + "\n")
    sys.stdout.write("\n".join(out))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["cyclonedx", "licenses"])
    parser.add_argument("--target", default="x86_64-unknown-linux-gnu")
    parser.add_argument("--package", default="torana")
    options = parser.parse_args()
    data = metadata(options.target)
    root = next(p for p in data["packages"] if p["name"] == options.package and p["id"] in data["workspace_members"])
    packages, dependencies = linked(data, root["id"])
    if options.what == "cyclonedx":
        cyclonedx(root, packages, dependencies)
    else:
        licenses(root, packages)


main()
