# SPDX-License-Identifier: Apache-2.0
"""Kubeconfigs stand for themselves and never replace someone else's file."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
import yaml

from controlplane.certificates import Authority
from controlplane.errors import ConfigError
from controlplane.kubeconfig import Kubeconfigs, check_overwrite, write

AUTHORITY = Authority.create("test-ca")
KUBECONFIGS = Kubeconfigs("https://127.0.0.1:1", AUTHORITY)


def test_a_kubeconfig_leads_to_the_server_as_the_user() -> None:
    config = yaml.safe_load(KUBECONFIGS.for_user("alice", ("staff",)))
    [context] = config["contexts"]
    [cluster] = config["clusters"]
    [user] = config["users"]
    assert config["current-context"] == context["name"]
    assert context["context"] == {"cluster": cluster["name"], "user": "alice"}
    assert cluster["cluster"]["server"] == "https://127.0.0.1:1"
    ca = base64.b64decode(cluster["cluster"]["certificate-authority-data"])
    assert ca == AUTHORITY.pair.certificate
    assert user["name"] == "alice"
    assert b"PRIVATE KEY" in base64.b64decode(user["user"]["client-key-data"])


def test_a_kubeconfig_is_for_its_owner_only(tmp_path: Path) -> None:
    write(tmp_path / "new" / "kubeconfig", KUBECONFIGS.for_user("alice"))
    assert (tmp_path / "new" / "kubeconfig").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"mine",
        b"clusters: [{name: production}]",
        b"clusters: [{name: evenkeel-controlplane}, {name: production}]",
        b"a: [",
        b"\xff\xfe",
    ],
)
def test_a_file_that_is_not_ours_is_not_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="is not a kubeconfig of ours"):
        check_overwrite(path)


def test_our_own_file_and_a_missing_one_may_be_written(tmp_path: Path) -> None:
    path = tmp_path / "config"
    check_overwrite(path)
    write(path, KUBECONFIGS.for_user("alice"))
    check_overwrite(path)
