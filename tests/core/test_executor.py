"""Work in parts: made once, by whichever engine, to the same bytes; resumed by markers alone."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from core import executor
from core.artifact import manifest_path
from core.executor import Part, PartsFolder, parts_folder
from core.files import InputError, atomic_folder, atomic_write
from tests.fakes.leftovers import left_by

ENGINES = [
    pytest.param(("processes", 1), id="one process"),
    pytest.param(("processes", 2), id="two processes"),
    pytest.param(
        ("ray", 2),
        id="ray",
        marks=[
            pytest.mark.slow,
            pytest.mark.skipif(find_spec("ray") is None, reason="the extra `ray` is not installed"),
        ],
    ),
]
PARTS = [Part(f"part-{number}.txt", number, f"digest {number}") for number in range(7)]


def begin(folder: Path | None = None) -> int:
    """Leaves a file for each time that it is called, when there is a place for it."""
    if folder:
        (folder / f"begun-{os.getpid()}").touch()
    return 100


def make(begun: int, task: int, path: Path, log: Path | None = None) -> dict[str, Any]:
    if log:
        (log / f"made-{task}").touch()
    if path.suffix:
        with atomic_write(path) as handle:
            handle.write(f"{begun + task}\n" * task)
    else:
        with atomic_folder(path) as folder:
            (folder / "a").write_text(str(begun + task))
    return {"lines": task}


def bad(begun: int, task: int, path: Path) -> dict[str, Any]:
    if task == 3:
        raise InputError("file:3: no")
    return make(begun, task, path)


def killed(begun: int, task: int, path: Path, marker: Path) -> dict[str, Any]:
    if task == 3 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return make(begun, task, path)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }


@pytest.fixture
def ray_here(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "ray" in sys.modules:
        sys.modules["ray"].shutdown()


def opened(out: Path, settings: dict[str, Any] | None = None, **more: Any) -> Any:
    return parts_folder(
        out, {"x": 1} if settings is None else settings, what="numbers", pattern="part-*", **more
    )


def done(folder: PartsFolder, function: Any = make, **more: Any) -> list[dict[str, Any]]:
    return folder.map(function, PARTS, begin, **more)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_makes_the_same_bytes(
    tmp_path: Path, ray_here: None, engine: tuple[str, int]
) -> None:
    name, workers = engine
    with opened(tmp_path / "a") as folder:
        counts = done(folder, workers=workers, engine=name)
        assert counts == [{"lines": n} for n in range(7)] and folder.manifest is None
        folder.finish(PARTS, {"lines": 21})
    with opened(tmp_path / "b") as folder:
        folder.finish(PARTS, {"lines": sum(own["lines"] for own in done(folder))})
    found = contents(tmp_path / "a")
    assert (
        found == contents(tmp_path / "b")
        and len(found) == 16
        and found["part-2.txt"] == b"102\n102\n"
    )
    with opened(tmp_path / "a") as folder:
        assert (
            folder.manifest
            and folder.manifest["lines"] == 21
            and len(folder.manifest["sha256"]) == 7
        )


@pytest.mark.parametrize("engine", ENGINES)
def test_only_what_is_missing_is_made(
    tmp_path: Path, ray_here: None, engine: tuple[str, int]
) -> None:
    log = tmp_path / "log"
    log.mkdir()
    more: dict[str, Any] = {"engine": engine[0], "workers": engine[1]}
    with opened(tmp_path / "a") as folder:
        done(folder)
    whole = contents(tmp_path / "a")
    left_by(tmp_path / "a" / "markers" / "part-1.txt.json").touch()
    # written, and killed before its marker
    (tmp_path / "a" / "markers" / "part-1.txt.json").unlink()
    (tmp_path / "a" / "part-4.txt").write_text("cut")
    (tmp_path / "a" / "part-5.txt").unlink()
    told: list[dict[str, Any]] = []
    with opened(tmp_path / "a") as folder:
        counts = folder.map(
            partial(make, log=log), PARTS, partial(begin, log), finished=told.append, **more
        )
    assert contents(tmp_path / "a") == whole and counts == [{"lines": n} for n in range(7)]
    names = {p.name for p in log.iterdir()}
    assert {n for n in names if n.startswith("made")} == {"made-1", "made-4", "made-5"} and len(
        told
    ) == 3
    assert any(n.startswith("begun") for n in names)
    with opened(tmp_path / "a") as folder:
        # neither is called
        folder.map(
            partial(make, log=tmp_path / "nowhere"), PARTS, partial(begin, tmp_path / "nowhere")
        )


def test_a_part_that_is_made_of_something_else_is_made_again(tmp_path: Path) -> None:
    with opened(tmp_path / "a") as folder:
        done(folder)
    other = [part._replace(digest="new", task=6) if part.task == 2 else part for part in PARTS]
    told: list[dict[str, Any]] = []
    with opened(tmp_path / "a") as folder:
        folder.map(make, other, begin, finished=told.append)
    assert told == [{"lines": 6}] and (tmp_path / "a" / "part-2.txt").read_text() == "106\n" * 6


@pytest.mark.parametrize("engine", ENGINES)
def test_an_error_is_raised_and_what_is_done_stays(
    tmp_path: Path, ray_here: None, engine: tuple[str, int]
) -> None:
    with opened(tmp_path / "a") as folder, pytest.raises(InputError, match="file:3: no"):
        done(folder, bad, engine=engine[0], workers=engine[1])
    made = {p.name for p in (tmp_path / "a").glob("part-*")}
    assert {"part-0.txt", "part-1.txt"} <= made < {part.name for part in PARTS}
    assert not list((tmp_path / "a").rglob("*.partial"))


def test_a_killed_worker_is_one_error_and_the_next_run_resumes(tmp_path: Path) -> None:
    function = partial(killed, marker=tmp_path / "killed")
    with (
        opened(tmp_path / "a") as folder,
        pytest.raises(InputError, match=r"a worker process was killed.*fewer workers"),
    ):
        done(folder, function, workers=2)
    with opened(tmp_path / "a") as folder:
        assert done(folder, function, workers=2) == [{"lines": n} for n in range(7)]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="the extra `ray` is not installed")
def test_a_killed_actor_s_part_is_made_by_another(tmp_path: Path, ray_here: None) -> None:
    function = partial(killed, marker=tmp_path / "killed")
    with opened(tmp_path / "a") as folder:
        assert done(folder, function, workers=2, engine="ray") == [{"lines": n} for n in range(7)]
    assert (tmp_path / "killed").exists()


def test_parts_may_be_folders(tmp_path: Path) -> None:
    parts = [Part("part-a", 1, "a"), Part("part-b", 2, "b")]
    for _ in range(2):
        with opened(tmp_path / "a") as folder:
            assert folder.map(make, parts, begin) == [{"lines": 1}, {"lines": 2}]
    assert sorted(
        json.loads((tmp_path / "a" / "markers" / "part-b.json").read_text())["files"]
    ) == ["part-b/a"]


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "a"
    with opened(out) as folder:
        done(folder)
        with pytest.raises(InputError, match="another process is writing it"), opened(out):
            pytest.fail("two at once")
    with (
        pytest.raises(InputError, match=r"begun with other settings \(x\)\. Add --again"),
        opened(out, {"x": 2}, anew="--again"),
    ):
        pytest.fail("other settings")
    (out / "part-9.txt").write_text("of an earlier run with more parts")
    with opened(out, {"x": 2}, fresh=True) as folder:
        assert not list(out.glob("part-*"))
        done(folder)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    with (
        pytest.raises(InputError, match=r"mine: holds 'thesis\.txt' and no numbers"),
        opened(tmp_path / "mine", fresh=True),
    ):
        pytest.fail("somebody's folder")


def test_a_folder_that_is_made_anew_is_not_whole_until_it_is_finished(tmp_path: Path) -> None:
    """The manifest of what was there goes first: a kill leaves no folder that looks whole."""
    out = tmp_path / "a"
    with opened(out) as folder:
        done(folder)
        folder.finish(PARTS, {})
    assert manifest_path(out).exists()
    with opened(out, {"x": 2}, fresh=True) as folder:
        assert folder.manifest is None and not manifest_path(out).exists()


def test_what_was_begun_in_vain_is_begun_with_any_settings(tmp_path: Path) -> None:
    """A broken line was found before anything was made; the input is mended, and so is another."""
    with opened(tmp_path / "a") as folder, pytest.raises(InputError):
        folder.map(bad, PARTS[3:], begin)
    with opened(tmp_path / "a", {"x": 2}) as folder:
        done(folder)
    with pytest.raises(InputError, match="other settings"), opened(tmp_path / "a"):
        pytest.fail("other settings")


def test_the_engine_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ENGINE", raising=False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert executor.engine_of() == "processes"
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    assert executor.engine_of() == "ray" and executor.engine_of("processes") == "processes"
    monkeypatch.setenv("ENGINE", "processes")
    assert executor.engine_of() == "processes"
    with pytest.raises(InputError, match="ENGINE=spark: choose from: processes, ray"):
        executor.engine_of("spark")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match="make setup EXTRAS=ray"), opened(tmp_path / "a") as folder:
        done(folder, engine="ray")


class FakeRay:
    """As much of Ray as the executor uses, in this process; remembers what actors ask for."""

    class exceptions(ModuleType):
        RayActorError = RuntimeError

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **resources: float) -> None:
        self.resources, self.asked = resources, dict[str, Any]()
        for name, module in (("ray", self), ("ray.exceptions", self.exceptions("ray.exceptions"))):
            monkeypatch.setitem(sys.modules, name, module)  # type: ignore[arg-type]

    def is_initialized(self) -> bool:
        return True

    def cluster_resources(self) -> dict[str, float]:
        return self.resources

    def remote(self, **asked: Any) -> Any:
        self.asked = asked

        def start(kind: Any, *given: Any) -> Any:
            actor = kind(*given)
            later = {
                name: SimpleNamespace(remote=partial(partial, getattr(actor, name)))
                for name in ("ready", "one")
            }
            return SimpleNamespace(**later)

        return lambda kind: SimpleNamespace(remote=partial(start, kind))

    def wait(
        self, running: list[Any], num_returns: int, timeout: float
    ) -> tuple[list[Any], list[Any]]:
        return running[:1], running[1:]

    def get(self, ready: Any) -> Any:
        return ready()

    def kill(self, actor: Any) -> None:
        pass


def test_ray_actors_ask_for_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for number, gpus in enumerate((1, 0.5, 0)):
        ray = FakeRay(monkeypatch, CPU=8, GPU=gpus)
        with opened(tmp_path / str(number)) as folder:
            assert folder.map(make, PARTS, begin, workers=3, engine="ray", gpus=gpus) == [
                {"lines": n} for n in range(7)
            ]
        assert ray.asked == {"num_cpus": 1, "num_gpus": gpus}


def test_a_cluster_without_a_gpu_is_one_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its actors would be waited for without end."""
    FakeRay(monkeypatch, CPU=8)
    with (
        opened(tmp_path / "a") as folder,
        pytest.raises(InputError, match="parts need a GPU, and the Ray cluster has none"),
    ):
        done(folder, workers=2, engine="ray", gpus=1)


def threads(begun: int, task: int, path: Path) -> dict[str, Any]:
    with atomic_write(path) as handle:
        handle.write("x")
    return {"torch": torch.get_num_threads(), "omp": os.environ["OMP_NUM_THREADS"]}


def test_a_worker_is_one_core(tmp_path: Path) -> None:
    """Threads of the parent are gone after a fork, and libraries that would use them hang."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        (torch.rand(500, 500) @ torch.rand(500, 500)).exp()
        with opened(tmp_path / "a") as folder:
            assert (
                folder.map(threads, PARTS[:2], begin, workers=2) == [{"torch": 1, "omp": "1"}] * 2
            )
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
