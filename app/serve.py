"""`kepl serve`: a chain over HTTP, and a page to try it on.

    POST /link          {"texts": ["…"]} -> {"documents": [{"text", "mentions": […]}]}
    POST /predict       likewise, by the fine-tuned tagger of --model
    GET  /entity?id=…   names, definition, source and neighbours of an entity of the graph
    GET  /search?name=… the entities that have a name, or whose names contain it
    GET  /health        whether it answers, and with what
    GET  /metrics       requests, seconds, what waits, texts and mentions, for Prometheus
    GET  /              the page;  /docs  the interface described (OpenAPI)

Short texts that wait are linked together, in one thread, and long ones in a process beside it;
clients have their turns one after the other (app.lanes). A request without the token is refused
before its body is read, a body over the limit while it is read. A request that comes or waits too
long is given up, so is one whose client has gone, and when too many wait the next has to retry
later. Errors are one line of JSON and never contain paths.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import uvicorn
from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi_offline import FastAPIOffline
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from pydantic import BaseModel, ConfigDict, Field, field_validator
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.answers import About, Failure, Health, Linked, Predicted, Search
from app.entities import Entities
from app.guards import UNTIL, BodyLimit, Envelope, HostCheck, TokenCheck, guard_protocol, make_error
from app.lanes import Answer, Busy, Lanes, Worker
from core.files import InputError
from inference.chain import Pipeline
from kg.build.lookup import NameSearch

if TYPE_CHECKING:
    from inference.entity_tagger import EntityTagger

PAGE = Path(__file__).parent / "page"
LOG = logging.getLogger("kepl.serve")


class Limits(NamedTuple):
    """What a request may ask for."""

    bytes: int = 1 << 20  # of a body
    texts: int = 256  # of a request
    characters: int = 100_000  # of a text
    seconds: float = 30.0  # that a request waits for its answer
    waiting: int = 2048  # requests that wait; one more is refused


GUARDED = ("/link", "/predict", "/search", "/entity", "/metrics")  #: paths that ask for the token
FOUND = 50  #: entities of a name that are listed
TEXT_ERRORS = (401, 413, 415, 422, 503, 504)
PREDICT_ERRORS = (404, *TEXT_ERRORS)


def describe(answer: type[BaseModel], errors: Sequence[int]) -> dict[int | str, dict[str, Any]]:
    """What a path answers, for the interface's description: an answer, or an error of one line."""
    failures: dict[int | str, dict[str, Any]] = {status: {"model": Failure} for status in errors}
    return {200: {"model": answer}} | failures


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
                    f"texts.{number}: half of a surrogate pair at {error.start}; expected whole"
                    " characters"
                ) from error
        return texts


class Measures:
    """The values of /metrics for Prometheus; of one server."""

    def __init__(self, waiting: Callable[[], float]) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "kepl_requests",
            "requests by path and status",
            ["path", "status"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "kepl_seconds", "seconds until the answer, by path", ["path"], registry=self.registry
        )
        self.mentions = Counter("kepl_mentions", "mentions found", registry=self.registry)
        self.texts = Counter("kepl_texts", "texts linked", registry=self.registry)
        Gauge(
            "kepl_waiting", "requests that wait to be linked", registry=self.registry
        ).set_function(waiting)


class Measured:
    """Counts each request and how long it took."""

    def __init__(self, app: ASGIApp, measures: Measures) -> None:
        self.app, self.measures = app, measures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def send_answer(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self.app(scope, receive, send_answer)
        finally:
            # the route's: anyone may ask for any number of paths
            path = getattr(scope.get("route"), "path", "other")
            self.measures.requests.labels(path, str(status)).inc()
            self.measures.seconds.labels(path).observe(time.perf_counter() - began)


async def wait_for_disconnect(request: Request) -> None:
    """Return once the client has gone; of a request whose body is read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def chain_label(steps: Sequence[str | None]) -> str:
    """A chain as a client may see it: of a folder its name, not where it is on this machine."""
    labels = []
    for step in filter(None, steps):
        labels.append(" + ".join(map(_step_label, step.split(" + "))))
    return " > ".join(labels)


def _step_label(name: str) -> str:
    return Path(name).name if os.path.isabs(name) or Path(name).exists() else name


class Service:
    """What a server answers, and what it holds while it runs.

    pipeline, tagger  answer /link and /predict; worker: links the long texts
    asks_token        whether a client needs one; examples: sentences that the page offers
    """

    def __init__(
        self,
        pipeline: Pipeline,
        limits: Limits,
        worker: Worker | None,
        tagger: EntityTagger | None,
        asks_token: bool,
        examples: Sequence[str],
    ) -> None:
        self.pipeline, self.limits, self.worker, self.tagger = pipeline, limits, worker, tagger
        self.asks_token, self.examples = asks_token, list(examples)
        self.entities = Entities(pipeline.graph)
        self.lanes: Lanes | None = None
        self.measures = Measures(lambda: len(self.lanes.pending) if self.lanes else 0)
        # one text after the other, also after a request was given up
        self.tagging = ThreadPoolExecutor(1)

    @cached_property
    def names(self) -> NameSearch:
        """The names of the graph, made when one is first looked for."""
        return NameSearch(self.pipeline.graph)

    @asynccontextmanager
    async def running(self, _: FastAPI) -> AsyncIterator[None]:
        """Work on what is asked as long as the block runs."""
        self.lanes = Lanes(self.pipeline, self.limits.waiting, self.worker)
        working = asyncio.create_task(self.lanes.work())
        try:
            yield
        finally:
            working.cancel()
            self.lanes.close()
            self.tagging.shutdown(wait=False, cancel_futures=True)

    async def link(self, query: Asked, request: Request) -> Response:
        """The mentions of each text, with what each may mean."""
        self.check_sizes(query)
        linked = await self.wait_for_links(query.texts, request)
        self.measures.texts.inc(len(linked))
        self.measures.mentions.inc(sum(mentions for mentions, _ in linked))
        documents = b",".join(document for _, document in linked)
        return Response(b'{"documents":[' + documents + b"]}", media_type="application/json")

    async def wait_for_links(self, texts: list[str], request: Request) -> list[Answer]:
        """The answers of some texts, unless the time is over, or the client gone, before."""
        assert self.lanes is not None
        seconds = max(0.0, request.scope[UNTIL] - asyncio.get_running_loop().time())
        client = request.client.host if request.client else ""
        linking = asyncio.ensure_future(self.lanes.link(client, texts))
        gone = asyncio.ensure_future(wait_for_disconnect(request))
        try:
            await asyncio.wait(
                [linking, gone], timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if linking.done():
                return linking.result()
        except Busy as error:
            raise HTTPException(
                503, "too many requests are waiting; come back in a second", {"Retry-After": "1"}
            ) from error
        finally:
            linking.cancel()
            gone.cancel()
        if gone.done() and not gone.cancelled():
            raise HTTPException(499, "the client has gone")  # nobody reads it; the metrics count it
        raise self.late()

    def late(self) -> HTTPException:
        """The refusal of a request whose time is over."""
        seconds = self.limits.seconds
        return HTTPException(504, f"no answer within {seconds:g} seconds; send fewer texts at once")

    def check_sizes(self, query: Asked) -> None:
        """Refuse more texts, or longer ones, than the limits allow."""
        if len(query.texts) > self.limits.texts:
            raise HTTPException(
                413, f"{len(query.texts)} texts; a request may have {self.limits.texts}"
            )
        longest = max(map(len, query.texts))
        if longest > self.limits.characters:
            raise HTTPException(
                413, f"a text of {longest} characters; it may have {self.limits.characters}"
            )

    async def predict(self, query: Asked) -> Any:
        """The entities that the server's tagger finds in each text."""
        self.check_sizes(query)
        tagger = self.tagger
        if tagger is None:
            raise HTTPException(404, "this server has no tagger; kepl serve --model gives it one")
        try:
            async with asyncio.timeout(self.limits.seconds):
                running = asyncio.get_running_loop().run_in_executor
                predicted = await running(self.tagging, lambda: list(tagger.predict(query.texts)))
        except TimeoutError as error:
            raise self.late() from error
        documents = []
        for text, spans in zip(query.texts, predicted, strict=True):
            documents.append({"text": text, "mentions": [span._asdict() for span in spans]})
        return {"documents": documents}

    def search(
        self,
        name: Annotated[str, Query(max_length=1000, description="a name, or a part of one")],
    ) -> Any:
        """The entities that have a name, or whose names contain it."""
        try:
            rows, count = self.names.find(name, FOUND)
        except InputError as error:
            raise HTTPException(422, str(error)) from error
        return {"entities": rows, "count": count}

    def entity(
        self,
        id: Annotated[str, Query(max_length=1000, description="an entity's id")],
    ) -> Any:
        """What the graph says of an entity."""
        about = self.entities.about(id)
        if about is None:
            raise HTTPException(404, "no such entity in the graph")
        return about

    def health(self) -> Any:
        """Whether the server answers, and with what."""
        return {
            "status": "ok",
            "chain": chain_label(self.pipeline.steps),
            "model": None if self.tagger is None else _step_label(self.tagger.name),
            "entities": len(self.pipeline.types),
            "token": self.asks_token,
            "examples": self.examples,
        }

    def metrics(self) -> Response:
        """Requests, seconds, what waits, texts and mentions, for Prometheus."""
        return Response(generate_latest(self.measures.registry), media_type=CONTENT_TYPE_LATEST)


def create_app(
    pipeline: Pipeline,
    token: str | None = None,
    limits: Limits = Limits(),  # noqa: B008  never changed
    names: Sequence[str] = (),
    examples: Sequence[str] = (),
    worker: Worker | None = None,
    tagger: EntityTagger | None = None,
) -> FastAPI:
    """The server of a chain.

    token: what Authorization: Bearer must say; None: everyone may ask.  names: host names, besides
        the machine's own, that it is
    asked as.  examples: sentences that the page offers.  worker: links the long texts; without it
        they wait among the others.  tagger: answers /predict.
    """
    service = Service(pipeline, limits, worker, tagger, token is not None, examples)
    # its viewer of the interface comes with the package: a server behind a firewall shows it, too
    app: FastAPI = FastAPIOffline(
        redoc_url=None,
        title="KEPL",
        description="Entities out of text.",
        version="1",
        lifespan=service.running,
    )
    # what is sent is JSON already: the model describes it, and validates it in a test
    app.post("/link", response_class=JSONResponse, responses=describe(Linked, TEXT_ERRORS))(
        service.link
    )
    app.post("/predict", response_model=Predicted, responses=describe(Predicted, PREDICT_ERRORS))(
        service.predict
    )
    app.get("/search", response_model=Search, responses=describe(Search, (401, 422)))(
        service.search
    )
    app.get("/entity", response_model=About, responses=describe(About, (401, 404, 422)))(
        service.entity
    )
    app.get("/health", response_model=Health)(service.health)
    app.get("/metrics")(service.metrics)
    # what watches over a server asks for the head alone
    for path, answer in (("/", show_page), ("/health", service.health)):
        app.add_api_route(path, answer, methods=["HEAD"], include_in_schema=False)
    app.get("/", include_in_schema=False)(show_page)
    app.get("/page/{name}", include_in_schema=False)(show_part)
    app.add_exception_handler(StarletteHTTPException, report_http_error)
    app.add_exception_handler(RequestValidationError, report_invalid_request)
    app.add_exception_handler(Exception, report_failure)
    app.add_middleware(BodyLimit, most=limits.bytes, seconds=limits.seconds)
    app.add_middleware(TokenCheck, token=token, paths=GUARDED)
    app.add_middleware(Measured, measures=service.measures)
    app.add_middleware(HostCheck, names=names)
    app.add_middleware(Envelope)
    return app


def show_page() -> FileResponse:
    """The page."""
    return FileResponse(PAGE / "index.html")


def show_part(name: str) -> FileResponse:
    """A script or style sheet of the page."""
    if name not in ("page.js", "page.css"):
        raise HTTPException(404, "no such page")
    return FileResponse(PAGE / name, headers={"Cache-Control": "no-cache"})


async def report_http_error(_: Request, error: Any) -> JSONResponse:
    """A refusal as an answer."""
    return make_error(error.status_code, str(error.detail), dict(error.headers or {}))


async def report_invalid_request(request: Request, error: Any) -> JSONResponse:
    """What is wrong with a body or a query, in one line."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"] if part not in ("body", "query"))
    takes_texts = request.url.path in ("/link", "/predict")
    kind = request.headers.get("content-type", "none")
    if takes_texts and "json" not in kind.lower():
        return make_error(
            415, f"expected the header Content-Type: application/json, got {kind:.80}"
        )
    wanted = '; expected {"texts": ["…"]}' if takes_texts else ""
    return make_error(422, f"{place + ': ' if place else ''}{first['msg']}{wanted}")


async def report_failure(_: Request, error: Exception) -> JSONResponse:
    """A failure as an answer that says nothing of this machine."""
    LOG.error("request failed", exc_info=error)
    return make_error(500, "the server failed on this request; its log says why")


def start(
    pipeline: Pipeline,
    host: str,
    port: int,
    limits: Limits = Limits(),  # noqa: B008  never changed
    connections: int = 1000,
    names: Sequence[str] = (),
    examples: Sequence[str] = (),
    tagger: EntityTagger | None = None,
) -> None:
    """Serve a chain until a signal; KEPL_TOKEN is asked of every client. Raises InputError for an
    address that cannot be had."""
    pipeline.prepare()
    # a GPU cannot be shared with a fork; and before a socket is open
    worker = None if uses_gpu() else Worker(pipeline)
    token = os.environ.get("KEPL_TOKEN") or None
    app = create_app(pipeline, token, limits, [host, *names], examples, worker, tagger)
    try:
        listening = socket.create_server((host, port), backlog=2048)
    except (OSError, OverflowError) as error:
        raise InputError(
            f"--host {host} --port {port}: {error}. Choose another port, or --port 0."
        ) from error
    address, number = listening.getsockname()[:2]
    print(
        f"http://{address}:{number}  (interface: http://{address}:{number}/docs; Ctrl+C ends it)",
        flush=True,
    )
    serve_until_stopped(app, listening, limits.seconds, connections)


def uses_gpu() -> bool:
    """Whether this process has begun to use one."""
    return "torch" in sys.modules and bool(sys.modules["torch"].cuda.is_initialized())


def serve_until_stopped(
    app: FastAPI, listening: socket.socket, seconds: float, connections: int
) -> None:
    """Serve until a signal; then nothing new is taken, and what waits is answered."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        http=guard_protocol(connections, seconds),
        timeout_graceful_shutdown=int(seconds) + 5,
    )
    uvicorn.Server(config).run(sockets=[listening])
