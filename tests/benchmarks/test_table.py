"""Tables: cells as text and as CSV, tests against rows and against published numbers, files that are written."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_1samp, ttest_rel

from benchmarks import table
from benchmarks.run import main, settings_of
from benchmarks.table import missing
from benchmarks.table.cells import HEADS, Cell, as_csv, as_markdown, beside
from benchmarks.table.measured import row_of
from core.files import InputError, write_json
from models.metrics import one_sample
from tests.benchmarks.test_scored import scored, tallied


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KEPL_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def test_a_cell_as_text() -> None:
    assert Cell("r", "c", 93.3).published == "93.30" and Cell("r", "c", None).published == ""
    assert Cell("r", "c", None).shown == "" and Cell("r", "c", None, (12.345,)).shown == "12.35"
    assert Cell("r", "c", None, (12.345,), (10.0, 15.0)).shown == "12.35 [10.00, 15.00]"
    assert Cell("r", "c", None, (12.0, 14.0), (10.0, 15.0), digits=1).shown == "13.0 ± 1.4 (2)"


def test_cells_beside_one_another_and_a_line_each() -> None:
    cells = [Cell("a|b", "x", 1.0, (2.0, 4.0), (1.0, 5.0), ("t = 1",), ("run1", "run2")), Cell("a|b", "y", None),
             Cell("c", "x", None), Cell("c", "y", None)]  # fmt: skip
    lines = beside(cells)
    assert lines == [["", "x as published", "x measured", "y as published", "y measured"],
                     ["a|b", "1.00", "3.00 ± 1.41 (2)", "", ""], ["c", "", "", "", ""]]  # fmt: skip
    assert as_markdown(lines).splitlines() == [
        "|  | x as published | x measured |", "|---|---|---|", "| a\\|b | 1.00 | 3.00 ± 1.41 (2) |", "| c |  |  |",
    ]  # fmt: skip
    rows = list(csv.reader(as_csv(cells).splitlines()))
    assert tuple(rows[0]) == HEADS and len(rows) == 5
    assert rows[1] == ["a|b", "x", "1.0", "3", "1.41421", "2", "1", "5", "t = 1", "run1 run2"]
    assert rows[2] == ["a|b", "y", "", "", "", "", "", "", "", ""]


def test_one_sample_t() -> None:
    values = [93.1, 93.6, 93.0]
    wanted = ttest_1samp(values, 92.0)
    assert one_sample(values, 92.0) == pytest.approx((wanted.statistic, wanted.pvalue))
    # by hand: mean 93.2333, sd 0.32146, t = 1.2333 / (0.32146 / sqrt(3))
    assert one_sample(values, 92.0)[0] == pytest.approx(6.645, abs=1e-3)
    assert one_sample([1.0, 1.0], 1.0) == (0.0, 1.0) and one_sample([1.0, 1.0], 2.0) == (-np.inf, 0.0)
    with pytest.raises(ValueError, match="wanted at least 2"):
        one_sample([1.0], 1.0)


def test_kebiolms_table_tests_against_the_published_baseline_and_the_one_run_here(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = [[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]]
    plain = [[1, 0, 1, 0], [1, 0, 0, 0], [0, 1, 1, 0]]
    for seed in range(3):
        name = {"name": "NCBI", "mlflow_run": f"run{seed}"}
        tallied(
            scored(runs, f"kebiolm@abc-seed{seed}", (0.75, 0.5, 1.0)[seed], place=str(seed), **name), seed0=ours[seed]
        )
        tallied(scored(runs, f"kebiolm/pretrain_mlm@def-seed{seed}", (0.5, 0.25, 0.5)[seed], place=str(seed), **name),
                seed0=plain[seed])  # fmt: skip
    assert main(["table", "kebiolm", "2", f"OUT={tmp_path / 'out'}"]) == 0
    said = capsys.readouterr().out
    t = ttest_1samp([75, 50, 100], 87.8)
    assert (
        f"KeBioLM, NCBI: one-sample t against PubMedBERT as published (87.80): -12.80, t = {t.statistic:.2f}, p = {t.pvalue:.3f}"
        in said
    )
    p = ttest_rel([0.75, 0.5, 1.0], [0.5, 0.25, 0.5]).pvalue
    assert "KeBioLM, NCBI: against MiniLM, the same text and steps, masked words only: +33.33 [" in said
    assert f"paired t over 3 pre-training seeds p = {p:.3f}" in said
    assert "| KeBioLM |" in said and "75.00 ± 25.00 (3)" in said
    written = tmp_path / "out" / "kebiolm_table2.md"
    assert written.read_text().strip() in said and f"written to {written} and kebiolm_table2.csv" in said
    rows = {
        (r[0], r[1]): dict(zip(HEADS, r, strict=True))
        for r in csv.reader((tmp_path / "out" / "kebiolm_table2.csv").open())
    }
    own = rows["KeBioLM", "NCBI"]
    assert (own["as published"], own["measured"], own["sd"], own["n"], own["runs"]) == (
        "89.1",
        "75",
        "25",
        "3",
        "run0 run1 run2",
    )
    assert rows["PubMedBERT", "NCBI"]["measured"] == "" and rows["PubMedBERT", "NCBI"]["as published"] == "87.8"
    assert rows["KeBioLM", "NER average"]["measured"] == ""  # nothing is averaged


def test_without_a_second_seed_nothing_is_tested_against_a_number(runs: Path) -> None:
    scored(runs, "kebiolm", 0.9, name="NCBI")
    assert "one-sample" not in table.markdown("kebiolm", "2", {})


def test_a_table_of_counts_is_written_too(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", "kebiolm", "5"]) == 0
    said = capsys.readouterr().out
    assert "143,771" in said
    lines = list(csv.reader((runs / "tables" / "kebiolm_table5.csv").open()))
    assert lines[1] == ["queries", "143,771"]


def test_against_and_baseline_name_rows() -> None:
    for file in sorted((table.ROOT / "experiments").glob("*/table*.yaml")):
        own = table.definition_of(file.parent.name, file.stem.removeprefix("table"))
        against, baseline = row_of(own, "against"), row_of(own, "baseline")
        assert against is None or "measured" in against
        assert baseline is None or "reported" in baseline
    with pytest.raises(InputError, match="against: no row 'x'"):
        row_of({"title": "t", "against": "x", "rows": []}, "against")


def test_missing_fine_tunings_are_made_first(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    definition = {
        "kind": "finetune",
        "columns": {"a": {"task": "cMedQANER", "split": "test"}, "b": {"task": "cMedQQ", "split": "dev"}, "c": {}},
        "rows": [
            {"name": "x", "measured": "embert-pretrain_plain"},
            {"name": "y", "measured": "smedbert HITS=0"},
            {"name": "z", "measured": "hfl--chinese-bert-wwm"},
            {"name": "reported only", "reported": {"a": 1.0}},
        ],
    }
    scored(runs, "embert/pretrain_plain", 0.4)
    given = {"MIRROR": "a b", "SEEDS": "0,"}
    assert missing.wanted(definition, given) == [
        ["finetune", task, *model, "SEEDS=0,", "MIRROR=a b"]
        for task, model in (
            ("cMedQQ", ["MODEL=embert/pretrain_plain"]),
            ("cMedQANER", ["MODEL=smedbert", "HITS=0"]), ("cMedQQ", ["MODEL=smedbert", "HITS=0"]),
            ("cMedQANER", ["MODEL=hfl/chinese-bert-wwm"]), ("cMedQQ", ["MODEL=hfl/chinese-bert-wwm"]),
        )
    ]  # fmt: skip
    done: list[list[str]] = []

    class Ended:
        returncode = 0

    def ran(command: list[str], **_: object) -> Ended:
        done.append(command[3:])
        ended = Ended()
        ended.returncode = 2 if "MODEL=hfl/chinese-bert-wwm" in command else 0
        return ended

    monkeypatch.setattr(missing.subprocess, "run", ran)
    assert missing.run_missing(definition, given) == done[3:] and len(done) == 5  # one that fails does not stop the others
    said = capfd.readouterr()
    assert said.err.count("not run") == 2 and "make finetune TASK=cMedQQ MODEL=smedbert HITS=0 SEEDS=0, 'MIRROR=a b'" in said.out
    with pytest.raises(InputError, match="this table is of the kind 'sizes': it counts what is at hand"):
        missing.wanted({"kind": "sizes"}, {})


@pytest.mark.parametrize(
    ("label", "tuned", "settings"),
    [
        ("sapbert-pretrain_ontologies mean", False, "MODEL=sapbert/pretrain_ontologies POOLING=mean"),
        ("minilm cls dot", False, "MODEL=minilm SIMILARITY=dot POOLING=cls"),
        ("a--b cls, names shortest + back-off", False, "MODEL=a/b POOLING=cls NAMES=shortest BACKOFF=yes"),
        ("sapbert fine-tuned mean + back-off", True, "MODEL=sapbert POOLING=mean"),
        ("sapbert fine-tuned, target sample mean", True, "MODEL=sapbert POOLING=mean TARGET=sample"),
        ("genbioel", False, "MODEL=genbioel"),
        ("genbioel, fairseq, sum, tfidf 50, names sample", False,
         "MODEL=genbioel FINISH=fairseq SCORE=sum CANDIDATES=tfidf:50 NAMES=sample"),
        ("genbioel, mean", False, "MODEL=genbioel SCORE=mean"),
        ("genbioel fine-tuned, target shortest, prompt no", True, "MODEL=genbioel TARGET=shortest PROMPT=no"),
        ("kebiolm entities", False, "MODEL=kebiolm"),
    ],
)  # fmt: skip
def test_the_settings_behind_a_linkers_label(label: str, tuned: bool, settings: str) -> None:
    assert missing.linker_of(label) == (tuned, settings.split())


def test_a_label_of_no_setting_is_refused() -> None:
    with pytest.raises(InputError, match="the label 'genbioel, soon': no setting of `make evaluate` gives 'soon'"):
        missing.linker_of("genbioel, soon")


def test_missing_linkers(runs: Path) -> None:
    definition = {
        "columns": {"a": {"task": "NCBI-EL", "split": "test"}, "b": {"task": "HPO-EL", "split": "test"}, "c": {}},
        "rows": [{"name": "floor", "measured": "exact"}, {"name": "other floor", "measured": "tfidf"},
                 {"name": "x", "measured": "minilm cls"}, {"name": "y", "measured": "sapbert fine-tuned cls"},
                 {"name": "z", "measured": "sapbert fine-tuned cls + back-off"}],
    }  # fmt: skip
    result = {"acc@1": 0.5, "acc@5": 0.6, "low": 0.4, "high": 0.6}
    summary = {"model": "minilm cls", "results": {"minilm cls": result, "exact": result, "tfidf": result},
               "stamp": {"split": "test", "task": "NCBI-EL"}}  # fmt: skip
    write_json(runs / "linking" / "NCBI-EL" / "stamp" / "own" / "summary.json", summary)
    tuned = ["MODEL=sapbert", "POOLING=cls"]
    assert missing.wanted(definition, {"SEEDS": "4,5", "PROFILE": "paper", "MIRROR": "m"}) == [
        ["evaluate", "HPO-EL", "SPLIT=test", "MIRROR=m", "MODEL=minilm", "POOLING=cls"],  # both floors come with it
        *(["finetune", task, "SPLIT=test", "MIRROR=m", *tuned, f"SEED={seed}", "PROFILE=paper"]
          for task in ("NCBI-EL", "HPO-EL") for seed in (4, 5)),
    ]  # fmt: skip
    floors = definition | {"rows": definition["rows"][:2]}
    assert missing.wanted(floors, {"SPLIT": "dev"}) == [
        ["evaluate", task, "SPLIT=dev", "MODEL=exact"] for task in ("NCBI-EL", "HPO-EL")
    ]
    assert missing.wanted(table.definition_of("genbioel", "5"), {}) == [
        ["finetune", "BC5CDR-EL", "SPLIT=test", f"MODEL={model}", "SEED=0"] for model in ("genbioel/pretrain_denoise", "genbioel")
    ]


def test_missing_retrievals_and_probings(runs: Path) -> None:
    rows = [{"name": n, "measured": n} for n in ("sgns char", "zh text", "smedbert text without knowledge", "minilm cls")]
    definition = {"kind": "synonyms", "columns": {}, "rows": rows}
    write_json(runs / "synonyms" / "stamp" / "own" / "summary.json", {"model": "zh text", "stamp": {"samples": "s"}})
    assert missing.wanted(definition, {}) == [
        ["synonyms", "MODEL=sgns:char"], ["synonyms", "MODEL=smedbert", "KNOWLEDGE=no"],
        ["synonyms", "MODEL=minilm", "POOLING=cls"],
    ]  # fmt: skip
    probed = missing.wanted(table.definition_of("kebiolm", "6"), {"GRAPH": "medlama", "LIMIT": "9"})
    assert ["probe", "MODEL=minilm", "GRAPH=medlama", "LIMIT=9"] in probed
    assert ["probe", "MODEL=emilyalsentzer/Bio_ClinicalBERT", "GRAPH=medlama", "LIMIT=9"] in probed


def test_every_tables_runs_can_be_made(runs: Path) -> None:
    """Words of commands that there are, each with settings that it takes."""
    from benchmarks import finetune, probing, synonyms
    from benchmarks.linking import evaluate
    from benchmarks.linking import finetune as linking
    from benchmarks.tasks.linking import tasks as linking_tasks
    from experiments.encoders import options

    for file in sorted((table.ROOT / "experiments").glob("*/table*.yaml")):
        own = table.definition_of(file.parent.name, file.stem.removeprefix("table"))
        if own.get("kind", "scores") in table.COUNTED and own["kind"] != "populations":
            continue
        plan = missing.wanted(own, {})
        assert plan, file
        for command, *words in plan:
            taken = {"synonyms": synonyms.SETTINGS, "probe": probing.SETTINGS, "evaluate": evaluate.SETTINGS}.get(command)
            if command == "finetune":
                taken = linking.SETTINGS if words[0] in linking_tasks() else (*finetune.SETTINGS, *options())
            assert taken is not None
            settings_of([w for w in words if "=" in w], taken)
