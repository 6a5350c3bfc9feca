"""Settings that hold for every test."""

from hypothesis import HealthCheck, settings

# The machines are shared: a slow example says nothing about the code.
settings.register_profile("evenkeel", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("evenkeel")
