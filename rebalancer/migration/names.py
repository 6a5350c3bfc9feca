# SPDX-License-Identifier: Apache-2.0
"""Names and label values that are derived from names of other objects.

Those may be as long as a name can be. What does not fit is replaced by a hash of the whole
name, so that two long names never become the same.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

NAME_LIMIT: Final = 253
"""The longest name of a pod or a PDB (apimachinery, IsDNS1123Subdomain)."""
HOST_LIMIT: Final = 63
"""A pod's name is its host name, which the kubelet truncates (pkg/kubelet/kubelet_pods.go)."""
LABEL_LIMIT: Final = 63
"""The longest label value (apimachinery, LabelValueMaxLength)."""

PDB_ENDING: Final = "-rescheduler-pdb"
_COPY_PREFIX: Final = "rescheduled-"
_COPY: Final = re.compile(rf"{_COPY_PREFIX}(?P<original>.+)-\d{{10,}}", re.ASCII)
_NAME_DIGITS: Final = 10
_LABEL_DIGITS: Final = 8


def temporary_pdb_name(workload: str) -> str:
    """Return the name of a workload's temporary PDB."""
    return _fitted(workload, NAME_LIMIT - len(PDB_ENDING), _NAME_DIGITS) + PDB_ENDING


def replacement_name(pod: str, now_s: float) -> str:
    """Return the name of a bare pod's copy; the copy of a copy does not grow longer."""
    known = _COPY.fullmatch(pod)
    original = known["original"] if known else pod
    ending = f"-{int(now_s):010d}"
    room = HOST_LIMIT - len(_COPY_PREFIX) - len(ending)
    return _COPY_PREFIX + _fitted(original, room, _NAME_DIGITS) + ending


def label_value(name: str) -> str:
    """Return a name as a label value."""
    return _fitted(name, LABEL_LIMIT, _LABEL_DIGITS)


def _fitted(name: str, limit: int, digits: int) -> str:
    if len(name) <= limit:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:digits]
    # A dot or a dash before the dash would be an invalid end of a DNS label.
    return f"{name[: limit - digits - 1].rstrip('-.')}-{digest}"
