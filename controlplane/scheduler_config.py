# SPDX-License-Identifier: Apache-2.0
"""Fit the scheduler configuration that users copy to this machine.

`localize` replaces at most two values, `clientConnection.kubeconfig` and
`extenders[0].urlPrefix`, in the text itself: every other character, comments included,
stays. What tests prove about the file therefore holds for the file that users have.
`without_extenders` is for a control plane without an extender.
"""

from __future__ import annotations

import math
from pathlib import Path

import yaml

from controlplane.errors import ConfigError

SHIPPED = Path(__file__).resolve().parent.parent / "scheduler-config.yaml"

KUBECONFIG = ("clientConnection", "kubeconfig")
URL_PREFIX = ("extenders", 0, "urlPrefix")

Key = str | int


def localize(text: str, *, kubeconfig: str, extender_url: str | None = None) -> str:
    """Return the configuration with its machine-dependent values replaced."""
    document = _compose(text)
    values: dict[tuple[Key, ...], str] = {KUBECONFIG: kubeconfig}
    if extender_url is not None:
        values[URL_PREFIX] = extender_url
    found = [(_find(document, path), value) for path, value in values.items()]
    # From the end, so that a replacement does not move the next ones.
    for node, value in sorted(found, key=lambda pair: -pair[0].start_mark.index):
        text = text[: node.start_mark.index] + _quoted(value) + text[node.end_mark.index :]
    _compose(text)
    return text


def without_extenders(text: str) -> str:
    """Return the configuration without extenders; the rest is unchanged."""
    document = _compose(text)
    pairs = document.value if isinstance(document, yaml.MappingNode) else []
    for name, value in pairs:
        if name.value == "extenders":
            return text[: name.start_mark.index] + text[value.end_mark.index :]
    return text


def read(path: Path) -> str:
    """Return the text of a scheduler configuration."""
    try:
        return path.read_text()
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"cannot read the scheduler configuration {path}: {error}") from None


def _quoted(value: str) -> str:
    text: str = yaml.safe_dump(value, default_style='"', width=math.inf)
    return text.strip()


def _compose(text: str) -> yaml.Node | None:
    try:
        document: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        where = " ".join(str(error).split())
        raise ConfigError(
            f"the scheduler configuration is not one YAML document: {where}"
        ) from None
    return document


def _find(document: yaml.Node | None, path: tuple[Key, ...]) -> yaml.ScalarNode:
    node = document
    for key in path:
        node = _child(node, key)
    if not isinstance(node, yaml.ScalarNode) or node.start_mark.index == node.end_mark.index:
        name = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
        raise ConfigError(f"the scheduler configuration has no {name.lstrip('.')}")
    return node


def _child(node: yaml.Node | None, key: Key) -> yaml.Node | None:
    if isinstance(key, int):
        items = node.value if isinstance(node, yaml.SequenceNode) else []
        return items[key] if key < len(items) else None
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return next((value for name, value in pairs if name.value == key), None)
