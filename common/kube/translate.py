# SPDX-License-Identifier: Apache-2.0
"""Foreign errors in, ours out.

Whatever aiohttp, ssl, the operating system or an API server's Status object say is
turned here into one error of `common.kube.errors`, with one line of words for people.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import Final

import aiohttp
import msgspec

from common.kube.errors import (
    ApiError,
    Cause,
    KubeconfigError,
    KubeError,
    Malformed,
    TimedOut,
    Unreachable,
    Untrusted,
    api_error,
)

_LONGEST_TEXT: Final = 200
_LONGEST_LOOK: Final = 4000
_MARKUP: Final = re.compile(r"<(style|script)\b.*?</\1>|<[^>]*>", re.DOTALL)
_EXPIRED_REASONS: Final = frozenset({"Expired", "Gone"})

# OpenSSL's X509_V_ERR_*: what went wrong decides what to look at.
_CERTIFICATE_WORDS: Final[Mapping[int, str]] = {
    9: "certificate is not valid yet: check the clocks",
    10: "certificate has expired",
    62: "certificate is for other names: check server or tls-server-name in the kubeconfig",
    64: "certificate is for other addresses: check server or tls-server-name in the kubeconfig",
}
_UNKNOWN_AUTHORITY: Final = (
    "certificate signed by unknown authority: check certificate-authority in the kubeconfig"
)


class _Cause(msgspec.Struct):
    reason: str | None = None
    message: str | None = None
    field: str | None = None


class _Details(msgspec.Struct):
    causes: list[_Cause] | None = None
    retryAfterSeconds: float = 0  # noqa: N815 - the name on the wire


class _Status(msgspec.Struct):
    kind: str = ""
    code: int = 0
    reason: str | None = None
    message: str | None = None
    details: _Details | None = None


_STATUS: Final = msgspec.json.Decoder(_Status)


@contextmanager
def translated(server: str) -> Iterator[None]:
    """Turn what the transport raises inside into errors of ours."""
    try:
        yield
    except (aiohttp.ClientError, OSError) as error:
        raise transport_error(error, server) from error


def transport_error(error: Exception, server: str) -> KubeError:
    """Return our error for one of aiohttp, ssl or the operating system."""
    certificate = _certificate_error(error)
    if certificate is not None:
        words = _CERTIFICATE_WORDS.get(certificate.verify_code, _UNKNOWN_AUTHORITY)
        return Untrusted(f"{server}: {words} ({certificate.verify_message})")
    if isinstance(error, TimeoutError):
        return TimedOut(f"{server} did not answer in time")
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return Unreachable(f"{server}: the proxy answered {error.status} {error.message}")
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return Unreachable(f"{server}: cannot reach the proxy: {_reason(error.os_error)}")
    if isinstance(error, aiohttp.ClientResponseError):
        return Malformed(f"{server} does not speak HTTP: {shortened(error.message)}")
    if isinstance(error, aiohttp.InvalidURL):
        return KubeconfigError(f"{server} is not the address of an API server")
    if isinstance(error, aiohttp.ClientConnectorError):
        return Unreachable(f"cannot reach {server}: {_reason(error.os_error)}")
    if isinstance(error, (aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError)):
        return Unreachable(f"{server} closed the connection in the middle of an answer")
    return Unreachable(f"lost the connection to {server}: {_reason(error)}")


def status_error(
    status: int, body: bytes | msgspec.Raw, *, retry_after_s: float | None = None
) -> ApiError:
    """Return the error for an answer that says no, whether or not it is a Status object."""
    try:
        said = _STATUS.decode(body)
    except (ValueError, RecursionError):
        said = _Status()
    if said.kind != "Status":
        text = bytes(body).decode("utf-8", "replace")
        words = shortened(text) or "no explanation"
        return api_error(status, f"HTTP {status}: {words}", retry_after_s=retry_after_s)
    return _from_status(status, said, retry_after_s)


def _from_status(status: int, said: _Status, retry_after_s: float | None) -> ApiError:
    reason = said.reason or ""
    details = said.details or _Details()
    if retry_after_s is None and details.retryAfterSeconds > 0:
        retry_after_s = details.retryAfterSeconds
    return api_error(
        410 if reason in _EXPIRED_REASONS else said.code or status,
        said.message or reason or f"HTTP {status}",
        reason=reason,
        causes=tuple(
            Cause(c.reason or "", c.message or "", c.field or "") for c in details.causes or ()
        ),
        retry_after_s=retry_after_s,
    )


def parse_retry_after(headers: Mapping[str, str], now_s: float) -> float | None:
    """Return the seconds to wait that a response asks for, be it a number or a date."""
    text = headers.get("Retry-After", "").strip()
    if re.fullmatch(r"[0-9]{1,9}", text):
        return float(text)
    until = _http_date(text)
    if until is None:
        return None
    # The server's own clock wrote the date, so it is compared with the server's clock.
    sent = _http_date(headers.get("Date", ""))
    return max(0.0, until - (now_s if sent is None else sent))


def _http_date(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None


def shortened(text: str) -> str:
    """Return text on one line without markup, cut where it gets long."""
    plain = " ".join(_MARKUP.sub(" ", text[:_LONGEST_LOOK]).split())
    return plain if len(plain) <= _LONGEST_TEXT else plain[: _LONGEST_TEXT - 1] + "…"


def _certificate_error(error: Exception) -> ssl.SSLCertVerificationError | None:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        error = error.certificate_error
    return error if isinstance(error, ssl.SSLCertVerificationError) else None


def _reason(error: BaseException) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, ConnectionResetError):
        return "connection reset"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {shortened(str(error))}"
    strerror = error.strerror if isinstance(error, OSError) else None
    return shortened(strerror or str(error)) or type(error).__name__
