# SPDX-License-Identifier: Apache-2.0
"""The chart and the kustomize manifests, rendered and made comparable.

Both are rendered by the real tools, out of what `python -m controlplane build` has made.
Files inside ConfigMaps are compared by what they say, for comments get lost in a merge.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from controlplane.build import KUBERNETES, Toolbox
from tests.support.repository import DEPLOY

Json = dict[str, Any]  # Any: a JSON object
Objects = dict[tuple[str, str, str, str], Json]
"""By apiVersion, kind, namespace and name."""

CHART: Final = DEPLOY / "helm" / "evenkeel"
NAMESPACE: Final = "evenkeel"
KEEP: Final = "helm.sh/resource-policy"
CHECKSUM: Final = "evenkeel.io/configuration"
HOOK: Final = "helm.sh/hook"
_READERS: Final[Mapping[str, Callable[[str], Any]]] = {".yaml": yaml.safe_load, ".json": json.loads}


@dataclass(frozen=True)
class Combination:
    """The same wish, once for kustomize and once for Helm."""

    base: str
    components: Sequence[str] = ()
    values: Json = field(default_factory=dict)
    images: Sequence[Json] = ()
    patches: Sequence[Json] = ()

    def __str__(self) -> str:
        own = ["digest" if "digest" in image else "image" for image in self.images]
        own += ["patch" for _ in self.patches]
        return "+".join([self.base.rpartition("/")[2], *self.components, *own])


class Tools:
    """helm and kubectl, run in a home of their own."""

    def __init__(self, box: Toolbox, home: Path, kubeconfig: Path | None = None) -> None:
        self._box = box
        self._home = home
        self._kubeconfig = kubeconfig

    def helm(self, *arguments: str) -> str:
        """Run helm; return what it prints, and fail with its words."""
        return self._run(self._box.tool("helm"), *arguments)

    def kubectl(self, *arguments: str) -> str:
        return self._run(self._box.binary("kubectl"), *arguments)

    def refusal(self, *arguments: str) -> str:
        """Run helm, which has to fail; return its words."""
        done = self._done(self._box.tool("helm"), *arguments)
        assert done.returncode != 0, done.stdout
        return done.stderr

    def template(
        self, values: Json | None = None, *, namespace: str = NAMESPACE, cluster: str = KUBERNETES
    ) -> str:
        """Return what the chart renders to with these values, for a cluster of this version."""
        file = self.write(values or {})
        where = (f"-n={namespace}", f"--kube-version={cluster}")
        return self.helm("template", "evenkeel", str(CHART), *where, f"-f={file}")

    def write(self, values: Json) -> Path:
        """Write a file of values."""
        file = self._home / "values.yaml"
        file.write_text(yaml.safe_dump(values))
        return file

    def write_rendered(self, values: Json) -> Path:
        """Write a file of objects."""
        file = self._home / "rendered.yaml"
        file.write_text(self.template(values))
        return file

    def kustomize(self, wanted: Combination) -> str:
        """Return what a kustomization that a user would write renders to."""
        folder = self._home / "kustomize"
        folder.mkdir(exist_ok=True)
        parts = [DEPLOY / "components" / name for name in wanted.components]
        kustomization = {
            "resources": [os.path.relpath(DEPLOY / wanted.base, folder)],
            "components": [os.path.relpath(part, folder) for part in parts],
            "images": list(wanted.images),
            "patches": list(wanted.patches),
        }
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        return self.kubectl("kustomize", str(folder))

    def _run(self, *command: str | Path) -> str:
        done = self._done(*command)
        assert done.returncode == 0, f"{command[1:3]}: {done.stderr}"
        return done.stdout

    def _done(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        env = {"HOME": str(self._home), "KUBECONFIG": str(self._kubeconfig or os.devnull)}
        return subprocess.run([*map(str, command)], env=env, capture_output=True, text=True)


def objects(text: str) -> Objects:
    """Return the objects of a stream of documents; two of one name are an error."""
    found: Objects = {}
    for obj in yaml.safe_load_all(text):
        if obj:
            assert identity(obj) not in found, identity(obj)
            found[identity(obj)] = _with_files_read(obj)
    return found


def identity(obj: Json) -> tuple[str, str, str, str]:
    meta = obj["metadata"]
    return obj["apiVersion"], obj["kind"], meta.get("namespace", ""), meta["name"]


def of_kind(found: Objects, kind: str) -> list[Json]:
    return [obj for key, obj in found.items() if key[1] == kind]


def without_namespace(found: Objects) -> Objects:
    """Return the objects but for the namespace of the release, which Helm makes itself."""
    return {key: obj for key, obj in found.items() if key[1:] != ("Namespace", "", NAMESPACE)}


def without_helms_own(found: Objects) -> Objects:
    """Return the objects but for tests of a release and the annotations that only a chart needs."""
    tests = annotated(found, HOOK)
    return {key: _plain(obj) for key, obj in found.items() if key[1:4:2] not in tests}


def annotated(found: Objects, annotation: str) -> set[tuple[str, str]]:
    """Return kind and name of the objects with an annotation, on themselves or their pods."""
    return {key[1:4:2] for key, obj in found.items() if any(annotation in a for a in _notes(obj))}


def _notes(obj: Json) -> Iterable[Json]:
    template = obj.get("spec", {}).get("template", {})
    for owner in (obj, template if isinstance(template, dict) else {}):
        yield owner.get("metadata", {}).get("annotations") or {}


def _plain(obj: Json) -> Json:
    plain = copy.deepcopy(obj)
    owners = [plain["metadata"], plain.get("spec", {}).get("template", {}).get("metadata", {})]
    for owner in owners:
        notes = owner.get("annotations") or {}
        left = {key: value for key, value in notes.items() if key not in (KEEP, CHECKSUM)}
        if notes and not left:
            del owner["annotations"]
    return plain


def _with_files_read(obj: Json) -> Json:
    if obj["kind"] != "ConfigMap":
        return obj
    read = {name: _READERS[Path(name).suffix](text) for name, text in obj["data"].items()}
    return {**obj, "data": read}
