"""The same command writes the same files, whatever order a process gives to its sets."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from core.tracking import ROOT
from tests.fakes import bert
from tests.faults.outcome import differing, outcome
from tests.faults.verbs import VerbStep, verb_steps, write_verb_sources

#: what two runs may differ in: times, names of runs in MLflow, the machine's state
VARYING = re.compile(
    r"\.(seconds|date|created|began|ended|mlflow_run|commit|milliseconds)(\.\w+)*$"
)


def test_vectors_are_the_same_bytes(tmp_path: Path) -> None:
    names = ["heart attack", "renal failure", "heart", "attack of the heart", "renal"]
    encoder = bert.write(tmp_path / "encoder", " ".join(names).split())
    written = []
    for number in range(2):
        (tmp_path / "names.txt").write_text("".join(f"{name}\n" for name in names))
        output = tmp_path / f"{number}.safetensors"
        words = ["embed", "--model", str(encoder), "--input", str(tmp_path / "names.txt")]
        assert main([*words, "--output", str(output)]) == 0
        written.append(output.read_bytes())
    assert written[0] == written[1]


def mask_run(value: Any) -> Any:
    """A line of a model card without the name of its run in MLflow."""
    return re.sub(r"MLflow run `\w+`", "", value) if isinstance(value, str) else value


def list_left(place: Path, sources: Path, seed: int) -> dict[str, Any]:
    """What every command leaves in `place`, run in processes of that hash seed."""
    shutil.rmtree(place, ignore_errors=True)
    (place / "work").mkdir(parents=True)
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "PYTHONHASHSEED": str(seed),
        "KEPL_RUNS": str(place / "runs"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{place / 'mlflow.db'}",
    }
    for step in verb_steps(place / "work", sources):
        if isinstance(step, VerbStep):
            step.prepare()
        command = [sys.executable, "-P", "-m", *step.words]
        ended = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
        assert ended.returncode == 0, f"{step.title}: {ended.stderr[-1000:]}"
    return outcome(place)


@pytest.mark.slow
def test_every_file_of_every_command_is_the_same(tmp_path: Path) -> None:
    """Tagger, link, predict, embed, evaluate, rerank and sweep, with two orders of sets."""
    write_verb_sources(tmp_path / "sources")
    left = [list_left(tmp_path / "place", tmp_path / "sources", seed) for seed in (1, 2)]
    assert [name for name in left[0] if name.endswith((".jsonl", ".safetensors", ".pubtator"))]
    different = [
        name
        for name in differing(*left)
        if not VARYING.search(name) and mask_run(left[0].get(name)) != mask_run(left[1].get(name))
    ]
    assert not different, "\n".join(
        f"{n}: {left[0].get(n)!r} {left[1].get(n)!r}" for n in different
    )
