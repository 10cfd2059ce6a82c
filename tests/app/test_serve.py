"""`kepl serve`: what it answers, what it refuses, and that nothing that is sent breaks it."""

from __future__ import annotations

import asyncio
import csv
import html
import importlib.util
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from fastapi.testclient import TestClient

from app.entities import MOST, Entities
from app.guards import BodyLimit, TokenCheck
from app.serve import FOUND, PAGE, Limits, chain_label, create_app
from inference.attributes import Attributes, describe, describe_in_words
from inference.chain import Linked, Pipeline
from inference.entity_tagger import Span
from kg.graph import KnowledgeGraph
from tests.fakes.graphs import graph

ROOT = Path(__file__).parents[2]
BASE = "http://localhost"
SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def folder(tmp_path: Path) -> str:
    many = {f"x{i}": "finding" for i in range(MOST + 5)}
    triples = [
        ("foozin", "treats", "renal failure"),
        ("renal failure", "near", SCRIPT),
        *(("foozin", "near", x) for x in many),
    ]
    types = {"renal failure": "disease", "foozin": "drug", SCRIPT: "disease"} | many
    return str(
        graph(types, triples, [("foozin", "Foozinum", "synonym", "la")]).save(
            tmp_path / "secretplace"
        )
    )


@pytest.fixture
def client(folder: str) -> Iterator[TestClient]:
    with TestClient(create_app(Pipeline(folder)), BASE, raise_server_exceptions=False) as asked:
        yield asked


def test_texts_are_linked_as_the_chain_links_them(client: TestClient, folder: str) -> None:
    texts = ["Foozin in renal failure.", "nothing", "𝄞 foozin", ""]
    answer = client.post("/link", json={"texts": texts})
    assert answer.status_code == 200
    for text, document, mentions in zip(
        texts, answer.json()["documents"], Pipeline(folder).link(texts), strict=True
    ):
        assert document["text"] == text
        assert [(m["start"], m["end"], m["entity"]) for m in document["mentions"]] == [
            (m.start, m.end, m.entity) for m in mentions
        ]


def test_an_entity_is_returned(client: TestClient, folder: str) -> None:
    about = client.get("/entity", params={"id": "foozin"}).json()
    assert (
        about["type"] == "drug"
        and [(n["name"], n["language"]) for n in about["names"]]
        == [("foozin", "zh"), ("Foozinum", "la")]
        and about["definition"] is None
    )
    assert about["neighbours"][0] == {
        "relation": "treats",
        "direction": "out",
        "id": "renal failure",
        "name": "renal failure",
    }
    assert len(about["neighbours"]) == MOST and about["triples"] == MOST + 6
    into = client.get("/entity", params={"id": "renal failure"}).json()["neighbours"]
    assert [(n["relation"], n["direction"]) for n in into] == [("near", "out"), ("treats", "in")]
    assert client.get("/entity", params={"id": "nothing"}).status_code == 404
    assert Entities(KnowledgeGraph.load(folder)).about("nothing") is None


def test_health_page_and_interface(client: TestClient) -> None:
    expected = {
        "status": "ok",
        "chain": "dictionary",
        "model": None,
        "entities": MOST + 8,
        "token": False,
        "examples": [],
    }
    assert client.get("/health").json() == expected
    page = client.get("/")
    assert (
        page.status_code == 200 and "script-src 'self'" in page.headers["content-security-policy"]
    )
    for part in re.findall(r'(?:src|href)="([^"]+)"', page.text):
        assert not part.startswith(("http", "//")) and client.get("/" + part).status_code == 200
    assert "innerHTML" not in (PAGE / "page.js").read_text() and "<script>" not in page.text
    assert {"/link", "/entity", "/health", "/metrics"} <= set(
        client.get("/openapi.json").json()["paths"]
    )
    for path in ("/page/../serve.py", "/page/%2e%2e%2fserve.py", "/page/index.html", "/nothing"):
        assert client.get(path).status_code == 404


@pytest.mark.parametrize(
    "content, status",
    [
        (b"", 422),
        (b"{", 422),
        (b"[]", 422),
        (b'"x"', 422),
        (b"{}", 422),
        (b'{"texts": "x"}', 422),
        (b'{"texts": []}', 422),
        (b'{"texts": [1]}', 422),
        (b'{"texts": [null]}', 422),
        (b'{"texts": [["x"]]}', 422),
        (b'{"texts": ["x"], "more": 1}', 422),
        (b'{"texts": ["\\ud800"]}', 422),
        (b"\xff\xfe", 422),
        (b'{"texts": ["\\u0000\\u001b[31m\\u202e"]}', 200),
        (('{"texts": ["' + SCRIPT + '"]}').encode(), 200),
        (b'{"texts": [' + b"[" * 5000 + b"]}", 400),
        (json.dumps({"texts": ["x"] * 257}).encode(), 413),
        (json.dumps({"texts": ["x" * 100_001]}).encode(), 413),
        (b'{"texts": ["' + b"x" * (1 << 20) + b'"]}', 413),
    ],
)
def test_hostile_bodies_get_one_line_of_json(
    client: TestClient, content: bytes, status: int
) -> None:
    answer = client.post("/link", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == status, answer.text[:300]
    if status != 200:
        assert set(answer.json()) == {"error"} and "\n" not in answer.json()["error"]
    assert (
        "secretplace" not in answer.text
        and "Traceback" not in answer.text
        and str(ROOT) not in answer.text
    )
    assert client.get("/health").status_code == 200


def test_a_token_is_asked_for(folder: str) -> None:
    with TestClient(create_app(Pipeline(folder), token="sésame"), BASE) as asked:
        body = {"texts": ["foozin"]}
        for given in (
            {},
            {"Authorization": "Bearer x"},
            {"Authorization": "sésame".encode()},
            {"Authorization": b"Bearer \xff"},
        ):
            assert asked.post("/link", json=body, headers=given).status_code == 401  # type: ignore[arg-type]
            for path in ("/entity?id=foozin", "/metrics"):
                assert asked.get(path, headers=given).status_code == 401  # type: ignore[arg-type]
        right = {"Authorization": "Bearer sésame".encode()}
        assert asked.post("/link", json=body, headers=right).status_code == 200  # type: ignore[arg-type]
        assert asked.get("/health").json()["token"] is True and asked.get("/").status_code == 200


def test_a_bearer_in_any_case_and_nothing_else(folder: str) -> None:
    with TestClient(create_app(Pipeline(folder), token="secret"), BASE) as asked:
        for given, status in (
            ("bearer secret", 200),
            ("BEARER  secret", 200),
            ("Basic secret", 401),
            ("secret", 401),
            ("bearer secre", 401),
            ("bearer", 401),
            ("bearersecret", 401),
        ):
            assert (
                asked.get("/entity?id=foozin", headers={"Authorization": given}).status_code
                == status
            ), given


def test_without_the_token_no_body_is_read(folder: str) -> None:
    with TestClient(create_app(Pipeline(folder), token="secret"), BASE) as asked:
        answer = asked.post("/link", content=b"{not JSON")  # with a token it would be 422
        assert answer.status_code == 401 and answer.headers["connection"] == "close"
    sent: list[dict[str, object]] = []

    async def receive() -> dict[str, object]:
        assert sent, "the body was read before the answer"
        return {"type": "http.disconnect"}

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-length", b"9")]
    scope = {"type": "http", "method": "POST", "path": "/link", "headers": headers}
    asyncio.run(TokenCheck(None, "secret", ["/link"])(scope, receive, send))  # type: ignore[arg-type]
    assert sent[0]["status"] == 401


def test_every_answer_has_its_headers_and_every_error_is_json(folder: str) -> None:
    failing = Slow(Pipeline(folder), 0, fails=True)
    with TestClient(
        create_app(failing, token="secret"), BASE, raise_server_exceptions=False
    ) as asked:
        token = {"Authorization": "Bearer secret"}
        answers = [
            asked.get("/"),
            asked.get("/health"),
            asked.get("/docs"),
            asked.get("/page/page.js"),
            asked.get("/openapi.json"),
            asked.get("/nothing"),
            asked.delete("/link", headers=token),
            asked.post("/health"),
            asked.get("/link"),
            asked.post("/link", headers=token, content=b"{"),
            asked.post("/link", headers=token, json={"texts": ["x"]}),
            asked.get("/health", headers={"Host": "evil.example.org"}),
            asked.post("/link", headers=token, content=b"x" * (1 << 21)),
            asked.get("/health", headers={"Content-Length": "0", "Transfer-Encoding": "chunked"}),
        ]
        for answer in answers:
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert "default-src 'none'" in answer.headers["content-security-policy"]
            if answer.status_code >= 400:
                assert set(answer.json()) == {"error"}, answer.request.url
        assert [a.status_code for a in answers] == [
            200,
            200,
            200,
            200,
            200,
            404,
            405,
            405,
            401,
            415,
            500,
            421,
            413,
            400,
        ]


def raw_answer(address: str, content: bytes) -> bytes:
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as raw:
        raw.settimeout(20)
        raw.sendall(content)
        return b"".join(iter(lambda: raw.recv(65536), b""))  # until it is closed


def test_a_request_of_two_lengths_is_refused_and_what_follows_is_not_read(server: str) -> None:
    head = b"POST /link HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    two = head + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    answer = raw_answer(server, two + b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (
        answer.startswith(b"HTTP/1.1 400")
        and answer.count(b"HTTP/1.1") == 1
        and b'{"error":' in answer
    )
    for wrong in (
        b"\x16\x03\x01\x02\x00\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    ):
        answer = raw_answer(server, wrong)
        assert answer.startswith(b"HTTP/1.1 400") and b"nosniff" in answer
        assert set(json.loads(answer.partition(b"\r\n\r\n")[2])) == {"error"}


def test_health_names_folders_without_their_places(folder: str) -> None:
    place = Path(folder).resolve()
    assert (
        chain_label(("NCBI/minilm + dictionary", str(place), None))
        == f"NCBI/minilm + dictionary > {place.name}"
    )
    assert (
        chain_label(("dictionary", "/nowhere/secretplace/model", "lab/model"))
        == "dictionary > model > lab/model"
    )


def test_what_a_client_left_is_not_linked(folder: str) -> None:
    """Of a request whose client goes away, what has not begun is dropped."""
    slow = Slow(Pipeline(folder), 0.2)

    async def go() -> int:
        app = create_app(slow)
        sent: list[dict[str, object]] = []
        body = json.dumps({"texts": ["foozin " * 1000] * 100}).encode()
        messages = [{"type": "http.request", "body": body}, {"type": "http.disconnect"}]

        async def receive() -> dict[str, object]:
            if len(messages) == 1:
                await asyncio.sleep(0.1)
            return messages.pop(0)

        async def send(message: dict[str, object]) -> None:
            sent.append(message)

        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/link",
            "raw_path": b"/link",
            "query_string": b"",
            "headers": headers,
            "client": ("10.0.0.1", 1),
            "server": ("localhost", 80),
            "scheme": "http",
            "http_version": "1.1",
            "root_path": "",
        }
        async with app.router.lifespan_context(app):
            await app(scope, receive, send)
            await asyncio.sleep(1)
        return int(sent[0]["status"])  # type: ignore[call-overload]

    assert asyncio.run(go()) == 499 and sum(slow.asked) < 20


class Slow(Pipeline):
    """Takes its time, and remembers the texts of one call."""

    def __init__(self, of: Pipeline, seconds: float, fails: bool = False) -> None:
        self.__dict__.update(of.__dict__)
        self.seconds, self.fails, self.asked = seconds, fails, []  # type: ignore[var-annotated]

    def link(self, texts: Sequence[str]) -> list[list[Linked]]:
        self.asked.append(len(texts))
        time.sleep(self.seconds)
        if self.fails:
            raise RuntimeError("/secretplace")
        return super().link(texts)


async def several(app: object, count: int) -> list[httpx.Response]:
    async with app.router.lifespan_context(app):  # type: ignore[attr-defined]
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url=BASE) as asked:
            return await asyncio.gather(
                *(asked.post("/link", json={"texts": [f"foozin {i}"]}) for i in range(count))
            )


def test_requests_that_wait_are_linked_together_and_each_gets_its_own(folder: str) -> None:
    slow = Slow(Pipeline(folder), 0.05)
    answers = asyncio.run(several(create_app(slow), 200))
    assert [a.status_code for a in answers] == [200] * 200
    assert [a.json()["documents"][0]["text"] for a in answers] == [
        f"foozin {i}" for i in range(200)
    ]
    assert sum(slow.asked) == 200 and len(slow.asked) < 20


def test_too_slow_and_too_many_are_reported(folder: str) -> None:
    answers = asyncio.run(
        several(create_app(Slow(Pipeline(folder), 0.5), limits=Limits(seconds=0.1)), 2)
    )
    assert {a.status_code for a in answers} == {504} and "within 0.1 seconds" in answers[0].json()[
        "error"
    ]
    answers = asyncio.run(
        several(create_app(Slow(Pipeline(folder), 0.1), limits=Limits(waiting=3)), 30)
    )
    refused = [a for a in answers if a.status_code == 503]
    assert (
        refused
        and refused[0].headers["retry-after"] == "1"
        and {a.status_code for a in answers} == {200, 503}
    )


def test_a_chain_that_fails_ends_nothing_and_tells_nothing(folder: str) -> None:
    answers = asyncio.run(several(create_app(Slow(Pipeline(folder), 0, fails=True)), 3))
    assert [a.status_code for a in answers] == [500] * 3
    assert all("secretplace" not in a.text and set(a.json()) == {"error"} for a in answers)


@contextmanager
def running(folder: str, *options: str, script: Path | None = None) -> Iterator[str]:
    """The address of a running server, whose process is `running.process`."""
    start = [str(script)] if script else ["-m", "app.cli"]
    words = [sys.executable, *start, "serve", "--graph", folder, "--port", "0", *options]
    process = subprocess.Popen(
        words,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    running.process = process  # type: ignore[attr-defined]
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[0]
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture
def server(folder: str) -> Iterator[str]:
    with running(folder) as address:
        yield address


def test_a_running_server_survives_ten_megabytes_and_a_thousand_requests(server: str) -> None:
    host, port = server.removeprefix("http://").split(":")
    with httpx.Client(base_url=server, timeout=60) as asked:
        assert asked.post("/link", content=b"x" * 10_000_000).status_code == 413
        with socket.create_connection((host, int(port))) as raw:  # in chunks, without a length
            raw.sendall(
                b"POST /link HTTP/1.1\r\nHost: localhost\r\nContent-Type:"
                b" application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            try:
                for _ in range(160):
                    raw.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            except (BrokenPipeError, ConnectionResetError):
                pass  # refused before all was sent
            raw.settimeout(20)
            assert b" 413 " in raw.recv(4096).split(b"\r\n")[0]

        async def all_at_once() -> list[httpx.Response]:
            limits = httpx.Limits(max_connections=1000)
            async with httpx.AsyncClient(base_url=server, timeout=60, limits=limits) as many:
                return await asyncio.gather(
                    *(many.post("/link", json={"texts": [f"foozin {i}"]}) for i in range(1000))
                )

        answers = asyncio.run(all_at_once())
        assert {a.status_code for a in answers} <= {200, 503} and sum(
            a.status_code == 200 for a in answers
        ) > 900
        for i, answer in enumerate(answers):
            if answer.status_code == 200:
                (document,) = answer.json()["documents"]
                assert (
                    document["text"] == f"foozin {i}"
                    and document["mentions"][0]["entity"] == "foozin"
                )
        assert asked.get("/health").json()["status"] == "ok"


@pytest.mark.parametrize("length", [b"40", b""])
def test_what_a_refused_client_still_sends_is_read_before_the_connection_ends(
    length: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the connection is reset, and the answer may be lost on its way."""
    sent: list[dict[str, object]] = []
    chunks = [{"type": "http.request", "body": b"x" * 10, "more_body": i < 3} for i in range(4)]

    async def receive() -> dict[str, object]:
        if not chunks:
            await asyncio.sleep(60)
        return chunks.pop(0)

    async def send(message: dict[str, object]) -> None:
        sent.append({**message, "left": len(chunks)})

    async def reads_all(scope: object, receive: object, send: object) -> None:
        while (await receive())["type"] == "http.request":
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})

    def refused_by(most: int) -> list[dict[str, object]]:
        scope = {"type": "http", "headers": [(b"content-length", length)] if length else []}
        asyncio.run(BodyLimit(reads_all, most, 30)(scope, receive, send))  # type: ignore[arg-type]
        return sent

    start, body, end = refused_by(15)
    assert start["status"] == 413 and body["more_body"] and b"more than 15 bytes" in body["body"]
    assert start["left"] == (4 if length else 2) and end["left"] == 0 and not end.get("more_body")
    sent.clear()
    # it never ends
    chunks += [{"type": "http.request", "body": b"x" * 10, "more_body": True}] * 100
    monkeypatch.setattr("app.guards.DROPPED", 200)
    assert refused_by(15)[-1]["left"] == 100 - 20 - (0 if length else 2)


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8000", "127.0.0.1:80", "[::1]:8000", "10.0.0.7", "kepl.example.org"],
)
def test_an_allowed_host(folder: str, host: str) -> None:
    with TestClient(create_app(Pipeline(folder), names=["KEPL.example.org"]), BASE) as asked:
        assert asked.get("/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example.com",
        "evil.example.com:80",
        "localhost.evil.com",
        "127.0.0.1.evil.com",
        "",
        "[x",
    ],
)
def test_a_page_whose_name_means_this_machine_reads_nothing(folder: str, host: str) -> None:
    """DNS rebinding: the browser sends the page's own name."""
    with TestClient(create_app(Pipeline(folder)), BASE) as asked:
        for path in ("/health", "/entity?id=foozin", "/", "/metrics"):
            answer = asked.get(path, headers={"Host": host})
            assert answer.status_code == 421 and "no server of the name" in answer.json()["error"]
        assert (
            asked.post("/link", json={"texts": ["foozin"]}, headers={"Host": host}).status_code
            == 421
        )


def test_errors_name_the_request(client: TestClient) -> None:
    missing = client.get("/entity").json()["error"]
    assert (
        missing == "id: Field required"
        and client.get("/entity", params={"id": "x" * 1001}).status_code == 422
    )
    assert client.post("/link", json={}).json()["error"].endswith('; expected {"texts": ["…"]}')


def test_metrics_count_requests_texts_and_mentions(client: TestClient) -> None:
    client.post("/link", json={"texts": ["foozin in renal failure", "nothing"]})
    client.post("/link", json={})
    client.get("/health")
    for i in range(5):
        client.get(f"/nothing{i}")
    told = client.get("/metrics").text
    for line in (
        'kepl_requests_total{path="/link",status="200"} 1.0',
        'kepl_requests_total{path="/link",status="422"} 1.0',
        'kepl_requests_total{path="/health",status="200"} 1.0',
        'kepl_requests_total{path="other",status="404"} 5.0',
        "kepl_texts_total 2.0",
        "kepl_mentions_total 2.0",
        "kepl_waiting 0.0",
        'kepl_seconds_count{path="/link"} 2.0',
    ):
        assert line in told, told


def test_a_body_that_does_not_come_is_given_up(folder: str) -> None:
    """And so is a head; at most so many connections stay open."""
    with running(folder, "--max-seconds", "1", "--max-connections", "20") as address:
        host, port = address.removeprefix("http://").split(":")
        head = (
            b"POST /link HTTP/1.1\r\nHost: localhost\r\nContent-Type:"
            b" application/json\r\nContent-Length: 100\r\n\r\n{"
        )
        halves = [socket.create_connection((host, int(port))) for _ in range(8)]
        for number, half in enumerate(halves):
            half.sendall(head if number % 2 else b"POST /li")
        began = time.monotonic()
        for number, half in enumerate(halves):
            half.settimeout(30)
            answer = b"".join(iter(lambda half=half: half.recv(4096), b""))  # until it is closed
            assert (
                (b" 408 " in answer and b"did not come within 1 seconds" in answer)
                if number % 2
                else answer == b""
            )
        assert time.monotonic() - began >= 0.5
        idle = [socket.create_connection((host, int(port))) for _ in range(20)]
        time.sleep(0.2)
        with socket.create_connection((host, int(port))) as more:
            more.settimeout(30)
            assert b" 503 " in more.recv(4096)
        for one in idle:
            one.close()
        for _ in range(50):
            time.sleep(0.1)
            if httpx.get(f"{address}/health").status_code == 200:
                break
        assert httpx.post(f"{address}/link", json={"texts": ["foozin"]}).json()["documents"][0][
            "mentions"
        ]


def test_what_waits_is_answered_before_the_server_ends(folder: str, tmp_path: Path) -> None:
    script = tmp_path / "slow.py"
    script.write_text(
        "import time\nfrom inference.chain import Pipeline\nreal = Pipeline.link\ndef link(self,"
        " texts):\n    time.sleep(2)\n    return real(self, texts)\nPipeline.link = link\nimport"
        " sys\nfrom app.cli import main\nsys.exit(main(sys.argv[1:]))\n"
    )
    with running(folder, script=script) as address, ThreadPoolExecutor(6) as pool:
        asked = [
            pool.submit(httpx.post, f"{address}/link", json={"texts": ["foozin"]}, timeout=60)
            for _ in range(6)
        ]
        until = time.monotonic() + 30
        while (
            b"kepl_waiting 0" in (told := httpx.get(f"{address}/metrics").content)
            and time.monotonic() < until
        ):
            pass
        assert b"kepl_waiting" in told
        time.sleep(1)  # until all six have come
        running.process.terminate()  # type: ignore[attr-defined]
        assert [one.result().status_code for one in asked] == [200] * 6
        assert running.process.wait(30) == -signal.SIGTERM  # type: ignore[attr-defined]  as uvicorn ends, once all is answered


def test_the_interface_is_described_without_anything_from_elsewhere(client: TestClient) -> None:
    page = client.get("/docs").text
    loaded = re.findall(r"""(?:src|href)=["']([^"']+)["']""", page)
    assert any(place.endswith(".js") for place in loaded) and any(
        place.endswith(".css") for place in loaded
    )
    for place in loaded:
        assert (
            place.startswith("/")
            and not place.startswith("//")
            and client.get(place).status_code == 200
        ), place
    assert set(client.get("/openapi.json").json()["paths"]) == {
        "/link",
        "/predict",
        "/search",
        "/entity",
        "/health",
        "/metrics",
    }


GAP = '<small class="gap"> </small>'  # between the text of a mark and the words after it
BROWSER = next(
    (
        found
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (found := shutil.which(name))
    ),
    None,
)


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_the_page_in_a_browser_shows_entities_and_runs_nothing_that_is_pasted(
    server: str, tmp_path: Path
) -> None:
    assert BROWSER is not None

    def page(text: str, mention: int = 0) -> str:
        words = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--virtual-time-budget=8000",
        ]
        address = f"{server}/#text={quote(text)}&mention={mention}"
        done = subprocess.run(
            [BROWSER, *words, "--dump-dom", address], capture_output=True, text=True, timeout=120
        )
        return done.stdout

    shown = page(f"𝄞 Foozin 治疗 renal failure {SCRIPT} <img src=x onerror=alert(1)>", 2)
    marks = re.findall(
        rf'<mark[^>]*>(.*?){GAP}<small class="type"[^>]*>(.*?)</small>'
        rf"{GAP}<small>(.*?)</small></mark>",
        shown,
    )
    script = SCRIPT.replace("<", "&lt;").replace(">", "&gt;")  # a name of the fake graph, too
    diseases = [(name, "disease", name) for name in ("renal failure", script)]
    assert marks == [("Foozin", "drug", "foozin"), *diseases]
    assert "dictionary, 38 entities" in shown
    # offsets are of characters, not of UTF-16 units
    assert '<p id="result" aria-live="polite">𝄞 <mark' in shown
    assert (
        "&lt;img src=x onerror=alert(1)&gt;" in shown
        and "<img" not in shown
        and SCRIPT not in shown
    )
    entity = shown.partition('<section id="entity"')[2]
    # a neighbour of that name
    assert ">renal failure</h2>" in entity and "&lt;script&gt;" in entity
    assert re.search(
        r"<tbody id=\"candidates\"><tr[^>]*><td>renal failure</td><td>renal"
        r" failure</td><td></td><td>1.000</td></tr>",
        shown,
    )
    # or a label's display would win
    assert "[hidden] { display: none !important; }" in (PAGE / "page.css").read_text()
    assert "NIL" not in shown and page("nothing of it").count("<mark") == 0
    legend = shown.partition('<fieldset id="legend">')[2].partition("</fieldset>")[0]
    assert re.findall(r'<span class="type"[^>]*>(.*?)</span> (\d+)', legend) == [
        ("disease", "2"),
        ("drug", "1"),
    ]


NOTE = (
    "Tremor. No rash. Mother had gout. History of ulcer. Rule out sepsis. Lung and liver abscess,"
    " two goiters, an itch."
)


def mention(start: int, text: str, **own: object) -> dict[str, object]:
    candidates = [{"entity": "=E", "name": "=name", "score": 1.0, "tied": False, "matched": ""}]
    record = {
        "start": start,
        "end": start + len(text),
        "text": text,
        "entity": "=E",
        "name": "=name",
        "type": "t",
        "score": 1.0,
    }
    return record | {"candidates": candidates, "detector_score": None} | own


MENTIONS = [
    mention(0, "Tremor", negated=False),
    mention(11, "rash", negated=True),
    mention(28, "gout", family=True),
    mention(45, "ulcer", historical=True),
    mention(61, "sepsis", hypothetical=True, negated=True, long_form='@septic, "shock"'),
    mention(69, "Lung and liver abscess", part="Lung abscess", entity="L"),
    mention(69, "Lung and liver abscess", part="liver abscess", entity="M"),
    mention(97, "goiters", matched="plural"),
    mention(
        109,
        "itch",
        candidates=[{"entity": "=E", "name": "=name", "score": 1.0, "tied": True, "matched": ""}],
    ),
]


def dump_page(tmp_path: Path, address: str) -> str:
    """The DOM of an address after its scripts."""
    assert BROWSER is not None
    words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=8000"]
    words += [f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", address]
    return subprocess.run([BROWSER, *words], capture_output=True, text=True, timeout=120).stdout


def run_page(tmp_path: Path, script: str, options: Sequence[str] = ()) -> str:
    """The DOM of the page's own files after `script`; the server's answers are in `answers`, by
    path."""
    assert BROWSER is not None
    page = (PAGE / "index.html").read_text()
    page = page.replace('href="page/page.css"', f'href="{PAGE / "page.css"}"')
    answers = {
        "health": {"chain": "x", "entities": 1, "token": False, "examples": []},
        "link": {"documents": [{"text": NOTE, "mentions": MENTIONS}]},
    }
    head = (
        f"<script>const answers = {json.dumps(answers)}; const blobs = [];window.fetch = async"
        " (path) => ({ ok: true, json: async () => answers[path] || { names: [], neighbours: []"
        ", same_as: [] } });URL.createObjectURL = (blob) => { blobs.push(blob); return '#'; };"
        " URL.revokeObjectURL = () => {};</script>"
    )
    end = (
        '<pre id="out"></pre><script'
        f' src="{PAGE / "page.js"}"></script><script>{script}</script></body>'
    )
    page = page.replace('<script src="page/page.js" defer></script>', head).replace("</body>", end)
    (tmp_path / "page.html").write_text(page)
    words = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'profile'}",
    ]
    words += ["--virtual-time-budget=8000", *options]
    words += ["--dump-dom", f"file://{tmp_path / 'page.html'}"]
    return subprocess.run([BROWSER, *words], capture_output=True, text=True, timeout=120).stdout


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_the_page_shows_what_is_said_of_mentions(tmp_path: Path) -> None:
    shown = run_page(tmp_path, "link().then(() => document.querySelectorAll('mark')[5].click());")
    marks = re.findall(r'<mark class="([^"]*)"[^>]*?title="([^"]*)"[^>]*>([^<]*)', shown)
    looks = [" ".join(sorted({*look.split()} - {"chosen"})) for look, _, _ in marks]
    said = [f"{text}: {title}" for _, title, text in marks]
    assert [*zip(looks, said, strict=True)] == [
        ("", "Tremor: =name"),
        ("negated", "rash: not, =name"),
        ("family", "gout: family, =name"),
        ("historical", "ulcer: historical, =name"),
        ("hypothetical negated", "sepsis: not, hypothetical, = @septic, &quot;shock&quot;, =name"),
        ("", "Lung and liver abscess: part: Lung abscess, =name; part: liver abscess, =name"),
        ("", "goiters: by plural, =name"),
        ("", "itch: tied, =name"),
    ]
    rows = re.findall(
        r"<td>([^<]*)</td></tr>",
        shown.partition('<tbody id="mentions">')[2].partition("</tbody>")[0],
    )
    assert rows == [", ".join(describe_in_words(one)) for one in MENTIONS]
    # a button is named by its content, word by word
    assert shown.partition(">rash")[2].startswith(f'{GAP}<small class="said">not</small>{GAP}')
    parts = shown.partition('<tbody id="candidates">')[2].partition("</tbody>")[0]
    assert "part: Lung abscess" in parts and "part: liver abscess" in parts
    looks = re.findall(
        r"</span> ([a-z ]+)</span>", shown.partition('<p id="looks">')[2].partition("</p>")[0]
    )
    assert looks == ["denied", "of a relative", "of the past", "only supposed"]
    plain = run_page(tmp_path, "answers.link.documents[0].mentions.splice(1); link();")
    assert '<p id="looks" hidden=""></p>' in plain and plain.count("<mark") == 1


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_the_page_says_that_nothing_is_found_and_lists_the_texts_of_a_file(tmp_path: Path) -> None:
    empty = run_page(tmp_path, "answers.link.documents[0].mentions = []; link();")
    assert '<p id="empty" role="status">No mention of an entity' in empty
    assert '<nav id="documents" aria-label="Texts of the file" hidden="">' in empty
    script = (
        "answers.link.documents = [0, 1].map(() => answers.link.documents[0]);"
        " linkFile('x.txt', 'one\\ntwo').then(() =>"
        " document.querySelectorAll('#texts button')[1].click());"
    )
    shown = run_page(tmp_path, script)
    texts = shown.partition('<ol id="texts">')[2].partition("</ol>")[0]
    assert re.findall(r"<button[^>]*>([^<]*)</button>", texts) == ["1: one (9)", "2: two (9)"]
    assert texts.count("aria-current") == 1 and 'aria-current="true">2: two' in texts
    assert '<p id="empty" role="status" hidden=""></p>' in shown


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_the_page_searches_names_and_leads_from_entity_to_entity(
    server: str, tmp_path: Path
) -> None:
    found = dump_page(tmp_path, f"{server}/#find=renal")
    assert "1 with “renal”" in found and 'href="#entity=renal+failure"' in found
    assert "No entity has a name with" in dump_page(tmp_path, f"{server}/#find=zebra")
    shown = dump_page(tmp_path, f"{server}/#entity=foozin").partition('<section id="entity"')[2]
    assert ">names, la</dt><dd>Foozinum</dd>" in shown
    assert 'treats →</dt><dd><a href="#entity=renal+failure">renal failure</a>' in shown
    assert "<svg" in shown and shown.count("<line ") == 10
    assert "no such entity" in dump_page(tmp_path, f"{server}/#entity=nothing")


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_has_no_serious_finding_of_an_accessibility_checker(
    tmp_path: Path, dark: bool
) -> None:
    """axe-core: names for screen readers, contrast and structure, after a text and an entity."""
    import axe_core_python

    answers = (
        "answers['entity?id=%3DE'] = { id: 'HP:1', name: 'n', type: 't', definition: 'd', source:"
        " 'https://bioregistry.io/hp:1', same_as: ['X'], triples: 3, names: [{ name: 'n', language:"
        " 'en' }, { name: 'm', language: 'zh' }], neighbours: [{ relation: 'r', direction: 'out',"
        " id: 'HP:2', name: 'o' }] };"
    )
    checker = (Path(axe_core_python.__file__).parent / "axe.min.js").read_text()
    (tmp_path / "axe.min.js").write_text(checker)
    script = (
        f"{answers} const tag = document.createElement('script'); tag.src = 'axe.min.js';"
        " document.head.append(tag); tag.onload = async () => { at('mention').hidden = false;"
        " await link(); document.querySelectorAll('mark')[0].click(); await new Promise((r) =>"
        " setTimeout(r, 200)); const found = await axe.run(); at('out').textContent ="
        " JSON.stringify(found.violations.map((v) => [v.impact, v.id, v.nodes.map((n) =>"
        " n.html)])); };"
    )
    shown = run_page(tmp_path, script, ["--blink-settings=preferredColorScheme=0"] * dark)
    findings = json.loads(
        html.unescape(shown.partition('<pre id="out">')[2].partition("</pre>")[0])
    )
    assert [one for one in findings if one[0] in ("serious", "critical")] == []


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_a_saved_table_has_the_attributes(tmp_path: Path) -> None:
    script = (
        "linkFile('x.txt', 'one').then(() => blobs[1].text()).then((csv) => { at('out').textContent"
        " = csv; });"
    )
    content = html.unescape(
        run_page(tmp_path, script).partition('<pre id="out">')[2].partition("</pre>")[0]
    )
    rows = list(csv.DictReader(io.StringIO(content)))
    for row, one in zip(rows, MENTIONS, strict=True):
        said = {
            name: row[name]
            for name in (*Attributes._fields, "long_form", "part", "matched", "tied")
            if row[name]
        }
        assert {name: value.removeprefix("'") for name, value in said.items()} == describe(one)
    assert rows[4]["long_form"] == '\'@septic, "shock"' and rows[0]["name"] == "'=name"


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_the_page_shows_tens_of_thousands_of_mentions(tmp_path: Path) -> None:
    script = (
        "const many = Array.from({ length: 70000 }, (_, i) => ({"
        " ...answers.link.documents[0].mentions[1], start: 2 * i, end: 2 * i + 1, text: 'x' }));"
        " showDocument({ text: 'x '.repeat(70000), mentions: many });at('out').textContent ="
        " `${document.querySelectorAll('mark').length} ${at('all').open}`;"
        " at('result').replaceChildren();at('mentions').replaceChildren();"
    )
    assert '<pre id="out">70000 false</pre>' in run_page(tmp_path, script)


def test_attributes_are_in_the_answer(folder: str) -> None:
    with TestClient(create_app(Pipeline(folder, negation=True)), BASE) as asked:
        text = "No renal failure. His mother takes foozin."
        denied, of_mother = asked.post("/link", json={"texts": [text]}).json()["documents"][0][
            "mentions"
        ]
    assert denied["negated"] is True and denied["family"] is False
    assert of_mother["negated"] is False and of_mother["family"] is True
    assert {"long_form", "part", "matched", "historical", "hypothetical"} <= set(denied)
    assert denied["candidates"][0]["tied"] is False


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_the_interface_in_a_browser(server: str, tmp_path: Path) -> None:
    assert BROWSER is not None
    words = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path}",
        "--virtual-time-budget=8000",
    ]
    done = subprocess.run(
        [BROWSER, *words, "--dump-dom", f"{server}/docs"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "Unable to render" not in done.stdout and "/link" in done.stdout.partition("<body>")[2]
    assert done.stdout.count('class="opblock ') == 6


def test_a_port_that_is_taken_is_one_error(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    from app.cli import main

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "--graph", folder, "--port", str(port)]) == 2
    assert f"--port {port}" in capsys.readouterr().err
    assert main(["serve", "--graph", folder, "--max-bytes", "0"]) == 2


async def texts_of_several(app: object, requests: list[list[str]]) -> list[httpx.Response]:
    async with app.router.lifespan_context(app):  # type: ignore[attr-defined]
        transport = httpx.ASGITransport(app=app)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url=BASE) as asked:
            return await asyncio.gather(
                *(asked.post("/link", json={"texts": texts}) for texts in requests)
            )


def test_requests_of_one_batch_get_their_own_mentions(folder: str) -> None:
    """Each has other entities, and another number of texts: nobody's mentions go to somebody
    else."""
    slow = Slow(Pipeline(folder), 0.05)
    names = ["foozin", "renal failure", *(f"x{i}" for i in range(10))]
    requests = [[f"a {names[(i + j) % 12]}" for j in range(1 + i % 3)] for i in range(24)]
    answers = asyncio.run(texts_of_several(create_app(slow), requests))
    assert max(slow.asked) > 20  # they were linked together
    for texts, answer in zip(requests, answers, strict=True):
        documents = answer.json()["documents"]
        assert [d["text"] for d in documents] == texts
        assert [[m["entity"] for m in d["mentions"]] for d in documents] == [
            [text[2:]] for text in texts
        ]


def test_limits_include_what_they_name(folder: str) -> None:
    """At a limit a request passes; one more byte, text or character is refused."""
    body = json.dumps({"texts": ["foozin", "x"]}).encode()
    with TestClient(
        create_app(Pipeline(folder), limits=Limits(bytes=len(body), texts=2, characters=6)), BASE
    ) as asked:

        def status(content: bytes) -> int:
            return asked.post(
                "/link", content=content, headers={"Content-Type": "application/json"}
            ).status_code

        assert status(body) == 200 and status(body + b" ") == 413
        assert status(b'{"texts":["",""]}') == 200 and status(b'{"texts":["","",""]}') == 413
        assert status(b'{"texts":["foozin"]}') == 200 and status(b'{"texts":["foozins"]}') == 413

        def in_pieces(content: bytes) -> int:  # without a length
            return asked.post(
                "/link", content=iter([content]), headers={"Content-Type": "application/json"}
            ).status_code

        assert in_pieces(body) == 200 and in_pieces(body + b" ") == 413


class FakeTagger:
    """Finds the first word of each text."""

    name, identity = "/secretplace/tagger", "x"

    def predict(self, texts: Sequence[str]) -> list[list[Span]]:
        return [[Span(0, 3, text[:3], "word", 0.5)] for text in texts]


def test_a_tagger_answers_beside_the_chain(folder: str) -> None:
    asked = {"texts": ["abc d", "xyz"]}
    with TestClient(create_app(Pipeline(folder)), BASE) as client:
        refused = client.post("/predict", json=asked)
        assert refused.status_code == 404 and "--model" in refused.json()["error"]
    app = create_app(Pipeline(folder), tagger=FakeTagger())  # type: ignore[arg-type]
    with TestClient(app, BASE) as client:
        found = client.post("/predict", json=asked).json()["documents"]
        assert client.get("/health").json()["model"] == "tagger"
        assert client.post("/predict", json={"texts": ["x" * 100_001]}).status_code == 413
        wrong = client.post("/predict", json={})
        assert wrong.status_code == 422 and "expected" in wrong.json()["error"]
    assert [d["text"] for d in found] == asked["texts"]
    span = {"start": 0, "end": 3, "text": "abc", "type": "word", "score": 0.5}
    assert found[0]["mentions"] == [span]


def test_entities_are_searched_by_name(client: TestClient) -> None:
    found = client.get("/search", params={"name": "FOOZIN"}).json()
    assert found["count"] == 1 and found["entities"][0]["id"] == "foozin"
    assert found["entities"][0]["exact"] is True
    many = client.get("/search", params={"name": "x"}).json()
    assert many["count"] == MOST + 5 and len(many["entities"]) == min(FOUND, MOST + 5)
    assert client.get("/search", params={"name": "--"}).status_code == 422
    assert client.get("/search", params={"name": "zebra"}).json() == {"entities": [], "count": 0}


def test_a_client_that_is_generated_from_the_interface_reads_the_answers(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Classes made by datamodel-code-generator from /openapi.json parse what is answered."""
    interface = tmp_path / "openapi.json"
    interface.write_text(client.get("/openapi.json").text)
    code = tmp_path / "generated.py"
    words = ["--input", str(interface), "--input-file-type", "openapi", "--output", str(code)]
    words += ["--output-model-type", "pydantic_v2.BaseModel", "--formatters", "builtin"]
    subprocess.run([sys.executable, "-m", "datamodel_code_generator", *words], check=True)
    place = importlib.util.spec_from_file_location("generated_client", code)
    assert place and place.loader
    module = importlib.util.module_from_spec(place)
    monkeypatch.setitem(sys.modules, "generated_client", module)
    place.loader.exec_module(module)
    generated = vars(module)
    asked = generated["Asked"](texts=["Foozin treats renal failure"])
    linked = client.post("/link", json=asked.model_dump()).json()
    parsed = generated["Linked"].model_validate(linked)
    assert [m.entity for m in parsed.documents[0].mentions] == ["foozin", "renal failure"]
    assert parsed.model_dump(mode="json") == linked
    about = client.get("/entity", params={"id": "foozin"}).json()
    parsed = generated["About"].model_validate(about)
    assert parsed.names[1].name == "Foozinum"
    found = client.get("/search", params={"name": "foozin"}).json()
    assert generated["Search"].model_validate(found).count == 1
    refused = client.get("/entity", params={"id": "nothing"}).json()
    assert generated["Failure"].model_validate(refused).error


def test_the_head_alone_and_a_body_of_another_kind(client: TestClient) -> None:
    for path in ("/", "/health"):
        answer = client.head(path)
        assert (answer.status_code, answer.content) == (200, b"")
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        answer = client.post("/link", content='{"texts": ["a"]}', headers={"content-type": kind})
        assert answer.status_code == 415
        assert "expected the header Content-Type: application/json" in answer.json()["error"]
    named = {"content-type": "application/json; charset=utf-8"}
    assert client.post("/link", content='{"texts": ["a"]}', headers=named).status_code == 200


def test_a_request_that_fails_is_counted_as_such(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is raised before an answer has begun is a 500 to whoever watches."""

    def fail(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(Entities, "about", fail)
    app = create_app(Pipeline(folder))
    with TestClient(app, BASE, raise_server_exceptions=False) as client:
        assert client.get("/entity?id=foozin").status_code == 500
        told = client.get("/metrics").text
    assert 'kepl_requests_total{path="/entity",status="500"} 1.0' in told
