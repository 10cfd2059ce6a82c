"""Stages of a pipeline as processes: their logs, their threads, and how one that fails ends it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from experiments import stages
from experiments.stages import Stage, run_stages


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What was started; a stage ends with the number that its title is."""
    found: list[dict[str, Any]] = []

    class Process:
        def __init__(self, code: int) -> None:
            self.code = code

        def wait(self) -> int:
            return self.code

        def terminate(self) -> None:
            found.append({"terminated": self.code})

    def start(
        words: list[str], _: Path, environment: Mapping[str, str], log: Path | None, **options: Any
    ) -> Process:
        found.append(
            {"words": words, "threads": environment["OMP_NUM_THREADS"], "log": log, **options}
        )
        return Process(int(environment["CODE"]))

    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setattr(stages, "start_command", start)
    monkeypatch.setattr(stages.os, "cpu_count", lambda: 6)
    return found


def stage(code: int, name: str, **environment: str) -> Stage:
    return Stage(
        name, f"graph {name}", ["--x", "1"], environment={"CODE": str(code), **environment}
    )


@pytest.mark.parametrize(("codes", "ended"), [([3], 3), ([0, -9], 137), ([0, 0, 1], 1)])
def test_a_stage_that_fails_ends_the_pipeline_with_its_code(
    started: list[dict[str, Any]],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    codes: list[int],
    ended: int,
) -> None:
    """A signal's number is what a shell would say, 128 more."""
    with pytest.raises(SystemExit) as stopped:
        run_stages([stage(code, f"s{n}") for n, code in enumerate(codes)], tmp_path)
    assert stopped.value.code == ended
    last = len(codes) - 1
    assert f"stopped at stage 's{last}'" in caplog.text
    assert (f"Its output is in {tmp_path / f'graph-s{last}.log'}" in caplog.text) == (last > 0)
    assert sum("terminated" in one for one in started) == len(codes)


def test_stages_share_the_processors_and_one_is_shown(
    started: list[dict[str, Any]], tmp_path: Path
) -> None:
    run_stages([stage(0, "a"), stage(0, "b", CUDA_VISIBLE_DEVICES="0")], tmp_path)
    first, second = started[:2]
    assert first["words"][-4:] == ["graph", "a", "--x", "1"]
    assert (first["log"], second["log"]) == (None, tmp_path / "graph-b.log")
    assert (first["threads"], second["threads"]) == ("3", "3")
    assert (first["gpus"], second["gpus"]) == (0, 1)
    started.clear()
    run_stages([stage(0, "a")], tmp_path)
    assert started[0]["threads"] == "7"  # alone it has them all
    started.clear()
    run_stages([stage(0, "a")], tmp_path, engine="ray")
    assert (started[0]["threads"], started[0]["engine"]) == ("1", "ray")
    assert started[0]["log"] == tmp_path / "graph-a.log"
