"""The rules of the house that no single room can check."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
ROOMS = ("core", "kg", "datamodules", "models", "experiments", "inference", "benchmarks", "app")
SOURCES = sorted(p for room in (*ROOMS, "tests") for p in (ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_are_this_checkouts(room: str) -> None:
    """scispaCy's pysbd installs a top-level `benchmarks`; ours must come first."""
    module = importlib.import_module(room)
    assert module.__file__ is not None and Path(module.__file__).is_relative_to(ROOT)


def test_nothing_that_executes_code_is_loaded() -> None:
    assert len(SOURCES) > 40
    bad = re.compile(
        r"pickle\.loads?\(|joblib\.load|yaml\.load\(|trust_remote_code=True|weights_only=False|(?<![\w.])(eval|exec)\("
    )
    found = [
        f"{p.relative_to(ROOT)}: {m.group()}"
        for p in SOURCES
        if p != Path(__file__)
        for m in bad.finditer(p.read_text())
    ]
    assert found == []
    for path in SOURCES:
        for match in re.finditer(r"torch\.load\([^)]*\)", path.read_text()):
            assert "weights_only=True" in match.group() or path == Path(__file__), f"{path}: {match.group()}"


def test_every_test_folder_is_a_package() -> None:
    folders = {p.parent for p in (ROOT / "tests").rglob("test_*.py")}
    assert len(folders) > 4 and all((f / "__init__.py").is_file() for f in folders)


def classes(folder: str) -> tuple[str, str]:
    """class_path of model and data in experiments/<folder>/pretrain.yaml."""
    config = yaml.safe_load((ROOT / "experiments" / folder / "pretrain.yaml").read_text())
    return config["model"]["class_path"], config["data"]["class_path"]


def pipelines() -> tuple[list[str], list[str]]:
    """(papers, start encoders): what has a pipeline. A start encoder trains nothing but the general masked LM."""
    every = [p.parent.name for p in (ROOT / "experiments").glob("*/pipeline.yaml")]
    start = [name for name in every if classes(name) == ("models.mlm.MLM", "datamodules.mlm.MLMData")]
    return [name for name in every if name not in start], start


def test_a_start_encoder_uses_tested_classes() -> None:
    assert pipelines()[1]
    for name in pipelines()[1]:
        for class_path in classes(name):
            module, _, leaf = class_path.rpartition(".")
            assert hasattr(importlib.import_module(module), leaf)
            room, file = module.split(".")
            assert (ROOT / "tests" / room / f"test_{file}.py").is_file()
        assert (ROOT / "experiments" / name / "small.yaml").is_file()


def test_a_paper_has_its_rooms() -> None:
    papers = pipelines()[0]
    assert papers
    for paper in papers:
        for place in (
            f"models/{paper}",
            f"datamodules/{paper}",
            f"tests/models/test_{paper}",
            f"tests/datamodules/test_{paper}",
        ):
            assert (ROOT / f"{place}.py").is_file() or (ROOT / place).is_dir(), place
        assert (ROOT / "experiments" / paper / "pretrain.yaml").is_file()
        contract = (ROOT / "pyproject.toml").read_text()
        assert re.search(rf'"[^"]*\b{paper}\b[^"]*"', contract), f"{paper} is missing in the import contract"


def test_a_sixth_paper_needs_no_edit_of_shared_code() -> None:
    """No shared file names a paper: only the paper's own files, the import contract and the README do."""
    papers = pipelines()[0]
    shared = [
        ROOT / "Makefile",
        *(ROOT / "kg").rglob("*.py"),
        *(ROOT / "experiments").glob("*.py"),
        *(p for room in ("models", "datamodules") for p in (ROOT / room).glob("*.py") if p.stem not in papers),
    ]
    for path in shared:
        code = re.sub(r'"""(?:.|\n)*?"""|#.*', "", path.read_text())
        assert not [p for p in papers if re.search(rf"\b{p}\b", code)], path


def test_every_config_says_where_its_numbers_come_from() -> None:
    configs = sorted((ROOT / "experiments").glob("*/pretrain*.yaml")) + sorted(
        (ROOT / "experiments" / "kg").glob("trans*.yaml")
    )
    assert configs
    for path in configs:
        text = path.read_text()
        assert text.startswith("#"), f"{path}: the first line says what runs it"
        assert yaml.safe_load(text).get("paper"), f"{path}: no paper section"


def test_make_lists_every_target_and_each_sets_up() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^([a-z][a-z%-]*):(.*)$", makefile, re.M)
    listed = subprocess.run(["make", "-s", "-C", str(ROOT)], capture_output=True, text=True, check=True).stdout
    assert len(targets) > 8
    for name, rest in targets:
        assert f"  {name} " in listed, name
        if name not in ("help", "check"):
            assert "$(STAMP)" in rest, f"{name} does not set up .venv"


def test_constraints_pin_what_is_required() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = {
        re.sub(r"[-_.]+", "-", line.split("==")[0]).lower()
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    wanted = project["dependencies"] + [r for extra in project["optional-dependencies"].values() for r in extra]
    names = {re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~; ]", r)[0]).lower() for r in wanted}
    assert names <= pins, names - pins
    assert "lightning" not in pins and "hydra-core" not in pins


def test_ci_runs_what_the_readme_tells() -> None:
    assert "make check" in (ROOT / ".ci" / "run").read_text() and "make check" in (ROOT / "README.md").read_text()


def test_no_setting_of_a_target_is_a_variable_of_the_makefiles_own() -> None:
    """Else the target gets it unasked, and asking for it breaks the Makefile: as make table got RUN= once."""
    makefile = (ROOT / "Makefile").read_text()
    own = set(re.findall(r"^([A-Z_]+) *:=", makefile, re.M))
    passed = {v for names in re.findall(r"foreach v,([A-Z0-9_ ]+),", makefile) for v in names.split()}
    assert {"RUN", "MIRROR"} <= passed and {"VENV", "STAMP"} <= own
    assert not passed & own
    for given in ([], ["RUN=1"]):
        words = ["make", "-n", "table", "PAPER=embert", "TABLE=3", *given]
        environment = {k: v for k, v in os.environ.items() if k not in passed and not k.startswith(("MAKE", "MFLAGS"))}
        told = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
        line = next(line for line in told.splitlines() if "benchmarks.run table" in line)
        assert line.startswith(f"{ROOT}/.venv/bin/python -m benchmarks.run table embert 3")
        assert ("RUN=" in line) == bool(given) and ('RUN="1"' in line) == bool(given)
