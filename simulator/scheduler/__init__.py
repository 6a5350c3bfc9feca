"""A small kube-scheduler: the fit of `common.fit`, extenders over HTTP, and its own queue.

It reads the same `scheduler-config.yaml`, speaks to extenders as the real one does, and tells
pods why they wait in the real one's words.
"""

from simulator.scheduler.config import ExtenderConfig, Profile, SchedulerConfig, read_config
from simulator.scheduler.scheduler import Scheduler

__all__ = ("ExtenderConfig", "Profile", "Scheduler", "SchedulerConfig", "read_config")
