#!/usr/bin/env python3
"""Usage: oci-image.py MACHINE VERSION FOLDER OUT

An OCI image of the static program as one archive, for `podman load` and `docker load`: what contrib/oci/Containerfile makes, without a
builder of images. FOLDER has the program, the licences, and `copyright`. The same input gives the same bytes.
"""

import gzip
import hashlib
import io
import json
import os
import sys
import tarfile
import time

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
FILES = [
    ("tapline", "usr/bin/tapline", 0o755),
    ("LICENSE-MIT", "usr/share/doc/tapline/LICENSE-MIT", 0o644),
    ("LICENSE-APACHE", "usr/share/doc/tapline/LICENSE-APACHE", 0o644),
    ("copyright", "usr/share/doc/tapline/copyright", 0o644),
]
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))


def add(archive, name, data, mode=0o644):
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = len(data), mode, EPOCH
    archive.addfile(member, io.BytesIO(data))


def add_folder(archive, name):
    member = tarfile.TarInfo(name)
    member.type, member.mode, member.mtime = tarfile.DIRTYPE, 0o755, EPOCH
    archive.addfile(member)


def layer(folder):
    """The files of the image as a tar, uncompressed."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in ["usr", "usr/bin", "usr/share", "usr/share/doc", "usr/share/doc/tapline"]:
            add_folder(archive, name)
        for source, place, mode in FILES:
            with open(os.path.join(folder, source), "rb") as file:
                add(archive, place, file.read(), mode)
    return buffer.getvalue()


def containerfile():
    """User, environment, entry point, arguments and labels, as the Containerfile has them."""
    path = os.path.join(os.path.dirname(__file__), "../contrib/oci/Containerfile")
    with open(path, encoding="utf-8") as file:
        lines = file.read().replace("\\\n", " ").splitlines()
    words = [line.split(None, 1) for line in lines if line and not line.startswith("#")]
    of = {word: rest for word, rest in words}
    labels = dict(part.split("=", 1) for part in split_labels(of["LABEL"]))
    return {
        "User": of["USER"],
        "Env": ["PATH=/usr/bin", of["ENV"]],
        "Entrypoint": json.loads(of["ENTRYPOINT"]),
        "Cmd": json.loads(of["CMD"]),
        "Labels": {name: value.strip('"') for name, value in labels.items()},
    }


def split_labels(text):
    import shlex

    return shlex.split(text)


def descriptor(kind, data, **more):
    digest = "sha256:" + hashlib.sha256(data).hexdigest()
    return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": digest, "size": len(data), **more}


def main():
    machine, version, folder, out = sys.argv[1:]
    plain = layer(folder)
    packed = gzip.compress(plain, mtime=0)
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(EPOCH))
    config = containerfile()
    config["Labels"]["org.opencontainers.image.version"] = version
    image = {
        "architecture": ARCHITECTURES[machine],
        "os": "linux",
        "created": created,
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(plain).hexdigest()]},
        "history": [{"created": created, "created_by": "scripts/oci-image.py"}],
    }
    image = json.dumps(image, sort_keys=True).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("config.v1+json", image),
        "layers": [descriptor("layer.v1.tar+gzip", packed)],
    }
    manifest = json.dumps(manifest, sort_keys=True).encode()
    platform = {"architecture": ARCHITECTURES[machine], "os": "linux"}
    names = {"org.opencontainers.image.ref.name": version, "io.containerd.image.name": f"docker.io/library/tapline:{version}"}
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [descriptor("manifest.v1+json", manifest, platform=platform, annotations=names)],
    }
    blob = lambda data: "blobs/sha256/" + hashlib.sha256(data).hexdigest()
    # Docker before version 25 reads this list instead of the index.
    docker = [{"Config": blob(image), "RepoTags": [f"tapline:{version}"], "Layers": [blob(packed)]}]
    with tarfile.open(out, "w", format=tarfile.USTAR_FORMAT) as archive:
        for name in ["blobs", "blobs/sha256"]:
            add_folder(archive, name)
        for data in sorted([image, packed, manifest], key=blob):
            add(archive, blob(data), data)
        add(archive, "index.json", json.dumps(index, sort_keys=True).encode())
        add(archive, "manifest.json", json.dumps(docker, sort_keys=True).encode())
        add(archive, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')


main()
