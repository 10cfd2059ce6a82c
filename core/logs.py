"""What a program says while it works: one logger a room, on standard error. Results alone go to
standard output."""

from __future__ import annotations

import logging
import sys
import warnings

ROOMS = ("core", "kg", "datamodules", "models", "experiments", "inference", "benchmarks", "app")
ENTRY = "__main__"  #: the logger of a file that `python -m` runs


#: Loggers of libraries whose information says nothing to a user: banners, tips, the tables of a
#: new MLflow store.
LIBRARIES = (
    "pytorch_lightning",
    "lightning_fabric",
    "mlflow.store.db.utils",
    "alembic",
    "alembic.runtime.migration",
)

#: Warnings of libraries about their own code, or about choices that are made on purpose here.
SILENCED = (
    r".*isinstance.treespec, LeafSpec.*",  # Lightning's use of a class of torch
    r".*does not have many workers.*",  # batches are made faster than they are used
    r".*smaller than the logging interval.*",  # a short run logs its last step
    # a training need not be a job where there is a SLURM
    r".*`srun` command is available on your system but is not used.*",
    r".*'pin_memory' argument is set as true but no accelerator is found.*",  # PyKEEN's default
)


class _Lines(logging.Formatter):
    """Information as it is; a warning or an error says that it is one."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return text if record.levelno == logging.INFO else f"{record.levelname.lower()}: {text}"


class _Standard(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to what is standard error when it writes, which tests and progress bars replace."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def set_up(verbose: bool = False, quiet: bool = False) -> None:
    """Send the rooms' messages to standard error: information and above; all with `verbose`, errors
    alone with `quiet`."""
    handler = _Standard()
    handler.setFormatter(_Lines("%(message)s"))
    level = logging.ERROR if quiet else logging.INFO
    level = logging.DEBUG if verbose else level
    for room in (*ROOMS, ENTRY):
        logger = logging.getLogger(room)
        logger.handlers = [handler]
        logger.setLevel(level)


def quiet_libraries() -> None:
    """Silence what libraries say that no user can act on; their other warnings and errors stay.

    Call it after the libraries are imported: they set their loggers' levels then.
    """
    for name in LIBRARIES:
        logging.getLogger(name).setLevel(logging.WARNING)
    # PyKEEN's, on every evaluation without a GPU
    logging.getLogger("torch_max_mem").setLevel(logging.ERROR)
    for message in SILENCED:
        warnings.filterwarnings("ignore", message=message)
    # its bars of reading and writing weights, not those of downloads
    if "transformers" in sys.modules:
        from huggingface_hub.utils import are_progress_bars_disabled, enable_progress_bars
        from transformers.utils.logging import disable_progress_bar

        bars = not are_progress_bars_disabled()
        disable_progress_bar()
        if bars:
            enable_progress_bars()
