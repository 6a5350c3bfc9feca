# SPDX-License-Identifier: Apache-2.0
"""What the server fills in for each kind, and what it refuses of each."""

from __future__ import annotations

from typing import Any

from common.kube.resources import (
    DEPLOYMENTS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    PDBS,
    PODS,
    PRIORITYCLASSES,
    REPLICATIONCONTROLLERS,
    STATEFULSETS,
    STORAGECLASSES,
)
from simulator import build
from tests.support.stands.conformance import Json, Stand, case


def _pod(name: str, **metadata: Any) -> Json:
    made = build.pod(name, spec={"schedulerName": "nobody"})
    del made["metadata"]["namespace"]
    made["metadata"].update(metadata)
    return made


@case
async def a_pod_gets_its_defaults(api: Stand) -> None:
    spec = (await api.create(PODS, _pod("web"))).expect(201).body["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["dnsPolicy"] == "ClusterFirst"
    assert spec["priority"] == 0
    assert spec["preemptionPolicy"] == "PreemptLowerPriority"
    assert spec["enableServiceLinks"] is True
    (container,) = spec["containers"]
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert container["terminationMessagePolicy"] == "File"
    lost = {each["key"]: each["tolerationSeconds"] for each in spec["tolerations"]}
    keys = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    assert lost == dict.fromkeys(keys, 300)


@case
async def a_pod_without_a_grace_period_gets_thirty_seconds(api: Stand) -> None:
    given = _pod("web")
    del given["spec"]["terminationGracePeriodSeconds"]
    made = (await api.create(PODS, given)).expect(201)
    assert made.body["spec"]["terminationGracePeriodSeconds"] == 30


@case
async def requests_default_to_limits(api: Stand) -> None:
    given = _pod("web")
    given["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1", "memory": "1Gi"}}
    made = (await api.create(PODS, given)).expect(201).body
    assert made["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}
    assert made["status"]["qosClass"] == "Guaranteed"


@case
async def quality_of_service_follows_requests_and_limits(api: Stand) -> None:
    for name, resources, expected in (
        ("none", {}, "BestEffort"),
        ("some", {"requests": {"cpu": "1"}}, "Burstable"),
        ("low", {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}}, "Burstable"),
    ):
        given = _pod(name)
        given["spec"]["containers"][0]["resources"] = resources
        made = (await api.create(PODS, given)).expect(201)
        assert made.body["status"]["qosClass"] == expected


@case
async def requests_above_limits_are_refused(api: Stand) -> None:
    given = _pod("web")
    resources = {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}
    given["spec"]["containers"][0]["resources"] = resources
    answer = (await api.create(PODS, given)).expect(422, "Invalid")
    assert answer.fields == {"spec.containers[0].resources.requests"}


@case
async def nonsense_quantities_are_refused(api: Stand) -> None:
    given = _pod("web")
    given["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "many"}}
    (await api.create(PODS, given)).expect(400, "BadRequest")
    given["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "-1"}}
    answer = (await api.create(PODS, given)).expect(422, "Invalid")
    assert answer.fields == {"spec.containers[0].resources.requests[cpu]"}


@case
async def numbers_are_taken_for_quantities(api: Stand) -> None:
    given = _pod("web")
    given["spec"]["containers"][0]["resources"] = {"requests": {"cpu": 2}}
    made = (await api.create(PODS, given)).expect(201).body
    assert made["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "2"}


@case
async def containers_must_be_named_apart(api: Stand) -> None:
    given = _pod("web")
    given["spec"]["containers"] *= 2
    answer = (await api.create(PODS, given)).expect(422, "Invalid")
    assert answer.causes[0]["reason"] == "FieldValueDuplicate"
    given["spec"]["containers"] = []
    answer = (await api.create(PODS, given)).expect(422, "Invalid")
    assert answer.fields == {"spec.containers"}


@case
async def an_unknown_restart_policy_is_refused(api: Stand) -> None:
    given = _pod("web")
    given["spec"]["restartPolicy"] = "Sometimes"
    answer = (await api.create(PODS, given)).expect(422, "Invalid")
    assert answer.causes[0]["reason"] == "FieldValueNotSupported"


@case
async def a_priority_class_gives_a_pod_its_priority(api: Stand) -> None:
    name = api.unique("high")
    made = {"metadata": {"name": name}, "value": 1000, "preemptionPolicy": "Never"}
    (await api.create(PRIORITYCLASSES, made)).expect(201)
    try:
        given = _pod("web")
        given["spec"]["priorityClassName"] = name
        spec = (await api.create(PODS, given)).expect(201).body["spec"]
        assert (spec["priority"], spec["preemptionPolicy"]) == (1000, "Never")
    finally:
        await api.delete(PRIORITYCLASSES, name)


@case
async def an_unknown_priority_class_is_forbidden(api: Stand) -> None:
    given = _pod("web")
    given["spec"]["priorityClassName"] = "no-such-class"
    answer = (await api.create(PODS, given)).expect(403, "Forbidden")
    assert "no PriorityClass with name no-such-class was found" in answer.message


@case
async def a_bare_priority_is_forbidden(api: Stand) -> None:
    given = _pod("web")
    given["spec"]["priority"] = 5
    (await api.create(PODS, given)).expect(403, "Forbidden")


@case
async def the_value_of_a_priority_class_never_changes(api: Stand) -> None:
    name = api.unique("fixed")
    (await api.create(PRIORITYCLASSES, {"metadata": {"name": name}, "value": 7})).expect(201)
    try:
        answer = await api.patch(PRIORITYCLASSES, name, {"value": 8})
        assert answer.expect(422, "Invalid").fields == {"value"}
    finally:
        await api.delete(PRIORITYCLASSES, name)


@case
async def match_label_keys_are_written_into_selectors(api: Stand) -> None:
    given = _pod("web", labels={"app": "web", "rev": "1"})
    selector = {"matchLabels": {"app": "web"}}
    term = {"topologyKey": "zone", "labelSelector": selector, "matchLabelKeys": ["rev"]}
    hard = "requiredDuringSchedulingIgnoredDuringExecution"
    given["spec"]["affinity"] = {"podAntiAffinity": {hard: [term]}}
    made = (await api.create(PODS, given)).expect(201).body
    (kept,) = made["spec"]["affinity"]["podAntiAffinity"][hard]
    expected = [{"key": "rev", "operator": "In", "values": ["1"]}]
    assert kept["labelSelector"]["matchExpressions"] == expected


@case
async def a_gated_pod_says_so(api: Stand) -> None:
    made = await api.pod("web", bound=False, spec={"schedulingGates": [{"name": "wait"}]})
    (condition,) = made["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "False")
    assert condition["reason"] == "SchedulingGated"


@case
async def a_new_node_is_tainted_until_it_is_ready(api: Stand) -> None:
    name = api.unique("node")
    made = (await api.create(NODES, build.node(name))).expect(201).body
    expected = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    assert made["spec"]["taints"] == [expected]
    assert made["status"]["allocatable"]["cpu"] == "8"
    await api.delete(NODES, name)


@case
async def taints_must_be_valid(api: Stand) -> None:
    given = build.node(api.unique("node"), taints=[{"key": "a", "effect": "Sometimes"}])
    answer = (await api.create(NODES, given)).expect(422, "Invalid")
    assert answer.causes[0]["reason"] == "FieldValueNotSupported"


@case
async def a_namespace_begins_active(api: Stand) -> None:
    name = api.unique("space")
    made = (await api.create(NAMESPACES, build.namespace(name))).expect(201).body
    assert made["spec"]["finalizers"] == ["kubernetes"]
    assert made["status"]["phase"] == "Active"
    assert made["metadata"]["labels"]["kubernetes.io/metadata.name"] == name
    await api.delete(NAMESPACES, name)


@case
async def a_deployment_gets_its_defaults(api: Stand) -> None:
    given = build.deployment("web", 0, namespace=api.namespace)
    made = (await api.create(DEPLOYMENTS, given)).expect(201).body
    spec = made["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": "25%", "maxSurge": "25%"}
    assert (spec["revisionHistoryLimit"], spec["progressDeadlineSeconds"]) == (10, 600)
    assert spec["template"]["spec"]["restartPolicy"] == "Always"
    assert made["metadata"]["generation"] == 1


@case
async def a_stateful_set_gets_its_defaults(api: Stand) -> None:
    given = build.stateful_set("db", 0, namespace=api.namespace)
    spec = (await api.create(STATEFULSETS, given)).expect(201).body["spec"]
    update = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    assert spec["updateStrategy"] == update
    assert spec["podManagementPolicy"] == "OrderedReady"


@case
async def a_job_gets_a_selector_of_its_own(api: Stand) -> None:
    template = build.pod_template(labels={}, spec={"restartPolicy": "Never"})
    given = {"metadata": {"name": "once"}, "spec": {"template": template, "suspend": True}}
    made = (await api.create(JOBS, given)).expect(201).body
    labels = {"batch.kubernetes.io/controller-uid": made["metadata"]["uid"]}
    assert made["spec"]["selector"]["matchLabels"] == labels
    assert made["spec"]["backoffLimit"] == 6


@case
async def a_replication_controller_selects_its_template(api: Stand) -> None:
    template = build.pod_template(labels={"app": "old"})
    given = {"metadata": {"name": "old"}, "spec": {"replicas": 0, "template": template}}
    made = (await api.create(REPLICATIONCONTROLLERS, given)).expect(201).body
    assert made["spec"]["selector"] == {"app": "old"}


@case
async def a_selector_must_match_its_template(api: Stand) -> None:
    given = build.deployment("web", 0, namespace=api.namespace)
    given["spec"]["selector"] = {"matchLabels": {"app": "other"}}
    answer = (await api.create(DEPLOYMENTS, given)).expect(422, "Invalid")
    assert answer.fields == {"spec.template.metadata.labels"}
    given["spec"]["selector"] = {}
    assert "spec.selector" in (await api.create(DEPLOYMENTS, given)).expect(422, "Invalid").fields


@case
async def negative_replicas_are_refused(api: Stand) -> None:
    given = build.deployment("web", -1, namespace=api.namespace)
    answer = (await api.create(DEPLOYMENTS, given)).expect(422, "Invalid")
    assert answer.fields == {"spec.replicas"}


@case
async def a_budget_has_one_limit(api: Stand) -> None:
    both = build.pdb("b", match={"a": "b"}, min_available=1, max_unavailable=1)
    for given, field in (
        (both, "spec"),
        (build.pdb("b", match={"a": "b"}, min_available="x%"), "spec.minAvailable"),
        (build.pdb("b", match={"a": "b"}, min_available="101%"), "spec.minAvailable"),
        (build.pdb("b", match={"a": "b"}, max_unavailable=-1), "spec.maxUnavailable"),
    ):
        del given["metadata"]["namespace"]
        answer = (await api.create(PDBS, given)).expect(422, "Invalid")
        assert answer.fields == {field}


@case
async def an_unknown_eviction_policy_is_refused(api: Stand) -> None:
    given = build.pdb("b", match={"a": "b"}, namespace=api.namespace, min_available=1)
    given["spec"]["unhealthyPodEvictionPolicy"] = "Sometimes"
    answer = (await api.create(PDBS, given)).expect(422, "Invalid")
    assert answer.fields == {"spec.unhealthyPodEvictionPolicy"}


@case
async def a_lease_wants_microseconds(api: Stand) -> None:
    given: Json = {"metadata": {"name": "lead"}, "spec": {"renewTime": "2026-01-01T00:00:00Z"}}
    (await api.create(LEASES, given)).expect(400, "BadRequest")
    given["spec"] = {"renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 0}
    answer = (await api.create(LEASES, given)).expect(422, "Invalid")
    assert answer.fields == {"spec.leaseDurationSeconds"}
    given["spec"]["leaseDurationSeconds"] = 15
    assert (await api.create(LEASES, given)).expect(201).body["spec"] == given["spec"]


@case
async def a_storage_class_gets_its_defaults(api: Stand) -> None:
    name = api.unique("fast")
    given = {"metadata": {"name": name}, "provisioner": "example.com/disk"}
    made = (await api.create(STORAGECLASSES, given)).expect(201).body
    assert (made["reclaimPolicy"], made["volumeBindingMode"]) == ("Delete", "Immediate")
    gone = (await api.delete(STORAGECLASSES, name)).expect(200).body
    assert gone["kind"] == "StorageClass"
