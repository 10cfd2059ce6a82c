"""A server under clients for as long as is asked, half of them slow or broken.   make soak MINUTES=30

Good clients ask for texts whose mentions are all distinct. Bad ones send half a body and wait, half
a head, broken JSON, too much,
or go away before their answer. Printed: good requests and their errors, p50 and p99, and the
    server's memory after a sixth of the
time and at the end. Exit code 1 when a good request failed.
"""  # noqa: E501

from __future__ import annotations

import argparse
import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import numpy as np

from tests.fakes.graphs import graph

ROOT = Path(__file__).parents[2]
GOOD, BAD = 8, 8
NAMES = 4_000


def word(number: int) -> str:
    """A synthetic word of a number, another one for each."""
    letters = []
    for _ in range(6):
        number, place = divmod(number * 7 + 3, 20)
        letters.append("bcdfghjklmnpqrstvwxz"[place] + "aeiou"[place % 5])
    return "".join(letters)


class Soak:
    """What the clients saw."""

    def __init__(self, address: str, until: float) -> None:
        self.address, self.until = address, until
        self.seconds: list[float] = []
        self.errors: list[str] = []
        self.broken = 0
        self.mentions = 0

    def good(self, number: int) -> None:
        """Texts with mentions that nobody has asked for."""
        with httpx.Client(base_url=self.address, timeout=60) as client:
            count = 0
            while time.monotonic() < self.until:
                places = [(number + GOOD * (count * 4 + i)) % NAMES for i in range(4)]
                texts = [
                    f"A case of {NAMES_OF[p].upper()} x{count} with ({count})." for p in places
                ]
                count += 1
                began = time.monotonic()
                try:
                    answer = client.post("/link", json={"texts": texts})
                    documents = answer.json()["documents"] if answer.status_code == 200 else []
                    if [d["text"] for d in documents] != texts or not all(
                        d["mentions"] for d in documents
                    ):
                        self.errors.append(f"{answer.status_code} {answer.text[:100]}")
                    self.mentions += sum(len(d["mentions"]) for d in documents)
                except (httpx.HTTPError, ValueError, KeyError) as error:
                    self.errors.append(repr(error)[:200])
                self.seconds.append(time.monotonic() - began)

    def bad(self, number: int) -> None:
        """One kind of nuisance after the other."""
        draw = random.Random(number)
        host, port = self.address.removeprefix("http://").split(":")
        head = "POST /link HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        whole = json.dumps({"texts": ["x" * 50_000] * 4})
        kinds = [
            (head + "Content-Length: 500\r\n\r\n{", 40.0),
            ("POST /li", 40.0),
            (head + 'Content-Length: 9\r\n\r\n{"texts":', 1.0),
            (head + "Content-Length: 90000000\r\n\r\n", 1.0),
            (head + f"Content-Length: {len(whole)}\r\n\r\n{whole}", 0.0),
            ("GET /health HTTP/1.1\r\nHost: evil.example.com\r\n\r\n", 1.0),
            ("\x16\x03\x01\x02\x00", 1.0),
        ]
        while time.monotonic() < self.until:
            content, wait = draw.choice(kinds)
            self.broken += 1
            try:
                with socket.create_connection((host, int(port)), timeout=5) as raw:
                    raw.sendall(content.encode("latin-1"))
                    raw.settimeout(max(0.01, min(wait, self.until - time.monotonic())))
                    raw.recv(4096)
            except OSError:
                pass  # that is what it is for
            time.sleep(draw.random() * 0.2)


NAMES_OF = [f"{word(i)} {word(i + NAMES)}" for i in range(NAMES)]


def memory(pid: int) -> float:
    """Resident memory of a process in MB."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--chain", default="dictionary > minilm")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        names = [(f"e{i}", name, "preferred", "en") for i, name in enumerate(NAMES_OF)]
        folder = graph(
            {f"e{i}": "thing" for i in range(NAMES)}, [("e0", "near", "e1")], names
        ).save(Path(place) / "graph")
        words = [
            sys.executable,
            "-m",
            "app.cli",
            "serve",
            "--graph",
            str(folder),
            "--chain",
            given.chain,
            "--port",
            "0",
        ]
        environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            "KEPL_RUNS": place,
            "OMP_NUM_THREADS": "1",
        }
        server = subprocess.Popen(
            words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
        )
        try:
            assert server.stdout is not None
            soak = Soak(server.stdout.readline().split()[0], time.monotonic() + 60 * given.minutes)
            clients = [threading.Thread(target=soak.good, args=(n,)) for n in range(GOOD)]
            clients += [threading.Thread(target=soak.bad, args=(n,)) for n in range(BAD)]
            for client in clients:
                client.start()
            time.sleep(10 * given.minutes)
            early = memory(server.pid)
            for client in clients:
                client.join()
            late = memory(server.pid)
        finally:
            server.terminate()
            server.wait(60)
    p50, p99 = np.percentile(soak.seconds, [50, 99])
    print(
        f"{given.minutes:g} minutes, {GOOD} good and {BAD} bad clients, chain {given.chain!r}\ngood"
        f" requests {len(soak.seconds):,}, of which failed {len(soak.errors):,}; mentions"
        f" {soak.mentions:,}; bad requests {soak.broken:,}\np50 {1000 * p50:.0f} ms, p99"
        f" {1000 * p99:.0f} ms; memory {early:.0f} MB after {given.minutes / 6:g} minutes,"
        f" {late:.0f} MB at the end"
    )
    for error in soak.errors[:5]:
        print(f"  {error}")
    return int(bool(soak.errors))


if __name__ == "__main__":
    sys.exit(main())
