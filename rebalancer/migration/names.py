"""What the objects are called that are made for a move.

Names are made from names of others, which may be as long as a name can be; what is cut off
is replaced by a hash, so that two long names never become one.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

NAME_LIMIT: Final = 253
"""The longest name of a pod or a budget (apimachinery, IsDNS1123Subdomain)."""

HOST_LIMIT: Final = 63
"""A pod's name is its host name too, which would be cut there (pkg/kubelet/kubelet_pods.go)."""

PDB_ENDING: Final = "-rescheduler-pdb"
_COPY_PREFIX: Final = "rescheduled-"
_COPY: Final = re.compile(rf"{_COPY_PREFIX}(?P<original>.+)-\d{{10,}}", re.ASCII)
_HASH_DIGITS: Final = 10


def temporary_pdb_name(workload: str) -> str:
    """Return how the temporary budget of a workload is called."""
    return _fitted(workload, NAME_LIMIT - len(PDB_ENDING)) + PDB_ENDING


def replacement_name(pod: str, now_s: float) -> str:
    """Return how the copy of a bare pod is called; a copy's copy does not grow longer."""
    known = _COPY.fullmatch(pod)
    original = known["original"] if known else pod
    ending = f"-{int(now_s):010d}"
    room = HOST_LIMIT - len(_COPY_PREFIX) - len(ending)
    return _COPY_PREFIX + _fitted(original, room) + ending


def _fitted(name: str, limit: int) -> str:
    if len(name) <= limit:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_HASH_DIGITS]
    # A dot or a dash before the dash would end a label of the name wrongly.
    return f"{name[: limit - len(digest) - 1].rstrip('-.')}-{digest}"
