"""Disturb every stage of every paper's pipeline, give the same command again, and compare what
comes out.

    make faults [KILLS=20] [PAPERS="kebiolm zh"] [SEED=0] [JOBS=2]        python -m tests.faults
                                                                          [--kills 20] ...

The pipelines are those of `make pretrain-<paper>` and a fine-tuning behind them, on fake sources
with tiny models. Each stage is run undisturbed twice: what differs between these two (seconds,
dates, ids) is left out of comparisons, and named when it is no value of a JSON file or line of a
page. Then, each time from what the stages before it have left:

    kill     kill -9 to the stage, or to it and all that it has started, at a random moment
    process  of two DDP processes one is killed (trainings of language models)
    disk     a disk that fills up while the stage writes: a small tmpfs where mounting is allowed,
             else a limit of file sizes
    server   the tracking server is killed at a random moment, comes back after the stage, and `kepl
             sync` delivers
    two      the command is started a second time while the first one works (commands)
    input    the input becomes another file of the same size and time at a random moment, and then
             what it was (commands)

"verbs" among the papers are the commands link, predict, embed, evaluate, rerank, sweep, curve,
peers and serve; of serve, a server is killed and started again. `--verbs sweep serve` disturbs only
these.

A fault is survived when the same command then ends with 0 (and, on a full disk, has first ended
with one error instead of a traceback); it is identical when all that is left is what an undisturbed
run leaves, the metrics in MLflow's store included. Exit status 1 when a fault is not survived or
what comes out is another.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import mlflow

from core.tracking import ROOT
from tests import preload
from tests.fakes.tracking import Server
from tests.faults.outcome import STORE, differing, outcome
from tests.faults.pipelines import Step, papers, steps, write_sources
from tests.faults.verbs import VERBS, VerbStep, verb_steps, write_verb_sources

KINDS = ("kill", "process", "disk", "server", "two", "input")
#: the commands of "verbs"
COMMANDS = ("link", "predict", "embed", "evaluate", "rerank", "sweep", "curve", "peers", "serve")
TWO = ["--trainer.devices", "2", "--trainer.strategy", "ddp"]
LIMIT = 300.0  # seconds; a stage that takes longer hangs
Act = Callable[[preload.Process], Any]
# what a stage leaves, which of it differs between any two runs, its seconds
Left = tuple[dict[str, Any], set[str], float]


class Trial(NamedTuple):
    """One fault: whether the command given again ended well, and what differs then."""

    paper: str
    stage: str
    kind: str
    survived: bool
    differs: list[str]
    detail: str = ""


class Ended(NamedTuple):
    code: int | None  # None: it hung
    said: str
    seconds: float


def mounting_is_allowed() -> bool:
    with tempfile.TemporaryDirectory() as place:
        if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], capture_output=True).returncode:
            return False
        subprocess.run(["umount", place], check=True)
    return True


class Pipeline:
    """One paper's stages in a folder of its own: `place`, whose state before and after a stage is
    kept beside it."""

    def __init__(
        self,
        paper: str,
        folder: Path,
        sources: Path,
        store: Path,
        server: str,
        seed: int,
        tmpfs: bool,
        verbs: Iterable[str] = COMMANDS,
    ) -> None:
        self.paper, self.folder, self.server, self.tmpfs, self.store = (
            paper,
            folder,
            server,
            tmpfs,
            store,
        )
        self.place, self.kept = folder / "place", folder / "kept"
        self.place.mkdir(parents=True)
        (self.place / "work").mkdir()
        shutil.copyfile(store, self.place / STORE)
        self.sources = sources
        self.steps = (verb_steps if paper == VERBS else partial(steps, paper))(
            self.place / "work", sources
        )
        self.verbs = set(verbs)
        if paper == VERBS:
            self.steps = [
                step
                for step in self.steps
                if step.words[1] in self.verbs
                or ("predict" in self.verbs and not isinstance(step, VerbStep))
            ]
        self.random = random.Random(f"{seed} {paper}")

    def environment(self, tracking: str | None = None) -> dict[str, str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
        return clean | {
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "KEPL_RUNS": str(self.place / "runs"),
            "MLFLOW_TRACKING_URI": tracking or f"sqlite:///{self.place / STORE}",
        }

    def restored(self) -> None:
        """What the stages before have left, and nothing else."""
        for entry in self.place.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        shutil.copytree(self.kept, self.place, dirs_exist_ok=True)

    def begin(self, words: list[str], log: Any, tracking: str | None = None) -> preload.Process:
        return preload.start(
            self.server,
            [sys.executable, "-m", *words],
            env=self.environment(tracking),
            stdout=log,
            stderr=log,
        )

    def run(
        self,
        words: list[str],
        tracking: str | None = None,
        first: Act | None = None,
        after: float | None = None,
        then: Act = preload.Process.kill,
    ) -> Ended:
        """Run a stage to its end; first(process) is called at its start, then(process) `after`
        seconds, if it still runs."""
        started = time.monotonic()
        with tempfile.TemporaryFile("w+") as log:
            process = self.begin(words, log, tracking)
            if first:
                first(process)
            try:
                if after is not None:
                    try:
                        process.wait(after)
                    except subprocess.TimeoutExpired:
                        then(process)
                code: int | None = process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                code = None
            seconds = time.monotonic() - started
            process.end_session()
            log.seek(0)
            return Ended(code, log.read(), seconds)

    def trials(self, kills: int, kinds: Iterable[str]) -> list[Trial]:
        """Every fault of every stage."""
        found: list[Trial] = []
        for step in self.steps:
            shutil.rmtree(self.kept, ignore_errors=True)
            if isinstance(step, VerbStep):
                step.prepare()
            shutil.copytree(self.place, self.kept)
            if self.paper != VERBS or isinstance(step, VerbStep):
                found += self.run_stage(step, kills, set(kinds))
            self.restored()
            self.needed(step.words)
        if self.paper == VERBS and "kill" in kinds and "serve" in self.verbs:
            found += [self.served(moment) for moment in range(max(1, kills // 5))]
        return found

    def needed(self, words: list[str], tracking: str | None = None) -> Ended:
        ended = self.run(words, tracking)
        if ended.code != 0:
            raise RuntimeError(
                f"{self.paper}: python -m {' '.join(words)}\nfails undisturbed,"
                f" {ended.code}:\n{ended.said[-3000:]}"
            )
        return ended

    def run_stage(self, step: Step, kills: int, kinds: set[str]) -> list[Trial]:
        words, found = step.words, []
        plain = self.undisturbed(words)
        if "kill" in kinds:
            found += [self.killed(step, words, plain) for _ in range(kills)]
        few = max(1, kills // 5)
        if "disk" in kinds:
            found += [self.full_disk(step, words, plain) for _ in range(few)]
        if step.divisible and "process" in kinds:
            two = [*words, *TWO]
            both = self.undisturbed(two)
            found += [self.killed(step, two, both, of_two=number % 2 + 1) for number in range(few)]
        if step.training and "server" in kinds:
            found += [self.server_away(step, words, plain) for _ in range(max(1, few // 2))]
        if isinstance(step, VerbStep) and "two" in kinds:
            found += [self.two_at_once(step, words, plain) for _ in range(few)]
        if isinstance(step, VerbStep) and step.input and "input" in kinds:
            found += [self.changed_input(step, words, plain) for _ in range(few)]
        told = Counter((t.kind, t.survived, not t.differs) for t in found)
        print(
            f"{self.paper:<9}{step.title[:48]:<50}"
            + "; ".join(
                f"{kind}: {sum(n for (k, s, _), n in told.items() if k == kind and s)} of "
                f"{sum(n for (k, *_), n in told.items() if k == kind)} survived, "
                f"{sum(n for (k, s, i), n in told.items() if k == kind and s and i)} identical"
                for kind in KINDS
                if any(k == kind for k, *_ in told)
            ),
            flush=True,
        )
        for trial in found:
            if not trial.survived or trial.differs:
                print(f"    {trial.kind}: {trial.detail} {trial.differs[:6]}", flush=True)
        return found

    def undisturbed(self, words: list[str]) -> Left:
        left, seconds = [], 0.0
        for _ in range(2):
            self.restored()
            seconds = self.needed(words).seconds
            left.append(outcome(self.place))
        always = set(differing(*left))
        if files := [name for name in always if ":" not in name]:
            raise RuntimeError(f"{self.paper}: two undisturbed runs differ in {files}")
        return left[0], always, seconds

    def compared(self, plain: Left) -> list[str]:
        names = [name for name in differing(plain[0], outcome(self.place)) if name not in plain[1]]
        # a command that scores takes its time, and records each of its runs; its working tree may
        # change meanwhile
        if self.paper == VERBS:
            ends = (" times more)", "seconds", ":.commit")
            names = [name for name in names if not name.endswith(ends)]
        return names

    def again(
        self, step: Step, kind: str, words: list[str], plain: Left, detail: str, before: bool = True
    ) -> Trial:
        ended = self.run(words)
        survived = before and ended.code == 0
        said = "" if survived else ended.said[-600:]
        return Trial(
            self.paper,
            step.title,
            kind,
            survived,
            self.compared(plain) if survived else [],
            f"{detail} {said}".strip(),
        )

    def killed(self, step: Step, words: list[str], plain: Left, of_two: int = 0) -> Trial:
        """kill -9 at a random moment; of_two: to the first or second of two processes."""
        self.restored()
        moment = self.random.uniform(0.05, plain[2])
        with_children = not of_two and self.random.random() < 0.5

        other: list[int] = []

        def end(process: preload.Process) -> None:
            with contextlib.suppress(OSError):  # it has just ended by itself
                other.extend(
                    int(p)
                    for p in (
                        Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
                    )
                )
            if with_children:
                process.end_session()
            elif of_two == 2 and other:
                os.kill(other[0], 9)
            else:
                process.kill()

        ended = self.run(words, after=moment, then=end)
        what = f"process {of_two}" if of_two else "with its children" if with_children else "alone"
        kind, hung = ("process" if of_two else "kill"), ended.code is None
        return self.again(
            step,
            kind,
            words,
            plain,
            f"killed {what} at {moment:.2f} s{', then it hung' * hung}",
            not hung,
        )

    def full_disk(self, step: Step, words: list[str], plain: Left) -> Trial:
        """A disk that holds a random share of what the stage writes; then there is room, and the
        command is given again."""
        self.restored()
        share = self.random.random()
        if self.tmpfs:
            needs = lambda p: sum(-(-f.stat().st_size // 4096) * 4096 + 4096 for f in p.rglob("*"))  # noqa: E731
            before = needs(self.kept)
            self.needed(words)
            size = int(before + share * (needs(self.place) - before)) + 65536
            self.restored()
            self.place.rename(self.folder / "aside")
            self.place.mkdir()
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(self.place)], check=True
            )
            try:
                shutil.copytree(self.kept, self.place, dirs_exist_ok=True)
                ended = self.run(words)
                subprocess.run(["mount", "-o", "remount,size=2g", str(self.place)], check=True)
                detail = f"full at {share:.2f}: {ended.code} {_error_line(ended)}"
                trial = self.again(step, "disk", words, plain, detail, _one_error(ended))
            finally:
                subprocess.run(["umount", "-l", str(self.place)], check=True)
                self.place.rmdir()
                (self.folder / "aside").rename(self.place)
            return trial
        largest = max(
            f.stat().st_size for f in self.place.rglob("*") if f.is_file() and f.name != STORE
        )
        size = int(share * largest)
        ended = self.run(
            words,
            first=lambda process: resource.prlimit(
                process.pid, resource.RLIMIT_FSIZE, (size, size)
            ),
        )
        detail = f"files of {size} bytes: {ended.code} {_error_line(ended)}"
        return self.again(step, "disk", words, plain, detail, _one_error(ended))

    def server_away(self, step: Step, words: list[str], plain: Left) -> Trial:
        """The tracking server is killed at a random moment and comes back when the stage has ended;
        `kepl sync` delivers."""
        self.restored()
        moment = self.random.uniform(0.05, plain[2])
        with Server(f"sqlite:///{self.place / STORE}", self.place) as server:
            ended = self.run(words, server.address, after=moment, then=lambda _: server.kill())
            if server.process is None:
                server.start()
            delivered = self.run(["app.cli", "sync"], server.address)
        survived = ended.code == 0 and delivered.code == 0
        said = (
            ""
            if survived
            else f"{ended.code} {ended.said[-600:]} {delivered.code} {delivered.said[-300:]}"
        )
        # its address
        differs = (
            [name for name in self.compared(plain) if not name.endswith(":.tracking_uri")]
            if survived
            else []
        )
        return Trial(
            self.paper,
            step.title,
            "server",
            survived,
            differs,
            f"killed at {moment:.2f} s {said}".strip(),
        )

    def two_at_once(self, step: Step, words: list[str], plain: Left) -> Trial:
        """A second process of the same command: both end, none with more than one error, and what
        is left is whole."""
        self.restored()
        moment = self.random.uniform(0.0, plain[2])
        seconds: list[Ended] = []
        second = threading.Thread(
            target=lambda: (time.sleep(moment), seconds.append(self.run(words)))
        )
        second.start()
        first = self.run(words)
        second.join()
        ended = [first, *seconds]
        well = all(_one_error(one) for one in ended) and any(one.code == 0 for one in ended)
        said = "; ".join(_error_line(one) for one in ended if one.code)
        return self.again(step, "two", words, plain, f"again at {moment:.2f} s: {said}", well)

    def changed_input(self, step: VerbStep, words: list[str], plain: Left) -> Trial:
        """Another content at equal size and time; a result is only accepted of one of the two, and
        never of a mixture."""
        self.restored()
        assert step.input is not None
        before, times = step.input.read_bytes(), os.stat(step.input)
        moment = self.random.uniform(0.05, plain[2])
        file = step.input

        def put(content: bytes) -> None:
            file.write_bytes(content)
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))

        timer = threading.Timer(moment, lambda: put(before.replace(b"heart", b"heard")))
        timer.start()
        ended = self.run(words)
        timer.join()
        put(before)
        detail = (
            f"changed at {moment:.2f} s: {ended.code} {_error_line(ended) if ended.code else ''}"
        )
        well = _one_error(ended)
        # of what the input was before, or of what it was then, which the next command notices
        if ended.code == 0:
            second = self.run(words)
            well = _one_error(second) and not (second.code == 0 and self.compared(plain))
        return self.again(step, "input", [*words, "--fresh"], plain, detail, well)

    def served(self, number: int) -> Trial:
        """A server is killed under its requests and started again at the same port: it answers as
        before."""
        self.restored()
        words = [
            "app.cli",
            "serve",
            "--graph",
            str(self.sources / "graph"),
            "--port",
            str(free_port()),
        ]
        answers: list[Any] = []
        survived = True
        for kill in (True, False):
            with tempfile.TemporaryFile("w+") as log:
                process = self.begin(words, log)
                try:
                    answers.append(_answer(int(words[-1])))
                    # the port is taken
                    survived &= _one_error(second := self.run(words)) and second.code != 0
                except OSError as error:
                    survived, answers = False, [*answers, str(error)]
                process.kill() if kill else process.end_session()
                process.end_session()
        same = len(answers) == 2 and answers[0] == answers[1]
        return Trial(
            self.paper,
            "serve",
            "kill",
            survived,
            [] if same else ["answer"],
            f"{number}: {answers}"[:300],
        )


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _answer(port: int, seconds: float = 60.0) -> Any:
    """What a server answers, once it does."""
    body = json.dumps({"texts": ["a heart attack"]}).encode()
    asked = urllib.request.Request(
        f"http://127.0.0.1:{port}/link", body, {"Content-Type": "application/json"}
    )
    until = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(asked, timeout=10) as answer:
                return json.load(answer)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


def _error_line(ended: Ended) -> str:
    lines = [line for line in ended.said.splitlines() if line.startswith("error:")]
    return lines[-1] if lines else ended.said[-300:]


def _one_error(ended: Ended) -> bool:
    """It had room enough after all, or ended with one error."""
    return ended.code == 0 or (
        ended.code is not None
        and "\nerror: " in f"\n{ended.said}"
        and "Traceback" not in ended.said
    )


def summary(trials: list[Trial]) -> str:
    lines = []
    for kind in KINDS:
        if own := [t for t in trials if t.kind == kind]:
            survived = [t for t in own if t.survived]
            same = sum(not t.differs for t in survived)
            lines.append(
                f"{kind:<8} survived {len(survived)} of {len(own)}, identical {same} of {len(own)}"
            )
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.faults", description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument(
        "--kills",
        type=int,
        default=20,
        help="kills of each stage; a fifth of them of the other faults",
    )
    known = [*papers(), VERBS]
    parser.add_argument(
        "--papers", nargs="*", choices=known, default=known, metavar="PAPER", help=", ".join(known)
    )
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS, help="kinds of faults")
    parser.add_argument(
        "--verbs", nargs="*", choices=COMMANDS, default=COMMANDS, help="commands, of verbs"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the random moments")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="pipelines at the same time"
    )
    given = parser.parse_args(argv)
    started, tmpfs = time.monotonic(), mounting_is_allowed()
    with tempfile.TemporaryDirectory(prefix="kepl-faults-") as name:
        folder = Path(name)
        mlflow.MlflowClient(f"sqlite:///{folder / 'first.db'}").search_experiments()
        # an empty store: making its tables takes seconds
        shutil.copyfile(folder / "first.db", folder / STORE)
        write_sources(folder / "sources")
        write_verb_sources(folder / "sources" / VERBS)
        server = preload.serve(address=f"{folder}/server")

        def pipeline(paper: str) -> list[Trial]:
            sources = folder / "sources" / VERBS if paper == VERBS else folder / "sources"
            made = Pipeline(
                paper,
                folder / paper,
                sources,
                folder / STORE,
                server,
                given.seed,
                tmpfs,
                given.verbs,
            )
            try:
                return made.trials(given.kills, given.kinds)
            except Exception as error:  # noqa: BLE001  the other pipelines continue; it counts as a fault that is not survived
                print(f"{paper:<9}{type(error).__name__}: {error}", flush=True)
                return [Trial(paper, "", "kill", False, [], str(error))]

        with ThreadPoolExecutor(given.jobs) as threads:
            trials = [
                trial for own in threads.map(pipeline, given.papers or known) for trial in own
            ]
    print(
        f"disk: {'a small tmpfs' if tmpfs else 'a limit of file sizes'};"
        f" {time.monotonic() - started:.0f} s\n{summary(trials)}"
    )
    return 1 if any(not t.survived or t.differs for t in trials) else 0


if __name__ == "__main__":
    sys.exit(main())
