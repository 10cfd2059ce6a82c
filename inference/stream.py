"""Files of texts through a chain or a fine-tuned model, in bounded memory; a stopped run resumes.

The inputs are read in parts (core.executor), whose records are kept in the folder OUTPUT.parts as
JSON lines, complete batches at a time. A run that finds it, with the same models, settings and
input files, resumes after the last complete batch; others are refused. At the end the lines become
the format of OUTPUT, and the folder is removed: OUTPUT is complete, or absent.

    link_files      documents -> {id, text, mentions [{start, end, text, type, score, entity, name,
                    candidates, …}]}
    predict_files   tagger     documents -> {id, text, mentions [{start, end, text, type, score}]}
                    relations  documents with mentions -> {id, text, mentions, relations [{first,
                    second, label, score}]}
                    pairs      {id, first, second} -> the same and {label, score}
                    ranking    {id, question, answers} -> {id, question, answers [{number, text,
                               score}]}, best first
    predict_task    examples of a task -> their records, read as fine-tuning reads its scored split
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from tqdm import tqdm

from core.artifact import check_files
from core.executor import PartsFolder, parts_folder
from core.files import InputError, explaining, locked, renamed
from core.json_files import digest, json_lines
from core.outputs import Output, check_ending
from core.reading import Span, excerpt, unpacked_name
from core.spreadsheets import CsvWriter
from core.stopping import keeping
from core.typed import typed
from datamodules.tasks import Pair, Relation, Tagged
from inference.attributes import describe
from inference.detectors import BATCH, Detected, TaggerDetector, united
from inference.ids import DifferentIds, IdCounter, check_ids
from inference.options import InputFormat, TextFiles, Work
from kg.documents.annotations import MENTION_COLUMNS, mention_rows
from kg.documents.bioc import HEAD, TAIL, bioc_document, biocjson_document
from kg.documents.formats import (
    INPUTS,
    LINES,
    Document,
    Plan,
    check_options,
    documents,
    files_in,
    is_consumed,
    planned,
    pubtator_annotations,
    resolve_format,
    spooled,
)
from kg.documents.mentions import BY_LINE, Layout
from kg.linking.passage import Passage

if TYPE_CHECKING:
    from inference.chain import Pipeline
    from inference.taggers import EntityTagger, PairModel, Ranker, RelationModel

LOG = logging.getLogger(__name__)
FORMATS = ("jsonl", "pubtator", "bioc", "biocjson", "csv", "tsv")
#: of outputs, whose names may also end in .gz, .bz2 or .xz
ENDINGS = (".jsonl", ".ndjson", ".json", ".pubtator", ".xml", ".csv", ".tsv")
#: bytes of a part of small inputs; parts, about, of large ones
SMALLEST, MOST_PARTS = 256 << 10, 1000
T = TypeVar("T")


class Counts(NamedTuple):
    """What an output holds: lines, their mentions, those with an entity, and relations."""

    documents: int
    mentions: int
    linked: int
    relations: int = 0


def format_of(output: str | Path, format: str | None) -> str:
    """The format of an output file: as given, else by its name. Raises InputError, also for a name
    of another ending."""
    if format is None:
        name = unpacked_name(output).lower()
        ending = Path(name).suffix
        if "pubtator" in name and ending not in (".jsonl", ".ndjson", ".json", ".xml"):
            return "pubtator"
        ending = check_ending(output, ENDINGS, f"give --to: one of {', '.join(FORMATS)}")
        if ending in (".csv", ".tsv"):
            return ending[1:]
        if ending == ".xml":
            return "bioc"
        return "biocjson" if ending == ".json" and "bioc" in name else "jsonl"
    if format not in FORMATS:
        raise InputError(f"no format {format!r}; choose from: {', '.join(FORMATS)}")
    return format


#: no text of PubTator: what parts its lines and columns, for other programs too; each becomes a
#: blank, so that offsets hold
_SEPARATORS = dict.fromkeys(map(ord, "\0\t\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029|\ufeff"), " ")


#: the same but for the bar, which is between the ids of a composite mention
_SEPARATORS_OF_COLUMNS = {place: " " for place in _SEPARATORS if place != ord("|")}


def _plain(value: Any, separators: dict[int, str] = _SEPARATORS_OF_COLUMNS) -> str:
    """A value without what parts lines and columns of PubTator; - where nothing is left."""
    text = str(value).translate(separators)
    return text if text.strip() else "-"


def _plain_id(value: Any) -> str:
    """A document's id without what parts lines, columns and the parts of a title."""
    return _plain(value, _SEPARATORS)


def pubtator(line: dict[str, Any]) -> str:
    """A record as PubTator: the text as title (its line ends as blanks, so that offsets hold) and
    an empty abstract.

    A mention that is linked to nothing has the id -. What else is said of a mention is in a seventh
    column, which readers of PubTator leave out: negated=true; part=breast cancer.
    """
    text = line["text"].translate(_SEPARATORS)
    name = _plain_id(line["id"])
    rows = [f"{name}|t|{text}", f"{name}|a|"]
    for m in line["mentions"]:
        surface = text[m["start"] : m["end"]]
        entity = m.get("entity")
        described = [_plain(m["type"] or "-"), _plain("-" if entity is None else entity)]
        said = "; ".join(f"{key}={_plain(value)}" for key, value in describe(m).items())
        rows.append(
            "\t".join(
                [
                    name,
                    str(m["start"]),
                    str(m["end"]),
                    surface,
                    *described,
                    *([said] if said else []),
                ]
            )
        )
    return "\n".join(rows) + "\n\n"


def _infons(mention: dict[str, Any]) -> dict[str, str]:
    """What BioC says of a mention; without an entity it has the identifier -, as PubTator's."""
    shown = {
        "type": mention["type"],
        "identifier": mention.get("entity") or "-",
        "name": mention.get("name"),
        "score": mention["score"],
    }
    return {key: str(value) for key, value in shown.items() if value is not None} | describe(
        mention
    )


def bioc(lines: Iterable[dict[str, Any]], json_: bool) -> Iterator[str]:
    """Records as the parts of a BioC file, in XML or in JSON."""
    yield (
        '{"source": "KEPL", "date": "", "key": "", "infons": {}, "documents": [\n'
        if json_
        else HEAD
    )
    for number, line in enumerate(lines):
        parts = (
            str(line["id"]),
            line["text"],
            [(m["start"], m["end"], _infons(m)) for m in line["mentions"]],
        )
        if json_:
            yield (",\n" if number else "") + json.dumps(
                biocjson_document(*parts), ensure_ascii=False
            )
        else:
            yield bioc_document(*parts)
    yield "\n]}\n" if json_ else TAIL


def formatted(lines: Iterable[dict[str, Any]], format: str) -> Iterator[str]:
    """Records as the parts of a file of `format`, a key of FORMATS other than jsonl."""
    if format in ("csv", "tsv"):
        return tabular(lines, "," if format == "csv" else "\t")
    return map(pubtator, lines) if format == "pubtator" else bioc(lines, format == "biocjson")


def tabular(lines: Iterable[dict[str, Any]], delimiter: str) -> Iterator[str]:
    """Records as the rows of a table, one a mention, under a heading (MENTION_COLUMNS)."""
    part = io.StringIO(newline="")
    writer = CsvWriter(part, delimiter=delimiter)
    writer.writerow(MENTION_COLUMNS)
    for line in lines:
        for row in mention_rows(line):
            writer.writerow(row)
        yield part.getvalue()
        part.seek(0)
        part.truncate()
    yield part.getvalue()


def _counted(lines: Iterable[dict[str, Any]]) -> Counts:
    """Counts of some lines. Raises KeyError or TypeError for what is no line of an output."""
    documents = mentions = linked = relations = 0
    for line in lines:
        found = line.get("mentions", ())
        documents, mentions = documents + 1, mentions + len(found)
        linked += sum(m.get("entity") is not None for m in found)
        relations += len(line.get("relations", ()))
    return Counts(documents, mentions, linked, relations)


def _sum(one: Counts, two: Counts) -> Counts:
    return Counts(*map(sum, zip(one, two, strict=True)))


def _complete_batches(begun: Path) -> tuple[int, Counts]:
    """(bytes, counts) of the complete batches in a part that was begun."""
    size, counts, batch = 0, Counts(0, 0, 0), Counts(0, 0, 0)
    length = 0
    with open(begun, "rb") as handle:
        for line in handle:
            if not line.endswith(b"\n"):
                break
            try:
                batch = _sum(batch, _counted([json.loads(line)]))
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


def _write_part(
    process: Process, spans: Sequence[Span], path: Path, *, source: Source
) -> dict[str, Any]:
    """Write the records of the items in `spans` to `path`, a batch at a time; what an earlier run
    had begun is resumed."""
    begun, left_out = path.with_name(f"{path.name}.begun"), Counter[str]()
    taken = f"{begun}: another process is writing it. Wait for it, or give another output."
    with explaining(path), locked(begun, "ab+", taken) as handle:
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
            done = _sum(done, _counted(records))
        renamed(begun, path)
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
    layout = job.settings.get("layout", BY_LINE)
    target = Output(output, inputs)
    if target.stream and workers["workers"] == 1 and _flows(inputs, reading.format, layout):
        counts, unused = _process_stream(job, inputs[0], target, wanted)
        if left_out is not None:
            left_out.update(unused)
        return counts
    with (
        spooled(inputs) as (given, copies),
        _parts_place(target) as place,
        keeping(lambda: _describe_kept(place, target)),
    ):
        unused = Counter[str]()
        files = [file.resolve() for file in files_in(given, unused)]
        target.check_inputs(files)
        size = max(SMALLEST, sum(file.stat().st_size for file in files) // MOST_PARTS)
        plan = planned(place, files, reading.format, size, layout)
        names = [str(file).removeprefix(copies) for file in files]
        made_of = job.settings | {
            "inputs": [list(pair) for pair in zip(names, plan.checksums, strict=True)]
        }
        finished = target.finished(made_of | {"output_format": wanted}, reading.fresh)
        if finished is None:
            with parts_folder(
                place, made_of, what="parts of an output", pattern="part-*", fresh=reading.fresh
            ) as folder:
                facts = _write_parts(
                    job,
                    folder,
                    plan,
                    workers,
                    lambda there: report(f"{target.path}: resuming after {there:,} documents"),
                )
                paths = [place / part.name for part in plan.make_parts()]
                finished = _summarise(
                    facts, unused, paths, wanted, lambda: _places(job.source, files)
                )
                if finished["counts"]["documents"]:
                    _write_output(
                        target, paths, wanted, made_of | {"output_format": wanted}, finished
                    )
        else:
            report(f"{target.path}: already complete; --fresh makes it again")
        if (place / INPUTS).is_file():  # the parts of this output, which are needed no more
            shutil.rmtree(place)
    if left_out is not None:
        left_out.update(finished["left_out"])
    _warn_of_repeated(target, finished.get("repeated_ids", 0))
    counts = Counts(**finished["counts"])
    if not counts.documents:
        raise InputError(
            f"{inputs[0]}: no document in the input. Check the files and their format."
        )
    return counts


def _summarise(
    facts: Sequence[dict[str, Any]],
    left_out: Counter[str],
    paths: Sequence[Path],
    wanted: str,
    places: Callable[[], Any],
) -> dict[str, Any]:
    """What an output says of itself, from the facts of its parts, which are the files `paths`."""
    for own in facts:
        left_out.update(own.pop("left_out"))
    counts = Counts(*(sum(own[key] for own in facts) for key in Counts._fields))
    written_id = _plain_id if wanted == "pubtator" else str
    return {
        "counts": counts._asdict(),
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


def _opened_path(given: str | Path) -> Path:
    return Path("/dev/stdin" if str(given) == "-" else given)


def _process_stream(
    job: Job, given: str | Path, target: Output, format: str
) -> tuple[Counts, Counter[str]]:
    """Write each batch's records to a stream as soon as the batch is read. Returns the counts, and
    what was left out."""
    unused, counts = Counter[str](), Counts(0, 0, 0)
    counter, different = IdCounter(str), DifferentIds(_plain_id)

    def records() -> Iterator[dict[str, Any]]:
        nonlocal counts
        for batch in batches(job.source([Span(_opened_path(given))], left_out=unused), BATCH):
            if format == "pubtator":
                for document in batch:
                    different.check(document.id, document.where)
            made = job.process(batch)
            for record in made:
                counter.add(record["id"])
                yield record
            counts = _sum(counts, _counted(made))
            out.flush()

    written = "what is written is complete; the rest of the input is not read"
    with keeping(lambda: written), target.written({}, {}) as out:
        if format == "jsonl":
            out.writelines(json.dumps(one, ensure_ascii=False) + "\n" for one in records())
        else:
            out.writelines(formatted(records(), format))
    _warn_of_repeated(target, counter.count().repeated)
    return counts, +unused


def _warn_of_repeated(target: Output, repeated: int) -> None:
    if repeated:
        LOG.warning(f"{target.path}: {repeated:,} documents have the id of an earlier document")


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
    resumed: Callable[[int], None],
) -> list[dict[str, Any]]:
    """Write what is missing of an output's parts; returns the counts of all. Raises InputError for
    an input that changed."""
    todo = plan.save(folder.out)
    there = sum(own["documents"] for own in folder.done(todo))
    if kept := there + _count_begun(folder.out):
        resumed(kept)
    with tqdm(initial=there, desc=job.name, unit="document", disable=None) as bar:
        counts = folder.map(
            partial(_write_part, source=job.source),
            todo,
            lambda: job.process,
            finished=lambda own: bar.update(own["documents"]),
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
        with target.written(settings, facts, "wb") as out:
            for path in parts:
                with open(path, "rb") as part:
                    shutil.copyfileobj(part, out)
        return
    records = (record for path in parts for _, record in json_lines(path))
    with target.written(settings, facts) as out:
        out.writelines(formatted(records, format))


@typed
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
    from inference.chain import as_record

    found = pipeline.link([document.text for document in batch])
    return [
        {"id": document.id, "text": document.text, "mentions": [as_record(m) for m in mentions]}
        for document, mentions in zip(batch, found, strict=True)
    ]


class Typed(NamedTuple):
    """A document with the mentions in its file: places and types."""

    id: str
    text: str
    mentions: list[Detected]


def typed_documents(
    files: Sequence[Span],
    format: InputFormat | None,
    empty: str,
    encoding: str,
    given: bool,
    left_out: Counter[str] | None = None,
    layout: Layout = BY_LINE,
) -> Iterator[Typed]:
    """Documents for :class:`inference.taggers.RelationModel`; with `given`, of formats whose
    mentions have a type.

    `mentions` of JSON lines are [{start, end, type}], as :func:`predict_files` writes them for a
    tagger. Raises InputError for other formats than jsonl and pubtator, and for a broken line.
    """
    if not given:
        yield from (
            Typed(d.id, d.text, [])
            for d in documents(files, format, empty, encoding, left_out, False, layout)
        )
        return
    for path in files:
        kind = resolve_format(format, layout, path)
        if kind == "pubtator":
            for _, name, text, found in pubtator_annotations(path, encoding, left_out):
                yield Typed(name, text, [Detected(a.start, a.end, a.type) for a in found])
        elif kind == "jsonl":
            for where, record in json_lines(path, encoding):
                yield _typed(where, record)
        else:
            raise InputError(
                f"{path}: {kind} has no types of mentions; expected jsonl or pubtator, or taggers"
                " that find mentions"
            )


def _typed(where: str, record: dict[str, Any]) -> Typed:
    text, mentions = record.get("text"), record.get("mentions")
    if not isinstance(text, str) or not isinstance(mentions, list):
        raise InputError(
            f"{where}: expected id, text and mentions [{{start, end, type}}], got {record!s:.60}"
        )
    found = []
    for mention in mentions:
        own = mention if isinstance(mention, dict) else {}
        start, end = own.get("start"), own.get("end")
        if type(start) is not int or type(end) is not int or not 0 <= start < end <= len(text):
            raise InputError(
                f"{where}: expected a mention inside the text of {len(text)} characters, got"
                f" {mention!s:.60}"
            )
        found.append(Detected(start, end, own.get("type"), own.get("score")))
    return Typed(str(record.get("id")), text, found)


def read_rows(
    files: Sequence[Span],
    texts: str,
    lists: str | None,
    encoding: str,
    left_out: Counter[str] | None = None,
) -> Iterator[dict[str, Any]]:
    """Records of JSON lines with an id, texts under the words of `texts`, and a list of texts under
    `lists`; none is left out.

    Raises InputError for a broken line.
    """
    for path in files:
        for where, record in json_lines(path, encoding):
            for key in texts.split():
                if not isinstance(record.get(key), str):
                    raise InputError(
                        f"{where}: expected a text under {key!r}, got {excerpt(record.get(key))}"
                    )
            given = record.get(lists, []) if lists else []
            if (
                (lists and not given)
                or not isinstance(given, list)
                or not all(isinstance(text, str) for text in given)
            ):
                raise InputError(
                    f"{where}: expected a list of texts under {lists!r}, got {excerpt(given)}"
                )
            kept = {key: record[key] for key in [*texts.split(), *([lists] if lists else [])]}
            yield {"id": str(record.get("id", where.rpartition(":")[2]))} | kept


@typed
def predict_files(
    model: EntityTagger | RelationModel | PairModel | Ranker,
    inputs: Sequence[str | Path],
    output: str | Path,
    reading: TextFiles = TextFiles(),
    *,
    taggers: Sequence[EntityTagger] = (),
    report: Callable[[str], None] = print,
    left_out: Counter[str] | None = None,
    work: Work | None = None,
) -> Counts:
    """Read files and folders with a fine-tuned model (:func:`inference.taggers.load_tagger`); the
    module says what goes in and out.

    taggers  for a model of relations: what finds the mentions. Without them the files contain
             mentions with types: JSON lines as a tagger's output has them, or PubTator.
    The rest as in :func:`link_files`. Raises InputError as :func:`process_files`, for taggers
    beside another kind of model, and for an output format that cannot hold the records.
    """
    from inference import taggers as kinds

    if taggers and not isinstance(model, kinds.RelationModel):
        raise InputError(
            f"{model.name}: a model of kind {model.kind}; expected one of relations to go with"
            " taggers"
        )
    if not isinstance(model, kinds.EntityTagger) and format_of(output, reading.to) != "jsonl":
        raise InputError(f"{output}: only jsonl holds what a model of kind {model.kind} predicts")
    chosen = reading.settings(inputs)
    check_options(**chosen)
    source: Source
    if isinstance(model, kinds.EntityTagger):
        source = partial(documents, **chosen, used=False)
    elif isinstance(model, kinds.RelationModel):
        source = partial(typed_documents, **chosen, given=not taggers)
    else:  # whose files are JSON lines, whatever their names
        reading = replace(reading, format="jsonl")
        pair = isinstance(model, kinds.PairModel)
        texts, lists = ("first second", None) if pair else ("question", "answers")
        source = partial(read_rows, texts=texts, lists=lists, encoding=reading.encoding)
    job = Job(
        partial(_predict_batch, model, taggers),
        source,
        {"model": model.identity, "taggers": [tagger.identity for tagger in taggers]} | chosen,
        "predicting",
        model.device,
    )
    return process_files(job, inputs, output, reading, report=report, left_out=left_out, work=work)


def _predict_batch(
    model: EntityTagger | RelationModel | PairModel | Ranker,
    taggers: Sequence[EntityTagger],
    batch: list[Any],
) -> list[dict[str, Any]]:
    """A record of each item of a batch, as :func:`predict_files` writes it."""
    from inference import taggers as kinds

    if isinstance(model, kinds.EntityTagger):
        spans = model.predict([d.text for d in batch])
        return [
            {"id": d.id, "text": d.text, "mentions": [s._asdict() for s in own]}
            for d, own in zip(batch, spans, strict=True)
        ]
    if isinstance(model, kinds.RelationModel):
        if taggers:
            found = [
                TaggerDetector(tagger).detect([Passage(d.text) for d in batch])
                for tagger in taggers
            ]
            batch = [
                d._replace(mentions=united(own))
                for d, own in zip(batch, zip(*found, strict=True), strict=True)
            ]
        related = model.relations(
            [d.text for d in batch], [[m[:3] for m in d.mentions] for d in batch]
        )
        return [
            {
                "id": d.id,
                "text": d.text,
                "mentions": [_mention(d.text, m) for m in d.mentions],
                "relations": [r._asdict() for r in own],
            }
            for d, own in zip(batch, related, strict=True)
        ]
    if isinstance(model, kinds.PairModel):
        labels = model.predict([(row["first"], row["second"]) for row in batch])
        return [row | label._asdict() for row, label in zip(batch, labels, strict=True)]
    return [
        row | {"answers": [a._asdict() for a in model.rank(row["question"], row["answers"])]}
        for row in batch
    ]


def _mention(text: str, m: Detected) -> dict[str, Any]:
    return {
        "start": m.start,
        "end": m.end,
        "text": text[m.start : m.end],
        "type": m.type,
        "score": m.score,
    }


def predict_examples(
    model: EntityTagger | RelationModel | PairModel | Ranker, examples: Sequence[Any]
) -> list[dict[str, Any]]:
    """Records of a task's examples (datamodules.tasks), with the source's words, read as
    fine-tuning reads its scored split.

    Raises InputError for examples of another kind of task.
    """
    shapes = {"ner": Tagged, "nested": Tagged, "relation": Relation, "pair": Pair, "ranking": Pair}
    if examples and not isinstance(examples[0], shapes[model.kind]):
        raise InputError(
            f"{model.name}: a model of kind {model.kind}; the task's examples are"
            f" {type(examples[0]).__name__}s"
        )
    return model.predict_examples(examples)


@typed
def predict_task(
    model: EntityTagger | RelationModel | PairModel | Ranker,
    examples: Sequence[Any],
    output: str | Path,
    *,
    fresh: bool = False,
    report: Callable[[str], None] = print,
) -> Counts:
    """Write :func:`predict_examples` to `output` as JSON lines. Raises InputError as
    :func:`process_files` does."""
    if format_of(output, None) != "jsonl":
        raise InputError(
            f"{output}: the predictions for a task's examples are JSON lines; expected a name that"
            " ends in .jsonl"
        )
    target, settings = (
        Output(output),
        {"model": model.identity, "examples": digest([repr(one) for one in examples])},
    )
    finished = target.finished(settings, fresh)
    if finished is not None:
        report(f"{target.path}: already complete; --fresh makes it again")
        return Counts(**finished["counts"])
    records = predict_examples(model, examples)
    counts = _counted(records)
    with target.written(settings, {"counts": counts._asdict()}) as handle:
        handle.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    return counts
