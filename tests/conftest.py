"""Settings that hold for every test."""

import os

from hypothesis import HealthCheck, settings

# The machines are shared: a slow example says nothing about the code.
settings.register_profile("evenkeel", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# Elsewhere chance finds new cases; a verdict on a change is about the change.
settings.register_profile("ci", settings.get_profile("evenkeel"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "evenkeel")
