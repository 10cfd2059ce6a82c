import os
import subprocess
import sys
from pathlib import Path

import pytest

from core.json_files import write_json
from core.tracking import ROOT, newest_export, use_experiment


def test_the_newest_complete_export(runs: Path) -> None:
    assert newest_export("zh") is None

    def run(place: str, when: int, finished: bool = True, export: bool = True) -> Path:
        folder = runs / "zh" / place
        folder.mkdir(parents=True)
        if export:
            write_json(folder / "export" / "manifest.json", {})
        if finished:
            write_json(folder / "finished.json", {"steps": 1})
            os.utime(folder / "finished.json", (when, when))
        return folder / "export"

    old, new = run("pretrain/aaa/seed0", 100), run("small/bbb/seed1", 200)
    run("pretrain/ccc/seed0", 300, finished=False)
    run("pretrain/ddd/seed0", 400, export=False)
    assert newest_export("zh") == new and newest_export("zh", "pretrain") == old
    assert newest_export("zh", "other") is None and newest_export("other") is None


def test_a_new_store_is_its_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPL_RUNS", str(tmp_path / "runs"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    before = os.umask(0)
    try:
        use_experiment("private")
    finally:
        os.umask(before)
    modes = {
        name: (tmp_path / "runs" / name).stat().st_mode & 0o077
        for name in ("mlflow.db", "artifacts")
    }
    assert modes == {"mlflow.db": 0, "artifacts": 0}


@pytest.mark.parametrize(("given", "waits"), [(None, "5"), ("7", "7")])
def test_a_server_that_does_not_answer_is_waited_for_seconds(given: str | None, waits: str) -> None:
    names = ("MLFLOW_HTTP_REQUEST_TIMEOUT", "MLFLOW_HTTP_REQUEST_MAX_RETRIES")
    environment = {k: v for k, v in os.environ.items() if k not in names}
    if given:
        environment[names[0]] = given
    program = f"import os, core.tracking; print(*(os.environ[name] for name in {names}))"
    said = subprocess.run(
        [sys.executable, "-c", program],
        env=environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.split() == [waits, "1"]
