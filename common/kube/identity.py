# SPDX-License-Identifier: Apache-2.0
"""Who and where this process is, for the objects that it keeps for itself.

A pod is told by its manifest (`POD_NAMESPACE`, `POD_NAME`) or by its service account; outside
a cluster the namespace is the one that Evenkeel is installed in by default, so that a program
at a desk finds the Leases of the installed ones, and the name is that of the host. An identity
carries a random end, so that a program that starts again is not taken for the one that ended.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from common.api.contract import INSTALLED_IN

_NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_NOT_IN_A_LABEL: Final = re.compile(r"[^a-z0-9-]+")
# No pod that a controller has made has a longer name, so people find the pod by its identity.
# Whatever name it becomes a part of may have 253 characters.
_LONGEST: Final = 63


def pod_namespace(
    environ: Mapping[str, str] = os.environ, *, file: Path = _NAMESPACE_FILE
) -> str | None:
    """Return the namespace of the pod that this process runs in; None outside a cluster."""
    told = environ.get("POD_NAMESPACE", "").strip()
    if told:
        return told
    try:
        return file.read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


class LeaseNamespace(NamedTuple):
    """Where Leases are."""

    name: str
    said: bool
    """Whether a flag, the configuration or the pod says so, or it is the default."""


def lease_namespace(flag: str | None, configured: str) -> LeaseNamespace:
    """Return where Leases are: as the flag says, or the configuration, or beside this process."""
    said = flag or configured or pod_namespace()
    return LeaseNamespace(said or INSTALLED_IN, said is not None)


def own_identity(environ: Mapping[str, str] = os.environ) -> str:
    """Return a name for this process that begins with the pod's and that no other process has."""
    name = environ.get("POD_NAME", "").strip() or socket.gethostname()
    plain = _NOT_IN_A_LABEL.sub("-", name.lower())[:_LONGEST].strip("-") or "evenkeel"
    return f"{plain}-{secrets.token_hex(3)}"
