# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin that takes one entry out of a registry before any test is imported.

`EVENKEEL_MUTANT=package.module:REGISTRY:3` removes the fourth entry. Registries are tuples
that only their own module reads, through its global name; so replacing the tuple is enough.
"""

from __future__ import annotations

import importlib
import os


def remove(mutant: str) -> None:
    """Take the entry out."""
    module_name, registry, number = mutant.split(":")
    module = importlib.import_module(module_name)
    entries = list(getattr(module, registry))
    del entries[int(number)]
    setattr(module, registry, tuple(entries))


if "EVENKEEL_MUTANT" in os.environ:
    remove(os.environ["EVENKEEL_MUTANT"])
