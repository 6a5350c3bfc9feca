# SPDX-License-Identifier: Apache-2.0
"""Controllers that own pods: Deployment, ReplicaSet, StatefulSet, DaemonSet, Job and so on.

Follows pkg/registry/apps/*/strategy.go, pkg/apis/apps/v1/defaults.go and
pkg/apis/apps/validation/validation.go of v1.36.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from simulator.api import names
from simulator.api.errors import Cause, not_allowed, required, unknown_value, wrong
from simulator.api.kind import NAME_FIELDS, Fields, Strategy, keep
from simulator.api.kinds import shapes, templates
from simulator.api.kinds.selectors import selector_causes, selector_of
from simulator.api.storage import Json

if TYPE_CHECKING:
    from simulator.api.registry import Registry

_IMMUTABLE: Final = "field is immutable"
_STATEFUL_FREE: Final = (
    "replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy", "minReadySeconds",
)  # fmt: skip
_STATEFUL_WORDS: Final = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
    "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and "
    "'minReadySeconds' are forbidden"
)


class WorkloadStrategy(Strategy):
    """What they have in common: a selector, a template, and a generation."""

    generation = True
    shape: type[shapes.Shape] = shapes.Workload
    kind: ClassVar[str]
    selector_noun: ClassVar[str] = "deployment"
    restart_policies: ClassVar[tuple[str, ...]] = ("Always",)
    first_status: ClassVar[Json] = {}

    def default(self, obj: Json) -> None:
        spec = obj.setdefault("spec", {})
        template = spec.setdefault("template", {})
        template.setdefault("metadata", {})
        templates.default_spec(template.setdefault("spec", {}), self.kind)
        self.default_spec(spec)

    def default_spec(self, spec: Json) -> None:
        """Set the defaults of this kind."""
        if spec.get("replicas") is None:
            spec["replicas"] = 1

    def prepare_create(self, obj: Json, registry: Registry) -> None:
        obj["status"] = dict(self.first_status)

    def validate(self, obj: Json) -> Iterator[Cause]:
        spec = obj["spec"]
        for key in ("replicas", "minReadySeconds", "revisionHistoryLimit", "parallelism"):
            if (spec.get(key) or 0) < 0:
                yield wrong(f"spec.{key}", spec[key], "must be greater than or equal to 0")
        yield from self.selector_causes(spec)
        yield from templates.spec_causes(spec["template"]["spec"], "spec.template.spec")
        policy = spec["template"]["spec"]["restartPolicy"]
        if policy not in self.restart_policies:
            path = "spec.template.spec.restartPolicy"
            yield unknown_value(path, policy, self.restart_policies)

    def selector_causes(self, spec: Json) -> Iterator[Cause]:
        """Return what is wrong with the selector, alone and against the template."""
        selector = spec.get("selector")
        if selector is None:
            yield required("spec.selector")
        else:
            yield from selector_causes(selector, "spec.selector")
            if not selector.get("matchLabels") and not selector.get("matchExpressions"):
                why = f"empty selector is invalid for {self.selector_noun}"
                yield wrong("spec.selector", selector, why)
        labels = spec["template"]["metadata"].get("labels") or {}
        if not selector_of(selector).matches(labels):
            why = "`selector` does not match template `labels`"
            yield wrong("spec.template.metadata.labels", labels, why)

    def validate_update(self, obj: Json, old: Json) -> Iterator[Cause]:
        yield from self.validate(obj)
        if obj["spec"].get("selector") != old["spec"].get("selector"):
            yield wrong("spec.selector", obj["spec"].get("selector"), _IMMUTABLE)


class DeploymentStrategy(WorkloadStrategy):
    kind = "Deployment"

    def default_spec(self, spec: Json) -> None:
        super().default_spec(spec)
        strategy = spec.setdefault("strategy", {})
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", "25%")
            rolling.setdefault("maxSurge", "25%")
        spec.setdefault("revisionHistoryLimit", 10)
        spec.setdefault("progressDeadlineSeconds", 600)

    def means_more(self, obj: Json, old: Json) -> bool:
        # Annotations are copied to ReplicaSets, so they count as desired state here.
        annotations = [each["metadata"].get("annotations") or {} for each in (obj, old)]
        return super().means_more(obj, old) or annotations[0] != annotations[1]

    def prepare_status(self, obj: Json, old: Json) -> None:
        super().prepare_status(obj, old)
        keep(obj["metadata"], old["metadata"], "labels")


_REPLICA_FIELDS: Final[Fields] = {
    **NAME_FIELDS,
    "status.replicas": lambda each: str(each.get("status", {}).get("replicas", 0)),
}


class ReplicaSetStrategy(WorkloadStrategy):
    kind = "ReplicaSet"
    first_status: ClassVar[Json] = {"replicas": 0}
    fields = _REPLICA_FIELDS


class StatefulSetStrategy(WorkloadStrategy):
    kind = "StatefulSet"
    selector_noun = "statefulset"
    first_status: ClassVar[Json] = {"replicas": 0, "availableReplicas": 0}

    def default_spec(self, spec: Json) -> None:
        super().default_spec(spec)
        spec.setdefault("serviceName", "")
        spec.setdefault("podManagementPolicy", "OrderedReady")
        update = spec.setdefault("updateStrategy", {})
        if not update.get("type"):
            update["type"] = "RollingUpdate"
            update.setdefault("rollingUpdate", {})
        if update["type"] == "RollingUpdate" and update.get("rollingUpdate") is not None:
            update["rollingUpdate"].setdefault("partition", 0)
        spec.setdefault("revisionHistoryLimit", 10)
        retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
        retention.setdefault("whenDeleted", "Retain")
        retention.setdefault("whenScaled", "Retain")

    def name_problems(self, name: str) -> Sequence[str]:
        return names.dns_label(name)

    def validate_update(self, obj: Json, old: Json) -> Iterator[Cause]:
        yield from self.validate(obj)
        fixed = [
            {key: value for key, value in each["spec"].items() if key not in _STATEFUL_FREE}
            for each in (obj, old)
        ]
        if fixed[0] != fixed[1]:
            yield not_allowed("spec", _STATEFUL_WORDS)


class DaemonSetStrategy(WorkloadStrategy):
    kind = "DaemonSet"
    selector_noun = "daemonset"
    first_status: ClassVar[Json] = {
        "currentNumberScheduled": 0,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 0,
        "numberReady": 0,
    }

    def default_spec(self, spec: Json) -> None:
        update = spec.setdefault("updateStrategy", {})
        update.setdefault("type", "RollingUpdate")
        if update["type"] == "RollingUpdate":
            rolling = update.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", 1)
            rolling.setdefault("maxSurge", 0)
        spec.setdefault("revisionHistoryLimit", 10)


class ReplicationControllerStrategy(WorkloadStrategy):
    kind = "ReplicationController"
    shape = shapes.ReplicationController
    orphans = True
    field_message = "field label not supported: {}"
    first_status: ClassVar[Json] = {"replicas": 0}
    fields = _REPLICA_FIELDS

    def default(self, obj: Json) -> None:
        super().default(obj)
        labels = obj["spec"]["template"]["metadata"].get("labels")
        if labels:
            obj["spec"].setdefault("selector", dict(labels))
            obj["metadata"].setdefault("labels", dict(labels))

    def selector_causes(self, spec: Json) -> Iterator[Cause]:
        selector = spec.get("selector") or {}
        labels = spec["template"]["metadata"].get("labels") or {}
        if not selector:
            yield required("spec.selector")
        if any(labels.get(key) != value for key, value in selector.items()):
            why = "`selector` does not match template `labels`"
            yield wrong("spec.template.metadata.labels", labels, why)

    def validate_update(self, obj: Json, old: Json) -> Iterator[Cause]:
        return self.validate(obj)


_JOB_FIELDS: Final[Fields] = {
    **NAME_FIELDS,
    "status.successful": lambda each: str(each.get("status", {}).get("succeeded", 0)),
}


class JobStrategy(WorkloadStrategy):
    kind = "Job"
    orphans = True
    restart_policies = ("OnFailure", "Never")
    fields = _JOB_FIELDS

    def default_spec(self, spec: Json) -> None:
        if spec.get("completions") is None and spec.get("parallelism") is None:
            spec["completions"] = 1
        spec.setdefault("parallelism", 1)
        spec.setdefault("backoffLimit", 6)
        spec.setdefault("completionMode", "NonIndexed")
        spec.setdefault("suspend", False)
        spec.setdefault("manualSelector", False)
        strict = "podFailurePolicy" in spec
        spec.setdefault("podReplacementPolicy", "Failed" if strict else "TerminatingOrFailed")

    def prepare_create(self, obj: Json, registry: Registry) -> None:
        super().prepare_create(obj, registry)
        spec, metadata = obj["spec"], obj["metadata"]
        if spec["manualSelector"]:
            return
        uid, name = metadata["uid"], metadata.get("name", "")
        labels = {
            "batch.kubernetes.io/controller-uid": uid,
            "batch.kubernetes.io/job-name": name,
            "controller-uid": uid,
            "job-name": name,
        }
        template = spec["template"]["metadata"]
        template["labels"] = {**(template.get("labels") or {}), **labels}
        metadata.setdefault("labels", dict(template["labels"]))
        own = {"batch.kubernetes.io/controller-uid": uid}
        spec["selector"] = {"matchLabels": own}
