"""Commands of graphs, of data, of servers, and of what is published; and `kepl pretrain`, which may
rehearse.

A command is a record (its fields are the options, `run` does it) or a function; its docstring is
the help of its options.
"""

from __future__ import annotations

import json as jsons
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.options import Choices
from core.files import InputError
from core.settings import given_options
from datamodules.options import Files
from experiments.machine import Inputs, Machine
from inference.options import LinkerOptions, Matching


@dataclass(frozen=True, kw_only=True)
class Pretrain:
    """Pre-train a paper's model: graph, embeddings, linked corpus, training; scores on held-out
    text.

    Args:
        paper: Paper, zh (a small Chinese BERT to start from), or kg/<graph>_<model>.
        profile: Settings and data for a laptop (small), or the paper's (paper); SapBERT has
            ontologies, too.
        seed: Seed of training.
        fresh: Train again what is finished.
        variants: Train these variants of the pipeline (ablations among them) instead of its usual
            ones.
        args: Further words for LightningCLI, such as "--trainer.max_steps 100".
        plan: Only list the stages.
        rehearse: Run all stages of PROFILE=paper on synthetic inputs, so many steps of training,
            and print what each takes.
        scale: Share of the paper's data that a rehearsal writes, above 0 and at most 1 (0.001
            without it).

    Examples:
      make pretrain-kebiolm
      kepl pretrain kebiolm --variants mlm wem --seed 1
      kepl pretrain kebiolm --graph my_graph --corpus my_texts.jsonl
      kepl pretrain kebiolm --profile paper --rehearse 2 --scale 0.001
    """

    paper: str
    profile: str = "small"
    seed: int = 0
    fresh: bool = False
    variants: Sequence[str] = ()
    args: str = ""
    plan: bool = False
    rehearse: int | None = None
    scale: float | None = None
    inputs: Inputs = Inputs()
    machine: Machine = Machine()

    def run(self) -> str:
        if self.rehearse is not None or self.scale is not None:
            from benchmarks.perf.rehearse import run_rehearsal

            return run_rehearsal(
                self.paper,
                self.profile,
                self.rehearse,
                self.scale,
                self.inputs,
                self.machine,
                self.seed,
                self.variants,
                self.args,
                self.plan,
            )
        from benchmarks.pretraining import save_pretrainings
        from experiments.pretrain import pretrain

        trained = pretrain(
            self.paper,
            self.profile,
            self.inputs,
            self.machine,
            self.seed,
            self.fresh,
            self.variants,
            self.args,
            self.plan,
        )
        save_pretrainings(trained)
        return trained.report


@dataclass(frozen=True, kw_only=True)
class Serve:
    r"""Serve a chain over HTTP, with a page to try it on. KEPL_TOKEN in the environment is asked of
    every client.

    Args:
        graph: Folder of a graph (kepl graph build).
        chain: What detects mentions, finds candidates and ranks them again; see the end.
        model: Fine-tuned tagger (TASK/encoder or a folder) that answers /predict.
        nil: Least score of a linked mention.
        top: Candidates that are kept for each mention.
        host: Address; the default is this machine alone.
        port: Port; 0 chooses a free one and prints it.
        max_bytes: Limit of a request's body.
        max_seconds: Limit of a request, from its first byte to its answer.
        max_connections: Limit of open connections.
        names: Host names, besides the machine's own, that clients may use; those of a proxy, for
            example.
        types: Only mentions of these types. Default: all.
        negation: Say of each mention whether the text denies it, and whether it is of a relative,
            of the past or supposed, by ConText's English rules.

    Examples:
      kepl serve --graph graph
      KEPL_TOKEN=secret kepl serve --graph graph --chain "dictionary > sapbert" --port 8080
      curl -s 127.0.0.1:8000/link -H 'Content-Type: application/json' \
        -d '{"texts": ["Marfan syndrome"]}'
    """

    graph: Path
    chain: str = "dictionary"
    model: str | None = None
    nil: float | None = None
    top: int = 5
    host: str = "127.0.0.1"
    port: int = 8000
    max_bytes: int = 1 << 20
    max_seconds: float = 30.0
    max_connections: int = 1000
    names: Sequence[str] = ()
    types: Sequence[str] = ()
    negation: bool = False
    linker: LinkerOptions = LinkerOptions()
    matching: Matching = Matching()

    def run(self) -> None:
        from app.serve import Limits, start
        from inference.chain import Pipeline
        from inference.load import load_entity_tagger

        if self.max_bytes < 1 or self.max_seconds <= 0 or self.max_connections < 1:
            raise InputError("--max-bytes, --max-seconds, --max-connections: expected more than 0")
        tagger = load_entity_tagger(self.model) if self.model else None
        pipeline = Pipeline(
            self.graph,
            self.chain,
            self.nil,
            self.top,
            None,
            self.types,
            self.negation,
            self.matching,
            **given_options(self.linker),
        )
        start(
            pipeline,
            self.host,
            self.port,
            Limits(bytes=self.max_bytes, seconds=self.max_seconds),
            self.max_connections,
            self.names,
            tagger=tagger,
        )


@dataclass(frozen=True, kw_only=True)
class Demo:
    """A page with linked text in one command: builds an available graph, and serves a chain over
    it.

    Args:
        what: hpo (phenotypes, with diseases and genes; from an installed package), hpo-zh (the same
            with Chinese names; MIRROR=), medic (diseases; MIRROR= or a download) or cmekg (Chinese;
            from an installed package).
        chain: What detects mentions, finds candidates and ranks them again; see the end.
        host: Address; the default is this machine alone.
        port: Port; 0 chooses a free one and prints it.

    Examples:
      make demo
      kepl demo cmekg --port 8080
      kepl demo medic --chain "NCBI/minilm > sapbert" --mirror downloads/
    """

    what: Literal["hpo", "hpo-zh", "medic", "cmekg"] = "hpo"
    chain: str = "dictionary"
    host: str = "127.0.0.1"
    port: int = 8000
    linker: LinkerOptions = LinkerOptions()
    files: Files = Files()

    def run(self) -> None:
        from app.demos import DEMOS, demo_graph
        from app.serve import start
        from inference.chain import Pipeline

        pipeline = Pipeline(
            demo_graph(self.what, self.files),
            self.chain,
            negation=DEMOS[self.what].english,
            **given_options(self.linker),
        )
        start(pipeline, self.host, self.port, examples=DEMOS[self.what].examples)


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A grid of runs, or a search by Optuna, under one parent in MLflow; a killed sweep is resumed
    by the same command.

    Args:
        config: YAML file of the sweep (benchmarks/sweeps has one).
        at_once: Runs at the same time. Default: as the file says.
        fresh: Run again what is done.
    """

    config: Path
    at_once: int | None = None
    fresh: bool = False
    check_words: Callable[[list[str]], object] = list

    def run(self) -> int:
        from benchmarks.sweep import run_sweep
        from core.commands import python_command

        return run_sweep(
            self.config, python_command("-m", "app.cli"), self.at_once, self.fresh, self.check_words
        )


def data(task: str, *, files: Files) -> None:
    """Fetch and verify a task's files, or prepare the task from a folder (DATA=).

    Args:
        task: Task, linking task or data set.
    """
    from datamodules.tasks.fetch import fetch_files

    print(fetch_files(task, files))


def tasks() -> None:
    """List the tasks: fine-tuning, one's own, linking, and both ends of linking."""
    from datamodules.tasks.definition import own_names
    from datamodules.tasks.linking import END_TO_END, linking_tasks
    from datamodules.tasks.prepare import all_tasks, find_task

    for task in (*all_tasks().values(), *map(find_task, own_names())):
        also = f" (also {', '.join(task.aliases)})" if task.aliases else ""
        print(f"{task.name:<24}{task.suite:<14}{task.kind:<10}{task.metric}{also}")
    for name in linking_tasks():
        print(f"{name:<24}{'linking':<14}{'linking':<10}acc@1")
    for name in END_TO_END:
        print(f"{name:<24}{'linking':<14}{'text':<10}f1")


def publish(
    runs: Sequence[Path],
    group: str,
    against: Sequence[Path] = (),
    machine: str | None = None,
    json: bool = False,
) -> None:
    """Write records of finished runs into docs/results: a number for each system, a mean over its
    seeds.

    Args:
        runs: Run folders, or folders of them (runs/finetune/NCBI).
        group: File of docs/results that the records are added to.
        against: Run folders of one system; the paired difference from it is published, too.
        machine: Where the runs were made. Default: this machine's cores.
        json: Print the records as JSON lines.

    Examples:
      kepl publish runs/finetune/NCBI --group ner
    """
    from dataclasses import asdict

    from benchmarks.publish import publish

    file, records = publish(runs, group, against, machine)
    for record in records:
        print(
            jsons.dumps(asdict(record), ensure_ascii=False)
            if json
            else f"{{{group}/{record.id}}}  {record.part(None)}"
        )
    if not json:
        print(
            f"written to {file}; put the names in braces into a table of {file.parent / 'tables'},"
            " then: make results"
        )


def results(check: bool = False) -> int:
    """Write the results tables and figures of the README and docs from the records in docs/results.

    Args:
        check: Write nothing; name each table and figure that differs and each number that is in no
            record, and exit 1.

    Examples:
      make results
      make results-check
    """
    from benchmarks.curve_figure import figure_problems, write_figures
    from benchmarks.records import count_complete, problems, write_tables

    if not check:
        changed = [*write_tables(), *write_figures()]
        print("\n".join(map(str, changed)) or "every table and figure is as its records say")
    faults = problems() + figure_problems()
    print("\n".join(faults) or "results-check: every table and number is in the records")
    print(count_complete())
    return 1 if faults else 0


def dashboard(port: int = 5000) -> int:
    """Compare runs in MLflow, on this machine alone.

    Args:
        port: Port on 127.0.0.1.
    """
    from app.dashboard import serve

    return serve(port)


def sync(folder: Path | None = None) -> None:
    """Deliver to MLflow what runs recorded while it did not answer, and what its store has lost.

    Args:
        folder: Folder of runs. Default: that of all runs ($KEPL_RUNS).

    Examples:
      kepl sync
      kepl sync graphs/transe.training
    """
    from core.journal import forget_lost, sync

    if folder is not None and not folder.is_dir():
        raise InputError(f"{folder}: no such folder. Expected one of runs.")
    forget_lost(folder)
    runs, lines, busy = sync(folder)
    going = f"; {busy} still running, which deliver by themselves" if busy else ""
    print(f"{lines:,} records of {runs} runs delivered{going}")


def figures(paper: str) -> None:
    """A paper's figures; `kepl figures PAPER --help` has the settings of each.

    Args:
        paper: Paper whose figures they are.
    """


def table(
    paper: str,
    table: str,
    out: Path | None = None,
    run: bool = False,
    seeds: str | None = None,
    fresh: bool = False,
    *,
    choices: Choices,
    files: Files,
) -> str:
    """A paper's table, reported beside measured; as Markdown and CSV.

    Args:
        paper: Paper whose table it is.
        table: Number of the table.
        out: Folder for the files. Default: runs/tables.
        run: First make the results that are missing; each prints how long it takes.
        seeds: Seeds of the missing fine-tunings.
        fresh: Replace existing files that this command did not write.
    """
    from benchmarks.tables import write_table

    text, paths = write_table(paper, table, choices, files, out, run, seeds, fresh)
    return f"{text}\n\nwritten to {paths[0]} and {paths[1].name}"
