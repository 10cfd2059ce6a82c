"""Commands that score: fine-tuning, linking, probing, comparisons and tables.

A command is a record: its fields are the options, its docstring is their help, `run` returns the
results and `show` prints them. Importing them loads no model library.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from benchmarks.options import (
    Evaluation,
    Folds,
    LinkerTuning,
    Probing,
    Reranking,
    Retrieval,
    check_task,
)
from core.files import InputError
from datamodules.options import Files
from datamodules.tasks.gold import Gold
from experiments.machine import Machine, SeedTraining
from inference.options import LinkerOptions

if TYPE_CHECKING:
    from benchmarks.linking.ends import Annotated
    from benchmarks.peers import Run
    from benchmarks.results import Result

Profile = Literal["small", "paper"]


@dataclass(frozen=True, kw_only=True)
class Finetune(SeedTraining):
    """Fine-tune an encoder on a task and score it, or a linker on a linking task (see the end).

    Examples:
      make finetune TASK=cMedQANER
      kepl finetune NCBI --model minilm --seeds 3 --mirror downloads/
      kepl finetune AAP-EL --model sapbert --folds 0 --mirror downloads/
      kepl finetune --data my_ner --name mine --model minilm
    """

    def run(self) -> list[Result]:
        from benchmarks.finetune import score_seeds

        return score_seeds(self.name_task())

    def name_task(self) -> SeedTraining:
        """The same with the task that --data and --name make. Raises InputError without a task, or
        with a task and a name."""
        from datamodules.tasks.own import save_own_task, warn_of_changes

        if bool(self.task) == bool(self.name):
            raise InputError(
                f"TASK={self.task} and --name {self.name}: expected one of the two"
                if self.task
                else "TASK is missing: a task (kepl tasks), or --data with --name for one's own"
            )
        if not self.name:
            if self.data_format is not None:
                raise InputError(
                    f"--data-format {self.data_format}: is of one's own annotated texts, --data"
                    " with --name; a published task has a format of its own. Leave it out."
                )
            if self.files.data is None and self.task:
                warn_of_changes(self.task)
            return self
        if self.files.data is None:
            raise InputError(f"--name {self.name}: expected --data, the files of one's own data")
        from datamodules.tasks.prepare import all_tasks

        reserved = list(all_tasks())
        save_own_task(self.name, self.files.data, reserved, self.fresh, self.data_format)
        return replace(self, task=self.name, name=None, data_format=None, files=Files())

    def show(self, results: list[Result]) -> str:
        from benchmarks.finetune import format_scores

        return format_scores(results)


@dataclass(frozen=True, kw_only=True)
class FinetuneLinker(LinkerTuning):
    """Fine-tune a linker on a linking task, or on one's own annotated texts, and score it, without
    and with dictionary back-off.

    Examples:
      kepl finetune AAP-EL --model sapbert --folds 0 --mirror downloads/
      kepl finetune --linking my.pubtator --graph graph --model sapbert
    """

    def run(self) -> list[list[Result]]:
        from benchmarks.linking.tuning import finetuned_scores

        return finetuned_scores(self)

    def show(self, results: list[list[Result]]) -> str:
        return show_linkers(results)


@dataclass(frozen=True, kw_only=True)
class Rerank(Reranking):
    """Train a cross-encoder that ranks a linker's candidates again, on a linking task's training
    mentions, and score it.

    Examples:
      make rerank TASK=NCBI-EL MODEL=sapbert SPLIT=dev MIRROR=downloads/
      kepl rerank NCBI-EL --model sapbert --start minilm --seed 1 --mirror downloads/
    """

    def run(self) -> list[list[Result]]:
        from benchmarks.linking.rerank import reranked_scores

        return reranked_scores(self)

    def show(self, results: list[list[Result]]) -> str:
        return show_linkers(results)


@dataclass(frozen=True, kw_only=True)
class Evaluate(Evaluation):
    """Score a linker on a linking task, beside exact match and TF-IDF; on an end-to-end task (-E2E)
    a chain, detection included.

    Examples:
      make evaluate TASK=HPO-EL MODEL=sapbert
      make evaluate TASK=NCBI-E2E CHAIN="NCBI/minilm > sapbert" MIRROR=downloads/
      kepl evaluate NCBI-EL --model minilm --pooling mean --mirror downloads/
      kepl evaluate --gold annotated/ --graph graph --chain "dictionary > sapbert"
      kepl evaluate --gold annotated/ --graph graph --model sapbert
      kepl evaluate NCBI-EL --model sapbert --target-precision 0.95
    """

    def run(self) -> list[Result]:
        check_task(self.task, self.annotated)
        if self.target_precision is None:
            return self._score()
        from benchmarks.linking.precision import SPLITS, check_precision

        check_precision(self)
        if self.annotated.gold:
            return replace(self, target_precision=None).run()
        dev, test = (
            replace(self, target_precision=None, part=replace(self.part, split=split)).run()
            for split in SPLITS
        )
        return [dev[-1], *test]

    def _score(self) -> list[Result]:
        if self.reads_texts:
            from benchmarks.linking.ends import score_chain

            return [score_chain(self)]
        from benchmarks.linking.evaluate import score_linker

        return score_linker(self)

    @property
    def reads_texts(self) -> bool:
        """Whether mentions are found, too: of an end-to-end task, and of one's own texts unless a
        model is named, which links given mentions."""
        from datamodules.tasks.linking import END_TO_END

        return self.task in END_TO_END or (bool(self.annotated.gold) and self.model is None)

    def show(self, results: list[Result]) -> str:
        if self.target_precision is not None:
            return self._show_precision(self.target_precision, results)
        if self.reads_texts:
            from benchmarks.linking.ends import format_chain_score

            return format_chain_score(results[-1])
        return show_linkers([results])

    def _show_precision(self, precision: float, results: list[Result]) -> str:
        from benchmarks.linking.precision import format_precision, halves, read_answers

        answers = read_answers(results[-1])
        if self.annotated.gold:
            dev, test = halves(answers)
            lines = replace(self, target_precision=None).show(results)
        else:
            dev, test = read_answers(results[0]), answers
            lines = replace(self, target_precision=None).show(results[1:])
        return f"{lines}\n\n{format_precision(precision, dev, test)}"


def show_linkers(results: Sequence[list[Result]]) -> str:
    """Scores of linkers, each beside both baselines."""
    from benchmarks.linking.evaluate import format_scores

    return "\n".join(format_scores(result) for result in results)


@dataclass(frozen=True, kw_only=True)
class Peers:
    """Chains of this project beside other people's linkers on an end-to-end task: scores, speed,
    memory; one table.

    What is missing is trained or installed first: taggers and encoders of the chains, peers in
    environments of their own.

    Args:
        task: End-to-end task (-E2E). Default: with --gold, one's own annotated texts.
        chains: Our chains, separated by semicolons. Default: the dictionary; a tagger with names,
            and with SapBERT.
        peers: gilda, phrases (spaCy's PhraseMatcher), scispacy, scispacy-tagger, medcat. Default:
            all.
        split: Split to score. Default: test, or dev where there is no test.
        graph: Folder of a graph that replaces the task's dictionary.
        threshold: Least score of a linked mention of our chains. Default: every mention that has a
            candidate is linked.

    Examples:
      make peers TASK=NCBI-E2E MIRROR=downloads/
      make peers TASK=BC5CDR-disease-E2E SPLIT=dev MIRROR=downloads/
      kepl peers NCBI-E2E --chains "dictionary; NCBI/minilm > sapbert" --peers gilda phrases
      kepl peers --gold annotated/ --graph graph --peers gilda phrases
    """

    task: str = ""
    chains: str = ""
    peers: Sequence[str] = ()
    split: Literal["dev", "test"] | None = None
    graph: Path | None = None
    threshold: float | None = None
    linker: LinkerOptions = LinkerOptions()
    files: Files = Files()
    annotated: Gold = Gold()

    def run(self) -> tuple[Annotated, list[Run]]:
        from benchmarks.peers import compare_peers

        check_task(self.task, self.annotated)
        return compare_peers(
            self.task,
            [chain.strip() for chain in self.chains.split(";") if chain.strip()],
            self.peers,
            split=self.split,
            graph=self.graph,
            nil=self.threshold,
            linker=self.linker,
            files=self.files,
            annotated=self.annotated,
        )

    def show(self, results: tuple[Annotated, list[Run]]) -> str:
        from benchmarks.peers import format_comparison

        return format_comparison(*results)


@dataclass(frozen=True, kw_only=True)
class Compare:
    """Every system that was scored on a task, best first, with paired tests.

    Args:
        task: Task, linking task, or synonyms. Default: with --gold, one's own annotated texts.
        profile: Profile of fine-tuning.
        base: System that all others are compared with. Default: the best.
        samples: Folder of the samples of synonym retrieval. Default: those of the newest score.
        split: Split of a linking task. Default: that of the newest score.
        page: HTML file to write as well, with the intervals drawn.
        graph: Folder of the graph whose entities are gold.
        chains: Chains to score on the annotated texts first. Default: those that were scored.

    Examples:
      make compare TASK=cMedQANER
      kepl compare NCBI-EL --base tfidf --page compare.html
      kepl compare --gold annotated/ --graph graph --chains dictionary "dictionary > sapbert"
    """

    task: str = ""
    profile: Profile = "small"
    base: str | None = None
    samples: Path | None = None
    split: Literal["dev", "test"] | None = None
    page: Path | None = None
    graph: Path | None = None
    chains: Sequence[str] = ()
    annotated: Gold = Gold()

    def run(self) -> str:
        from benchmarks import compare as comparing

        check_task(self.task, self.annotated)
        if not self.annotated.gold:
            comparisons = comparing.find_comparisons(
                self.task, self.profile, self.samples, self.split
            )
        elif self.chains:
            part = Folds(graph=self.graph)
            evaluations = [
                Evaluation(annotated=self.annotated, part=part, chain=chain)
                for chain in self.chains
            ]
            comparisons = [comparing.compare_chains(evaluations)]
        else:
            name, advice = self.annotated.name(self.graph), self.annotated.advice(self.graph)
            comparisons = [comparing.compare_linkers(name, advice=advice)]
        text = comparing.format_comparisons(comparisons, self.base)
        if self.page:
            text += f"\npage: {comparing.write_page(comparisons, self.page, self.base)}"
        return text


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Score against the share of the training documents, of several systems: a table and a figure.
    What is missing is trained.

    Args:
        task: Fine-tuning task.
        models: Encoders; beside a paper's, names of its variants (plain, marks, shuffled) mean its
            runs.
        shares: Shares of the training documents, drawn by the seed.
        seeds: How many seeds, or which ones.
        epochs: Passes over all training documents; a share is passed over 1 / its root as often.
            Default: as the task's YAML says.
        base: System that the others are compared with. Default: the best.
        out: PNG file of the figure. Default: curves/TASK.png in the folder of runs.

    Examples:
      make curve TASK=cMedQANER MODELS="plain marks shuffled smedbert" MIRROR=downloads/
      kepl curve NCBI --models mlm kebiolm --shares 0.1 1 --seeds 5 --mirror downloads/
    """

    task: str
    models: Sequence[str]
    shares: Sequence[float] = (0.03, 0.1, 0.3, 1.0)
    seeds: str = "3"
    epochs: int | None = None
    base: str | None = None
    out: Path | None = None
    files: Files = Files()
    machine: Machine = Machine()

    def run(self) -> str:
        from benchmarks.curves import draw_curve, format_curve, score_curve
        from core.tracking import folder_name, runs_folder

        training = SeedTraining(
            task=self.task,
            seeds=self.seeds,
            epochs=self.epochs,
            files=self.files,
            machine=self.machine,
        )
        points = score_curve(training, self.models, self.shares)
        path = self.out or runs_folder() / "curves" / f"{folder_name(self.task)}.png"
        draw_curve(points, path)
        return f"{format_curve(points, self.base)}\nFigure: {path}"


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """A paper's primary comparison with its controls, from nothing: what knowledge is worth.

    Args:
        paper: Paper whose comparison experiments/PAPER/knowledge.yaml states.
        plan: Only say what is ahead.

    Examples:
      make knowledge PAPER=smedbert MIRROR=downloads/
      kepl knowledge smedbert --plan
    """

    paper: str
    plan: bool = False
    files: Files = Files()
    machine: Machine = Machine()

    def run(self) -> str:
        from benchmarks.knowledge import compare_knowledge

        return compare_knowledge(self.paper, self.plan, self.files, self.machine)


@dataclass(frozen=True, kw_only=True)
class Cases:
    """What a scored linker or chain gets wrong, most frequent first; all cases go to cases.csv.

    Args:
        task: Linking task, or end-to-end task. Default: with --gold, one's own annotated texts.
        of: Label or folder of a result. Default: the newest.
        split: Split of the result.
        top: Cases to print.
        folds: Folds of the result.
        graph: Folder of a graph that was the dictionary.

    Examples:
      make cases TASK=NCBI-EL MIRROR=downloads/
      kepl cases --gold annotated/ --graph graph --of "dictionary > sapbert"
    """

    task: str = ""
    of: str | None = None
    split: Literal["dev", "test"] | None = None
    top: int = 20
    folds: Sequence[int] = ()
    graph: Path | None = None
    files: Files = Files()
    annotated: Gold = Gold()

    def run(self) -> str:
        from benchmarks.linking.cases import scored_run, write_cases

        check_task(self.task, self.annotated)
        part = Folds(split=self.split, folds=list(self.folds), graph=self.graph)
        return write_cases(
            scored_run(self.task, self.of, part, self.files, self.annotated), self.top
        )


@dataclass(frozen=True, kw_only=True)
class Synonyms(Retrieval):
    """Which of 20 names means the same (SMedBERT, Table 1), by an encoder or by word vectors."""

    def run(self) -> Result:
        from benchmarks.synonyms import score_retrieval

        return score_retrieval(self)

    def show(self, result: Result) -> str:
        from benchmarks.synonyms import format_retrieval

        return format_retrieval(result)


@dataclass(frozen=True, kw_only=True)
class Probe(Probing):
    """Fill-in queries of a graph's triples, answered by a masked language model (KeBioLM, Tables 5
    to 7).
    """

    def run(self) -> Result:
        from benchmarks.probing import score_probing

        return score_probing(self)

    def show(self, result: Result) -> str:
        from benchmarks.probing import format_probing

        return format_probing(result)


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Annotated mentions of NER and relation sets that a graph has a name for.

    Args:
        task: Tasks. Default: all of NER and relations.
        graph: hpo, or a folder of a graph (default hpo).
        model: A KeBioLM whose entities are counted, instead of a graph's.
        ckpt: Folder of one exact run of it.
    """

    task: Sequence[str] = ()
    graph: str | None = None
    model: str | None = None
    ckpt: str | None = None
    files: Files = Files()

    def run(self) -> str:
        from benchmarks.overlap import format_overlaps, overlaps, save_overlaps

        counts = overlaps(self.task, self.graph, self.model, self.ckpt, self.files)
        save_overlaps(counts)
        return format_overlaps(counts)


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Sizes of every available split, beside the papers'.

    Args:
        task: Tasks. Default: all.
    """

    task: Sequence[str] = ()
    files: Files = Files()

    def run(self) -> str:
        from benchmarks.counts import count_rows, counts_table
        from datamodules.sources import fetch_dataset, place
        from datamodules.tasks.prepare import all_tasks, find_task

        chosen = [find_task(name) for name in self.task] or list(all_tasks().values())
        rows = count_rows(lambda d: fetch_dataset(d.dataset, place(), self.files.mirror), chosen)
        return counts_table(rows)
