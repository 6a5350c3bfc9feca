# SPDX-License-Identifier: Apache-2.0
"""Which names, label keys and label values Kubernetes accepts, with its messages.

The rules and messages are those of apimachinery/pkg/api/validate/content (dns.go, kube.go)
in v0.36. A function returns the problems; an empty result means that the name is valid.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

Problems = tuple[str, ...]

_LABEL_FORM: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN_FORM: Final = _LABEL_FORM + r"(\." + _LABEL_FORM + ")*"
_KEY_FORM: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE_FORM: Final = f"({_KEY_FORM})?"

_LABEL: Final = re.compile(_LABEL_FORM)
_SUBDOMAIN: Final = re.compile(_SUBDOMAIN_FORM)
_KEY: Final = re.compile(_KEY_FORM)
_VALUE: Final = re.compile(_VALUE_FORM)

_ENDS: Final = "and must start and end with an alphanumeric character"
_LABEL_WORDS: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    f"{_ENDS} (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL_FORM}')"
)
_SUBDOMAIN_WORDS: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    f"'.', {_ENDS} (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN_FORM}')"
)
_KEY_WORDS: Final = (
    f"must consist of alphanumeric characters, '-', '_' or '.', {_ENDS} (e.g. 'MyName',  or "
    f"'my.name',  or '123-abc', regex used for validation is '{_KEY_FORM}')"
)
_VALUE_WORDS: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    f"'.', {_ENDS} (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'{_VALUE_FORM}')"
)


@lru_cache(maxsize=4096)
def dns_label(text: str) -> Problems:
    """Check the name of a namespace or a container."""
    found = ["must be no more than 63 characters"] if len(text.encode()) > 63 else []
    if not _LABEL.fullmatch(text):
        found.append("must not contain dots" if _SUBDOMAIN.fullmatch(text) else _LABEL_WORDS)
    return tuple(found)


def dns_subdomain(text: str) -> Problems:
    """Check the name of most objects."""
    found = ["must be no more than 253 characters"] if len(text.encode()) > 253 else []
    if not _SUBDOMAIN.fullmatch(text):
        found.append(_SUBDOMAIN_WORDS)
    return tuple(found)


@lru_cache(maxsize=4096)
def label_key(text: str) -> Problems:
    """Check the key of a label or annotation, or the name of a finalizer."""
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        optional = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return (f"a valid label key {_KEY_WORDS}{optional}",)
    found = _prefix_problems(prefix) if slash else []
    if not name:
        found.append("name part must be non-empty")
    elif len(name.encode()) > 63:
        found.append("name part must be no more than 63 bytes")
    if not _KEY.fullmatch(name):
        found.append(f"name part {_KEY_WORDS}")
    return tuple(found)


@lru_cache(maxsize=16384)
def label_value(text: str) -> Problems:
    """Check the value of a label."""
    found = ["must be no more than 63 bytes"] if len(text.encode()) > 63 else []
    if not _VALUE.fullmatch(text):
        found.append(_VALUE_WORDS)
    return tuple(found)


def _prefix_problems(prefix: str) -> list[str]:
    if not prefix:
        return ["prefix part must be non-empty"]
    return [f"prefix part {problem}" for problem in dns_subdomain(prefix)]
