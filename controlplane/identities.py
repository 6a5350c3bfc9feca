# SPDX-License-Identifier: Apache-2.0
"""The certificates and kubeconfigs of a new control plane."""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.certificates import Authority, token_keys
from controlplane.components import (
    ADMIN,
    CA,
    COMPONENTS,
    FIRST_SERVICE_ADDRESS,
    FRONT_PROXY_CA,
    FRONT_PROXY_CLIENT,
    MASTERS,
    SERVER,
    TOKENS,
    Site,
)
from controlplane.folder import Folder
from controlplane.kubeconfig import Kubeconfigs, write
from controlplane.ports import LOOPBACK

METRICS_SERVICE = "metrics-server.kube-system.svc"
HOSTS = (
    LOOPBACK,
    "localhost",
    FIRST_SERVICE_ADDRESS,
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    METRICS_SERVICE,
)


def write_identities(site: Site) -> None:
    """Write the certificates of all servers and the kubeconfigs of all clients."""
    folder = site.folder
    authority = Authority.create("evenkeel-controlplane-ca")
    # A second authority: its clients may act for other users (the aggregation layer).
    front_proxy = Authority.create("evenkeel-front-proxy-ca")
    pairs = {
        CA: authority.pair,
        SERVER: authority.server("evenkeel-controlplane", HOSTS),
        ADMIN: authority.client(ADMIN, MASTERS),
        FRONT_PROXY_CA: front_proxy.pair,
        FRONT_PROXY_CLIENT: front_proxy.client(FRONT_PROXY_CLIENT),
        TOKENS: token_keys(),
    }
    for name, pair in pairs.items():
        pair.write(folder.certificate(name), folder.key(name))
    _write_kubeconfigs(folder, Kubeconfigs(site.url("kube-apiserver"), authority))


def issuer(site: Site) -> Kubeconfigs:
    """Return the issuer of kubeconfigs for a site whose identities are written."""
    authority = Authority.read(site.folder.certificate(CA), site.folder.key(CA))
    return Kubeconfigs(site.url("kube-apiserver"), authority)


def _write_kubeconfigs(folder: Folder, kubeconfigs: Kubeconfigs) -> None:
    write(folder.kubeconfig, kubeconfigs.for_user(ADMIN, MASTERS))
    for name, user, groups in _component_users():
        write(folder.kubeconfig_of(name), kubeconfigs.for_user(user, groups))


def _component_users() -> Iterable[tuple[str, str, tuple[str, ...]]]:
    return ((c.name, c.user, c.groups) for c in COMPONENTS if c.user)
