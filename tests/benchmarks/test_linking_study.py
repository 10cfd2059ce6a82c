"""Case lists, accuracy by similarity, sizes and sub-population tables: each by its command, on fake files."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from benchmarks import table
from benchmarks.linking import study
from benchmarks.linking.evaluate import evaluate, folds_of
from benchmarks.linking.sizes import sizes
from benchmarks.run import main
from benchmarks.tasks.linking import task
from core.files import InputError, read_json, write_json
from inference.linkers import Names
from kg.names import TfIdf
from tests.fakes import linking as fakes

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fakes.write(tmp_path_factory.mktemp("data"))


def test_cases_count_each_wrong_mention_and_say_what_train_has(
    data: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"DATA": str(data / "NCBI-EL")}
    summary = evaluate("NCBI-EL", given | {"MODEL": "exact"})
    run = study.scored_run("NCBI-EL", given)
    found = study.cases(run)
    wrong = [p for p in run.predictions if p["rank"] != 1]
    assert wrong and sum(c.times for c in found) == len(wrong)
    assert [c.times for c in found] == sorted((c.times for c in found), reverse=True)
    assert sum(c.share for c in found) == pytest.approx(100 * (1 - summary["results"]["exact"]["acc@1"]))
    train = {m.mention.lower() for m in run.folds[0].splits["train"]}
    assert all(bool(c.in_train) == (c.mention in train) for c in found)
    capsys.readouterr()
    assert main(["cases", "NCBI-EL", f"DATA={data / 'NCBI-EL'}", "TOP=1", "OF=exact"]) == 0
    printed = capsys.readouterr().out
    assert f"{len(wrong)} of {len(run.predictions)} mentions wrong" in printed and printed.count("in train  ") == 1
    rows = list(csv.DictReader((Path(summary["folder"]) / "cases.csv").open()))
    assert [r["mention"] for r in rows] == [c.mention for c in found] and set(rows[0]) == set(study.Case._fields)


def test_the_same_wrong_mention_is_one_case(data: Path, runs: Path) -> None:
    summary = evaluate("NCBI-EL", {"DATA": str(data / "NCBI-EL"), "MODEL": "exact"})
    run = study.scored_run("NCBI-EL", {"DATA": str(data / "NCBI-EL")})
    wrong = next(p for p in run.predictions if p["rank"] != 1)
    twice = study.cases(study.Run(summary, [wrong, dict(wrong, id="other")], run.folds))
    assert len(twice) == 1 and (twice[0].times, twice[0].share) == (2, 100.0)


def test_no_such_run(data: Path, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = {"DATA": str(data / "NCBI-EL")}
    assert main(["cases", "NCBI-EL", f"DATA={given['DATA']}"]) == 2
    assert "scored are: none. Score one with make evaluate" in capsys.readouterr().err
    summary = evaluate("NCBI-EL", given)
    with pytest.raises(InputError, match=r"scored are: 'tfidf' \(test\)"):
        study.scored_run("NCBI-EL", given | {"OF": "nobody"})
    assert study.scored_run("NCBI-EL", given | {"OF": summary["folder"]}).summary["model"] == "tfidf"
    moved = Path(shutil.copytree(summary["folder"], tmp_path / "moved"))
    lines = (moved / "predictions.jsonl").read_text().splitlines()
    (moved / "predictions.jsonl").write_text(lines[0].replace('"id": "', '"id": "not-') + "\n")
    with pytest.raises(InputError, match="predictions of other mentions"):
        study.scored_run("NCBI-EL", given | {"OF": str(moved)})
    assert main(["cases", "NCBI-EL", f"DATA={given['DATA']}", "TOP=few"]) == 2


def test_similarity_is_the_highest_cosine_with_a_gold_name(data: Path, runs: Path) -> None:
    given = {"DATA": str(data / "NCBI-EL")}
    evaluate("NCBI-EL", given)
    run = study.scored_run("NCBI-EL", given)
    found, right = study.accuracy_by_similarity(run)
    fold = run.folds[0]
    names = Names(fold.dictionary, run.summary["stamp"]["normalisation"])
    vectors = TfidfVectorizer(analyzer="char", ngram_range=(3, 3), lowercase=False).fit(names.strings)
    by_hand = []
    for p in run.predictions:
        gold = fold.dictionary.concepts_of(i for ids in p["gold"] for i in ids)
        if gold:
            own = vectors.transform([n for n, owners in names.concepts.items() if gold & set(owners)])
            each = [(own @ vectors.transform([names.normalised(part)]).T).max() for part in p["parts"]]
            by_hand.append(min(each))
    assert np.allclose(found, by_hand, atol=1e-5) and len(right) == len(found)
    assert right.sum() == sum(p["rank"] == 1 for p in run.predictions)
    assert study.target_similarity(names, ["anything"], frozenset(), TfIdf(names.strings)) == 0.0


def test_figure_2_has_every_mention_in_a_bin(data: Path, runs: Path, tmp_path: Path) -> None:
    place = [f"DATA={data / 'NCBI-EL'}", "TASK=NCBI-EL", f"OUT={tmp_path}"]
    summary = evaluate("NCBI-EL", {"DATA": str(data / "NCBI-EL")})
    assert main(["figures", "genbioel", *place]) == 0
    rows = list(csv.DictReader((tmp_path / "figure2.csv").open()))
    assert len(rows) == 10 and (tmp_path / "figure2.png").stat().st_size > 1000
    known = [r for r in rows if int(r["mentions"])]
    assert all(r["accuracy"] == "" for r in rows if r not in known)
    right = sum(int(r["mentions"]) * float(r["accuracy"]) for r in known)
    assert right == pytest.approx(summary["results"]["tfidf"]["acc@1"] * summary["stamp"]["mentions"], abs=0.01)


def test_sizes_are_those_of_the_files(
    data: Path, runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"DATA": str(data / "NCBI-EL")}
    found = sizes("NCBI-EL", given)
    _, (fold,) = folds_of(task("NCBI-EL"), given)
    assert found["names"] == len(set(fold.dictionary.names)) and found["concepts"] == len(set(fold.dictionary.ids))
    assert found["test"] == len(fold.splits["test"]) and found["train"] == len(fold.splits["train"])

    def here(name: str, given: dict[str, str]) -> dict[str, int]:
        if name != "NCBI-EL":
            raise InputError(f"{name} is not at hand")
        return found

    monkeypatch.setattr("benchmarks.table.counted.linking_sizes", here)
    assert main(["table", "genbioel", "6"]) == 0
    told = capsys.readouterr()
    assert "COMETA: not counted: COMETA-EL is not at hand" in told.err
    assert f"| names | 108,071 | {found['names']} | 809,929 | 904,798 | 3,381 |" in told.out


def test_populations_of_seeds_stand_beside_the_papers(
    data: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = evaluate("BC5CDR-EL", {"DATA": str(data / "BC5CDR-EL")})
    split = summary["stamp"]["split"]
    place = Path(summary["folder"]).parent
    for seed, score in enumerate((0.5, 0.7)):
        one = summary | {"model": "genbioel fine-tuned"}
        one["results"] = summary["results"] | {"genbioel fine-tuned": summary["results"]["tfidf"] | {"acc@1": score}}
        (place / f"s{seed}").mkdir()
        write_json(place / f"s{seed}" / "summary.json", one)
    assert main(["table", "genbioel", "5", f"SPLIT={split}"]) == 0
    lines = {x.split("|")[1].strip(): x for x in capsys.readouterr().out.splitlines() if x.startswith("|")}
    assert "60.0 ± 14.1 (2)" in lines["overall"] and "| 93.4 |" in lines["overall"]
    size = read_json(place / "s0" / "summary.json")["populations"]["unseen concept"]["mentions"]
    assert f"| 2.16k | {size} |" in lines["unseen concepts"]


def test_what_a_table_is_about_may_differ(data: Path, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"DATA": str(data / "NCBI-EL")}
    evaluate("NCBI-EL", given)
    evaluate("NCBI-EL", given | {"TRAIN_NAMES": "yes"})
    with pytest.raises(InputError, match="runs of different protocols"):
        table.summaries_of("NCBI-EL", "test", "all")
    parts = ("dictionary", "dictionary_names", "train_mentions_in_dictionary")
    assert len(table.summaries_of("NCBI-EL", "test", "all", parts)) == 2


def test_the_reported_numbers_are_whole() -> None:
    """Every table names known tasks, and each row has a number or nothing for each metric of its columns."""
    for number in "12345679":
        definition = table.definition_of("genbioel", number)
        columns, kind = definition["columns"], definition.get("kind", "scores")
        tasks = [definition["task"]] if kind == "populations" else [c["task"] for c in columns.values()]
        assert all(task(name) for name in tasks)
        for row in definition["rows"]:
            reported = row.get("reported", {})
            assert set(reported) <= set(columns) and (reported or row["measured"])
            if kind == "scores":
                assert all(len(v) == len(definition["metrics"]) for v in reported.values())
