# SPDX-License-Identifier: Apache-2.0
"""Carries out moves: one Migration each, step by step, through crashes and failures."""

from __future__ import annotations

from rebalancer.migration.collaborators import Actuators, Preconditions
from rebalancer.migration.controller import MigrationController
from rebalancer.migration.eviction import ApiEviction, EvictionDriver
from rebalancer.migration.timing import Timing
from rebalancer.migration.verdicts import Fail, NotReplaced, Proceed, Verdict, Wait
from rebalancer.migration.view import MigrationView

__all__ = [
    "Actuators",
    "ApiEviction",
    "EvictionDriver",
    "Fail",
    "MigrationController",
    "MigrationView",
    "NotReplaced",
    "Preconditions",
    "Proceed",
    "Timing",
    "Verdict",
    "Wait",
]
