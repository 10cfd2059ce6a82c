"""Files through a chain: stopped and gone on with, refused, in other formats."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from core.files import InputError
from inference.chain import Linked, Pipeline
from inference.detectors import BATCH
from inference.stream import Counts, link_files
from kg.linking.documents import documents, write_documents
from tests.fakes.graphs import graph

COUNT = 2 * BATCH + 11


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    made = graph({"renal failure": "disease", "foozin": "drug"}, [("foozin", "treats", "renal failure")])
    return Pipeline(made.save(tmp_path / "graph"))


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    rows = [
        (str(i), f"Number {i}: foozin helps\tin renal failure\nof all | kinds." if i % 3 else f"Nothing in {i}.")
        for i in range(COUNT)
    ]
    return write_documents(tmp_path / "texts.jsonl", rows)


class Stops(Pipeline):
    """Stops with the given error after so many batches."""

    def __init__(self, of: Pipeline, after: int, error: type[BaseException]) -> None:
        self.__dict__.update(of.__dict__)
        self.after, self.error = after, error

    def link(self, texts: Sequence[str]) -> list[list[Linked]]:
        if not self.after:
            raise self.error
        self.after -= 1
        return super().link(texts)


def run(pipeline: Pipeline, texts: Path, out: Path, top: int = 5, **more: Any) -> Counts:
    pipeline.top = top
    return link_files(pipeline, [texts], out, report=lambda line: None, **more)


def test_results_are_the_chains(pipeline: Pipeline, texts: Path, tmp_path: Path) -> None:
    counts = run(pipeline, texts, tmp_path / "out.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert counts == Counts(COUNT, sum(len(x["mentions"]) for x in lines), counts.mentions) and counts.mentions > COUNT
    for line, document in zip(lines, documents([texts]), strict=True):
        assert (line["id"], line["text"]) == (document.id, document.text)
        assert [(m["start"], m["end"], m["entity"]) for m in line["mentions"]] == [
            (m.start, m.end, m.entity) for m in pipeline.link([document.text])[0]
        ]
    assert [p.name for p in tmp_path.glob("out*")] == ["out.jsonl"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_stopped_run_goes_on_to_the_same_result(
    pipeline: Pipeline, texts: Path, tmp_path: Path, after: int, error: type[BaseException]
) -> None:
    run(pipeline, texts, tmp_path / "whole.jsonl")
    out = tmp_path / "out.jsonl"
    with pytest.raises(error):
        run(Stops(pipeline, after, error), texts, out)
    assert not out.exists() and len((tmp_path / "out.jsonl.partial").read_text().splitlines()) == after * BATCH
    with open(tmp_path / "out.jsonl.partial", "a") as handle:
        handle.write('{"id": "half a li')  # killed while it wrote
    resumed = Stops(pipeline, 3 - after, AssertionError)  # what is there is not linked again
    assert run(resumed, texts, out).documents == COUNT
    assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert sorted(p.name for p in tmp_path.glob("out*")) == ["out.jsonl"]


def test_a_batch_that_was_cut_is_linked_again(pipeline: Pipeline, texts: Path, tmp_path: Path) -> None:
    run(pipeline, texts, tmp_path / "whole.jsonl")
    out = tmp_path / "out.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run(Stops(pipeline, 2, KeyboardInterrupt), texts, out)
    partial = tmp_path / "out.jsonl.partial"
    partial.write_text("".join(partial.read_text().splitlines(keepends=True)[: BATCH + 5]))
    assert run(pipeline, texts, out).documents == COUNT and out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_other_settings_are_refused_and_lose_nothing(pipeline: Pipeline, texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run(Stops(pipeline, 1, KeyboardInterrupt), texts, out)
    before = (tmp_path / "out.jsonl.partial").read_bytes()
    with pytest.raises(InputError, match="begun with other settings or files"):
        run(pipeline, texts, out, top=1)
    with open(texts, "a") as handle:
        handle.write('{"id": "new", "text": "more"}\n')
    with pytest.raises(InputError, match="begun with other settings or files"):
        run(pipeline, texts, out)
    assert (tmp_path / "out.jsonl.partial").read_bytes() == before
    assert run(pipeline, texts, out, top=1, fresh=True).documents == COUNT + 1


def test_a_file_that_another_process_writes_is_refused(pipeline: Pipeline, texts: Path, tmp_path: Path) -> None:
    with open(tmp_path / "out.jsonl.partial", "ab") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="another process is writing it"):
            run(pipeline, texts, tmp_path / "out.jsonl")


@pytest.mark.parametrize("name", ["out.pubtator", "out.xml", "out.bioc.json", "out.bioc.xml.gz"])
def test_other_formats_are_read_again_as_they_were_linked(
    pipeline: Pipeline, texts: Path, tmp_path: Path, name: str
) -> None:
    with open(texts, "a") as handle:  # what XML must write in other ways, and what it cannot write at all
        handle.write(json.dumps({"id": "<x>", "text": "1 < 2 & \r foozin \x0b ]]> \ufffe 糖\U0001f600 foozin"}) + "\n")
    run(pipeline, texts, tmp_path / "out.jsonl")
    run(pipeline, texts, tmp_path / name)
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    again = list(documents([tmp_path / name]))
    if "bioc.json" in name:
        assert [d.text for d in again] == [line["text"] for line in lines]
    if "xml" in name:
        assert [d.text for d in again[:-1]] == [line["text"] for line in lines[:-1]]
        assert again[-1].text == lines[-1]["text"].replace("\x0b", " ").replace("\ufffe", " ")
    assert [d.id for d in again] == [line["id"] for line in lines]
    for document, line in zip(again, lines, strict=True):
        assert [(m.start, m.end, m.entity) for m in document.mentions] == [
            (m["start"], m["end"], m["entity"]) for m in line["mentions"]
        ]


def test_a_broken_line_and_a_wrong_format(pipeline: Pipeline, texts: Path, tmp_path: Path) -> None:
    with open(texts, "a") as handle:
        handle.write('{"id": "x"}\n')
    with pytest.raises(InputError, match=rf"texts.jsonl:{COUNT + 1}"):
        run(pipeline, texts, tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()
    with pytest.raises(InputError, match="no format 'tsv'; choose from: jsonl, pubtator"):
        run(pipeline, texts, tmp_path / "out.tsv", output_format="tsv")
    with pytest.raises(InputError, match="no such file"):
        run(pipeline, tmp_path / "nowhere.jsonl", tmp_path / "out.jsonl")
