"""Fine-tune one encoder on one task with one seed.

    python -m experiments.finetune --config experiments/finetune/<TASK>.yaml
        --config experiments/common/cpu.yaml --model.init_args.encoder FOLDER
        --data.init_args.tokenizer FOLDER --data.init_args.task FOLDER ...

``make finetune`` starts this for every seed. The best epoch is chosen on the selection split; the
scored split is evaluated once, afterwards. In the run's folder: scores.json, predictions.jsonl,
outcomes.parquet, confusion.csv, loss.png and export/, with which inference.taggers uses the model
on new text:

    model.safetensors   encoder and head, under the names of transformers
    config.json         with which transformers loads it (models.standard): a flat tagger over a
                        plain encoder as a token classifier, every other model as an encoder
    tokenizer*          with the task's markers
    encoder/            what the encoder's `load` and linker read beside the weights of its BERT
                        (config, tables, names); it is an encoder's export itself, and can be
                        fine-tuned again
    its manifest        `kind`, `labels`, `markers`, `language`, `max_length`, `task`, `suite`;
                        `model`, `head` and `linker` with their settings; `request` (--request);
                        `checksums` of every file above. Paths in it are relative.

A killed run resumes from its last complete epoch.
"""

from __future__ import annotations

import json
import logging
import shutil
import sys
from pathlib import Path
from typing import Any

from experiments.run import CLI, add_sections, build_cli, fit

import pytorch_lightning as pl
from pytorch_lightning.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from pytorch_lightning.cli import LightningArgumentParser
from safetensors.torch import load_file, save_file

from core.artifact import MANIFEST
from core.arrays import save_arrays
from core.call import run_guarded
from core.spreadsheets import CsvWriter
from core.files import InputError, atomic_write, atomic_folder
from core.json_files import read_json, write_json
from core.tracking import read_inherited_tags
from experiments.card import CARD, describe
from experiments.tracking import Run, StepSeed, WholeCheckpoints, whole
from datamodules.pretrained import find_pretrained
from models.transformer_files import IN_FINE_TUNED
from models.metrics import bootstrap_interval
from models.standard import file_names, save_config, transformer_prefix

LOG = logging.getLogger(__name__)
BEST = "best"


#: sections of a config that the training itself does not read, besides those of every config
SECTIONS = {
    "grid": "settings that PROFILE=paper tries",
    "made": "how a task's splits are made",
}


class Patience(EarlyStopping):
    """Ends a training whose score on the selection split has not risen for `patience` epochs, once
    it has left 0: a tagger of few documents finds nothing for long.

    It decides at the end of a validation, before the checkpoint is written: at the end of an epoch,
    Lightning's default, a run that resumes has no score to look at.
    """

    def __init__(self, patience: int) -> None:
        super().__init__("val/score", mode="max", patience=patience, check_on_train_epoch_end=False)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """A run that was killed after it had ended trains no further."""
        trainer.should_stop = trainer.should_stop or self.wait_count >= self.patience

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Epochs at 0 are not counted."""
        if float(self.best_score) <= 0:
            self.wait_count = -1
        super().on_validation_end(trainer, pl_module)


class FinetuneCLI(CLI):
    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        super().add_arguments_to_parser(parser)
        add_sections(parser, SECTIONS)
        parser.add_argument("--task_name", type=str, help="the task's name: the MLflow experiment")
        parser.add_argument("--model_name", type=str, help="the encoder's name")
        parser.add_argument(
            "--request",
            type=dict[str, Any] | None,
            default=None,
            help=(
                "what was asked for beside task and model, for the export's manifest: {args,"
                " options, profile}; empty args and options are the default settings"
            ),
        )
        parser.add_argument(
            "--patience",
            type=int | None,
            default=None,
            help="end after so many epochs without a higher score on the selection split",
        )
        parser.add_argument(
            "--parent", type=str | None, default=None, help="MLflow run that this one belongs under"
        )

    def new_run(self, config: dict[str, Any], seed: int) -> Run:
        task, model = self.config.task_name, self.config.model_name
        name = f"{model} seed{seed}"
        return Run(
            "finetune",
            f"{task}/{model}",
            config,
            seed,
            self.config.run_folder,
            task,
            name,
            self.config.parent,
        )

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """The trainer. Raises InputError for several processes: choosing the epoch and scoring are
        one's, the others would wait."""
        # an order for every epoch
        trainer = super().instantiate_trainer(reload_dataloaders_every_n_epochs=1, **kwargs)
        if trainer.world_size > 1:
            raise InputError(
                f"--trainer.devices: {trainer.world_size} processes, but fine-tuning uses one"
                " device. Leave it out; SEEDS= with DEVICES= trains several seeds at the same"
                " time."
            )
        return trainer

    def callbacks(self) -> list[pl.Callback]:
        def keeps(name: str, **options: Any) -> ModelCheckpoint:
            return ModelCheckpoint(
                self.run.checkpoints,
                filename=name,
                save_top_k=1,
                enable_version_counter=False,
                save_on_train_epoch_end=False,
                **options,
            )

        patience = self.config.patience
        return [
            *([Patience(patience)] if patience else []),
            StepSeed(self.run.seed),
            LearningRateMonitor("step"),
            keeps(BEST, monitor="val/score", mode="max", save_weights_only=True),
            keeps("{step}", monitor=None),  # after the best: its state goes into the newest
        ]


def write_results(folder: Path, result: dict[str, Any]) -> None:
    """predictions.jsonl, outcomes.parquet (tallies) and confusion.csv of a result
    (:meth:`models.finetune.Finetuning.result`)."""
    with atomic_write(folder / "predictions.jsonl") as handle:
        for row in result["predictions"]:
            handle.write(json.dumps(row, ensure_ascii=False) + "\n")
    save_arrays(folder / "outcomes.parquet", result["tallies"])
    table = result["confusion"]
    columns = sorted(set(table).union(*table.values()))
    with atomic_write(folder / "confusion.csv") as handle:
        writer = CsvWriter(handle)
        writer.writerow(["gold \\ predicted", *columns])
        for row in columns:
            writer.writerow([row, *(table.get(row, {}).get(c, 0) for c in columns)])


def write_plot(path: Path, history: dict[str, list[tuple[int, float]]]) -> None:
    """Loss by step and the selection split's score by step, as a PNG. Text is ASCII: no font is
    asked for more."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.5), layout="constrained")
    FigureCanvasAgg(figure)
    left = figure.subplots()
    right = left.twinx()
    for axis, key, colour in ((left, "train/loss", "tab:blue"), (right, "val/score", "tab:orange")):
        if points := history.get(key):
            axis.plot(
                *zip(*points, strict=True), color=colour, marker="." if axis is right else None
            )
        axis.set_ylabel(key, color=colour)
    left.set_xlabel("step")
    with atomic_write(path, "wb") as handle:
        figure.savefig(handle, format="png", dpi=120)


#: files of a finished run that others read
OUTPUTS = (
    "scores.json",
    "outcomes.parquet",
    "predictions.jsonl",
    "export/manifest.json",
    "export/model.safetensors",
)
#: files of a source that an encoder in a fine-tuned export goes without
NOT_OF_ENCODER = (
    "model*.safetensors",
    "pytorch_model*.bin",
    "*.safetensors.index.json",
    "*.bin.index.json",
    "README.md",
)


def write_encoder(folder: Path, encoder: Any, source: str, tokenizer: Any) -> None:
    """Write into `folder` what rebuilds `encoder` there: the files of `source` without the weights
    of its BERT, which are in model.safetensors one folder up (:mod:`models.transformer_files`).
    Other weights get their fine-tuned values.
    """
    origin = Path(find_pretrained(source))
    if origin.is_dir():
        shutil.copytree(origin, folder, ignore=shutil.ignore_patterns(*NOT_OF_ENCODER))
        (folder / MANIFEST).unlink(missing_ok=True)  # it describes the files of before
    folder.mkdir(exist_ok=True)  # of a hub's model the config is all that is needed
    state = encoder.state_dict()
    for file in sorted(folder.glob("*.safetensors")):
        save_file(
            {k: state.get(k, v).detach().cpu().contiguous() for k, v in load_file(file).items()},
            file,
        )
    config = type(encoder.bert.config).from_dict(
        encoder.bert.config.to_dict() | {IN_FINE_TUNED: transformer_prefix(encoder.bert)}
    )
    config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_export(folder: Path, model: Any, data: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Write model, tokenizer and encoder into `folder`. Returns what the manifest says of them.

    config: of the run, with class_path and init_args of model and head.
    """
    names = file_names(model)
    state = {names[k]: v.detach().cpu().contiguous().clone() for k, v in model.state_dict().items()}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    save_config(model, data.labels, folder)
    data.tokenizer.save_pretrained(folder)
    write_encoder(folder / "encoder", model.encoder, model.source, data.tokenizer)
    linker = None
    if data.linker_name is not None:
        is_copy = (
            Path(data.linker_folder).resolve() == Path(find_pretrained(model.source)).resolve()
        )
        if not is_copy:
            shutil.copytree(data.linker_folder, folder / "linker")
        linker = {
            "name": data.linker_name,
            "settings": data.linker_settings,
            "folder": "encoder" if is_copy else "linker",
        }
    about = data.task.manifest
    settings = dict(config["model"]["init_args"])
    head = settings.pop("head")
    settings.pop("encoder")  # a path of this machine
    return {
        "kind": data.kind,
        "labels": data.labels,
        "markers": data.markers,
        "language": data.language,
        "max_length": data.max_length,
        "negative": about.get("negative"),
        "task": about["name"],
        "suite": about.get("suite"),
        "model": {"class_path": config["model"]["class_path"], "init_args": settings},
        "head": {"class_path": head["class_path"], "init_args": head.get("init_args") or {}},
        "linker": linker,
    }


def train(cli: FinetuneCLI) -> dict[str, Any]:
    """Train, choose the best epoch, score once. Returns what scores.json holds."""
    run, trainer, data = cli.run, cli.trainer, cli.datamodule
    if run.finished:
        check_outputs(run.folder)
        LOG.info(f"{run.folder}: already finished (FRESH=1 trains it again)")
        # what a killed process had not delivered goes along
        run.journal.tags(read_inherited_tags())
        run.close()
        return read_json(run.folder / "scores.json")  # type: ignore[no-any-return]
    run.record()
    best_file = run.checkpoints / f"{BEST}.ckpt"
    if best_file.exists() and not whole(best_file):  # its epoch cannot be had otherwise
        LOG.warning(f"{best_file}: damaged; training begins again")
        shutil.rmtree(run.checkpoints)
    newest = run.newest_checkpoint()
    if newest:
        LOG.info(f"resuming from {newest}")
    fit(trainer, cli.model, data, newest)
    if 0 < trainer.max_steps <= trainer.global_step:
        LOG.info(f"ended after {trainer.global_step:,} steps (trainer.max_steps)")
    elif trainer.current_epoch < (trainer.max_epochs or 0):
        LOG.info(
            f"ended after {trainer.current_epoch} of {trainer.max_epochs} epochs: no higher score"
            f" on {data.selected_on} for {cli.config.patience} epochs (--args '--patience 20' waits"
            " longer)"
        )
    best = WholeCheckpoints().load_checkpoint(best_file)
    cli.model.load_state_dict(best["state_dict"])
    selected = selected_result(cli, best["epoch"])
    trainer.test(cli.model, data, verbose=False)  # the only time that the scored split is read
    scores = summarise(cli, int(best["epoch"]) + 1, selected)
    record_scores(cli, scores)
    export(cli, scores)
    write_json(run.folder / "finished.json", {"steps": trainer.global_step})
    shutil.rmtree(run.checkpoints)
    run.close()
    return scores


def check_outputs(folder: Path) -> None:
    """Raise InputError where a finished run has lost a file that others read."""
    missing = [name for name in OUTPUTS if not (folder / name).is_file()]
    if missing:
        raise InputError(
            f"{folder}: a finished run without its {', '.join(missing)}. Put it back, or train the"
            " run again: --fresh (FRESH=1)"
        )


def selected_result(cli: FinetuneCLI, epoch: int) -> dict[str, Any]:
    """What the best epoch has on the selection split; measured again where another process has
    recorded it."""
    trainer, model = cli.trainer, cli.model
    if model.selected is not None and model.selected[0] == epoch:
        return model.selected[1]  # type: ignore[no-any-return]
    recorded, trainer.logger = trainer.logger, None
    trainer.validate(model, cli.datamodule, verbose=False)
    trainer.logger = recorded
    return model.result("select")  # type: ignore[no-any-return]


def summarise(cli: FinetuneCLI, epoch: int, selected: dict[str, Any]) -> dict[str, Any]:
    """What scores.json holds. epoch: the chosen one, from 1."""
    data, result = cli.datamodule, cli.model.test_result
    metric = result["metric"]
    return {
        "task": cli.config.task_name,
        "model": cli.config.model_name,
        "seed": cli.run.seed,
        "metric": metric,
        "scored_on": data.scored,
        "selected_on": data.selected_on,
        "variant": data.task.manifest.get("variant"),
        "epoch": epoch,
        "select": selected["scores"],
        "select_interval": bootstrap_interval(selected["tallies"][metric]),
        "score": result["scores"],
        "interval": bootstrap_interval(result["tallies"][metric]),
        "examples": len(result["tallies"][metric]),  # of a ranking: questions
        "mlflow_run": cli.run.journal.run_id,
    }


def record_scores(cli: FinetuneCLI, scores: dict[str, Any]) -> None:
    """Write predictions, scores and the loss plot into the run's folder and its MLflow run."""
    run, result = cli.run, cli.model.test_result
    write_results(run.folder, result)
    run.journal.metrics(
        {f"{scores['scored_on']}/{name}": value for name, value in result["scores"].items()}
    )
    history = {key: run.journal.history(key) for key in ("train/loss", "val/score")}
    write_plot(run.folder / "loss.png", history)
    write_json(run.folder / "scores.json", scores)
    for name in ("scores.json", "predictions.jsonl", "confusion.csv", "loss.png"):
        run.journal.artifact(run.folder / name)


def export(cli: FinetuneCLI, scores: dict[str, Any]) -> None:
    """Write the model with its card, which says what was scored."""
    run, data, metric = cli.run, cli.datamodule, scores["metric"]
    official = f", variant {scores['variant']} (not the official set)" if scores["variant"] else ""
    low, high = scores["interval"]
    about = (
        f"{scores['model']} fine-tuned on {scores['task']}{official}, {data.kind}; the epoch"
        f" ({scores['epoch']}) was chosen on {data.selected_on}, {data.scored} was evaluated"
        f" once: {metric} {scores['score'][metric]:.4f}, 95 % interval {low:.4f} to {high:.4f} over"
        f" {scores['examples']:,} examples."
    )
    measures = {f"{data.scored}/{k}": v for k, v in scores["score"].items()}
    request = {"args": "", "options": {}, "profile": None} | (cli.config.request or {})
    with atomic_folder(run.folder / "export") as folder:
        exported = write_export(folder, cli.model, data, run.config)
        more = exported | {"request": request, "fine_tuned": scores}
        describe(folder, run, f"{scores['model']} on {scores['task']}", about, measures, more)
    run.journal.artifact(run.folder / "export" / CARD)


def main() -> int:
    """Fine-tune what the command line says."""
    cli = build_cli(FinetuneCLI)
    with cli.run.close_at_end():
        train(cli)
    return 0


if __name__ == "__main__":
    sys.exit(run_guarded(lambda words: main(), sys.argv[1:]))
