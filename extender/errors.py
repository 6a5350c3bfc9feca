"""What can be wrong with a request.

RequestError
├── BadRequest      not to be answered; says why, with a 4xx
├── UnreadablePod   proper JSON, but the pod makes no sense: answered without an opinion
└── ClientGone      nobody waits for the answer any more
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why a request is refused, as the answer and the metrics name it."""

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

    def __init__(self, reason: Reason, words: str, *, status: int = 400) -> None:
        super().__init__(words)
        self.reason = reason
        self.status = status


class UnreadablePod(RequestError):
    """A quantity, a time or a selector of the pod is nonsense."""


class ClientGone(RequestError):
    """The client closed its connection before it had sent everything."""
