#!/usr/bin/env python3
"""The software bill of materials of the program as CycloneDX 1.5 (JSON) on standard output: each crate that is compiled in, with its version,
licence, checksum and what it depends on. Crates that only build or test the program are not in it."""

import datetime
import json
import os
import re
import subprocess
import tomllib
import uuid


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def licence(package):
    text = package["license"]
    # The old form of "or".
    return [{"expression": re.sub(r"\s*/\s*", " OR ", text)}] if text else []


def purl(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def main():
    os.chdir(os.path.join(os.path.dirname(__file__), ".."))
    features = run("make", "--no-print-directory", "--silent", "features").strip()
    # Each processor has the same crates but for a few; the list has those of both.
    packages, edges = {}, {}
    for machine in ["x86_64", "aarch64"]:
        metadata = json.loads(
            run("cargo", "metadata", "--format-version", "1", "--locked", "--features", features,
                "--filter-platform", f"{machine}-unknown-linux-gnu")
        )
        nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
        by_id = {package["id"]: package for package in metadata["packages"]}
        root = next(package["id"] for package in metadata["packages"] if package["name"] == "tapline-cli")
        waiting, seen = [root], {root}
        while waiting:
            node = nodes[waiting.pop()]
            packages[node["id"]] = by_id[node["id"]]
            below = [dep["pkg"] for dep in node["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"])]
            edges.setdefault(node["id"], set()).update(below)
            waiting += [one for one in below if one not in seen]
            seen.update(below)
    with open("Cargo.lock", "rb") as file:
        locked = {(one["name"], one["version"]): one.get("checksum") for one in tomllib.load(file)["package"]}
    root = packages.pop(root)
    place = {root["id"]: "tapline", **{of: purl(package) for of, package in packages.items()}}
    components = []
    for package in sorted(packages.values(), key=lambda one: (one["name"], one["version"])):
        checksum = locked.get((package["name"], package["version"]))
        component = {
            "type": "library", "bom-ref": purl(package), "name": package["name"], "version": package["version"],
            "licenses": licence(package),
        }
        # Our own crates are in no registry.
        if package["source"]:
            component["purl"] = purl(package)
        if checksum:
            component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        if package["description"]:
            component["description"] = " ".join(package["description"].split())
        components.append(component)
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or run("git", "log", "-1", "--format=%ct"))
    commit = run("git", "rev-parse", "HEAD").strip()
    print(json.dumps({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        # The same commit has the same number.
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, 'tapline@' + commit)}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application", "bom-ref": "tapline", "name": "tapline", "version": root["version"],
                "licenses": licence(root),
            },
        },
        "components": components,
        "dependencies": [
            {"ref": place[of], "dependsOn": sorted(place[one] for one in edges[of])} for of in sorted(place, key=place.get)
        ],
    }, indent=1))


main()
