"""Who is linked next: short texts together in one thread, long ones one after the other in a
process of their own.

A text is never cut, since what a short form or a name means may be said anywhere in it. Instead a
long text (more than LONG characters) is linked beside the short ones, so that nobody waits for
another's long text. Within both lanes clients have their turns one after the other, and so do the
requests of a client, a text a turn. What nobody waits for any more is not begun, and a long text
that is being linked for nobody is stopped.
"""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import signal
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

from core.commands import dies_with_its_parent
from core.executor import use_one_thread
from inference.chain import Pipeline
from inference.detectors import BATCH
from inference.results import as_record

LOG = logging.getLogger("kepl.serve")
LONG = 8_000  #: characters of a text that goes to the other process
TOGETHER = 32_000  #: characters of the texts that are linked together
Answer = tuple[int, bytes]  #: how many mentions a text has, and its document as JSON


class Busy(Exception):
    """As many requests wait as may."""


def link_texts(pipeline: Pipeline, texts: Sequence[str]) -> list[Answer]:
    """Each text with its mentions, as JSON already: of a long text that takes a while, too, and is
    no work for the event loop."""
    linked = []
    for text, mentions in zip(texts, pipeline.link(texts), strict=True):
        document = {"text": text, "mentions": list(map(as_record, mentions))}
        linked.append(
            (len(mentions), json.dumps(document, ensure_ascii=False, allow_nan=False).encode())
        )
    return linked


class Pending:
    """A request that waits: the texts that are left, and an answer for each."""

    def __init__(self, client: str, texts: Sequence[str]) -> None:
        self.client, self.texts = client, texts
        self.answers: list[Answer | None] = [None] * len(texts)
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def set_answer(self, number: int, answer: Answer) -> None:
        self.answers[number] = answer
        if not self.done.done() and all(reply is not None for reply in self.answers):
            self.done.set_result(None)


Turn = tuple[Pending, int]  #: a request, and the number of one of its texts


class Turns:
    """The texts of a lane that wait, in the order of their turns."""

    def __init__(self) -> None:
        # the first has the next turn
        self.clients: dict[str, deque[tuple[Pending, deque[int]]]] = {}

    def add(self, pending: Pending, numbers: Sequence[int]) -> None:
        if numbers:
            self.clients.setdefault(pending.client, deque()).append((pending, deque(numbers)))

    def next(self) -> Turn | None:
        """The next text that somebody waits for; its client and its request go to the end of their
        lines."""
        while self.clients:
            client, requests = next(iter(self.clients.items()))
            del self.clients[client]
            pending, numbers = requests.popleft()
            number = numbers.popleft()
            if pending.done.done():
                numbers.clear()
            if numbers:
                requests.append((pending, numbers))
            if requests:
                self.clients[client] = requests
            if not pending.done.done():
                return pending, number
        return None

    def together(self) -> list[Turn]:
        """The next texts, at most BATCH, and at most TOGETHER characters and one text more."""
        turns: list[Turn] = []
        characters = 0
        while len(turns) < BATCH and characters < TOGETHER and (turn := self.next()):
            turns.append(turn)
            characters += len(turn[0].texts[turn[1]])
        return turns


class Worker:
    """A fork of this process that links long texts; begun again when it has died."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self._start()

    def _start(self) -> None:
        # it shares graph and weights with this process
        context = multiprocessing.get_context("fork")
        self.connection, other = context.Pipe()
        self.process = context.Process(
            target=_serve_worker, args=(self.pipeline, other), daemon=True
        )
        self.process.start()
        other.close()

    def link(self, texts: Sequence[str]) -> list[Answer]:
        """The answers to `texts`. Raises RuntimeError where linking fails, and EOFError when the
        process ends meanwhile."""
        try:
            self.connection.send(list(texts))
            answers: list[Answer] | str = self.connection.recv()
        except (EOFError, OSError) as error:
            self._start()
            raise EOFError("the process that links long texts has ended") from error
        if isinstance(answers, str):
            raise RuntimeError(answers)
        return answers

    def stop(self) -> None:
        """End the process, whatever it does."""
        self.process.kill()


def _serve_worker(pipeline: Pipeline, connection: Connection) -> None:
    dies_with_its_parent()
    # Ctrl+C is the server's, which still answers what waits
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    use_one_thread()
    while True:
        try:
            texts = connection.recv()
        except EOFError:
            return
        try:
            answer: list[Answer] | str = link_texts(pipeline, texts)
        except Exception as error:
            LOG.exception("linking failed")
            answer = f"{type(error).__name__}: {error}"
        connection.send(answer)


class Lanes:
    """Texts of requests, linked in turns. `worker` links the long ones; without it they are linked
    one by one between the others.

    waiting: how many requests may wait
    """

    def __init__(self, pipeline: Pipeline, waiting: int, worker: Worker | None = None) -> None:
        self.pipeline, self.most, self.worker = pipeline, waiting, worker
        self.short, self.long = Turns(), Turns()
        self.come, self.long_come = asyncio.Event(), asyncio.Event()
        self.pending: set[Pending] = set()
        self.threads = ThreadPoolExecutor(1, "kepl-link"), ThreadPoolExecutor(1, "kepl-link-long")

    async def link(self, client: str, texts: Sequence[str]) -> list[Answer]:
        """The answers to a request. Raises Busy; whoever waits for it may cancel it."""
        if len(self.pending) >= self.most:
            raise Busy
        pending = Pending(client, texts)
        sizes = list(map(len, texts))
        self.pending.add(pending)
        self.short.add(pending, [n for n, size in enumerate(sizes) if size <= LONG])
        self.long.add(pending, [n for n, size in enumerate(sizes) if size > LONG])
        self.come.set()
        self.long_come.set()
        try:
            await pending.done
        finally:
            pending.done.cancel()
            self.pending.discard(pending)
        return [answer for answer in pending.answers if answer is not None]

    async def work(self) -> None:
        """Answer what waits, for ever."""
        if self.worker is None:
            await self._work(
                self.come,
                lambda: self.short.together() + ([turn] if (turn := self.long.next()) else []),
                False,
            )
        else:
            short = self._work(self.come, self.short.together, False)
            await asyncio.gather(
                short,
                self._work(self.long_come, lambda: [t] if (t := self.long.next()) else [], True),
            )

    async def _work(self, come: asyncio.Event, take: Any, long: bool) -> None:
        while True:
            turns: list[Turn] = take()
            if not turns:
                come.clear()
                await come.wait()
                continue
            texts = [pending.texts[number] for pending, number in turns]
            try:
                answers = await (
                    self._link_long(turns[0][0], texts) if long else self._link_short(texts)
                )
            # each request that waited gets it as its 500; what comes next is linked all the same
            except Exception as error:
                LOG.exception("linking failed")
                for pending, _ in turns:
                    if not pending.done.done():
                        pending.done.set_exception(error)
                continue
            for (pending, number), answer in zip(turns, answers, strict=True):
                pending.set_answer(number, answer)

    async def _link_short(self, texts: Sequence[str]) -> list[Answer]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.threads[0], link_texts, self.pipeline, texts)

    async def _link_long(self, pending: Pending, texts: Sequence[str]) -> list[Answer]:
        """A long text's answer. The process is stopped when nobody waits for it any more: it would
        be in the others' way."""
        assert self.worker is not None
        working: asyncio.Future[Any] = asyncio.get_running_loop().run_in_executor(
            self.threads[1], self.worker.link, texts
        )
        either: list[asyncio.Future[Any]] = [working, pending.done]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if working.done() or not pending.done.cancelled():
            answers: list[Answer] = await working
            return answers
        self.worker.stop()
        await asyncio.wait([working])
        working.exception()
        return [(0, b"")] * len(texts)

    def close(self) -> None:
        for thread in self.threads:
            thread.shutdown(wait=False, cancel_futures=True)
        if self.worker is not None:
            self.worker.stop()
