"""One training run on disk and in MLflow: its folder, its lock, its checkpoints, what it
records."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import pickle
import shutil
import struct
import zipfile
import zlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import yaml
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers import Logger
from pytorch_lightning.loggers.logger import DummyLogger
from pytorch_lightning.plugins.io import TorchCheckpointIO

from core.artifact import content_digest, has_manifest
from core.files import InputError, atomic_write, remove_leftovers
from core.journal import Journal
from core.json_files import digest, write_json
from core.tracking import commit, environment, runs_folder
from datamodules.pretrained import HUB_NAME, PACKAGED, identity

LOG = logging.getLogger(__name__)
#: Settings that name a model: a folder, or a name of the hub, neither of which says which weights
#: are meant.
MODELS = ("init_args.encoder", "init_args.tokenizer")
#: Settings, by their whole path, that say where a run computes, what it is started by or where its
#: numbers come from, and not
#: what is trained: they do not change a run's folder. What makes the data is in the hash as the
#: manifest of its folder.
MACHINE = frozenset(
    "config seed_everything checkpoint_every fresh result run_folder request paper finetune tasks"
    " epochs.paper made.seed data.init_args.num_workers data.init_args.seed".split()
) | frozenset(
    f"trainer.{setting}"
    for setting in "accelerator devices num_nodes strategy accumulate_grad_batches logger callbacks plugins profiler barebones enable_progress_bar enable_model_summary log_every_n_steps default_root_dir sync_batchnorm use_distributed_sampler num_sanity_val_steps".split()  # noqa: E501
)


def content(value: Any, path: str = "") -> Any:
    """`value` with machine settings left out and every folder that has a manifest replaced by the
    digest of its content.

    path: of `value` in the config, with dots.
    """
    if isinstance(value, dict):
        below = f"{path}." if path else ""
        return {
            k: content(v, f"{below}{k}") for k, v in value.items() if f"{below}{k}" not in MACHINE
        }
    if isinstance(value, list):
        return [content(v, f"{path}[]") for v in value]
    if isinstance(value, str) and has_manifest(value):
        return content_digest(value)
    if isinstance(value, str) and path.endswith(MODELS) and value not in PACKAGED:
        return model_content(value)
    return value


def model_content(name: str) -> str:
    """What decides that two runs start from the same model `name`: its files, whatever folder or
    hub name they are found by."""
    if Path(name).is_dir() or HUB_NAME.fullmatch(name):
        return identity(name)
    return name


def data_folders(value: Any, key: str = "") -> dict[str, Path]:
    """{setting: folder} of every setting that names a folder with a manifest."""
    if isinstance(value, dict):
        folders: dict[str, Path] = {}
        for name, inner in value.items():
            folders |= data_folders(inner, name)
        return folders
    return {key: Path(value)} if isinstance(value, str) and has_manifest(value) else {}


def data_hashes(value: Any) -> dict[str, str]:
    """{setting: digest of its content} for every setting that names a folder with a manifest."""
    return {key: content_digest(folder) for key, folder in data_folders(value).items()}


def model_identities(value: Any, path: str = "") -> dict[str, str]:
    """{setting: identity} of every setting that names a model to start from."""
    if isinstance(value, dict):
        below = f"{path}." if path else ""
        identities: dict[str, str] = {}
        for name, inner in value.items():
            identities |= model_identities(inner, f"{below}{name}")
        return identities
    if not isinstance(value, str) or not path.endswith(MODELS):
        return {}
    is_name = value in PACKAGED or Path(value).is_dir() or HUB_NAME.fullmatch(value)
    return {path: identity(value)} if is_name else {}


def first_process() -> bool:
    """Whether this is process 0 of a distributed run, also before the process group exists.

    torchrun sets RANK; processes that Lightning starts have LOCAL_RANK and NODE_RANK; those of srun
    SLURM_PROCID alone, which is in the environment of the two others, too, where they run inside a
    SLURM job.
    """
    for names in (("RANK",), ("LOCAL_RANK", "NODE_RANK")):
        if any(name in os.environ for name in names):
            return all(int(os.environ.get(name, "0")) == 0 for name in names)
    return int(os.environ.get("SLURM_PROCID", "0")) == 0


def started_from_outside() -> bool:
    """Whether torchrun or srun started several processes of this run, none of which waits for
    another."""
    if "RANK" in os.environ:
        return int(os.environ.get("WORLD_SIZE", "1")) > 1
    return "LOCAL_RANK" not in os.environ and int(os.environ.get("SLURM_NTASKS", "1")) > 1


class Run:
    """``runs/<paper>/<stem>/<config hash>/seed<k>/``: checkpoints, metrics at start and end,
    export.

    experiment, name  in MLflow; without them the paper, and stem and seed
    parent            folder of the run that this one belongs under in MLflow
    Raises InputError when another process works on the same folder.
    """

    def __init__(
        self,
        paper: str,
        stem: str,
        config: dict[str, Any],
        seed: int,
        folder: str | None = None,
        experiment: str | None = None,
        name: str | None = None,
        parent: str | None = None,
    ) -> None:
        self.paper, self.stem, self.config, self.seed = paper, stem, config, seed
        self.experiment, self.name = experiment or paper, name or f"{stem}-seed{seed}"
        self.parent = parent
        self.folder = (
            Path(folder) if folder else runs_folder() / paper / stem / self.checksum / f"seed{seed}"
        )
        self.checkpoints = self.folder / "checkpoints"

    @property
    def checksum(self) -> str:
        """What the folder of the run's settings is called, whatever its seed."""
        return digest(content(self.config))[:12]

    @property
    def finished(self) -> bool:
        return (self.folder / "finished.json").is_file()

    def lock(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = open(self.folder / "lock", "w")  # held until the process ends  # noqa: SIM115
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InputError(
                f"{self.folder}: another process is training here. Wait for it, or stop it first."
            ) from error
        remove_leftovers(self.checkpoints)

    def clear(self) -> None:
        """Remove what an earlier run left in the folder."""
        for stale in ("checkpoints", "export"):
            shutil.rmtree(self.folder / stale, ignore_errors=True)
        for file in self.folder.glob("*"):
            if file.is_file() and file.name != "lock":
                file.unlink()

    def newest_checkpoint(self) -> Path | None:
        """The checkpoint with the most steps that is whole; damaged ones are reported."""
        for path in sorted(self.checkpoints.glob("step=*.ckpt"), key=steps_of, reverse=True):
            if whole(path):
                return path
            if first_process():
                LOG.warning(
                    f"{path}: damaged; training resumes from the checkpoint before it, or from the"
                    " start"
                )
        return None

    def logger(self) -> Logger:
        """What Lightning logs to: the run's journal. Other processes than the first get one that
        drops all."""
        return JournalLogger(self.journal) if first_process() else DummyLogger()

    @cached_property
    def journal(self) -> Journal:
        """The run's journal, delivered in the background; that of a resumed run is continued (first
        process only)."""
        journal = Journal(self.folder, self.experiment, self.name, parent=self.parent)
        journal.deliver()  # now, so that the run's id is known where MLflow answers
        journal.start()
        return journal

    def close(self) -> None:
        """Deliver what is left of the journal, if it was opened."""
        if "journal" in vars(self):
            self.journal.close()

    @contextlib.contextmanager
    def close_at_end(self) -> Iterator[None]:
        """Deliver what is left of the journal at the block's end; an exception is the run's
        status in MLflow."""
        try:
            yield
        except BaseException as error:
            if "journal" in vars(self) and not self.finished:
                self.journal.end_by(type(error), error)
            raise
        finally:
            self.close()

    def record(self) -> None:
        """Write config, commit, hashes of data and models and environment into the folder and the
        journal (first process only)."""
        facts = {
            "commit": commit(),
            "seed": str(self.seed),
            "run_folder": str(self.folder),
        } | environment()
        hashes = {f"data.{k}": v for k, v in data_hashes(self.config).items()}
        with atomic_write(self.folder / "config.yaml") as handle:
            yaml.safe_dump(
                json.loads(json.dumps(self.config, default=str)),
                handle,
                sort_keys=False,
                allow_unicode=True,
            )
        hashes |= model_identities(self.config)
        write_json(self.folder / "environment.json", facts | hashes)
        self.journal.tags(facts | hashes)
        for name, folder in data_folders(self.config).items():
            self.journal.dataset(name, content_digest(folder), str(folder))
        self.journal.artifact(self.folder / "config.yaml")
        self.journal.params(flat(content(self.config)))


class JournalLogger(Logger):
    """Lightning's way to a run's journal."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    @property
    def name(self) -> str:
        return self.journal.folder.parent.name

    @property
    def version(self) -> str:
        return self.journal.folder.name

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.journal.metrics(metrics, step or 0)

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Nothing: :meth:`Run.record` has written the whole config."""

    def finalize(self, status: str) -> None:
        self.journal.end("FAILED" if status == "failed" else "FINISHED")


def flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings flattened, with dotted keys; empty ones left out."""
    result: dict[str, Any] = {}
    for key, inner in value.items():
        if isinstance(inner, dict):
            result |= flat(inner, f"{prefix}{key}.")
        elif inner is not None:
            result[prefix + key] = inner
    return result


def steps_of(checkpoint: Path) -> int:
    return int(checkpoint.stem.split("=")[1])


def whole(checkpoint: str | Path) -> bool:
    """Whether a checkpoint is as it was written: torch writes zip files, with a CRC-32 of every
    tensor, and does not check it."""
    try:
        with zipfile.ZipFile(checkpoint) as file:
            return file.testzip() is None
    except (
        OSError,
        zipfile.BadZipFile,
        ValueError,
        RuntimeError,
        EOFError,
        zlib.error,
        struct.error,
        IndexError,
    ):
        return False  # what damaged names, sizes and flags of the archive look like


class WholeCheckpoints(TorchCheckpointIO):
    """Checkpoints written under a temporary name and renamed; the one before the newest is kept;
    loading runs no code."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        with atomic_write(path, "wb") as handle:
            torch.save(checkpoint, handle)

    def remove_checkpoint(self, path: Any) -> None:
        """Lightning asks for this once a newer checkpoint is there: the one before that goes, this
        one stays as a second chance."""
        path = Path(path)
        if not path.stem.startswith("step="):
            super().remove_checkpoint(path)
            return
        for other in path.parent.glob("step=*.ckpt"):
            if steps_of(other) < steps_of(path):
                other.unlink()

    def load_checkpoint(
        self, path: Any, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        if not whole(path):
            raise InputError(
                f"{path}: not a complete checkpoint. Delete it; the run resumes from the one before"
                " or the start."
            )
        try:
            return torch.load(path, map_location=map_location or "cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            raise InputError(
                f"{path}: holds more than tensors and plain values, which is not loaded. Delete it."
            ) from error


class Checkpoints(ModelCheckpoint):
    """Checkpoints behind what their step records: a run that is killed in between would resume
    without it."""

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any, **kwargs: Any) -> None:
        # again by Lightning, afterwards: a journal contains each step once
        trainer._logger_connector.update_train_step_metrics()
        super().on_train_batch_end(trainer, *args, **kwargs)


class StepSeed(pl.Callback):
    """Random numbers as a function of (seed, step, process): a resumed run draws what the
    uninterrupted one would."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        torch.manual_seed(self.seed)  # new layers start alike, whatever was done before

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        key = digest(
            [
                self.seed,
                trainer.global_step,
                batch_idx % trainer.accumulate_grad_batches,
                trainer.global_rank,
            ]
        )
        torch.manual_seed(int(key[:15], 16))
