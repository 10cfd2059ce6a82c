"""One training run on disk and in MLflow: its folder, its lock, its checkpoints, what it records."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import yaml
from pytorch_lightning.loggers import Logger, MLFlowLogger
from pytorch_lightning.loggers.logger import DummyLogger
from pytorch_lightning.plugins.io import TorchCheckpointIO

from core.files import PARTIAL, InputError, digest, read_json, sha256, write_json, written
from core.tracking import commit, environment, inherited, runs_folder, store_uri, tracking_uri, use_experiment

#: Settings, by their whole path, that say where a run computes, what it is started by or where its numbers come from, and not
#: what is trained: they do not change a run's folder. What makes the data is in the hash as the manifest of its folder.
MACHINE = frozenset(
    "config seed_everything checkpoint_every fresh result run_folder request paper finetune tasks epochs.paper made.seed "
    "data.init_args.num_workers data.init_args.seed".split()
) | frozenset(
    f"trainer.{setting}"
    for setting in "accelerator devices num_nodes strategy accumulate_grad_batches logger callbacks plugins profiler barebones "
    "enable_progress_bar enable_model_summary log_every_n_steps default_root_dir sync_batchnorm use_distributed_sampler "
    "num_sanity_val_steps".split()
)


def content(value: Any, path: str = "") -> Any:
    """`value` with machine settings left out and every folder that has a manifest replaced by the manifest's digest.

    path: of `value` in the config, with dots.
    """
    if isinstance(value, dict):
        below = f"{path}." if path else ""
        return {k: content(v, f"{below}{k}") for k, v in value.items() if f"{below}{k}" not in MACHINE}
    if isinstance(value, list):
        return [content(v, f"{path}[]") for v in value]
    if isinstance(value, str) and (Path(value) / "manifest.json").is_file():
        return sha256(Path(value) / "manifest.json")
    return value


def data_folders(value: Any, key: str = "") -> dict[str, Path]:
    """{setting: folder} of every setting that names a folder with a manifest."""
    if isinstance(value, dict):
        return {k: v for name, inner in value.items() for k, v in data_folders(inner, name).items()}
    return {key: Path(value)} if isinstance(value, str) and (Path(value) / "manifest.json").is_file() else {}


def data_hashes(value: Any) -> dict[str, str]:
    """{setting: digest of its manifest} for every setting that names a folder with a manifest."""
    return {key: sha256(folder / "manifest.json") for key, folder in data_folders(value).items()}


def first_process() -> bool:
    """Whether this is process 0 of a distributed run, also before the process group exists.

    torchrun sets RANK; processes that Lightning starts have LOCAL_RANK and NODE_RANK; those of srun SLURM_PROCID alone, which
    stands in the environment of the two others, too, where they run inside a SLURM job.
    """
    for names in (("RANK",), ("LOCAL_RANK", "NODE_RANK")):
        if any(name in os.environ for name in names):
            return all(int(os.environ.get(name, "0")) == 0 for name in names)
    return int(os.environ.get("SLURM_PROCID", "0")) == 0


def started_from_outside() -> bool:
    """Whether torchrun or srun started several processes of this run, none of which waits for another."""
    if "RANK" in os.environ:
        return int(os.environ.get("WORLD_SIZE", "1")) > 1
    return "LOCAL_RANK" not in os.environ and int(os.environ.get("SLURM_NTASKS", "1")) > 1


class Run:
    """``runs/<paper>/<stem>/<config hash>/seed<k>/``: checkpoints, metrics at start and end, export.

    experiment, name  in MLflow; without them the paper, and stem and seed
    parent            id of the MLflow run that this one belongs under
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
        self.tags = inherited() | ({"mlflow.parentRunId": parent} if parent else {})
        self.folder = (
            Path(folder) if folder else runs_folder() / paper / stem / digest(content(config))[:12] / f"seed{seed}"
        )
        self.checkpoints = self.folder / "checkpoints"

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
        for left in self.checkpoints.glob(f"*{PARTIAL}"):  # by a process that was killed while it wrote
            left.unlink()

    def clear(self) -> None:
        """Remove what an earlier run left in the folder."""
        for stale in ("checkpoints", "export"):
            shutil.rmtree(self.folder / stale, ignore_errors=True)
        for file in self.folder.glob("*"):
            if file.is_file() and file.name != "lock":
                file.unlink()

    def newest_checkpoint(self) -> Path | None:
        """The complete checkpoint with the most steps."""
        found = sorted(self.checkpoints.glob("step=*.ckpt"), key=lambda p: int(p.stem.split("=")[1]))
        return found[-1] if found else None

    def logger(self) -> Logger:
        """The run's MLflow logger; a resumed run continues its MLflow run. Other processes than the first get one that drops all.

        Two processes that open a new sqlite store at the same time both make its tables, and one of them fails.
        """
        if not first_process():
            return DummyLogger()
        known = self.folder / "mlflow.json"
        run_id = read_json(known)["run_id"] if known.is_file() else None
        use_experiment(self.experiment)
        logger = MLFlowLogger(
            experiment_name=self.experiment,
            run_name=self.name,
            tracking_uri=tracking_uri(),
            run_id=run_id,
            tags=self.tags or None,
        )
        if run_id is None:
            write_json(known, {"run_id": logger.run_id, "tracking_uri": store_uri()})
        return logger

    def record(self, logger: MLFlowLogger) -> None:
        """Write config, commit, data hashes and environment into the folder and the MLflow run (first process only)."""
        facts = {"commit": commit(), "seed": str(self.seed), "run_folder": str(self.folder)} | environment()
        hashes = {f"data.{k}": v for k, v in data_hashes(self.config).items()}
        with written(self.folder / "config.yaml") as handle:
            yaml.safe_dump(
                json.loads(json.dumps(self.config, default=str)), handle, sort_keys=False, allow_unicode=True
            )
        write_json(self.folder / "environment.json", facts | hashes)
        client, run_id = logger.experiment, logger.run_id
        assert run_id is not None
        for key, value in (facts | hashes | self.tags).items():
            client.set_tag(run_id, key, value)
        client.log_artifact(run_id, str(self.folder / "config.yaml"))
        known = client.get_run(run_id).data.params
        for key, value in flat(content(self.config)).items():
            if key not in known:
                client.log_param(run_id, key, str(value)[:500])


def flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as one level with dotted keys; empty ones left out."""
    result: dict[str, Any] = {}
    for key, inner in value.items():
        if isinstance(inner, dict):
            result |= flat(inner, f"{prefix}{key}.")
        elif inner is not None:
            result[prefix + key] = inner
    return result


class WholeCheckpoints(TorchCheckpointIO):
    """Checkpoints written under a temporary name and renamed; loading runs no code."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        with written(path, "wb") as handle:
            torch.save(checkpoint, handle)

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        if not zipfile.is_zipfile(path):  # torch writes zip files, whose end says that they are whole
            raise InputError(
                f"{path}: not a complete checkpoint. Delete it; the run then resumes from the one before, "
                "or from the start."
            )
        return torch.load(path, map_location=map_location or "cpu", weights_only=True)


class StepSeed(pl.Callback):
    """Random numbers as a function of (seed, step, process): a resumed run draws what the uninterrupted one would."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        torch.manual_seed(self.seed)  # new layers start alike, whatever was done before

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        key = digest([self.seed, trainer.global_step, batch_idx % trainer.accumulate_grad_batches, trainer.global_rank])
        torch.manual_seed(int(key[:15], 16))
