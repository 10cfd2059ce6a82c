"""One's own data as a task: named, kept below runs/data/own, used like every other task.

    kepl finetune --data my_ner --name mine [--model minilm]

Entities come from annotated texts in any format that kg.documents.formats reads (brat, CoNLL,
DocBin, PubTator, BioC, JSON lines); pairs, relations and answers from JSON lines, one example a
line, with an `id` and a `document` (what is not divided between parts) where there are any:

    pairs      first, second, label
    relations  text, head [start, end], tail [start, end], label
    answers    question, answer, label (1 right, 0 wrong)

Types and labels stay as they are; a relation's label of no_relation, none, negative, false or 0 is
the class that micro F1 leaves out. Splits are folders or files whose names begin with train, dev
(devel, valid) and test; without them documents are divided by hash: 70, 10 and 20 of 100. Settings
of training are those of a task of the same kind and language (`like` in the manifest).
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from core.artifact import has_manifest, read_manifest
from core.files import InputError
from core.json_files import json_lines
from core.reading import excerpt, sha256
from datamodules.chineseblue import MARKERS
from datamodules.pairs import mark_pair, sentences
from datamodules.tasks import TASK, Pair, Relation, Tagged, count_overlapping, save_task
from datamodules.tasks.definition import SUITE_OWN as SUITE
from datamodules.tasks.definition import Definition, own_folder
from datamodules.tasks.selection import document_hash
from kg.documents.conll import UNTYPED
from kg.documents.formats import annotated_documents, check_annotated, files_in, with_annotations
from kg.documents.mentions import Document

LOG = logging.getLogger(__name__)
READERS = 2  #: raise when the same files become other examples
#: (kind, language) -> the task whose settings are used
LIKE = {
    ("ner", "en"): "NCBI",
    ("ner", "zh"): "cMedQANER",
    ("nested", "en"): "CMeEE",
    ("nested", "zh"): "CMeEE",
    ("pair", "zh"): "cMedQQ",
    ("pair", "en"): "cMedQQ",
    ("relation", "zh"): "CMeIE",
    ("relation", "en"): "GAD",
    ("ranking", "zh"): "cMedQA",
    ("ranking", "en"): "cMedQA",
}
METRICS = {
    "ner": "entity_f1",
    "nested": "entity_f1",
    "pair": "accuracy",
    "relation": "micro_f1",
    "ranking": "acc1",
}
#: labels of a pair of entities without a relation, in the order in which one is looked for
NEGATIVES = ("no_relation", "none", "negative", "false", "0")
#: {kind: fields of its JSON lines}; the first is one that no other kind has
LINES = {
    "pair": ("first", "second", "label"),
    "relation": ("head", "tail", "text", "label"),
    "ranking": ("question", "answer", "label"),
}
#: words in names of files and folders that say which part they are
SPLIT_NAMES = {
    "train": {"train", "training", "trainset", "trainingset"},
    "dev": {"dev", "devel", "develop", "development", "devset", "val", "valid", "validation"},
    "test": {"test", "testing", "testset"},
}
TEST, DEV = 0.2, 0.1  #: shares of the documents where the data are not divided
NESTED = 0.05  #: a slip of an annotator does not make another task of flat entities


def own_task(name: str) -> Definition | None:
    """The definition of one's own task; None where there is none of the name."""
    folder = own_folder(name)
    if re.fullmatch(r"[\w.-]+", name) is None or not has_manifest(folder):
        return None
    about = read_manifest(folder)
    return Definition(
        name=name,
        suite=SUITE,
        kind=about["kind"],
        language=about["language"],
        metric=about["metric"],
        dataset="",
        files={},
        read=_no_files,
    )


def warn_of_changes(name: str) -> None:
    """Warn of files that one's own task was made of and that have changed since: it is trained as
    it was read. Nothing for another task."""
    inputs = read_manifest(own_folder(name)).get("inputs", {}) if own_task(name) else {}
    changed = [
        file
        for file, checksum in inputs.items()
        if Path(file).is_file() and sha256(file) != checksum
    ]
    if changed:
        LOG.warning(
            f"{name}: {len(changed):,} of its files have changed since it was made of them"
            f" ({changed[0]}). To read them again: kepl finetune --data FOLDER --name {name}"
        )


def _no_files(paths: Sequence[Path], split: str, counts: Counter[str]) -> list[Any]:
    raise InputError(f"{split}: one's own task has no files to read again; it is in runs/data/own")


def save_own_task(
    name: str,
    data: Path,
    reserved: Sequence[str],
    fresh: bool = False,
    format: str | None = None,
) -> Path:
    """Make a task of the files in `data`; kept when they are the same. Returns its folder.

    reserved: names that other tasks have. fresh: replace a task that was made of other files.
    format: that of annotated texts; by default by their names.

    Raises InputError for such a name, for a task of the name from other files, for files
    without an annotation, and as :func:`datamodules.tasks.save_task`.
    """
    check_new_name(name, reserved)
    if not data.exists():
        raise InputError(f"--data {data}: no such file or folder")
    files = split_files(data)
    paths = chain.from_iterable(map(with_annotations, files.values()))
    inputs = {str(path): sha256(path) for path in paths}
    made_of = {"name": name, "suite": SUITE, "readers": READERS, "inputs": inputs}
    made_of |= {"read_as": format} if format else {}
    out = own_folder(name)
    if has_manifest(out) and read_manifest(out).get("inputs") != inputs:
        check_replaced(name, list(map(str, inputs)), fresh)
    if TASK.is_kept(out, made_of, quiet=True):
        return out
    left_out = Counter[str]()
    kind, language, splits = _read_parts(files, data, format, left_out)
    examples = list(chain.from_iterable(splits.values()))
    negative = negative_label(examples) if kind == "relation" else None
    scored = "test" if "test" in splits else "dev"
    notes = [f"left out: {count:,} {what}" for what, count in (+left_out).items()]
    manifest = save_task(
        out,
        splits,
        kind=kind,
        metric=METRICS[kind],
        language=language,
        dataset="",
        variant=None,
        markers=list(MARKERS) if kind == "relation" else [],
        negative=negative,
        positive=None,
        like=LIKE[kind, language],
        scored=scored,
        selection="dev" if scored == "test" and "dev" in splits else "train",
        odd={},
        notes=notes,
        **made_of,
    )
    report_task(manifest)
    return out


def _read_parts(
    files: dict[str, list[Path]], data: Path, format: str | None, left_out: Counter[str]
) -> tuple[str, str, dict[str, list[Any]]]:
    """(the kind of a task, its language, the examples of each part). Raises InputError for a
    training part that nothing can be learned from."""
    lines = None if format else kind_of_files(list(chain.from_iterable(files.values())), data)
    splits = {
        split: read_examples(paths, data, lines, left_out, format) for split, paths in files.items()
    }
    if set(splits) == {"train"}:
        splits = divide_documents(splits["train"])
    examples = list(chain.from_iterable(splits.values()))
    language = language_of(examples)
    kind = lines or kind_of_entities(examples)
    if lines is None:
        splits = {split: cut_all(examples, language) for split, examples in splits.items()}
        if not any(example.entities for example in splits.get("train", ())):
            raise InputError(
                f"{data}: no annotated entity in the training part. Expected brat, CoNLL, DocBin,"
                f" PubTator, BioC or JSON lines with mentions; or {expected_lines()}. Files of"
                " another name: --data-format conll."
            )
    if kind == "ranking" and len({example.label for example in splits["train"]}) < 2:
        label = splits["train"][0].label
        raise InputError(
            f"{data}: every answer of the training part has the label {label}; expected right ones"
            " (1) and wrong ones (0)"
        )
    return kind, language, splits


def check_new_name(name: str, reserved: Sequence[str]) -> None:
    """Raise InputError for a name that is none, or another task's."""
    if re.fullmatch(r"[A-Za-z][\w.-]*", name) is None:
        raise InputError(f"--name {name}: expected letters, digits, _, - and .")
    taken = {reserved_name.casefold(): reserved_name for reserved_name in reserved}
    if name.casefold() in taken:
        raise InputError(
            f"--name {name}: {taken[name.casefold()]} is a published task's name; scores of other"
            " data under it would pass for its own. Give another name."
        )


def report_task(manifest: dict[str, Any]) -> None:
    """Say what a task holds, what was left out, and what of it no encoder can get right."""
    name, negative = manifest["name"], manifest["negative"]
    sizes = ", ".join(f"{split} {part['examples']:,}" for split, part in manifest["splits"].items())
    labels = ", ".join(manifest["labels"])
    LOG.info(
        f"{name}: {manifest['kind']}, {manifest['language']}; {sizes} examples; labels {labels}"
    )
    if negative is not None:
        LOG.info(f"{name}: {negative} is the class that micro F1 leaves out")
        others = [label for label in manifest["labels"] if label.casefold() in NEGATIVES]
        if len(others) > 1:
            LOG.warning(
                f"{name}: {' and '.join(others)} are both labels of no relation; the others than"
                f" {negative} are scored as relations. Give them one label."
            )
    if len(manifest["labels"]) == 1 and manifest["kind"] in ("pair", "relation", "ranking"):
        LOG.warning(
            f"{name}: every label is {manifest['labels'][0]}; there is nothing to tell apart"
        )
    warnings = [f"{count:,} in {what}" for what, count in manifest["warnings"].items()]
    for line in [*manifest["notes"], *warnings]:
        LOG.info(f"{name}: {line}")


def check_replaced(name: str, inputs: Sequence[str], fresh: bool) -> None:
    """Say that a task is made again of changed files. Raises InputError where they are other files
    than before, unless that is wanted (`fresh`)."""
    before = sorted(read_manifest(own_folder(name))["inputs"])
    if not set(before) & set(inputs) and not fresh:
        place = before[0] if len(before) == 1 else Path(before[0]).parent
        raise InputError(
            f"--name {name}: a task of this name was made of {place}. Give another"
            " name, or --fresh to replace it; models that were trained on it stay in"
            f" runs/finetune/{name}."
        )
    LOG.warning(
        f"{name}: its files have changed. Models that were trained before are not compared with new"
        " ones."
    )


def split_files(data: Path) -> dict[str, list[Path]]:
    """{split: its files}; all are train's where no name has the word train.

    Raises InputError where some names say a part and others do not, and where the names of all say
    parts, and none is train.
    """
    if data.is_file():
        return {"train": [data.resolve()]}
    left_out = Counter[str]()
    paths = [path.resolve() for path in files_in([data], left_out)]
    files_by_split: dict[str, list[Path]] = {}
    unnamed: list[Path] = []
    for path in paths:
        part = part_of_name(path.relative_to(data.resolve()).parts[0])
        (unnamed if part is None else files_by_split.setdefault(part, [])).append(path)
    if "train" in files_by_split and unnamed:
        raise InputError(
            f"{unnamed[0]}: its name says none of train, dev and test, and that of"
            f" {files_by_split['train'][0].name} does. Rename the files, or take"
            f" {'this one' if len(unnamed) == 1 else f'these {len(unnamed):,}'} away."
        )
    if "train" in files_by_split:
        return files_by_split
    if files_by_split and not unnamed:
        raise InputError(
            f"{data}: files of {' and '.join(sorted(files_by_split))}, none of train"
            f" ({paths[0].name}). Name one train, or give a folder without these words."
        )
    return {"train": paths}


def part_of_name(name: str) -> str | None:
    """The part that a file or folder is by its name: the only one whose words it has."""
    cut = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)  # NCBITestSet
    words = set(re.split(r"[^a-z]+", cut.lower()))
    parts = [split for split, split_names in SPLIT_NAMES.items() if split_names & words]
    return parts[0] if len(parts) == 1 else None


def read_examples(
    files: Sequence[Path],
    data: Path,
    kind: str | None,
    left_out: Counter[str],
    format: str | None = None,
) -> list[Any]:
    """Examples of some files: lines of a kind, or annotated texts (None)."""
    if kind is not None:
        return [example for path in files for example in read_lines(path, kind)]
    roots = [data] if data.is_dir() else []
    check_annotated(files, format)
    documents: dict[str, Document] = {}
    for document in annotated_documents(files, format, left_out, roots):
        if document.id in documents:
            raise InputError(
                f"{document.where}: a second document has the id {document.id!r}; the first is"
                f" {documents[document.id].where}. Give each one of its own."
            )
        documents[document.id] = document
    return [tag(document) for document in documents.values()]


def kind_of_files(files: Sequence[Path], data: Path) -> str | None:
    """The kind of :data:`LINES` that all files have; None for annotated texts.

    Raises InputError for files of several kinds, naming one of each.
    """
    kinds: dict[str | None, Path] = {}
    for path in files:
        kinds.setdefault(kind_of_lines(path), path)
    if len(kinds) > 1:
        seen = ", ".join(f"{path} ({kind or 'annotated text'})" for kind, path in kinds.items())
        raise InputError(f"{data}: files of several kinds: {seen}. Expected one kind a task.")
    return next(iter(kinds), None)


def kind_of_lines(path: Path) -> str | None:
    """The kind of :data:`LINES` whose fields the records of a file have, by the first record that
    has the one that no other kind has; None for annotated texts."""
    if path.suffix not in (".jsonl", ".ndjson"):
        return None
    for _, record in json_lines(path):
        for kind, fields in LINES.items():
            if fields[0] in record:
                return kind
    return None


def expected_lines() -> str:
    """What JSON lines of each kind have, in words."""
    return "; or ".join(f"{kind} lines with {', '.join(keys)}" for kind, keys in LINES.items())


def read_lines(path: Path, kind: str) -> list[Pair] | list[Relation]:
    """Pairs, relations or answers of JSON lines.

    Raises InputError, with the line, for one without the fields of its kind, for a head or tail
    that is not in its text, and for an answer neither right nor wrong.
    """
    read = read_relation if kind == "relation" else read_pair
    examples: list[Any] = []
    for where, record in json_lines(path):
        if missing := [field for field in LINES[kind] if record.get(field) is None]:
            raise InputError(
                f"{where}: {', '.join(missing)} missing; expected {', '.join(LINES[kind])}"
            )
        name = str(record.get("id", f"{path.stem}:{where.rpartition(':')[2]}"))
        examples.append(read(where, record, name, kind))
    return examples


def read_pair(where: str, record: dict[str, Any], name: str, kind: str) -> Pair:
    """A pair of texts, or a question with one of its answers. Raises InputError for other
    values."""
    first, second = (record[field] for field in LINES[kind][:2])
    if not (isinstance(first, str) and isinstance(second, str)):
        raise InputError(f"{where}: expected texts under {' and '.join(LINES[kind][:2])}")
    label = label_of(where, record)
    if kind == "pair":
        return Pair(name, str(record.get("document", name)), first, second, label)
    right = {"true": "1", "false": "0"}.get(label, label)
    if right not in ("0", "1"):
        raise InputError(f"{where}: label {label}; an answer is right (1) or wrong (0)")
    return Pair(name, str(record.get("document", first)), first, second, right)


def read_relation(where: str, record: dict[str, Any], name: str, kind: str) -> Relation:
    """A text with its head and tail marked. Raises InputError for places that cannot be marked."""
    text = record["text"]
    if not isinstance(text, str):
        raise InputError(f"{where}: expected a text under text")
    places = []
    for field in ("head", "tail"):
        place = record[field]
        whole = isinstance(place, list) and [type(end) for end in place] == [int, int]
        if not whole or not 0 <= place[0] < place[1] <= len(text):
            raise InputError(
                f"{where}: {field} {excerpt(place)}; expected [start, end] in its text of"
                f" {len(text)} characters"
            )
        places.append((place[0], place[1]))
    label = label_of(where, record)
    marked = mark_pair(text, places[0], places[1], MARKERS)
    return Relation(name, str(record.get("document", name)), marked, label, [label])


def label_of(where: str, record: dict[str, Any]) -> str:
    """A label as text. Raises InputError for one that is empty, or no text, number or truth
    value."""
    label = record["label"]
    if not isinstance(label, (str, int)) or label == "":
        raise InputError(f"{where}: label {excerpt(label)}; expected a text or a whole number")
    return str(label).lower() if isinstance(label, bool) else str(label)


def negative_label(examples: Sequence[Relation]) -> str | None:
    """The label that stands for no relation; None where none of :data:`NEGATIVES` is a label."""
    labels = {example.label.casefold(): example.label for example in examples}
    return next((labels[name] for name in NEGATIVES if name in labels), None)


def tag(document: Document) -> Tagged:
    """A document with its entities, by their types."""
    mentions = sorted((*document.mentions, *document.unlinked))
    entities = sorted({(m.start, m.end, m.type or UNTYPED) for m in mentions})
    return Tagged(document.id, document.id, document.text, entities)


def cut_sentences(example: Tagged, language: str) -> list[Tagged]:
    """The sentences of a document, as a tagger reads new text; no entity is cut."""
    places = [entity[:2] for entity in example.entities]
    pieces = []
    for number, (first, last) in enumerate(sentences(example.text, language, places)):
        text = example.text[first:last]
        if not text.strip():
            continue
        inside = [
            (start - first, end - first, kind)
            for start, end, kind in example.entities
            if first <= start and end <= last
        ]
        pieces.append(Tagged(f"{example.id}/{number}", example.document, text, inside))
    return pieces


def cut_all(examples: Sequence[Tagged], language: str) -> list[Tagged]:
    """The sentences of some documents."""
    return [sentence for example in examples for sentence in cut_sentences(example, language)]


def divide_documents(examples: Sequence[Any]) -> dict[str, list[Any]]:
    """Documents divided by hash into train, dev and test. Raises InputError for fewer than
    three."""
    names = sorted({example.document for example in examples}, key=document_hash)
    if len(names) < 3:
        raise InputError(
            f"{len(examples)} examples of {len(names)} documents (examples of one id are of one"
            " document): expected at least three documents to train, choose and score on, or files"
            " named train, dev and test"
        )
    test = max(1, round(TEST * len(names)))
    dev = max(1, round(DEV * len(names)))
    part = dict.fromkeys(names[:test], "test") | dict.fromkeys(names[test : test + dev], "dev")
    splits: dict[str, list[Any]] = {"train": [], "dev": [], "test": []}
    for example in examples:
        splits[part.get(example.document, "train")].append(example)
    return splits


def language_of(examples: Sequence[Any]) -> str:
    """zh where a fifth of the letters are Chinese, else en."""
    texts = "".join(e.first if isinstance(e, Pair) else e.text for e in examples[:1000])
    letters = [c for c in texts if c.isalpha()]
    chinese = sum("\u4e00" <= c <= "\u9fff" for c in letters)
    return "zh" if chinese > len(letters) / 5 else "en"


def kind_of_entities(examples: Sequence[Tagged]) -> str:
    """ner, or nested where more entities than a share of NESTED overlap another; which, and why, is
    said."""
    total = sum(len(example.entities) for example in examples)
    over = sum(count_overlapping(example.entities) for example in examples)
    kind = "nested" if over > total * NESTED else "ner"
    if over:
        LOG.info(
            f"{over:,} of {total:,} entities overlap another: {kind} (nested above {NESTED:.0%},"
            " which is harder to learn; below, a tagger is trained on the longest of them)"
        )
    return kind
