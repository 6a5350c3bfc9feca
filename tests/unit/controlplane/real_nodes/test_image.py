# SPDX-License-Identifier: Apache-2.0
"""The archive is one that containerd takes: every blob is there under its digest."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

from controlplane.real_nodes import image


def test_the_archive_names_the_image_and_holds_the_program(tmp_path: Path) -> None:
    program, archive = tmp_path / "program", tmp_path / "image.tar"
    program.write_bytes(b"\x7fELF")
    image.write(archive, program)
    with tarfile.open(archive) as tar:
        found = {m.name: tar.extractfile(m).read() for m in tar.getmembers()}  # type: ignore[union-attr]
    for name, content in found.items():
        if name.startswith("blobs/"):
            assert name.endswith(hashlib.sha256(content).hexdigest())
    [entry] = json.loads(found["index.json"])["manifests"]
    assert entry["annotations"] == {"io.containerd.image.name": image.IMAGE}
    manifest = json.loads(found[_blob(entry["digest"])])
    config = json.loads(found[_blob(manifest["config"]["digest"])])
    [layer] = manifest["layers"]
    assert config["rootfs"]["diff_ids"] == [layer["digest"]]
    with tarfile.open(fileobj=io.BytesIO(found[_blob(layer["digest"])])) as tar:
        [member] = tar.getmembers()
        assert "/" + member.name in config["config"]["Entrypoint"]
        assert member.mode & 0o111


def _blob(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")
