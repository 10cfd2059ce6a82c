"""Fixtures that several rooms' tests share; tests/conftest.py imports them where tests are run."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import mlflow
import pytest
from hypothesis import Phase, settings

from core.logs import set_up
from tests import preload
from tests.conftest import SERVER
from tests.fakes import embert, genbioel, kebiolm, mlm, sapbert, smedbert

# how long an example takes is a matter of what else the machine does
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
# a failure is enough: looking for the smallest example of it takes minutes
if "KEPL_TESTS_UNSHRUNK" in os.environ:
    settings.register_profile(
        "unshrunk", settings.get_profile("ci"), phases=(Phase.explicit, Phase.reuse, Phase.generate)
    )
    settings.load_profile("unshrunk")


@pytest.fixture(scope="session")
def fast_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter whose processes need not import the large libraries (tests/preload.py)."""
    owner, address = os.environ[SERVER].split(" ", 1)
    return preload.executable(
        tmp_path_factory.mktemp("python"), preload.serve(address=address, owner=int(owner))
    )


@pytest.fixture
def preloaded(monkeypatch: pytest.MonkeyPatch, fast_python: str) -> None:
    """Processes that this test, or what it tests, starts with sys.executable start at once."""
    monkeypatch.setattr(sys, "executable", fast_python)


@pytest.fixture(autouse=True)
def _logs() -> None:
    """Messages go to standard error as in a command, whatever an earlier test has set."""
    set_up()


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of tests need not survive a power cut: fsync takes some 4 ms each."""
    monkeypatch.setattr(os, "fsync", lambda number: None)


@pytest.fixture(scope="session")
def fake_kebiolm(tmp_path_factory: pytest.TempPathFactory) -> kebiolm.Folders:
    """KeBioLM's inputs, written once; tests must not change them."""
    return kebiolm.write(tmp_path_factory.mktemp("kebiolm"))


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow store with its tables and nothing in them: making them takes seconds, copying the
    file none."""
    place = tmp_path_factory.getbasetemp()
    # once for all workers
    shared = place.parent if os.environ.get("PYTEST_XDIST_WORKER") else place
    file = shared / "empty-mlflow.db"
    with open(shared / "empty-mlflow.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            mlflow.MlflowClient(f"sqlite:///{file}.first").search_experiments()
            # MLflow keeps the first one open, and may write to it
            shutil.copyfile(f"{file}.first", f"{file}.copy")
            os.replace(f"{file}.copy", file)
    return file


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_store: Path) -> Path:
    """A place of this test's own for runs and their MLflow store."""
    monkeypatch.setenv("KEPL_RUNS", str(tmp_path / "runs"))
    shutil.copyfile(empty_store, tmp_path / "mlflow.db")
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    # what an earlier test of this process has set would win over the environment
    mlflow.set_tracking_uri(store)
    return tmp_path / "runs"


@pytest.fixture(scope="session")
def fake_mlm(tmp_path_factory: pytest.TempPathFactory) -> mlm.Folders:
    """Inputs of masked-LM pre-training, written once; tests must not change them."""
    return mlm.write(tmp_path_factory.mktemp("mlm"))


@pytest.fixture(scope="session")
def fake_sapbert(tmp_path_factory: pytest.TempPathFactory) -> sapbert.Folders:
    """SapBERT's inputs, written once; tests must not change them."""
    return sapbert.write(tmp_path_factory.mktemp("sapbert"))


@pytest.fixture(scope="session")
def fake_genbioel(tmp_path_factory: pytest.TempPathFactory) -> genbioel.Folders:
    """GenBioEL's inputs, written once; tests must not change them."""
    return genbioel.write(tmp_path_factory.mktemp("genbioel"))


@pytest.fixture(scope="session")
def fake_smedbert(tmp_path_factory: pytest.TempPathFactory) -> smedbert.Folders:
    """SMedBERT's inputs, written once; tests must not change them."""
    return smedbert.write(tmp_path_factory.mktemp("smedbert"))


@pytest.fixture(scope="session")
def fake_embert(tmp_path_factory: pytest.TempPathFactory) -> embert.Folders:
    """EMBERT's inputs, written once; tests must not change them."""
    return embert.write(tmp_path_factory.mktemp("embert"))


@pytest.fixture(scope="module")
def runs_of_file(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Iterator[Path]:
    """One place for all runs of a file."""
    folder = tmp_path_factory.mktemp("runs")
    shutil.copyfile(empty_store, folder / "mlflow.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KEPL_RUNS", str(folder / "runs"))
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder / 'mlflow.db'}")
        mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
        yield folder / "runs"
