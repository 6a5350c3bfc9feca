# SPDX-License-Identifier: Apache-2.0
"""Intents: where the replacements of moved pods should go, from open Migrations."""

from extender.intents.index import Intents
from extender.intents.values import Guidance, Held, HeldIntent, IntentRow

__all__ = ("Guidance", "Held", "HeldIntent", "IntentRow", "Intents")
