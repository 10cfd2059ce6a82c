"""One's own data as a task: every format, own types, splits by name or by document, and the way
from files to a chain."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from benchmarks.commands import Finetune
from core.files import InputError
from datamodules.options import Files
from datamodules.tasks import load_task
from datamodules.tasks.own import save_own_task, warn_of_changes
from datamodules.tasks.prepare import all_tasks
from experiments.finetuned_names import is_task
from inference.convert import write_records
from tests.fakes import bert, graphs

NAMES = ["gout", "renal failure", "ataxia"]


pytestmark = pytest.mark.usefixtures("runs")


def notes(count: int, seed: int = 0, typed: bool = True) -> list[dict[str, Any]]:
    """Short notes with entities of two types of their own."""
    rng = random.Random(seed)
    records = []
    for number in range(count):
        name = rng.choice(NAMES)
        text = f"Seen again. He has {name} today. No more."  # not in the first sentence
        kind = ("My_Sign" if name == "ataxia" else "Illness") if typed else None
        mention = {"start": 19, "end": 19 + len(name), "type": kind, "entity": None, "score": None}
        records.append({"id": f"n{number}", "text": text, "mentions": [mention]})
    return records


def save(data: Path, name: str = "mine") -> Any:
    return load_task(save_own_task(name, data, list(all_tasks())))


@pytest.mark.parametrize(
    ("form", "file"),
    [
        ("brat", "d"),
        ("conll", "d.conll"),
        ("docbin", "d.spacy"),
        ("bioc", "d.bioc.xml"),
        ("pubtator", "d.pubtator"),
        ("jsonl", "d.jsonl"),
    ],
)
def test_every_format_gives_the_same_entities(form: str, file: str, tmp_path: Path) -> None:
    write_records(notes(20), tmp_path / file, form)
    task = save(tmp_path / file)
    assert (task.kind, task.labels) == ("ner", ["Illness", "My_Sign"])
    found = {split: len({e.document for e in own}) for split, own in task.splits.items()}
    assert found == {"train": 14, "dev": 2, "test": 4}
    words = {e.text[s:t] for own in task.splits.values() for e in own for s, t, _ in e.entities}
    assert words == set(NAMES)
    assert sum(len(e.entities) for own in task.splits.values() for e in own) == 20


def test_splits_by_name(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    for split, count in (("train", 5), ("devel", 2), ("test", 3)):
        write_records(notes(count, seed=count), tmp_path / "d" / f"{split}.jsonl", "jsonl")
    task = save(tmp_path / "d")
    assert {s: len({e.document for e in own}) for s, own in task.splits.items()} == {
        "train": 5,
        "dev": 2,
        "test": 3,
    }
    assert task.manifest["like"] == "NCBI" and task.manifest["suite"] == "own"


def test_pairs_and_chinese(tmp_path: Path) -> None:
    rows = [{"id": n, "first": f"甲{n}", "second": "乙", "label": n % 2} for n in range(12)]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = save(tmp_path / "p.jsonl", "pairs")
    assert (task.kind, task.labels, task.manifest["language"]) == ("pair", ["0", "1"], "zh")
    (tmp_path / "q.jsonl").write_text('{"first": "a", "label": 1}\n')
    with pytest.raises(
        InputError, match=r"q\.jsonl:1: second missing; expected first, second, label"
    ):
        save(tmp_path / "q.jsonl", "others")


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


def test_relations_are_marked_in_their_texts(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {
            "text": f"Aspirin {'treats' if n % 2 else 'meets'} gout {n}.",
            "head": [0, 7],
            "tail": [15, 19] if n % 2 else [14, 18],
            "label": "treats" if n % 2 else "none",
            "document": f"d{n // 2}",
        }
        for n in range(20)
    ]
    task = save(write_lines(tmp_path / "r.jsonl", rows), "relations")
    assert (task.kind, task.labels) == ("relation", ["none", "treats"])
    assert (task.manifest["metric"], task.manifest["negative"]) == ("micro_f1", "none")
    found = {e.text: e for own in task.splits.values() for e in own}
    assert "[S]Aspirin[/S] treats [O]gout[/O] 1." in found
    assert found["[S]Aspirin[/S] meets [O]gout[/O] 0."].gold == ["none"]
    documents = [{e.document for e in own} for own in task.splits.values()]
    assert sum(map(len, documents)) == len(set.union(*documents)) == 10  # none in two parts


def test_answers_are_divided_by_question(tmp_path: Path) -> None:
    rows = [
        {"question": f"What is {n}?", "answer": f"It is {m}.", "label": n == m}
        for n in range(10)
        for m in range(10)
    ]
    task = save(write_lines(tmp_path / "a.jsonl", rows), "answers")
    assert (task.kind, task.manifest["metric"]) == ("ranking", "acc1")
    assert {split: own["positive"] for split, own in task.manifest["splits"].items()} == {
        "train": 7,
        "dev": 1,
        "test": 2,
    }


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "ab", "head": [0, 1], "tail": [1, 3], "label": "x"}, r"tail \[1, 3\]; expected"),
        ({"text": "ab", "head": [0, True], "tail": [1, 2], "label": "x"}, "head"),
        ({"text": "ab", "head": "ab", "tail": [1, 2], "label": "x"}, "head 'ab'"),
        ({"text": 3, "head": [0, 1], "tail": [1, 2], "label": "x"}, "expected a text under text"),
        ({"head": [0, 1], "tail": [1, 2], "label": "x"}, "text missing"),
        ({"text": "ab", "head": [0, 1], "tail": [1, 2], "label": ["x"]}, "label"),
        ({"question": "q", "answer": "a", "label": 2}, "right"),
        ({"question": "q", "label": 1}, "answer missing"),
        ({"question": "q", "answer": 1, "label": 1}, "expected texts under question and answer"),
    ],
)
def test_lines_that_are_refused(row: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"x\.jsonl:1: .*{message}"):
        save(write_lines(tmp_path / "x.jsonl", [row]), "x")


def test_files_of_several_kinds_are_refused(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    write_lines(tmp_path / "d" / "train.jsonl", [{"first": "a", "second": "b", "label": 1}])
    write_records(notes(3), tmp_path / "d" / "test.jsonl", "jsonl")
    with pytest.raises(InputError, match=r"several kinds: .*test.*annotated.*train.*pair"):
        save(tmp_path / "d")


@pytest.mark.parametrize("kind", [pytest.param("relation", marks=pytest.mark.slow), "ranking"])
def test_other_kinds_are_fine_tuned(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows: list[dict[str, Any]] = []
    for n in range(20):
        row = {"id": f"r{n}", "label": n % 2}
        if kind == "relation":
            row |= {"text": f"He has gout today {n}.", "head": [0, 2], "tail": [7, 11]}
        else:
            row |= {"question": f"seen {n // 2}", "answer": "gout" if n % 2 else "no more"}
        rows.append(row)
    data = write_lines(tmp_path / "x.jsonl", rows)
    encoder = bert.write(
        tmp_path / "bert", "seen he has today gout no more".split(), layers=1, length=256
    )
    words = ["finetune", "--data", str(data), "--name", "mine", "--model", str(encoder)]
    assert main([*words, "--epochs", "1"]) == 0
    assert f"mine, {'micro_f1' if kind == 'relation' else 'acc1'}" in capsys.readouterr().out


def test_other_files_do_not_replace_a_task(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, count in (("a", 6), ("b", 9)):
        write_records(notes(count), tmp_path / f"{name}.jsonl", "jsonl")
    save(tmp_path / "a.jsonl")
    capsys.readouterr()
    with pytest.raises(InputError, match="a task of this name was made of"):
        save(tmp_path / "b.jsonl")
    assert "built again" not in capsys.readouterr().err
    assert (
        sum(len({e.document for e in own}) for own in save(tmp_path / "a.jsonl").splits.values())
        == 6
    )
    write_records(notes(7), tmp_path / "a.jsonl", "jsonl")
    save(tmp_path / "a.jsonl")
    assert "its files have changed" in caplog.text
    folder = save_own_task("mine", tmp_path / "b.jsonl", [], fresh=True)
    assert sum(len({e.document for e in own}) for own in load_task(folder).splits.values()) == 9


def test_nested_entities(tmp_path: Path) -> None:
    records = notes(10)
    for record in records:
        record["mentions"].append(record["mentions"][0] | {"start": 15, "type": "Phrase"})
    write_records(records, tmp_path / "d.jsonl", "jsonl")
    assert save(tmp_path / "d.jsonl").kind == "nested"


def test_a_slip_of_an_annotator_makes_no_nested_task(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    records = notes(30)
    for record in records[:1]:
        record["mentions"].append(record["mentions"][0] | {"start": 15, "type": "Phrase"})
    write_records(records, tmp_path / "d.jsonl", "jsonl")
    with caplog.at_level("INFO"):
        assert save(tmp_path / "d.jsonl").kind == "ner"
    assert "entities overlap another: ner (nested above 5%" in caplog.text


def test_a_task_whose_files_have_changed_is_trained_as_it_was_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "d.jsonl"
    write_records(notes(6), file, "jsonl")
    save(file)
    warn_of_changes("mine")
    warn_of_changes("NCBI")
    Finetune(task="mine").name_task()
    assert "have changed" not in caplog.text
    write_records(notes(7), file, "jsonl")
    Finetune(task="mine").name_task()
    assert f"mine: 1 of its files have changed since it was made of them ({file}" in caplog.text
    file.unlink()  # nothing to read again
    caplog.clear()
    warn_of_changes("mine")
    assert not caplog.text


@pytest.mark.parametrize("name", ["NCBI", "ncbi", "cMedQANER", "a b", "../x", ""])
def test_names_that_are_refused(name: str, tmp_path: Path) -> None:
    write_records(notes(5), tmp_path / "d.jsonl", "jsonl")
    with pytest.raises(InputError, match="--name"):
        save(tmp_path / "d.jsonl", name)


def test_data_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file or folder"):
        save(tmp_path / "none")
    write_records(notes(2), tmp_path / "d.jsonl", "jsonl")
    with pytest.raises(InputError, match="at least three"):
        save(tmp_path / "d.jsonl")
    (tmp_path / "e.txt").write_text("Nothing.")
    with pytest.raises(InputError, match=r"at least three|no annotated entity"):
        save(tmp_path / "e.txt")
    for words, message in (({}, "TASK is missing"), ({"name": "x"}, "expected --data")):
        with pytest.raises(InputError, match=message):
            Finetune(**words).name_task()
    with pytest.raises(InputError, match="expected one of the two"):
        Finetune(task="NCBI", name="x", files=Files(data=tmp_path)).name_task()


def test_from_files_to_a_chain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_records(notes(30), tmp_path / "d", "brat")
    encoder = bert.write(
        tmp_path / "bert",
        [*"seen again he has today no more".split(), *NAMES],
        layers=1,
        length=256,
    )
    words = ["finetune", "--data", str(tmp_path / "d"), "--name", "mine", "--model", str(encoder)]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "mine, entity_f1" in shown
    assert is_task("mine")
    label = next((tmp_path / "runs" / "finetune" / "mine").glob("bert-*")).name
    assert main(["predict", "--model", f"mine/{label}", "--text", "He has gout.", "--json"]) == 0
    capsys.readouterr()
    graph = graphs.write(tmp_path / "graph", {f"G:{n}": [name] for n, name in enumerate(NAMES)})
    words = ["link", "--graph", str(graph), "--chain", f"mine/{label} > names", "--text", "gout"]
    assert main([*words, "--json"]) == 0
    assert main(["compare", "mine"]) == 0
