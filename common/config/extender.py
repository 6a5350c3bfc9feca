"""The configuration of the extender."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from common.config.choices import Overloaded
from common.config.shared import Configuration


class ExtenderConfiguration(Configuration):
    """Everything the extender can be told."""

    kind: Literal["ExtenderConfiguration"] = Field(
        default="ExtenderConfiguration", description="Required in a file."
    )
    overloaded: Overloaded = Field(
        default=Overloaded.SCORE,
        description="Overloaded nodes get the lowest score, or with `filter` are dropped while "
        "another candidate is not overloaded.",
    )
