"""`/openapi/v2` and `/openapi/v3`: the simulator has no schemas to show, and says just that.

Both documents are valid and describe nothing. kubectl takes a kind that is not described for
one that it cannot check (cli-runtime/pkg/resource/query_param_verifier_v3.go and
kubectl/pkg/validation/validation.go, v0.36) and goes on; where there is no document at all it
refuses to. What is then not checked on our side either, the answer to the write warns of.
"""

from __future__ import annotations

from typing import Final

import msgspec

from simulator.api.storage import Json

_TITLE: Final = "Evenkeel's simulator: schemas are not described"
_VERSION: Final = "v1.36.4"
_JSON: Final = "application/json"
# Asked for with an at sign, which is no media type; answered without (pkg/handler of kube-openapi).
_ASKED: Final = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_INFO: Final = {"title": _TITLE, "version": _VERSION}

VERSION_3: Final[Json] = {"paths": {}}


def version_2(accept: str) -> tuple[bytes, str]:
    """Return the document and its media type: protobuf for who asks for it, as kubectl does."""
    if _ASKED in accept or _PROTOBUF in accept:
        return _IN_PROTOBUF, _PROTOBUF
    return msgspec.json.encode({"swagger": "2.0", "info": _INFO, "paths": {}}), _JSON


def _text(number: int, value: bytes) -> bytes:
    """Return a field in protobuf's wire format; all of ours are shorter than 128 bytes."""
    return bytes((number << 3 | 2, len(value))) + value


# gnostic-models/openapiv2/OpenAPIv2.proto: a Document has swagger (1) and info (2).
_IN_PROTOBUF: Final = _text(1, b"2.0") + _text(
    2, _text(1, _TITLE.encode()) + _text(2, _VERSION.encode())
)
