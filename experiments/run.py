"""The one training entry.

    python -m experiments.run --config experiments/kebiolm/pretrain.yaml --config
    experiments/common/cpu.yaml ...

Configs are laid over each other, later ones winning. The first config's folder names the paper. A
run killed at any time resumes from its newest checkpoint when the same command is given again; a
finished run says so. Metrics on held-out data before and after training go to MLflow and to
``start.json`` and ``end.json`` in the run's folder.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import yaml
from pytorch_lightning.callbacks import LearningRateMonitor, TQDMProgressBar
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI
from pytorch_lightning.plugins.environments import SLURMEnvironment
from pytorch_lightning.utilities.exceptions import SIGTERMException

from core.call import run_guarded
from core.commands import SAFE_PATH
from core.files import InputError, atomic_folder
from core.journal import run_id_in
from core.json_files import read_json, write_json
from core.logs import quiet_libraries
from core.tensors import check_finite
from core.tracking import read_inherited_tags, tracking_uri
from experiments.card import CARD, describe
from experiments.tracking import (
    Checkpoints,
    Run,
    StepSeed,
    WholeCheckpoints,
    first_process,
    started_from_outside,
)

LOG = logging.getLogger(__name__)


def name_run(arguments: list[str]) -> tuple[str, str]:
    """(paper, stem) from the --config arguments: the folder of the first, the stem of the last
    there that starts with its stem."""
    configs = [Path(b) for a, b in pairwise(arguments) if a == "--config"]
    configs += [Path(a.split("=", 1)[1]) for a in arguments if a.startswith("--config=")]
    if not configs:
        raise InputError("no --config given; choose one from experiments/<paper>/*.yaml")
    first = configs[0]
    same = [c.stem for c in configs if c.parent == first.parent and c.stem.startswith(first.stem)]
    return first.resolve().parent.name, same[-1]


#: sections of a config that the training itself does not read
SECTIONS = {
    "paper": "where each number of a config comes from",
    "epochs": "of tasks, by profile; who starts runs reads it",
    "small": "settings of PROFILE=small; likewise",
    "tasks": "settings by profile and task; likewise",
    "finetune": "what makes its data; likewise",
}


def add_sections(parser: LightningArgumentParser, sections: Mapping[str, str]) -> None:
    """Add sections of a config, {name: what it is}, to those that are known."""
    for name, about in sections.items():
        parser.add_argument(f"--{name}", type=dict | None, default=None, help=about)


class CLI(LightningCLI):
    run: Run

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.set_defaults({"trainer.enable_model_summary": False})
        add_sections(parser, SECTIONS)
        parser.add_argument(
            "--checkpoint_every", type=int, default=1000, help="optimiser steps between checkpoints"
        )
        parser.add_argument(
            "--fresh",
            type=bool,
            default=False,
            help="start again even if the run is finished or begun",
        )
        parser.add_argument(
            "--run_folder",
            type=str | None,
            default=None,
            help="instead of runs/<paper>/<stem>/<hash>/seed<k>",
        )
        parser.add_argument(
            "--result",
            type=str | None,
            default=None,
            help="a JSON file to write the run's folder and scores to",
        )

    def before_instantiate_classes(self) -> None:
        seed = self.config.seed_everything
        if "seed" in self.config.data.init_args:
            self.config.data.init_args.seed = seed
        plain = yaml.safe_load(self.parser.dump(self.config, skip_validation=True))
        self.run = self.new_run(plain, seed)
        if first_process():
            self.run.lock()
            if self.config.fresh:
                if started_from_outside():
                    raise InputError(
                        "--fresh under torchrun or srun: other processes may read"
                        f" {self.run.folder} while it is cleared. Remove the folder, then start"
                        " without --fresh."
                    )
                self.run.clear()

    def new_run(self, config: dict[str, Any], seed: int) -> Run:
        """The run that the arguments describe."""
        return Run(*name_run(sys.argv[1:]), config, seed, self.config.run_folder)

    def callbacks(self) -> list[pl.Callback]:
        """What every run of this entry needs."""
        run = self.run
        return [
            StepSeed(run.seed),
            LearningRateMonitor("step"),
            Checkpoints(
                run.checkpoints,
                filename="{step}",
                every_n_train_steps=self.config.checkpoint_every,
                save_top_k=1,
                monitor=None,
                save_on_train_epoch_end=False,
                enable_version_counter=False,
            ),
        ]

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        run = self.run
        if run.finished:
            return super().instantiate_trainer(logger=False, **kwargs)
        callbacks = self.callbacks()
        configured = self.config_init["trainer"].pop("callbacks", None) or []
        if self.config_init["trainer"].get("enable_progress_bar") is not False:
            callbacks.append(TQDMProgressBar(refresh_rate=10))
        return super().instantiate_trainer(
            logger=run.logger(),
            callbacks=callbacks + configured,
            plugins=[WholeCheckpoints(), *cluster_plugins()],
            default_root_dir=str(run.folder),
            use_distributed_sampler=False,
            num_sanity_val_steps=0,
            **kwargs,
        )


def cluster_plugins() -> list[SLURMEnvironment]:
    """Under SLURM, its environment without Lightning's own requeueing.

    Lightning's writes a checkpoint into no run's folder, and what starts there next resumes from
    it; a job that SIGTERM has ended resumes from its run's newest checkpoint (docs/cluster.md).
    """
    return [SLURMEnvironment(auto_requeue=False)] if SLURMEnvironment.detect() else []


def scores(trainer: pl.Trainer, cli: CLI, file: Path) -> dict[str, float]:
    """Metrics on held-out data now; written to `file`, or read from it when it is there.

    They come under the run's own step: Lightning's counts of steps and epochs behind the last one
    are not those of a run that was killed there.
    """
    if file.is_file():
        return read_json(file)
    recorded, trainer.logger = trainer.logger, None
    results = {
        k: float(v)
        for k, v in trainer.validate(cli.model, cli.datamodule, verbose=False)[0].items()
    }
    trainer.logger = recorded
    if trainer.is_global_zero:
        cli.run.journal.metrics(results, trainer.global_step)
        write_json(file, results)
    trainer.strategy.barrier("scores")
    return results


def fit(trainer: pl.Trainer, model: pl.LightningModule, data: Any, checkpoint: Path | None) -> None:
    """Train from a checkpoint, or from the start. Ends the process, with the step, where a signal
    stopped the training. Raises InputError for a training that ran away."""
    stopped = 0
    try:
        trainer.fit(
            model, data, ckpt_path=str(checkpoint) if checkpoint else None, weights_only=True
        )
    except SIGTERMException:  # Lightning would end the process with 0
        stopped = 143
    except SystemExit:  # Lightning's, with 1
        if not trainer.interrupted:
            raise
    if trainer.interrupted and not stopped:
        stopped = 130
    if stopped:
        reason = "SIGTERM" if stopped == 143 else "an interrupt"
        if trainer.is_global_zero:
            LOG.error(
                f"training stopped by {reason} at step {trainer.global_step:,}; the same command"
                " resumes"
            )
        sys.exit(stopped)
    check_finite(f"the training up to step {trainer.global_step:,}", model.named_parameters())


def train(cli: CLI) -> dict[str, Any]:
    """Train what `cli` describes, from its last checkpoint. Returns the run's name, folder, MLflow
    run and scores."""
    run, trainer = cli.run, cli.trainer
    if not run.finished:
        if trainer.is_global_zero:
            run.record()
        scores(trainer, cli, run.folder / "start.json")
        checkpoint = run.newest_checkpoint()
        if checkpoint and trainer.is_global_zero:
            LOG.info(f"resuming from {checkpoint}")
        fit(trainer, cli.model, cli.datamodule, checkpoint)
        last = run.checkpoints / f"step={trainer.global_step}.ckpt"
        if not trainer.strategy.broadcast(
            last.is_file()
        ):  # one answer for all processes: saving waits for each of them
            trainer.save_checkpoint(last)
        end = scores(trainer, cli, run.folder / "end.json")
        if trainer.is_global_zero:
            with atomic_folder(run.folder / "export") as folder:
                cli.model.export(folder)
                if hasattr(cli.datamodule, "export"):
                    cli.datamodule.export(folder)
                about = (
                    f"`{type(cli.model).__name__}`, {trainer.global_step:,} steps; scores are of"
                    " held-out data at the end."
                )
                describe(folder, run, f"{run.paper}/{run.stem}", about, end)
            run.journal.artifact(run.folder / "export" / CARD)
            write_json(run.folder / "finished.json", {"steps": trainer.global_step})
        trainer.strategy.barrier("finished")
    else:
        LOG.info(f"{run.folder}: already finished (FRESH=1 trains it again)")
    if first_process():
        run.journal.tags(read_inherited_tags())  # of a run that was there already, too
        run.close()
    return {
        "model": f"{run.paper}/{run.stem}",
        "run": f"{run.checksum}-seed{run.seed}",
        "folder": str(run.folder),
        "checkpoints": str(run.checkpoints),
        "export": str(run.folder / "export"),
        "mlflow_run": run_id_in(run.folder),
        "tracking_uri": tracking_uri(),
        "start": read_json(run.folder / "start.json"),
        "end": read_json(run.folder / "end.json"),
        "steps": read_json(run.folder / "finished.json")["steps"],
    }


def build_cli(cli: type[CLI]) -> Any:
    """`cli` from the command line's arguments; what the run says goes to standard error."""
    quiet_libraries()
    torch.set_float32_matmul_precision("high")
    return cli(
        save_config_callback=None,
        subclass_mode_model=True,
        subclass_mode_data=True,
        run=False,
        seed_everything_default=0,
        parser_kwargs={"default_env": False},
    )


def main() -> int:
    """Train what the command line says, and print where it is."""
    cli = build_cli(CLI)
    with cli.run.close_at_end():
        result = train(cli)
    if first_process():
        tracked = result["mlflow_run"] or "not delivered yet (kepl sync)"
        print(
            f"checkpoints {result['checkpoints']}\nexport      {result['export']}\nMLflow run "
            f" {tracked}"
        )
        if cli.config.result:
            write_json(cli.config.result, result)
    return 0


if __name__ == "__main__":
    os.environ |= SAFE_PATH  # Lightning starts further processes of this training itself
    sys.exit(run_guarded(lambda words: main(), sys.argv[1:]))
