# SPDX-License-Identifier: Apache-2.0
"""The part of a KubeSchedulerConfiguration that the simulated scheduler supports.

Everything else in the file is ignored. What the real one rejects is rejected
(pkg/scheduler/apis/config/validation of v1.36).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
import yaml

from common.config import ConfigError
from common.config.durations import Duration

_GROUP: Final = "kubescheduler.config.k8s.io/v1"
_KIND: Final = "KubeSchedulerConfiguration"
_DEFAULT_TIMEOUT_S: Final = 5.0
DEFAULT_SCHEDULER: Final = "default-scheduler"


class _Part(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """Base of the blocks of the file."""


class TlsConfig(_Part, frozen=True):
    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""


class ManagedResource(_Part, frozen=True):
    name: str
    ignored_by_scheduler: bool = False


class ExtenderConfig(_Part, frozen=True):
    """One extender."""

    url_prefix: str
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    weight: int = 0
    bind_verb: str = ""
    enable_https: bool = msgspec.field(name="enableHTTPS", default=False)
    tls_config: TlsConfig | None = None
    http_timeout: str = msgspec.field(name="httpTimeout", default="")
    node_cache_capable: bool = False
    managed_resources: tuple[ManagedResource, ...] = ()
    ignorable: bool = False

    @property
    def timeout_s(self) -> float:
        """How long a call may take; unset means five seconds."""
        return Duration(self.http_timeout).seconds if self.http_timeout else _DEFAULT_TIMEOUT_S


class Profile(_Part, frozen=True):
    """A scheduling profile."""

    scheduler_name: str = DEFAULT_SCHEDULER
    percentage_of_nodes_to_score: int | None = None


class SchedulerConfig(_Part, frozen=True):
    """The configuration of the scheduler."""

    api_version: str = _GROUP
    kind: str = _KIND
    percentage_of_nodes_to_score: int | None = None
    pod_initial_backoff_seconds: int = 1
    pod_max_backoff_seconds: int = 10
    profiles: tuple[Profile, ...] = (Profile(),)
    extenders: tuple[ExtenderConfig, ...] = ()

    def percentage(self, scheduler_name: str) -> int:
        """Return percentageOfNodesToScore of a profile; 0 depends on the number of nodes."""
        for profile in self.profiles:
            if profile.scheduler_name == scheduler_name:
                own = profile.percentage_of_nodes_to_score
                return own if own is not None else self.percentage_of_nodes_to_score or 0
        return 0

    @property
    def scheduler_names(self) -> frozenset[str]:
        return frozenset(profile.scheduler_name for profile in self.profiles)


def read_config(path: str | Path) -> SchedulerConfig:
    """Return the configuration in a file; raise ConfigError if it is invalid."""
    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        config = msgspec.convert(values, SchedulerConfig)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {' '.join(str(error).split())}") from None
    problems = _problems(config)
    if problems:
        raise ConfigError(*(f"{path}: {problem}" for problem in problems))
    return config


def _problems(config: SchedulerConfig) -> list[str]:
    found = []
    if config.kind != _KIND or config.api_version != _GROUP:
        found.append(f"must be a {_KIND} of {_GROUP}, not {config.kind} of {config.api_version}")
    if sum(bool(extender.bind_verb) for extender in config.extenders) > 1:
        found.append("extenders: found multiple extenders implementing bind")
    names = [profile.scheduler_name for profile in config.profiles]
    found += [
        f"profiles: duplicate scheduler name {name}"
        for name in {n for n in names if names.count(n) > 1}
    ]
    for index, extender in enumerate(config.extenders):
        if extender.prioritize_verb and extender.weight <= 0:
            why = "must have a positive weight applied to it"
            found.append(f"extenders[{index}].weight: {extender.weight}: {why}")
        try:
            _ = extender.timeout_s
        except ValueError as error:
            found.append(f"extenders[{index}].httpTimeout: {error}")
    return found
