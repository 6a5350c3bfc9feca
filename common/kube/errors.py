# SPDX-License-Identifier: Apache-2.0
"""What can go wrong when talking to an API server.

Foreign errors (aiohttp, ssl, the official client) are translated here, once; nothing
above `common.kube` catches them.

    KubeError
    ├── KubeconfigError          no usable way to reach a cluster; names what was tried
    ├── Unreachable              no answer: refused, reset, DNS, TLS, timeout
    │   ├── TimedOut             nothing came within the limit
    │   └── Untrusted            the server's certificate is not signed by our CA
    ├── Malformed                an answer that is not what the API promises
    │   └── TooLarge             an answer that is larger than we read
    └── ApiError                 the server said no
        ├── BadRequest           400
        ├── Unauthorized         401
        ├── Forbidden            403
        ├── NotFound             404
        ├── Conflict             409
        │   └── AlreadyExists    409 on create
        ├── Gone                 410, a resourceVersion or continue token that expired
        ├── Invalid              422
        ├── TooManyRequests      429, with `retry_after_s` when the server gave one
        └── ServerError          5xx
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Cause:
    """One entry of a Status object's `details.causes`."""

    reason: str = ""
    message: str = ""
    field: str = ""


class KubeError(Exception):
    """Root of everything that talking to a cluster can raise."""


class KubeconfigError(KubeError):
    """No usable way to reach a cluster."""


class Unreachable(KubeError):
    """The server gave no answer."""


class TimedOut(Unreachable):
    """Nothing came within the limit."""


class Untrusted(Unreachable):
    """The server's certificate is not signed by the configured CA."""


class Malformed(KubeError):
    """The answer is not what the API promises."""


class TooLarge(Malformed):
    """The answer, or a line of it, is larger than what is read of one."""


class ApiError(KubeError):
    """The server answered with an error status."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        reason: str = "",
        causes: tuple[Cause, ...] = (),
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.reason = reason
        self.causes = causes
        self.retry_after_s = retry_after_s

    def has_cause(self, reason: str) -> bool:
        """Tell whether the server named this cause, for example `DisruptionBudget`."""
        return any(cause.reason == reason for cause in self.causes)


class BadRequest(ApiError):
    """400"""


class Unauthorized(ApiError):
    """401"""


class Forbidden(ApiError):
    """403"""


class NotFound(ApiError):
    """404"""


class Conflict(ApiError):
    """409"""


class AlreadyExists(Conflict):
    """409 on create"""


class Gone(ApiError):
    """410"""


class Invalid(ApiError):
    """422"""


class TooManyRequests(ApiError):
    """429"""


class ServerError(ApiError):
    """5xx"""


FINAL: Final = (BadRequest, Forbidden, NotFound, Invalid)
"""The same request would be refused again; anything else may pass."""

_BY_STATUS: Mapping[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


def api_error(
    status: int,
    message: str,
    *,
    reason: str = "",
    causes: tuple[Cause, ...] = (),
    retry_after_s: float | None = None,
) -> ApiError:
    """Return the error of the right class for a status code."""
    kind = ServerError if status >= 500 else _BY_STATUS.get(status, ApiError)
    if kind is Conflict and reason == "AlreadyExists":
        kind = AlreadyExists
    return kind(status, message, reason=reason, causes=causes, retry_after_s=retry_after_s)
