"""Where a run computes, what it is made of, and what is trained, as options of commands. Importing
it loads nothing else."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from datamodules.options import Files


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where a run computes.

    Args:
        devices: GPUs of each machine, or processes on a CPU. Default: one process; in PROFILE=paper
            all GPUs.
        nodes: Machines that train together.
        precision: Arithmetic, as Lightning names it (32-true, bf16-mixed). Default: that of the
            profile.
        workers: Processes that link and prepare text. Default: one a core.
    """

    devices: int | None = None
    nodes: int | None = None
    precision: str | None = None
    workers: int | None = None


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a pipeline starts from, instead of what it would build or fetch.

    Args:
        graph: Folder of a graph, or of several that are merged.
        umls: META folder of a UMLS release.
        corpus: Files with text.
        encoder: Encoder to start from: a packaged name, a folder, or a hub name.
        linker: What links the text, with its own options: dictionary, or "scispacy --pipeline
            NAME".
        mirror: Folders or archives that hold the files of data sets.
    """

    graph: Sequence[str] = ()
    umls: Path | None = None
    corpus: Sequence[str] = ()
    encoder: str | None = None
    linker: Sequence[str] = ()
    mirror: Sequence[str] = ()

    SEVERAL: ClassVar[tuple[str, ...]] = ("GRAPH", "CORPUS", "LINKER", "MIRROR")
    PATHS: ClassVar[tuple[str, ...]] = ("GRAPH", "UMLS", "CORPUS", "MIRROR")

    def list_inputs(self) -> dict[str, list[str]]:
        """{NAME: its words} of the inputs that are given. Paths are absolute: the stages of a
        pipeline do not run in the caller's folder."""
        words = {
            "UMLS": [str(self.umls)] if self.umls else [],
            "ENCODER": [self.encoder] if self.encoder else [],
        }
        words |= {name: list(getattr(self, name.lower())) for name in self.SEVERAL}
        if self.encoder and Path(self.encoder).is_dir():
            from datamodules.pretrained import PACKAGED  # loads a model library

            if self.encoder not in PACKAGED:
                words["ENCODER"] = [str(Path(self.encoder).absolute())]
        for name in self.PATHS:
            words[name] = [str(Path(word).absolute()) for word in words[name]]
        return {name: typed for name, typed in words.items() if typed}

    def choice(self) -> dict[str, str]:
        """What decides a pipeline's folder: all inputs but where files are looked for."""
        return {
            name: shlex.join(words)
            for name, words in self.list_inputs().items()
            if name != "MIRROR"
        }


@dataclass(frozen=True, kw_only=True)
class SeedTraining:
    """Fine-tuning of an encoder on a task, a run for each seed.

    Args:
        task: Task (kepl tasks lists them).
        name: Name of one's own task, made of the files in --data.
        data_format: Format of one's own annotated texts. Default: by the files' names.
        model: Encoder. Default: minilm for English, zh (a small Chinese BERT) for Chinese; it is
            pre-trained first where that is missing.
        seeds: How many seeds (3), or which ones (0,7). Default: 1; of the paper's profile 5.
        ckpt: Folder of one exact run of the encoder.
        profile: Settings for a laptop (small), or the paper's, with its grid.
        epochs: Passes over the training data. Default: as the task's YAML says.
        lr: Learning rate. Default: as the task's YAML says, for the encoder's width.
        share: Part of the training documents to train on, drawn by the seed.
        at_once: Seeds that train at the same time. Default: one a GPU, or one a core.
        fresh: Train again what is finished.
        args: Further words for LightningCLI.
    """

    task: str = ""
    name: str | None = None
    data_format: str | None = None
    model: str | None = None
    seeds: str | None = None
    ckpt: str | None = None
    profile: Literal["small", "paper"] = "small"
    epochs: int | None = None
    lr: float | None = None
    share: float = 1.0
    at_once: int | None = None
    fresh: bool = False
    args: str = ""
    #: options that only some encoders have (`options` of encoder.yaml), by name
    options: Mapping[str, Any] = field(default_factory=dict)
    files: Files = Files()
    machine: Machine = Machine()
