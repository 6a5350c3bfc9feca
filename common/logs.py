# SPDX-License-Identifier: Apache-2.0
"""Logs: an event name plus key/values, one line each, on stderr.

Modules say `log = structlog.get_logger()` and `log.info("pod evicted", pod=key, node=node)`;
`configure` decides once per process how that looks: `text` for people (colored only on a
terminal) or `json` for machines (one object a line: ts, level, event, then the keys).

What `-v` shows:

    0  ours from info, libraries from warning (the default)
    1  ours from debug
    2  libraries from info too
    3  everything

Two invariants. Logging never throws: an odd value, a broken `repr` or a closed stream costs
at most the line. Secrets never get out: values under keys such as `token`, bearer tokens,
passwords in URLs and private keys are masked, wherever they stand in the line.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import sys
import threading
from collections.abc import Mapping, MutableMapping, Set
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO

import structlog

from common.clock import SYSTEM, Clock
from common.visible import visible, visible_json, visible_lines

Format = Literal["text", "json"]

MASK: Final = "<hidden>"
_DEEPEST: Final = 8
_LEVELS: Final = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
_COLOURS: Final = {"debug": "2", "info": "32", "warning": "33", "error": "31", "critical": "1;31"}
_BARE: Final = re.compile(r"[^\s\"'=]+")
_SECRET_KEYS: Final = frozenset(
    [
        "token",
        "bearertoken",
        "accesstoken",
        "refreshtoken",
        "idtoken",
        "authorization",
        "password",
        "passwd",
        "secret",
        "clientsecret",
        "apikey",
        "privatekey",
        "clientkeydata",
        "cookie",
        "setcookie",
    ]
)
_SECRETS: Final = (
    (re.compile(r"(?i)\b(authorization\W{1,6}\w+)\s+[\w.~+/=-]+"), rf"\1 {MASK}"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{16,}"), rf"\1 {MASK}"),
    (re.compile(r"://[^/@\s\"']+@"), f"://{MASK}@"),
    (re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]+"), MASK),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*-----|$)", re.S), MASK),
)


def configure(
    verbosity: int = 0,
    fmt: Format = "text",
    stream: TextIO | None = None,
    *,
    clock: Clock = SYSTEM,
) -> None:
    """Send all logs of this process to `stream` (stderr); may be called again."""
    target = sys.stderr if stream is None else stream
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            _Renderer(fmt, clock, color=fmt == "text" and _wants_color(target)),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.DEBUG if verbosity >= 1 else logging.INFO
        ),
        logger_factory=lambda *_: _Writer(target),
        cache_logger_on_first_use=False,
    )
    _forward_libraries(verbosity)


def _wants_color(stream: TextIO) -> bool:
    if "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def _forward_libraries(verbosity: int) -> None:
    root = logging.getLogger()
    for handler in [known for known in root.handlers if isinstance(known, _Forward)]:
        root.removeHandler(handler)
    root.addHandler(_Forward())
    root.setLevel({0: logging.WARNING, 1: logging.WARNING, 2: logging.INFO}.get(verbosity, 10))
    logging.captureWarnings(True)


def one_line(text: str) -> str:
    """Return a text for people without line ends, control characters and secrets."""
    return visible(_masked(" ".join(text.split())))


class _Forward(logging.Handler):
    """Hands what libraries log through the standard library to our pipeline."""

    def emit(self, record: logging.LogRecord) -> None:
        level = max((known for known in _LEVELS if known <= record.levelno), default=logging.DEBUG)
        try:
            text = record.getMessage()
        except Exception:  # the library's arguments do not fit its own format
            text = str(record.msg)
        structlog.get_logger().log(level, text, logger=record.name, exc_info=record.exc_info)


class _Writer:
    """Writes finished lines; a stream that is gone must not stop the program."""

    _lock = threading.Lock()

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, line: str) -> None:
        try:
            with self._lock:
                self._stream.write(line + "\n")
                self._stream.flush()
        except (OSError, ValueError):
            return

    debug = info = warning = error = critical = exception = log = msg = write


class _Renderer:
    """Turns an event into one line of text or JSON."""

    def __init__(self, fmt: Format, clock: Clock, *, color: bool) -> None:
        self._render = _as_json if fmt == "json" else _colored if color else _as_text
        self._clock = clock

    def __call__(self, _: Any, __: str, event: MutableMapping[str, Any]) -> str:
        head = {
            "ts": _stamp(self._clock),
            "level": event.pop("level", "info"),
            "event": _plain(event.pop("event", "")),
        }
        keys = {str(key): _plain(value, str(key)) for key, value in event.items()}
        return _masked(self._render(head | {k: v for k, v in keys.items() if k not in head}))


def _stamp(clock: Clock) -> str:
    moment = datetime.fromtimestamp(clock.now(), UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _as_json(event: Mapping[str, Any]) -> str:
    # ASCII, so that it stays JSON on a stream of any encoding.
    return visible_json(json.dumps(event))


def _colored(event: Mapping[str, Any]) -> str:
    return _as_text(event, start=f"\x1b[{_COLOURS.get(event['level'], '0')}m", end="\x1b[0m")


def _as_text(event: Mapping[str, Any], *, start: str = "", end: str = "") -> str:
    rest = dict(event)
    ts, level, name = rest.pop("ts"), rest.pop("level"), rest.pop("event")
    traceback = rest.pop("exception", None)
    words = [ts, f"{start}{level.upper():<7}{end}", visible(str(name))]
    words += [f"{_value(key)}={_value(value)}" for key, value in rest.items()]
    line = " ".join(words)
    return line if traceback is None else f"{line}\n{visible_lines(traceback)}"


def _value(value: Any) -> str:
    if isinstance(value, str) and value.isprintable() and _BARE.fullmatch(value):
        return value
    return visible(json.dumps(value, ensure_ascii=False))


def _masked(line: str) -> str:
    for pattern, mask in _SECRETS:
        line = pattern.sub(mask, line)
    return line


def _is_secret(key: str) -> bool:
    return key.lower().replace("_", "").replace("-", "") in _SECRET_KEYS


def _plain(value: Any, key: str = "", depth: int = 0) -> Any:
    """Return something JSON can hold, whatever `value` is."""
    if value is not None and _is_secret(key):
        return MASK
    try:
        return _converted(value, depth)
    except Exception:  # a foreign __str__, __iter__ or property may raise anything
        return f"<unprintable {type(value).__name__}>"


def _converted(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) < 1 << 64:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth < _DEEPEST and isinstance(value, Mapping):
        return {_text(key): _plain(item, _text(key), depth + 1) for key, item in value.items()}
    if depth < _DEEPEST and isinstance(value, list | tuple | Set):
        return [_plain(item, "", depth + 1) for item in value]
    return _text(value)


def _text(value: Any) -> str:
    text = str(value)
    if isinstance(value, BaseException):
        text = f"{type(value).__name__}: {text}" if text else type(value).__name__
    return text.encode("utf-8", "backslashreplace").decode()  # lone surrogates
