"""make gpu-check: its parts, what resumes and what is merged. The parts themselves need a CUDA
device."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
import torch

from benchmarks.perf import gpu
from bin import wheels
from core.files import InputError
from core.json_files import read_json
from experiments.compilation import CompiledLayers, compile_layers
from models.mlm import new_bert
from tests.commands import command

ROOT = Path(__file__).parents[2]
check = command("measure gpu")


@pytest.fixture
def fakes(runs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three parts whose processes write that they ran; the last one fails until a file `mended` is
    there."""
    runs.mkdir(parents=True)
    program = (
        "import json, pathlib, sys; name = sys.argv[1]; at = pathlib.Path(sys.argv[2]); open(at /"
        " 'ran', 'a').write(name + chr(10)); sys.exit('broken: no kernel') if name == 'third' and"
        " not (at / 'mended').exists() else None; print('text'); print(json.dumps({'packed':"
        " {'tokens_per_second': 1234.5, 'memory': 2e9}}))"
    )
    monkeypatch.setattr(gpu, "parts", lambda: dict.fromkeys(("first", "second", "third")))
    monkeypatch.setattr(
        gpu, "command", lambda name, device: [sys.executable, "-c", program, name, str(runs)]
    )
    monkeypatch.setattr(gpu, "commit", lambda: "a" * 40)
    return runs


def ran(runs: Path) -> list[str]:
    """The parts that ran since this was last asked."""
    names = (runs / "ran").read_text().split() if (runs / "ran").is_file() else []
    (runs / "ran").unlink(missing_ok=True)
    return names


def test_parts_that_are_complete_are_not_run_again(
    fakes: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--device", "cpu"]
    assert check(words) == 1 and ran(fakes) == ["first", "second", "third"]
    assert "2 parts, 1 failed third" in capsys.readouterr().out
    (fakes / "mended").touch()
    assert check(words) == 0 and ran(fakes) == ["third"]
    assert check([*words, "--only", "second", "--fresh"]) == 0 and ran(fakes) == ["second"]
    monkeypatch.setattr(gpu, "commit", lambda: "b" * 40)
    assert check([*words, "--only", "first,third"]) == 0 and ran(fakes) == ["first", "third"]


def test_parts_are_merged(fakes: Path) -> None:
    assert check(["--device", "cpu"]) == 1
    records = read_json(fakes / "gpu-check.json")
    assert [(own["part"], own["ok"], own["device"]) for own in records] == [
        ("first", True, "cpu"),
        ("second", True, "cpu"),
        ("third", False, "cpu"),
    ]
    rows = (fakes / "gpu-check.md").read_text().splitlines()[2:]
    assert (
        "| first | ok |" in rows[0]
        and "packed: 2.0 GB, 1,234 tokens per second" in rows[0]
        and "aaaaaaaaa |" in rows[0]
    )
    assert "| third | failed |" in rows[2] and "broken: no kernel" in rows[2]


def test_a_part_is_stopped_in_time_with_its_processes(
    fakes: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = f"echo $$ > {tmp_path}/shell; sleep 60 & echo $! > {tmp_path}/sleep; wait"
    monkeypatch.setattr(gpu, "LIMIT", 1.5)
    monkeypatch.setattr(gpu, "command", lambda name, device: ["bash", "-c", program])
    assert check(["--device", "cpu", "--only", "first"]) == 1
    assert read_json(fakes / "gpu-check" / "first.json")["why"] == "stopped after 1.5 s"
    for name in ("shell", "sleep"):
        stat = Path("/proc", (tmp_path / name).read_text().strip(), "stat")
        until = time.monotonic() + 20  # a killed process ends once it is scheduled
        while (
            running := stat.is_file() and stat.read_text().rpartition(")")[2].split()[0] != "Z"
        ) and time.monotonic() < until:
            time.sleep(0.05)
        assert not running


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_without_a_gpu_it_says_what_it_would_run(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check([]) == 2
    said = capsys.readouterr()
    assert (
        said.out.split() == list(gpu.parts())
        and len(said.err.splitlines()) == 1
        and "no CUDA device" in said.err
    )
    assert not (runs / "gpu-check").exists()
    assert check(["--only", "pretrian"]) == 2 and "no part 'pretrian'" in capsys.readouterr().err


def test_every_gpu_test_and_every_paper_has_a_part() -> None:
    names = set(gpu.parts())
    marked = [
        p for p in (ROOT / "tests").rglob("test_*.py") if "\n@pytest.mark.gpu\n" in p.read_text()
    ]
    assert len(marked) > 1
    assert {f"tests-{p.parent.name}-{p.stem.removeprefix('test_')}" for p in marked} <= names
    assert {
        f"pretrain-{paper}" for paper in ("kebiolm", "smedbert", "embert", "genbioel", "sapbert")
    } <= names
    assert {
        "speed-entity_softmax",
        "layers",
        "pretrain-kebiolm-packed",
    } <= names and "pretrain-genbioel-packed" not in names


def test_layers_are_measured_each_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self, **named: None)  # needs a compiler
    found = gpu.layers("cpu", sizes=(2, 16, 2, 16), rows=4, length=8)
    assert found["tokens"] == 2 + 4 + 6 + 8 and found["padded_tokens"] == 32
    ways = ("sdpa", "packed", "sdpa-compiled", "packed-compiled")
    assert all(found[way]["tokens_per_second"] > 0 for way in ways)


def test_the_search_and_the_decoding_are_compared_with_the_cpu() -> None:
    found = gpu.search("cpu", names=500, size=16, queries=80, k=5)
    assert found["milliseconds_per_query"] > 0 and found["first_equal"]
    assert found["same_names"] == 1 and found["largest_difference"] < 1e-6
    found = gpu.decode("cpu", (16, 1), names=50, mentions=6, batches=(2, 4), compared=3)
    assert found["first_equal"] and found["batch"] in (2, 4)
    assert found["mentions_per_second"] == max(found["batches"].values())


def test_parts_at_once(fakes: Path) -> None:
    (fakes / "mended").touch()
    assert check(["--device", "cpu", "--jobs", "3"]) == 0
    assert sorted(ran(fakes)) == ["first", "second", "third"]
    assert check(["--device", "cpu", "--jobs", "0"]) == 2


def test_compiled_layers_compute_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    monkeypatch.setattr(
        torch.nn.Module, "compile", lambda self, **named: compiled.append(type(self).__name__)
    )
    assert compile_layers(new_bert(30, 2, 16, 2, 16, 8)) == 2
    assert compiled == ["BertSelfOutput", "BertIntermediate", "BertOutput"] * 2
    with pytest.raises(InputError, match="Linear: no layers of a BERT to compile"):
        CompiledLayers().on_fit_start(None, torch.nn.Linear(2, 2))  # type: ignore[arg-type]


def test_wheels_that_are_missing_are_pinned() -> None:
    """With what they need themselves, which is not asked of a machine that has it."""
    every = wheels.missing((), "3.12")
    names = [line.partition("==")[0] for line in every]
    assert all("==" in line for line in every) and names == sorted(set(names))
    assert {"torch", "mlflow", "databricks-sdk", "omegaconf"} <= set(names)
    assert "torch==2.13.0" in every  # without the local part of a CPU build
    rest = wheels.missing(["Torch", "numpy", "mlflow"], "3.12")
    assert set(rest) < set(every)
    left = {line.partition("==")[0] for line in rest}
    assert not {"torch", "numpy", "mlflow", "databricks-sdk"} & left and "omegaconf" in left


def test_wheels_of_a_file_without_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "installed.txt").write_text("Package Version\n")
    for name, message in (("installed.txt", "no line name==version"), ("none", "No such file")):
        monkeypatch.setattr(sys, "argv", ["wheels", "--installed", str(tmp_path / name)])
        with pytest.raises(SystemExit) as ended:
            wheels.main()
        assert ended.value.code == 2 and message in capsys.readouterr().err
    (tmp_path / "installed.txt").write_text("torch==2.11.0+cu130\nnumpy==2.5.2\n")
    monkeypatch.setattr(sys, "argv", ["wheels", "--installed", str(tmp_path / "installed.txt")])
    wheels.main()
    said = capsys.readouterr().out
    assert "omegaconf==" in said and "\ntorch==" not in said and "--python-version 3.12" in said
