"""Case lists, accuracy by similarity, sizes and tables of groups of mentions: each by its command,
on fake files."""

from __future__ import annotations

import csv
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from app.cli import main
from benchmarks import tables
from benchmarks.commands import Evaluate
from benchmarks.linking.cases import Case, Run, cases, chain_cases, scored_run
from benchmarks.linking.folds import folds_of
from benchmarks.linking.sizes import linking_sizes
from benchmarks.options import Choices, Folds, Protocol
from benchmarks.papers.genbioel import mention_similarity as similarity
from benchmarks.results import Result
from benchmarks.tables.measured import find_linking
from core.files import InputError
from datamodules.linking import Dictionary
from datamodules.options import Files
from datamodules.tasks.linking import linking_task
from inference.linkers import Names
from tests.fakes import linking as fakes
from tests.fakes import results as fake


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fakes.write(tmp_path_factory.mktemp("data"))


def score(name: str, data: Path, model: str = "tfidf", protocol: Protocol = Protocol()) -> Result:
    files = Files(data=data / name)
    return Evaluate(task=name, model=model, protocol=protocol, files=files).run()[-1]


def test_cases_count_each_wrong_mention_and_say_what_train_has(
    data: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = score("NCBI-EL", data, "exact")
    run = scored_run("NCBI-EL", "exact", files=Files(data=data / "NCBI-EL"))
    found = cases(run)
    wrong = [p for p in run.predictions if p["rank"] != 1]
    assert wrong and sum(c.times for c in found) == len(wrong)
    assert [c.times for c in found] == sorted((c.times for c in found), reverse=True)
    assert sum(c.share for c in found) == pytest.approx(100 * (1 - (result.value() or 0)))
    train = {m.mention.lower() for m in run.folds[0].splits["train"]}
    assert all(bool(c.in_train) == (c.mention in train) for c in found)
    assert main(["cases", "NCBI-EL", f"DATA={data / 'NCBI-EL'}", "TOP=1", "OF=exact"]) == 0
    printed = capsys.readouterr().out
    assert (
        f"{len(wrong)} of {len(run.predictions)} mentions wrong" in printed
        and printed.count("in train  ") == 1
    )
    rows = list(csv.DictReader((Path(result.folder) / "cases.csv").open()))
    assert [r["mention"] for r in rows] == [c.mention for c in found] and set(rows[0]) == set(
        Case._fields
    )


def test_the_same_wrong_mention_is_one_case(data: Path, runs: Path) -> None:
    result = score("NCBI-EL", data, "exact")
    run = scored_run("NCBI-EL", "exact", files=Files(data=data / "NCBI-EL"))
    wrong = next(p for p in run.predictions if p["rank"] != 1)
    twice = cases(Run(result, [wrong, dict(wrong, id="other")], run.folds))
    assert len(twice) == 1 and (twice[0].times, twice[0].share) == (2, 100.0)


def test_no_such_result(
    data: Path, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = Files(data=data / "NCBI-EL")
    assert main(["cases", "NCBI-EL", f"DATA={data / 'NCBI-EL'}"]) == 2
    assert "scored are: none. Score one with `make evaluate" in capsys.readouterr().err
    result = score("NCBI-EL", data)
    with pytest.raises(InputError, match=r"scored are: 'exact' \(test\), 'tfidf' \(test\)"):
        scored_run("NCBI-EL", "nobody", files=files)
    assert scored_run("NCBI-EL", result.folder, files=files).result.label == "tfidf"
    moved = Path(shutil.copytree(result.folder, tmp_path / "moved"))
    lines = (moved / "predictions.jsonl").read_text().splitlines()
    file = moved / "predictions.jsonl"
    other = [lines[0].replace('"id": "', '"id": "not-'), *lines[1:]]
    for content, message in (
        (other, "predictions of other mentions"),
        (lines[1:], r"predictions\.jsonl: expected 3 lines, one for each scored example, got 2"),
        ([*lines[1:], lines[0][:20]], r"predictions\.jsonl:3: not valid JSON .* Score it again: m"),
    ):
        file.write_text("\n".join(content) + "\n")
        with pytest.raises(InputError, match=message):
            scored_run("NCBI-EL", str(moved), files=files)
    assert main(["cases", "NCBI-EL", f"DATA={data / 'NCBI-EL'}", "TOP=few"]) == 2
    capsys.readouterr()
    assert main(["cases", "NCBI-EL", f"DATA={data / 'NCBI-EL'}", "OF=tfidf", "TOP=0"]) == 2
    assert "--top 0: expected a whole number, 1 or more" in capsys.readouterr().err


def test_similarity_is_the_highest_cosine_with_a_gold_name(data: Path, runs: Path) -> None:
    score("NCBI-EL", data)
    run = scored_run("NCBI-EL", "tfidf", files=Files(data=data / "NCBI-EL"))
    found, right = similarity.accuracy_by_similarity(run)
    fold = run.folds[0]
    names = Names(fold.dictionary, run.result.protocol["normalisation"])
    vectors = TfidfVectorizer(analyzer="char", ngram_range=(3, 3), lowercase=False).fit(
        names.strings
    )
    by_hand = []
    for p in run.predictions:
        gold = fold.dictionary.concepts_of(i for ids in p["gold"] for i in ids)
        if gold:
            own = vectors.transform(
                [n for n, owners in names.concepts.items() if gold & set(owners)]
            )
            each = [
                (own @ vectors.transform([names.normalised(part)]).T).max() for part in p["parts"]
            ]
            by_hand.append(min(each))
    assert np.allclose(found, by_hand, atol=1e-5) and len(right) == len(found)
    assert right.sum() == sum(p["rank"] == 1 for p in run.predictions)
    assert similarity.TargetNames(names).similarity(["anything"], frozenset()) == 0.0


def test_figure_2_has_every_mention_in_a_bin(data: Path, runs: Path, tmp_path: Path) -> None:
    place = [f"DATA={data / 'NCBI-EL'}", "TASK=NCBI-EL", "OF=tfidf", f"OUT={tmp_path}"]
    result = score("NCBI-EL", data)
    assert main(["figures", "genbioel", *place]) == 0
    rows = list(csv.DictReader((tmp_path / "figure2.csv").open()))
    assert len(rows) == 10 and (tmp_path / "figure2.png").stat().st_size > 1000
    known = [r for r in rows if int(r["mentions"])]
    assert all(r["accuracy"] == "" for r in rows if r not in known)
    right = sum(int(r["mentions"]) * float(r["accuracy"]) for r in known)
    assert right == pytest.approx((result.value() or 0) * result.protocol["mentions"], abs=0.01)


def test_sizes_are_those_of_the_files(
    data: Path, runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Files(data=data / "NCBI-EL")
    found = linking_sizes("NCBI-EL", files)
    _, (fold,) = folds_of(linking_task("NCBI-EL"), files, Folds())
    assert found["names"] == len(set(fold.dictionary.names)) and found["concepts"] == len(
        set(fold.dictionary.ids)
    )
    assert found["test"] == len(fold.splits["test"]) and found["train"] == len(fold.splits["train"])

    def available(name: str, files: Files, graph: Path | None) -> dict[str, int]:
        if name != "NCBI-EL":
            raise InputError(f"{name} is not available")
        return found

    monkeypatch.setattr("benchmarks.tables.counted.linking_sizes", available)
    assert main(["table", "genbioel", "6"]) == 0
    told = capsys.readouterr()
    assert "COMETA: not counted: COMETA-EL is not available" in told.err
    assert f"| names | 108,071 | {found['names']} | 809,929 | 904,798 | 3,381 |" in told.out


def test_groups_of_mentions_are_beside_the_papers(
    data: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = score("BC5CDR-EL", data)
    size = int(result.scores["unseen concept"]["examples"])
    tuned = {"options": {"finetuned": {}}, "name": "BC5CDR-EL", "groups": {"unseen concept": 0.5}}
    fake.linked("genbioel", 0.5, 0.7, split=result.split, **tuned, size=size, like=result.protocol)  # type: ignore[arg-type]
    assert main(["table", "genbioel", "5", f"SPLIT={result.split}"]) == 0
    lines = {
        x.split("|")[1].strip(): x
        for x in capsys.readouterr().out.splitlines()
        if x.startswith("|")
    }
    assert "60.0 ± 14.1 (2)" in lines["overall"] and "| 93.4 |" in lines["overall"]
    assert f"| 2.16k | {size} |" in lines["unseen concepts"]


def test_what_a_table_is_about_may_differ(data: Path, runs: Path) -> None:
    score("NCBI-EL", data)
    score("NCBI-EL", data, protocol=Protocol(train_names=True))
    with pytest.raises(InputError, match="results of different protocols"):
        find_linking("NCBI-EL", "test", Choices())
    parts = ("dictionary", "dictionary_names", "train_mentions_in_dictionary")
    kept = find_linking("NCBI-EL", "test", Choices(), parts)
    assert sorted(r.label for r in kept) == ["exact", "tfidf"]  # of a baseline the last


def test_folds_may_be_named_in_any_order(
    data: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A protocol holds its folds in order, each once."""
    result = score("NCBI-EL", data)
    stored = replace(result, protocol={**result.protocol, "fold_numbers": "0,1"})
    monkeypatch.setattr("benchmarks.tables.measured.list_stored", lambda *_: [stored])
    for folds in ([0, 1], [1, 0], [1, 0, 1]):
        assert find_linking("NCBI-EL", "test", Choices(folds=folds)) == [stored]
    assert find_linking("NCBI-EL", "test", Choices(folds=[1])) == []


def test_the_reported_numbers_are_whole() -> None:
    """Every table names known tasks, and each row has a number or nothing for each metric of its
    columns."""
    for number in "12345679":
        definition = tables.definition_of("genbioel", number)
        columns, kind = definition["columns"], definition.get("kind", "scores")
        tasks = (
            [definition["task"]] if kind == "populations" else [c["task"] for c in columns.values()]
        )
        assert all(linking_task(name) for name in tasks)
        for row in definition["rows"]:
            reported = row.get("reported", {})
            assert set(reported) <= set(columns) and (reported or row["measured"])
            if kind == "scores":
                assert all(len(v) == len(definition["metrics"]) for v in reported.values())


def test_what_only_touches_a_missed_mention_is_not_said_of_it() -> None:
    """ "renal" ends where "failure" begins: neither covers a character of the other."""
    dictionary = Dictionary(["R", "F"], ["renal", "failure"])
    line = {
        "id": "d",
        "gold": [[5, 12, ["F"]]],
        "found": [[0, 5, "renal", "R", "renal", 1.0], [12, 15, "ing", "R", "renal", 1.0]],
    }
    fold = SimpleNamespace(dictionary=dictionary, splits={}, documents={"d": "renalfailureing"})
    run = Run(SimpleNamespace(), [line], [fold])  # type: ignore[arg-type,list-item]
    found = {(case.mention, case.predicted, case.reason) for case in chain_cases(run)}
    assert ("failure", "", "missed") in found
    assert {case[0] for case in found if case[2] == "no mention is there"} == {"renal", "ing"}
