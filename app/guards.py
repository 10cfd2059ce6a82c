"""Checks before the server's answers: the host of a request, how much and how long a client may
send, how many may connect."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import socket
from collections.abc import Iterable
from typing import Any

from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

DROPPED, DROPPING = 64 << 20, 3.0  # bytes and seconds of a refused body that are read all the same
#: key of a request's scope: the time of the event loop at which it is given up
UNTIL = "kepl.until"


#: what the page may load: its own files, nothing from elsewhere, no script in its text
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'"
    " data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
#: the page of the interface, which shows nothing of a client's, begins by a script in its text
POLICY_OF_DOCS = POLICY.replace("script-src 'self'", "script-src 'self' 'unsafe-inline'").replace(
    "style-src 'self'", "style-src 'self' 'unsafe-inline'"
)
DOCS = "/docs"


def policy_headers(path: str = "") -> dict[str, str]:
    """The headers of every answer: what a browser may do with it."""
    policy = POLICY_OF_DOCS if path == DOCS or path.startswith(f"{DOCS}/") else POLICY
    return {"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff"}


def make_error(status: int, why: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """An error as one line of JSON."""
    return JSONResponse({"error": why}, status, policy_headers() | (headers or {}))


def host_of(header: str) -> str:
    """The name in a Host header, without its port: "localhost" of "localhost:8000", "::1" of
    "[::1]:80"."""
    return (
        (header[1:].partition("]")[0] if header.startswith("[") else header.partition(":")[0])
        .lower()
        .rstrip(".")
    )


class Envelope:
    """Gives every answer its headers, and refuses a request of two lengths.

    A body with Content-Length and Transfer-Encoding ends in two places: what a proxy takes for the
    body may be a second request here. The connection is closed, so that nothing behind it is read.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = policy_headers(scope["path"])

        async def send_answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name.lower() for name, _ in message["headers"]}
                more = [(k.lower().encode(), v.encode()) for k, v in headers.items()]
                message = {
                    **message,
                    "headers": [*message["headers"], *((k, v) for k, v in more if k not in names)],
                }
            await send(message)

        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
            wrong = make_error(
                400,
                "Content-Length and Transfer-Encoding; expected one of them",
                {"Connection": "close"},
            )
            await wrong(scope, receive, send)
            return
        await self.app(scope, receive, send_answer)


class TokenCheck:
    """Refuses requests for `paths` that do not carry the token, before their body is read. None:
    everyone may ask."""

    def __init__(self, app: ASGIApp, token: str | None, paths: Iterable[str]) -> None:
        self.app, self.token, self.paths = app, token, frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] == "http"
            and self.token is not None
            and scope["path"].rstrip("/") in self.paths
        ):
            token = next(
                (value for name, value in scope["headers"] if name == b"authorization"), b""
            )
            scheme, _, secret = token.partition(b" ")
            if scheme.lower() != b"bearer" or not hmac.compare_digest(
                secret.strip(), self.token.encode()
            ):
                why = "expected Authorization: Bearer and the server's token"
                wrong = make_error(401, why, {"WWW-Authenticate": "Bearer", "Connection": "close"})
                await _refuse(wrong, scope, receive, send)
                return
        await self.app(scope, receive, send)


class HostCheck:
    """Refuses requests whose Host is a name that this server was not given.

    A page on the internet may let its own name mean 127.0.0.1 and then read from here in its
    visitors' browsers (DNS rebinding); its requests carry that name. Addresses, localhost and the
    machine's own name are always taken.
    """

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        self.app, self.names = (
            app,
            {"localhost", socket.gethostname().lower(), *(name.lower() for name in names)},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            host = host_of(
                next((v.decode("latin-1") for k, v in scope["headers"] if k == b"host"), "")
            )
            if host not in self.names and not _is_address(host):
                wrong = make_error(
                    421,
                    f"no server of the name {host[:100]!r}; start it with --names {host[:100]} to"
                    " allow it",
                )
                await wrong(scope, receive, send)
                return
        await self.app(scope, receive, send)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class BodyLimit:
    """Refuses bodies of more than `most` bytes before they are read whole, and those that need more
    than `seconds` to come.

    What a refused client still sends is dropped for a moment: a connection that is closed with
    bytes unread is reset, and the reset may reach the client before the answer does.
    """

    def __init__(self, app: ASGIApp, most: int, seconds: float) -> None:
        self.app, self.most, self.seconds = app, most, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        closed = {"Connection": "close"}
        too_large = make_error(
            413, f"a body of more than {self.most} bytes; send fewer texts at once", closed
        )
        too_slow = make_error(408, f"the body did not come within {self.seconds:g} seconds", closed)
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.most:
            await _refuse(too_large, scope, receive, send)
            return
        until = scope[UNTIL] = asyncio.get_running_loop().time() + self.seconds
        read, whole, wrong = 0, False, None

        async def receive_counted() -> Message:
            nonlocal read, whole, wrong
            if whole:
                return await receive()
            try:
                async with asyncio.timeout_at(until):
                    message = await receive()
            except TimeoutError:
                wrong = too_slow
                return {"type": "http.disconnect"}  # what is inside sees a client that went away
            read += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if read > self.most:
                wrong = too_large
                return {"type": "http.disconnect"}
            return message

        async def send_answer(message: Message) -> None:
            if wrong is None:
                await send(message)
            elif message["type"] == "http.response.start":
                if wrong is too_large:
                    await _refuse(wrong, scope, receive, send)
                else:
                    await wrong(scope, receive, send)

        await self.app(scope, receive_counted, send_answer)


async def _refuse(answer: JSONResponse, scope: Scope, receive: Receive, send: Send) -> None:
    """Send an answer, drop what the client sends meanwhile (DROPPED bytes, DROPPING seconds at
    most), and end."""

    async def pass_on(message: Message) -> None:
        await send(
            {**message, "more_body": True} if message["type"] == "http.response.body" else message
        )

    await answer(scope, receive, pass_on)
    dropped = 0
    try:
        async with asyncio.timeout(DROPPING):
            while dropped < DROPPED and (message := await receive())["type"] == "http.request":
                dropped += len(message.get("body", b""))
                if not message.get("more_body", False):
                    break
    except TimeoutError:
        pass  # it has had its answer
    await send({"type": "http.response.body", "body": b""})


def raw_error(status: str, why: str, *more: str) -> bytes:
    """An error as :func:`make_error` makes it, for what is not yet a request; the connection ends
    with it."""
    body = json.dumps({"error": why}).encode()
    headers = [
        *more,
        "connection: close",
        "content-type: application/json",
        f"content-length: {len(body)}",
    ]
    headers += [f"{name.lower()}: {value}" for name, value in policy_headers().items()]
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode() + body


def guard_protocol(connections: int, seconds: float) -> type[H11Protocol]:
    """uvicorn's protocol with at most so many open connections, each of which has so many seconds
    for a request's head."""

    class Guarded(H11Protocol):
        late: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > connections:
                why = "too many connections; come back in a second"
                transport.write(raw_error("503 Service Unavailable", why, "retry-after: 1"))
                transport.close()
                return
            self.late = self.loop.call_later(seconds, transport.close)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            waits = self.cycle is None or self.cycle.response_complete  # for a head that has begun
            if not waits and self.late:
                self.late.cancel()
                self.late = None
            elif waits and self.late is None and not self.transport.is_closing():
                self.late = self.loop.call_later(seconds, self.transport.close)

        def send_400_response(self, msg: str) -> None:
            self.transport.write(raw_error("400 Bad Request", "no valid HTTP request"))
            self.transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            if self.late:
                self.late.cancel()
            super().connection_lost(exc)

    return Guarded
