"""Edges of what benchmarks count and accept, and numbers of small tools by hand."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from benchmarks import peers, sweep
from benchmarks.linking import forms
from benchmarks.linking.ends import Annotated, Place
from benchmarks.linking.forms import score_linker
from benchmarks.papers.smedbert.diagnosis import MEASURES, measures
from benchmarks.probing import Probing, count_beams
from benchmarks.publish import load_runs
from core.files import InputError
from kg.graph import table


@pytest.mark.parametrize(
    ("start", "end", "counts"),
    [
        (0, 4, True),  # touches a mention of another type at 4
        (0, 5, False),
        (7, 9, False),
        (8, 9, True),
        (8, 12, True),
        (5, 11, True),  # meets a gold mention, too
    ],
)
def test_what_touches_a_mention_that_is_not_asked_for_counts(
    start: int, end: int, counts: bool
) -> None:
    gold = {"d": [Place(10, 12, frozenset({"A"}))]}
    made = Annotated("t", "test", None, {"d": "x" * 20}, gold, {"d": [(4, 8)]})  # type: ignore[arg-type]
    assert made.counts_at("d", start, end) is counts


@pytest.mark.parametrize("name", ["masks", "beam", "size", "limit"])
def test_numbers_of_a_probing_are_at_least_one(name: str) -> None:
    method = "beam" if name == "beam" else "independent"
    assert count_beams(Probing(method=method, **{name: 1})) == 1  # type: ignore[arg-type]
    with pytest.raises(InputError, match=f"{name.upper()}=0.*expected numbers of at least 1"):
        count_beams(Probing(method=method, **{name: 0}))  # type: ignore[arg-type]


def mention(start: int, end: int, entity: str) -> SimpleNamespace:
    return SimpleNamespace(start=start, end=end, entity=entity)


def test_precision_recall_and_f1_of_a_linker() -> None:
    found = {
        "a": [mention(0, 4, "A"), mention(5, 9, "B")],  # the second is another entity's
        "b": [mention(0, 3, "A")],  # another place
        "c": [],
    }
    linker: Any = SimpleNamespace(link_all=lambda texts: [found[text] for text in texts])
    gold: Any = [
        {(0, 4): frozenset({"A", "Z"}), (5, 9): frozenset({"C"})},
        {(0, 4): frozenset({"A"})},
        {(2, 3): frozenset({"D"})},
    ]
    assert score_linker(linker, ["a", "b", "c"], gold) == pytest.approx((100 / 3, 25, 200 / 7))
    assert score_linker(linker, ["c"], gold[2:]) == (0, 0, 0)


@pytest.mark.parametrize(
    ("at_once", "given", "gpus"),
    [(1, None, []), (2, None, ["0", "1"]), (1, "3", ["3"]), (2, "3,5", ["3", "5"])],
)
def test_points_at_once_get_a_gpu_each(
    monkeypatch: pytest.MonkeyPatch, at_once: int, given: str | None, gpus: list[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if given:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    assert sweep._visible_gpus(at_once) == gpus


@pytest.mark.parametrize(("code", "writes"), [(1, True), (0, False)])
def test_a_peer_that_fails_or_writes_nothing_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, writes: bool
) -> None:
    def run(words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        if writes:
            out.write_text('{"found": []}')
        return subprocess.CompletedProcess(words, code, "", "first\nlast line\n")

    out = tmp_path / "out.json"
    monkeypatch.setattr(peers.subprocess, "run", run)
    with pytest.raises(InputError, match="failed: last line"):
        peers.in_a_process("python", "p", tmp_path / "names", tmp_path / "texts", {}, out)


def test_lengths_of_vectors_are_means_over_names() -> None:
    plain = torch.tensor([[3.0, 4.0], [0.0, 1.0]])
    found = measures(plain, 2 * plain, torch.tensor([[4.0, -3.0], [1.0, 0.0]]))
    by_place = dict(zip(range(len(MEASURES)), found.values(), strict=True))
    assert (by_place[0], by_place[1]) == pytest.approx((1.0, 0.0))
    assert (by_place[6], by_place[7]) == pytest.approx((3.0, 6.0))


def test_what_forms_of_names_are_worth_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {
        "id": ["HP:1", "HP:2"],
        "name": ["kidney cyst", "Sjögren disease"],
        "language": ["en", "en"],
        "kind": ["preferred", "preferred"],
        "source": ["hpo", "hpo"],
    }
    graph = SimpleNamespace(
        names=table("names", names),
        ids=pa.array(["HP:1", "HP:2"]),
        degree=lambda: np.zeros(2, int),
    )
    texts = ["Two kidney cysts and a kidney cyst.", "Sjögren disease."]
    monkeypatch.setattr(forms.hpo, "read", lambda: graph)
    monkeypatch.setattr(forms.hpo, "texts", lambda: [("HP:1", "comment", text) for text in texts])
    monkeypatch.setenv("KEPL_RUNS", str(tmp_path))
    forms.print_scores_of_forms()
    assert "inflected, all names: P 100.0, R 100.0, F1 100.0, 3 places" in capsys.readouterr().out
    (result,) = load_runs([tmp_path])
    recall = {part: scores["recall"] for part, scores in result.scores.items()}
    assert recall["overall"] == recall["inflected, all names"] == 100
    assert recall["exact, all names"] == pytest.approx(200 / 3)  # no plural
    assert set(result.data) == {"names", "texts"}


def test_scores_of_splitters_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    xml = (
        '<document><sentence text="It rose."/><sentence text="It fell, as vs. before."/></document>'
    )
    with zipfile.ZipFile(tmp_path / "ddi.zip", "w") as archive:
        archive.writestr("a.xml", xml)
    monkeypatch.setenv("KEPL_RUNS", str(tmp_path / "runs"))
    forms.print_scores_of_splitters(tmp_path / "ddi.zip")
    (result,) = load_runs([tmp_path / "runs"])
    scores = result.scores
    assert set(scores) == {
        "overall",
        "kg.linking.sentences",
        "datamodules.blurb",
        "pySBD",
        "spaCy's sentencizer",
    }
    assert scores["overall"] == {"precision": 100.0, "recall": 100.0, "f1": 100.0}
    assert scores["datamodules.blurb"]["recall"] == 100
