"""Learning curves and primary comparisons: what is trained, printed and drawn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks import curves, knowledge
from benchmarks.commands import Curve, Knowledge
from benchmarks.curve_figure import figure_files, figure_problems, read_lines, write_figures
from benchmarks.curves import (
    Point,
    args_of,
    draw_curve,
    epochs_of,
    format_curve,
    name_systems,
    score_curve,
)
from benchmarks.knowledge import format_primary, read_design, stated_papers
from benchmarks.paired_tests import BELOW
from benchmarks.records import Record, load_records, save_records
from benchmarks.results import TRIVIAL, Result, save_result
from core.files import InputError
from core.json_files import write_json
from datamodules.tasks.prepare import find_task
from experiments.machine import SeedTraining
from experiments.pretrain import Pretrained, pipeline_of
from tests.fakes import results as fake


def at_share(share: float, model: str, *scores: float) -> list[Result]:
    made = fake.fine_tuned(model, *scores)
    own = {} if share == 1 else {"share": share}
    return [
        save_result(replace(r, protocol={**r.protocol, **own}), f"{r.folder}-{share}") for r in made
    ]


@pytest.fixture
def points(runs: Path) -> list[Point]:
    return [
        Point(name, share, at_share(share, name, *scores))
        for name, share, scores in (
            ("smedbert", 0.1, (0.50, 0.54)),
            ("plain", 0.1, (0.40, 0.42)),
            (TRIVIAL, 0.1, (0.60,)),
            ("smedbert", 1.0, (0.80, 0.82)),
            ("plain", 1.0, (0.70, 0.74)),
            (TRIVIAL, 1.0, (0.60,)),
        )
    ]


def test_names_of_variants_mean_the_runs_of_the_only_paper() -> None:
    assert name_systems(["plain", "marks", "shuffled", "smedbert", "bilstm"]) == {
        "plain": "smedbert/pretrain_plain",
        "marks": "smedbert/pretrain_marks",
        "shuffled": "smedbert/pretrain_shuffled",
        "smedbert": "smedbert",
        "bilstm": "bilstm",
    }
    assert name_systems(["random", "kebiolm"])["random"] == "kebiolm/pretrain_rand"
    # of two papers no variant is meant
    assert name_systems(["plain", "smedbert", "embert"])["plain"] == "plain"


def test_fewer_documents_are_passed_over_more_often() -> None:
    assert epochs_of("cMedQANER", 1, None) is None and epochs_of("cMedQANER", 1, 7) == 7
    assert epochs_of("cMedQANER", 0.25, 7) == 14 and epochs_of("cMedQANER", 0.03, 6) == 35


def test_the_patience_grows_as_the_passes_do() -> None:
    training = SeedTraining(task="cMedQANER", args="--trainer.precision 32")
    assert args_of(training, "cMedQANER", 1) == "--trainer.precision 32"
    assert args_of(training, "cMedQANER", 0.25) == "--trainer.precision 32 --patience 10"
    assert args_of(replace(training, args=""), "cMedQANER", 0.03) == "--patience 29"
    typed = replace(training, args="--patience 3")
    assert args_of(typed, "cMedQANER", 0.03) == "--patience 3"
    assert args_of(replace(training, args=""), "NCBI", 0.1) == ""  # it has none
    assert args_of(replace(training, profile="paper", args=""), "cMedQANER", 0.03) == ""


def test_every_system_is_scored_at_every_share_with_the_baseline(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, ...]] = []

    def scored(one: SeedTraining) -> list[Result]:
        asked.append((one.model, one.share, one.epochs, one.seeds))
        at_share(one.share, TRIVIAL, 0.3)
        return at_share(one.share, str(one.model), 0.4, 0.5)

    monkeypatch.setattr(curves, "score_seeds", scored)
    monkeypatch.setattr(curves, "train_missing", lambda systems: None)
    start = SeedTraining(task="cMedQANER", seeds="2", epochs=4)
    found = score_curve(start, ["plain", "smedbert"], [1.0, 0.25])
    assert asked == [
        ("smedbert/pretrain_plain", 0.25, 8, "2"),
        ("smedbert", 0.25, 8, "2"),
        ("smedbert/pretrain_plain", 1.0, 4, "2"),
        ("smedbert", 1.0, 4, "2"),
    ]
    names = [(p.system, p.share) for p in found]
    assert names == [(n, s) for s in (0.25, 1.0) for n in ("plain", "smedbert", TRIVIAL)]
    assert all(p.results for p in found)
    with pytest.raises(InputError, match="shares: 2; expected numbers above 0 and at most 1"):
        score_curve(start, ["plain"], [2])


def test_the_table_has_means_tests_and_the_mark_below_the_baseline(points: list[Point]) -> None:
    text = format_curve(points)
    lines = text.splitlines()
    assert lines[1].split() == ["share", "smedbert", "plain", TRIVIAL]
    row = "10% 0.5200 ± 0.0283 0.4100 ± 0.0141 0.6000"
    assert " ".join(lines[2].split()) == row
    below = [line for line in lines if BELOW in line]
    assert len(below) == 1 and below[0].startswith("smedbert against plain")
    told = format_primary(points, "smedbert", "plain")
    assert told.startswith("Primary comparison, smedbert against plain: +0.0900")


def test_the_figure_is_drawn(points: list[Point], tmp_path: Path) -> None:
    draw_curve(points, tmp_path / "c.png")
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Records of two shares, and what a figure shows of them."""
    for group, value in (("tenth", 0.5), ("whole", 0.8)):
        records = [
            Record(id="a", value=value, interval=(value - 0.1, value + 0.2)),
            Record(id="trivial", value=0.6, interval=(0.5, 0.7)),
        ]
        save_records(group, records, tmp_path)
    write_json(tmp_path / "docs" / "results" / "constants.json", {})
    (tmp_path / "docs" / "results" / "figures").mkdir()
    write_stated(tmp_path)
    return tmp_path


def write_stated(checkout: Path, **changes: Any) -> None:
    stated = {
        "label": "NCBI, test F1",
        "groups": {10: "tenth", 100: "whole"},
        "systems": {"A": "a", "dictionary": "trivial"},
        "baseline": "dictionary",
    }
    file = checkout / "docs" / "results" / "figures" / "curve.yaml"
    file.write_text(yaml.safe_dump(stated | changes))


def test_a_figure_of_records_is_drawn_again_when_they_change(checkout: Path) -> None:
    figure = checkout / "docs" / "curve.png"
    assert figure_problems(checkout) == [
        "docs/curve.png: the figure differs from its records; draw it: make results"
    ]
    assert write_figures(checkout) == [figure] and figure_problems(checkout) == []
    assert write_figures(checkout) == []
    save_records("whole", [Record(id="a", value=0.81, interval=(0.7, 1.0))], checkout)
    assert len(figure_problems(checkout)) == 1
    assert write_figures(checkout) == [figure] and figure_problems(checkout) == []


def test_the_lines_of_a_figure_are_its_records(checkout: Path) -> None:
    [(file, _)] = figure_files(checkout)
    lines, label = read_lines(file, load_records(checkout))
    assert label == "NCBI, test F1"
    first, baseline = lines
    assert (first.name, first.shares, first.means) == ("A", [10.0, 100.0], [0.5, 0.8])
    assert first.lows == pytest.approx((0.4, 0.7)) and first.highs == pytest.approx((0.7, 1.0))
    assert baseline.dashed and not first.dashed


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"systems": {"A": "b", "dictionary": "trivial"}}, "no record 'b' in any of the groups"),
        ({"groups": {10: "third"}}, "no group of records 'third'"),
        ({"baseline": "B"}, "baseline: B is none of the systems"),
        ({"shares": [1]}, "expected the keys baseline, groups, label, systems"),
    ],
)
def test_a_figure_that_cannot_be_drawn_is_refused(
    checkout: Path, changes: dict[str, Any], message: str
) -> None:
    write_stated(checkout, **changes)
    with pytest.raises(InputError, match=message):
        write_figures(checkout)


@pytest.mark.parametrize("paper", stated_papers())
def test_stated_comparisons_are_of_systems_and_tasks_that_exist(paper: str) -> None:
    design = read_design(paper)
    find_task(design["task"])
    variants = set(pipeline_of(paper)["variants"])
    assert design["systems"][0] == design["primary"][0] == paper
    assert set(design["systems"]) - {paper} <= variants and design["seeds"] >= 3
    assert 1 in design["shares"]


def test_a_design_is_refused_where_it_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=r"no primary comparison of 'smedbrt'; .*smedbert"):
        read_design("smedbrt")
    folder = tmp_path / "experiments" / "smedbert"
    folder.mkdir(parents=True)
    monkeypatch.setattr(knowledge, "ROOT", tmp_path)
    design = {"task": "cMedQANER", "systems": ["smedbert"], "primary": ["smedbert", "plain"]}
    design |= {"seeds": 3, "curve_seeds": 3, "shares": [1]}
    (folder / "knowledge.yaml").write_text(yaml.safe_dump(design))
    with pytest.raises(InputError, match="primary: plain is none of the systems"):
        read_design("smedbert")
    (folder / "knowledge.yaml").write_text("task: cMedQANER")
    with pytest.raises(InputError, match="expected the keys"):
        read_design("smedbert")


def test_the_plan_counts_what_is_missing(runs: Path) -> None:
    told = Knowledge(paper="smedbert", plan=True).run()
    assert told.startswith("4 pre-trainings (smedbert, plain, marks, shuffled) and ")


def test_the_command_writes_table_and_figure(
    points: list[Point], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curves, "score_curve", lambda asked, models, shares: points)
    out = tmp_path / "own.png"
    text = Curve(task="cMedQANER", models=["smedbert", "plain"], out=out).run()
    assert text.endswith(f"Figure: {out}") and out.is_file()
    monkeypatch.setattr(
        knowledge,
        "score_curve",
        lambda asked, models, shares: [p for p in points if p.share in shares],
    )
    text = Knowledge(paper="smedbert").run()
    assert "Primary comparison, smedbert against plain" in text


def test_a_name_that_means_nothing_is_refused_before_anything_is_trained(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[list[str]] = []

    def train(paper: str, variants: list[str]) -> Pretrained:
        trained.append(variants)
        return Pretrained("")

    monkeypatch.setattr(curves, "pretrain", train)
    with pytest.raises(InputError, match="no model 'smedbret'"):
        curves.train_missing({"marks": "smedbert/pretrain_marks", "y": "smedbret"})
    assert trained == []
    systems = {
        "smedbert": "smedbert",
        "marks": "smedbert/pretrain_marks",
        "bilstm": "bilstm",
    }
    curves.train_missing(systems)
    assert trained == [[], ["marks"]]  # a paper's bare name is its usual training
