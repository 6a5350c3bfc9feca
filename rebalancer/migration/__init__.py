"""Carries out moves: one Migration each, step by step, through crashes and faults."""

from __future__ import annotations

from rebalancer.migration.controller import MigrationController
from rebalancer.migration.eviction import ApiEviction, EvictionDriver
from rebalancer.migration.scene import Scene
from rebalancer.migration.seams import Guard, Replacer, Steering
from rebalancer.migration.settings import ControllerSettings
from rebalancer.migration.verdicts import Fail, NotReplaced, Proceed, Verdict, Wait

__all__ = [
    "ApiEviction",
    "ControllerSettings",
    "EvictionDriver",
    "Fail",
    "Guard",
    "MigrationController",
    "NotReplaced",
    "Proceed",
    "Replacer",
    "Scene",
    "Steering",
    "Verdict",
    "Wait",
]
