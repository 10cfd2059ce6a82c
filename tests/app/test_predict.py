"""From `kepl finetune` to `kepl predict` and `kepl link` by commands alone, on fake data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.cli import main
from benchmarks.results import TRIVIAL, list_stored
from datamodules.options import Files
from datamodules.tasks.prepare import split_examples
from models.metrics import score, span_tallies
from tests.fakes import bert, tasks
from tests.fakes.graphs import graph

pytestmark = pytest.mark.usefixtures("preloaded")


@pytest.fixture
def tagger(runs: Path, tmp_path: Path) -> tuple[str, Path]:
    """(TASK/encoder of a fine-tuned tagger, the folder of its task)."""
    encoder = bert.write(tmp_path / "bert", tasks.WORDS, layers=1, length=512)
    data = tasks.write(tmp_path / "task", "ner")
    assert main(["finetune", "NCBI", f"DATA={data}", f"MODEL={encoder}", "LR=0.003"]) == 0
    (result,) = (r for r in list_stored("finetune", "NCBI") if r.model.name != TRIVIAL)
    return f"NCBI/{result.label}@{Path(result.folder).parent.name}-seed0", data


def test_the_written_file_scores_what_fine_tuning_reported(
    tagger: tuple[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, data = tagger
    out = tmp_path / "test.jsonl"
    capsys.readouterr()
    assert (
        main(["predict", "--model", model, "--task", "NCBI", f"DATA={data}", "--output", str(out)])
        == 0
    )
    examples = split_examples("NCBI", "test", Files(data=data))
    assert f"{len(examples)} documents" in capsys.readouterr().out
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert [r["text"] for r in records] == [e.text for e in examples]
    predicted = [[(m["start"], m["end"], m["type"]) for m in r["mentions"]] for r in records]
    (result,) = (r for r in list_stored("finetune", "NCBI") if r.model.name != TRIVIAL)
    assert score(span_tallies(predicted, [e.entities for e in examples])) == pytest.approx(
        result.value(), abs=1e-9
    )
    assert (result.value() or 0) > 0.3  # it learned something, so equal means something
    assert (
        main(
            [
                "predict",
                "--model",
                model,
                "--task",
                "NCBI",
                f"DATA={data}",
                "SPLIT=dev",
                "--output",
                str(out),
                "--fresh",
            ]
        )
        == 0
    )
    name = model.partition("@")[0]  # LR= was given; no other run can be meant
    assert main(["predict", "--model", name, "--text", "x"]) == 0
    assert f"its only run, {model}" in capsys.readouterr().err


def test_a_tagger_detects_for_a_chain(
    tagger: tuple[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, data = tagger
    entity = next(e for e in split_examples("NCBI", "test", Files(data=data)) if e.entities)
    place = graph({entity.text[s:t]: "disease" for s, t, _ in entity.entities}, []).save(
        tmp_path / "graph"
    )
    capsys.readouterr()
    assert main(["predict", "--model", model, "--text", entity.text, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["mentions"]
    assert (
        main(
            [
                "link",
                "--graph",
                str(place),
                "--chain",
                f"{model} > names",
                "--text",
                entity.text,
                "--json",
            ]
        )
        == 0
    )
    linked = json.loads(capsys.readouterr().out)["mentions"]
    assert found and [(m["start"], m["end"], m["type"]) for m in linked] == [
        (m["start"], m["end"], m["type"]) for m in found
    ]
    (tmp_path / "notes.txt").write_text(f"{entity.text}\n")
    words = ["--input", str(tmp_path / "notes.txt"), "--output", str(tmp_path / "out.jsonl")]
    assert main(["predict", "--model", model, *words]) == 0
    assert json.loads((tmp_path / "out.jsonl").read_text())["mentions"] == found
