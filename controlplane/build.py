# SPDX-License-Identifier: Apache-2.0
"""Compile the control plane's binaries from pinned Go modules.

The binaries go into a cache folder outside the repository, keyed by the versions, so
that only the first run compiles. A binary is renamed into place after its compiler has
succeeded, so every file in the cache is complete. Concurrent builds are serialized by a lock
file.

Extras, which are tools and the parts of real nodes, are not part of the control plane: they are
built on request only, and a new version of one rebuilds nothing else. What does not depend on the
release of Kubernetes is compiled for one of them, and linked into the folders of the others.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from controlplane.errors import BuildError
from controlplane.releases import DEFAULT, Release, chosen_release

KUBERNETES = DEFAULT.kubernetes
KWOK = "v0.8.0"
METRICS_SERVER = "v0.9.0"
HELM = "v4.3.1"
CONTAINERD = "v2.3.7"
RUNC = "v1.4.3"
CNI_PLUGINS = "v1.9.1"
GO_MINIMUM = (1, 26)

ATTEMPTS = 4
PAUSE_S = 2.0  # doubled after every failed attempt
KWOK_MODULE = "sigs.k8s.io/kwok"
KWOK_STAGES = (
    "stage/node/fast",
    "stage/node/heartbeat-with-lease",
    "stage/pod/fast",
    "metrics/usage/usage-from-annotation.yaml",
    "metrics/resource/metrics-resource.yaml",
)

# Replacements in kwok's metrics of a node. metrics-server drops
# a node without any usage (decodeBatch in pkg/scraper/client/resource), but
# real nodes always have some: a thousandth of a core and 1 MiB for the system.
IDLE_USE = (
    (
        """'node.CumulativeUsage("cpu")'""",
        """'node.CumulativeUsage("cpu") + node.SinceSecond() * 0.001'""",
    ),
    ("""'node.Usage("memory")'""", """'node.Usage("memory") + 1048576.0'"""),
)

# In the names of the folders: what is built from it fits every release.
_COMMON_KEY = f"kwok-{KWOK}_metrics-server-{METRICS_SERVER}"

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Binary:
    """One program: its file name, the Go package it is built from, and the version."""

    name: str
    package: str
    version: str = ""
    """Built by `go install package@version`; without one, inside Kubernetes' module graph."""
    tags: str = ""
    cgo: bool = False


BINARIES: tuple[Binary, ...] = (
    Binary("etcd", "go.etcd.io/etcd/server/v3"),
    Binary("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    Binary("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    Binary("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
    Binary("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    Binary("kwok", "sigs.k8s.io/kwok/cmd/kwok", KWOK),
    Binary("metrics-server", "sigs.k8s.io/metrics-server/cmd/metrics-server", METRICS_SERVER),
)
TOOLS: tuple[Binary, ...] = (Binary("helm", "helm.sh/helm/v4/cmd/helm", HELM),)

_CONTAINERD = "github.com/containerd/containerd/v2/cmd"
_PLUGINS = "github.com/containernetworking/plugins/plugins"
_LEAN = "no_btrfs no_zfs no_devmapper no_aufs no_tracing"
NODE_PARTS: tuple[Binary, ...] = (
    Binary("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
    Binary("containerd", f"{_CONTAINERD}/containerd", CONTAINERD, tags=_LEAN),
    Binary(
        "containerd-shim-runc-v2", f"{_CONTAINERD}/containerd-shim-runc-v2", CONTAINERD, tags=_LEAN
    ),
    Binary("ctr", f"{_CONTAINERD}/ctr", CONTAINERD, tags=_LEAN),
    Binary("runc", "github.com/opencontainers/runc", RUNC, tags="seccomp", cgo=True),
    Binary("ptp", f"{_PLUGINS}/main/ptp", CNI_PLUGINS),
    Binary("loopback", f"{_PLUGINS}/main/loopback", CNI_PLUGINS),
    Binary("host-local", f"{_PLUGINS}/ipam/host-local", CNI_PLUGINS),
)
"""What real nodes run (`controlplane.real_nodes`); built for those who ask for them."""
EXTRAS = (*TOOLS, *NODE_PARTS)


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The folders of the compiled binaries and of kwok's stages."""

    root: Path
    release: Release = DEFAULT

    def binary(self, name: str) -> Path:
        return self.root / "bin" / name

    def tool(self, name: str) -> Path:
        """Return the path of a tool; its folder has its version, because the key has not."""
        version = next(extra.version for extra in EXTRAS if extra.name == name)
        return self.root / "tools" / (version or self.release.kubernetes) / name

    @property
    def kwok_config(self) -> Path:
        return self.root / "kwok-stages.yaml"

    def missing(self) -> list[str]:
        """Return what has not been built yet, in build order."""
        names = [b.name for b in BINARIES if not self.binary(b.name).exists()]
        return names if self.kwok_config.exists() else [*names, self.kwok_config.name]

    def missing_extras(self, wanted: Sequence[Binary]) -> list[str]:
        return [extra.name for extra in wanted if not self.tool(extra.name).exists()]


def cache_folder() -> Path:
    """Return the folder that everything built is kept in."""
    return Path(os.environ.get("EVENKEEL_CACHE") or _user_cache() / "evenkeel")


def toolbox(release: Release | None = None) -> Toolbox:
    """Return the toolbox of a release, built or not; by default of the chosen one."""
    of = release or chosen_release()
    key = f"kubernetes-{of.kubernetes}_etcd-{of.etcd}_{_COMMON_KEY}"
    return Toolbox(cache_folder() / "controlplane" / key, of)


def build(
    report: Report = print, *, extras: Sequence[Binary] = (), release: Release | None = None
) -> Toolbox:
    """Compile what is missing, with a progress line per binary; return the toolbox."""
    box = toolbox(release)
    if not missing_parts(box, extras):
        return box
    with _locked(box.root):
        missing = missing_parts(box, extras)
        if missing:
            _require_go()
            _build_missing(box, missing, report)
    return box


def compile_program(source: Path, target: Path, report: Report = print) -> None:
    """Compile one Go file that needs only the standard library."""
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_suffix(f".{os.getpid()}")
    command = ["go", "build", "-ldflags", "-s -w", "-o", str(fresh), str(source)]
    _go(command, report, cwd=source.parent)
    fresh.rename(target)


def module_dir(
    module: str, version: str, report: Report = print, *, cache: Path | None = None
) -> Path:
    """Return the folder of a Go module, downloaded if necessary; maybe into another cache."""
    env = {"GOMODCACHE": str(cache), "GOFLAGS": "-modcacherw"} if cache else None
    command = ["go", "mod", "download", "-json", f"{module}@{version}"]
    out = _go(command, report, cwd=Path("/"), env=env)
    return Path(json.loads(out)["Dir"])


def missing_parts(box: Toolbox, extras: Sequence[Binary]) -> list[str]:
    """Return what has not been built yet, in build order."""
    return [*box.missing(), *box.missing_extras(extras)]


def _build_missing(box: Toolbox, missing: Sequence[str], report: Report) -> None:
    report(f"building {len(missing)} parts into {box.root} (once, ~2 min each)")
    (box.root / "bin").mkdir(parents=True, exist_ok=True)
    # Inside the cache folder, so that the final rename stays on one file system.
    with tempfile.TemporaryDirectory(prefix="build-", dir=box.root) as scratch:
        module = Path(scratch) / "kubernetes"
        for number, name in enumerate(missing, 1):
            report(f"[{number}/{len(missing)}] {name} …")
            started = time.monotonic()
            if name == box.kwok_config.name:
                _collect_kwok_stages(box, Path(scratch), report)
            else:
                binary = next(b for b in (*BINARIES, *EXTRAS) if b.name == name)
                if not _linked(binary, box):
                    _compile(binary, box, module, Path(scratch), report)
            report(f"[{number}/{len(missing)}] {name} done in {time.monotonic() - started:.0f} s")


def _place(binary: Binary, box: Toolbox) -> Path:
    return box.tool(binary.name) if binary in EXTRAS else box.binary(binary.name)


def _linked(binary: Binary, box: Toolbox) -> bool:
    """Take a program that does not depend on the release from the folder of another one."""
    place = _place(binary, box)
    path = place.relative_to(box.root)
    built = sorted(box.root.parent.glob(f"*_{_COMMON_KEY}/{path}")) if binary.version else ()
    for other in built:
        place.parent.mkdir(parents=True, exist_ok=True)
        os.link(other, place)
        return True
    return False


def _compile(binary: Binary, box: Toolbox, module: Path, scratch: Path, report: Report) -> None:
    version = binary.version or box.release.kubernetes
    flags = f"-s -w -X k8s.io/component-base/version.gitVersion={version}"
    if binary.version:
        chosen = ["-tags", binary.tags] if binary.tags else []
        package = f"{binary.package}@{binary.version}"
        command = ["go", "install", "-ldflags", flags, *chosen, package]
        env = {"GOBIN": str(scratch), "CGO_ENABLED": str(int(binary.cgo))}
        _go(command, report, cwd=scratch, env=env)
    else:
        _write_kubernetes_module(module, box.release, report)
        output = str(scratch / binary.name)
        command = ["go", "build", "-mod=mod", "-ldflags", flags, "-o", output, binary.package]
        _go(command, report, cwd=module)
    place = _place(binary, box)
    place.parent.mkdir(parents=True, exist_ok=True)
    (scratch / binary.name).rename(place)


def _write_kubernetes_module(module: Path, release: Release, report: Report) -> None:
    """Write a go.mod that can build Kubernetes' commands from outside its repository.

    Kubernetes requires its staging modules at v0.0.0 and replaces them by folders; from
    outside they are replaced by the published modules of the same release. The runtime behaves
    as the release's own go.mod asks for, whatever Go compiles it.
    """
    if (module / "go.mod").exists():
        return
    version = release.kubernetes
    original = (module_dir("k8s.io/kubernetes", version, report) / "go.mod").read_text()
    staging = re.findall(r"^\s*(k8s\.io/\S+) => \./staging/", original, flags=re.MULTILINE)
    if not staging:
        raise BuildError(f"no staging modules in the go.mod of kubernetes {version}")
    published = version.replace("v1.", "v0.", 1)
    tools = "\n".join(f"\t{b.package}" for b in BINARIES if not b.version)
    replaces = "\n".join(f"\t{name} => {name} {published}" for name in staging)
    requires = f"\tk8s.io/kubernetes {version}\n\tgo.etcd.io/etcd/server/v3 {release.etcd}"
    module.mkdir()
    (module / "go.mod").write_text(
        "module evenkeel.io/controlplane\n\n"
        "go 1.26.0\n\n"
        f"godebug default=go{release.go}\n\n"
        f"tool (\n{tools}\n)\n\n"
        f"require (\n{requires}\n)\n\n"
        f"replace (\n{replaces}\n)\n"
    )


def _collect_kwok_stages(box: Toolbox, scratch: Path, report: Report) -> None:
    """Concatenate the stages of kwok's module; kwok does not start without them."""
    folder = module_dir(KWOK_MODULE, KWOK, report) / "kustomize"
    texts: list[str] = []
    for name in KWOK_STAGES:
        source = folder / name
        files = sorted(source.glob("*.yaml")) if source.is_dir() else [source]
        texts += [f.read_text().strip() for f in files if f.name != "kustomization.yaml"]
    whole = scratch / box.kwok_config.name
    whole.write_text(_with_idle_use("\n---\n".join(texts) + "\n"))
    whole.rename(box.kwok_config)


def _with_idle_use(text: str) -> str:
    for measured, told in IDLE_USE:
        if measured not in text:
            raise BuildError(f"the metrics of kwok {KWOK} do not contain {measured}")
        text = text.replace(measured, told)
    return text


def _go(
    command: Sequence[str], report: Report, *, cwd: Path, env: Mapping[str, str] | None = None
) -> str:
    """Run the go command; a failed download is retried, because networks fail at times."""
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "", **(env or {})}
    if _go_version() >= (1, 27):
        environment["GOEXPERIMENT"] = "nojsonv2"
    for attempt in range(1, ATTEMPTS + 1):
        done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout
        lines = done.stderr.strip().splitlines() or ["no output"]
        if attempt < ATTEMPTS:
            report(f"  attempt {attempt} of {ATTEMPTS} failed ({lines[-1][:160]}), trying again")
            time.sleep(PAUSE_S * 2 ** (attempt - 1))
    raise BuildError(
        f"`{' '.join(command[:2])}` failed {ATTEMPTS} times: " + " | ".join(lines[-3:])
    )


def _require_go() -> None:
    if shutil.which("go") is None:
        raise BuildError("Go is missing: install Go 1.26 or newer and put it on PATH")
    if _go_version() < GO_MINIMUM:
        found = ".".join(map(str, _go_version()))
        raise BuildError(f"Go {found} is too old: install Go 1.26 or newer")


def _go_version() -> tuple[int, int]:
    text = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True).stdout
    found = re.match(r"go(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[None]:
    root.mkdir(parents=True, exist_ok=True)
    with (root / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for leftover in root.glob("build-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        yield


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
