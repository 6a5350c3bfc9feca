"""The closed loop on the real control plane; a skip fails the run."""

from tests.support.stand import (
    cluster,
    control_plane,
    pytest_addoption,
    pytest_generate_tests,
    pytest_make_collect_report,
    pytest_runtest_makereport,
)

__all__ = (
    "cluster",
    "control_plane",
    "pytest_addoption",
    "pytest_generate_tests",
    "pytest_make_collect_report",
    "pytest_runtest_makereport",
)
