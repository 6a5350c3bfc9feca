# SPDX-License-Identifier: Apache-2.0
"""The schemas of kube-scheduler's extender API, for the OpenAPI description.

They mirror staging/src/k8s.io/kube-scheduler/extender/v1/types.go of Kubernetes 1.36. The Go
structs have no JSON tags, so keys are in PascalCase and Go writes null for what is not set.
Nothing is decoded with these models: requests are read by `extender.requests`, which needs
only a few fields of a pod, and responses are written by `extender.responses`. Tests validate
both against the schemas.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, JsonValue, RootModel

from extender.errors import Reason
from extender.rules import UNDER_MAINTENANCE
from extender.scoring import BEST

_POD: Final[dict[str, JsonValue]] = {
    "metadata": {"name": "web-5d9c7-x2x7k", "namespace": "shop", "uid": "6b1f7c1e-0a52"},
    "spec": {
        "containers": [{"name": "web", "image": "web:1"}],
        "schedulerName": "default-scheduler",
    },
    "status": {"phase": "Pending"},
}
_VICTIMS: Final[dict[str, JsonValue]] = {
    "node-1": {"Pods": [{"UID": "9e4c2f0a-77d1"}], "NumPDBViolations": 0}
}
_INT64: Final = 1 << 63

JsonObject = dict[str, Any]  # Any: a core/v1 object

CorePod = Annotated[
    JsonObject,
    Field(
        description="A core/v1 Pod without managedFields, kind and apiVersion. metadata, spec "
        "and status.nominatedNodeName are used."
    ),
]


class _Response(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NodeList(BaseModel):
    """A core/v1 NodeList."""

    model_config = ConfigDict(extra="allow")

    metadata: JsonObject = Field(default_factory=dict, description="Empty list metadata.")
    items: list[JsonObject] | None = Field(description="core/v1 Nodes; metadata.name is used.")


class ExtenderArgs(BaseModel):
    """The request of `filter` and `prioritize`.

    With `nodeCacheCapable: true`, which Evenkeel's configuration sets, kube-scheduler sends
    NodeNames, otherwise Nodes. NodeNames take precedence if both are set.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"Pod": _POD, "Nodes": None, "NodeNames": ["node-1", "node-2"]}]
        }
    )

    Pod: CorePod
    Nodes: NodeList | None = Field(
        default=None, description="The candidate nodes, with `nodeCacheCapable: false`."
    )
    NodeNames: list[str] | None = Field(
        default=None, description="The names of the candidate nodes, with `nodeCacheCapable: true`."
    )


class ExtenderFilterResult(_Response):
    """The response of `filter`: the nodes that pass, in the form and the order of the request.

    Rejected nodes are in FailedAndUnresolvableNodes, because preemption would try those in
    FailedNodes. Error is always empty: a decision is never an error.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "NodeNames": ["node-1"],
                    "FailedNodes": {},
                    "FailedAndUnresolvableNodes": {"node-2": UNDER_MAINTENANCE},
                    "Error": "",
                }
            ]
        }
    )

    Nodes: NodeList | None = Field(
        default=None, description="The nodes that pass, if the request had Nodes."
    )
    NodeNames: list[str] | None = Field(
        description="The names of the nodes that pass; null if the request had Nodes."
    )
    FailedNodes: dict[str, str] = Field(description="Always empty.", max_length=0)
    FailedAndUnresolvableNodes: dict[str, str] = Field(
        description="The rejected nodes and the reason, which kube-scheduler shows in Events."
    )
    Error: str = Field(description="Always empty.", max_length=0)


class HostPriority(_Response):
    """The score of one node."""

    Host: str = Field(description="The name of the node.")
    Score: int = Field(
        ge=0,
        le=BEST,
        description="0 is overloaded, 10 is best. kube-scheduler multiplies it with the weight "
        "of the extender and with 10.",
    )


class HostPriorityList(RootModel[list[HostPriority]]):
    """The response of `prioritize`: a score for every node, in the order of the request."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [[{"Host": "node-1", "Score": 10}, {"Host": "node-2", "Score": 3}]]
        }
    )


class MetaPod(BaseModel):
    """The identity of a pod."""

    UID: str = Field(description="metadata.uid of the pod.")


class MetaVictims(BaseModel):
    """The pods that would be preempted on one node, by UID."""

    Pods: list[MetaPod] | None = Field(description="The victims; Go writes an empty list as null.")
    NumPDBViolations: int = Field(
        ge=-_INT64, lt=_INT64, description="How many preemptions violate a PodDisruptionBudget."
    )


class Victims(BaseModel):
    """The pods that would be preempted on one node, as whole objects."""

    Pods: list[CorePod] | None = Field(description="The victims; metadata.uid is used.")
    NumPDBViolations: int = Field(
        ge=-_INT64, lt=_INT64, description="How many preemptions violate a PodDisruptionBudget."
    )


class ExtenderPreemptionArgs(BaseModel):
    """The request of `preempt`: the preemptor and the candidate nodes with their victims.

    kube-scheduler sends NodeNameToMetaVictims with `nodeCacheCapable: true`, otherwise
    NodeNameToVictims. NodeNameToMetaVictims take precedence if both are set.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"Pod": _POD, "NodeNameToVictims": None, "NodeNameToMetaVictims": _VICTIMS}
            ]
        }
    )

    Pod: CorePod
    NodeNameToVictims: dict[str, Victims] | None = Field(
        default=None, description="Candidates by node, with `nodeCacheCapable: false`."
    )
    NodeNameToMetaVictims: dict[str, MetaVictims] | None = Field(
        default=None, description="Candidates by node, with `nodeCacheCapable: true`."
    )


class KeptVictims(_Response):
    """The victims of a candidate that stays, unchanged; never null."""

    Pods: list[MetaPod] = Field(description="The victims by UID.")
    NumPDBViolations: int = Field(
        ge=-_INT64, lt=_INT64, description="How many preemptions violate a PodDisruptionBudget."
    )


class ExtenderPreemptionResult(_Response):
    """The response of `preempt`: the candidates on which the filter would accept the pod.

    An empty map means that preemption does not help this pod.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"NodeNameToMetaVictims": _VICTIMS}]})

    NodeNameToMetaVictims: dict[str, KeptVictims] = Field(description="Candidates by node.")


class ErrorResponse(_Response):
    """Why a request could not be answered. kube-scheduler logs the status code only."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"error": "Pod must be set", "reason": "NoPod"}]}
    )

    error: str = Field(description="What is wrong, for people.")
    reason: Reason = Field(description="The same for programs, as counted in the metrics.")
