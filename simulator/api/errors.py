# SPDX-License-Identifier: Apache-2.0
"""The errors of the API server: `Status` objects with code, reason and causes.

The messages are those of apimachinery/pkg/api/errors/errors.go in v0.36, because programs and
people match on them. In-process callers catch the same errors that a client receives.

    Refusal
    ├── BadRequest         400
    ├── Forbidden          403
    ├── NotFound           404
    ├── MethodNotAllowed   405
    ├── NotAcceptable      406
    ├── Conflict           409
    │   └── AlreadyExists
    ├── Expired            410, a resourceVersion or continue token from before compaction
    ├── TooLarge           413
    ├── UnsupportedMedia   415
    ├── Invalid            422, with one cause per field
    ├── TooManyRequests    429
    ├── InternalError      500
    ├── NotSupported       501, not supported by the simulator
    ├── Unavailable        503
    └── TimedOut           504
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from common.kube.resources import Resource
from simulator.api.storage import Json


@dataclass(frozen=True, slots=True)
class Cause:
    """One entry of `details.causes`."""

    reason: str
    message: str
    field: str = ""

    def json(self) -> Json:
        named = {"reason": self.reason, "message": self.message, "field": self.field}
        return {key: value for key, value in named.items() if value}

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class Refusal(Exception):
    """Base of all errors of the API server."""

    code: ClassVar[int] = 500
    reason: ClassVar[str] = ""

    def __init__(
        self,
        message: str,
        *,
        details: Json | None = None,
        metadata: Json | None = None,
        retry_after_s: int = 0,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        self.metadata = metadata
        self.retry_after_s = retry_after_s

    def status(self) -> Json:
        """Return the `Status` object for the client."""
        details = self.details
        if self.retry_after_s:
            details = {**(details or {}), "retryAfterSeconds": self.retry_after_s}
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata or {},
            "status": "Failure",
            "message": self.message,
            **({"reason": self.reason} if self.reason else {}),
            **({"details": details} if details is not None else {}),
            "code": self.code,
        }


class BadRequest(Refusal):
    code = 400
    reason = "BadRequest"


class Forbidden(Refusal):
    code = 403
    reason = "Forbidden"


class NotFound(Refusal):
    code = 404
    reason = "NotFound"


class MethodNotAllowed(Refusal):
    code = 405
    reason = "MethodNotAllowed"


class NotAcceptable(Refusal):
    code = 406
    reason = "NotAcceptable"


class Conflict(Refusal):
    code = 409
    reason = "Conflict"


class AlreadyExists(Conflict):
    reason = "AlreadyExists"


class Expired(Refusal):
    code = 410
    reason = "Expired"


class TooLarge(Refusal):
    code = 413
    reason = "RequestEntityTooLarge"


class UnsupportedMedia(Refusal):
    code = 415
    reason = "UnsupportedMediaType"


class Invalid(Refusal):
    code = 422
    reason = "Invalid"


class TooManyRequests(Refusal):
    code = 429
    reason = "TooManyRequests"


class InternalError(Refusal):
    """A 500 without a reason, as the real server returns for unexpected errors."""


class NotSupported(Refusal):
    code = 501
    reason = "NotImplemented"


class Unavailable(Refusal):
    code = 503
    reason = "ServiceUnavailable"


class TimedOut(Refusal):
    code = 504
    reason = "Timeout"


def qualified(resource: Resource) -> str:
    """Return how messages name a resource: `pods`, `deployments.apps`."""
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def about(resource: Resource, name: str, **more: Any) -> Json:
    """Return the `details` that name an object."""
    group = {"group": resource.group} if resource.group else {}
    named = {"name": name} if name else {}
    return {**named, **group, "kind": resource.plural, **more}


def not_found(resource: Resource, name: str) -> NotFound:
    return NotFound(f'{qualified(resource)} "{name}" not found', details=about(resource, name))


def no_such_route() -> NotFound:
    return NotFound("the server could not find the requested resource", details={})


def no_such_method() -> MethodNotAllowed:
    message = "the server does not allow this method on the requested resource"
    return MethodNotAllowed(message, details={})


def already_exists(resource: Resource, name: str) -> AlreadyExists:
    message = f'{qualified(resource)} "{name}" already exists'
    return AlreadyExists(message, details=about(resource, name))


def conflict(resource: Resource, name: str, why: str) -> Conflict:
    message = f'Operation cannot be fulfilled on {qualified(resource)} "{name}": {why}'
    return Conflict(message, details=about(resource, name))


def modified(resource: Resource, name: str) -> Conflict:
    """Return the conflict of an outdated resourceVersion."""
    why = "the object has been modified; please apply your changes to the latest version and "
    return conflict(resource, name, why + "try again")


def unmet_precondition(kind: str, group: str, name: str, why: str) -> Conflict:
    """Return a failed delete precondition, which names the kind instead of the resource."""
    details: Json = {"name": name, **({"group": group} if group else {}), "kind": kind}
    shown = f"{kind}.{group}" if group else kind
    return Conflict(f'Operation cannot be fulfilled on {shown} "{name}": {why}', details=details)


def forbidden(
    resource: Resource, name: str, why: str, *, causes: Sequence[Cause] = ()
) -> Forbidden:
    details = about(resource, name)
    if causes:
        details["causes"] = [cause.json() for cause in causes]
    return Forbidden(f'{qualified(resource)} "{name}" is forbidden: {why}', details=details)


def invalid(kind: str, group: str, name: str, causes: Sequence[Cause]) -> Invalid:
    """Return a 422 with one cause per wrong field."""
    shown = f"{kind}.{group}" if group else kind
    message = ", ".join(dict.fromkeys(map(str, causes)))
    if len(causes) > 1:
        message = f"[{message}]"
    details: Json = {
        **({"name": name} if name else {}),
        **({"group": group} if group else {}),
        "kind": kind,
        "causes": [cause.json() for cause in causes],
    }
    return Invalid(f'{shown} "{name}" is invalid: {message}', details=details)


def invalid_options(kind: str, *causes: Cause) -> Invalid:
    """Return a 422 about options of a request, such as `dryRun`."""
    return invalid(kind, "meta.k8s.io", "", causes)


def required(field: str, why: str = "") -> Cause:
    message = f"Required value: {why}" if why else "Required value"
    return Cause("FieldValueRequired", message, field)


def wrong(field: str, value: Any, why: str) -> Cause:
    """Return the cause for a value that breaks a rule."""
    return Cause("FieldValueInvalid", f"Invalid value: {shown(value)}: {why}", field)


def not_allowed(field: str, why: str) -> Cause:
    return Cause("FieldValueForbidden", f"Forbidden: {why}", field)


def unknown_value(field: str, value: Any, known: Sequence[str]) -> Cause:
    values = ", ".join(f'"{each}"' for each in known)
    message = f"Unsupported value: {shown(value)}: supported values: {values}"
    return Cause("FieldValueNotSupported", message, field)


def shown(value: Any) -> str:
    """Return a value as messages show it: as JSON."""
    return msgspec.json.encode(value).decode()


def success(code: int = 0, *, details: Json | None = None) -> Json:
    """Return the `Status` object of a successful request."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        **({"details": details} if details else {}),
        **({"code": code} if code else {}),
    }
