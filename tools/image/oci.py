# SPDX-License-Identifier: Apache-2.0
"""A root as an image of one layer in an OCI archive (a tar of an image layout), which `ctr images import` and `podman load`
take. The same arguments give the same bytes: order, times and owners are fixed."""

import gzip
import hashlib
import io
import json
import tarfile

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def _tar(entries, epoch):
    """entries: (name, entry) with mode, data and link as in root.Entry."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, entry in entries:
            info = tarfile.TarInfo(name)
            info.mode, info.mtime = entry.mode, epoch
            if entry.link is not None:
                info.type, info.linkname = tarfile.SYMTYPE, entry.link
            elif entry.data is None:
                info.type = tarfile.DIRTYPE
            else:
                info.size = len(entry.data)
            tar.addfile(info, io.BytesIO(entry.data) if entry.data else None)
    return out.getvalue()


def _digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _descriptor(kind, data, **more):
    return {"mediaType": kind, "digest": _digest(data), "size": len(data), **more}


def _json(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


class _File:
    link, mode = None, 0o644

    def __init__(self, data):
        self.data = data


def archive(root, name, config, architecture, created, epoch):
    """The archive's bytes. name: with registry and tag; config: the image's config object (Entrypoint, Labels ...)."""
    layer = _tar(root.items(), epoch)
    packed = gzip.compress(layer, compresslevel=6, mtime=0)
    image = _json({"architecture": architecture, "os": "linux", "created": created, "config": config,
                   "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
                   "history": [{"created": created, "created_by": "tools/image/make.py"}]})
    manifest = _json({"schemaVersion": 2, "mediaType": MANIFEST, "config": _descriptor(CONFIG, image),
                      "layers": [_descriptor(LAYER, packed)], "annotations": config["Labels"]})
    # containerd goes by the first name, podman by the second.
    names = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}
    index = _json({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
                   "manifests": [_descriptor(MANIFEST, manifest, annotations=names,
                                             platform={"architecture": architecture, "os": "linux"})]})
    blobs = {f"blobs/sha256/{_digest(b)[7:]}": b for b in (packed, image, manifest)}
    files = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": index, **blobs}
    return _tar(((n, _File(d)) for n, d in sorted(files.items())), epoch)
