"""A reranker trained on what a linker finds for a linking task's training mentions, and both
scored.

    kepl rerank NCBI-EL --model sapbert [--split dev --start minilm --seed 1 --mirror FOLDER ...]

The linker finds candidates of every training mention, in a dictionary that does not contain the
training mentions; mentions of a twentieth of the documents are held out. A mention none of whose
candidates is right teaches NIL. The reranker starts from the linker's own encoder, or another one;
every fold has its own.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.linking import evaluate as scoring
from benchmarks.options import Protocol
from benchmarks.results import Result, model_of
from core.artifact import has_manifest, read_manifest
from core.files import InputError, digest
from core.settings import given_options
from core.tracking import ROOT, folder_name, runs_folder
from datamodules.options import Files
from datamodules.reranker import Sample, save_samples
from datamodules.tasks.linking import linking_task
from experiments.linkers import train_export
from experiments.machine import Machine
from experiments.names import encoder
from inference.load import Linkable, linkable_of
from inference.options import LinkerOptions, Work, check_uses
from inference.reranker import CrossEncoder, Reranked, reranking_of, sample_of

LOG = logging.getLogger(__name__)
CONFIG = ROOT / "experiments" / "reranker" / "train.yaml"
HELD_OUT = 0.05  #: share of the documents whose mentions validate


def samples_of(
    linker: Linkable, fold: scoring.Prepared, work: Work | None = None
) -> dict[str, list[Sample]]:
    """{train, held_out: samples} of a fold's mentions, composite ones left out; equal ones once.

    Held out are those of HELD_OUT of the documents, the first by a hash of their names, and of one
    at least; where all are of one document, so many mentions.
    """
    several = len({mention.document for mention in fold.mentions}) > 1
    owners = [mention.document if several else mention.id for mention in fold.mentions]
    ordered = sorted(set(owners), key=digest)
    held = frozenset(ordered[: math.ceil(HELD_OUT * len(ordered))])
    rankings = scoring.linked(linker.on(fold.names, work or Work()), fold)
    found: dict[str, dict[str, Sample]] = {"train": {}, "held_out": {}}
    rows = zip(fold.mentions, owners, fold.parts, fold.contexts, rankings, strict=True)
    for mention, owner, parts, context, ranked in rows:
        if len(parts) != 1 or not ranked[0]:
            continue
        right = frozenset().union(*(fold.names.dictionary.concepts_of(ids) for ids in mention.gold))
        sample = sample_of(parts[0], context, ranked[0], fold.names, right)
        part = "held_out" if owner in held else "train"
        found[part].setdefault(digest(sample), sample)
    return {part: list(own.values()) for part, own in found.items()}


def reranked_scores(
    name: str,
    model: str = "sapbert",
    *,
    ckpt: str | None = None,
    start: str | None = None,
    split: str | None = None,
    folds: Sequence[int] = (),
    graph: Path | None = None,
    protocol: Protocol | None = None,
    linker: LinkerOptions | None = None,
    files: Files | None = None,
    epochs: int | None = None,
    seed: int = 0,
    fresh: bool = False,
    args: str = "",
    machine: Machine | None = None,
) -> list[list[Result]]:
    """Train on every fold; the results of evaluation (benchmarks.linking.evaluate) without and with
    the reranker.

    start: encoder that the reranker starts from; None: the linker's own.  args: further words for
        LightningCLI.
    Raises InputError for a task without training mentions.
    """
    definition = linking_task(name)
    if epochs is not None and epochs < 1:
        raise InputError(f"EPOCHS={epochs}: expected a number of at least 1")
    given, linker, files = protocol or Protocol(), linker or LinkerOptions(), files or Files()
    resolved = scoring.resolved(given, definition)
    chosen = encoder(model, ckpt)
    first, own = linkable_of(chosen, linker), encoder(start).folder if start else chosen.folder
    check_uses(given_options(linker), first.uses | CrossEncoder.uses, f"a reranker of {model}")
    split, _ = scoring.folds_of(definition, files, split, folds, graph)
    loaded = scoring.training_folds(definition, files, split, sorted(set(folds)), graph)
    without = replace(resolved, train_names=False)
    tuned = []
    for number, fold in zip(sorted(set(folds)) or range(len(loaded)), loaded, strict=True):
        if not fold.splits.get("train"):
            raise InputError(f"{name}: no training mentions, which a reranker learns from")
        ready = scoring.ready(fold, "train", without)
        made_of: dict[str, Any] = {
            "linker": first.settings,
            "dictionary": ready.names.digest,
            "protocol": digest(vars(resolved)),
            "mentions": fold.manifest["sha256"]["train.jsonl"],
        }
        work = runs_folder() / "data" / "reranker" / f"{folder_name(name)}-{digest(made_of)[:12]}"
        samples = work / "samples"
        if not has_manifest(samples):
            save_samples(samples, samples_of(first, ready), name=name, **made_of)
        counts = read_manifest(samples)["counts"]
        LOG.info(f"{name}, fold {number}: " + ", ".join(f"{v:,} {k}" for k, v in counts.items()))
        settings = {"data.init_args.samples": samples, "data.init_args.tokenizer": own}
        settings |= {"model.init_args.encoder": own}
        settings |= {"trainer.max_epochs": epochs} if epochs else {}
        export = train_export(
            f"fold {number}",
            CONFIG,
            settings,
            work / f"result-{seed}.json",
            seed=seed,
            fresh=fresh,
            args=args,
            machine=machine,
        )
        tuned.append(Reranked(first, reranking_of(encoder("reranker", export), linker), "trained"))
    about = model_of(model, chosen)
    system = scoring.Tuned(about._replace(identity=tuned[0].identity), {}, tuned, seed)
    shared: dict[str, Any] = {
        "split": split,
        "folds": folds,
        "graph": graph,
        "protocol": given,
        "linker": linker,
        "files": files,
    }
    return [
        scoring.score_linker(name, model, ckpt=ckpt, **shared),
        scoring.score_linker(name, tuned=system, **shared),
    ]
