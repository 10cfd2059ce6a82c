"""Files of texts through a fine-tuned model.

predict_files   tagger     documents -> {id, text, mentions [{start, end, text, type, score}]}
                relations  documents with mentions -> {id, text, mentions, relations [{first,
                second, label, score}]}
                pairs      {id, first, second} -> the same and {label, score}
                ranking    {id, question, answers} -> {id, question, answers [{number, text,
                           score}]}, best first
predict_task    examples of a task -> their records, read as fine-tuning reads its scored split
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from core.files import InputError
from core.json_files import digest, json_lines
from core.outputs import Output
from core.reading import Span, excerpt
from core.typed import check_types
from datamodules.tasks import Pair, Relation, Tagged
from inference.detectors import Detected, TaggerDetector, unite_mentions
from inference.entity_tagger import EntityTagger
from inference.options import InputFormat, TextFiles, Work
from inference.output_formats import format_of
from inference.results import as_records
from inference.stream import Counts, Job, Source, count_lines, process_files
from kg.documents.formats import check_options, documents, resolve_format
from kg.documents.mentions import BY_LINE, Layout
from kg.documents.pubtator import pubtator_annotations
from kg.linking.passage import Passage

if TYPE_CHECKING:
    from inference.taggers import PairModel, Ranker, RelationModel


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
    with_types: bool,
    left_out: Counter[str] | None = None,
    layout: Layout = BY_LINE,
) -> Iterator[Typed]:
    """Documents for :class:`inference.taggers.RelationModel`; with `with_types`, of formats whose
    mentions have a type.

    `mentions` of JSON lines are [{start, end, type}], as :func:`predict_files` writes them for a
    tagger. Raises InputError for other formats than jsonl and pubtator, and for a broken line.
    """
    if not with_types:
        yield from (
            Typed(d.id, d.text, [])
            for d in documents(files, format, empty, encoding, left_out, False, layout)
        )
        return
    for path in files:
        kind = resolve_format(format, layout, path)
        if kind == "pubtator":
            for _, name, text, mentions in pubtator_annotations(path, encoding, left_out):
                yield Typed(name, text, [Detected(a.start, a.end, a.type) for a in mentions])
        elif kind == "jsonl":
            for where, record in json_lines(path, encoding):
                yield _read_typed(where, record)
        else:
            raise InputError(
                f"{path}: {kind} has no types of mentions; expected jsonl or pubtator, or taggers"
                " that find mentions"
            )


def _read_typed(where: str, record: dict[str, Any]) -> Typed:
    text, mentions = record.get("text"), record.get("mentions")
    if not isinstance(text, str) or not isinstance(mentions, list):
        raise InputError(
            f"{where}: expected id, text and mentions [{{start, end, type}}], got {record!s:.60}"
        )
    typed = []
    for mention in mentions:
        fields = mention if isinstance(mention, dict) else {}
        start, end = fields.get("start"), fields.get("end")
        if type(start) is not int or type(end) is not int or not 0 <= start < end <= len(text):
            raise InputError(
                f"{where}: expected a mention inside the text of {len(text)} characters, got"
                f" {mention!s:.60}"
            )
        typed.append(Detected(start, end, fields.get("type"), fields.get("score")))
    return Typed(str(record.get("id")), text, typed)


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
            candidates = record.get(lists, []) if lists else []
            if (
                (lists and not candidates)
                or not isinstance(candidates, list)
                or not all(isinstance(text, str) for text in candidates)
            ):
                raise InputError(
                    f"{where}: expected a list of texts under {lists!r}, got {excerpt(candidates)}"
                )
            fields = {key: record[key] for key in [*texts.split(), *([lists] if lists else [])]}
            yield {"id": str(record.get("id", where.rpartition(":")[2]))} | fields


@check_types
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

    The rest as in :func:`inference.stream.link_files`. Raises InputError as :func:`process_files`,
    for taggers beside another kind of model, and for an output format that cannot hold the records.
    """
    from inference import taggers as kinds

    if taggers and not isinstance(model, kinds.RelationModel):
        raise InputError(
            f"{model.name}: a model of kind {model.kind}; expected one of relations to go with"
            " taggers"
        )
    if not isinstance(model, EntityTagger) and format_of(output, reading.to) != "jsonl":
        raise InputError(f"{output}: only jsonl holds what a model of kind {model.kind} predicts")
    chosen = reading.settings(inputs)
    check_options(**chosen)
    source: Source
    if isinstance(model, EntityTagger):
        source = partial(documents, **chosen, used=False)
    elif isinstance(model, kinds.RelationModel):
        source = partial(typed_documents, **chosen, with_types=not taggers)
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

    if isinstance(model, EntityTagger):
        return as_records(batch, model.predict([document.text for document in batch]))
    if isinstance(model, kinds.RelationModel):
        return _predict_relations(model, taggers, batch)
    if isinstance(model, kinds.PairModel):
        labels = model.predict([(row["first"], row["second"]) for row in batch])
        return [row | label._asdict() for row, label in zip(batch, labels, strict=True)]
    records = []
    for row in batch:
        answers = model.rank(row["question"], row["answers"])
        records.append(row | {"answers": [answer._asdict() for answer in answers]})
    return records


def _predict_relations(
    model: RelationModel, taggers: Sequence[EntityTagger], batch: Sequence[Typed]
) -> list[dict[str, Any]]:
    """{id, text, mentions, relations} of each document; its mentions are those of the taggers, if
    any."""
    texts = [document.text for document in batch]
    mentions = [document.mentions for document in batch]
    if taggers:
        passages = [Passage(text) for text in texts]
        detected = [TaggerDetector(tagger).detect(passages) for tagger in taggers]
        mentions = [unite_mentions(spans) for spans in zip(*detected, strict=True)]
    places = []
    for spans in mentions:
        places.append([span[:3] for span in spans])
    records = []
    for document, spans, relations in zip(
        batch, mentions, model.relations(texts, places), strict=True
    ):
        records.append(
            {
                "id": document.id,
                "text": document.text,
                "mentions": [_mention(document.text, span) for span in spans],
                "relations": [relation._asdict() for relation in relations],
            }
        )
    return records


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


@check_types
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
        {"model": model.identity, "examples": digest([repr(example) for example in examples])},
    )
    finished = target.read_finished(settings, fresh)
    if finished is not None:
        report(f"{target.path}: already complete; --fresh makes it again")
        return Counts(**finished["counts"])
    records = predict_examples(model, examples)
    counts = count_lines(records)
    with target.atomic_write(settings, {"counts": counts._asdict()}) as handle:
        handle.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    return counts
