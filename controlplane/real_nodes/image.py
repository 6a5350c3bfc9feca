# SPDX-License-Identifier: Apache-2.0
"""One small image, written as an OCI archive: nodes without a network cannot pull any.

It has a single static program, for the sandboxes of pods and for the pods themselves.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path
from typing import Any

IMAGE = "evenkeel.invalid/workload:1"
PROGRAM = "/workload"
_OCI = "application/vnd.oci.image"

Json = dict[str, Any]  # documents of the OCI image format


def write(archive: Path, program: Path) -> None:
    """Write the archive that `ctr images import` reads."""
    blobs: dict[str, bytes] = {}

    def blob(kind: str, content: bytes) -> Json:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

    layer = blob(f"{_OCI}.layer.v1.tar", _layer(program.read_bytes()))
    config = blob(f"{_OCI}.config.v1+json", _encoded(_config(layer["digest"])))
    manifest = {"schemaVersion": 2, "config": config, "layers": [layer]}
    manifest["mediaType"] = kind = f"{_OCI}.manifest.v1+json"
    entry = blob(kind, _encoded(manifest))
    entry["annotations"] = {"io.containerd.image.name": IMAGE}
    blobs["index.json"] = _encoded({"schemaVersion": 2, "manifests": [entry]})
    blobs["oci-layout"] = _encoded({"imageLayoutVersion": "1.0.0"})
    with tarfile.open(archive, "w") as tar:
        for name, content in blobs.items():
            _add(tar, name, content, 0o644)


def _config(layer: str) -> Json:
    return {
        "architecture": _architecture(),
        "os": "linux",
        "config": {"Entrypoint": [PROGRAM]},
        "rootfs": {"type": "layers", "diff_ids": [layer]},
    }


def _architecture() -> str:
    """Return this machine's architecture as Go names it; containerd refuses another."""
    names = {"x86_64": "amd64", "aarch64": "arm64"}
    return names.get(platform.machine(), platform.machine())


def _layer(program: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        _add(tar, PROGRAM.lstrip("/"), program, 0o755)
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def _encoded(document: Json) -> bytes:
    return json.dumps(document).encode()
