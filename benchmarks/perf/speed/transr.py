"""Training TransR with one product per relation of a batch against PyKEEN's own, which gathers one
matrix per triple.

settings   d = 100 and 200 (the paper's) on synthetic graphs with as many relations as a refined
           CMeKG and its skew: the relation on rank i has a share of 1 / i. Batches of 1,024, one
           filtered negative, Adam, in PyKEEN's training loop
ratio      of triples a second over two epochs, in alternating runs, best of each, at the worst
           setting
equal      from the same TransE and seed: scores of a batch before training agree to 1e-5, and after
           the same training MRR on held-out triples to 1e-3. Vectors may differ by a step or two:
           where a gradient is nothing but rounding, Adam makes a step of it all the same
"""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from pykeen.losses import MarginRankingLoss
from pykeen.models import ERModel
from pykeen.models import TransR as PyKEENTransR
from pykeen.training import SLCWATrainingLoop
from pykeen.triples import CoreTriplesFactory

from kg.vectors.link_prediction import link_prediction, split
from kg.vectors.networks import TransE, TransR, started_from

RELATIONS, GROUP = 115, 20
BATCH, LR, WARM, EPOCHS = 1024, 0.01, 20, 2


def synthetic(entities: int, triples: int) -> np.ndarray:
    """(triples, 3): a relation leads from a group of entities to the one that comes so many groups
    later."""
    rng = np.random.default_rng(0)
    share = 1 / np.arange(1, RELATIONS + 1)
    relation = rng.choice(RELATIONS, triples, p=share / share.sum())
    head = rng.integers(0, entities, triples)
    groups = max(entities // GROUP, 1)
    tail = (head // GROUP + relation) % groups * GROUP + rng.integers(0, GROUP, triples)
    return np.unique(np.stack([head, relation, tail], axis=1), axis=0)


def train_model(
    kind: type[ERModel], factory: CoreTriplesFactory, epochs: int, **kwargs: Any
) -> tuple[ERModel, float]:
    """(the model, seconds of its training)."""
    model = kind(
        triples_factory=factory,
        scoring_fct_norm=2,
        loss=MarginRankingLoss(margin=1.0),
        random_seed=0,
        **kwargs,
    ).to(torch.device("cpu"))
    loop = SLCWATrainingLoop(
        model=model,
        triples_factory=factory,
        optimizer=torch.optim.Adam(model.parameters(), lr=LR, fused=True),
        negative_sampler="basic",
        negative_sampler_kwargs={"num_negs_per_pos": 1, "filtered": True},
    )
    torch.manual_seed(0)
    gc.collect()
    # PyKEEN collects garbage after every epoch; neither side is to pay for what the libraries hold
    gc.freeze()
    started = time.perf_counter()
    loop.train(
        factory,
        num_epochs=epochs,
        batch_size=BATCH,
        use_tqdm=False,
        use_tqdm_batch=False,
        num_workers=0,
        pin_memory=False,
    )
    seconds = time.perf_counter() - started
    gc.unfreeze()
    return model, seconds


def as_ours(model: ERModel, factory: CoreTriplesFactory, dim: int) -> TransR:
    """Ours with the parameters of `model`, to score all entities without gathering a matrix for
    each."""
    ours = TransR(triples_factory=factory, embedding_dim=dim, relation_dim=dim, scoring_fct_norm=2)
    ours.load_state_dict(model.state_dict())
    return ours


def compare_setting(dim: int, entities: int, triples: int, repeats: int) -> dict[str, Any]:
    training, test = split(synthetic(entities, triples), 500, 0)
    factory = CoreTriplesFactory(training, num_entities=entities, num_relations=RELATIONS)
    first, _ = train_model(TransE, factory, WARM, embedding_dim=dim)
    vectors = first.entity_representations[0](), first.relation_representations[0]()
    start = {"embedding_dim": dim, "relation_dim": dim} | started_from(*vectors)
    stock = PyKEENTransR(triples_factory=factory, scoring_fct_norm=2, random_seed=0, **start)
    batch = torch.from_numpy(training[:256])
    with torch.no_grad():
        apart = float(
            (stock.score_hrt(batch) - as_ours(stock, factory, dim).score_hrt(batch)).abs().max()
        )
    kinds: dict[str, type[ERModel]] = {"ours": TransR, "reference": PyKEENTransR}
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    models = {}
    for _ in range(repeats):
        for name, kind in kinds.items():
            models[name], taken = train_model(kind, factory, EPOCHS, **start)
            seconds[name].append(taken)
    mrr = {
        name: link_prediction(as_ours(m, factory, dim), test, training)["mrr"]
        for name, m in models.items()
    }
    with torch.no_grad():
        ours, reference = (m.entity_representations[0]() for m in models.values())
        moved = float((ours - reference).abs().max())
    rate = {name: EPOCHS * len(training) / min(taken) for name, taken in seconds.items()}
    return {
        "setting": f"d = {dim}, {entities} entities, {len(training)} triples",
        "threads": torch.get_num_threads(),
        "triples_a_second": round(rate["ours"]),
        "reference_triples_a_second": round(rate["reference"]),
        "ratio": round(rate["ours"] / rate["reference"], 1),
        "mrr_at_the_start": round(link_prediction(first, test, training)["mrr"], 4),
        "mrr": round(mrr["ours"], 4),
        "reference_mrr": round(mrr["reference"], 4),
        "largest_difference_of_scores": apart,
        "largest_difference_of_vectors": moved,
        "equal": apart <= 1e-5 and abs(mrr["ours"] - mrr["reference"]) <= 1e-3,
    }


def measure_speed(
    repeats: int = 2, triples: int = 30_000, entities: int = 2000, dims: Sequence[int] = (100, 200)
) -> dict[str, Any]:
    """Compare both. Returns the keys that benchmarks.perf.speed asks for.

    Args:
        repeats: Alternating runs of which the best counts.
        triples: Triples of the graph with vectors of 100 numbers.
        entities: Entities of the graph.
        dims: Numbers of a vector, for each setting.
    """
    settings = [compare_setting(d, entities, triples * dims[0] ** 2 // d**2, repeats) for d in dims]
    worst = min(settings, key=lambda s: s["ratio"])
    return {
        "name": "transr",
        "unit": "triples a second",
        "ours": worst["triples_a_second"],
        "reference": worst["reference_triples_a_second"],
        "ratio": worst["ratio"],
        "equal": all(s["equal"] for s in settings),
        "settings": settings,
    }
