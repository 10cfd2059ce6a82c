"""Link a corpus: parallel, in parts, so that an interrupted run goes on where it stopped.

The folder holds part-00000.jsonl ... with a line {"id", "text", "mentions": [{"start", "end", "entity", "score"}]} for
each document, and, once all parts are there, manifest.json. Until then state.json says for which settings the parts
were made. Parts do not depend on the number of workers or on interruptions.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

from tqdm import tqdm

from core.files import InputError, json_lines, locked, read_json, remove_leftovers, sha256, write_json, written
from kg.graph import KnowledgeGraph, fingerprint
from kg.linking.documents import check_options, documents, files_in, format_of, write_documents
from kg.linking.given import GivenLinker
from kg.linking.matcher import DictionaryLinker
from kg.linking.mentions import Document, Mention, checked_mention

FORMAT = 1  # of the folder
RULES = 1  # of the linkers: raise it when they link differently, so that no run mixes old parts with new ones
LINKERS = ("dictionary", "scispacy", "given")


class Counts(NamedTuple):
    documents: int
    mentions: int
    entities: frozenset[str]


def part_name(number: int) -> str:
    return f"part-{number:05d}.jsonl"


def _linker(graph: KnowledgeGraph, name: str, options: dict[str, Any]) -> Any:
    if name == "dictionary":
        return DictionaryLinker.from_graph(graph)
    if name == "given":
        return GivenLinker(graph.ids.to_pylist(), **options)
    from kg.linking.scispacy import ScispacyLinker  # an extra

    return ScispacyLinker.from_graph(graph, **options)


def _write_part(linker: Any, path: Path, chunk: Sequence[Document]) -> Counts:
    count = 0
    entities: set[str] = set()
    with written(path) as handle:
        for document in chunk:
            given = isinstance(linker, GivenLinker)
            mentions: list[Mention] = linker.link_document(document) if given else linker.link(document.text)
            record = {"id": document.id, "text": document.text, "mentions": [m._asdict() for m in mentions]}
            handle.write(json.dumps(record, ensure_ascii=False) + "\n")
            count += len(mentions)
            entities.update(m.entity for m in mentions)
    return Counts(len(chunk), count, frozenset(entities))


def _read_part(path: Path, count: int) -> Iterator[Document]:
    """Documents of a part. Raises InputError when it is missing, a line is broken, or there are not `count` of them."""
    if not path.is_file():
        raise InputError(f"{path}: this part is missing. Run the linking again; it makes the missing parts.")
    number = 0
    again = "Delete this part and run the linking again."
    for number, (where, record) in enumerate(json_lines(path, advice=again), 1):  # noqa: B007 - used after the loop
        try:
            name, text, mentions = record["id"], record["text"], record["mentions"]
            given = [(m["start"], m["end"], m["entity"], m["score"]) for m in mentions]
            if not isinstance(name, str) or not isinstance(text, str):
                raise TypeError("id or text is no string")
        except (KeyError, TypeError) as error:
            raise InputError(f"{where}: wanted one whole line with id, text and mentions ({error!r}). {again}") from error
        checked = (checked_mention(where, text, start, end, entity, score=score) for start, end, entity, score in given)
        yield Document(name, text, tuple(checked), where)
    if number != count:
        raise InputError(
            f"{path}:{number + 1}: this part holds {number} documents, wanted {count}. "
            "Delete it and run the linking again."
        )


def _count_part(path: Path, count: int) -> Counts:
    mentions = [mention for document in _read_part(path, count) for mention in document.mentions]
    return Counts(count, len(mentions), frozenset(m.entity for m in mentions))


_worker_linker: Any = None  # set in each worker by _begin_worker


def _begin_worker(linker: Any, lock: IO[str]) -> None:
    global _worker_linker
    _worker_linker = linker
    lock.close()  # the lock is the parent's: a worker that outlives it must not hold it
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)  # the parent was killed: nobody waits for this worker


def _work(path: Path, chunk: Sequence[Document]) -> Counts:
    return _write_part(_worker_linker, path, chunk)


def _chunks(source: Iterable[Document], size: int) -> Iterator[list[Document]]:
    source = iter(source)
    while chunk := list(islice(source, size)):
        yield chunk


def _results(
    linker: Any, source: Iterable[Document], out: Path, size: int, workers: int, lock: IO[str]
) -> Iterator[tuple[Counts, int]]:
    """For each part in order what it holds and the number of mentions its documents came with; writes missing parts."""
    numbered = ((out / part_name(n), chunk) for n, chunk in enumerate(_chunks(source, size)))
    if workers == 1:
        for path, chunk in numbered:
            counts = _count_part(path, len(chunk)) if path.exists() else _write_part(linker, path, chunk)
            yield counts, sum(len(d.mentions) for d in chunk)
        return
    gc.freeze()  # keeps the collector from touching, and so copying, the linker's pages in each worker
    context = multiprocessing.get_context("fork")  # workers share the automaton instead of building it again
    waiting: deque[tuple[Future[Counts], int]] = deque()
    try:
        with ProcessPoolExecutor(workers, context, _begin_worker, (linker, lock)) as pool:
            for path, chunk in numbered:
                task = partial(_count_part, path, len(chunk)) if path.exists() else partial(_work, path, chunk)
                waiting.append((pool.submit(task), sum(len(d.mentions) for d in chunk)))
                if len(waiting) > 2 * workers:  # the reader must not run far ahead: texts wait in memory
                    done, given = waiting.popleft()
                    yield done.result(), given
            while waiting:
                done, given = waiting.popleft()
                yield done.result(), given
    except BrokenProcessPool as error:
        raise InputError(
            f"{out}: a worker process was killed, most likely for want of memory. Run the command again "
            "with fewer --workers; finished parts are kept."
        ) from error
    finally:
        gc.unfreeze()


def _complete(out: Path, settings: dict[str, Any], fresh: bool) -> bool:
    """Whether `out` already holds all parts for `settings`; if not, make it ready for the missing ones.

    Raises InputError when it holds something else.
    """
    state, manifest = out / "state.json", out / "manifest.json"
    known = next((path for path in (manifest, state) if path.exists()), None)
    if known is None and (other := sorted(p.name for p in out.iterdir() if p.name != ".lock")):
        raise InputError(f"{out}: holds {other[0]!r} and no linked corpus. Choose another folder.")
    remove_leftovers(out)
    if known and fresh:
        for path in (*out.glob("part-*.jsonl"), state, manifest):  # in this order: what is left still says what it is
            path.unlink(missing_ok=True)
        known = None
    if known:
        was = read_json(known)
        before = was.get("settings") if isinstance(was, dict) else None
        if before != settings:
            differ = [k for k in settings if not isinstance(before, dict) or before.get(k) != settings[k]]
            raise InputError(
                f"{out}: was begun with other settings ({', '.join(differ)}). "
                "Add --fresh to do it anew, or choose another folder."
            )
        if known == manifest and all((out / part_name(n)).exists() for n in range(len(was.get("parts", ())))):
            return True
    write_json(state, {"settings": settings})
    manifest.unlink(missing_ok=True)
    return False


def link_corpus(
    graph_folder: str | Path,
    inputs: Sequence[str | Path] = (),
    out: str | Path = "",
    *,
    given: Iterable[Document | tuple[str, str]] | None = None,
    linker: str = "dictionary",
    format: str | None = None,
    workers: int = 1,
    chunk: int = 2000,
    fresh: bool = False,
    empty: str = "error",
    encoding: str = "utf-8",
    unknown: str = "error",
    pipeline: str | Path | None = None,
    threshold: float = 0.85,
    k: int = 30,
    progress: bool = False,
) -> dict[str, Any]:
    """Link the documents of `inputs`, files or folders of them, into folder `out`.

    given: documents in place of inputs; they are written to OUT.documents.jsonl first.

    format, empty, encoding: see kg.linking.documents.  unknown: see GivenLinker.  pipeline, threshold, k: see ScispacyLinker.
    chunk: documents in a part.  Finished parts of an interrupted run are kept; `fresh` makes all anew.

    Returns the manifest, and under `new` whether anything was done. Raises InputError for bad input, finished parts
    intact.
    """
    graph_folder, out = Path(graph_folder), Path(out)
    if linker not in LINKERS:
        raise InputError(f"no linker {linker!r}; choose from: {', '.join(LINKERS)}")
    check_options(format, empty, encoding)
    if workers < 1 or chunk < 1:
        raise InputError(f"wanted at least one worker and one document in a part, got {workers} and {chunk}")
    if out == Path(""):
        raise InputError("out: wanted a folder to write to")
    if given is not None:
        inputs, format = [write_documents(out.with_name(f"{out.name}.documents.jsonl"), given)], "jsonl"
        encoding = "utf-8"
    if not inputs:
        raise InputError("inputs: wanted at least one file")
    unread: Counter[str] = Counter()
    paths = files_in(inputs, unread)
    options: dict[str, Any] = {}
    if linker == "given":
        GivenLinker((), unknown=unknown)  # says at once when there is no such way
        options = {"unknown": unknown}
    elif linker == "scispacy":
        if pipeline is None:
            raise InputError("pipeline: the scispaCy linker wants a spaCy pipeline. Give --pipeline NAME or FOLDER.")
        options = {"pipeline": str(pipeline), "threshold": threshold, "k": k}
    settings = {
        "graph": fingerprint(graph_folder),
        "linker": {"name": linker, "rules": RULES, **options},
        "inputs": [{"name": p.name, "format": format or format_of(p), "sha256": sha256(p)} for p in paths],
        "empty": empty,
        "chunk": chunk,
    }
    if encoding != "utf-8":  # left out otherwise: corpora from before there was a choice go on
        settings["encoding"] = encoding
    with locked(
        out / ".lock", "w", f"{out}: another process is linking into it. Wait, or choose another folder."
    ) as lock:
        if _complete(out, settings, fresh):
            return read_json(out / "manifest.json") | {"new": False}
        model = _linker(KnowledgeGraph.load(graph_folder), linker, options)
        parts: list[int] = []
        mentions, came = 0, 0
        entities: set[str] = set()
        with tqdm(unit=" documents", desc="linking", disable=None if progress else True) as bar:
            for counts, with_it in _results(
                model, documents(paths, format, empty, encoding, unread), out, chunk, workers, lock
            ):
                parts.append(counts.documents)
                mentions, came = mentions + counts.mentions, came + with_it
                entities |= counts.entities
                bar.update(counts.documents)
        if not parts:
            raise InputError(f"{paths[0]}: no document in the input. Check the file and its format.")
        manifest = {
            "format": FORMAT,
            "settings": settings,
            "parts": parts,
            "documents": sum(parts),
            "mentions": mentions,
            "entities": len(entities),
        }
        if linker == "given":
            manifest["left_out"] = came - mentions  # of an unknown id, or overlapping another
        if +unread:
            manifest["unread"] = dict(+unread)  # what the files hold and is no document or mention of one
        write_json(out / "manifest.json", manifest)
        (out / "state.json").unlink()
        remove_leftovers(out)  # of workers that outlived the run that was killed
        return manifest | {"new": True}


def linked(folder: str | Path) -> Iterator[Document]:
    """Documents of a linked corpus with their mentions, in order.

    Raises InputError when the corpus is not finished, a part is missing or cut, or a line is broken.
    """
    folder = Path(folder)
    if not (folder / "manifest.json").is_file():
        raise InputError(f"{folder}: no finished linked corpus (no manifest.json). Run: python -m kg.linking --help")
    manifest = read_json(folder / "manifest.json")
    parts = manifest.get("parts") if isinstance(manifest, dict) else None
    if not isinstance(parts, list) or manifest.get("format") != FORMAT:
        raise InputError(f"{folder}/manifest.json: wanted format {FORMAT} with a list of parts. Link the corpus again.")
    for number, count in enumerate(parts):
        yield from _read_part(folder / part_name(number), count)
