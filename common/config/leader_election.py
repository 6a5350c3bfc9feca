# SPDX-License-Identifier: Apache-2.0
"""How several replicas agree on one leader."""

from __future__ import annotations

from typing import Final, Self

from pydantic import Field, model_validator

from common.config.durations import Duration
from common.config.values import Flag, ObjectName, OwnNamespace, Settings, Wait, broken_rule

JITTER: Final = 1.2
"""client-go spreads retries by this factor (tools/leaderelection/leaderelection.go)."""


class LeaderElection(Settings):
    """Which of several replicas acts."""

    enabled: Flag = Field(
        default=True, description="Turn it off only if there is never a second rebalancer."
    )
    namespace: OwnNamespace = Field(
        default="",
        description="Namespace of the Lease and of the extenders' Leases; empty means the "
        "namespace the program runs in, or `evenkeel` outside of a cluster.",
    )
    name: ObjectName = Field(default="evenkeel-rebalancer", description="Name of the Lease.")
    lease_duration: Wait = Field(
        default=Duration("15s"),
        description="Another one takes over after this long without a renewal.",
    )
    renew_deadline: Wait = Field(
        default=Duration("10s"), description="A leader that cannot renew for this long stops."
    )
    retry_period: Wait = Field(default=Duration("2s"), description="Pause between attempts.")

    @model_validator(mode="after")
    def _never_two_leaders(self) -> Self:
        if self.lease_duration <= self.renew_deadline:
            raise broken_rule(
                f"{self.lease_duration} is not longer than renewDeadline ({self.renew_deadline})",
                "leaseDuration",
                "renewDeadline",
            )
        if self.renew_deadline <= JITTER * self.retry_period:
            raise broken_rule(
                f"{self.renew_deadline} is not longer than {JITTER} × retryPeriod "
                f"({self.retry_period})",
                "renewDeadline",
                "retryPeriod",
            )
        return self
