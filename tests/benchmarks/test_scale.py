"""kepl measure scale: what it measures, at small sizes."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from benchmarks.perf import scale
from benchmarks.perf.scale import search as scale_search
from benchmarks.perf.scale import stages
from benchmarks.perf.scale.stages import STAGES
from benchmarks.publish import publish
from benchmarks.results import list_stored, save_result
from core.files import InputError
from tests.commands import command


@pytest.mark.slow  # each in a process of its own
def test_every_stage_does_its_work(
    tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "NAMES", 600)
    for stage in STAGES:
        stage.prepare(40, tmp_path)
        took = scale.watch_stage(stage, 40, tmp_path)
        assert took["seconds"] > 0 and 50 < took["memory"] < 8000 and took["files"] >= 0
        assert (took["bytes"] > 0) == (
            not any(word in stage.name for word in ("read", "load", "search"))
        ), stage.name


@pytest.mark.slow
def test_rows_tell_how_memory_grows(
    tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str], preloaded: None
) -> None:
    assert (
        command("measure scale")(
            ["--sizes", "40,80", "--folder", str(tmp_path), "--only", "trie, build and save"]
        )
        == 0
    )
    *rows, growth = [
        line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[2:]
    ]
    assert [row[:2] for row in rows] == [
        ["trie, build and save", "40 names"],
        ["trie, build and save", "80 names"],
    ]
    assert (
        float(rows[1][5]) >= float(rows[0][5])
        and growth[1] == "40 to 80"
        and "bytes an item" in " ".join(growth)
    )
    assert [row["items"] for row in scale.stored_rows()] == [40, 80]
    assert (runs / "scale.png").is_file()


def test_rows_are_kept_in_the_stages_order_and_drawn(runs: Path) -> None:
    stages_by_name = {stage.name: stage for stage in STAGES}
    for name, items, memory in (
        ("trie, load", 100, 310),
        ("linking", 100, 400),
        ("trie, load", 10, 300),
        ("trie, load", 10, 290),  # in place of the one before
    ):
        figures = {"seconds": 0.5, "memory": memory, "files": 3, "bytes": 0}
        scale.save_stage(stages_by_name[name], items, figures)
    rows = [(row["stage"], row["items"], row["memory"]) for row in scale.stored_rows()]
    assert rows == [("linking", 100, 400), ("trie, load", 10, 290), ("trie, load", 100, 310)]
    assert (runs / "scale.png").read_bytes().startswith(b"\x89PNG")


def test_figures_of_a_search_are_kept(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = [
        {"backend": "torch", "items": 10, "bytes": 80, "queries_s": 100},
        {"backend": "hnsw", "items": 10, "bytes": 99, "queries_s": 700},
    ]
    monkeypatch.setattr(scale_search, "measure", lambda *arguments: measured)
    scale_search.print_search(10, 4, 2, ("torch", "hnsw"), json=True)
    (result,) = list_stored("search")
    assert result.task == "search among 10 names" and result.value() == 100
    assert result.value(group="hnsw") == 700 and result.protocol["size"] == 4
    save_result(replace(result, argv=["measure", "search"]), result.folder)
    _, records = publish([runs / "search"], "g", root=runs)
    values = {record.id: record.value for record in records}
    assert values["search-among-10-names-hnsw-queries_s"] == 700


def test_a_stage_that_fails_is_reported(tmp_path: Path, preloaded: None) -> None:
    # whose input another stage writes
    stage = next(stage for stage in STAGES if stage.name == "trie, load")
    with pytest.raises(
        RuntimeError,
        match=r"--stage trie, load --items 10 .*: exit status 2\nerror: .*no trie here",
    ):
        scale.measure_stage(stage, 10, tmp_path)


def test_sizes_are_numbers_with_units() -> None:
    assert [scale.size_of(text) for text in ("500", "10k", "1M")] == [500, 10_000, 1_000_000]
    assert [scale.format_count(number) for number in (500, 10_000, 1_000_000)] == [
        "500",
        "10k",
        "1M",
    ]
    for wrong in ("", "0", "k", "1.5k", "-1"):
        with pytest.raises(InputError, match="expected numbers like"):
            scale.size_of(wrong)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="the extra `ray` is not installed")
def test_two_nodes_write_the_same_bytes_whatever_is_lost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--documents", "1500", "--files", "24", "--names", "2000"]
    assert command("measure engines")(words) == 0
    # Ray reports the lost node there, too
    printed = [line.split(" | ") for line in capsys.readouterr().out.splitlines()]
    rows = [row for row in printed if len(row) == 5 and row[0] != "way"]
    assert len(rows) == 5 and all(row[1] in ("24", "25") and row[4] == "True" for row in rows)


@pytest.mark.slow  # a cold process for each backend, twice
def test_backends_are_measured_against_the_first(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("faiss")
    rows = scale_search.measure(3000, 16, 20, ("torch", "ivf-pq"), tmp_path)
    exact, other = rows
    assert exact["recall@20"] == 1 and exact["bytes"] == 3000 * 16 * 4 + 128
    assert 0.3 < other["recall@20"] <= 1 and other["bytes"] > exact["bytes"]
    assert all(
        row["queries_s"] > 0 and row["search_mb"] > 20 and row["items"] == 3000 for row in rows
    )
    assert not list(tmp_path.iterdir())
    lines = scale_search.table(rows).splitlines()
    assert len(lines) == 4 and lines[2].startswith("| torch | 0 |") and " | 1.000 | " in lines[2]


def test_synthetic_names_are_seeded_and_held_ones_are_others() -> None:
    rows, again = (torch.cat(list(scale_search.synthetic(2000, 8))) for _ in range(2))
    held = torch.cat(list(scale_search.synthetic(2000, 8, is_held_out=True)))
    assert (
        torch.equal(rows, again)
        and rows.shape == (2000, 8)
        and torch.allclose(rows.norm(dim=1), torch.ones(2000))
    )
    assert not (rows[:, None] == held[None, :50]).all(2).any()
    assert (held @ rows.T).amax(1).min() > 0.5  # of the same clusters
