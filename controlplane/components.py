# SPDX-License-Identifier: Apache-2.0
"""The components and their flags: pure functions from a site to a command line.

`COMPONENTS` is in the order of starting; a component needs those before it. Each
serves on one loopback port with a readiness endpoint, and logs to stderr.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from controlplane.build import Toolbox
from controlplane.folder import Folder
from controlplane.ports import LOOPBACK

CA = "ca"
FRONT_PROXY_CA = "front-proxy-ca"
FRONT_PROXY_CLIENT = "front-proxy-client"
SERVER = "server"
TOKENS = "service-account"
ADMIN = "admin"
ETCD_PEER = "etcd-peer"
NODE_LEASE_S = 40
SERVICE_RANGE = "10.96.0.0/16"
FIRST_SERVICE_ADDRESS = "10.96.0.1"
METRIC_RESOLUTION_S = 10  # the shortest that metrics-server accepts
ISSUER = "https://kubernetes.default.svc"


@dataclass(frozen=True, slots=True)
class Site:
    """The binaries, the folder and the ports of one control plane."""

    box: Toolbox
    folder: Folder
    ports: Mapping[str, int]
    metric_resolution_s: int = METRIC_RESOLUTION_S
    pod_groups: bool = False
    """Whether Kubernetes serves and schedules PodGroups, which its gates turn off by default."""

    def url(self, component: str, scheme: str = "https") -> str:
        return f"{scheme}://{LOOPBACK}:{self.ports[component]}"


@dataclass(frozen=True, slots=True)
class Component:
    """One process of the control plane."""

    name: str
    flags: Callable[[Site], list[str]]
    ready: str
    """The path that returns 200 once the component is ready."""
    user: str = ""
    groups: tuple[str, ...] = ()
    scheme: str = "https"
    optional: bool = True

    def argv(self, site: Site) -> tuple[str, ...]:
        return (str(site.box.binary(self.name)), *self.flags(site))

    def ready_url(self, site: Site) -> str:
        return site.url(self.name, self.scheme) + self.ready


def etcd(site: Site) -> list[str]:
    client, peer = site.url("etcd", "http"), site.url(ETCD_PEER, "http")
    return [
        "--name=etcd",
        f"--data-dir={site.folder.etcd}",
        # Data must survive a crash of etcd, but not of the machine.
        "--unsafe-no-fsync",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=etcd={peer}",
        f"--quota-backend-bytes={8 << 30}",
        "--log-level=warn",
    ]


def kube_apiserver(site: Site) -> list[str]:
    folder = site.folder
    return [
        f"--etcd-servers={site.url('etcd', 'http')}",
        *_serving(site, "kube-apiserver"),
        # Loopback is not a valid endpoint address; without a reconciler it is not written.
        f"--advertise-address={LOOPBACK}",
        "--endpoint-reconciler-type=none",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        f"--client-ca-file={folder.certificate(CA)}",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-key-file={folder.certificate(TOKENS)}",
        f"--service-account-signing-key-file={folder.key(TOKENS)}",
        "--authorization-mode=RBAC",
        # Pods of kwok mount no tokens, and tests do not wait for service accounts.
        "--disable-admission-plugins=ServiceAccount",
        f"--requestheader-client-ca-file={folder.certificate(FRONT_PROXY_CA)}",
        f"--requestheader-allowed-names={FRONT_PROXY_CLIENT}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={folder.certificate(FRONT_PROXY_CLIENT)}",
        f"--proxy-client-key-file={folder.key(FRONT_PROXY_CLIENT)}",
        "--max-requests-inflight=3000",
        "--max-mutating-requests-inflight=1500",
        "--allow-privileged",
        # Watches are closed at shutdown, so that a restart does not take a minute.
        "--shutdown-watch-termination-grace-period=1s",
        "--profiling=false",
        *(["--runtime-config=scheduling.k8s.io/v1alpha2=true"] if site.pod_groups else []),
        *_gates(site),
    ]


def kube_controller_manager(site: Site) -> list[str]:
    folder = site.folder
    return [
        *_kubeconfigs(site, "kube-controller-manager"),
        *_serving(site, "kube-controller-manager"),
        # Each controller with its own bootstrap role; the common user may do very little.
        "--use-service-account-credentials",
        f"--service-account-private-key-file={folder.key(TOKENS)}",
        f"--root-ca-file={folder.certificate(CA)}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        "--leader-elect=false",
        "--profiling=false",
        *_gates(site),
    ]


def kube_scheduler(site: Site) -> list[str]:
    kubeconfig = site.folder.kubeconfig_of("kube-scheduler")
    return [
        # Its kubeconfig is set in the configuration file, as users do.
        f"--config={site.folder.scheduler_config}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        *_serving(site, "kube-scheduler"),
        "--leader-elect=false",
        *_gates(site),
    ]


def kwok(site: Site) -> list[str]:
    port = site.ports["kwok"]
    return [
        f"--kubeconfig={site.folder.kubeconfig_of('kwok')}",
        f"--config={site.box.kwok_config}",
        "--manage-all-nodes",
        f"--node-ip={LOOPBACK}",
        f"--node-port={port}",
        f"--server-address={LOOPBACK}:{port}",
        f"--tls-cert-file={site.folder.certificate(SERVER)}",
        f"--tls-private-key-file={site.folder.key(SERVER)}",
        f"--node-lease-duration-seconds={NODE_LEASE_S}",
    ]


def metrics_server(site: Site) -> list[str]:
    return [
        *_kubeconfigs(site, "metrics-server"),
        *_serving(site, "metrics-server"),
        "--kubelet-insecure-tls",
        "--kubelet-preferred-address-types=InternalIP",
        "--kubelet-use-node-status-port",
        # It must exceed the timeout.
        f"--metric-resolution={site.metric_resolution_s}s",
        "--kubelet-request-timeout=3s",
    ]


def _gates(site: Site) -> list[str]:
    # pkg/features/kube_features.go: both are alpha, and the second needs the first.
    return ["--feature-gates=GenericWorkload=true,GangScheduling=true"] if site.pod_groups else []


def _serving(site: Site, component: str) -> list[str]:
    return [
        f"--bind-address={LOOPBACK}",
        f"--secure-port={site.ports[component]}",
        f"--tls-cert-file={site.folder.certificate(SERVER)}",
        f"--tls-private-key-file={site.folder.key(SERVER)}",
    ]


def _kubeconfigs(site: Site, component: str) -> list[str]:
    path = site.folder.kubeconfig_of(component)
    flags = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
    return [f"--{flag}={path}" for flag in flags]


MASTERS = ("system:masters",)

COMPONENTS: tuple[Component, ...] = (
    Component("etcd", etcd, "/readyz", scheme="http", optional=False),
    Component("kube-apiserver", kube_apiserver, "/readyz", optional=False),
    Component(
        "kube-controller-manager",
        kube_controller_manager,
        "/healthz",
        user="system:kube-controller-manager",
    ),
    Component("kube-scheduler", kube_scheduler, "/readyz", user="system:kube-scheduler"),
    # Parts of the test setup, not of Kubernetes: their permissions are not tested.
    Component("kwok", kwok, "/readyz", user="evenkeel:kwok", groups=MASTERS),
    Component(
        "metrics-server", metrics_server, "/livez", user="evenkeel:metrics-server", groups=MASTERS
    ),
)
NAMES = tuple(component.name for component in COMPONENTS)
PORTS = (*NAMES, ETCD_PEER)


def by_name(name: str) -> Component:
    """Return the component of that name."""
    return next(component for component in COMPONENTS if component.name == name)
