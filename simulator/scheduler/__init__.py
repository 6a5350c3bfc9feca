# SPDX-License-Identifier: Apache-2.0
"""A small kube-scheduler: the fit of `common.fit`, extenders over HTTP, and its own queue.

It reads the same `scheduler-config.yaml`, calls extenders as the real one does, and reports why
pods are pending with the messages of the real one.
"""

from simulator.scheduler.config import ExtenderConfig, Profile, SchedulerConfig, read_config
from simulator.scheduler.scheduler import Scheduler

__all__ = ("ExtenderConfig", "Profile", "Scheduler", "SchedulerConfig", "read_config")
