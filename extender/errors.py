# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with a request.

RequestError
├── BadRequest      cannot be answered; the client gets a 4xx with the reason
├── UnreadablePod   valid JSON, but the pod makes no sense: gets a neutral answer
└── ClientGone      the client is no longer waiting for the answer
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why a request is rejected, as named in the answer and in the metrics."""

    TOO_LARGE = "TooLarge"
    COMPRESSED = "Compressed"
    EMPTY_BODY = "EmptyBody"
    NOT_JSON = "NotJson"
    WRONG_TYPE = "WrongType"
    TOO_DEEP = "TooDeep"
    NO_POD = "NoPod"
    NO_NODES = "NoNodes"
    NOT_FOUND = "NotFound"
    METHOD_NOT_ALLOWED = "MethodNotAllowed"


class RequestError(Exception):
    """Base of everything that a request can get wrong."""


class BadRequest(RequestError):
    """The request cannot be answered."""

    def __init__(self, reason: Reason, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.reason = reason
        self.status = status


class UnreadablePod(RequestError):
    """A quantity, a time or a selector of the pod cannot be parsed."""


class ClientGone(RequestError):
    """The client closed the connection before the whole request had arrived."""
