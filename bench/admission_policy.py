# SPDX-License-Identifier: Apache-2.0
"""Variants of the policy that sends the replacement of a moved pod to its target.

The shipped one requires the target. The others are made of it: what differs is which nodes the
terms of required node affinity name, and a preferred term beside them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

import yaml

from bench.stands.episode import GUIDE

Json = dict[str, Any]  # Any: nested API objects


class Variant(StrEnum):
    """What a replacement is told."""

    PREFERRED = "preferred"
    """Not the source; the target is preferred with the highest weight."""
    REQUIRED = "required"
    """The target, or no node at all. As shipped."""
    ALTERNATIVES = "alternatives"
    """The target or one of the alternatives; the target is preferred with the highest weight."""


_IN: Final = "operator: 'In'"
_PATH: Final = "/spec/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution"
_TYPE: Final = "Object.spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution"
_TERM: Final = f"""
{_TYPE}{{weight: 100, preference: {_TYPE}.preference{{matchFields: [
  {_TYPE}.preference.matchFields{{
    key: 'metadata.name', operator: 'In', values: [params.spec.target]}}]}}}}
"""
# A list of objects as the value of a patch makes kube-apiserver v1.36.4 panic, and the request fail
# (baseList.ConvertToNative in cel-go, called by pkg/admission/plugin/policy/mutating/patch).
_PREFER: Final = f"""
 + (object.spec.?affinity.?nodeAffinity.?preferredDuringSchedulingIgnoredDuringExecution.hasValue()
    ? [] : [JSONPatch{{op: 'add', path: '{_PATH}', value: []}}])
 + [JSONPatch{{op: 'add', path: '{_PATH}/-', value: {_TERM}}}]
"""


def policy(variant: Variant) -> list[Json]:
    """Return the policy and its binding."""
    made, binding = yaml.safe_load_all(GUIDE.read_text())
    if variant is Variant.REQUIRED:
        return [made, binding]
    [nodes] = [each for each in made["spec"]["variables"] if each["name"] == "nodes"]
    patch = made["spec"]["mutations"][0]["jsonPatch"]
    if variant is Variant.PREFERRED:
        assert _IN in patch["expression"]
        nodes["expression"] = "[params.spec.source]"
        patch["expression"] = patch["expression"].replace(_IN, "operator: 'NotIn'")
    else:
        nodes["expression"] += " + params.spec.?alternatives.orValue([])"
    patch["expression"] += _PREFER
    return [made, binding]
