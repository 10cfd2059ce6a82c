"""What a program says: its own information, and of libraries only what a user can act on."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.logs import LIBRARIES, SILENCED, quiet_libraries, set_up

pytestmark = pytest.mark.usefixtures("preloaded")

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def levels() -> Iterator[None]:
    """Levels and filters as they were, afterwards."""
    before = {name: logging.getLogger(name).level for name in LIBRARIES}
    with warnings.catch_warnings():
        yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def test_libraries_say_warnings_only() -> None:
    quiet_libraries()
    for name in (*LIBRARIES, "pytorch_lightning.utilities.rank_zero"):
        logger = logging.getLogger(name)
        assert not logger.isEnabledFor(logging.INFO) and logger.isEnabledFor(logging.WARNING)


def test_only_the_listed_warnings_are_silenced() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        quiet_libraries()
        warnings.warn(
            "The 'val_dataloader' does not have many workers which may be a bottleneck.",
            stacklevel=1,
        )
        warnings.warn("`isinstance(treespec, LeafSpec)` is deprecated", FutureWarning, stacklevel=1)
        warnings.warn("the loss is nan", stacklevel=1)
    assert [str(w.message) for w in caught] == ["the loss is nan"] and len(SILENCED) < 8


def test_information_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    set_up()
    logging.getLogger("experiments.run").info("resuming")
    logging.getLogger("kg.vectors.train").warning("odd")
    logging.getLogger("__main__").info("of the file that python -m runs")
    assert capsys.readouterr() == ("", "resuming\nwarning: odd\nof the file that python -m runs\n")


def test_a_new_store_is_made_in_silence(tmp_path: Path) -> None:
    """MLflow reports every table of a new sqlite file, and Lightning an available SLURM; nobody
    need act on that."""
    (tmp_path / "srun").touch(mode=0o755)
    program = (
        "import mlflow, pytorch_lightning; from core.logs import quiet_libraries;"
        f" quiet_libraries(); mlflow.set_tracking_uri('sqlite:///{tmp_path / 'm.db'}');"
        " mlflow.set_experiment('a'); pytorch_lightning.Trainer(logger=False, accelerator='cpu',"
        " enable_progress_bar=False)"
    )
    environment = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    said = [
        line
        for line in done.stderr.splitlines()
        if "Experiment with name 'a' does not exist" not in line
    ]
    assert not said
