"""Stored runs of before the one record of scores: after `kepl migrate`, tables and comparisons
print what they printed then.

golden/stored_runs.tar.gz are runs as the earlier version left them (@RUNS@ and @DATA@ are folders),
and golden/stored_runs_expected.json what its commands printed and wrote.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import tarfile
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from benchmarks.migrate import fields_of, migrate
from benchmarks.results import label, stored
from core.files import InputError, write_json

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The stored runs, unpacked: {placeholder: folder}."""
    with tarfile.open(GOLDEN / "stored_runs.tar.gz") as tar:
        tar.extractall(tmp_path, filter="data")
    found = {"@RUNS@": str(tmp_path / "runs"), "@DATA@": str(tmp_path / "data")}
    for file in tmp_path.rglob("*"):
        if file.suffix in (".json", ".yaml") and "@" in (text := file.read_text()):
            times = file.stat()
            for name, folder in found.items():
                text = text.replace(name, folder)
            file.write_text(text)
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    monkeypatch.setenv("KEPL_RUNS", found["@RUNS@"])
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    return found


def comparable(text: str) -> list[str]:
    """Lines; the order of several MLflow runs in one cell is not compared."""
    runs = re.compile(r"[0-9a-f]{32}(?: [0-9a-f]{32})+")
    return [runs.sub(lambda m: " ".join(sorted(m[0].split())), line) for line in text.splitlines()]


def test_tables_and_comparisons_are_what_they_were(
    places: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    expected: dict[str, Any] = json.loads((GOLDEN / "stored_runs_expected.json").read_text())
    done = migrate()
    assert min(done.values()) > 5 and sum(done.values()) > 200
    assert sum(migrate().values()) == 0  # nothing is converted twice
    capsys.readouterr()
    assert len(expected["stdout"]) > 80
    for command, text in expected["stdout"].items():
        words = command
        for name, folder in places.items():
            words = words.replace(name, folder)
        assert main(shlex.split(words)) == expected["exit"].get(command, 0), command
        printed = capsys.readouterr().out
        for name, folder in places.items():
            printed = printed.replace(folder, name)
        assert comparable(printed) == comparable(text), command
        for file, content in expected["files"].get(command, {}).items():
            own = (
                Path(file.replace("@RUNS@", places["@RUNS@"]))
                .read_text()
                .replace(places["@RUNS@"], "@RUNS@")
            )
            # rows as "-wem", which a spreadsheet would read as formulas
            inert = re.sub("(?m)^([-+])", r"'\1", content)
            assert comparable(own) == comparable(inert), (command, file)


def test_what_is_not_converted_yet_is_said(runs: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_json(runs / "linking" / "NCBI-EL" / "s" / "x" / "summary.json", {"model": "tfidf"})
    assert stored("linking") == [] and "1 results of an earlier version are not read" in caplog.text
    assert migrate()["linking"] == 0 and "not converted (KeyError" in caplog.text


@pytest.mark.parametrize(
    ("text", "kind", "model", "options"),
    [
        (
            "sapbert-pretrain_ontologies mean",
            "linking",
            "sapbert/pretrain_ontologies",
            {"pooling": "mean"},
        ),
        ("minilm cls dot", "linking", "minilm", {"pooling": "cls", "similarity": "dot"}),
        (
            "a--b cls, names shortest + back-off",
            "linking",
            "a/b",
            {"pooling": "cls", "names": "shortest", "backoff": True},
        ),
        (
            "sapbert fine-tuned mean + back-off",
            "linking",
            "sapbert",
            {"finetuned": {}, "pooling": "mean", "backoff": True},
        ),
        (
            "genbioel, fairseq, sum, tfidf 50, names sample",
            "linking",
            "genbioel",
            {"finish": "fairseq", "score": "sum", "candidates": "tfidf:50", "names": "sample"},
        ),
        (
            "genbioel fine-tuned, target shortest, prompt no",
            "linking",
            "genbioel",
            {"finetuned": {"target": "shortest", "prompt": "no"}},
        ),
        ("kebiolm entities", "linking", "kebiolm", {"by": "entities"}),
        (
            "smedbert-pretrain_k5 HITS=0.5 K=5",
            "finetune",
            "smedbert/pretrain_k5",
            {"hits": 0.5, "k": 5},
        ),
        (
            "smedbert text without knowledge",
            "synonyms",
            "smedbert",
            {"pooling": "text", "knowledge": False},
        ),
        ("glove word", "synonyms", "glove", {"unit": "word"}),
        ("minilm without head", "probing", "minilm", {"head": False}),
    ],
)
def test_the_fields_behind_a_label_of_before(
    text: str, kind: str, model: str, options: dict[str, Any]
) -> None:
    assert fields_of(text, kind) == (model, "", options) and label(model, options) == text


def test_runs_in_labels_and_labels_of_nothing() -> None:
    assert fields_of("kebiolm@0af1-seed2", "finetune") == ("kebiolm", "0af1-seed2", {})
    with pytest.raises(
        InputError, match="'genbioel, soon': no option of kepl evaluate sets 'soon'"
    ):
        fields_of("genbioel, soon", "linking")
