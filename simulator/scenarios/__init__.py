"""Scenarios: what a simulated cluster looks like at the beginning, as YAML with a schema."""

from simulator.scenarios.reading import load_scenario, names
from simulator.scenarios.schema import Scenario
from simulator.scenarios.staging import stage

__all__ = ("Scenario", "load_scenario", "names", "stage")
