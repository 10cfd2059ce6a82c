"""Every paper's pipeline, small profile, on fake sources with tiny models: from the graph to a
fine-tuned model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import yaml

from core.json_files import read_json
from core.tracking import ROOT
from experiments.machine import Inputs, Machine
from experiments.pretrain import commands, papers, pipeline_of
from experiments.stages import Stage
from kg.build.sources import cmekg as chinese
from tests.fakes import bert, cmekg, hpo, tasks

__all__ = ["Step", "papers", "steps", "write_sources"]

CPU = [
    "--config",
    "experiments/common/cpu.yaml",
    "--trainer.enable_progress_bar",
    "false",
    "--trainer.log_every_n_steps",
    "1",
]
SHORT = ["--trainer.max_steps", "6", "--checkpoint_every", "2", "--data.init_args.batch_size", "8"]
NEW = [
    "--model.init_args.hidden",
    "32",
    "--model.init_args.layers",
    "1",
    "--model.init_args.intermediate",
    "32",
]
#: what makes a stage small that trains no language model
SMALL = {
    "graph embed": [
        "--dim",
        "8",
        "--relation_dim",
        "8",
        "--epochs",
        "4",
        "--held_out",
        "20",
        "--checkpoint_seconds",
        "0",
    ],
}
#: initial checkpoints; the other papers train from nothing
ENCODERS = {"kebiolm": "en", "sapbert": "en"} | dict.fromkeys(
    ("smedbert", "embert", "ernie", "knowbert"), "zh"
)
#: which of a pipeline's data fine-tuning on names reads again
PAIRED = {"sapbert": "pairs", "genbioel": "samples"}


class Step:
    """A stage: its title, and the words behind `python -m`, which may depend on what earlier ones
    have written."""

    def __init__(
        self, title: str, words: Sequence[str] | Callable[[], list[str]], training: bool = False
    ) -> None:
        self.title, self._words, self.training = title, words, training

    @property
    def divisible(self) -> bool:
        """Whether several processes may share it: fine-tuning on a task uses one."""
        return self.words[0] == "experiments.run"

    @property
    def words(self) -> list[str]:
        return list(self._words() if callable(self._words) else self._words)


def write_sources(folder: Path) -> None:
    """Fake releases of the graphs, initial checkpoints and a task: what every pipeline reads and
    none changes."""
    hpo.write(folder / "hpo", terms=60)
    (folder / "cmekg").mkdir()
    file = cmekg.write(folder / "cmekg", drugs=24)
    said = "".join(
        [
            *chinese.read(file).names["name"].to_pylist(),
            *(text for _, _, text in chinese.texts(file)),
        ]
    )
    bert.write(folder / "en", [], layers=2, length=512)
    bert.write(
        folder / "zh",
        [],
        layers=2,
        length=512,
        characters="".join(sorted({c for c in said if c > "\x7f"})),
    )
    tasks.write(folder / "task", "ner")


def _fitted(stage: Stage, sources: Path) -> list[str]:
    """The words of a stage behind `python -m`, with the fake source in place of an installed
    package's, and a small size."""
    more = SMALL.get(stage.run, [])
    if stage.run.startswith("graph build") or stage.run == "graph texts":
        chinese = "cmekg" in [*stage.run.split(), *stage.options]
        more = ["--path", str(sources / ("cmekg/cmekg.pkl" if chinese else "hpo"))]
    elif stage.run == "data held-out":
        more = ["--hpo", str(sources / "hpo")]
    return [*stage.words[1:], *more]


def steps(paper: str, work: Path, sources: Path) -> list[Step]:
    """The stages of the paper's first variant in `work`, then a fine-tuning of what it has
    trained."""
    variant = next(iter(pipeline_of(paper)["variants"]))
    start = str(sources / ENCODERS[paper]) if paper in ENCODERS else None
    arguments = " ".join([*CPU[2:], *SHORT, *([] if start else NEW)])
    stages = commands(
        paper,
        "small",
        work,
        Inputs(encoder=start),
        Machine(workers=2),
        variants=[variant],
        args=arguments,
    )
    found = [Step(s.title, _fitted(s, sources), bool(s.result)) for s in stages]

    def fine_tuning() -> list[str]:
        export = read_json(work / f"result-{variant}.json")["export"]
        model = [
            "--model.init_args.encoder",
            export,
            "--run_folder",
            str(work.parent / "runs" / "fine-tuned"),
        ]
        if data := PAIRED.get(paper):
            tokenizer = start or str(work / "tokenizer")
            lengths = [
                "--data.init_args.max_length",
                "96",
                "--data.init_args.max_mention",
                "48",
                "--data.init_args.max_name",
                "64",
            ]
            return [
                "experiments.run",
                "--config",
                f"experiments/{paper}/finetune.yaml",
                *CPU,
                *SHORT,
                *model,
                "--data.init_args.tokenizer",
                tokenizer,
                f"--data.init_args.{data}",
                str(work / data),
                *(lengths if paper == "genbioel" else []),
            ]
        encoder = yaml.safe_load((ROOT / "experiments" / paper / "encoder.yaml").read_text())
        linker = [
            "--data.init_args.linker",
            encoder.get("linker"),
            "--data.init_args.linker_folder",
            export,
        ]
        return [
            "experiments.finetune",
            "--config",
            "experiments/finetune/NCBI.yaml",
            *CPU,
            *model,
            "--task_name",
            "NCBI",
            "--model_name",
            paper,
            "--model.init_args.load",
            encoder["load"],
            "--data.init_args.tokenizer",
            export,
            "--data.init_args.task",
            str(sources / "task"),
            "--data.init_args.batch_size",
            "8",
            "--trainer.max_epochs",
            "3",
            *(linker if "linker" in encoder else []),
        ]

    return [*found, Step("Fine-tuning", fine_tuning, training=True)]
