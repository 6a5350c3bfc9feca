# SPDX-License-Identifier: Apache-2.0
"""The token of our own service account, which opens the Kubernetes API and goes nowhere else.

A Prometheus that is sent this token could act in the cluster with our rights. So a file under
the account's folder is refused as a bearer token for others, by whatever path it is reached,
and so is a token from another file that the API server would take for ours.
"""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import Final

import msgspec

FOLDER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_ALIASES: Final = (str(FOLDER), "/run/secrets/kubernetes.io/serviceaccount")


class _Claims(msgspec.Struct):
    sub: str = ""
    aud: tuple[str, ...] | str = ()


def is_inside(path: str, folder: Path = FOLDER) -> bool:
    """Tell whether a path leads into the account's folder, as written or by links."""
    plain = os.path.abspath(path)
    written = {"/" + plain.lstrip("/"), "/" + _followed(path).lstrip("/")}
    folders = {str(folder), _followed(str(folder))}
    if folder == FOLDER:
        folders |= set(_ALIASES)
    return any(_below(one, top) for one in written for top in folders)


def opens_the_api(token: str, folder: Path = FOLDER) -> bool:
    """Tell whether a token is our account's, or one that the API server takes for it."""
    try:
        own = (folder / "token").read_text().strip()
    except (OSError, UnicodeDecodeError):
        return False
    if token == own:
        return True
    ours, given = _claims(own), _claims(token)
    shared = set(_audiences(ours)) & set(_audiences(given))
    return bool(ours.sub) and ours.sub == given.sub and bool(shared)


def _followed(path: str) -> str:
    """Return where links lead; what we may not follow, we may not read either."""
    try:
        return os.path.realpath(path)
    except OSError:
        return path


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def _claims(token: str) -> _Claims:
    """Return what a JWT says of itself; nothing if it is none."""
    parts = token.split(".")
    if len(parts) != 3:
        return _Claims()
    try:
        payload = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        return msgspec.json.decode(payload, type=_Claims)
    except (binascii.Error, ValueError, msgspec.MsgspecError, RecursionError):
        return _Claims()


def _audiences(claims: _Claims) -> list[str]:
    return [claims.aud] if isinstance(claims.aud, str) else list(claims.aud)
