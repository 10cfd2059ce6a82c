"""The record of a score: saved, read back, grouped into seeds, compared, and shown in tables and
figures."""

from __future__ import annotations

import csv
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy.stats import ttest_rel

from app.cli import main
from benchmarks import tables
from benchmarks.counts import split_sizes
from benchmarks.groups import check_protocol, group_results, seed_of
from benchmarks.paired_tests import BELOW, others, p_value
from benchmarks.papers.smedbert import lines as smedbert
from benchmarks.results import (
    FILE,
    OUTCOMES,
    Model,
    label,
    list_stored,
    load_result,
    result_folder,
    save_result,
    short_name,
)
from benchmarks.tables.measured import (
    System,
    find_pretraining,
    find_retrieval,
    fine_tuned,
    remarks,
    systems,
)
from core.files import InputError
from core.json_files import read_json, write_json
from core.tracking import ROOT
from datamodules.options import Files
from datamodules.tasks.prepare import find_task
from models.metrics import bootstrap_interval
from tests.fakes import chineseblue
from tests.fakes import results as fake
from tests.fakes.results import compare, markdown

#: Percent, as the paper prints them: its own row, and the sum over all cells of a table.
SMEDBERT = {
    1: [31.81, 32.14, 24.08],
    2: [82.23, 84.75, 83.06, 82.94, 83.85, 86.95, 95.73, 95.89, 91.42],
    3: [75.06, 76.04, 79.26, 81.68, 78.86, 88.13, 88.09, 96.64, 96.88],
    4: [84.75, 82.94, 86.95, 95.89],
}

#: EMBERT's own rows (from BERT-base, from MC-BERT), and the sum over all cells of a table.
EMBERT = {
    3: ([87.59, 96.50, 84.49, 67.07, 75.10, 80.51], [88.06, 96.59, 85.02, 67.22, 75.32, 80.63]),
    4: ([87.59, 84.49, 75.10, 67.07], [88.06, 85.02, 75.32, 67.22]),
}
EMBERT_SUMS = {2: 737927, 3: 3418.62, 4: 2192.61, 5: 945.2}

SUMS = {1: 962.28, 2: 6185.3, 3: 6002.09, 4: 1739.15, 5: 1036536}


def test_a_result_is_read_back_as_it_was_saved(runs: Path) -> None:
    (made,) = fake.linked("minilm", 0.4, options={"pooling": "cls"}, groups={"seen concept": 0.5})
    again = load_result(made.folder)
    assert again == made and again.label == "minilm cls" and again.folder == made.folder
    assert np.array_equal(again.tallies["acc@1"], made.tallies["acc@1"]) and set(again.tallies) == {
        "acc@1"
    }
    assert (
        again.value() == 0.4
        and again.value("acc@1", "seen concept") == 0.5
        and again.value("nothing") is None
    )
    assert list_stored("linking", "NCBI-EL") == [made] and list_stored("linking", "HPO-EL") == []
    with pytest.raises(ValueError, match="kind 'scores': expected one of finetune"):
        list_stored("scores")


def test_a_papers_usual_run_has_one_name(runs: Path) -> None:
    """A score of MODEL=smedbert/pretrain is one of MODEL=smedbert, in tables and comparisons, also
    one that was saved before."""
    (made,) = fake.linked("smedbert/pretrain", 0.4)
    assert load_result(made.folder).label == "smedbert"
    names = {
        "smedbert/pretrain_plain",
        "zh",
        "kebiolm/pretrain_rand",
        "sapbert",
        "some/folder",
        "ernie/",
    }
    assert {short_name(name) for name in names} == names and short_name("ernie/pretrain") == "ernie"


def test_a_run_that_is_scored_again_is_one_seed(runs: Path) -> None:
    """The newest score of each run of a pre-training, whatever computed it."""
    first = [
        replace(fake.linked("x", 0.1 * n)[0], model=Model("smedbert", f"abc-seed{n}"))
        for n in (1, 2, 1)
    ]
    (group,) = group_results(first).values()
    assert [r.value() for r in group.results] == [first[2].value(), first[1].value()]


def test_a_damaged_result_is_refused(runs: Path, caplog: pytest.LogCaptureFixture) -> None:
    (made,) = fake.linked("minilm", 0.4)
    outcomes = Path(made.folder) / OUTCOMES
    whole = outcomes.read_bytes()
    outcomes.write_bytes(whole[:-9] + b"x" + whole[-8:])
    with pytest.raises(InputError, match="not the file that result.json beside it describes"):
        load_result(made.folder).tallies["acc@1"]
    record = read_json(Path(made.folder) / FILE)
    del record["task"]
    write_json(Path(made.folder) / FILE, record)
    with pytest.raises(InputError, match="not a result"):
        load_result(made.folder)
    # what others have scored can be compared all the same
    (other,) = fake.linked("exact", 0.4)
    assert [one.folder for one in list_stored("linking")] == [other.folder]
    assert f"left out of all comparisons: {made.folder}/result.json: not a result" in caplog.text


@pytest.mark.parametrize(
    ("model", "options", "told"),
    [
        (
            "sapbert/pretrain_ontologies",
            {"finetuned": {}, "pooling": "mean", "backoff": True},
            "sapbert-pretrain_ontologies fine-tuned mean + back-off",
        ),
        (
            "genbioel",
            {"finetuned": {"target": "shortest"}, "names": "shortest"},
            "genbioel fine-tuned, target shortest, names shortest",
        ),
        (
            "genbioel",
            {"finish": "fairseq", "score": "sum", "candidates": "tfidf:50"},
            "genbioel, fairseq, sum, tfidf 50",
        ),
        ("minilm", {"similarity": "dot", "pooling": "cls"}, "minilm cls dot"),
        ("kebiolm", {"by": "entities"}, "kebiolm entities"),
        ("hfl/chinese-bert-wwm", {}, "hfl--chinese-bert-wwm"),
        ("smedbert/pretrain_k5", {"hits": 0.5, "k": 5}, "smedbert-pretrain_k5 HITS=0.5 K=5"),
        ("smedbert", {"pooling": "text", "knowledge": False}, "smedbert text without knowledge"),
        ("minilm", {"head": False}, "minilm without head"),
        ("sgns", {"unit": "char"}, "sgns char"),
    ],
)
def test_a_label_says_what_was_scored(model: str, options: dict[str, Any], told: str) -> None:
    assert label(model, options) == told


def test_seeds_of_runs() -> None:
    assert [seed_of(name) for name in ("seed0", "ab12-seed13", "seed", "myseed1", "")] == [
        0,
        13,
        None,
        None,
        None,
    ]


def test_the_newest_request_of_a_label_counts(runs: Path) -> None:
    fake.fine_tuned("smedbert", 0.5, age=100)
    fake.fine_tuned("smedbert", 0.6)
    fake.fine_tuned("other", 0.9, data="data2")  # not asked for, so it refuses nothing
    found = fine_tuned("cMedQANER", [System("smedbert"), System("zh")])
    assert [r.model.name for r in found] == ["smedbert"] and group_results(found)[
        "smedbert"
    ].values() == [0.6]


def test_runs_of_one_pretraining_are_seeds(runs: Path) -> None:
    """CKPT= names single runs: one value each, its mean over fine-tuning seeds; they replace the
    bare name's."""
    fake.fine_tuned("smedbert", 0.1)
    fake.fine_tuned("smedbert", 0.5, 0.7, run="abc-seed0")
    fake.fine_tuned("smedbert", 0.8, run="abc-seed1")
    group = System("smedbert").group(list_stored("finetune"))
    assert (
        group is not None
        and group.kind == "pre-training"
        and group.values() == pytest.approx([0.6, 0.8])
    )
    assert set(group.tallies("entity_f1")) == {0, 1} and group.places == tuple(
        dict.fromkeys(group.places)
    )
    fake.fine_tuned("smedbert", 0.4, run="fff-seed0")
    with pytest.raises(
        InputError, match=r"several pre-trainings \(abc as in cMedQANER/\S+, fff as in cMedQANER/"
    ):
        System("smedbert").group(list_stored("finetune"))
    text = compare("cMedQANER").splitlines()
    assert [line.split("  ")[0] for line in text[1:3]] == [
        "smedbert of pre-training abc",
        "smedbert of pre-training fff",
    ]
    ours = group_results(list_stored("finetune"))["smedbert of pre-training abc"]
    assert ours.values() == pytest.approx([0.6, 0.8])
    (against,) = others(
        group_results(ours.results)["smedbert"], list_stored("finetune"), "entity_f1"
    )
    assert against.startswith("against smedbert of pre-training fff (0.4000): +0.2000")


def test_pretraining_seeds_are_paired(runs: Path) -> None:
    """The difference is over examples and runs; the t-test is over the runs' seeds, each its sum
    over fine-tuning seeds."""
    ours = [[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]]
    plain = [[1, 0, 1, 0], [1, 0, 0, 0], [0, 1, 1, 0]]
    for seed in range(3):
        fake.fine_tuned("smedbert", ours[seed], run=f"abc-seed{seed}")
        fake.fine_tuned("smedbert/pretrain_plain", plain[seed], run=f"def-seed{seed}")
    fake.fine_tuned("zh", [0, 0, 0, 1], [0, 0, 0, 0])
    text = compare("cMedQANER").splitlines()
    assert text[0] == "cMedQANER, test entity_f1, PROFILE=small, 4 examples, the same for all"
    means = [float(line.split()[1]) for line in text[1:4]]
    assert [line.split()[0] for line in text[1:4]] == ["smedbert", "smedbert-pretrain_plain", "zh"]
    assert (
        means == pytest.approx([9 / 12, 5 / 12, 1 / 8], abs=1e-4)
        and "pre-training seeds 0,1,2" in text[1]
    )
    expected = ttest_rel([0.75, 0.5, 1.0], [0.5, 0.25, 0.5]).pvalue
    assert expected > 0.001 and p_value(1e-5) == "p < 0.001"
    assert (
        "+0.3333" in text[4] and f"paired t over 3 pre-training seeds p = {expected:.3f}" in text[4]
    )
    assert text[5] == "smedbert against zh: no common seed"  # seeds of fine-tuning are others
    against = compare("cMedQANER", base="smedbert-pretrain_plain").splitlines()
    assert against[:4] == text[:4] and against[4] == text[4]
    assert against[5] == "zh against smedbert-pretrain_plain: no common seed"
    against = compare("cMedQANER", base="smedbert").splitlines()
    assert against[4].startswith("smedbert-pretrain_plain against smedbert: -0.3333")
    with pytest.raises(
        InputError,
        match="BASE=x: not scored here; choose from: smedbert, smedbert-pretrain_plain, zh",
    ):
        compare("cMedQANER", base="x")


def test_retrieval_is_compared_by_pretraining_seeds(runs: Path) -> None:
    with pytest.raises(InputError, match="make synonyms"):
        compare("synonyms")
    text = {"options": {"pooling": "text"}}
    fake.retrieved("zh", {"D1": [1, 1, 1, 1]}, samples="other", **text)
    names = ("a-seed0", "a-seed1")
    fake.retrieved(
        "smedbert", *({"D1": [1, 1, s, 0], "D3": [1, 1]} for s in (0, 1)), runs=names, **text
    )
    fake.retrieved(
        "minilm", *({"D1": [0, 1, 0, 0], "D3": [0, 1]} for _ in (0, 1)), runs=names, **text
    )
    first, second = (block.splitlines() for block in compare("synonyms").split("\n\n"))
    assert first[0] == "D1, Acc@1 among 20 names, 4 samples, the same for all" and second[
        0
    ].startswith("D3,")
    assert (
        "smedbert text" in first[1]
        and "62.50 ± 17.68" in first[1]
        and "+37.50" in first[3]
        and "zh" not in "".join(first)
    )
    with pytest.raises(InputError, match="BASE=x: not scored here"):
        compare("synonyms", base="x")


def test_retrieval_by_several_pretrainings_is_not_one_mean(runs: Path) -> None:
    fake.retrieved(
        "smedbert",
        {"D1": 0.3},
        {"D1": 0.4},
        {"D1": 0.06},
        runs=("abc-seed0", "abc-seed1", "def-seed0"),
    )
    groups = group_results(list_stored("synonyms"))
    values = {name: one.values("acc@1", "D1") for name, one in groups.items()}
    assert values == {
        "smedbert of pre-training abc": [0.3, 0.4],
        "smedbert of pre-training def": [0.06],
    }
    with pytest.raises(
        InputError,
        match=r"several pre-trainings \(abc as in \w+/smedbert-\w+, def as in .*runs/synonyms",
    ):
        System("smedbert").group(list_stored("synonyms"))


def test_linkers_are_compared(runs: Path) -> None:
    fake.linked("exact", 0.4)
    fake.linked("minilm", 0.6, options={"pooling": "cls"})
    fake.linked("sapbert", 0.9, options={"pooling": "cls"}, split="dev")
    with pytest.raises(InputError, match="no results of HPO-EL"):
        compare("HPO-EL")
    text = compare("NCBI-EL", split="test").splitlines()
    assert (
        text[0].startswith("NCBI-EL, test acc@1") and "minilm cls against exact: +20.00" in text[3]
    )


def test_linkers_are_paired_by_their_seeds(runs: Path) -> None:
    """Each run of a pre-training is a seed; TF-IDF and an encoder of others are the same for every
    seed. The baselines mark what is below them."""
    ours = [[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]]
    plain = [[1, 0, 1, 0], [1, 0, 0, 0], [0, 1, 1, 0]]
    fake.linked("genbioel", *ours, runs=[f"abc-seed{seed}" for seed in range(3)])
    name = "genbioel/pretrain_denoise"
    fake.linked(name, *plain, runs=[f"def-seed{seed}" for seed in range(3)])
    fake.linked("minilm", [0, 0, 0, 1])
    fake.linked("exact", [0, 0, 0, 0])
    text = compare("NCBI-EL").splitlines()
    assert text[1].startswith("genbioel ") and "75.00 ± 25.00" in text[1]
    assert text[1].endswith("pre-training seeds 0,1,2") and "seeds" not in text[3] + text[4]
    tests = {line.partition(":")[0]: line for line in text[5:]}
    paired = tests["genbioel against genbioel-pretrain_denoise"]
    expected = ttest_rel([0.75, 0.5, 1.0], [0.5, 0.25, 0.5]).pvalue
    assert "+33.33" in paired and f"over 3 pre-training seeds p = {expected:.3f}" in paired
    against_one = ttest_rel([0.75, 0.5, 1.0], [0.25] * 3).pvalue
    paired = tests["genbioel against minilm"]
    assert f"paired t over 3 pre-training seeds p = {against_one:.3f}" in paired
    assert all("by Holm over these" in line and BELOW not in line for line in text[5:])
    fake.linked("tfidf", [1, 1, 1, 1])
    below = [line for line in compare("NCBI-EL").splitlines() if BELOW in line]
    assert [line.partition(":")[0] for line in below] == [
        "genbioel against genbioel-pretrain_denoise",
        "genbioel against minilm",
    ]


def test_fine_tuned_linkers_are_paired_by_seeds_and_with_others_over_mentions(runs: Path) -> None:
    tuned = {"finetuned": {}}
    fake.linked("minilm", [1, 1, 1, 0], [1, 1, 0, 0], options=tuned)
    fake.linked("sapbert", [1, 0, 1, 0], [1, 0, 0, 0], options=tuned)
    fake.linked("sapbert", [0, 0, 1, 0], [1, 0, 0, 0], runs=["abc-seed0", "abc-seed1"])
    text = compare("NCBI-EL").splitlines()
    assert text[1].endswith("fine-tuning seeds 0,1")
    tests = {line.partition(":")[0]: line for line in text[4:]}
    same, other = (tests[f"minilm fine-tuned against sapbert{s}"] for s in (" fine-tuned", ""))
    assert "+25.00" in same and "over seeds and mentions" in same
    # a seed of pre-training is no pair of one of fine-tuning
    assert "+37.50" in other and "paired bootstrap over mentions" in other
    assert "paired t" not in other


def test_a_linker_that_is_fine_tuned_again_is_one_seed(runs: Path) -> None:
    tuned = {"finetuned": {}}
    fake.linked("sapbert", 0.5, 0.6, options=tuned)
    (again, _) = fake.linked("sapbert", 0.7, 0.0, options=tuned)
    later = replace(again, model=Model("sapbert", "", "trained again"), created=fake.time(-5))
    save_result(later, result_folder(later))
    groups = group_results(list_stored("linking"))
    assert sorted(groups["sapbert fine-tuned"].values()) == [0.0, 0.7]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"data": "data2"}, "different protocols .*smedbert: data 'data1'; zh: data 'data2'"),
        ({"profile": "paper"}, "different protocols .*Say which with PROFILE="),
        ({"split": "dev"}, "different protocols .*smedbert: split 'test'; zh: split 'dev'"),
    ],
)
def test_mixtures_are_refused(more: dict[str, str], message: str, runs: Path) -> None:
    fake.fine_tuned("smedbert", 0.5, age=10)
    fake.fine_tuned("zh", 0.5, **more)  # type: ignore[arg-type]
    asked = [System("smedbert"), System("zh")]
    with pytest.raises(InputError, match=message):
        fine_tuned("cMedQANER", asked)
    if "profile" in more:
        assert [r.label for r in fine_tuned("cMedQANER", asked, "paper")] == ["zh"]


def test_a_protocol_may_vary_where_a_table_is_about_it(runs: Path) -> None:
    results = fake.linked("a", 0.4, names="all") + fake.linked("b", 0.5, names="one")
    check_protocol("x", results, ("names",))
    with pytest.raises(InputError, match="a: names 'all'; b: names 'one'"):
        check_protocol("x", results)


def test_a_finetuning_table_shows_reported_beside_measured(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.fine_tuned("smedbert", 0.5, 0.6)
    fake.fine_tuned("smedbert/pretrain_plain", 0.45, run="abc-seed0")
    more = {"selected_on": "a tenth of train", "variant": "resplit", "args": "--x 1"}
    fake.fine_tuned("zh", 0.3, name="CMeIE:resplit", metric="micro_f1", split="dev", **more)
    assert main(["table", "smedbert", "2"]) == 0
    told = capsys.readouterr()
    lines = {
        x.split("|")[1].strip(): [c.strip() for c in x.split("|")[2:-1]]
        for x in told.out.splitlines()
        if "|" in x
    }
    head = lines[""]
    assert lines["SMedBERT"][head.index("cMedQANER test measured")] == "55.00 ± 7.07 (2)"
    assert lines["SMedBERT"][head.index("cMedQANER dev measured")] == "45.00 ± 7.07 (2)"
    assert lines["SMedBERT"][head.index("cMedQANER test as published")] == "84.75"
    low, high = bootstrap_interval(fake.hits(0.45))
    assert (
        lines["BioBERT-zh"][head.index("cMedQANER test measured")]
        == f"45.00 [{100 * low:.2f}, {100 * high:.2f}]"
    )
    assert lines["the initial checkpoint zh"][head.index("CMeIE:resplit dev measured")].startswith(
        "30.00 ["
    )
    assert not [h for h in head if "measured" in h and ("CHIP-RE" in h or "DXY" in h)]
    assert (
        "CMeIE:resplit: variant resplit (not the official set)" in told.err
        and "with ARGS='--x 1'" in told.err
    )


def test_a_synonym_table_is_of_one_protocol(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = {"options": {"pooling": "text"}}
    fake.retrieved(
        "smedbert",
        {"D1": 0.30, "D3": 0.3},
        {"D1": 0.34, "D3": 0.3},
        runs=("h-seed0", "h-seed1"),
        samples="s1",
        **text,
    )
    fake.retrieved("glove", {"D1": 0.25, "D3": 0.25}, samples="s1", options={"unit": "word"})
    fake.retrieved("another", {"D1": 0.9}, samples="s2", **text)  # not of this table
    assert main(["table", "smedbert", "1"]) == 0
    lines = {x.split("|")[1].strip(): x for x in capsys.readouterr().out.splitlines() if "|" in x}
    assert lines["SMedBERT"].split(" | ")[1:3] == ["31.81", "32.00 ± 2.83 (2)"]
    assert (
        lines["GLOVE-word-med"].split(" | ")[2].startswith("25.00 [")
        and "D2 measured" not in lines[""]
    )
    fake.retrieved("zh", {"D1": 0.2}, samples="s2", **text)
    asked = [
        System({"model": "smedbert"} | text["options"]),
        System({"model": "zh"} | text["options"]),
    ]
    with pytest.raises(InputError, match=r"smedbert text: samples 's1'; zh text: samples 's2'"):
        find_retrieval(asked, None)
    write_json(tmp_path / "manifest.json", {"sha256": "s2"})
    assert main(["table", "smedbert", "1", f"SAMPLES={tmp_path}"]) == 0
    assert "20.00 [" in capsys.readouterr().out


def test_sizes_are_those_of_the_files(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chineseblue.write("cMedQANER", tmp_path / "mirror")
    monkeypatch.setattr(
        "benchmarks.counts.fetch_dataset", lambda dataset, place, mirrors: tmp_path / "mirror"
    )
    entities = sum(len(e) for _, e in chineseblue.SENTENCES)
    assert split_sizes("cMedQANER", "mentions", Files())["train"] == entities
    assert split_sizes("cMedQANER", "examples", Files())["train"] == len(chineseblue.SENTENCES)

    def available(name: str, unit: str, files: Files) -> dict[str, int]:
        if name != "cMedQANER":
            raise InputError(f"{name} is not available")
        return {"train": 5}

    monkeypatch.setattr("benchmarks.tables.counted.split_sizes", available)
    assert main(["table", "smedbert", "5"]) == 0
    told = capsys.readouterr()
    assert "| train | 1,673 | 5 | 16,071 |" in told.out
    assert "KUAKE-QTR: not counted: KUAKE-QTR is not available" in told.err


def test_the_reported_numbers_are_whole() -> None:
    """Every table names known tasks, splits and rows; private sets have no task, so nothing is ever
    measured under their name."""
    for number in range(1, 6):
        definition = tables.definition_of("smedbert", str(number))
        columns = definition["columns"]
        for name, column in columns.items():
            if "task" in column:
                assert find_task(column["task"]) and (
                    number == 5 or column["split"] in ("dev", "test")
                )
            elif definition["kind"] != "synonyms":
                assert name.startswith(
                    ("DXY", "CHIP-RE", "cMedQA", "WebMedQA", "NER ", "RE ", "QA ", "D6", "D7", "D8")
                )
        for row in definition["rows"]:
            assert set(row.get("reported", {})) <= set(columns) and (
                row.get("reported") or row["measured"]
            )
            if row["name"] == "MC-BERT":
                assert row["reported"]
                assert System(row["measured"]).model == "embert/pretrain_mcbert"
            if row["name"] in ("ERNIE-med", "KnowBERT-med"):
                assert (
                    row["reported"]
                    and System(row["measured"]).model == row["name"].removesuffix("-med").lower()
                )
        total = sum(sum(row.get("reported", {}).values()) for row in definition["rows"])
        assert total == pytest.approx(SUMS[number])
        if number < 5:
            own = next(r for r in definition["rows"] if r["name"] == "SMedBERT")
            assert (
                list(own["reported"].values()) == SMEDBERT[number]
                and System(own["measured"]).model == "smedbert"
            )
    assert len(tables.definition_of("smedbert", "1")["rows"]) == 12 + 7


def test_every_measured_model_is_a_config() -> None:
    """A row or a point that names a stem of a paper names one that exists."""
    for paper, numbers, count in (("smedbert", range(1, 5), 8), ("embert", (3, 4, 5), 7)):
        named = {s.model for n in numbers for s in systems(tables.definition_of(paper, str(n)))}
        if paper == "smedbert":
            drawn = yaml.safe_load(
                (ROOT / "benchmarks" / "papers" / "smedbert" / "figures.yaml").read_text()
            )
            named |= {
                System(one).model
                for figure in drawn.values()
                for line in figure["lines"].values()
                for one in line.values()
            }
        stems = {name.partition("/")[2] for name in named if name.startswith(f"{paper}/")}
        assert len(stems) == count and all(
            (ROOT / "experiments" / paper / f"{stem}.yaml").is_file() for stem in stems
        )


def test_emberts_reported_numbers_are_whole() -> None:
    """As the one of SMedBERT; Table 4 also prints how much the best column of three rows loses."""
    for number, total in EMBERT_SUMS.items():
        definition = tables.definition_of("embert", str(number))
        columns = definition["columns"]
        for name, column in columns.items():
            assert ("task" in column) != (name in ("cNNER", "cMedQA")), (
                "their public sets are other ones"
            )
            assert "task" not in column or (
                find_task(column["task"]) and (number == 2 or column["split"] in ("dev", "test"))
            )
        rows = {row["name"]: row for row in definition["rows"]}
        assert all(set(row.get("reported", {})) <= set(columns) for row in rows.values())
        assert sum(sum(row.get("reported", {}).values()) for row in rows.values()) == pytest.approx(
            total
        )
        if number in EMBERT:
            for name, values in zip(("BERT-base", "MC-BERT"), EMBERT[number], strict=True):
                assert list(rows[f"EMBERT from {name}"]["reported"].values()) == values
            assert (
                rows["EMBERT from BERT-base"]["measured"] == "embert"
                and "measured" not in rows["EMBERT from MC-BERT"]
            )
        if number == 3:
            assert (
                rows["ERNIE-THU"]["measured"] == "ernie" and len(rows["ERNIE-THU"]["reported"]) == 6
            )
    whole = rows_of(4)["EMBERT from BERT-base"]
    printed = (
        ("entity consistency", "cMedQQ", 0.37),
        ("bidirectional mask", "cMedQA", 0.85),
        ("entity segmentation", "cMedQANER", 0.35),
        ("entity segmentation", "cNNER", 0.36),
    )
    for part, column, lost in printed:
        assert whole["reported"][column] - rows_of(4)[f"w/o {part}"]["reported"][
            column
        ] == pytest.approx(lost)
    assert rows_of(5)["15 %"]["reported"] == rows_of(4)["EMBERT from MC-BERT"]["reported"]


def rows_of(number: int) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in tables.definition_of("embert", str(number))["rows"]}


def test_an_answer_ranking_of_our_own_has_its_own_name(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.fine_tuned("embert", 0.5, name="NeikeQA", metric="acc1")
    fake.fine_tuned("embert/pretrain_no_segmentation", 0.4, name="NeikeQA", metric="acc1")
    assert main(["table", "embert", "4"]) == 0
    lines = {
        x.split("|")[1].strip(): [c.strip() for c in x.split("|")[2:-1]]
        for x in capsys.readouterr().out.splitlines()
        if "|" in x
    }
    place = lines[""].index("NeikeQA test measured")
    assert lines["EMBERT from BERT-base"][place][:7] == "50.00 ["
    assert (
        lines["w/o entity segmentation"][place][:7] == "40.00 [" and lines["MC-BERT"][place] == ""
    )
    assert lines["w/o all above"][lines[""].index("cNNER as published")] == "66.48"


def test_figures_are_drawn_from_results(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.fine_tuned("smedbert", 0.3, options={"hits": 0})
    fake.fine_tuned("smedbert", 0.5, 0.7)
    fake.fine_tuned("smedbert/pretrain_k5", 0.4)
    assert main(["figures", "smedbert", f"OUT={tmp_path}"]) == 0
    told = capsys.readouterr()
    rows = list(csv.reader((tmp_path / "figure3.csv").open()))
    assert (
        rows[0][1] == "share of linked mentions that take knowledge in"
        and rows[0][2] == "entity_f1"
    )
    low, high = bootstrap_interval(fake.hits(0.3))
    assert rows[1:] == [
        ["SMedBERT", "0", "0.3000", f"{low:.4f}", f"{high:.4f}", "0.3000", "smedbert HITS=0"],
        ["SMedBERT", "1", "0.6000", "0.5000", "0.7000", "0.5000 0.7000", "smedbert"],
    ]
    four = list(csv.reader((tmp_path / "figure4.csv").open()))[1:]
    assert [(r[0].split()[2], r[1]) for r in four] == [
        ("fine-tuned", "5"),
        ("fine-tuned", "10"),
        ("10,", "10"),
    ]
    for name in ("figure3", "figure4"):
        assert (tmp_path / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    assert "make finetune TASK=cMedQANER MODEL=smedbert HITS=0.2" in told.err
    assert "MODEL=smedbert/pretrain_k20" in told.err and "MODEL=smedbert HITS=0\n" not in told.err


def test_nothing_to_draw_names_the_commands(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["figures", "smedbert", "TASK=CMeIE:resplit"]) == 2
    told = capsys.readouterr().err
    assert (
        "nothing to draw" in told
        and "make finetune TASK=CMeIE:resplit MODEL=smedbert K=5\n" in told
    )
    assert main(["figures", "smedbert", "COLOUR=red"]) == 2
    assert (
        "no setting COLOUR; choose from: OF, TASK, PROFILE, MODEL, CKPT, NAMES, SEED, OUT"
        in capsys.readouterr().err
    )


def test_points_are_in_order(runs: Path) -> None:
    fake.fine_tuned("m", 0.3, options={"k": 3})
    fake.fine_tuned("m", 0.5)
    asked = {"a": {10: "m", 3: {"model": "m", "k": 3}, 20: {"model": "m", "k": 20}}}
    found, missing = smedbert.points(asked, "cMedQANER", "small")  # type: ignore[arg-type]
    assert [(p.x, p.mean) for p in found] == [(3.0, 0.3), (10.0, 0.5)]
    assert missing == ["make finetune TASK=cMedQANER MODEL=m K=20 PROFILE=small"]


def test_remarks_are_of_the_column(runs: Path) -> None:
    assert remarks("cMedQANER", fake.fine_tuned("zh", 0.3)) == []


def test_the_newest_pretraining_of_a_label(runs: Path) -> None:
    assert find_pretraining("kebiolm") == (None, []) and find_pretraining("hfl/x") == (None, [])
    for age, (place, value) in enumerate(
        [
            ("kebiolm/pretrain_wem/new/seed1", 0.4),
            ("kebiolm/pretrain_wem/new/seed0", 0.2),
            ("kebiolm/pretrain_wem/old/seed0", 0.9),
            ("kebiolm/pretrain/x/seed0", 0.5),
        ]
    ):
        write_json(runs / place / "end.json", {"val/linking_acc1": value})
        write_json(runs / place / "finished.json", {"steps": 1})
        os.utime(runs / place / "finished.json", (1_000_000 - age, 1_000_000 - age))
    # not finished
    write_json(runs / "kebiolm/pretrain_wem/new/seed2/end.json", {"val/linking_acc1": 0.7})
    folder, ends = find_pretraining("kebiolm/pretrain_wem")
    assert folder == runs / "kebiolm" / "pretrain_wem" / "new"
    assert [e["val/linking_acc1"] for e in ends] == [0.2, 0.4]
    # the stem that the bare name means
    assert [e["val/linking_acc1"] for e in find_pretraining("kebiolm")[1]] == [0.5]
    text = markdown("kebiolm", "3")
    row = next(line for line in text.splitlines() if line.startswith("| -wem"))
    assert "30.00 ± 14.14 (2)" in row and "92.80" in row


@pytest.mark.parametrize(("number", "total"), [("2", 5894.4), ("3", 3369.5), ("4", 2531.3)])
def test_kebiolm_as_published(number: str, total: float) -> None:
    published = tables.definition_of("kebiolm", number)
    assert sum(
        v for row in published["rows"] for v in row.get("reported", {}).values()
    ) == pytest.approx(total)
    own = next(row for row in published["rows"] if row.get("measured") == "kebiolm")["reported"]
    assert list(own.values()) == [93.3, 86.1, 89.1, 85.1, 82.0, 87.1, 77.5, 81.9, 84.3, 81.2]


def test_what_a_later_command_replaced_is_said(runs: Path) -> None:
    """The same model with other settings is one system, whose newest command counts."""
    fake.fine_tuned("enc", 0.9, 0.8, age=9)
    fake.fine_tuned("enc", 0.3, age=1)
    fake.fine_tuned("zh", 0.5, 0.6, age=5)
    fake.fine_tuned("zh", 0.5, age=7, data="other")
    said = compare("cMedQANER").splitlines()
    assert [line.split()[:2] for line in said[1:3]] == [["zh", "0.5500"], ["enc", "0.3000"]]
    assert "zh against enc: +0.2000 over the seeds that both have (0), 95 % interval" in said[3]
    (place,) = {Path(r.folder).parent for r in list_stored("finetune") if r.value() == 0.9}
    assert said[4:] == [
        f"left out: enc, seeds 0,1, 0.8500: a later command fine-tuned this model again ({place})",
        "left out: 1 of other data or another split",
    ]


def test_a_copied_seed_is_not_counted_twice(runs: Path) -> None:
    first, _ = fake.fine_tuned("enc", 0.9, 0.8)
    fake.fine_tuned("zh", 0.5, 0.6)
    shutil.copytree(first.folder, Path(first.folder).with_name("seed5"))
    with pytest.raises(InputError, match=r"seed0 and \S*seed5 are both enc with seed 0"):
        compare("cMedQANER")
