"""Who is linked next: nobody waits for another's long text, and nothing is linked for nobody."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from app.lanes import LONG, TOGETHER, Busy, Lanes, Pending, Turns, Worker, link_texts
from inference.chain import Linked, Pipeline
from tests.app.test_serve import running
from tests.fakes.graphs import graph


class Sleeps(Pipeline):
    """Takes as long as a text says: "2.5 and more" two and a half seconds. "fail" fails."""

    def __init__(self, of: Pipeline) -> None:
        self.__dict__.update(of.__dict__)

    def link(self, texts: Sequence[str]) -> list[list[Linked]]:
        for text in texts:
            first = text.split()[0]
            if first == "fail":
                raise ValueError("as asked")
            time.sleep(float(first))
        return super().link([text[:100] for text in texts])


@pytest.fixture
def folder(tmp_path: Path) -> str:
    names = [("D1", "renal failure", "exact", "en"), ("D2", "gout", "exact", "en")]
    return str(
        graph({"D1": "disease", "D2": "disease"}, [("D1", "near", "D2")], names).save(
            tmp_path / "graph"
        )
    )


@pytest.fixture
def pipeline(folder: str) -> Pipeline:
    made = Sleeps(Pipeline(folder))
    made.prepare()
    return made


def long(seconds: float) -> str:
    return f"{seconds} gout".ljust(LONG + 1)


def test_turns_go_round_clients_and_requests() -> None:
    async def order() -> list[str]:
        turns = Turns()
        requests = {
            name: Pending(name[0], [name + str(i) for i in range(3)])
            for name in ("a1.", "a2.", "b1.")
        }
        for pending in requests.values():
            turns.add(pending, [0, 1, 2])
        found = [
            turn[0].texts[turn[1]]
            for turn in (turns.next(), turns.next(), turns.next(), turns.next())
            if turn
        ]
        requests["a2."].done.cancel()  # whoever has gone
        while turn := turns.next():
            found.append(turn[0].texts[turn[1]])
        return found

    assert asyncio.run(order()) == ["a1.0", "b1.0", "a2.0", "b1.1", "a1.1", "b1.2", "a1.2"]


def test_a_batch_is_bounded_by_its_characters() -> None:
    async def sizes() -> list[int]:
        turns = Turns()
        turns.add(Pending("a", ["x" * LONG] * 20), range(20))
        return [len(turns.together()) for _ in range(6)]

    assert asyncio.run(sizes()) == [TOGETHER // LONG] * 5 + [0]


def test_nobody_waits_for_anothers_long_text(pipeline: Pipeline) -> None:
    async def times() -> tuple[list[float], float]:
        lanes = Lanes(pipeline, 10, Worker(pipeline))
        working = asyncio.create_task(lanes.work())
        began = time.monotonic()
        slow = asyncio.create_task(lanes.link("a", [long(2)]))
        waited = []
        for _ in range(5):
            asked = time.monotonic()
            ((mentions, document),) = await lanes.link("b", ["0 gout"])
            assert mentions == 1 and json.loads(document)["mentions"][0]["entity"] == "D2"
            waited.append(time.monotonic() - asked)
        ((mentions, document),) = await slow
        assert mentions == 1 and len(json.loads(document)["text"]) == LONG + 1
        working.cancel()
        lanes.close()
        return waited, time.monotonic() - began

    waited, whole = asyncio.run(times())
    assert max(waited) < 0.5 and whole >= 2


def test_a_request_of_both_gets_its_answers_in_order(pipeline: Pipeline) -> None:
    async def answers(worker: Worker | None) -> list[object]:
        lanes = Lanes(pipeline, 10, worker)
        working = asyncio.create_task(lanes.work())
        found = await lanes.link("a", [long(0), "0 renal failure", long(0), "0 none"])
        working.cancel()
        lanes.close()
        return [(mentions, json.loads(document)["text"][:15]) for mentions, document in found]

    both = [asyncio.run(answers(worker)) for worker in (None, Worker(pipeline))]
    assert (
        both[0]
        == both[1]
        == [(1, long(0)[:15]), (1, "0 renal failure"), (1, long(0)[:15]), (0, "0 none")]
    )


def test_a_long_text_that_nobody_waits_for_is_stopped(pipeline: Pipeline) -> None:
    async def seconds() -> float:
        worker = Worker(pipeline)
        first = worker.process.pid
        lanes = Lanes(pipeline, 10, worker)
        working = asyncio.create_task(lanes.work())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(lanes.link("a", [long(60), long(60)]), 0.3)
        began = time.monotonic()
        assert (await lanes.link("a", [long(0)]))[0][0] == 1
        assert worker.process.pid != first and not lanes.pending
        working.cancel()
        lanes.close()
        return time.monotonic() - began

    assert asyncio.run(seconds()) < 10


def test_a_worker_that_fails_or_dies_fails_its_request_alone(pipeline: Pipeline) -> None:
    async def go() -> None:
        worker = Worker(pipeline)
        lanes = Lanes(pipeline, 10, worker)
        working = asyncio.create_task(lanes.work())
        with pytest.raises(RuntimeError, match="as asked"):
            await lanes.link("a", ["fail".ljust(LONG + 1)])
        dies = asyncio.create_task(lanes.link("a", [long(60)]))
        await asyncio.sleep(0.3)
        assert worker.process.pid is not None
        os.kill(worker.process.pid, signal.SIGKILL)
        with pytest.raises(EOFError):
            await dies
        assert (await lanes.link("a", [long(0)]))[0][0] == 1
        working.cancel()
        lanes.close()

    asyncio.run(go())


def test_no_more_wait_than_may(pipeline: Pipeline) -> None:
    async def go() -> None:
        lanes = Lanes(pipeline, 1)
        first = asyncio.create_task(lanes.link("a", ["0 gout"]))
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await lanes.link("b", ["0 gout"])
        first.cancel()

    asyncio.run(go())


def test_both_lanes_answer_what_the_chain_does(folder: str) -> None:
    pipeline = Pipeline(folder)
    texts = ["gout in renal failure", "gout " * 3000]
    worker = Worker(pipeline)
    assert worker.link(texts) == link_texts(pipeline, texts)
    worker.stop()


def test_a_large_request_beside_a_good_client(folder: str) -> None:
    """Through a real server: 0.96 MB of one name in three requests, and a client whose sentences do
    not wait for them."""
    with running(folder) as address:
        dense = "renal failure and gout " * 4000

        async def go() -> list[float]:
            async with httpx.AsyncClient(base_url=address, timeout=60) as asked:
                bad = [
                    asyncio.create_task(asked.post("/link", json={"texts": [dense] * 10}))
                    for _ in range(3)
                ]
                await asyncio.sleep(0.2)
                waited = []
                for _ in range(100):
                    began = time.monotonic()
                    answer = await asked.post("/link", json={"texts": ["gout in renal failure"]})
                    assert len(answer.json()["documents"][0]["mentions"]) == 2
                    waited.append(time.monotonic() - began)
                for one in bad:
                    one.cancel()
                return sorted(waited)

        assert asyncio.run(go())[98] < 1
