"""Edges of the server's checks, of help and of the dashboard's lines."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from app import lanes
from app.cli import verb_help
from app.commands import Serve
from app.dashboard import LISTED, View, describe_experiment, format_addresses
from app.guards import (
    DOCS,
    POLICY,
    POLICY_OF_DOCS,
    Envelope,
    guard_protocol,
    policy_headers,
    raw_error,
)
from app.unused import RULES
from core.files import InputError


@pytest.mark.parametrize("path", ["", "/", "/link", f"{DOCS}x", f"/a{DOCS}"])
def test_only_the_interface_s_page_may_run_a_script_of_its_own(path: str) -> None:
    assert policy_headers(path)["Content-Security-Policy"] == POLICY
    for own in (DOCS, f"{DOCS}/", f"{DOCS}/oauth2-redirect"):
        assert policy_headers(own)["Content-Security-Policy"] == POLICY_OF_DOCS != POLICY


def ask(headers: list[tuple[bytes, bytes]]) -> list[int]:
    """The status of the answers to a request with these headers."""
    statuses: list[int] = []

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async def application(scope: Any, receive: Any, answer: Any) -> None:
        await answer({"type": "http.response.start", "status": 200, "headers": []})

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    scope = {"type": "http", "path": "/", "headers": headers, "method": "POST"}
    asyncio.run(Envelope(application)(scope, receive, send))  # type: ignore[arg-type]
    return statuses


def test_a_request_with_two_lengths_is_refused() -> None:
    length, transfer = (b"content-length", b"4"), (b"transfer-encoding", b"chunked")
    assert ask([length]) == ask([transfer]) == ask([]) == [200]
    assert ask([length, transfer]) == ask([(b"host", b"a"), transfer, length]) == [400]


def test_an_error_before_a_request_has_the_headers_of_every_answer() -> None:
    head, body = raw_error("503 Service Unavailable", "wait", "retry-after: 1").split(b"\r\n\r\n")
    assert body == b'{"error": "wait"}'
    assert head.decode().split("\r\n") == [
        "HTTP/1.1 503 Service Unavailable",
        "retry-after: 1",
        "connection: close",
        "content-type: application/json",
        f"content-length: {len(body)}",
        *(f"{name.lower()}: {value}" for name, value in policy_headers().items()),
    ]


@pytest.mark.parametrize(("wrong", "value"), [("bytes", 0), ("seconds", 0), ("connections", 0)])
def test_limits_of_a_server(wrong: str, value: int) -> None:
    with pytest.raises(InputError, match="expected more than 0"):
        Serve(graph="g", **{f"max_{wrong}": value}).run()  # type: ignore[arg-type]
    least = Serve(graph="nowhere", max_bytes=1, max_seconds=0.001, max_connections=1)
    with pytest.raises(InputError, match="nowhere"):
        least.run()


@pytest.mark.parametrize("more", [0, 1])
def test_the_newest_experiments_have_their_addresses(more: int) -> None:
    views = [View(f"e{number}", str(number), []) for number in range(LISTED + more)]
    shown = format_addresses(5000, views).splitlines()
    assert shown[0] == (
        "http://127.0.0.1:5000/#/experiments?workflowType=machine_learning  (Ctrl+C ends it)"
    )
    assert [line for line in shown if line.startswith("e")] == [v.name for v in views[:LISTED]]
    assert shown[-1].startswith("and 1 more experiments") is bool(more)


def test_scores_of_dev_make_an_experiment_a_task() -> None:
    task, paper = "Scores on NCBI: a run is a system", "Pre-trainings of NCBI"
    assert describe_experiment("NCBI", ["test/f1"]).startswith(task)
    assert describe_experiment("NCBI", ["dev/f1"]).startswith(task)
    assert describe_experiment("NCBI", ["val/loss"]).startswith(paper)


def test_finetune_s_help_has_both_kinds_of_tasks_and_others_have_one() -> None:
    text = verb_help("finetune", [])
    assert "linking-task" in text.lower() and "--epochs" in text
    assert "linking-task" not in verb_help("predict", []).lower()


def test_a_worker_leaves_an_interrupt_to_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    handled: dict[int, Any] = {}
    monkeypatch.setattr(lanes, "dies_with_its_parent", lambda: None)
    monkeypatch.setattr(lanes, "use_one_thread", lambda: None)
    monkeypatch.setattr(lanes.signal, "signal", lambda number, what: handled.update({number: what}))

    class Closed:
        @staticmethod
        def recv() -> None:
            raise EOFError

    lanes._serve_worker(None, Closed())  # type: ignore[arg-type]
    assert handled == {signal.SIGINT: signal.SIG_IGN, signal.SIGTERM: signal.SIG_DFL}


@pytest.mark.parametrize(
    ("table", "used"), [("kebiolm/6", True), ("kebiolm/1", True), ("genbioel/6", False)]
)
def test_tables_of_probing_and_of_entities_have_a_use_for_a_graph(table: str, used: bool) -> None:
    paper, number = table.split("/")
    (rule,) = (rule for rule in RULES["table"] if rule.options == ("graph",))
    assert bool(rule.is_used({"paper": paper, "table": number})) is used


class Transport:
    """What a protocol writes, and whether it has closed its connection."""

    def __init__(self) -> None:
        self.written, self.closed = b"", False

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str) -> None:
        return None


def test_the_connection_beyond_the_limit_is_refused_at_once() -> None:
    loop = asyncio.new_event_loop()
    config = uvicorn.Config(lambda: None, http="h11")
    config.load()
    state = ServerState()
    opened = []
    for _ in range(3):
        made = guard_protocol(2, 60.0)(config, state, {}, loop)
        transport = Transport()
        made.connection_made(transport)  # type: ignore[arg-type]
        opened.append((transport, made))
    assert [(t.closed, t.written[:12]) for t, _ in opened] == [
        (False, b""),
        (False, b""),
        (True, b"HTTP/1.1 503"),
    ]
    assert opened[0][1].late is not None and opened[2][1].late is None
    loop.close()
