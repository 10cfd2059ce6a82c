"""One's own data as a task: named, kept below runs/data/own, used like every other task.

    kepl finetune --data my_ner --name mine [--model minilm]

Entities come from annotated texts in any format that kg.documents.formats reads (brat, CoNLL,
DocBin, PubTator, BioC, JSON lines); pairs from JSON lines with `first`, `second` and `label`. Types
and labels stay as they are. Splits are folders or files whose names begin with train, dev (devel,
valid) and test; without them documents are divided by hash: 70, 10 and 20 of 100. Settings of
training are those of a task of the same kind and language (`like` in the manifest).
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core.artifact import has_manifest, read_manifest
from core.files import InputError, json_lines, sha256
from datamodules.pairs import sentences
from datamodules.tasks import TASK, Pair, Tagged, overlapping, save_task
from datamodules.tasks.definition import SUITE_OWN as SUITE
from datamodules.tasks.definition import Definition, own_folder
from datamodules.tasks.selection import document_hash
from kg.documents.formats import annotated_documents, files_in, with_annotations
from kg.documents.mentions import Document

LOG = logging.getLogger(__name__)
READERS = 1  #: raise when the same files become other examples
#: (kind, language) -> the task whose settings are used
LIKE = {
    ("ner", "en"): "NCBI",
    ("ner", "zh"): "cMedQANER",
    ("nested", "en"): "CMeEE",
    ("nested", "zh"): "CMeEE",
    ("pair", "zh"): "cMedQQ",
    ("pair", "en"): "cMedQQ",
}
SPLIT_NAMES = {"train": ("train",), "dev": ("dev", "valid"), "test": ("test",)}
TEST, DEV = 0.2, 0.1  #: shares of the documents where the data are not divided
UNTYPED = "Entity"


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


def _no_files(paths: Sequence[Path], split: str, found: Counter[str]) -> list[Any]:
    raise InputError(f"{split}: one's own task has no files to read again; it is in runs/data/own")


def save_own_task(name: str, data: Path, reserved: Sequence[str]) -> Path:
    """Make a task of the files in `data`; kept when they are the same. Returns its folder.

    reserved: names that other tasks have. Raises InputError for such a name, for files without an
    annotation, and as :func:`datamodules.tasks.save_task`.
    """
    if re.fullmatch(r"[A-Za-z][\w.-]*", name) is None:
        raise InputError(f"--name {name}: expected letters, digits, _, - and .")
    taken = {one.casefold(): one for one in reserved}
    if name.casefold() in taken:
        raise InputError(
            f"--name {name}: {taken[name.casefold()]} is a published task's name; scores of other"
            " data under it would pass for its own. Give another name."
        )
    if not data.exists():
        raise InputError(f"--data {data}: no such file or folder")
    files = split_files(data)
    made_of = {
        "name": name,
        "suite": SUITE,
        "readers": READERS,
        "inputs": {str(p): sha256(p) for own in files.values() for p in with_annotations(own)},
    }
    out = own_folder(name)
    if TASK.is_kept(out, made_of, quiet=True):
        return out
    left_out = Counter[str]()
    splits = {split: read_examples(own, data, left_out) for split, own in files.items()}
    if set(splits) == {"train"}:
        splits = divide_documents(splits["train"])
    examples = [example for own in splits.values() for example in own]
    language = language_of(examples)
    kind = kind_of(examples)
    if kind != "pair":
        splits = {split: cut_all(examples, language) for split, examples in splits.items()}
        if not any(example.entities for example in splits.get("train", ())):
            raise InputError(
                f"{data}: no annotated entity in the training part. Expected brat, CoNLL, DocBin,"
                " PubTator, BioC or JSON lines with mentions."
            )
    scored = "test" if "test" in splits else "dev"
    notes = [f"left out: {count:,} {what}" for what, count in (+left_out).items()]
    manifest = save_task(
        out,
        splits,
        kind=kind,
        metric="accuracy" if kind == "pair" else "entity_f1",
        language=language,
        dataset="",
        variant=None,
        markers=[],
        negative=None,
        positive=None,
        like=LIKE[kind, language],
        scored=scored,
        selection="dev" if scored == "test" and "dev" in splits else "train",
        odd={},
        notes=notes,
        **made_of,
    )
    sizes = ", ".join(f"{split} {own['examples']:,}" for split, own in manifest["splits"].items())
    LOG.info(
        f"{name}: {kind}, {language}; {sizes} examples; labels {', '.join(manifest['labels'])}"
    )
    for line in [*notes, *(f"{count:,} in {what}" for what, count in manifest["warnings"].items())]:
        LOG.info(f"{name}: {line}")
    return out


def split_files(data: Path) -> dict[str, list[Path]]:
    """{split: its files}; all are train's where no name says otherwise."""
    if data.is_file():
        return {"train": [data.resolve()]}
    found: dict[str, list[Path]] = {}
    for place in sorted(data.iterdir()):
        name = place.name.lower()
        for split, words in SPLIT_NAMES.items():
            if name.startswith(words):
                files = files_in([place], Counter()) if place.is_dir() else [place]
                found.setdefault(split, []).extend(path.resolve() for path in files)
    if "train" not in found:
        return {"train": [path.resolve() for path in files_in([data], Counter())]}
    return found


def read_examples(files: Sequence[Path], data: Path, left_out: Counter[str]) -> list[Any]:
    """Examples of some files: pairs where JSON lines have a `first` text, else tagged texts."""
    pairs = [path for path in files if path.suffix in (".jsonl", ".ndjson") and _has_pairs(path)]
    if pairs:
        return [pair for path in pairs for pair in read_pairs(path)]
    roots = [data] if data.is_dir() else []
    return [tag(document) for document in annotated_documents(files, None, left_out, roots)]


def _has_pairs(path: Path) -> bool:
    return any("first" in record for _, record in json_lines(path))


def read_pairs(path: Path) -> list[Pair]:
    """Pairs of JSON lines. Raises InputError for a line without first, second and label."""
    found = []
    for where, record in json_lines(path):
        first, second, label = (record.get(key) for key in ("first", "second", "label"))
        if not (isinstance(first, str) and isinstance(second, str) and label is not None):
            raise InputError(f"{where}: expected texts under first and second, and a label")
        name = str(record.get("id", where.rpartition(":")[2]))
        found.append(Pair(name, str(record.get("document", name)), first, second, str(label)))
    return found


def tag(document: Document) -> Tagged:
    """A document with its entities, by their types."""
    mentions = sorted((*document.mentions, *document.unlinked))
    entities = sorted({(m.start, m.end, m.type or UNTYPED) for m in mentions})
    return Tagged(document.id, document.id, document.text, entities)


def cut(example: Tagged, language: str) -> list[Tagged]:
    """The sentences of a document, as a tagger reads new text; no entity is cut."""
    places = [entity[:2] for entity in example.entities]
    found = []
    for number, (first, last) in enumerate(sentences(example.text, language, places)):
        text = example.text[first:last]
        if not text.strip():
            continue
        inside = [
            (start - first, end - first, kind)
            for start, end, kind in example.entities
            if first <= start and end <= last
        ]
        found.append(Tagged(f"{example.id}/{number}", example.document, text, inside))
    return found


def cut_all(examples: Sequence[Tagged], language: str) -> list[Tagged]:
    """The sentences of some documents."""
    return [sentence for example in examples for sentence in cut(example, language)]


def divide_documents(examples: Sequence[Any]) -> dict[str, list[Any]]:
    """Documents divided by hash into train, dev and test. Raises InputError for fewer than
    three."""
    names = sorted({example.document for example in examples}, key=document_hash)
    if len(names) < 3:
        raise InputError(
            f"{len(names)} documents: expected at least three to train, choose and score on, or"
            " files named train, dev and test"
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


def kind_of(examples: Sequence[Any]) -> str:
    """pair, ner, or nested where more than one entity in a hundred overlaps another."""
    if examples and isinstance(examples[0], Pair):
        return "pair"
    total = sum(len(example.entities) for example in examples)
    over = sum(overlapping(example.entities) for example in examples)
    return "nested" if over > total / 100 else "ner"
