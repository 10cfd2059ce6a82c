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
from dataclasses import replace
from typing import Any

from benchmarks.linking import folds as prepare
from benchmarks.linking.evaluate import score_linker
from benchmarks.linking.scores import right_concepts
from benchmarks.options import Evaluation, Reranking, check_epochs
from benchmarks.results import Result, model_of
from core.artifact import has_manifest, read_manifest
from core.files import InputError
from core.json_files import digest
from core.settings import given_options
from core.tracking import ROOT, folder_name, runs_folder
from datamodules.reranker import Sample, save_samples
from datamodules.tasks.linking import linking_task
from experiments.linkers import train_export
from experiments.names import encoder
from inference.load import Linkable, linkable_of
from inference.options import Work, check_uses
from inference.reranker import CrossEncoder, Reranked, reranking_of, sample_of

LOG = logging.getLogger(__name__)
CONFIG = ROOT / "experiments" / "reranker" / "train.yaml"
HELD_OUT = 0.05  #: share of the documents whose mentions validate


def samples_of(linker: Linkable, fold: prepare.Prepared) -> dict[str, list[Sample]]:
    """{train, held_out: samples} of a fold's mentions, composite ones left out; equal ones once.

    Held out are those of HELD_OUT of the documents, the first by a hash of their names, and of one
    at least; where all are of one document, so many mentions.
    """
    several = len({mention.document for mention in fold.mentions}) > 1
    owners = [mention.document if several else mention.id for mention in fold.mentions]
    ordered = sorted(set(owners), key=digest)
    held_out = frozenset(ordered[: math.ceil(HELD_OUT * len(ordered))])
    rankings = prepare.link_fold(linker.on(fold.names, Work()), fold)
    samples: dict[str, dict[str, Sample]] = {"train": {}, "held_out": {}}
    rows = zip(fold.mentions, owners, fold.parts, fold.contexts, rankings, strict=True)
    for mention, owner, parts, context, ranked in rows:
        if len(parts) != 1 or not ranked[0]:
            continue
        right = right_concepts(mention, fold.names.dictionary)
        sample = sample_of(parts[0], context, ranked[0], fold.names, right)
        part = "held_out" if owner in held_out else "train"
        samples[part].setdefault(digest(sample), sample)
    return {part: list(unique.values()) for part, unique in samples.items()}


def reranked_scores(request: Reranking) -> list[list[Result]]:
    """Train on every fold; the results of evaluation (benchmarks.linking.evaluate) without and with
    the reranker. Raises InputError for a task without training mentions."""
    name, part = request.task, request.part
    definition = linking_task(name)
    check_epochs(request.epochs)
    resolved = prepare.resolve_protocol(request.protocol, definition)
    chosen = encoder(request.model, request.ckpt)
    first = linkable_of(chosen, request.linker)
    start = encoder(request.start).folder if request.start else chosen.folder
    uses = first.uses | CrossEncoder.uses
    check_uses(given_options(request.linker), uses, f"a reranker of {request.model}")
    split, _ = prepare.folds_of(definition, request.files, part)
    loaded = prepare.training_folds(definition, request.files, split, part)
    without = replace(resolved, train_names=False)
    tuned = []
    for number, fold in zip(part.numbers or range(len(loaded)), loaded, strict=True):
        if not fold.splits.get("train"):
            raise InputError(f"{name}: no training mentions, which a reranker learns from")
        ready = prepare.ready(fold, "train", without)
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
        settings = {"data.init_args.samples": samples, "data.init_args.tokenizer": start}
        settings |= {"model.init_args.encoder": start}
        settings |= {"trainer.max_epochs": request.epochs} if request.epochs else {}
        export = train_export(
            f"fold {number}",
            CONFIG,
            settings,
            work / f"result-{request.seed}.json",
            seed=request.seed,
            fresh=request.fresh,
            args=request.args,
            machine=request.machine,
        )
        reranking = reranking_of(encoder("reranker", export), request.linker)
        tuned.append(Reranked(first, reranking, "trained"))
    about = model_of(request.model, chosen)
    system = prepare.Tuned(about._replace(identity=tuned[0].identity), {}, tuned, request.seed)
    evaluation = Evaluation(
        task=name,
        model=request.model,
        ckpt=request.ckpt,
        part=replace(part, split=split),
        protocol=request.protocol,
        linker=request.linker,
        files=request.files,
    )
    return [score_linker(evaluation), score_linker(evaluation, system)]
