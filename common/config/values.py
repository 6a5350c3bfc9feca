# SPDX-License-Identifier: Apache-2.0
"""The kinds of value a configuration key may hold.

Each alias is strict (text is never taken for a number), knows its range, and carries the
words under which the reference page lists it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final, Literal, Protocol
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from annotated_types import Ge, Gt, Le
from cronsim import CronSim, CronSimError
from pydantic import (
    AfterValidator,
    AllowInfNan,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainValidator,
    Strict,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from common.account_token import is_inside
from common.cluster import quantities as quantity
from common.cluster import selectors
from common.config.durations import Duration

_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_DNS_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_LABEL_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_OWNER: Final = re.compile(r"[A-Z][A-Za-z0-9]*(\.[a-z0-9][-a-z0-9.]*)?")
SHORTEST_WINDOW_S: Final = 300.0
LONGEST_WINDOW_S: Final = 3600.0
_PERCENT: Final = re.compile(r"([1-9][0-9]?|100)%")


_CRON_FIELDS: Final = 5
_CRON_NAMES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
"""What cron of Debian and budgets of Karpenter call some expressions (crontab(5))."""
_DAY_FIELDS: Final = (2, 4)
"""Where `?` means the same as `*`, as in CronJobs of Kubernetes."""
_STEPS_OF_ONE: Final = re.compile(r"(\d+)-0*\1/")
_ZONE: Final = re.compile(r"(?!Factory$)[A-Z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*")
"""Others are files of one machine, such as localtime, or count leap seconds (right/UTC)."""
_POOL: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")


class Settings(BaseModel):
    """A block of keys: frozen, camelCase outside, nothing unknown inside."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_alias=True,
        validate_by_name=True,
    )


@dataclass(frozen=True, slots=True)
class Says:
    """How the reference page calls a type."""

    words: str


class Named(Protocol):
    """What has a name."""

    @property
    def name(self) -> str: ...


def broken_rule(why: str, *keys: str) -> PydanticCustomError:
    """Return the error for keys that do not go together; the first is the one to name."""
    return PydanticCustomError("rule", "{why}", {"why": why, "keys": keys})


def _selector(text: str) -> str:
    try:
        selectors.parse(text)
    except selectors.SelectorError as error:
        raise ValueError(str(error)) from None
    return text


def _selector_of_labels(value: Any) -> Any:
    """Take labels as pods write their nodeSelector: `{disk: ssd}` is `disk=ssd`."""
    if not isinstance(value, dict):
        return value
    try:
        return ",".join(str(_requirement(key, each)) for key, each in value.items())
    except selectors.SelectorError as error:
        raise ValueError(str(error)) from None


def _requirement(key: str, value: Any) -> selectors.Requirement:
    """Return what one label must be; YAML may have changed what looks like a number or a flag."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if key in ("matchLabels", "matchExpressions"):
        raise ValueError(
            f"{key} is not used here: write labels, or a selector such as tier in (gold, silver)"
        )
    if not (whole or isinstance(value, str)):
        raise ValueError(f"the value of {key} must be text: put it in quotes")
    return selectors.Requirement.checked(key, selectors.Operator.IN, (str(value),))


def _cron(text: str) -> str:
    text = _CRON_NAMES.get(text.strip(), text)
    fields = text.split()
    if len(fields) != _CRON_FIELDS:
        raise ValueError(f"{text or 'an empty text'} is not a schedule: write five fields of cron")
    if any(fields[place] == "?" for place in _DAY_FIELDS):
        any_day = (f.replace("?", "*") if n in _DAY_FIELDS else f for n, f in enumerate(fields))
        text = " ".join(any_day)
    if one := _STEPS_OF_ONE.search(text):  # the parser takes 7-7/5 for 7/5
        raise ValueError(f"{text} is not a schedule: {one[0]} has only {one[1]} to step through")
    try:
        CronSim(text, datetime(2000, 1, 1))
    except CronSimError as error:
        raise ValueError(f"{text} is not a schedule: {str(error).lower()}") from None
    except Exception:  # the parser asserts what it does not expect
        raise ValueError(f"{text} is not a schedule of cron") from None
    return text


def _time_zone(text: str) -> str:
    try:
        if _ZONE.fullmatch(text) is None:
            raise ValueError
        ZoneInfo(text)
    except Exception:  # a name may also be no path, or that of a directory
        raise ValueError(
            f"{text or 'an empty text'} is not a time zone: write one such as Europe/Berlin"
        ) from None
    return text


def _pool_name(text: str) -> str:
    if not _POOL.fullmatch(text):
        raise ValueError(f"{text or 'an empty text'} is not a pool name: use a-z, 0-9, - and .")
    return text


def _resource_name(text: str) -> str:
    if text in ("cpu", "memory") or not _POOL.fullmatch(text):
        said = text or "an empty text"
        raise ValueError(f"{said} is not a name for a resource: use a-z, 0-9, - and .")
    return text


def named_once(values: tuple[Named, ...]) -> tuple[Named, ...]:
    """Refuse a list in which two have the same name."""
    no_repeats(tuple(value.name for value in values))
    return values


def no_repeats(values: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse a list that has something twice."""
    for position, value in enumerate(values):
        if value in values[:position]:
            raise ValueError(f"{value} is listed twice")
    return values


def _spelt_out(value: Any) -> Any:
    """Take `cpu: 1` without quotes, as manifests do."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number else value


def _cpu(text: str) -> str:
    if quantity.milli(text) <= 0:
        raise ValueError(f"must be above 0, not {text}")
    return text


def _memory(text: str) -> str:
    if quantity.whole(text) <= 0:
        raise ValueError(f"must be above 0, not {text}")
    return text


def namespace_name(text: str) -> str:
    """Return the name of a namespace; raise ValueError if it cannot be one."""
    if not _DNS_LABEL.fullmatch(text):
        raise ValueError(f"{text or 'an empty text'} is not a namespace name")
    return text


def _own_namespace(text: str) -> str:
    return namespace_name(text) if text else text


def _object_name(text: str) -> str:
    if not _DNS_NAME.fullmatch(text):
        raise ValueError(f"{text or 'an empty text'} is not a name that Kubernetes accepts")
    return text


def _label_key(text: str) -> str:
    prefix, slash, name = text.rpartition("/")
    if text and not (_LABEL_NAME.fullmatch(name) and (not slash or _DNS_NAME.fullmatch(prefix))):
        raise ValueError(f"{text} is not a label key")
    return text


def _storage_class(text: str) -> str:
    return text if text == "*" else _object_name(text)


def _owner_kind(text: str) -> str:
    if not _OWNER.fullmatch(text):
        raise ValueError(f"{text} is not a kind: write Kind.group, such as Rollout.argoproj.io")
    return text


def _url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{text} is not a URL: write http://host:port or https://host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not contain a password: use bearerTokenFile")
    if parts.query or parts.fragment:
        raise ValueError(f"{text} has more than a path after the host")
    return text


def _some(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    return text


def _token_file(text: str) -> str:
    if is_inside(_some(text)):
        raise ValueError(
            f"{text} is the token of the service account, which opens the Kubernetes API: "
            "mount a token that was made for this server"
        )
    return text


def _regular_expression(text: str) -> str:
    try:
        re.compile(_some(text))
    except re.error as error:
        raise ValueError(f"{text} is not a regular expression: {error}") from None
    return text


def _pods(value: Any) -> int | str:
    if isinstance(value, str) and _PERCENT.fullmatch(value):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise ValueError(f"must be a number of pods from 1 or a share such as 25%, not {value}")


def _shortlist(value: Any) -> int | str:
    if value in ("auto", "off"):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise ValueError(f"must be auto, off or a number of nodes from 1, not {value}")


def _longer_than_nothing(value: Duration) -> Duration:
    if value <= 0:
        raise ValueError("must be longer than 0s")
    return value


def _aggregated(value: Duration) -> Duration:
    if not SHORTEST_WINDOW_S <= value <= LONGEST_WINDOW_S:
        raise ValueError(f"must be from 5m to 60m, not {value}")
    return value


Flag = Annotated[bool, Strict(), Says("true or false")]
Text = Annotated[str, Strict(), Says("text")]
SomeText = Annotated[Text, AfterValidator(_some)]
Count = Annotated[int, Strict(), Ge(1), Says("number from 1")]
Percent = Annotated[float, Strict(), AllowInfNan(False), Gt(0), Le(100), Says("percent")]
Points = Annotated[float, Strict(), AllowInfNan(False), Ge(0), Le(100), Says("percentage points")]
Share = Annotated[float, Strict(), AllowInfNan(False), Gt(0), Le(1), Says("share, 0 to 1")]
Factor = Annotated[float, Strict(), AllowInfNan(False), Gt(0), Le(100), Says("factor")]
Rate = Annotated[float, Strict(), AllowInfNan(False), Gt(0), Says("number per second")]
Span = Annotated[Duration, Says("duration")]
Wait = Annotated[Duration, AfterValidator(_longer_than_nothing), Says("duration above 0s")]
AggregationWindow = Annotated[
    Duration, AfterValidator(_aggregated), Says("duration from 5m to 60m")
]
Port = Annotated[int, Strict(), Ge(0), Le(65_535), Says("port from 0 to 65535")]
Pods = Annotated[int | str, PlainValidator(_pods, int | str), Says("number or share of pods")]
ShortlistSize = Annotated[
    int | str,
    PlainValidator(_shortlist, int | Literal["auto", "off"]),
    Says("`auto`, `off` or number of nodes"),
]
Selector = Annotated[Text, AfterValidator(_selector), Says("label selector")]
AnySelector = Annotated[
    Text,
    AfterValidator(_selector),
    BeforeValidator(_selector_of_labels, json_schema_input_type=str | dict[str, str]),
    Says("label selector"),
]
Cron = Annotated[Text, AfterValidator(_cron), Says("cron expression")]
TimeZone = Annotated[Text, AfterValidator(_time_zone), Says("time zone")]
PoolName = Annotated[Text, AfterValidator(_pool_name), Says("name")]
ResourceName = Annotated[Text, AfterValidator(_resource_name), Says("name")]
AnyAmount = Annotated[float, Strict(), AllowInfNan(False), Gt(0), Says("number above 0")]
LabelKey = Annotated[Text, AfterValidator(_label_key), Says("label key")]
Amount = Annotated[Text, BeforeValidator(_spelt_out)]
Cpu = Annotated[Amount, AfterValidator(_cpu), Says("quantity of CPU")]
Memory = Annotated[Amount, AfterValidator(_memory), Says("quantity of memory")]
Namespace = Annotated[Text, AfterValidator(namespace_name), Says("namespace")]
OwnNamespace = Annotated[Text, AfterValidator(_own_namespace), Says("namespace")]
ObjectName = Annotated[Text, AfterValidator(_object_name), Says("name")]
StorageClassName = Annotated[
    Text, AfterValidator(_storage_class), Says("storage class, or `*` for all")
]
Priority = Annotated[int, Strict(), Says("priority")]
OwnerKind = Annotated[Text, AfterValidator(_owner_kind), Says("kind")]
Url = Annotated[Text, AfterValidator(_url), Says("URL")]
Path = Annotated[Text, AfterValidator(_some), Says("path")]
TokenFile = Annotated[Text, AfterValidator(_token_file), Says("path")]
Jobs = Annotated[Text, AfterValidator(_regular_expression), Says("regular expression")]
