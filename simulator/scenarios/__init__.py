# SPDX-License-Identifier: Apache-2.0
"""Scenarios: the initial state of a cluster, as YAML with a schema."""

from simulator.scenarios.reading import load_scenario, names
from simulator.scenarios.scaling import scaled
from simulator.scenarios.schema import Scenario
from simulator.scenarios.staging import stage

__all__ = ("Scenario", "load_scenario", "names", "scaled", "stage")
