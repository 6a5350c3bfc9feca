# SPDX-License-Identifier: Apache-2.0
"""The control endpoint: `/evenkeel.io/faults` beside the API, for programs in any language.

GET    /evenkeel.io/faults         the active faults
POST   /evenkeel.io/faults         {"fault": "node-death", "node": "node-3"} → {"id": 1}
DELETE /evenkeel.io/faults[/1]     remove one, or all of them
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from aiohttp import web

from simulator.faults import AnyFault, ClusterFaults, FaultError

PREFIX: Final = "evenkeel.io"
_decode: Final = msgspec.json.Decoder(AnyFault)
_encode: Final = msgspec.json.Encoder().encode


class Control:
    """Handles requests about faults."""

    def __init__(self, faults: ClusterFaults) -> None:
        self._faults = faults

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Handle one request."""
        match (request.method, request.path.strip("/").split("/")[1:]):
            case ("GET", ["faults"]):
                active = self._faults.active
                return _json({"faults": [{"id": n, "fault": f} for n, f in active.items()]})
            case ("POST", ["faults"]):
                return self._inject(await request.read())
            case ("DELETE", ["faults"]):
                self._faults.clear()
                return _json({})
            case ("DELETE", ["faults", number]):
                return self._withdraw(number)
        return _json({"error": "not found: only faults are served here"}, 404)

    def _inject(self, body: bytes) -> web.Response:
        try:
            number = self._faults.inject(_decode.decode(body))
        except (msgspec.MsgspecError, FaultError) as error:
            return _json({"error": str(error)}, 400)
        return _json({"id": number}, 201)

    def _withdraw(self, number: str) -> web.Response:
        if not number.isdecimal() or int(number) not in self._faults.active:
            return _json({"error": f"fault {number} not found"}, 404)
        self._faults.withdraw(int(number))
        return _json({})


def _json(value: Any, status: int = 200) -> web.Response:  # Any: whatever JSON can hold
    return web.Response(body=_encode(value), status=status, content_type="application/json")
