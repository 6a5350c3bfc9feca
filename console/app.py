# SPDX-License-Identifier: Apache-2.0
"""The console as an ASGI application: pages, documents and the stream.

Pages are templates that are escaped by default; what they show live is read by their modules as
JSON and put into the page as text. Everything is read-only, except pausing and resuming where the
program can do that for the person who runs it. Static files are read once and served from memory.
"""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.responses import Response

from common.visible import visible
from console.data import ConsoleData, ConsoleError, Match, PauseSwitch, WhyDocument, WhyKind
from console.feed import Feed
from console.pages import NAVIGATION, Pages

STATIC: Final = Path(__file__).parent / "static"
NAME_LENGTH: Final = 600
"""Of namespace/name at the most, with room; longer ones are not looked up."""
FOUND: Final = 20
NO_STORE: Final = {"Cache-Control": "no-store"}
_PAUSE_LENGTH: Final = 4096

Name = Annotated[str, Query(max_length=NAME_LENGTH)]


class _Pausing(msgspec.Struct, forbid_unknown_fields=True):
    why: Annotated[str, msgspec.Meta(max_length=200)] = ""
    for_s: Annotated[float, msgspec.Meta(gt=0, le=30 * 86_400)] | None = None


class _File(msgspec.Struct, frozen=True):
    content: bytes
    type: str
    tag: str


def build_app(data: ConsoleData, feed: Feed, *, program: str) -> FastAPI:
    """Return the application for one program."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    switch = data if isinstance(data, PauseSwitch) else None
    pages = Pages(program=program, pausable=switch is not None)
    _add_pages(app, data, pages)
    _add_documents(app, data, feed)
    _add_stream(app, feed)
    _add_files(app)
    if switch is not None:
        _add_switch(app, switch)
    _add_errors(app, pages)
    return app


def _add_pages(app: FastAPI, data: ConsoleData, pages: Pages) -> None:
    def page(name: str) -> Any:
        async def shown() -> Response:
            return _page(pages.render(name))

        return shown

    for item in NAVIGATION:
        if item.template != "why":
            app.add_api_route(item.path, page(item.template), methods=["GET", "HEAD"])

    @app.get("/node")
    async def node(name: Name = "") -> Response:
        return _page(pages.render("node", name=name))

    @app.get("/why")
    async def why(kind: str = "", name: Name = "", q: Name = "") -> Response:
        found = await _answer(data, kind, name)
        asked = name or q
        matches = await _matches(data, kind, asked) if asked and found is None else ()
        shown = pages.render(
            "why", kind=kind, asked=asked, found=found, matches=matches, asked_for=bool(asked)
        )
        return _page(shown, status=200 if found or not name else 404)


async def _answer(data: ConsoleData, kind: str, name: str) -> WhyDocument | None:
    known = _kind(kind)
    return await data.why(known, name) if known is not None and name else None


async def _matches(data: ConsoleData, kind: str, text: str) -> tuple[Match, ...]:
    wanted, found = _kind(kind), await data.search(text, FOUND)
    return tuple(each for each in found if wanted is None or each.kind is wanted) or found


def _kind(text: str) -> WhyKind | None:
    return WhyKind(text) if text in set(WhyKind) else None


def _add_documents(app: FastAPI, data: ConsoleData, feed: Feed) -> None:
    @app.get("/api/cluster")
    async def cluster() -> Response:
        return _json(await feed.cluster())

    @app.get("/api/history")
    async def history(node: Name = "") -> Response:
        return _document(feed.history.node(node) if node else feed.history.cluster())

    @app.get("/api/node")
    async def node(name: Name) -> Response:
        # `null` and not 404 for one that is gone: that is nothing that went wrong.
        return _document(await data.node(name))

    @app.get("/api/plan")
    async def plan() -> Response:
        return _document(await data.plan())

    @app.get("/api/migrations")
    async def migrations() -> Response:
        return _document(await data.migrations())

    @app.get("/api/health")
    async def health() -> Response:
        return _document(await data.health())

    @app.get("/api/search")
    async def search(q: Name = "") -> Response:
        return _document(await data.search(q, FOUND) if q else ())

    @app.get("/api/why")
    async def why(kind: WhyKind, name: Name) -> Response:
        return _document(await data.why(kind, name))


def _add_stream(app: FastAPI, feed: Feed) -> None:
    async def messages(number: int, *, cells: bool) -> AsyncIterator[bytes]:
        async with feed.viewer(number, cells=cells) as viewer:
            async for message in viewer.messages():
                yield message

    @app.get("/api/stream")
    async def stream(number: int = -1, cells: bool = True) -> Response:
        found = messages(number, cells=cells)
        return StreamingResponse(found, media_type="text/event-stream", headers=NO_STORE)


def _add_files(app: FastAPI) -> None:
    files = {
        path.relative_to(STATIC).as_posix(): _file(path)
        for path in STATIC.rglob("*")
        if path.is_file()
    }

    async def file(request: Request, path: str) -> Response:
        found = files.get(path)
        if found is None:
            raise HTTPException(404)
        headers = {"Cache-Control": "no-cache", "ETag": found.tag}
        if request.headers.get("if-none-match") == found.tag:
            return Response(status_code=304, headers=headers)
        return Response(found.content, media_type=found.type, headers=headers)

    app.add_api_route("/static/{path:path}", file, methods=["GET", "HEAD"])


def _file(path: Path) -> _File:
    content = path.read_bytes()
    kind = {".js": "text/javascript", ".mjs": "text/javascript"}.get(path.suffix)
    guessed = kind or mimetypes.guess_type(path.name)[0] or "text/plain"
    return _File(content, guessed, f'"{hashlib.sha256(content).hexdigest()[:32]}"')


def _add_switch(app: FastAPI, switch: PauseSwitch) -> None:
    @app.post("/api/pause")
    async def pause(request: Request) -> Response:
        body = await request.body()
        try:
            wanted = msgspec.json.decode(body[:_PAUSE_LENGTH] or b"{}", type=_Pausing)
        except msgspec.DecodeError as error:
            return _document({"error": visible(str(error))}, status=400)
        return await _switched(switch.pause(wanted.why, wanted.for_s))

    @app.post("/api/resume")
    async def resume() -> Response:
        return await _switched(switch.resume())


async def _switched(work: Any) -> Response:
    try:
        await work
    except ConsoleError as error:
        return _document({"error": visible(str(error))}, status=409)
    return _document({"error": ""})


def _add_errors(app: FastAPI, pages: Pages) -> None:
    def shown(request: Request, status: int, words: str) -> Response:
        if request.url.path.startswith(("/api/", "/static/")):
            return _document({"error": words}, status=status)
        return _page(pages.render("error", status=status, words=words), status=status)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        words = "There is no such page." if error.status_code == 404 else str(error.detail)
        return shown(request, error.status_code, words)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        fields = ", ".join(sorted({str(each["loc"][-1]) for each in error.errors()}))
        return shown(request, 400, f"The address is not understood: check {visible(fields)}.")


def _document(found: Any, *, status: int = 200) -> Response:
    return _json(msgspec.json.encode(found), status=status)


def _json(content: bytes, *, status: int = 200) -> Response:
    return Response(content, status, headers=NO_STORE, media_type="application/json")


def _page(text: str, *, status: int = 200) -> Response:
    return HTMLResponse(text, status, headers=NO_STORE)
