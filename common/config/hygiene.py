# SPDX-License-Identifier: Apache-2.0
"""Which pods `Hygiene` replaces or removes: rules with conditions that all have to hold.

Names of states are those that a kubelet or the API server writes, so a typing error is refused
instead of matching nothing.
"""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import AfterValidator, Field, Strict, model_validator

from common.config.durations import Duration
from common.config.values import (
    Count,
    Flag,
    Namespace,
    OwnerKind,
    Says,
    Selector,
    Settings,
    SomeText,
    Span,
    broken_rule,
)

PHASES: Final = frozenset({"Running", "Pending", "Succeeded", "Failed", "Unknown"})
POD_REASONS: Final = frozenset({"NodeAffinity", "NodeLost", "Shutdown", "UnexpectedAdmissionError"})
WAITING_REASONS: Final = frozenset(
    {
        "PodInitializing",
        "ContainerCreating",
        "ImagePullBackOff",
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "ErrImagePull",
        "CreateContainerError",
        "InvalidImageName",
    }
)
TERMINATED_REASONS: Final = frozenset(
    {
        "OOMKilled",
        "Error",
        "Completed",
        "DeadlineExceeded",
        "Evicted",
        "ContainerCannotRun",
        "StartError",
    }
)
LIFETIME_STATES: Final = PHASES | POD_REASONS | WAITING_REASONS | TERMINATED_REASONS
RESTART_STATES: Final = frozenset({"Running", "CrashLoopBackOff"})
_SAID_BY_READY: Final = frozenset({"Initialized", "ContainersReady", "PodReadyToStartContainers"})
"""Conditions of which only those that do not hold are kept."""

ExitCode = Annotated[int, Strict(), Says("exit code")]


def _one_of(known: frozenset[str]) -> AfterValidator:
    def check(value: str) -> str:
        if value not in known:
            raise ValueError(f"{value} is none of {', '.join(sorted(known))}")
        return value

    return AfterValidator(check)


LifetimeState = Annotated[SomeText, _one_of(LIFETIME_STATES), Says("state")]
RestartState = Annotated[SomeText, _one_of(RESTART_STATES), Says("state")]


class _Choice(Settings):
    @model_validator(mode="after")
    def _only_one(self) -> Self:
        if getattr(self, "include", ()) and getattr(self, "exclude", ()):
            raise broken_rule("only one of include and exclude can be set", "include", "exclude")
        return self


class NamespaceNames(_Choice):
    """Names of namespaces; without any all take part."""

    include: tuple[Namespace, ...] = Field(default=(), description="Only these.")
    exclude: tuple[Namespace, ...] = Field(default=(), description="All but these.")


class OwnerKinds(_Choice):
    """Kinds of owners; without any all take part."""

    include: tuple[OwnerKind, ...] = Field(default=(), description="Only pods of these.")
    exclude: tuple[OwnerKind, ...] = Field(default=(), description="Not pods of these.")


class PodConditionRule(Settings):
    """A condition in the status of a pod; what is set has to match."""

    type: SomeText | None = Field(default=None, description="Its type.")
    status: SomeText | None = Field(default=None, description="`True`, `False` or `Unknown`.")
    reason: SomeText | None = Field(default=None, description="Its reason.")
    min_age: Span | None = Field(
        default=None, description="How long ago its status changed, at least."
    )

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.type is None and self.status is None and self.reason is None:
            if self.min_age is None:
                raise broken_rule("set type, status, reason or minAge", "type")
        elif self.type in _SAID_BY_READY and self.status == "True":
            raise broken_rule(f"{self.type} is not kept while it is True: use Ready", "type")
        return self


class PodSelection(Settings):
    """Which pods a rule is about."""

    namespaces: NamespaceNames = Field(
        default=NamespaceNames(), description="The namespaces of the pods."
    )
    pod_selector: Selector = Field(default="", description="The labels of the pods; empty: all.")
    owner_kinds: OwnerKinds = Field(
        default=OwnerKinds(),
        description="The kinds of their controllers. Finished pods of Jobs are removed only where "
        "`include` names `Job`.",
    )
    including_init_containers: Flag = Field(
        default=False, description="States, exit codes and restarts of init containers count too."
    )


class PodLifeTimeRule(PodSelection):
    """Pods that have been there for too long, or too long in a state."""

    max_age: Span | None = Field(default=None, description="Pods that are older.")
    states: tuple[LifetimeState, ...] = Field(
        default=(),
        description="Phases, reasons of the pod, or reasons why containers wait or ended; one of "
        "them has to be there.",
    )
    conditions: tuple[PodConditionRule, ...] = Field(
        default=(), description="Conditions of the pod, of which one has to match."
    )
    exit_codes: tuple[ExitCode, ...] = Field(
        default=(), description="Exit codes, one of which a container ended with."
    )
    including_ephemeral_containers: Flag = Field(
        default=False, description="States of ephemeral containers count too."
    )

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        if self.max_age is None and not (self.states or self.conditions or self.exit_codes):
            raise broken_rule("set maxAge, states, conditions or exitCodes", "maxAge")
        return self


class TooManyRestartsRule(PodSelection):
    """Pods whose containers have been restarted too often."""

    restarts: Count = Field(description="So many restarts of all containers together, or more.")
    states: tuple[RestartState, ...] = Field(
        default=(), description="`Running` (the phase) or `CrashLoopBackOff`; empty: any."
    )


class FailedPodsRule(PodSelection):
    """Pods in the phase `Failed`."""

    min_age: Span = Field(default=Duration("0s"), description="Younger ones stay.")
    reasons: tuple[SomeText, ...] = Field(
        default=(), description="Reasons of the pod or of its containers, one of which it has."
    )
    exit_codes: tuple[ExitCode, ...] = Field(
        default=(), description="Exit codes, one of which a container ended with."
    )


class Hygiene(Settings):
    """Which pods `Hygiene` replaces or removes."""

    pod_life_time: tuple[PodLifeTimeRule, ...] = Field(
        default=(), description="Pods that have been there for too long."
    )
    too_many_restarts: tuple[TooManyRestartsRule, ...] = Field(
        default=(), description="Pods whose containers have been restarted too often."
    )
    failed_pods: tuple[FailedPodsRule, ...] = Field(
        default=(), description="Pods in the phase `Failed`, which are removed."
    )
    max_removals: Count = Field(
        default=10, description="Most pods removed per cycle; those that move count elsewhere."
    )
