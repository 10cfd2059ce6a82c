"""Tables: cells as text and as CSV, tests against rows and against published numbers, results that
are made first."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_1samp, ttest_rel

from app.cli import main
from benchmarks import tables
from benchmarks.commands import Finetune, FinetuneLinker, Probe, Synonyms
from benchmarks.options import Choices, Folds
from benchmarks.tables import missing
from benchmarks.tables.cells import HEADS, Cell, as_csv, as_markdown, format_comparison
from benchmarks.tables.measured import row_of
from core.files import InputError
from datamodules.options import Files
from inference.options import LinkerOptions
from models.metrics import one_sample
from tests.fakes import results as fake
from tests.fakes.results import markdown


def test_a_cell_as_text() -> None:
    assert Cell("r", "c", 93.3).published == "93.30" and Cell("r", "c", None).published == ""
    assert Cell("r", "c", None).as_text == "" and Cell("r", "c", None, (12.345,)).as_text == "12.35"
    assert Cell("r", "c", None, (12.345,), (10.0, 15.0)).as_text == "12.35 [10.00, 15.00]"
    assert Cell("r", "c", None, (12.0, 14.0), (10.0, 15.0), digits=1).as_text == "13.0 ± 1.4 (2)"


def test_cells_beside_one_another_and_a_line_each() -> None:
    cells = [
        Cell("a|b", "x", 1.0, (2.0, 4.0), (1.0, 5.0), ("t = 1",), ("run1", "run2")),
        Cell("a|b", "y", None),
        Cell("c", "x", None),
        Cell("c", "y", None),
    ]
    lines = format_comparison(cells)
    assert lines == [
        ["", "x as published", "x measured", "y as published", "y measured"],
        ["a|b", "1.00", "3.00 ± 1.41 (2)", "", ""],
        ["c", "", "", "", ""],
    ]
    assert as_markdown(lines).splitlines() == [
        "|  | x as published | x measured |",
        "|---|---|---|",
        "| a\\|b | 1.00 | 3.00 ± 1.41 (2) |",
        "| c |  |  |",
    ]
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
    assert one_sample([1.0, 1.0], 1.0) == (0.0, 1.0) and one_sample([1.0, 1.0], 2.0) == (
        -np.inf,
        0.0,
    )
    with pytest.raises(ValueError, match="expected at least 2"):
        one_sample([1.0], 1.0)


def test_kebiolms_table_tests_against_the_published_baseline_and_the_one_run_here(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = [[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]]
    plain = [[1, 0, 1, 0], [1, 0, 0, 0], [0, 1, 1, 0]]
    for seed in range(3):
        fake.fine_tuned(
            "kebiolm", ours[seed], run=f"abc-seed{seed}", name="NCBI", parent=f"run{seed}"
        )
        fake.fine_tuned("kebiolm/pretrain_mlm", plain[seed], run=f"def-seed{seed}", name="NCBI")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "kebiolm_table2.md").write_text("mine")
    assert main(["table", "kebiolm", "2", f"OUT={tmp_path / 'out'}"]) == 2
    assert (tmp_path / "out" / "kebiolm_table2.md").read_text() == "mine"
    (tmp_path / "out" / "kebiolm_table2.md").unlink()
    assert main(["table", "kebiolm", "2", f"OUT={tmp_path / 'out'}"]) == 0
    said = capsys.readouterr().out
    t = ttest_1samp([75, 50, 100], 87.8)
    assert (
        "KeBioLM, NCBI: one-sample t against PubMedBERT as published (87.80): -12.80, t ="
        f" {t.statistic:.2f}, p = {t.pvalue:.3f}" in said
    )
    p = ttest_rel([0.75, 0.5, 1.0], [0.5, 0.25, 0.5]).pvalue
    assert (
        "KeBioLM, NCBI: against MiniLM, the same text and steps, masked words only: +33.33 ["
        in said
    )
    assert f"paired t over 3 pre-training seeds p = {p:.3f}" in said
    assert "| KeBioLM |" in said and "75.00 ± 25.00 (3)" in said
    written = tmp_path / "out" / "kebiolm_table2.md"
    assert (
        written.read_text().strip() in said
        and f"written to {written} and kebiolm_table2.csv" in said
    )
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
    assert (
        rows["PubMedBERT", "NCBI"]["measured"] == ""
        and rows["PubMedBERT", "NCBI"]["as published"] == "87.8"
    )
    assert rows["KeBioLM", "NER average"]["measured"] == ""  # nothing is averaged


def test_without_a_second_seed_nothing_is_tested_against_a_number(runs: Path) -> None:
    fake.fine_tuned("kebiolm", 0.9, name="NCBI")
    assert "one-sample" not in markdown("kebiolm", "2")


def test_a_table_of_counts_is_written_too(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", "kebiolm", "5"]) == 0
    said = capsys.readouterr().out
    assert "143,771" in said
    lines = list(csv.reader((runs / "tables" / "kebiolm_table5.csv").open()))
    assert lines[1] == ["queries", "143,771"]


def test_against_and_baseline_name_rows() -> None:
    for file in sorted(tables.PAPERS.glob("*/table*.yaml")):
        own = tables.definition_of(file.parent.name, file.stem.removeprefix("table"))
        against, baseline = row_of(own, "against"), row_of(own, "baseline")
        assert against is None or "measured" in against
        assert baseline is None or "reported" in baseline
    with pytest.raises(InputError, match="against: no row 'x'"):
        row_of({"title": "t", "against": "x", "rows": []}, "against")


def titles(
    table: dict[str, Any], choices: Choices | None = None, seeds: str | None = None
) -> list[str]:
    return [one.title for one in missing.plan(table, choices or Choices(), Files(), seeds)]


def test_missing_fine_tunings_are_made_first(
    runs: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = {
        "kind": "finetune",
        "columns": {
            "a": {"task": "cMedQANER", "split": "test"},
            "b": {"task": "cMedQQ", "split": "dev"},
            "c": {},
        },
        "rows": [
            {"name": "x", "measured": "embert/pretrain_plain"},
            {"name": "y", "measured": {"model": "smedbert", "hits": 0}},
            {"name": "z", "measured": "hfl/chinese-bert-wwm"},
            {"name": "reported only", "reported": {"a": 1.0}},
        ],
    }
    fake.fine_tuned("embert/pretrain_plain", 0.4)
    plan = missing.plan(table, Choices(), Files(mirror=[Path("m")]), "0,")
    assert [one.title for one in plan] == [
        "finetune cMedQQ embert-pretrain_plain",
        "finetune cMedQANER smedbert HITS=0",
        "finetune cMedQQ smedbert HITS=0",
        "finetune cMedQANER hfl--chinese-bert-wwm",
        "finetune cMedQQ hfl--chinese-bert-wwm",
    ]
    assert plan[1].command == Finetune(
        task="cMedQANER",
        model="smedbert",
        seeds="0,",
        options={"hits": 0},
        files=Files(mirror=[Path("m")]),
    )
    done: list[str] = []

    def run(asked: Finetune) -> None:
        done.append(asked.task)
        if str(asked.model).startswith("hfl"):
            raise InputError("no such model")

    monkeypatch.setattr(Finetune, "run", run)
    with caplog.at_level("INFO"):
        failed = missing.run_missing(table, Choices(), Files())
    # one that fails stops no other
    assert len(done) == 5 and len(failed) == 2 and caplog.text.count("not run: finetune") == 2
    with pytest.raises(InputError, match=r"this table only counts \(sizes\)"):
        missing.plan({"kind": "sizes"}, Choices(), Files())


def test_missing_linkers(runs: Path) -> None:
    tuned = {"model": "sapbert", "finetuned": {}, "pooling": "cls"}
    table = {
        "columns": {
            "a": {"task": "NCBI-EL", "split": "test"},
            "b": {"task": "HPO-EL", "split": "test"},
            "c": {},
        },
        "rows": [
            {"name": "baseline", "measured": "exact"},
            {"name": "other baseline", "measured": "tfidf"},
            {"name": "x", "measured": {"model": "minilm", "pooling": "cls"}},
            {"name": "y", "measured": tuned},
            {"name": "z", "measured": tuned | {"backoff": True}},
        ],
    }
    for model, options in (("minilm", {"pooling": "cls"}), ("exact", {}), ("tfidf", {})):
        fake.linked(model, 0.5, options=options)
    choices = Choices(profile="paper")
    assert titles(table, choices, "4,5") == [
        "evaluate HPO-EL minilm cls",  # both baselines come with it
        *(
            f"finetune {task} sapbert fine-tuned cls, seed {seed}"
            for task in ("NCBI-EL", "HPO-EL")
            for seed in (4, 5)
        ),
    ]
    one = missing.plan(table, choices, Files(), "4,5")[-1]
    assert one.command == FinetuneLinker(
        task="HPO-EL",
        model="sapbert",
        part=Folds(split="test"),
        linker=LinkerOptions(pooling="cls"),
        seed=5,
        profile="paper",
    )
    baselines = table | {"rows": table["rows"][:2]}  # type: ignore[index]
    assert titles(baselines, Choices(split="dev")) == [
        "evaluate NCBI-EL exact",
        "evaluate HPO-EL exact",
    ]
    assert titles(tables.definition_of("genbioel", "5")) == [
        f"finetune BC5CDR-EL {model} fine-tuned, seed 0"
        for model in ("genbioel-pretrain_denoise", "genbioel")
    ]


def test_missing_retrievals_and_probings(runs: Path) -> None:
    asked = [
        {"model": "sgns", "unit": "char"},
        {"model": "zh", "pooling": "text"},
        {"model": "smedbert", "pooling": "text", "knowledge": False},
        {"model": "minilm", "pooling": "cls"},
    ]
    table = {
        "kind": "synonyms",
        "columns": {},
        "rows": [{"name": str(n), "measured": one} for n, one in enumerate(asked)],
    }
    fake.retrieved("zh", {"D1": 0.5}, options={"pooling": "text"})
    plan = missing.plan(table, Choices(), Files())
    assert [one.command for one in plan] == [
        Synonyms(model="sgns:char"),
        Synonyms(model="smedbert", pooling="text", knowledge=False),
        Synonyms(model="minilm", pooling="cls"),
    ]
    plan = missing.plan(
        tables.definition_of("kebiolm", "6"), Choices(graph="medlama", limit=9), Files()
    )
    asked = {one.command.model: one.command for one in plan}
    assert asked["minilm"] == Probe(model="minilm", graph="medlama", limit=9)
    assert "emilyalsentzer/Bio_ClinicalBERT" in asked


def test_every_tables_results_can_be_made(runs: Path) -> None:
    """Each missing cell is a command whose options are accepted."""
    for file in sorted(tables.PAPERS.glob("*/table*.yaml")):
        own = tables.definition_of(file.parent.name, file.stem.removeprefix("table"))
        if own.get("kind", "scores") not in missing.PLANS:
            continue
        assert missing.plan(own, Choices(), Files()), file
