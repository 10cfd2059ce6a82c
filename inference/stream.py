"""Files of texts through a chain or a fine-tuned model, in bounded memory; a stopped run resumes.

The inputs are read in parts (core.executor), whose records are kept in the folder OUTPUT.parts as
JSON lines, complete batches at a time. A run that finds it, with the same models, settings and
input files, resumes after the last complete batch; others are refused. At the end the lines become
the format of OUTPUT, and the folder is removed: OUTPUT is complete, or absent.

    link_files      documents -> {id, text, mentions [{start, end, text, type, score, entity, name,
                    candidates, …}]}
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from tqdm import tqdm

from core.artifact import check_files
from core.executor import PartsFolder, parts_folder
from core.files import InputError, explain_failures, lock_file, put_in_place
from core.json_files import json_lines
from core.outputs import Output
from core.reading import Span
from core.stopping import report_interrupt
from core.typed import check_types
from inference.detectors import BATCH
from inference.ids import DifferentIds, IdCounter, check_ids, warn_of_repeated
from inference.options import TextFiles, Work
from inference.output_formats import format_of, format_records, plain_id
from inference.results import as_records
from kg.documents.formats import (
    LINES,
    Document,
    documents,
    files_in,
    is_consumed,
    resolve_format,
    spool_inputs,
)
from kg.documents.mentions import BY_LINE, Layout
from kg.documents.parts import INPUTS, Plan, make_plan

if TYPE_CHECKING:
    from inference.chain import Pipeline

LOG = logging.getLogger(__name__)
#: bytes of a part of small inputs; parts, about, of large ones
SMALLEST, MOST_PARTS = 256 << 10, 1000
T = TypeVar("T")


class Counts(NamedTuple):
    """What an output holds: lines, their mentions, those with an entity, and relations."""

    documents: int
    mentions: int
    linked: int
    relations: int = 0


def count_lines(lines: Iterable[dict[str, Any]]) -> Counts:
    """Counts of some lines. Raises KeyError or TypeError for what is no line of an output."""
    documents = mentions = linked = relations = 0
    for line in lines:
        annotated = line.get("mentions", ())
        documents, mentions = documents + 1, mentions + len(annotated)
        linked += sum(m.get("entity") is not None for m in annotated)
        relations += len(line.get("relations", ()))
    return Counts(documents, mentions, linked, relations)


def _sum(first: Counts, second: Counts) -> Counts:
    return Counts(*map(sum, zip(first, second, strict=True)))


def _complete_batches(begun: Path) -> tuple[int, Counts]:
    """(bytes, counts) of the complete batches in a part that was begun."""
    size, counts, batch = 0, Counts(0, 0, 0), Counts(0, 0, 0)
    length = 0
    with open(begun, "rb") as handle:
        for line in handle:
            if not line.endswith(b"\n"):
                break
            try:
                batch = _sum(batch, count_lines([json.loads(line)]))
            except (ValueError, KeyError, TypeError, AttributeError):
                break
            length += len(line)
            if batch.documents == BATCH:
                size, counts, batch, length = size + length, _sum(counts, batch), Counts(0, 0, 0), 0
    return size, counts


def batches(source: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of `size` items, the last one shorter."""
    iterator = iter(source)
    while batch := list(islice(iterator, size)):
        yield batch


Process = Callable[[list[Any]], list[dict[str, Any]]]


class Source(Protocol):
    """Reads the items of some spans of the input files, in order, and counts what it leaves out."""

    def __call__(
        self, files: Sequence[Span], *, left_out: Counter[str] | None
    ) -> Iterable[Any]: ...


class Job(NamedTuple):
    """What is done with the items of files.

    process   a batch of items -> a record of each; a Ray actor gets a copy
    source    reads the items; pickled for each part
    settings  everything that decides a record besides the input files
    name      what is done, in a word, for the bar
    device    where
    """

    process: Process
    source: Source
    settings: dict[str, Any]
    name: str
    device: str

    @property
    def layout(self) -> Layout:
        return self.settings.get("layout", BY_LINE)


def _write_part(
    process: Process, spans: Sequence[Span], path: Path, *, source: Source
) -> dict[str, Any]:
    """Write the records of the items in `spans` to `path`, a batch at a time; what an earlier run
    had begun is resumed."""
    begun, left_out = path.with_name(f"{path.name}.begun"), Counter[str]()
    taken = f"{begun}: another process is writing it. Wait for it, or give another output."
    with explain_failures(path), lock_file(begun, "ab+", taken) as handle:
        size, done = _complete_batches(begun)
        handle.truncate(size)
        for batch in batches(islice(source(spans, left_out=left_out), done.documents, None), BATCH):
            records = process(batch)
            handle.write(
                "".join(
                    json.dumps(record, ensure_ascii=False) + "\n" for record in records
                ).encode()
            )
            handle.flush()
            done = _sum(done, count_lines(records))
        put_in_place(begun, path)
    return done._asdict() | {"left_out": dict(+left_out)}


def process_files(
    job: Job,
    inputs: Sequence[str | Path],
    output: str | Path,
    reading: TextFiles,
    *,
    report: Callable[[str], None] = print,
    left_out: Counter[str] | None = None,
    work: Work | None = None,
) -> Counts:
    """Write the records of the items in `inputs` to `output`, which is only resumed with the same
    settings.

    left_out  counts what the files, and the folders among them, hold and is not used
    work      who makes the parts: not a part of the settings, since the records do not
              depend on it (but for the last bit of a score, where the number of threads differs)

    Raises InputError for an input that cannot be read, an output that another process writes, and
    one that was begun with other settings or of other files.
    """
    if not inputs:
        raise InputError("inputs: expected at least one file or folder, got none")
    wanted, workers = format_of(output, reading.to), (work or Work()).settings(job.device)
    target = Output(output, inputs)
    if target.stream and workers["workers"] == 1 and _flows(inputs, reading.format, job.layout):
        counts, unused = _process_stream(job, inputs[0], target, wanted)
        if left_out is not None:
            left_out.update(unused)
        return counts
    finished = _process_parts(job, inputs, target, reading, wanted, workers, report)
    if left_out is not None:
        left_out.update(finished["left_out"])
    warn_of_repeated(target.path, finished.get("repeated_ids", 0))
    counts = Counts(**finished["counts"])
    if not counts.documents:
        raise InputError(
            f"{inputs[0]}: no document in the input. Check the files and their format."
        )
    return counts


def _process_parts(
    job: Job,
    inputs: Sequence[str | Path],
    target: Output,
    reading: TextFiles,
    format: str,
    workers: dict[str, Any],
    report: Callable[[str], None],
) -> dict[str, Any]:
    """Write the records of the items in `inputs` by way of parts, unless the output is complete.
    Returns what the output says of itself."""
    with (
        spool_inputs(inputs) as (spooled, copies),
        _parts_place(target) as place,
        report_interrupt(lambda: _describe_kept(place, target)),
    ):
        unused = Counter[str]()
        files = [file.resolve() for file in files_in(spooled, unused)]
        target.check_inputs(files)
        size = max(SMALLEST, sum(file.stat().st_size for file in files) // MOST_PARTS)
        plan = make_plan(place, files, reading.format, size, job.layout)
        names = [str(file).removeprefix(copies) for file in files]
        made_of = job.settings | {
            "inputs": [list(pair) for pair in zip(names, plan.checksums, strict=True)]
        }
        settings = made_of | {"output_format": format}
        finished = target.read_finished(settings, reading.fresh)
        if finished is None:
            with parts_folder(
                place, made_of, what="parts of an output", pattern="part-*", fresh=reading.fresh
            ) as folder:
                facts = _write_parts(job, folder, plan, workers, target, report)
                paths = [place / part.name for part in plan.make_parts()]
                places = partial(_places, job.source, files)
                finished = _summarise(facts, unused, paths, format, places)
                if finished["counts"]["documents"]:
                    _write_output(target, paths, format, settings, finished)
        else:
            report(f"{target.path}: already complete; --fresh makes it again")
        if (place / INPUTS).is_file():  # the parts of this output, which are needed no more
            shutil.rmtree(place)
    return finished


def _summarise(
    facts: Sequence[dict[str, Any]],
    left_out: Counter[str],
    paths: Sequence[Path],
    format: str,
    places: Callable[[], Any],
) -> dict[str, Any]:
    """What an output says of itself, from the facts of its parts, which are the files `paths`."""
    for part in facts:
        left_out.update(part.pop("left_out"))
    written_id = plain_id if format == "pubtator" else str
    return {
        "counts": {key: sum(part[key] for part in facts) for key in Counts._fields},
        "left_out": dict(+left_out),
        "repeated_ids": check_ids(paths, written_id, places),
    }


def _flows(inputs: Sequence[str | Path], format: str | None, layout: Layout) -> bool:
    """Whether the input is one that is gone once it is read, in a format of lines: a record can be
    written before the input ends."""
    if len(inputs) != 1:
        return False
    path = _opened_path(inputs[0])
    return is_consumed(path) and resolve_format(format, layout, path) in LINES


def _opened_path(path: str | Path) -> Path:
    return Path("/dev/stdin" if str(path) == "-" else path)


def _process_stream(
    job: Job, source: str | Path, target: Output, format: str
) -> tuple[Counts, Counter[str]]:
    """Write each batch's records to a stream as soon as the batch is read. Returns the counts, and
    what was left out."""
    unused, counts = Counter[str](), Counts(0, 0, 0)
    counter, different = IdCounter(str), DifferentIds(plain_id)

    def records() -> Iterator[dict[str, Any]]:
        nonlocal counts
        for batch in batches(job.source([Span(_opened_path(source))], left_out=unused), BATCH):
            if format == "pubtator":
                for document in batch:
                    different.check(document.id, document.where)
            answers = job.process(batch)
            for record in answers:
                counter.add(record["id"])
                yield record
            counts = _sum(counts, count_lines(answers))
            out.flush()

    written = "what is written is complete; the rest of the input is not read"
    with report_interrupt(lambda: written), target.atomic_write({}, {}) as out:
        if format == "jsonl":
            out.writelines(json.dumps(answer, ensure_ascii=False) + "\n" for answer in records())
        else:
            out.writelines(format_records(records(), format))
    warn_of_repeated(target.path, counter.count().repeated)
    return counts, +unused


def _describe_kept(place: Path, target: Output) -> str:
    """What a stopped run leaves of an output."""
    if target.stream:
        return f"nothing is written to {target.path}; give the same command again"
    documents = _count_begun(place)
    for part in place.glob("part-*.jsonl"):
        with open(part, "rb") as handle:
            documents += sum(1 for _ in handle)
    if not documents:
        return "nothing new is kept; give the same command again"
    return (
        f"{documents:,} documents are kept beside {target.path}; the same command resumes after"
        " them"
    )


def _count_begun(place: Path) -> int:
    """Documents that parts which were begun hold, and that are not made again."""
    return sum(_complete_batches(part)[1].documents for part in place.glob("part-*.begun"))


def _places(source: Source, files: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """(id, file and line) of every document of the inputs."""
    for document in source([Span(file) for file in files], left_out=Counter()):
        yield document.id, document.where


@contextlib.contextmanager
def _parts_place(target: Output) -> Iterator[Path]:
    """The folder of an output's parts: beside a file; of a stream a temporary one."""
    if not target.stream:
        yield target.sibling_path(".parts")
        return
    with tempfile.TemporaryDirectory(prefix="kepl-parts-") as folder:
        yield Path(folder) / "parts"


def _write_parts(
    job: Job,
    folder: PartsFolder,
    plan: Plan,
    workers: Any,
    target: Output,
    report: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Write what is missing of an output's parts; returns the counts of all. Raises InputError for
    an input that changed."""
    todo = plan.save(folder.out)
    finished = sum(totals["documents"] for totals in folder.done(todo))
    if earlier := finished + _count_begun(folder.out):
        report(f"{target.path}: resuming after {earlier:,} documents")
    with tqdm(initial=finished, desc=job.name, unit="document", disable=None) as bar:
        counts = folder.map(
            partial(_write_part, source=job.source),
            todo,
            lambda: job.process,
            finished=lambda totals: bar.update(totals["documents"]),
            **workers,
        )
    try:
        plan.check_unchanged()
    except InputError:
        # no part may be used again: which of them the change is in is not known
        shutil.rmtree(folder.out)
        raise
    checksums = folder.finish(todo, {})["sha256"]
    check_files(folder.out, checksums, f"Remove {folder.out} and run the command again.")
    return counts


def _write_output(
    target: Output,
    parts: Sequence[Path],
    format: str,
    settings: dict[str, Any],
    facts: dict[str, Any],
) -> None:
    """Put the parts of an output together, in its format."""
    if format == "jsonl":
        with target.atomic_write(settings, facts, "wb") as out:
            for path in parts:
                with open(path, "rb") as part:
                    shutil.copyfileobj(part, out)
        return
    records = (record for path in parts for _, record in json_lines(path))
    with target.atomic_write(settings, facts) as out:
        out.writelines(format_records(records, format))


@check_types
def link_files(
    pipeline: Pipeline,
    inputs: Sequence[str | Path],
    output: str | Path,
    reading: TextFiles = TextFiles(),
    *,
    report: Callable[[str], None] = print,
    left_out: Counter[str] | None = None,
    work: Work | None = None,
) -> Counts:
    """Link the documents of files and folders with a chain.

    report: shows the one line about resuming. left_out: counts what the files hold and is not used,
    {what it is: how often}. work: who makes the parts of the output. Raises InputError as
    :func:`process_files`.
    """
    if work and work.workers > 1:
        pipeline.prepare()  # once, before there are several
    chosen = reading.settings(inputs)
    job = Job(
        partial(_link_batch, pipeline),
        partial(documents, **chosen, used=False),
        pipeline.settings | chosen,
        "linking",
        pipeline.options.device,
    )
    return process_files(job, inputs, output, reading, report=report, left_out=left_out, work=work)


def _link_batch(pipeline: Pipeline, batch: list[Document]) -> list[dict[str, Any]]:
    """A record of each document of a batch."""
    return as_records(batch, pipeline.link([document.text for document in batch]))
