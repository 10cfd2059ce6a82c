"""Work in parts, in this process, in several, or on a Ray cluster; what is done is not done again.

A folder that is made in parts holds

    state.json       what it is being made of, until it is whole
    NAME             a file or a folder for each part, written whole or not at all
    markers/NAME.json
                     what the part was made of, its counts, and the sizes and checksums of its
                     files: it is written last, so that a part with a marker is done, and a part
                     without one is made again
    its manifest     once all parts are there (core.artifact)

Parts do not depend on the number of workers, on interruptions, or on where they are made.

    with parts_folder(out, settings, …) as folder:
        if folder.manifest is None:
            counts = folder.map(make, parts, begin, workers=4)
            folder.finish({…})

ENGINE=ray, or RAY_ADDRESS, in the environment makes the parts with as many Ray actors as there are
workers (the extra `ray`); every machine must see the folder and the inputs under the same paths.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import multiprocessing
import os
import shutil
import signal
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import IO, Any, NamedTuple

from core.artifact import manifest_path, write_manifest
from core.choices import list_known
from core.files import InputError, lock_file, remove_leftovers
from core.json_files import digest, read_json, read_object, write_json
from core.reading import MEBIBYTE, largest_document, limit_documents, sha256

LOG = logging.getLogger(__name__)
ENGINES = ("processes", "ray")
Counts = dict[str, Any]
#: (what `begin` returned, the part's task, path) -> counts: writes the part to `path`, whole or
#: not at all
Make = Callable[[Any, Any, Path], Counts]


class Part(NamedTuple):
    """A part of some work: the name of what it becomes, what it is made of, and a digest of
    that."""

    name: str
    task: Any
    digest: str


def engine_of(engine: str | None = None) -> str:
    """The engine asked for: `engine`, else the environment's. Raises InputError for one that is not
    known."""
    engine = (
        engine
        or os.environ.get("ENGINE")
        or ("ray" if os.environ.get("RAY_ADDRESS") else "processes")
    )
    if engine not in ENGINES:
        raise InputError(f"ENGINE={engine}: {list_known(engine, ENGINES)}")
    return engine


@contextlib.contextmanager
def parts_folder(
    out: str | Path,
    settings: dict[str, Any],
    *,
    what: str,
    pattern: str,
    fresh: bool = False,
    anew: str = "--fresh",
) -> Iterator[PartsFolder]:
    """The folder `out` for parts made with `settings`, for this process alone.

    what     what the folder is to hold, "linked corpus", in errors
    pattern  of the parts' names, "part-*"
    fresh    whether all is made anew; anew: the option that says so, in errors
    Raises InputError when another process works in it, or it holds something else or parts of other
    settings.
    """
    out = Path(out)
    with lock_file(
        out / ".lock", "w", f"{out}: another process is writing it. Wait, or choose another folder."
    ) as lock:
        yield PartsFolder(out, json.loads(json.dumps(settings)), lock, what, pattern, fresh, anew)


class PartsFolder:
    """A folder that is made in parts, locked; `manifest` is that of a whole one, None where parts
    are missing."""

    def __init__(
        self,
        out: Path,
        settings: dict[str, Any],
        lock: IO[Any],
        what: str,
        pattern: str,
        fresh: bool,
        anew: str,
    ) -> None:
        self.out, self.settings, self._lock, self._digest = out, settings, lock, digest(settings)
        self.manifest: dict[str, Any] | None = None
        state, manifest = out / "state.json", manifest_path(out)
        record = next((path for path in (manifest, state) if path.exists()), None)
        if record is None and (other := sorted(p.name for p in out.iterdir() if p.name != ".lock")):
            raise InputError(f"{out}: holds {other[0]!r} and no {what}. Choose another folder.")
        for place in (out, out / "markers"):
            remove_leftovers(place)
        anything = manifest.exists() or any(
            part.is_dir() or part.stat().st_size for part in out.glob(pattern)
        )
        if record and (fresh or not anything):
            for part in out.glob(pattern):
                shutil.rmtree(part) if part.is_dir() else part.unlink()
            shutil.rmtree(out / "markers", ignore_errors=True)
            record = None
        if record:
            was = read_json(record)
            before = was.get("settings") if isinstance(was, dict) else None
            if before != self.settings:
                differ = [
                    k
                    for k in self.settings
                    if not isinstance(before, dict) or before.get(k) != self.settings[k]
                ]
                raise InputError(
                    f"{out}: was begun with other settings ({', '.join(differ)}). Add {anew} to do"
                    " it anew, or choose another folder."
                )
            if record == manifest and all((out / file).is_file() for file in was.get("sha256", ())):
                self.manifest = was
                return
        write_json(state, {"settings": self.settings})
        manifest.unlink(missing_ok=True)

    def _part_digest(self, part: Part) -> str:
        """What a part is made of: its digest and the settings."""
        return digest([self._digest, part.digest])

    def _read_counts(self, part: Part) -> Counts | None:
        """The counts of an existing part, made of what it should be; nothing but its marker is
        read."""
        file = self.out / "markers" / f"{part.name}.json"
        if not file.is_file():
            return None
        marker = read_object(file)
        files = {self.out / path: size for path, (size, _) in marker["files"].items()}
        complete = all(
            path.is_file() and path.stat().st_size == size for path, size in files.items()
        )
        return marker["counts"] if complete and marker["of"] == self._part_digest(part) else None

    def done(self, parts: Sequence[Part]) -> list[Counts]:
        """The counts of those parts that are done."""
        counts = map(self._read_counts, parts)
        return [part_counts for part_counts in counts if part_counts is not None]

    def map(
        self,
        make: Make,
        parts: Sequence[Part],
        begin: Callable[[], Any],
        *,
        workers: int = 1,
        engine: str | None = None,
        finished: Callable[[Counts], Any] = lambda counts: None,
        each: Callable[[Counts], Any] = lambda counts: None,
        gpus: float = 0,
    ) -> list[Counts]:
        """Make the parts that are not done, and return the counts of all, in order.

        make     writes a part and returns its counts, which JSON can hold; the same function and
                 task write the same bytes
        begin    what every part needs, called where parts are made and only if there are any: once
                 for all local processes, which share its memory, and once in each Ray actor
        finished is given the counts of each part that was made, as they come
        each     likewise of every part, also of those that were there; what it removes from them is
                 not kept for all
        gpus     that each Ray actor asks for; what works here, or in processes of this machine,
                 finds them itself

        Raises InputError when a worker is killed, and what `make` and `begin` raise; parts that are
        done stay.
        """
        engine = engine_of(engine)
        counted: dict[str, Counts | None] = {}
        for part in parts:
            counted[part.name] = part_counts = self._read_counts(part)
            if part_counts is not None:
                each(part_counts)
        todo = [part for part in parts if counted[part.name] is None]
        if todo:
            jobs = [(make, part, self.out, self._part_digest(part)) for part in todo]
            workers_used = min(workers, len(jobs))
            if engine == "ray":
                results = _on_ray(jobs, begin, workers, gpus)
            elif workers_used == 1:
                results = _here(jobs, begin)
            else:
                results = _in_processes(jobs, begin, workers_used, self._lock, self.out)
            for name, counts in results:
                counted[name] = counts
                finished(counts)
                each(counts)
        counts_of_parts = (counted[part.name] for part in parts)
        return [part_counts for part_counts in counts_of_parts if part_counts is not None]

    def finish(self, parts: Sequence[Part], facts: dict[str, Any]) -> dict[str, Any]:
        """Write the manifest of the whole folder and return it: `facts`, the settings, and the
        checksums of all files."""
        markers = (read_object(self.out / "markers" / f"{part.name}.json") for part in parts)
        sums: dict[str, str] = {}
        for marker in markers:
            sums |= {name: checksum for name, (_, checksum) in marker["files"].items()}
        self.manifest = {"settings": self.settings, "sha256": sums} | facts
        write_manifest(self.out, self.manifest)
        (self.out / "state.json").unlink(missing_ok=True)
        remove_leftovers(self.out)  # of workers that outlived a run that was killed
        return self.manifest


Job = tuple[Make, Part, Path, str]


def _one(job: Job, begun: Any) -> tuple[str, Counts]:
    """Make a part, and then its marker."""
    make, part, out, whole = job
    path = out / part.name
    counts = make(begun, part.task, path)
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    facts = {
        file.relative_to(out).as_posix(): (file.stat().st_size, sha256(file)) for file in files
    }
    write_json(
        out / "markers" / f"{part.name}.json", {"of": whole, "counts": counts, "files": facts}
    )
    return part.name, counts


def _here(jobs: Sequence[Job], begin: Callable[[], Any]) -> Iterator[tuple[str, Counts]]:
    begun = begin()
    for job in jobs:
        yield _one(job, begun)


# Processes of this machine

#: libraries, and what says how many threads they use
THREADS = {"torch": "set_num_threads", "faiss": "omp_set_num_threads"}
_begun: Any = None  # set in each worker


def use_one_thread() -> None:
    """Compute with one thread from now on: those of the parent are gone after a fork."""
    os.environ["OMP_NUM_THREADS"] = "1"
    for library, limit in THREADS.items():
        if library in sys.modules:
            getattr(sys.modules[library], limit)(1)


def _begin_worker(begun: Any, lock: IO[Any]) -> None:
    global _begun
    _begun = begun
    lock.close()  # the lock is the parent's: a worker that outlives it must not hold it
    use_one_thread()  # each worker is one core
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)  # the parent was killed: nobody waits for this worker


def _work(job: Job) -> tuple[str, Counts]:
    return _one(job, _begun)


def _results(
    pool: ProcessPoolExecutor, jobs: Sequence[Job], workers: int
) -> Iterator[tuple[str, Counts]]:
    waiting = set[Future[tuple[str, Counts]]]()
    for job in jobs:
        waiting.add(pool.submit(_work, job))
        # no more than a worker needs next: after an error, nothing else is begun
        if len(waiting) > 2 * workers:
            ready, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in ready)
    while waiting:
        ready, waiting = wait(waiting, return_when=FIRST_COMPLETED)
        yield from (future.result() for future in ready)


def _in_processes(
    jobs: Sequence[Job], begin: Callable[[], Any], workers: int, lock: IO[Any], out: Path
) -> Iterator[tuple[str, Counts]]:
    begun = begin()
    gc.collect()
    gc.freeze()  # keeps the collector from touching, and so copying, what the workers share
    # workers share what was begun instead of doing it again
    context = multiprocessing.get_context("fork")
    try:
        with ProcessPoolExecutor(workers, context, _begin_worker, (begun, lock)) as pool:
            try:
                yield from _results(pool, jobs, workers)
            except KeyboardInterrupt:  # what a worker had begun is resumed: nobody waits for it
                for process in multiprocessing.active_children():
                    process.terminate()
                raise
    except BrokenProcessPool as error:
        raise InputError(
            f"{out}: a worker process was killed, most likely for want of memory. Run the command"
            " again with fewer workers; finished parts are kept."
        ) from error
    finally:
        gc.unfreeze()


# Ray

GONE = (
    "ENGINE or RAY_ADDRESS asks for Ray, which is not installed. Run: make setup EXTRAS=ray, or"
    " leave both out"
)


# times that a part, or what all parts need, may take a process with it before that is taken for its
# fault
LOST = 4


class _Actor:
    """Makes parts on a node of a Ray cluster. An InputError comes as a value: Ray would treat it as
    a failure of the node."""

    def __init__(self, begin: Callable[[], Any], mebibytes: int) -> None:
        limit_documents(mebibytes)
        self.failed: InputError | None = None
        try:
            self.begun = begin()
        except InputError as error:
            self.failed = error

    def ready(self) -> InputError | None:
        return self.failed

    def one(self, job: Job) -> tuple[str, Counts] | InputError:
        try:
            return _one(job, self.begun)
        except InputError as error:
            return error


def cluster() -> Any:
    """The module ray, connected to the cluster of RAY_ADDRESS, or to one of this machine. Raises
    InputError without Ray."""
    try:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray
        import ray.exceptions
    except ImportError as error:
        raise InputError(GONE) from error
    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    return ray


def _wait_for_actor(ray: Any, running: Mapping[Any, tuple[Any, Job | None]]) -> Any:
    """The first of what is waited for; says once a minute has passed that no worker has begun."""
    reported = False
    while True:
        ready, _ = ray.wait(list(running), num_returns=1, timeout=60)
        if ready:
            return ready[0]
        if not reported and not any(job for _, job in running.values()):
            LOG.warning(
                "no node of the Ray cluster has a free processor, or GPU, for a worker;"
                " waiting for one"
            )
            reported = True


def _count_lost(lost: Counter[str], job: Job | None, place: Any, error: Exception) -> None:
    """Count what went with an actor. Raises InputError at the LOST-th time."""
    what = job[1].name if job else "the start of a worker"
    lost[what] += 1
    if lost[what] >= LOST:
        raise InputError(
            f"{place}: {what} was lost with its process {LOST} times, most likely for want of"
            " memory. Run the command again with fewer workers; finished parts are kept."
        ) from error


def _on_ray(
    jobs: Sequence[Job], begin: Callable[[], Any], workers: int, gpus: float
) -> Iterator[tuple[str, Counts]]:
    """Each part by one of `workers` actors, or as many as there is room for; what an actor or a
    node was lost with, others make.

    Raises InputError where actors ask for a GPU and the cluster has none.
    """
    ray = cluster()
    if gpus and ray.cluster_resources().get("GPU", 0) < gpus:
        raise InputError(
            "parts need a GPU, and the Ray cluster has none. Add a node with one, or use the CPU."
        )
    kind: Any = ray.remote(num_cpus=1, num_gpus=gpus)(_Actor)
    todo, lost = deque(jobs), Counter[str]()
    failed: InputError | None = None
    # what is waited for -> the actor, and its job; none while it begins
    running: dict[Any, tuple[Any, Job | None]] = {}

    def start() -> None:
        actor = kind.remote(begin, largest_document() // MEBIBYTE)
        running[actor.ready.remote()] = actor, None

    try:
        actors = max(1, min(workers, len(jobs)))
        for _ in range(actors):
            start()
        while todo or any(job for _, job in running.values()):
            first = _wait_for_actor(ray, running)
            actor, job = running.pop(first)
            try:
                result = ray.get(first)
            except ray.exceptions.RayActorError as error:  # the process or its node is gone
                _count_lost(lost, job, jobs[0][2], error)
                if job:
                    todo.appendleft(job)
                start()
                continue
            if isinstance(result, InputError):
                failed = failed or result
                todo.clear()  # what others have begun is made to its end
            elif job:
                lost.pop(job[1].name, None)
                yield result
            if todo:
                job = todo.popleft()
                running[actor.one.remote(job)] = actor, job
            else:
                ray.kill(actor)
        if failed:
            raise failed
    finally:
        for actor, _ in running.values():
            ray.kill(actor)
