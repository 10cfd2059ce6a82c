"""`kepl serve`: a chain over HTTP, and a page to try it on.

    POST /link          {"texts": ["…"]} -> {"documents": [{"text", "mentions": […]}]}
    GET  /entity?id=…   names, definition and neighbours of an entity of the graph
    GET  /health        whether it answers, and with what
    GET  /metrics       requests, seconds, what waits, texts and mentions, for Prometheus
    GET  /              the page;  /docs  the interface described (OpenAPI)

Requests that wait together are linked together: texts of all of them in one batch, in one thread. A body over the limit is refused
while it is read, a request that comes or waits too long is given up, and when too many wait the next has to retry later. Errors
are one line of JSON and never contain paths.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi_offline import FastAPIOffline
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from pydantic import BaseModel, ConfigDict, Field, field_validator
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.entities import Entities
from app.guards import UNTIL, BodyLimit, HostCheck, guarded, refused
from core.files import InputError
from inference.chain import Linked, Pipeline, as_record
from inference.detectors import BATCH

PAGE = Path(__file__).parent / "page"
LOG = logging.getLogger("kepl.serve")
#: what the page may load: its own files, nothing from elsewhere, no script in its text
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; "
    "form-action 'none'"
)


class Limits(NamedTuple):
    """What a request may ask for."""

    bytes: int = 1 << 20  # of a body
    texts: int = 256  # of a request
    characters: int = 100_000  # of a text
    seconds: float = 30.0  # that a request waits for its answer
    waiting: int = 2048  # requests that wait; one more is refused


class Asked(BaseModel):
    """Texts to link."""

    model_config = ConfigDict(extra="forbid", strict=True)
    texts: list[str] = Field(min_length=1, description="texts, each linked by itself")

    @field_validator("texts")
    @classmethod
    def writable(cls, texts: list[str]) -> list[str]:
        for number, text in enumerate(texts):
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise ValueError(
                    f"texts.{number}: half of a surrogate pair at {error.start}; expected whole characters"
                ) from error
        return texts


class Measures:
    """The values of /metrics for Prometheus; of one server."""

    def __init__(self, waiting: Callable[[], float]) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("kepl_requests", "requests by path and status", ["path", "status"], registry=self.registry)
        self.seconds = Histogram("kepl_seconds", "seconds until the answer, by path", ["path"], registry=self.registry)
        self.mentions = Counter("kepl_mentions", "mentions found", registry=self.registry)
        self.texts = Counter("kepl_texts", "texts linked", registry=self.registry)
        Gauge("kepl_waiting", "requests that wait to be linked", registry=self.registry).set_function(waiting)


class Measured:
    """Counts each request and how long it took."""

    def __init__(self, app: ASGIApp, measures: Measures) -> None:
        self.app, self.measures = app, measures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def answered(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self.app(scope, receive, answered)
        finally:
            path = getattr(scope.get("route"), "path", "other")  # the route's: anyone may ask for any number of paths
            self.measures.requests.labels(path, str(status)).inc()
            self.measures.seconds.labels(path).observe(time.perf_counter() - began)


class Batches:
    """Texts of requests that wait together, linked together in one thread."""

    def __init__(self, pipeline: Pipeline, limits: Limits) -> None:
        self.pipeline, self.limits = pipeline, limits
        self.waiting: asyncio.Queue[tuple[list[str], asyncio.Future[list[list[Linked]]]]] = asyncio.Queue(
            limits.waiting
        )
        self.thread = ThreadPoolExecutor(1, "kepl-link")

    async def link(self, texts: list[str], seconds: float) -> list[list[Linked]]:
        """The mentions of `texts`. Raises HTTPException when too many wait, or it takes more than `seconds`."""
        answer: asyncio.Future[list[list[Linked]]] = asyncio.get_running_loop().create_future()
        try:
            self.waiting.put_nowait((texts, answer))
        except asyncio.QueueFull as error:
            raise HTTPException(
                503, "too many requests are waiting; come back in a second", {"Retry-After": "1"}
            ) from error
        try:
            return await asyncio.wait_for(answer, seconds)
        except TimeoutError as error:
            raise HTTPException(
                504, f"no answer within {self.limits.seconds:g} seconds; send fewer texts at once"
            ) from error

    async def work(self) -> None:
        """Answer what waits, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            together = [await self.waiting.get()]
            while sum(len(texts) for texts, _ in together) < BATCH and not self.waiting.empty():
                together.append(self.waiting.get_nowait())
            together = [one for one in together if not one[1].done()]  # nobody waits for the others any more
            every = [text for texts, _ in together for text in texts]
            try:
                found = await loop.run_in_executor(self.thread, self.pipeline.link, every)
            except (
                Exception
            ) as error:  # each request that waited gets it as its 500; the next batch is linked all the same
                LOG.exception("linking failed")
                for _, answer in together:
                    if not answer.done():
                        answer.set_exception(error)
                continue
            first = 0
            for texts, answer in together:
                if not answer.done():
                    answer.set_result(found[first : first + len(texts)])
                first += len(texts)


def create_app(
    pipeline: Pipeline, token: str | None = None, limits: Limits = Limits(), names: Sequence[str] = (),  # noqa: B008  never changed
    examples: Sequence[str] = (),
) -> FastAPI:  # fmt: skip
    """The server of a chain.

    token: what Authorization: Bearer must say; None: everyone may ask.  names: host names, besides the machine's own, that it is
    asked as.  examples: sentences that the page offers.
    """
    batches, entities = Batches(pipeline, limits), Entities(pipeline.graph)
    measures = Measures(batches.waiting.qsize)

    @asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        worker = asyncio.create_task(batches.work())
        try:
            yield
        finally:
            worker.cancel()
            batches.thread.shutdown(wait=False, cancel_futures=True)

    # its viewer of the interface comes with the package: a server behind a firewall shows it, too
    app: FastAPI = FastAPIOffline(
        redoc_url=None, title="KEPL", description="Entities out of text.", version="1", lifespan=running
    )

    def allowed(request: Request) -> None:
        given = request.headers.get("authorization", "")
        if token is not None and not hmac.compare_digest(given.encode("latin-1"), f"Bearer {token}".encode()):
            raise HTTPException(
                401, "expected Authorization: Bearer and the server's token", {"WWW-Authenticate": "Bearer"}
            )

    @app.post("/link", dependencies=[Depends(allowed)])
    async def link(asked: Asked, request: Request) -> dict[str, Any]:
        """The mentions of each text, with what each may mean."""
        if len(asked.texts) > limits.texts:
            raise HTTPException(413, f"{len(asked.texts)} texts; a request may have {limits.texts}")
        if longest := max(map(len, asked.texts)) if max(map(len, asked.texts)) > limits.characters else 0:
            raise HTTPException(413, f"a text of {longest} characters; it may have {limits.characters}")
        found = await batches.link(asked.texts, max(0.0, request.scope[UNTIL] - asyncio.get_running_loop().time()))
        measures.texts.inc(len(found))
        measures.mentions.inc(sum(map(len, found)))
        return {
            "documents": [
                {"text": text, "mentions": [as_record(m) for m in mentions]}
                for text, mentions in zip(asked.texts, found, strict=True)
            ]
        }

    @app.get("/entity", dependencies=[Depends(allowed)])
    def entity(id: Annotated[str, Query(max_length=1000, description="an entity's id")]) -> dict[str, Any]:
        """What the graph says of an entity."""
        about = entities.about(id)
        if about is None:
            raise HTTPException(404, "no such entity in the graph")
        return about

    @app.get("/health")
    def health() -> dict[str, Any]:
        """Whether the server answers, and with what."""
        return {"status": "ok", "chain": " > ".join(s for s in pipeline.steps if s), "entities": len(pipeline.types),
                "token": token is not None, "examples": list(examples)}  # fmt: skip

    @app.get("/metrics", dependencies=[Depends(allowed)])
    def metrics() -> Response:
        """Requests, seconds, what waits, texts and mentions, for Prometheus."""
        return Response(generate_latest(measures.registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/", include_in_schema=False)
    def page() -> FileResponse:
        return FileResponse(
            PAGE / "index.html", headers={"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff"}
        )

    @app.get("/page/{name}", include_in_schema=False)
    def part(name: str) -> FileResponse:
        if name not in ("page.js", "page.css"):
            raise HTTPException(404, "no such page")
        return FileResponse(PAGE / name, headers={"X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache"})

    @app.exception_handler(StarletteHTTPException)
    async def report_http_error(_: Request, error: StarletteHTTPException) -> JSONResponse:
        return refused(error.status_code, str(error.detail), dict(error.headers or {}))

    @app.exception_handler(RequestValidationError)
    async def report_invalid_request(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"] if part not in ("body", "query"))
        wanted = '; expected {"texts": ["…"]}' if request.url.path == "/link" else ""
        return refused(422, f"{place + ': ' if place else ''}{first['msg']}{wanted}")

    @app.exception_handler(Exception)
    async def report_failure(_: Request, error: Exception) -> JSONResponse:
        LOG.error("request failed", exc_info=error)
        return refused(500, "the server failed on this request; its log says why")

    app.add_middleware(BodyLimit, most=limits.bytes, seconds=limits.seconds)
    app.add_middleware(Measured, measures=measures)
    app.add_middleware(HostCheck, names=names)
    return app


def start(
    pipeline: Pipeline, host: str, port: int, limits: Limits = Limits(), connections: int = 1000, names: Sequence[str] = (),  # noqa: B008
    examples: Sequence[str] = (),
) -> None:  # fmt: skip
    """Serve a chain until a signal; KEPL_TOKEN is asked of every client. Raises InputError for an address that cannot be had."""
    pipeline.prepare()
    app = create_app(pipeline, os.environ.get("KEPL_TOKEN") or None, limits, [host, *names], examples)
    try:
        listening = socket.create_server((host, port), backlog=2048)
    except (OSError, OverflowError) as error:
        raise InputError(f"--host {host} --port {port}: {error}. Choose another port, or --port 0.") from error
    address, number = listening.getsockname()[:2]
    print(f"http://{address}:{number}  (interface: http://{address}:{number}/docs; Ctrl+C ends it)", flush=True)
    run(app, listening, limits.seconds, connections)


def run(app: FastAPI, listening: socket.socket, seconds: float, connections: int) -> None:
    """Serve until a signal; then nothing new is taken, and what waits is answered."""
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, http=guarded(connections, seconds), timeout_graceful_shutdown=int(seconds) + 5
    )
    uvicorn.Server(config).run(sockets=[listening])
