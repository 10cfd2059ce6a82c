"""Files through a chain: stopped and gone on with, refused, in other formats."""

from __future__ import annotations

import copy
import json
import os
import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from core.files import InputError, lock_file
from datamodules.tasks import load_task
from inference import stream
from inference.chain import Linked, Pipeline
from inference.detectors import BATCH
from inference.options import LinkerOptions, TextFiles, Work
from inference.output_formats import format_records, pubtator
from inference.predict import predict_examples, predict_files, predict_task
from inference.stream import Counts, link_files
from inference.taggers import PairModel, Ranker, RelationModel, Tagger, load_tagger
from kg.documents.formats import documents
from tests.fakes.documents import write_documents
from tests.fakes.graphs import graph
from tests.inference.conftest import Trained

COUNT = 2 * BATCH + 11
BEGUN = "out.jsonl.parts/part-00000.jsonl.begun"


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    made = graph(
        {"renal failure": "disease", "foozin": "drug"}, [("foozin", "treats", "renal failure")]
    )
    return Pipeline(made.save(tmp_path / "graph"))


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    rows = [
        (
            str(i),
            f"Number {i}: foozin helps\tin renal failure\nof all | kinds."
            if i % 3
            else f"Nothing in {i}.",
        )
        for i in range(COUNT)
    ]
    return write_documents(tmp_path / "texts.jsonl", rows)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "SMALLEST", 1 << 12)


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


def run(
    pipeline: Pipeline,
    texts: Path,
    out: Path,
    top: int = 5,
    work: Work | None = None,
    **more: Any,
) -> Counts:
    pipeline.top = top
    reading = TextFiles(**more)
    return link_files(pipeline, [texts], out, reading, report=lambda line: None, work=work)


def test_results_are_the_chains(pipeline: Pipeline, texts: Path, tmp_path: Path) -> None:
    counts = run(pipeline, texts, tmp_path / "out.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert (
        counts == Counts(COUNT, sum(len(x["mentions"]) for x in lines), counts.mentions)
        and counts.mentions > COUNT
    )
    for line, document in zip(lines, documents([texts]), strict=True):
        assert (line["id"], line["text"]) == (document.id, document.text)
        assert [(m["start"], m["end"], m["entity"]) for m in line["mentions"]] == [
            (m.start, m.end, m.entity) for m in pipeline.link([document.text])[0]
        ]
    assert sorted(p.name for p in tmp_path.glob("out*")) == ["out.jsonl", "out.jsonl.manifest.json"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_stopped_run_resumes_to_the_same_result(
    pipeline: Pipeline, texts: Path, tmp_path: Path, after: int, error: type[BaseException]
) -> None:
    run(pipeline, texts, tmp_path / "whole.jsonl")
    out = tmp_path / "out.jsonl"
    with pytest.raises(error):
        run(Stops(pipeline, after, error), texts, out)
    begun = tmp_path / BEGUN
    assert not out.exists() and len(begun.read_text().splitlines()) == after * BATCH
    with open(begun, "a") as handle:
        handle.write('{"id": "half a li')  # killed while it wrote
    resumed = Stops(pipeline, 3 - after, AssertionError)  # what is there is not linked again
    assert run(resumed, texts, out).documents == COUNT
    assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert sorted(p.name for p in tmp_path.glob("out*")) == ["out.jsonl", "out.jsonl.manifest.json"]


def test_a_batch_that_was_cut_is_linked_again(
    pipeline: Pipeline, texts: Path, tmp_path: Path
) -> None:
    run(pipeline, texts, tmp_path / "whole.jsonl")
    out = tmp_path / "out.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run(Stops(pipeline, 2, KeyboardInterrupt), texts, out)
    partial = tmp_path / BEGUN
    partial.write_text("".join(partial.read_text().splitlines(keepends=True)[: BATCH + 5]))
    sizes: list[int] = []
    link = pipeline.link
    pipeline.link = lambda given: (sizes.append(len(given)), link(given))[1]  # type: ignore[method-assign, func-returns-value]
    assert (
        run(pipeline, texts, out).documents == COUNT
        and out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    )
    assert sizes == [BATCH, 11]


def test_a_record_without_its_line_end_is_linked_again(
    pipeline: Pipeline, texts: Path, tmp_path: Path
) -> None:
    """Else the next one would follow on the same line."""
    run(pipeline, texts, tmp_path / "whole.jsonl")
    out = tmp_path / "out.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run(Stops(pipeline, 2, KeyboardInterrupt), texts, out)
    partial = tmp_path / BEGUN
    partial.write_bytes(partial.read_bytes().removesuffix(b"\n"))
    run(pipeline, texts, out)
    assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_a_part_that_was_damaged_is_reported(
    pipeline: Pipeline, texts: Path, tmp_path: Path, small_parts: None
) -> None:
    out = tmp_path / "out.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run(Stops(pipeline, 2, KeyboardInterrupt), texts, out)
    part = tmp_path / "out.jsonl.parts" / "part-00000.jsonl"
    good = part.read_bytes()
    part.write_bytes(good.replace(b"renal", b"penal", 1))
    with pytest.raises(InputError, match=r"part-00000\.jsonl.*Remove"):
        run(pipeline, texts, out)
    assert not out.exists()
    part.write_bytes(good)
    assert run(pipeline, texts, out).documents == COUNT


def test_other_settings_are_refused_and_lose_nothing(
    pipeline: Pipeline, texts: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run(Stops(pipeline, 1, KeyboardInterrupt), texts, out)
    before = (tmp_path / BEGUN).read_bytes()
    with pytest.raises(InputError, match=r"begun with other settings \(top\)"):
        run(pipeline, texts, out, top=1)
    with open(texts, "a") as handle:
        handle.write('{"id": "new", "text": "more"}\n')
    with pytest.raises(InputError, match=r"begun with other settings \(inputs\)"):
        run(pipeline, texts, out)
    assert (tmp_path / BEGUN).read_bytes() == before
    assert run(pipeline, texts, out, top=1, fresh=True).documents == COUNT + 1


def test_a_file_that_another_process_writes_is_refused(
    pipeline: Pipeline, texts: Path, tmp_path: Path
) -> None:
    taken = lock_file(tmp_path / "out.jsonl.parts" / ".lock", "w", "taken")
    with taken, pytest.raises(InputError, match="another process is writing it"):
        run(pipeline, texts, tmp_path / "out.jsonl")


def test_parts_are_put_together_in_order(
    pipeline: Pipeline, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small and large files, in parts of some 2 KB; what is done of them is not read again, and
    what is left out is counted."""
    rows = texts.read_text().splitlines(True)
    folder = tmp_path / "in"
    folder.mkdir()
    for name, some in (
        ("a.jsonl", rows[:1]),
        ("b.jsonl", rows[1:2]),
        ("c.jsonl", rows[2:]),
        ("d.jpg", []),
    ):
        (folder / name).write_text("".join(some))
    empty = '{"id": "empty", "text": " "}\n'
    (folder / "c.jsonl").write_text("".join(rows[2:9]) + empty + "".join(rows[9:]))
    run(pipeline, texts, tmp_path / "whole.jsonl")
    monkeypatch.setattr(stream, "SMALLEST", 2000)
    with pytest.raises(KeyboardInterrupt):
        run(Stops(pipeline, 3, KeyboardInterrupt), folder, tmp_path / "out.jsonl", empty="skip")
    assert len(list((tmp_path / "out.jsonl.parts" / "markers").iterdir())) == 3
    told: list[str] = []
    left_out: Counter[str] = Counter()
    counts = link_files(
        pipeline,
        [folder],
        tmp_path / "out.jsonl",
        TextFiles(empty="skip"),
        report=told.append,
        left_out=left_out,
    )
    assert (
        counts.documents == COUNT
        and (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    )
    assert len(told) == 1 and "resuming after" in told[0]
    assert left_out == {
        "documents without text": 1,
        "files of a folder whose names stand for no format (.jpg)": 1,
    }
    assert not (tmp_path / "out.jsonl.parts").exists()


@pytest.mark.parametrize("name", ["out.pubtator", "out.xml", "out.bioc.json", "out.bioc.xml.gz"])
def test_other_formats_are_read_again_as_they_were_linked(
    pipeline: Pipeline, texts: Path, tmp_path: Path, name: str
) -> None:
    # what XML must write in other ways, and what it cannot write at all
    with open(texts, "a") as handle:
        handle.write(
            json.dumps(
                {"id": "<x>", "text": "1 < 2 & \r foozin \x0b ]]> \ufffe 糖\U0001f600 foozin"}
            )
            + "\n"
        )
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
    with pytest.raises(InputError, match="to: expected 'jsonl' or 'pubtator'"):
        run(pipeline, texts, tmp_path / "out.xlsx", to="xlsx")
    with pytest.raises(InputError, match="no such file"):
        run(pipeline, tmp_path / "nowhere.jsonl", tmp_path / "out.jsonl")


# fine-tuned models


def predicted(model: Any, inputs: Path, out: Path, **more: Any) -> list[dict[str, Any]]:
    predict_files(model, [inputs], out, report=lambda line: None, **more)
    return [json.loads(line) for line in out.read_text().splitlines()]


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    rows = [
        (str(i), f"Number {i}: the doctor saw acne and gave zyban." if i % 3 else "Nothing.")
        for i in range(BATCH + 9)
    ]
    return write_documents(tmp_path / "notes.jsonl", rows)


def test_a_tagger_reads_files_and_resumes(
    notes: Path, tmp_path: Path, trained: Callable[[str], Trained]
) -> None:
    model = load_tagger(trained("ner").folder / "export")
    assert isinstance(model, Tagger)
    lines = predicted(model, notes, tmp_path / "out.jsonl")
    texts = [line["text"] for line in lines]
    first = model.predict(texts[:BATCH])
    assert [line["mentions"] for line in lines[:BATCH]] == [
        [s._asdict() for s in spans] for spans in first
    ] and any(first)
    stopped, calls = load_tagger(trained("ner").folder / "export"), []

    def stops(given: Sequence[str], *_: Any) -> Any:
        calls.append(len(given))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return model.predict(given)

    stopped.predict = stops  # type: ignore[method-assign, union-attr, assignment]
    again = tmp_path / "again.jsonl"
    with pytest.raises(KeyboardInterrupt):
        predicted(stopped, notes, again)
    with pytest.raises(InputError, match="begun with other settings"):
        predicted(load_tagger(trained("crf").folder), notes, again)
    assert predicted(stopped, notes, again) == lines and calls == [BATCH, 9, 9]
    assert predict_files(model, [notes], tmp_path / "out.pubtator").mentions == sum(
        len(line["mentions"]) for line in lines
    )
    rows = [
        row.split("\t")
        for row in (tmp_path / "out.pubtator").read_text().splitlines()
        if "\t" in row
    ]
    assert {row[4] for row in rows} <= {"disease", "drug"} and {row[5] for row in rows} == {"-"}


def test_relations_of_files_with_mentions_and_of_taggers(
    notes: Path, tmp_path: Path, trained: Callable[[str], Trained]
) -> None:
    model, tagger = load_tagger(trained("relation").folder), load_tagger(trained("ner").folder)
    assert isinstance(model, RelationModel) and isinstance(tagger, Tagger)
    given = tmp_path / "given.jsonl"
    text = "the fever causes acne"
    mentions = [{"start": 4, "end": 9, "type": "Gene"}, {"start": 17, "end": 21, "type": "disease"}]
    given.write_text(json.dumps({"id": "a", "text": text, "mentions": mentions}) + "\n")
    (line,) = predicted(model, given, tmp_path / "out.jsonl")
    own = [(m["start"], m["end"], m["text"], m["type"]) for m in line["mentions"]]
    assert own == [(4, 9, "fever", "Gene"), (17, 21, "acne", "disease")]
    (label, score), (found,) = model.predict([text], [((4, 9), (17, 21))])[0], line["relations"]
    assert found == {"first": 0, "second": 1, "label": label, "score": score}
    (tmp_path / "x.pubtator").write_text(
        f"a|t|{text}\na|a|\na\t4\t9\tfever\tGene\tX\na\t17\t21\tacne\tDisease\tY\n\n"
    )
    (same,) = predicted(model, tmp_path / "x.pubtator", tmp_path / "same.jsonl")
    assert same["relations"] == line["relations"]
    lines = predicted(model, notes, tmp_path / "tagged.jsonl", taggers=[tagger])
    assert [m["type"] for m in lines[1]["mentions"]] == [
        s.type for s in tagger.predict([lines[1]["text"]])[0]
    ]
    for broken in (
        {"text": text},
        {"text": text, "mentions": [{"start": 4, "end": 99}]},
        {"text": text, "mentions": ["x"]},
    ):
        given.write_text(json.dumps(broken) + "\n")
        with pytest.raises(InputError, match=r"given.jsonl:1: expected"):
            predicted(model, given, tmp_path / "broken.jsonl")
    with pytest.raises(InputError, match="only jsonl holds what a model of kind relation"):
        predicted(model, given, tmp_path / "out.pubtator")
    with pytest.raises(InputError, match="expected one of relations to go with taggers"):
        predicted(tagger, notes, tmp_path / "t.jsonl", taggers=[tagger])


def test_pairs_and_answers_of_files(tmp_path: Path, trained: Callable[[str], Trained]) -> None:
    pairs, ranker = load_tagger(trained("pair").folder), load_tagger(trained("ranking").folder)
    assert isinstance(pairs, PairModel) and isinstance(ranker, Ranker)
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"id": 7, "first": "acne today", "second": "severe gout"}\n')
    (label,) = pairs.predict([("acne today", "severe gout")])
    assert predicted(pairs, rows, tmp_path / "a.jsonl") == [
        {
            "id": "7",
            "first": "acne today",
            "second": "severe gout",
            "label": label.label,
            "score": label.score,
        }
    ]
    with pytest.raises(InputError, match="rows.jsonl:1: expected a text under 'question'"):
        predicted(ranker, rows, tmp_path / "b.jsonl")
    rows.write_text('{"question": "what of acne", "answers": ["acne 0", "gout 1"]}\n')
    (line,) = predicted(ranker, rows, tmp_path / "b.jsonl")
    assert line["answers"] == [
        a._asdict() for a in ranker.rank("what of acne", ["acne 0", "gout 1"])
    ]
    rows.write_text('{"question": "what of acne", "answers": [1]}\n')
    with pytest.raises(InputError, match="expected a list of texts under 'answers'"):
        predicted(ranker, rows, tmp_path / "c.jsonl")


def test_a_tasks_examples_are_written_as_fine_tuning_read_them(
    tmp_path: Path, trained: Callable[[str], Trained]
) -> None:
    run = trained("ner")
    model, examples = load_tagger(run.folder), load_task(run.task).splits["test"]
    counts = predict_task(model, examples, tmp_path / "out.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert (
        lines == predict_examples(model, examples)
        and counts.mentions == sum(len(line["mentions"]) for line in lines) > 0
    )
    with pytest.raises(InputError, match="a model of kind ner; the task's examples are Pairs"):
        predict_examples(model, load_task(trained("pair").task).splits["test"])


def test_offsets_hold_behind_line_ends() -> None:
    """PubTator has a text on one line: each character that would break it becomes one blank."""
    text = "One.\nTwo\r\nwith\ta | and foozin."
    start = text.index("foozin")
    mention = {"start": start, "end": start + 6, "type": "drug", "entity": "D1"}
    title, abstract, row = (
        pubtator({"id": "a|b", "text": text, "mentions": [mention]}).rstrip("\n").split("\n")
    )
    assert title == "a b|t|One. Two  with a   and foozin." and abstract == "a b|a|"
    assert row.split("\t") == ["a b", str(start), str(start + 6), "foozin", "drug", "D1"]


@pytest.mark.parametrize("chain", ["dictionary", "dictionary > names"])
def test_several_workers_link_to_the_same_bytes(
    pipeline: Pipeline, texts: Path, tmp_path: Path, chain: str, small_parts: None
) -> None:
    class Seen(Pipeline):
        def link(self, texts: Sequence[str]) -> list[list[Linked]]:
            (tmp_path / f"process-{os.getpid()}").touch()
            return super().link(texts)

    counts = run(Pipeline(pipeline.source, chain), texts, tmp_path / "one.jsonl")
    pipeline = Seen(pipeline.source, chain)
    assert run(pipeline, texts, tmp_path / "two.jsonl", work=Work(workers=2)) == counts
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()
    assert len((tmp_path / "one.jsonl").read_text().splitlines()) == COUNT
    others = {path.name for path in tmp_path.glob("process-*")}
    assert others and f"process-{os.getpid()}" not in others


@pytest.fixture
def one_thread() -> Iterator[None]:
    """A worker has one: the last bit of a layer may depend on how its rows are divided."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("kind", ["ner", "pair"])
def test_several_workers_predict_to_the_same_bytes(
    trained: Callable[[str], Trained],
    tmp_path: Path,
    kind: str,
    small_parts: None,
    one_thread: None,
) -> None:
    model = load_tagger(trained(kind).folder / "export")
    rows = [
        {"id": str(n), "text": f"w{n} fever of w{n % 7}", "first": f"w{n} fever", "second": "fever"}
        for n in range(150)
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, workers in (("one", 1), ("two", 2)):
        predict_files(
            model,
            [tmp_path / "in.jsonl"],
            tmp_path / f"{name}.jsonl",
            report=lambda line: None,
            work=Work(workers=workers),
        )
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()
    assert len((tmp_path / "one.jsonl").read_text().splitlines()) == 150
    again = copy.copy(model)
    assert again.identity == model.identity and again is not model


def test_a_run_may_resume_with_more_workers(
    pipeline: Pipeline, texts: Path, tmp_path: Path, small_parts: None
) -> None:
    run(pipeline, texts, tmp_path / "whole.jsonl")
    with pytest.raises(KeyboardInterrupt):
        run(Stops(pipeline, 1, KeyboardInterrupt), texts, tmp_path / "out.jsonl")
    run(pipeline, texts, tmp_path / "out.jsonl", work=Work(workers=2))
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_a_pipeline_goes_to_other_machines_as_what_it_is_made_of(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    assert len(pickle.dumps(pipeline)) < 2000
    again, (function, given) = copy.copy(pipeline), pipeline.__reduce__()
    assert again.settings == pipeline.settings and again.link(["foozin"]) == pipeline.link(
        ["foozin"]
    )
    graph({"another": "drug", "foozin": "drug"}, []).save(tmp_path / "graph")
    with pytest.raises(InputError, match="not the graph and the models that the run began with"):
        function(*given)


def test_several_processes_on_a_gpu_are_refused(
    pipeline: Pipeline, texts: Path, tmp_path: Path
) -> None:
    pipeline.options = LinkerOptions(device="cuda")
    with pytest.raises(InputError, match="a GPU is used by one process"):
        run(pipeline, texts, tmp_path / "out.jsonl", work=Work(workers=2, engine="processes"))


ENDS = [
    "\n",
    "\r",
    "\r\n",
    "\x0b",
    "\x0c",
    "\x1c",
    "\x1d",
    "\x1e",
    "\x85",
    "\u2028",
    "\u2029",
    "\t",
    "|",
    "\0",
]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("format", ["pubtator", "bioc", "biocjson"])
def test_what_is_written_is_read_again_whatever_is_in_ids_types_and_texts(
    tmp_path: Path, end: str, format: str
) -> None:
    mention = {
        "start": 3,
        "end": 6,
        "type": f"a{end}b",
        "entity": f"E{end}|t|1",
        "name": f"n{end}",
        "score": 1.0,
    }
    lines = [
        {
            "id": f"x{end}|t|{end}y",
            "text": f"a{end}{' ' * (2 - len(end))}cat{end}b|t|c",
            "mentions": [mention],
        },
        {"id": f"{end}", "text": "second", "mentions": []},
    ]
    ending = {"pubtator": "pubtator", "bioc": "bioc.xml", "biocjson": "bioc.json"}[format]
    (tmp_path / f"x.{ending}").write_text("".join(format_records(lines, format)), newline="")
    read = list(documents([tmp_path / f"x.{ending}"]))
    assert (
        len(read) == 2
        and len(read[0].text.rstrip()) == len(lines[0]["text"])
        and read[1].text.strip() == "second"
    )
    assert [(m.start, m.end) for m in read[0].mentions] == [(3, 6)] and read[0].text[3:6] == "cat"
