# SPDX-License-Identifier: Apache-2.0
"""A plain HTTP client for the API server of a kubeconfig."""

from __future__ import annotations

import base64
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path

import httpx
import yaml

PATIENCE_S = 20.0


def open_http(kubeconfig: Path) -> httpx.AsyncClient:
    """Return a client for the cluster and user of a kubeconfig."""
    server, trust = trusted(kubeconfig)
    # Proxies of the environment are not for loopback.
    return httpx.AsyncClient(base_url=server, verify=trust, timeout=PATIENCE_S, trust_env=False)


def trusted(kubeconfig: Path) -> tuple[str, ssl.SSLContext | bool]:
    """Return the address of the API server, and whom to trust there with which identity."""
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"] or {}
    server: str = cluster["server"]
    if not server.startswith("https"):
        return server, False
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    trust = ssl.create_default_context(cadata=authority)
    _load_identity(trust, user)
    return server, trust


def _load_identity(trust: ssl.SSLContext, user: Mapping[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = Path(folder, "certificate"), Path(folder, "key")
        certificate.write_bytes(base64.b64decode(user["client-certificate-data"]))
        key.write_bytes(base64.b64decode(user["client-key-data"]))
        trust.load_cert_chain(str(certificate), str(key))
