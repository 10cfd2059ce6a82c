"""A sixth paper with an option of its own, a variant and a table: files are added, and one word in
the import contract."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from core.json_files import read_json
from tests.fakes.mlm import Folders
from tests.test_house import ROOMS, ROOT

CONTRACT = '"kebiolm | sapbert | '  # the line of papers in pyproject.toml


#: a command of the paper, in its own module
PREPARE = '''

def prepare(graph: str, size: int = 3) -> str:
    """Prepare its data.

    Args:
        graph: Folder of a knowledge graph.
        size: How many of its samples.
    """
    return f"{graph}: {size}"
'''
STAGES = [
    {"title": "Graph", "run": "graph build hpo", "arguments": {"out": "{work}/graph"}},
    {
        "title": "Data",
        "run": "datamodules.sixth:prepare",
        "arguments": {"graph": "{work}/graph", "size": 5},
    },
]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout with the paper `sixth`: a masked language model under another name."""
    root = tmp_path_factory.mktemp("tree") / "kepl"
    for room in (*ROOMS, "bin"):
        shutil.copytree(ROOT / room, root / room, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copyfile(ROOT / file, root / file)
    (root / ".venv").symlink_to(Path(sys.prefix))
    for room, name, own in (
        ("models", r"\bMLM\b", "Sixth"),
        ("datamodules", "MLMData", "SixthData"),
    ):
        text = (ROOT / room / "mlm.py").read_text().replace("datamodules.mlm", "datamodules.sixth")
        (root / room / "sixth.py").write_text(re.sub(name, own, text))
    with open(root / "datamodules" / "sixth.py", "a") as handle:
        handle.write(PREPARE)
    place = root / "experiments" / "sixth"
    place.mkdir()
    config = yaml.safe_load((ROOT / "experiments" / "zh" / "pretrain.yaml").read_text())
    config["model"]["class_path"], config["data"]["class_path"] = (
        "models.sixth.Sixth",
        "datamodules.sixth.SixthData",
    )
    files = {
        place / "pretrain.yaml": config,
        place / "pretrain_deep.yaml": {"model": {"init_args": {"layers": 6}}},
        place / "pipeline.yaml": {
            "training": {"configs": ["pretrain.yaml", "{variant}", "{profile}"], "arguments": {}},
            "variants": {
                "sixth": {"title": "Sixth"},
                "deep": {"title": "Deeper", "configs": ["pretrain_deep.yaml"], "extra": True},
            },
            "profiles": {"small": {"stages": STAGES}},
            "report": {"held_out": "", "column": "{}", "rows": {"loss": "val/loss"}},
        },
        place / "commands.yaml": {
            "data sixth": {"function": "datamodules.sixth:prepare", "about": "prepare its data"}
        },
        place / "encoder.yaml": {
            "load": "models.encoders.TextEncoder",
            "stem": "pretrain",
            "options": {
                "DEPTH": {
                    "setting": "data.init_args.linker_settings.depth",
                    "help": "Depth of the sixth paper's own",
                }
            },
        },
        root / "benchmarks" / "papers" / "sixth" / "table1.yaml": {
            "title": "The sixth paper's scores",
            "kind": "finetune",
            "columns": {"NCBI": {"task": "NCBI", "split": "test"}},
            "rows": [
                {
                    "name": "Sixth",
                    "measured": {"model": "sixth", "depth": 3},
                    "reported": {"NCBI": 88.8},
                }
            ],
        },
    }
    for file, content in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump(content, sort_keys=False))
    return root


def run(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(
        words, cwd=tree, env=clean | {"PYTHONPATH": str(tree)}, capture_output=True, text=True
    )


def kepl(tree: Path, *words: str) -> str:
    done = run(tree, sys.executable, "-m", "app.cli", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_its_pipeline_and_its_variant(tree: Path) -> None:
    plain = kepl(tree, "pretrain", "sixth", "PLAN=1")
    assert "# Sixth" in plain and "# Deeper" not in plain
    assert "-m core.call graph build hpo --out" in plain
    assert "-m core.call datamodules.sixth:prepare --graph" in plain
    assert "prepare its data" in kepl(tree, "data", "--help")
    words = ("--graph", "g", "--size", "7")
    assert kepl(tree, "data", "sixth", *words) == "g: 7\n"
    done = run(tree, sys.executable, "-m", "core.call", "datamodules.sixth:prepare", *words)
    assert done.stdout == "g: 7\n", done.stderr
    deep = kepl(tree, "pretrain", "sixth", "PLAN=1", "VARIANTS=deep")
    assert "# Deeper" in deep and "--config experiments/sixth/pretrain_deep.yaml" in deep
    done = run(
        tree,
        "make",
        "-o",
        str(tree / ".venv" / ".installed-cpu"),
        "pretrain-sixth",
        "PLAN=1",
        "VARIANTS=deeep",
    )
    assert done.returncode == 2 and "deep" in done.stderr


def test_its_option_joins_the_command_line(tree: Path) -> None:
    said = kepl(tree, "finetune", "--help")
    assert "--depth" in said and "Depth of the sixth paper's own" in said
    done = run(tree, sys.executable, "-m", "app.cli", "finetune", "NCBI", "DEPTH=deep")
    assert done.returncode == 2 and "DEPTH=deep: expected a number" in done.stderr


def test_its_table(tree: Path, runs: Path, preloaded: None) -> None:
    assert "| Sixth | 88.80 |" in kepl(tree, "table", "sixth", "1")


def test_it_trains(
    tree: Path, fake_mlm: Folders, tmp_path: Path, runs: Path, preloaded: None
) -> None:
    settings = {
        "data.init_args.tokenizer": fake_mlm.vocabulary,
        "data.init_args.corpus": fake_mlm.corpus,
        "data.init_args.batch_size": 16,
        "model.init_args.layers": 1,
        "model.init_args.hidden": 32,
        "model.init_args.intermediate": 32,
        "model.init_args.warmup_steps": 1,
        "result": tmp_path / "result.json",
    }
    words = [word for key, value in settings.items() for word in (f"--{key}", str(value))]
    configs = [
        "--config",
        "experiments/sixth/pretrain.yaml",
        "--config",
        "experiments/common/tiny.yaml",
    ]
    done = run(tree, sys.executable, "-m", "experiments.run", *configs, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    result = read_json(tmp_path / "result.json")
    assert result["steps"] == 1 and "/sixth/pretrain/" in result["export"]


def test_the_only_edit_is_its_word_in_the_import_contract(tree: Path) -> None:
    linter = str(Path(sys.executable).parent / "lint-imports")
    contract = tree / "pyproject.toml"
    text = contract.read_text()
    assert text.count(CONTRACT) == 1
    assert run(tree, linter, "--no-cache").returncode != 0  # it must be listed
    contract.write_text(text.replace(CONTRACT, f"{CONTRACT}sixth | "))
    done = run(tree, linter, "--no-cache")
    contract.write_text(text)
    assert done.returncode == 0, done.stdout
