"""Groups of options that commands share, as typed records. Importing them loads nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from core.files import InputError
from datamodules.options import Files
from datamodules.tasks.gold import Gold, TrainingTexts
from experiments.machine import Machine
from inference.options import LinkerOptions, Matching, Pooling, Work

Profile = Literal["small", "paper"]


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """Only scores of one protocol are compared.

    Args:
        normalise: Rules for names, joined by + (kg.search.names). Default: BioSyn's.
        abbreviations: Expand abbreviations that a mention's text defines (Schwartz-Hearst).
            Default: as the task says.
        train_names: Add the mentions of the training split to the dictionary.
        composite: A string of a composite mention is right with any of its concepts (union), or
            each needs its own.
        nil: Mentions whose concept the dictionary lacks are wrong, or left out. Default: as the
            task says.
        names: Names of each concept in the dictionary: all, the shortest, or one drawn at random
            (always the same).
    """

    normalise: str | None = None
    abbreviations: bool | None = None
    train_names: bool = False
    composite: Literal["union", "each"] = "union"
    nil: Literal["wrong", "left-out"] | None = None
    names: Literal["all", "shortest", "sample"] = "all"


Split = Literal["dev", "test"]  #: the parts of a linking task that are scored


@dataclass(frozen=True, kw_only=True)
class Folds:
    """What of a linking task is scored, with which dictionary.

    Args:
        split: Split to score. Default: test, or dev where there is no test.
        folds: Folds of a task that has several. Default: all.
        graph: Folder of a graph that replaces the task's dictionary.
    """

    split: Split | None = None
    folds: Sequence[int] = ()
    graph: Path | None = None

    @property
    def numbers(self) -> list[int]:
        """The folds in order, each once; none for all."""
        return sorted(set(self.folds))


@dataclass(frozen=True, kw_only=True)
class Choices:
    """Which results a table shows, where there are several.

    Args:
        split: Split of linking tasks. Default: as the table says.
        folds: Folds of linking tasks that have several. Default: all.
        profile: Profile of fine-tuning. Default: the only one there is.
        samples: Folder of the samples of synonym retrieval.
        graph: Graph that is probed or counted: hpo, medlama, or a folder.
        limit: Probing with so many queries.
        seed: Probing with queries drawn by this seed.
        method: Probing by this method.
        masks: Probing with answers of up to so many tokens.
        beam: Probing with so many beams.
        model: A KeBioLM whose entities are counted, instead of a graph's.
        ckpt: One exact run of it.
    """

    split: Split | None = None
    folds: Sequence[int] = ()
    profile: Literal["small", "paper"] | None = None
    samples: Path | None = None
    graph: str | None = None
    limit: int | None = None
    seed: int | None = None
    method: Literal["beam", "confidence"] | None = None
    masks: int | None = None
    beam: int | None = None
    model: str | None = None
    ckpt: str | None = None


@dataclass(frozen=True, kw_only=True)
class LinkerTuning:
    """A linker's fine-tuning on the training mentions of a linking task.

    Args:
        task: Linking task. Default: with --linking, one's own annotated texts.
        model: Linker to start from: a paper's run, or an encoder of its kind.
        ckpt: Folder of one exact run.
        profile: Settings for a laptop (small), or the paper's.
        epochs: Passes over the training data. Default: as the paper's YAML says.
        seed: Seed of training.
        fresh: Train again what is finished.
        args: Further words for LightningCLI.
    """

    task: str = ""
    model: str = "sapbert"
    ckpt: str | None = None
    profile: Profile = "small"
    epochs: int | None = None
    seed: int = 0
    fresh: bool = False
    args: str = ""
    texts: TrainingTexts = TrainingTexts()
    #: those of the paper's finetune.yaml, by name
    options: Mapping[str, Any] = field(default_factory=dict)
    protocol: Protocol = Protocol()
    linker: LinkerOptions = LinkerOptions()
    files: Files = Files()
    machine: Machine = Machine()
    part: Folds = Folds()


@dataclass(frozen=True, kw_only=True)
class Reranking:
    """A cross-encoder's training over the candidates of a linker.

    Args:
        task: Linking task with training mentions.
        model: Linker that finds the candidates: a paper's run, or an encoder.
        ckpt: Folder of one exact run of it.
        start: Encoder that the reranker starts from. Default: the linker's own.
        epochs: Passes over the training mentions. Default: as experiments/reranker/train.yaml says.
        seed: Seed of training.
        fresh: Train again what is finished.
        args: Further words for LightningCLI.
    """

    task: str
    model: str = "sapbert"
    ckpt: str | None = None
    start: str | None = None
    epochs: int | None = None
    seed: int = 0
    fresh: bool = False
    args: str = ""
    protocol: Protocol = Protocol()
    linker: LinkerOptions = LinkerOptions()
    files: Files = Files()
    machine: Machine = Machine()
    part: Folds = Folds()


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """A linker, or a chain, that is scored on a task.

    Args:
        task: Linking task. Default: with --gold, one's own annotated texts.
        model: exact, tfidf, or an encoder: a paper, paper/config, minilm, a folder or a hub name.
            Default: tfidf.
        ckpt: Folder of one exact run of the encoder.
        backoff: An exact match comes before what the model finds.
        rerank: Model that ranks the linker's candidates again: reranker, its folder, or another
            linker.
        chain: Of an end-to-end task: what detects mentions, finds candidates and ranks them again.
            Default: dictionary.
        threshold: Of an end-to-end task: least score of a linked mention. Default: every mention
            that has a candidate is linked.
        target_precision: Find the threshold at which this precision is reached, on dev or on half
            of one's own texts, and apply it to test or the other half.
    """

    task: str = ""
    model: str | None = None
    ckpt: str | None = None
    backoff: bool = False
    rerank: str | None = None
    chain: str | None = None
    threshold: float | None = None
    target_precision: float | None = None
    protocol: Protocol = Protocol()
    linker: LinkerOptions = LinkerOptions()
    files: Files = Files()
    work: Work = Work()
    matching: Matching = Matching()
    part: Folds = Folds()
    annotated: Gold = Gold()


@dataclass(frozen=True, kw_only=True)
class Probing:
    """Fill-in queries that a masked language model answers.

    Args:
        model: KeBioLM, or any masked language model.
        graph: hpo, medlama (its files come from --mirror), or a folder of a graph or of queries.
        ckpt: Folder of one exact run.
        method: Search of answers with several tokens.
        masks: Answers of 1 to so many tokens.
        beam: Beams of the search (default 5).
        templates: Templates of MedLAMA's queries. Default: relation.
        special_tokens: Whether special and unused tokens may be guessed.
        limit: So many of the queries, drawn by --seed. Default: all.
        seed: Seed of the queries drawn.
        size: Tokens of a batch.
        device: cpu or cuda.
    """

    model: str = "kebiolm"
    graph: str = "hpo"
    ckpt: str | None = None
    method: Literal["beam", "confidence"] = "beam"
    masks: int = 10
    beam: int | None = None
    templates: Literal["relation", "default_prompt", "human_prompt"] | None = None
    special_tokens: bool = False
    limit: int | None = None
    seed: int = 0
    size: int = 8192
    device: str = "cpu"
    files: Files = Files()


@dataclass(frozen=True, kw_only=True)
class Retrieval:
    """A choice among 20 names, by the vectors of a model.

    Args:
        model: Encoder, or word vectors: sgns:char, sgns:word, glove:char, glove:word.
        ckpt: Folder of one exact run of the encoder.
        samples: Folder of `kepl data synonyms build`. Default: that of make pretrain-smedbert.
        linked_text: Text that word vectors are trained on and whose mentions are counted. Default:
            beside the samples.
        frequent: Dataset-3 has the pairs of which one side is mentioned at most so often.
        seed: Seed of word vectors.
        pooling: Vector of a name. Default: text.
        similarity: Similarity of two vectors.
        max_length: Tokens of a name (default 25).
        precision: Arithmetic of the model.
        knowledge: Whether an encoder that reads linked mentions gets them.
        device: cpu or cuda.
    """

    model: str = "zh"
    ckpt: str | None = None
    samples: Path | None = None
    linked_text: Path | None = None
    frequent: int = 200
    seed: int = 0
    pooling: Pooling | None = None
    similarity: Literal["cosine", "dot"] = "cosine"
    max_length: int | None = None
    precision: Literal["fp32", "bf16"] = "fp32"
    knowledge: bool = True
    device: str = "cpu"

    @property
    def linker(self) -> LinkerOptions:
        return LinkerOptions(
            pooling=self.pooling,
            similarity=self.similarity,
            max_length=self.max_length,
            precision=self.precision,
            knowledge=self.knowledge,
            device=self.device,
        )


def check_epochs(epochs: int | None) -> None:
    """Raise InputError for a number of epochs below 1."""
    if epochs is not None and epochs < 1:
        raise InputError(f"EPOCHS={epochs}: expected a number of at least 1")


def check_task(task: str, annotated: Gold, option: str = "--gold") -> None:
    """Raise InputError unless either a task or one's own annotated texts are given."""
    if bool(task) == bool(annotated.gold):
        raise InputError(
            f"TASK is missing: a task (kepl tasks), or {option} with one's own annotated texts"
            if not task
            else f"TASK={task} and {option}: expected one of the two"
        )
