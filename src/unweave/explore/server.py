"""The server of the page.

    GET  /, /style.css, …          the page
    GET  /api/index                what the page needs to know first
    GET  /api/points/{space}       the map of a space, float32; /api/rows and /api/classes of its points
    GET  /thumbnail/{row}          a JPEG; /image/{row} a larger one
    GET  /api/row/{row}            path and class
    GET  /api/filter?class=&name=  rows, uint32
    POST /api/search               the images with the largest weighted score; /api/columns the nearest in each space
    POST /api/upload               an image file as the body: a query
    GET  /api/duplicates/{space}   groups; /api/outliers/{space} a list
    POST /api/paths                the paths of rows

Images are named by row number, and files of the page are in memory: no request names a path on the disk. Errors are
``{"error": …}``.
"""

import json
import math
import re
import secrets
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from unweave.errors import UnweaveError
from unweave.explore.answers import Answers
from unweave.explore.base import SearchIndex
from unweave.explore.config import PAGE, ExploreConfig
from unweave.explore.guard import Guard
from unweave.explore.maps import Maps

KINDS = {".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript", ".txt": "text/plain"}
MAX_JSON = 4_000_000
"""Largest request in bytes other than an upload: the rows of a region of 200,000 points fit."""
THREADS = 2
"""Requests computed at the same time; each computes with several threads of its own."""
BINARY = "application/octet-stream"
KEEP = {"Cache-Control": "private, max-age=86400"}
"""For thumbnails: their address contains the version of the index."""


def make_app(index: SearchIndex, maps: Maps, config: ExploreConfig | None = None, token: str | None = None) -> Any:
    """The page and its server as an ASGI application.

    Args:
        index: the index it shows.
        maps: its maps.
        config: limits on uploads.
        token: what a browser must present, by default nothing. Without a token, only requests to this machine's own
            names are answered.

    Examples:
        >>> import numpy as np
        >>> from unweave.explore import Maps
        >>> maps = Maps(np.arange(0), {}, "pca", "1")
        >>> app = make_app(index=None, maps=maps)
        >>> "/api/search" in [route.path for route in app.routes]
        True
    """
    config = config or ExploreConfig()
    return _app(Answers(index, maps, config), config, token)


def _app(answers: Answers, config: ExploreConfig, token: str | None) -> Starlette:
    handlers = _Handlers(answers, config)
    guard = Middleware(Guard, token=token, host=config.host)
    errors: Any = {HTTPException: _http_error, UnweaveError: _mistake, Exception: _failure}
    return Starlette(routes=handlers.routes(), middleware=[guard], exception_handlers=errors)


def serve(
    index: SearchIndex,
    maps: Maps,
    config: ExploreConfig | None = None,
    *,
    on_start: Callable[[str], None] = print,
    listener: socket.socket | None = None,
) -> None:
    """Serves the page until it is interrupted; calls ``on_start`` with its address.

    Args:
        index: the index it shows.
        maps: its maps.
        config: where it listens, and limits on uploads.
        on_start: called with the address.
        listener: what ``unweave.explore.server.listen`` returned for ``config``, by default a new one.

    Examples:
        >>> serve(index, maps)  # doctest: +SKIP
        http://127.0.0.1:8517/
    """
    import uvicorn

    config = config or ExploreConfig()
    token = None if config.is_local else secrets.token_urlsafe(16)
    listener = listener or listen(config)
    answers = Answers(index, maps, config)
    answers.about()  # reads the classes of all rows once
    app = _app(answers, config, token)
    port = listener.getsockname()[1]
    host = socket.gethostname() if config.host in ("0.0.0.0", "::") else config.host
    host = f"[{host}]" if ":" in host else host
    on_start(f"http://{host}:{port}/" + (f"?token={token}" if token else ""))
    settings = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, lifespan="off")
    try:
        uvicorn.Server(settings).run(sockets=[listener])
    except KeyboardInterrupt:
        pass
    finally:
        listener.close()


def listen(config: ExploreConfig) -> socket.socket:
    """A socket at the host and port of ``config``, for ``serve``.

    Call it before the maps are made: a port that is in use is then an error at once.

    Examples:
        >>> with listen(ExploreConfig(port=0)) as listener:
        ...     listener.getsockname()[0]
        '127.0.0.1'
    """
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    # With the protocol named, asyncio sends small answers at once (TCP_NODELAY); otherwise each takes 40 ms longer.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((config.host, config.port))
        listener.listen(256)
        return listener
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise UnweaveError(
            f"cannot listen on `host` {config.host}, `port` {config.port}: {reason}; use another port, or 0 for any"
        ) from None


class _Handlers:
    """Requests to ``Answers``, and its answers to responses."""

    def __init__(self, answers: Answers, config: ExploreConfig) -> None:
        self._answers, self._config = answers, config
        self._limiter: anyio.CapacityLimiter | None = None
        self._long_limiter: anyio.CapacityLimiter | None = None
        self._files = {path.name: path.read_bytes() for path in PAGE.iterdir() if path.suffix in KINDS}

    def routes(self) -> list[Route]:
        def get(path: str, handler: Callable[[Request], Awaitable[Response]]) -> Route:
            return Route(path, handler)

        def post(path: str, handler: Callable[[Request], Awaitable[Response]]) -> Route:
            return Route(path, handler, methods=["POST"])

        answers = self._answers
        return [
            get("/api/index", self._plain(answers.about)),
            get("/api/rows", self._binary(answers.point_rows)),
            get("/api/classes", self._binary(answers.point_classes)),
            get("/api/points/{space}", self._points),
            get("/api/row/{row}", self._row),
            get("/api/filter", self._filter),
            get("/api/duplicates/{space}", self._duplicates),
            get("/api/outliers/{space}", self._outliers),
            post("/api/search", self._asked(answers.search)),
            post("/api/columns", self._asked(answers.columns)),
            post("/api/paths", self._asked(lambda request: answers.paths(request.get("rows")))),
            post("/api/upload", self._upload),
            get("/thumbnail/{row}", self._thumbnail),
            get("/image/{row}", self._image),
            get("/{file:path}", self._file),
        ]

    async def _run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Computes in a thread, a few at a time; the loop stays free for thumbnails."""
        self._limiter = self._limiter or anyio.CapacityLimiter(THREADS)
        return await anyio.to_thread.run_sync(partial(function, *arguments), limiter=self._limiter)

    async def _run_long(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Computes what may take minutes, one at a time, beside the searches."""
        self._long_limiter = self._long_limiter or anyio.CapacityLimiter(1)
        return await anyio.to_thread.run_sync(partial(function, *arguments), limiter=self._long_limiter)

    def _plain(self, function: Callable[[], Any]) -> Callable[[Request], Awaitable[Response]]:
        async def handler(request: Request) -> Response:
            return JSONResponse(await self._run(function))

        return handler

    def _binary(self, function: Callable[[], bytes]) -> Callable[[Request], Awaitable[Response]]:
        async def handler(request: Request) -> Response:
            return Response(await self._run(function), media_type=BINARY)

        return handler

    def _asked(self, function: Callable[[dict[str, Any]], Any]) -> Callable[[Request], Awaitable[Response]]:
        async def handler(request: Request) -> Response:
            try:
                asked = json.loads(await _body(request, MAX_JSON))
            except (ValueError, RecursionError):  # RecursionError: lists in lists in lists, a thousand deep
                asked = None
            if not isinstance(asked, dict):
                raise UnweaveError("the request must be a JSON object")
            return JSONResponse(await self._run(function, asked))

        return handler

    async def _points(self, request: Request) -> Response:
        return Response(await self._run(self._answers.points, request.path_params["space"]), media_type=BINARY)

    async def _row(self, request: Request) -> Response:
        return JSONResponse(self._answers.row(_row(request)))

    async def _filter(self, request: Request) -> Response:
        asked = request.query_params
        rows = await self._run(self._answers.filtered, asked.get("class", ""), asked.get("name", ""))
        return Response(rows, media_type=BINARY)

    async def _duplicates(self, request: Request) -> Response:
        try:
            threshold = float(request.query_params.get("threshold", 0.98))
        except ValueError:
            threshold = math.nan
        return JSONResponse(await self._run_long(self._answers.duplicates, request.path_params["space"], threshold))

    async def _outliers(self, request: Request) -> Response:
        return JSONResponse(await self._run_long(self._answers.outliers, request.path_params["space"]))

    async def _upload(self, request: Request) -> Response:
        data = await _body(request, int(self._config.max_upload_mb * 1e6))
        return JSONResponse(await self._run(self._answers.upload, data))

    async def _thumbnail(self, request: Request) -> Response:
        return Response(self._answers.thumbnail(_row(request)), media_type="image/jpeg", headers=KEEP)

    async def _image(self, request: Request) -> Response:
        return Response(await self._run(self._answers.image, _row(request)), media_type="image/jpeg", headers=KEEP)

    async def _file(self, request: Request) -> Response:
        name = request.path_params["file"] or "index.html"
        if name not in self._files:
            raise HTTPException(404, "there is no such page")
        headers = {"Cache-Control": "no-cache"}
        return Response(self._files[name], media_type=KINDS[Path(name).suffix], headers=headers)


def _row(request: Request) -> int:
    """The row that an address names."""
    text = request.path_params["row"]
    if not re.fullmatch("[0-9]{1,18}", text):
        raise HTTPException(404, "an image is named by its row number")
    return int(text)


async def _body(request: Request, most: int) -> bytes:
    """The body of a request; reading stops where it is too large."""
    found = bytearray()
    try:
        async for chunk in request.stream():
            found += chunk
            if len(found) > most:
                raise HTTPException(413, f"the file is larger than {most / 1e6:g} MB")
    except ClientDisconnect:
        raise HTTPException(400, "the connection was closed") from None
    return bytes(found)


async def _http_error(request: Request, error: HTTPException) -> Response:
    text = error.detail or HTTPStatus(error.status_code).phrase
    return JSONResponse({"error": text}, error.status_code, headers=error.headers)


async def _mistake(request: Request, error: UnweaveError) -> Response:
    status = 404 if request.method == "GET" and request.path_params else 400
    return JSONResponse({"error": str(error)}, status)


async def _failure(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": f"the server failed: {type(error).__name__}; its terminal says more"}, 500)
