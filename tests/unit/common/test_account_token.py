# SPDX-License-Identifier: Apache-2.0
"""The token of our service account is known by every path, and by what it says."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from common.account_token import is_inside, opens_the_api

ACCOUNT = "system:serviceaccount:evenkeel:evenkeel-rebalancer"
API = "https://kubernetes.default.svc"


def jwt(**claims: Any) -> str:
    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'RS256'})}.{part(claims)}.c2lnbmF0dXJl"


@pytest.fixture
def account(tmp_path: Path) -> Path:
    """The account's folder as the kubelet writes it: the token is a link to a link."""
    folder = tmp_path / "serviceaccount"
    (folder / "..2026").mkdir(parents=True)
    (folder / "..2026" / "token").write_text(jwt(sub=ACCOUNT, aud=[API], jti="first"))
    (folder / "..data").symlink_to("..2026")
    (folder / "token").symlink_to("..data/token")
    return folder


@pytest.mark.parametrize(
    "path",
    [
        "/var/run/secrets/kubernetes.io/serviceaccount/token",
        "/run/secrets/kubernetes.io/serviceaccount/token",
        "//var/run/secrets/kubernetes.io/serviceaccount/token",
        "/var/run/secrets/kubernetes.io/serviceaccount",
        "/var/run/secrets/kubernetes.io/serviceaccount/..data/token",
        "/var/run/secrets/prometheus/../kubernetes.io/serviceaccount/token",
        "/etc/../var/./run/secrets//kubernetes.io/serviceaccount/token",
        "/proc/self/root/var/run/secrets/kubernetes.io/serviceaccount/token",
    ],
)
def test_the_folder_is_known_however_it_is_written(path: str) -> None:
    assert is_inside(path)


@pytest.mark.parametrize(
    "path",
    [
        "/var/run/secrets/prometheus/token",
        "/var/run/secrets/kubernetes.io/serviceaccount-of-prometheus/token",
        "/var/run/secrets/tokens/kubernetes.io/serviceaccount/token",
    ],
)
def test_other_folders_are_fine(path: str) -> None:
    assert not is_inside(path)


def test_links_into_the_folder_are_followed(tmp_path: Path, account: Path) -> None:
    file, folder = tmp_path / "token", tmp_path / "folder"
    file.symlink_to(account / "token")
    folder.symlink_to(account)
    assert is_inside(str(file), account)
    assert is_inside(str(folder / "token"), account)
    assert not is_inside(str(tmp_path / "other"), account)


def test_a_link_that_may_not_be_followed_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as /proc/1/root of a process of another account."""

    def refuse(_: object) -> str:
        raise PermissionError(13, "Permission denied", "/proc/1/root")

    monkeypatch.setattr("os.path.realpath", refuse)
    assert not is_inside("/proc/1/root/etc/token")
    assert is_inside("/run/secrets/kubernetes.io/serviceaccount/token")


def test_a_copy_of_the_token_is_known(account: Path) -> None:
    assert opens_the_api((account / "token").read_text(), account)


def test_another_token_of_the_account_for_the_api_is_known(account: Path) -> None:
    assert opens_the_api(jwt(sub=ACCOUNT, aud=[API, "other"], jti="second"), account)
    assert opens_the_api(jwt(sub=ACCOUNT, aud=API, jti="third"), account)


@pytest.mark.parametrize(
    "token",
    [
        jwt(sub=ACCOUNT, aud=["prometheus"]),
        jwt(sub="system:serviceaccount:monitoring:reader", aud=[API]),
        "plain",
        "a.b.c",
        "a.!!!.c",
        f"a.{base64.urlsafe_b64encode(b'[' * 100_000).decode()}.c",
    ],
    ids=["other audience", "other account", "no jwt", "odd", "no base64", "deep"],
)
def test_tokens_for_others_are_fine(account: Path, token: str) -> None:
    assert not opens_the_api(token, account)


def test_outside_a_cluster_nothing_is_compared(tmp_path: Path) -> None:
    assert not opens_the_api(jwt(sub=ACCOUNT, aud=[API]), tmp_path)
