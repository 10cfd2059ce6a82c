"""Graph embeddings with PyKEEN: TransE as KeBioLM trains it (Yuan et al., BioNLP 2021, Section 4.1).

    python -m kg.train experiments/kg/transe.yaml --graph GRAPH --out FOLDER

The paper gives the L2 norm, d = 100, Adam at 1e-3, batches of 2,048 and 30 epochs. It does not give margin, negative
sampling or normalisation: a margin of 1, one uniformly corrupted head or tail per triple that is no known triple, and
PyKEEN's unit-length entities stand here.

Held-out triples are drawn by unordered entity pair: a graph that lists a relation and its inverse (UMLS lists every
relation twice) would otherwise be tested on what it was trained on.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from kg.tracking import ROOT, commit, environment, use_experiment

os.environ.setdefault("PYSTOW_HOME", str(ROOT / ".cache" / "pystow"))  # PyKEEN otherwise makes folders in the home

import mlflow
import numpy as np
import torch
from jsonargparse import ArgumentParser
from pykeen.evaluation import RankBasedEvaluator
from pykeen.losses import MarginRankingLoss
from pykeen.models import TransE as PyKEENTransE
from pykeen.training import SLCWATrainingLoop
from pykeen.triples import CoreTriplesFactory
from torch import Tensor
from tqdm import tqdm

from kg.embeddings import EmbeddingTable
from kg.files import InputError, read_json
from kg.graph import KnowledgeGraph, fingerprint

METRICS = {
    "mrr": "both.realistic.inverse_harmonic_mean_rank",
    "hits_at_1": "both.realistic.hits_at_1",
    "hits_at_3": "both.realistic.hits_at_3",
    "hits_at_10": "both.realistic.hits_at_10",
}


class TransE(PyKEENTransE):
    """PyKEEN's TransE whose L2 scores against all entities come from one matrix product instead of all differences."""

    norm: int

    def __init__(self, *, scoring_fct_norm: int = 2, **kwargs: Any) -> None:
        super().__init__(scoring_fct_norm=scoring_fct_norm, **kwargs)
        self.norm = scoring_fct_norm

    def score_t(
        self, hr_batch: Tensor, *, slice_size: int | None = None, mode: Any = None, tails: Tensor | None = None
    ) -> Tensor:
        """-||h + r - t|| for every t. (batch, 2) indices -> (batch, entities)."""
        if self.norm != 2 or tails is not None:
            return super().score_t(hr_batch, slice_size=slice_size, mode=mode, tails=tails)
        entity, relation = self.entity_representations[0](), self.relation_representations[0]()
        return -torch.cdist(entity[hr_batch[:, 0]] + relation[hr_batch[:, 1]], entity)

    def score_h(
        self, rt_batch: Tensor, *, slice_size: int | None = None, mode: Any = None, heads: Tensor | None = None
    ) -> Tensor:
        """-||h + r - t|| for every h. (batch, 2) indices -> (batch, entities)."""
        if self.norm != 2 or heads is not None:
            return super().score_h(rt_batch, slice_size=slice_size, mode=mode, heads=heads)
        entity, relation = self.entity_representations[0](), self.relation_representations[0]()
        return -torch.cdist(entity[rt_batch[:, 1]] - relation[rt_batch[:, 0]], entity)


def split(triples: np.ndarray, held_out: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(train, test) rows of `triples` (n, 3): about `held_out` triples, at most a tenth, go to test.

    All triples between the same two entities, in either direction, stay on one side, and every entity of a test triple
    keeps a training triple.
    """
    pairs, group = np.unique(np.sort(triples[:, [0, 2]], axis=1), axis=0, return_inverse=True)
    group = group.reshape(-1)
    size = np.bincount(group)
    degree = np.bincount(triples[:, [0, 2]].ravel(), minlength=int(triples[:, [0, 2]].max()) + 1)
    wanted = min(held_out, len(triples) // 10)
    test, taken = np.zeros(len(pairs), bool), 0
    for g in np.random.default_rng(seed).permutation(len(pairs)):
        if taken >= wanted:
            break
        if (degree[pairs[g]] > size[g]).all() and taken + size[g] <= wanted:
            degree[pairs[g]] -= size[g]
            test[g], taken = True, taken + size[g]
    return triples[~test[group]], triples[test[group]]


def link_prediction(
    model: PyKEENTransE, test: np.ndarray, known: np.ndarray, batch_size: int = 128
) -> dict[str, float]:
    """Filtered MRR and Hits@1/3/10 (heads and tails together, realistic ranks) of `test` (n, 3)."""
    evaluator = RankBasedEvaluator(filtered=True)
    result = evaluator.evaluate(
        model,
        torch.from_numpy(test),
        batch_size=batch_size,
        use_tqdm=False,
        additional_filter_triples=[torch.from_numpy(known)],
    )
    return {name: float(result.get_metric(metric)) for name, metric in METRICS.items()}


def train(
    graph: str,
    out: str,
    model: str = "TransE",
    dim: int = 100,
    norm: int = 2,
    margin: float = 1.0,
    lr: float = 1e-3,
    batch_size: int = 2048,
    epochs: int = 30,
    negatives: int = 1,
    filtered: bool = True,
    held_out: int = 2000,
    seed: int = 0,
    device: str | None = None,
    paper: dict[str, str] | None = None,
    fresh: bool = False,
) -> EmbeddingTable:
    """Train an embedding of the graph in folder `graph`, score it on held-out triples, save it to folder `out`.

    A complete table in `out` with the same settings is kept; `fresh` trains it again. Logs settings, the loss of every
    epoch and the scores to the MLflow experiment ``kg``. Raises InputError for a graph without triples, an unknown
    model, or a loss that is no longer finite.
    """
    if model != "TransE":
        raise InputError(f"model: no graph embedding {model!r}; choose from: TransE")
    settings = {
        "graph": fingerprint(graph),
        "model": model,
        "dim": dim,
        "norm": norm,
        "margin": margin,
        "lr": lr,
        "batch_size": batch_size,
        "epochs": epochs,
        "negatives": negatives,
        "filtered": filtered,
        "held_out": held_out,
        "seed": seed,
    }
    manifest = Path(out) / "manifest.json"
    if manifest.is_file() and not fresh and read_json(manifest).get("settings") == settings:
        print(f"{out}: already trained with these settings (--fresh true trains it again)")
        return EmbeddingTable.load(out)
    loaded = KnowledgeGraph.load(graph)
    if len(loaded.triples) < 10:
        raise InputError(f"{graph}: {len(loaded.triples)} triples; an embedding needs at least 10")
    training, test = split(loaded.triple_indices(), held_out, seed)
    factory = CoreTriplesFactory(training, num_entities=len(loaded.entities), num_relations=len(loaded.relations))
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    network = TransE(
        triples_factory=factory,
        embedding_dim=dim,
        scoring_fct_norm=norm,
        loss=MarginRankingLoss(margin=margin),
        random_seed=seed,
    ).to(where)
    optimizer = torch.optim.Adam(network.parameters(), lr=lr, fused=True)
    loop = SLCWATrainingLoop(
        model=network,
        triples_factory=factory,
        optimizer=optimizer,
        negative_sampler="basic",
        negative_sampler_kwargs={"num_negs_per_pos": negatives, "filtered": filtered},
    )
    use_experiment("kg")
    started = time.perf_counter()
    with mlflow.start_run(run_name=f"{model}-{Path(graph).name}-seed{seed}") as run:
        mlflow.log_params(settings | {"graph_folder": graph})
        mlflow.set_tags({"commit": commit(), "graph": settings["graph"], **environment()})
        with tqdm(total=epochs, desc=f"{model}, epochs", dynamic_ncols=True) as bar:
            for epoch in range(1, epochs + 1):
                losses = loop.train(
                    factory,
                    num_epochs=epoch,
                    batch_size=min(batch_size, len(training)),
                    continue_training=epoch > 1,
                    use_tqdm=False,
                    use_tqdm_batch=False,
                    num_workers=0,
                    pin_memory=False,
                )
                assert losses is not None  # None only when PyKEEN probes sizes
                if not np.isfinite(losses[-1]):
                    raise InputError(f"{model}: the loss became {losses[-1]} in epoch {epoch}; lower --lr")
                mlflow.log_metric("train/loss", losses[-1], step=epoch)
                bar.set_postfix(loss=f"{losses[-1]:.4f}")
                bar.update()
        seconds = time.perf_counter() - started
        scores = link_prediction(network, test, training) if len(test) else {}
        mlflow.log_metrics({f"test/{k}": v for k, v in scores.items()} | {"train/seconds": seconds})
        with torch.no_grad():
            table = EmbeddingTable(
                network.entity_representations[0]().cpu(),
                loaded.ids.to_pylist(),
                network.relation_representations[0]().cpu(),
                loaded.relations,
                manifest={
                    "settings": settings,
                    "scores": scores,
                    "seconds": seconds,
                    "test_triples": len(test),
                    "train_triples": len(training),
                    "graph": settings["graph"],
                    "mlflow_run": run.info.run_id,
                },
            )
        table.save(out)
        mlflow.log_dict(table.manifest, "manifest.json")
    return table


def main(arguments: list[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    configs = [a for a in arguments if a.endswith((".yaml", ".yml"))]
    parser = ArgumentParser(prog="python -m kg.train", description=f"{__doc__}", default_env=False)
    parser.add_argument("--config", action="config", help="a YAML file with these options; also without the flag")
    parser.add_function_arguments(train)
    options = parser.parse_args(
        [x for c in configs for x in ("--config", c)] + [a for a in arguments if a not in configs]
    )
    options.pop("config")
    try:
        table = train(**options.as_dict())
    except InputError as error:
        sys.exit(f"error: {error}")
    scores = "  ".join(f"{k} {v:.4f}" for k, v in table.manifest["scores"].items())
    print(
        f"{options.out}: {len(table.entity_ids):,} entities, {len(table.relation_ids)} relations; "
        f"{table.manifest['test_triples']:,} held-out triples (filtered): {scores}"
    )


if __name__ == "__main__":
    main()
