"""Files of documents through a chain, in bounded memory, going on where a run stopped.

Results go line by line to OUTPUT.partial (JSON lines), whole batches at a time; beside it OUTPUT.state.json says what they were
made with. A run that finds both with the same settings goes on behind the last whole batch; other settings are refused. At the end
the lines become the format of OUTPUT and both files go: OUTPUT is there whole, or not at all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from core.files import InputError, locked, read_json, sha256, write_json, written
from inference.chain import BATCH, Linked, Pipeline, as_record
from kg.linking.bioc import HEAD, TAIL, bioc_document, biocjson_document
from kg.linking.documents import Document, documents, files_in

FORMATS = ("jsonl", "pubtator", "bioc", "biocjson")


class Counts(NamedTuple):
    documents: int
    mentions: int
    linked: int


def format_of(output: str | Path, format: str | None) -> str:
    """The format of an output file: as given, else by its name. Raises InputError."""
    if format is None:
        name = Path(output).name.lower().removesuffix(".gz")
        ending = {".xml": "bioc", ".json": "biocjson"}.get(Path(name).suffix, "jsonl")
        format = "pubtator" if "pubtator" in name else ending if ending == "bioc" or "bioc" in name else "jsonl"
    if format not in FORMATS:
        raise InputError(f"no format {format!r}; choose from: {', '.join(FORMATS)}")
    return format


def record(document: Document, mentions: Sequence[Linked]) -> dict[str, Any]:
    """A document with its mentions, as a line of JSON holds it."""
    return {"id": document.id, "text": document.text, "mentions": [as_record(m) for m in mentions]}


def pubtator(line: dict[str, Any]) -> str:
    """A record as PubTator: the text as title (its line ends as blanks, so that offsets hold) and an empty abstract.

    A mention that is linked to nothing has the id -.
    """
    text = line["text"].replace("\n", " ").replace("\r", " ").replace("\t", " ").replace("|", " ")
    name = str(line["id"]).replace("|", " ").replace("\t", " ")
    rows = [f"{name}|t|{text}", f"{name}|a|"]
    for m in line["mentions"]:
        own = text[m["start"] : m["end"]]
        rows.append("\t".join([name, str(m["start"]), str(m["end"]), own, m["type"] or "-", m["entity"] or "-"]))
    return "\n".join(rows) + "\n\n"


def _infons(mention: dict[str, Any]) -> dict[str, str]:
    """What BioC says of a mention; without an entity it has the identifier -, as PubTator's."""
    shown = {"type": mention["type"], "identifier": mention["entity"] or "-", "name": mention["name"], "score": mention["score"]}
    return {key: str(value) for key, value in shown.items() if value is not None}


def bioc(lines: Iterable[dict[str, Any]], json_: bool) -> Iterator[str]:
    """Records as the parts of a BioC file, in XML or in JSON."""
    yield '{"source": "KEPL", "date": "", "key": "", "infons": {}, "documents": [\n' if json_ else HEAD
    for number, line in enumerate(lines):
        parts = str(line["id"]), line["text"], [(m["start"], m["end"], _infons(m)) for m in line["mentions"]]
        if json_:
            yield (",\n" if number else "") + json.dumps(biocjson_document(*parts), ensure_ascii=False)
        else:
            yield bioc_document(*parts)
    yield "\n]}\n" if json_ else TAIL


def formatted(lines: Iterable[dict[str, Any]], format: str) -> Iterator[str]:
    """Records as the parts of a file of `format`, a key of FORMATS other than jsonl."""
    return map(pubtator, lines) if format == "pubtator" else bioc(lines, format == "biocjson")


def _kept(partial: Path, most: int | None = None) -> tuple[int, Counts]:
    """(bytes, counts) of the whole lines in a partial file, of the first `most` of them."""
    size = count = mentions = linked = 0
    with open(partial, "rb") as handle:
        for line in islice(handle, most):
            if not line.endswith(b"\n"):
                break
            try:
                found = json.loads(line)["mentions"]
            except (ValueError, KeyError, TypeError):
                break
            count, size = count + 1, size + len(line)
            mentions += len(found)
            linked += sum(m["entity"] is not None for m in found)
    return size, Counts(count, mentions, linked)


def batches(source: Iterable[Document], size: int) -> Iterator[list[Document]]:
    """Lists of `size` documents, the last one shorter."""
    iterator = iter(source)
    while batch := list(islice(iterator, size)):
        yield batch


def link_files(
    pipeline: Pipeline, inputs: Sequence[str | Path], output: str | Path, settings: dict[str, Any],
    input_format: str | None = None, output_format: str | None = None, encoding: str = "utf-8", empty: str = "error",
    fresh: bool = False, told: Callable[[str], None] = print,
) -> Counts:  # fmt: skip
    """Link the documents of `inputs` into `output`. `settings` name what the pipeline is made of.

    Raises InputError for an input that cannot be read, an output that another process writes, and a partial output that was made
    with other settings or of other files.
    """
    output, wanted = Path(output), format_of(output, output_format)
    files = files_in(inputs)
    partial, state = (output.with_name(output.name + end) for end in (".partial", ".state.json"))
    made_of = settings | {
        "inputs": [[str(f.resolve()), sha256(f)] for f in files],
        "encoding": encoding,
        "empty": empty,
    }
    taken = f"{partial}: another process is writing it. Wait for it, or give another output."
    with locked(partial, "ab+", taken) as handle:
        if fresh:
            handle.truncate(0)
        done = Counts(0, 0, 0)
        if state.is_file() and not fresh:
            if read_json(state) != json.loads(json.dumps(made_of)):
                raise InputError(
                    f"{partial}: begun with other settings or files ({state.name} says which). Go on with those, give another "
                    "output, or begin anew with --fresh."
                )
            whole = _kept(partial)[1].documents
            size, done = _kept(partial, whole - whole % BATCH)  # a batch that was cut is linked again whole
            handle.truncate(size)
            if done.documents:
                told(f"{output}: {done.documents:,} documents are there; going on")
        else:
            handle.truncate(0)
            write_json(state, made_of)
        source = documents(files, input_format, empty, encoding)
        with tqdm(initial=done.documents, desc="linking", unit="document", disable=None) as bar:
            for batch in batches(islice(source, done.documents, None), BATCH):
                found = pipeline.link([document.text for document in batch])
                lines = [json.dumps(record(d, m), ensure_ascii=False) + "\n" for d, m in zip(batch, found, strict=True)]
                handle.write("".join(lines).encode())
                handle.flush()
                done = Counts(
                    done.documents + len(batch), done.mentions + sum(map(len, found)),
                    done.linked + sum(m.entity is not None for each in found for m in each),
                )  # fmt: skip
                bar.update(len(batch))
        os.fsync(handle.fileno())
        if wanted == "jsonl":
            os.replace(partial, output)
        else:
            with written(output) as out, open(partial, encoding="utf-8") as lines_of:
                out.writelines(formatted(map(json.loads, lines_of), wanted))
            partial.unlink()
        state.unlink()
    return done
