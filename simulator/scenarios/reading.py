# SPDX-License-Identifier: Apache-2.0
"""Load a scenario from a file or by name; errors have one line per problem.

An invalid file is reported like an invalid configuration: with the line, the key and the nearest
known key. In addition, scenarios have lists of blocks.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from pydantic import BaseModel, ValidationError

from common.config import ConfigError, Configuration
from common.config.document import Document, Problem, Unreadable, read, written
from common.config.document import Path as KeyPath
from common.config.loading import block_of, explanation, file_text, wrong_head
from simulator.scenarios.schema import Scenario

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_SHIPPED: Final = Path(__file__).parent


def names() -> list[str]:
    """Return the scenarios that come with the simulator."""
    return sorted(file.stem for file in _SHIPPED.glob("*.yaml"))


def load_scenario(name_or_path: str) -> Scenario:
    """Return a shipped scenario by its name, or the one in a file."""
    if name_or_path in names():
        return _load(str(_SHIPPED / f"{name_or_path}.yaml"))
    if not Path(name_or_path).exists() and "/" not in name_or_path:
        known = ", ".join(names())
        raise ConfigError(f"{name_or_path}: no such file or scenario (scenarios: {known})")
    return _load(name_or_path)


def _load(path: str) -> Scenario:
    try:
        return _checked(read(file_text(path)))
    except Unreadable as error:
        problems = sorted(error.problems, key=lambda problem: problem.line)
        raise ConfigError(*(f"{path}: {problem}" for problem in problems)) from None


def _checked(document: Document) -> Scenario:
    values = {} if document.values is None else document.values
    if not isinstance(values, dict):
        raise Unreadable([Problem(1, "", "must be a block of keys")])
    # Only the name of the type is used.
    if wrong := wrong_head(document, values, cast("type[Configuration]", Scenario)):
        raise Unreadable(wrong)
    try:
        return Scenario.model_validate(values, by_alias=True, by_name=False)
    except ValidationError as error:
        details = error.errors(include_url=False)
        raise Unreadable([_problem(document, detail) for detail in details]) from None


def _problem(document: Document, detail: ErrorDetails) -> Problem:
    path: KeyPath = tuple(part for part in detail["loc"] if part != "[key]")
    keys = detail.get("ctx", {}).get("keys", ())
    places: list[KeyPath] = [(*path, key) for key in keys] or [path]
    known = (document.lines[place] for place in places if place in document.lines)
    line = next(known, document.line_of(path))
    return Problem(line, written(places[0]), explanation(detail, _known_keys(path)))


def _known_keys(path: KeyPath) -> list[str]:
    """Return the known keys of the block that contains the last part of `path`."""
    model: type[BaseModel] | None = Scenario
    for part in path[:-1]:
        if isinstance(part, int) or model is None:
            continue
        fields = model.model_fields.values()
        found = next((info for info in fields if info.alias == part), None)
        model = block_of(found.annotation) if found is not None else None
    return [str(info.alias) for info in model.model_fields.values()] if model else []
