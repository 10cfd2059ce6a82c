"""`make` as a thin alias: what is typed behind it reaches the parser unchanged, through real
make."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ODD = [
    'a $HOME/b "c"',
    "x;y",
    "`touch SIDE`",
    "back\\slash",
    "a$(b",
    "$(shell touch SIDE)",
    "${HOME}",
    "it's",
    "p|q>r&",
]


def make(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run make without building .venv, and without the settings of a make that runs these tests."""
    clean = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    installed = ROOT / ".venv" / ".installed-cpu"
    return subprocess.run(
        ["make", "-o", str(installed), *words],
        cwd=ROOT,
        env=clean | environment,
        capture_output=True,
        text=True,
    )


def stages(*words: str, **environment: str) -> list[list[str]]:
    done = make("pretrain-kebiolm", "PLAN=1", *words, **environment)
    assert done.returncode == 0, done.stderr
    return [shlex.split(line) for line in done.stdout.splitlines() if line.startswith("python -m")]


def test_a_misspelt_setting_is_one_error() -> None:
    done = make("finetune", "TASK=NCBI", "EPOCHES=3", "LR=1e-4")
    assert (
        done.returncode == 2
        and "no setting EPOCHES; did you mean EPOCHS?" in done.stderr
        and "Traceback" not in done.stderr
    )


def test_a_value_of_another_type_is_one_error() -> None:
    done = make("finetune", "TASK=NCBI", "EPOCHS=three")
    assert (
        done.returncode == 2
        and "EPOCHS=three: expected a whole number" in done.stderr
        and "Traceback" not in done.stderr
    )


@pytest.mark.parametrize("value", ODD)
def test_values_arrive_unchanged_and_run_nothing(value: str, tmp_path: Path) -> None:
    value = value.replace("SIDE", str(tmp_path / "side"))
    (plan, *_) = (words for words in stages(f"ENCODER={value}") if "experiments.run" in words)
    assert plan[plan.index("--model.init_args.encoder") + 1] == value
    assert not (tmp_path / "side").exists()


def test_a_setting_of_several_words_is_read_as_words() -> None:
    (linking,) = (words for words in stages('CORPUS=a $HOME/b "c d"') if "link" in words)
    assert linking[linking.index("--input") + 1 : linking.index("--out")] == [
        str(ROOT / name) for name in ("a", "$HOME/b", "c d")
    ]


def test_the_environment_is_no_source_of_settings() -> None:
    plain = stages()
    assert (
        stages(SEED="9", DATA="x", K="3", PROFILE="paper", ENCODER="other", ARGS="--x 1", PLAN="0")
        == plain
    )
    assert stages("SEED=9") != plain


def test_makes_own_names_are_accepted() -> None:
    assert stages("ACCEL=cpu", "PYTHON=python3", "TESTS_AT_ONCE=2") == stages()


def test_a_makefile_that_calls_kepl_passes_it_nothing(tmp_path: Path) -> None:
    """Only the project's own recipes let kepl read make's settings."""
    (tmp_path / "Makefile").write_text(f"x:\n\t@{ROOT}/bin/kepl tasks\n")
    clean = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    done = subprocess.run(
        ["make", "x", "EPOCHES=3", "SEED=9"],
        cwd=tmp_path,
        env=clean,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "NCBI" in done.stdout, done.stderr
