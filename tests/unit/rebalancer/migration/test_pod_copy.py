# SPDX-License-Identifier: Apache-2.0
"""The copy of a bare pod: what stays of the original and what does not."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from common.api.contract import (
    COPY_OF,
    MIGRATED_FROM_LABEL,
    MIGRATION_ID_LABEL,
    MIGRATION_REASON_LABEL,
    MIGRATION_STATUS_LABEL,
    MIGRATION_TIME,
    MIRROR_POD,
    ORIGINAL_POD,
    ORIGINAL_POD_NAME,
)
from rebalancer.migration.pod_copy import Json, copy_of, is_copy_of, obstacles
from simulator import build

NAME = "rescheduled-solo-1"
TOKEN = {"name": "kube-api-access-x7k2p", "projected": {"sources": []}}
CONFIG = {"name": "config", "configMap": {"name": "solo"}}


def original(**spec: Any) -> Json:
    """Return a pod as the API server gives it back."""
    made = build.pod("solo", node="node-1", spec=spec)
    made["metadata"] |= {
        "uid": "u-1",
        "resourceVersion": "7",
        "generation": 3,
        "creationTimestamp": "2026-11-16T08:00:00Z",
        "generateName": "so",
        "managedFields": [{"manager": "kubectl"}],
        "finalizers": ["example.com/hold"],
    }
    made["status"] = {"phase": "Running", "podIP": "10.0.0.1"}
    return made


def test_what_the_cluster_added_is_left_out() -> None:
    made = copy_of(original(), NAME)
    assert made["metadata"].keys() == {"name", "namespace", "labels", "annotations"}
    assert "status" not in made
    assert "nodeName" not in made["spec"]


def test_what_a_person_wrote_stays() -> None:
    tolerations = [{"key": "gpu", "operator": "Exists"}]
    pod = original(schedulerName="other", tolerations=tolerations, serviceAccountName="robot")
    made = copy_of(pod, NAME)
    assert made["metadata"]["labels"] == {"app": "solo"}
    assert made["spec"]["schedulerName"] == "other"
    assert made["spec"]["tolerations"] == tolerations
    assert made["spec"]["serviceAccountName"] == "robot"
    assert made["spec"]["containers"] == pod["spec"]["containers"]


def test_the_copy_says_whose_copy_it_is() -> None:
    made = copy_of(original(), NAME)
    assert made["metadata"]["name"] == NAME
    assert made["metadata"]["annotations"] == {
        COPY_OF: "u-1",
        ORIGINAL_POD: "u-1",
        ORIGINAL_POD_NAME: "solo",
    }
    assert is_copy_of(made, "u-1")
    assert not is_copy_of(made, "u-2")
    assert not is_copy_of(build.pod("solo"), "u-1")


def test_marks_of_the_move_and_of_the_node_do_not_go_along() -> None:
    pod = original()
    marks = (
        MIGRATION_ID_LABEL,
        MIGRATION_STATUS_LABEL,
        MIGRATED_FROM_LABEL,
        MIGRATION_REASON_LABEL,
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
    )
    pod["metadata"]["labels"] |= dict.fromkeys(marks, "x")
    applied = "kubectl.kubernetes.io/last-applied-configuration"
    pod["metadata"]["annotations"] = {MIGRATION_TIME: "x", applied: "{}", "team": "shop"}
    made = copy_of(pod, NAME)
    assert made["metadata"]["labels"] == {"app": "solo"}
    assert made["metadata"]["annotations"]["team"] == "shop"
    assert not {MIGRATION_TIME, applied} & made["metadata"]["annotations"].keys()


def test_the_token_of_the_original_does_not_go_along() -> None:
    mounts = [
        {"name": TOKEN["name"], "mountPath": "/var/run/secrets"},
        {"name": "config", "mountPath": "/etc/solo"},
    ]
    pod = original(volumes=[CONFIG, TOKEN])
    pod["spec"]["containers"][0]["volumeMounts"] = mounts
    pod["spec"]["initContainers"] = [{"name": "init", "volumeMounts": mounts[:1]}]
    made = copy_of(pod, NAME)["spec"]
    assert made["volumes"] == [CONFIG]
    assert made["containers"][0]["volumeMounts"] == mounts[1:]
    assert made["initContainers"][0]["volumeMounts"] == []


@pytest.mark.parametrize(
    "field", ["priority", "preemptionPolicy", "ephemeralContainers", "schedulingGates"]
)
def test_what_creation_would_refuse_is_left_out(field: str) -> None:
    assert field not in copy_of(original(**{field: 7}), NAME)["spec"]


def test_label_keys_are_not_merged_into_selectors_twice() -> None:
    """A pod whose key stands in both is refused: ValidateMatchLabelKeysAndMismatchLabelKeys."""
    merged = [
        {"key": "tier", "operator": "Exists"},
        {"key": "app", "operator": "In", "values": ["solo"]},
        {"key": "team", "operator": "NotIn", "values": ["shop"]},
    ]
    term = {
        "topologyKey": "zone",
        "labelSelector": {"matchExpressions": merged},
        "matchLabelKeys": ["app", "absent"],
        "mismatchLabelKeys": ["team"],
    }
    affinity = {
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "podAffinityTerm": copy.deepcopy(term)}
            ]
        },
    }
    pod = original(affinity=affinity, topologySpreadConstraints=[copy.deepcopy(term)])
    pod["metadata"]["labels"]["team"] = "shop"
    made = copy_of(pod, NAME)["spec"]
    terms = [
        made["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0],
        made["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0][
            "podAffinityTerm"
        ],
        made["topologySpreadConstraints"][0],
    ]
    assert [t["labelSelector"]["matchExpressions"] for t in terms] == [merged[:1]] * 3
    assert term["labelSelector"] == {"matchExpressions": merged}, "the original is not changed"


def test_an_expression_that_a_person_wrote_stays() -> None:
    own = {"key": "app", "operator": "In", "values": ["other"]}
    constraint = {
        "topologyKey": "zone",
        "labelSelector": {"matchExpressions": [own]},
        "matchLabelKeys": ["app"],
    }
    made = copy_of(original(topologySpreadConstraints=[constraint]), NAME)["spec"]
    (kept,) = made["topologySpreadConstraints"]
    assert kept["labelSelector"]["matchExpressions"] == [own]


@pytest.mark.parametrize(
    "volume",
    [
        CONFIG,
        TOKEN,
        {"name": "s", "secret": {"secretName": "s"}},
        {"name": "d", "downwardAPI": {}},
        {"name": "e", "emptyDir": {"medium": "Memory"}},
        {"name": "n", "nfs": {"server": "s", "path": "/"}},
    ],
    ids=lambda volume: str(volume["name"]),
)
def test_a_pod_with_volumes_for_many_can_be_copied(volume: Json) -> None:
    assert list(obstacles(original(volumes=[volume]))) == []


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"restartPolicy": "OnFailure"}, "its restartPolicy is OnFailure"),
        ({"hostname": "db"}, "its hostname is fixed"),
        ({"hostNetwork": True}, "it has hostNetwork"),
        ({"hostPID": True}, "it has hostPID"),
        ({"hostIPC": True}, "it has hostIPC"),
        (
            {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]},
            "it mounts files of its host",
        ),
        (
            {"containers": [build.container() | {"securityContext": {"privileged": True}}]},
            "it is privileged",
        ),
        (
            {
                "initContainers": [
                    build.container()
                    | {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}
                ]
            },
            "it adds capabilities",
        ),
        ({"resourceClaims": [{"name": "gpu"}]}, "it has resource claims"),
        (
            {"containers": [build.container(host_ports=[80])]},
            "it has a host port",
        ),
        (
            {"initContainers": [build.container(host_ports=[80], sidecar=True)]},
            "it has a host port",
        ),
        *(
            (
                {"volumes": [{"name": "v", kind: {}}]},
                f"its volume v ({kind}) may not be mounted twice",
            )
            for kind in (
                "persistentVolumeClaim",
                "ephemeral",
                "iscsi",
                "rbd",
                "awsElasticBlockStore",
            )
        ),
        (
            {"volumes": [{"name": "v", "notYetInvented": {}}]},
            "its volume v (notYetInvented) may not be mounted twice",
        ),
    ],
)
def test_what_two_pods_cannot_share_is_an_obstacle(spec: dict[str, Any], message: str) -> None:
    assert list(obstacles(original(**spec))) == [message]


@pytest.mark.parametrize(
    "metadata",
    [
        {"ownerReferences": [{"kind": "Custom", "name": "x"}]},
        {"annotations": {MIRROR_POD: "hash"}},
    ],
)
def test_a_pod_with_an_owner_is_not_bare(metadata: dict[str, Any]) -> None:
    pod = original()
    pod["metadata"] |= metadata
    assert list(obstacles(pod)) == ["it has an owner"]
