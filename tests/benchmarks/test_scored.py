"""Tables and figures of what `make finetune` and `make synonyms` found: cells by hand, mixtures, published numbers."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy.stats import ttest_rel

from benchmarks import sweeps, table
from benchmarks.counts import split_sizes
from benchmarks.finetune import told_p
from benchmarks.run import main
from benchmarks.scored import (
    comparison,
    fine_tuned,
    interval,
    parted,
    pretrained,
    remarks,
    retrieval_comparison,
    retrieved,
    seed_of,
    values,
)
from benchmarks.tasks import task
from core.files import InputError, read_json, write_json
from core.tracking import ROOT
from tests.fakes import chineseblue

#: Percent, as the paper prints them: its own row, and the sum over all cells of a table.
SMEDBERT = {1: [31.81, 32.14, 24.08], 2: [82.23, 84.75, 83.06, 82.94, 83.85, 86.95, 95.73, 95.89, 91.42],
            3: [75.06, 76.04, 79.26, 81.68, 78.86, 88.13, 88.09, 96.64, 96.88], 4: [84.75, 82.94, 86.95, 95.89]}  # fmt: skip

#: EMBERT's own rows (from BERT-base, from MC-BERT), and the sum over all cells of a table.
EMBERT = {3: ([87.59, 96.50, 84.49, 67.07, 75.10, 80.51], [88.06, 96.59, 85.02, 67.22, 75.32, 80.63]),
          4: ([87.59, 84.49, 75.10, 67.07], [88.06, 85.02, 75.32, 67.22])}  # fmt: skip
EMBERT_SUMS = {2: 737927, 3: 3418.62, 4: 2192.61, 5: 945.2}

SUMS = {1: 962.28, 2: 6185.3, 3: 6002.09, 4: 1739.15, 5: 1036536}


def scored(
    runs: Path, model: str, *scores: float, name: str = "cMedQANER", place: str = "d", age: int = 0, **more: Any
) -> Path:
    """A summary as `make finetune` writes it, of one score a seed; select is a tenth below. `age` in seconds."""
    known = {"values": list(scores), "mean": sum(scores) / len(scores), "sd": None}
    summary = {
        "model": model, "profile": "small", "task_digest": "data1", "metric": "entity_f1", "scored_on": "test",
        "selected_on": "dev", "variant": None, "args": "", "seeds": list(range(len(scores))), "interval": [0.25, 0.75],
        "score": known, "select": known | {"values": [s - 0.1 for s in scores]}, "other": {"accuracy": known},
    }  # fmt: skip
    file = (
        runs / "finetune" / name.replace(":", "-") / model.replace("/", "-").replace(" ", "-") / place / "summary.json"
    )
    write_json(file, summary | {"folder": str(file.parent)} | more)
    tallied(file, **{f"seed{seed}": [1, 0, 1, 0] for seed in range(len(scores))})
    os.utime(file, (1_000_000 - age, 1_000_000 - age))
    return file


def test_labels_are_parted() -> None:
    assert parted("a/b@0af1-seed2 K=5") == ("a-b K=5", "0af1-seed2")
    assert parted("a/b HITS=0.5") == ("a-b HITS=0.5", "") and parted("zh") == ("zh", "")


def test_the_newest_summary_of_a_label_counts(runs: Path) -> None:
    scored(runs, "smedbert", 0.5, place="old", age=100)
    scored(runs, "smedbert", 0.6, place="new")
    scored(runs, "other", 0.9, task_digest="data2")  # not asked for, so it refuses nothing
    found = fine_tuned("cMedQANER", ["smedbert", "zh"])
    assert list(found) == ["smedbert"] and values(found["smedbert"], "test") == [0.6]


def test_scores_by_split_and_metric(runs: Path) -> None:
    scored(runs, "zh", 0.5, 0.7)
    scored(runs, "smedbert", 0.6, age=5)
    two, one = (fine_tuned("cMedQANER", [label])[label] for label in ("zh", "smedbert"))
    assert values(two, "test") == [0.5, 0.7] and values(two, "dev") == pytest.approx([0.4, 0.6])
    assert values(two, "test", "accuracy") == [0.5, 0.7] and values(two, "dev", "accuracy") == []
    assert values(two, "train") == [] and values(two, "test", "nothing") == []
    assert interval(two, "test") is None and interval(one, "test") == (0.25, 0.75)
    assert interval(one, "dev") is None and interval(one, "test", "accuracy") is None


def test_seeds_of_runs() -> None:
    assert [seed_of(name) for name in ("seed0", "ab12-seed13", "seed", "myseed1", "")] == [0, 13, None, None, None]


def tallied(file: Path, **right: list[int]) -> None:
    """The tallies of fine-tuning seeds beside a summary: right or wrong of each test example."""
    for seed, hits in right.items():
        (file.parent / seed).mkdir(exist_ok=True)
        own = np.stack([hits, np.ones(len(hits))], axis=1)
        np.savez(file.parent / seed / "tallies.npz", **{read_json(file)["metric"]: own})  # type: ignore[arg-type]


def test_pretraining_seeds_are_paired(runs: Path) -> None:
    """The difference is over examples and runs; the t-test is over the runs' seeds, each its sum over fine-tuning seeds."""
    ours = [[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]]
    plain = [[1, 0, 1, 0], [1, 0, 0, 0], [0, 1, 1, 0]]
    for seed in range(3):
        tallied(scored(runs, f"smedbert@abc-seed{seed}", 0.5, place=str(seed)), seed0=ours[seed])
        tallied(scored(runs, f"smedbert/pretrain_plain@def-seed{seed}", 0.4, place=str(seed)), seed0=plain[seed])
    tallied(scored(runs, "zh", 0.1, 0.2), seed0=[0, 0, 0, 1], seed1=[0, 0, 0, 0])
    text = comparison("cMedQANER", "small").splitlines()
    assert text[0].endswith("4 examples, the same for all")
    means = [float(line.split()[1]) for line in text[1:4]]
    assert [line.split()[0] for line in text[1:4]] == ["smedbert", "smedbert-pretrain_plain", "zh"]
    assert means == pytest.approx([9 / 12, 5 / 12, 1 / 8], abs=1e-4) and "pre-training seeds 0,1,2" in text[1]
    wanted = ttest_rel([0.75, 0.5, 1.0], [0.5, 0.25, 0.5]).pvalue
    assert wanted > 0.001 and told_p(1e-5) == "p < 0.001"
    assert "+0.3333" in text[4] and f"paired t over 3 pre-training seeds p = {wanted:.3f}" in text[4]
    assert text[5] == "smedbert against zh: no common seed"  # seeds of fine-tuning are others
    against = comparison("cMedQANER", "small", "smedbert-pretrain_plain").splitlines()
    assert against[:4] == text[:4] and against[4] == text[4]
    assert against[5] == "zh against smedbert-pretrain_plain: no common seed"
    against = comparison("cMedQANER", "small", "smedbert").splitlines()
    assert against[4].startswith("smedbert-pretrain_plain against smedbert: -0.3333")
    with pytest.raises(InputError, match="BASE=x: not scored here; choose from: smedbert, smedbert-pretrain_plain, zh"):
        comparison("cMedQANER", "small", "x")


def test_retrieval_is_compared_by_pretraining_seeds(runs: Path) -> None:
    def found(model: str, run: str, hits: list[float], samples: str = "s") -> None:
        folder = runs / "synonyms" / samples / f"{model}-{run}"
        stamp = {"samples": samples, "frequent": 200, "mentions": "m"}
        write_json(
            folder / "summary.json", {"model": model, "run": run, "stamp": stamp, "folder": str(folder), "results": {}}
        )
        np.savez(folder / "hits.npz", D1=np.array(hits), D2=np.zeros(0), D3=np.array(hits[:2]))

    with pytest.raises(InputError, match="make synonyms"):
        retrieval_comparison()
    found("zh text", "", [1, 1, 1, 1], samples="other")
    for seed in (0, 1):
        found("smedbert text", f"seed{seed}", [1, 1, seed, 0])
        found("plain text", f"seed{seed}", [0, 1, 0, 0])
    first, second = (block.splitlines() for block in retrieval_comparison().split("\n\n"))
    assert first[0] == "D1, Acc@1 among 20 names, 4 examples, the same for all" and second[0].startswith("D3,")
    assert (
        "smedbert text" in first[1]
        and "0.6250 ± 0.1768" in first[1]
        and "+0.3750" in first[3]
        and "zh" not in "".join(first)
    )
    assert retrieval_comparison("other").startswith("D1") and "zh text" in retrieval_comparison("other")
    with pytest.raises(InputError, match="BASE=x: not scored here"):
        retrieval_comparison(base="x")


def test_runs_of_one_pretraining_are_seeds(runs: Path) -> None:
    """CKPT= names single runs: one value each, its mean over fine-tuning seeds; they stand instead of the bare name's."""
    scored(runs, "smedbert", 0.1)
    scored(runs, "smedbert@abc-seed0", 0.5, 0.7)
    scored(runs, "smedbert@abc-seed1", 0.8)
    found = fine_tuned("cMedQANER", ["smedbert"])["smedbert"]
    assert values(found, "test") == pytest.approx([0.6, 0.8]) and interval(found, "test") is None
    scored(runs, "smedbert@fff-seed0", 0.5)
    with pytest.raises(InputError, match=r"runs of several pre-trainings \(abc, fff\)"):
        fine_tuned("cMedQANER", ["smedbert"])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"task_digest": "data2"}, "scores of different data .*data1: smedbert; data2: zh"),
        ({"profile": "paper"}, "scores of different PROFILE .*Say which with PROFILE="),
        ({"scored_on": "dev"}, "scores of different scored split"),
    ],
)
def test_mixtures_are_refused(more: dict[str, str], message: str, runs: Path) -> None:
    scored(runs, "smedbert", 0.5, age=10)
    scored(runs, "zh", 0.5, **more)
    with pytest.raises(InputError, match=message):
        fine_tuned("cMedQANER", ["smedbert", "zh"])
    if "profile" in more:
        assert list(fine_tuned("cMedQANER", ["smedbert", "zh"], "paper")) == ["zh"]


def test_a_finetuning_table_shows_reported_beside_measured(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scored(runs, "smedbert", 0.5, 0.6)
    scored(runs, "smedbert/pretrain_plain@abc-seed0", 0.4512)
    own = {
        "metric": "micro_f1",
        "scored_on": "dev",
        "selected_on": "a tenth of train",
        "variant": "resplit",
        "args": "--x 1",
    }
    scored(runs, "zh", 0.3, name="CMeIE:resplit", **own)
    assert main(["table", "smedbert", "2"]) == 0
    told = capsys.readouterr()
    lines = {
        x.split("|")[1].strip(): [c.strip() for c in x.split("|")[2:-1]] for x in told.out.splitlines() if "|" in x
    }
    head = lines[""]
    assert lines["SMedBERT"][head.index("cMedQANER test measured")] == "55.00 ± 7.07 (2)"
    assert lines["SMedBERT"][head.index("cMedQANER dev measured")] == "45.00 ± 7.07 (2)"
    assert lines["SMedBERT"][head.index("cMedQANER test as published")] == "84.75"
    assert lines["BioBERT-zh"][head.index("cMedQANER test measured")] == "45.12 [25.00, 75.00]"
    assert lines["the start encoder zh"][head.index("CMeIE:resplit dev measured")] == "30.00 [25.00, 75.00]"
    assert not [h for h in head if "measured" in h and ("CHIP-RE" in h or "DXY" in h)]
    assert "CMeIE:resplit: variant resplit (not the official set)" in told.err and "with ARGS='--x 1'" in told.err


def retrieval(runs: Path, model: str, stamp: str, place: str, score: float, **more: Any) -> None:
    folder = runs / "synonyms" / stamp / place
    result = {"acc@1": score, "low": score - 0.1, "high": score + 0.1, "samples": 7}
    write_json(folder / "summary.json", {"model": model, "folder": str(folder), "stamp": {"samples": stamp},
                                         "results": {"D1": result, "D3": result}} | more)  # fmt: skip


def test_a_synonym_table_is_of_one_stamp(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    retrieval(runs, "smedbert text", "s1", "a", 0.30)
    retrieval(runs, "smedbert text", "s1", "b", 0.34)
    retrieval(runs, "glove word", "s1", "c", 0.25)
    retrieval(runs, "another model", "s2", "d", 0.9)  # not of this table
    assert main(["table", "smedbert", "1"]) == 0
    lines = {x.split("|")[1].strip(): x for x in capsys.readouterr().out.splitlines() if "|" in x}
    assert lines["SMedBERT"].split(" | ")[1:3] == ["31.81", "32.00 ± 2.83 (2)"]
    assert lines["GLOVE-word-med"].split(" | ")[2] == "25.00 [15.00, 35.00]" and "D2 measured" not in lines[""]
    retrieval(runs, "zh text", "s2", "e", 0.2)
    with pytest.raises(InputError, match=r"different samples or text .*: smedbert text, glove word; .*: zh text"):
        retrieved(["smedbert text", "glove word", "zh text"])
    write_json(tmp_path / "manifest.json", {"sha256": "s2"})
    assert main(["table", "smedbert", "1", f"SAMPLES={tmp_path}"]) == 0
    assert "20.00 [10.00, 30.00]" in capsys.readouterr().out


def test_sizes_are_those_of_the_files(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chineseblue.write("cMedQANER", tmp_path / "mirror")
    monkeypatch.setattr("benchmarks.counts.fetched", lambda dataset, place, mirrors: tmp_path / "mirror")
    entities = sum(len(e) for _, e in chineseblue.SENTENCES)
    found = split_sizes("cMedQANER", "mentions", {})
    assert found["train"] == entities and split_sizes("cMedQANER", "examples", {})["train"] == len(
        chineseblue.SENTENCES
    )

    def here(name: str, unit: str, given: dict[str, str]) -> dict[str, int]:
        if name != "cMedQANER":
            raise InputError(f"{name} is not at hand")
        return {"train": 5}

    monkeypatch.setattr("benchmarks.table.counted.split_sizes", here)
    assert main(["table", "smedbert", "5"]) == 0
    told = capsys.readouterr()
    assert (
        "| train | 1,673 | 5 | 16,071 |" in told.out and "KUAKE-QTR: not counted: KUAKE-QTR is not at hand" in told.err
    )


def test_the_reported_numbers_are_whole() -> None:
    """Every table names known tasks, splits and rows; private sets have no task, so nothing is ever measured under their name."""
    for number in range(1, 6):
        definition = table.definition_of("smedbert", str(number))
        columns = definition["columns"]
        for name, column in columns.items():
            if "task" in column:
                assert task(column["task"]) and (number == 5 or column["split"] in ("dev", "test"))
            elif definition["kind"] != "synonyms":
                assert name.startswith(("DXY", "CHIP-RE", "cMedQA", "WebMedQA", "NER ", "RE ", "QA ", "D6", "D7", "D8"))
        for row in definition["rows"]:
            assert set(row.get("reported", {})) <= set(columns) and (row.get("reported") or row["measured"])
            if row["name"] in ("ERNIE-med", "KnowBERT-med", "MC-BERT"):
                assert row["reported"] and "measured" not in row
        total = sum(sum(row.get("reported", {}).values()) for row in definition["rows"])
        assert total == pytest.approx(SUMS[number])
        if number < 5:
            own = next(r for r in definition["rows"] if r["name"] == "SMedBERT")
            assert list(own["reported"].values()) == SMEDBERT[number] and own["measured"].startswith("smedbert")
    assert len(table.definition_of("smedbert", "1")["rows"]) == 12 + 5


def test_every_label_is_a_config() -> None:
    """A row or a point that names a stem of the paper names one that there is."""
    labels = [
        row["measured"]
        for n in range(1, 5)
        for row in table.definition_of("smedbert", str(n))["rows"]
        if "measured" in row
    ]
    drawn = yaml.safe_load((ROOT / "experiments" / "smedbert" / "figures.yaml").read_text())["drawn"]
    labels += [parted(words)[0] for one in drawn.values() for line in one["lines"].values() for words in line.values()]
    stems = {label.split()[0].partition("-")[2] for label in labels if label.startswith("smedbert-")}
    assert len(stems) == 7 and all((ROOT / "experiments" / "smedbert" / f"{stem}.yaml").is_file() for stem in stems)


def test_emberts_reported_numbers_are_whole() -> None:
    """As the one of SMedBERT; Table 4 also prints how much the best column of three rows loses."""
    for number, total in EMBERT_SUMS.items():
        definition = table.definition_of("embert", str(number))
        columns = definition["columns"]
        for name, column in columns.items():
            assert ("task" in column) != (name in ("cNNER", "cMedQA")), "their public sets are other ones"
            assert "task" not in column or (
                task(column["task"]) and (number == 2 or column["split"] in ("dev", "test"))
            )
        rows = {row["name"]: row for row in definition["rows"]}
        assert all(set(row.get("reported", {})) <= set(columns) for row in rows.values())
        assert sum(sum(row.get("reported", {}).values()) for row in rows.values()) == pytest.approx(total)
        if number in EMBERT:
            for name, values in zip(("BERT-base", "MC-BERT"), EMBERT[number], strict=True):
                assert list(rows[f"EMBERT from {name}"]["reported"].values()) == values
            assert (
                rows["EMBERT from BERT-base"]["measured"] == "embert" and "measured" not in rows["EMBERT from MC-BERT"]
            )
        if number == 3:
            assert "measured" not in rows["ERNIE-THU"] and len(rows["ERNIE-THU"]["reported"]) == 6
    whole = rows_of(4)["EMBERT from BERT-base"]
    printed = (("entity consistency", "cMedQQ", 0.37), ("bidirectional mask", "cMedQA", 0.85),
               ("entity segmentation", "cMedQANER", 0.35), ("entity segmentation", "cNNER", 0.36))  # fmt: skip
    for part, column, lost in printed:
        assert whole["reported"][column] - rows_of(4)[f"w/o {part}"]["reported"][column] == pytest.approx(lost)
    assert rows_of(5)["15 %"]["reported"] == rows_of(4)["EMBERT from MC-BERT"]["reported"]


def rows_of(number: int) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in table.definition_of("embert", str(number))["rows"]}


def test_emberts_labels_are_configs() -> None:
    labels = {row["measured"] for n in (3, 4, 5) for row in rows_of(n).values() if "measured" in row}
    stems = {label.partition("-")[2] for label in labels if label.startswith("embert-")}
    assert len(stems) == 7 and all((ROOT / "experiments" / "embert" / f"{stem}.yaml").is_file() for stem in stems)


def test_an_answer_ranking_of_our_own_stands_under_its_name(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scored(runs, "embert", 0.5, name="NeikeQA", metric="acc1")
    scored(runs, "embert/pretrain_no_segmentation", 0.4, name="NeikeQA", metric="acc1")
    assert main(["table", "embert", "4"]) == 0
    lines = {x.split("|")[1].strip(): [c.strip() for c in x.split("|")[2:-1]] for x in capsys.readouterr().out.splitlines()
             if "|" in x}  # fmt: skip
    place = lines[""].index("NeikeQA test measured")
    assert lines["EMBERT from BERT-base"][place] == "50.00 [25.00, 75.00]"
    assert lines["w/o entity segmentation"][place] == "40.00 [25.00, 75.00]" and lines["MC-BERT"][place] == ""
    assert lines["w/o all above"][lines[""].index("cNNER as published")] == "66.48"


def test_figures_are_drawn_from_runs(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scored(runs, "smedbert HITS=0", 0.3)
    scored(runs, "smedbert", 0.5, 0.7)
    scored(runs, "smedbert/pretrain_k5", 0.4)
    assert main(["figures", "smedbert", f"OUT={tmp_path}"]) == 0
    told = capsys.readouterr()
    rows = list(csv.reader((tmp_path / "figure3.csv").open()))
    assert rows[0][1] == "share of linked mentions that take knowledge in" and rows[0][2] == "entity_f1"
    assert rows[1:] == [["SMedBERT", "0", "0.3000", "0.2500", "0.7500", "0.3000", "smedbert HITS=0"],
                        ["SMedBERT", "1", "0.6000", "0.5000", "0.7000", "0.5000 0.7000", "smedbert"]]  # fmt: skip
    four = list(csv.reader((tmp_path / "figure4.csv").open()))[1:]
    assert [(r[0].split()[2], r[1]) for r in four] == [("fine-tuned", "5"), ("fine-tuned", "10"), ("10,", "10")]
    for name in ("figure3", "figure4"):
        assert (tmp_path / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    assert "make finetune TASK=cMedQANER MODEL=smedbert HITS=0.2" in told.err
    assert "MODEL=smedbert/pretrain_k20" in told.err and "MODEL=smedbert HITS=0\n" not in told.err


def test_nothing_to_draw_names_the_commands(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["figures", "smedbert", "TASK=CMeIE:resplit"]) == 2
    told = capsys.readouterr().err
    assert "nothing to draw" in told and "make finetune TASK=CMeIE:resplit MODEL=smedbert K=5\n" in told
    assert main(["figures", "smedbert", "COLOUR=red"]) == 2
    assert "no setting 'COLOUR'; choose from: TASK, PROFILE, OUT" in capsys.readouterr().err


def test_points_stand_in_order(runs: Path) -> None:
    scored(runs, "m K=3", 0.3)
    scored(runs, "m", 0.5, scored_on="test")
    found, missing = sweeps.points({"a": {10: "m", 3: "m K=3", 20: "m K=20"}}, "cMedQANER", "small")
    assert [(p.x, p.mean) for p in found] == [(3.0, 0.3), (10.0, 0.5)]
    assert missing == ["make finetune TASK=cMedQANER MODEL=m K=20 PROFILE=small"]


def test_remarks_are_of_what_stands_there(runs: Path) -> None:
    scored(runs, "zh", 0.3)
    assert remarks("cMedQANER", fine_tuned("cMedQANER", ["zh"])) == []


def test_the_newest_pretraining_of_a_label(runs: Path) -> None:
    assert pretrained("kebiolm") == (None, []) and pretrained("zh text") == (None, [])
    for age, (place, value) in enumerate([("kebiolm/pretrain_wem/new/seed1", 0.4), ("kebiolm/pretrain_wem/new/seed0", 0.2),
                                          ("kebiolm/pretrain_wem/old/seed0", 0.9), ("kebiolm/pretrain/x/seed0", 0.5)]):  # fmt: skip
        write_json(runs / place / "end.json", {"val/linking_acc1": value})
        write_json(runs / place / "finished.json", {"steps": 1})
        os.utime(runs / place / "finished.json", (1_000_000 - age, 1_000_000 - age))
    write_json(runs / "kebiolm/pretrain_wem/new/seed2/end.json", {"val/linking_acc1": 0.7})  # not finished
    folder, ends = pretrained("kebiolm-pretrain_wem")
    assert folder == runs / "kebiolm" / "pretrain_wem" / "new"
    assert [e["val/linking_acc1"] for e in ends] == [0.2, 0.4]
    assert [e["val/linking_acc1"] for e in pretrained("kebiolm")[1]] == [0.5]  # the stem that the bare name means
    text = table.markdown("kebiolm", "3", {})
    row = next(line for line in text.splitlines() if line.startswith("| -wem"))
    assert "30.00 ± 14.14 (2)" in row and "92.80" in row


@pytest.mark.parametrize(("number", "total"), [("2", 5894.4), ("3", 3369.5), ("4", 2531.3)])
def test_kebiolm_as_published(number: str, total: float) -> None:
    published = table.definition_of("kebiolm", number)
    assert sum(v for row in published["rows"] for v in row.get("reported", {}).values()) == pytest.approx(total)
    own = next(row for row in published["rows"] if row.get("measured") == "kebiolm")["reported"]
    assert list(own.values()) == [93.3, 86.1, 89.1, 85.1, 82.0, 87.1, 77.5, 81.9, 84.3, 81.2]
