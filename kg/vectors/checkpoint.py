"""The state of a training on disk, from which a stopped one resumes."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from pykeen.training import TrainingLoop
from safetensors.torch import load_file, save_file
from torch import Tensor

from core.files import atomic_write
from core.json_files import digest, read_json, write_json
from core.reading import sha256

LOG = logging.getLogger(__name__)
STATE = ("state.safetensors", "state.json")  #: files of a checkpoint


class Checkpoint:
    """The state of a training in a file: parameters, Adam's moments, random numbers, and the epoch
    that is done.

    PyKEEN's own checkpoints are pickles, which run code when they are loaded; these are tensors.

    file      state.safetensors
    settings  of the training: a state of others, or a damaged one, is not gone on from
    seconds   between two states
    """

    def __init__(self, file: Path, settings: Mapping[str, Any], seconds: float) -> None:
        self.file, self.settings, self.seconds = file, digest(settings), seconds
        self.facts: dict[str, Any] = {}
        self._saved = time.monotonic()
        manifest = (
            read_json(file.with_suffix(".json")) if file.with_suffix(".json").is_file() else {}
        )
        if manifest.get("settings") == self.settings:
            if file.is_file() and sha256(file) == manifest.get("sha256"):
                self.facts = manifest
            else:
                LOG.warning(f"{file}: damaged; training begins again")

    def stage(self) -> str:
        """The model whose training the state is of; "" without one."""
        return str(self.facts.get("stage", ""))

    def save(
        self, stage: str, epoch: int, loop: TrainingLoop[Any], more: Mapping[str, Any]
    ) -> None:
        """Write the state after `epoch`, if the last one is old enough. more: what the rest of the
        command needs to know."""
        if time.monotonic() - self._saved < self.seconds:
            return
        tensors = {f"model.{k}": v for k, v in loop.model.state_dict().items()}
        for number, state in loop.optimizer.state_dict()["state"].items():
            tensors |= {f"adam.{number}.{k}": torch.as_tensor(v) for k, v in state.items()}
        tensors["random.cpu"] = torch.get_rng_state()
        if torch.cuda.is_available():
            tensors["random.cuda"] = torch.cuda.get_rng_state()
        # by its name: what safetensors writes to a handle is in memory first
        with atomic_write(self.file, "wb") as handle:
            save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, handle.name)
        facts = {
            "settings": self.settings,
            "stage": stage,
            "epoch": epoch,
            "sha256": sha256(self.file),
            "more": dict(more),
        }
        write_json(self.file.with_suffix(".json"), facts)
        self._saved = time.monotonic()

    def load(self, loop: TrainingLoop[Any]) -> tuple[int, dict[str, Tensor]]:
        """Put the state into the loop's model and optimizer. Returns (epochs done, states of the
        random numbers)."""
        tensors = load_file(self.file)
        loop.model.load_state_dict(
            {k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")}
        )
        moments: dict[int, dict[str, Any]] = {}
        for key, value in tensors.items():
            if key.startswith("adam."):
                _, number, name = key.split(".")
                # sparse Adam's step
                moments.setdefault(int(number), {})[name] = (
                    value if value.is_floating_point() else int(value)
                )
        loop.optimizer.load_state_dict(
            {"state": moments, "param_groups": loop.optimizer.state_dict()["param_groups"]}
        )
        return int(self.facts["epoch"]), {
            k: v for k, v in tensors.items() if k.startswith("random.")
        }
