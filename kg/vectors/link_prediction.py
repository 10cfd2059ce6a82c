"""Held-out triples and link prediction: filtered MRR and Hits@k."""

from __future__ import annotations

import numpy as np
import torch
from pykeen.evaluation import RankBasedEvaluator
from pykeen.models import ERModel

#: numbers that link prediction holds at once: 1 GB, of which PyKEEN makes some copies
SCORES = 1 << 28
METRICS = {
    "mrr": "both.realistic.inverse_harmonic_mean_rank",
    "hits_at_1": "both.realistic.hits_at_1",
    "hits_at_3": "both.realistic.hits_at_3",
    "hits_at_10": "both.realistic.hits_at_10",
}


def split(triples: np.ndarray, held_out: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(train, test) rows of `triples` (n, 3): about `held_out` triples, at most a tenth, go to
    test.

    All triples between the same two entities, in either direction, stay on one side, and every
    entity of a test triple keeps a training triple.
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


def _share_parts(triples: np.ndarray, test: np.ndarray, a: int, b: int) -> np.ndarray:
    """(known triples,) whether a test triple has the same parts `a` and `b`."""
    return np.isin(triples[:, a] << 32 | triples[:, b], test[:, a] << 32 | test[:, b])


def link_prediction(
    model: ERModel, test: np.ndarray, triples: np.ndarray, batch_size: int = 128
) -> dict[str, float]:
    """Filtered MRR and Hits@1/3/10 (heads and tails together, realistic ranks) of `test` (n, 3)."""
    evaluator = RankBasedEvaluator(filtered=True)
    # PyKEEN compares every known triple with every one of a batch: only those can count that share
    # two parts with a test triple.
    triples = triples[_share_parts(triples, test, 0, 1) | _share_parts(triples, test, 1, 2)]
    batch_size = max(1, min(batch_size, SCORES // model.num_entities))
    result = evaluator.evaluate(
        model,
        # TransR projects once per relation of a batch
        torch.from_numpy(test[np.argsort(test[:, 1], kind="stable")]),
        batch_size=batch_size,
        use_tqdm=False,
        additional_filter_triples=[torch.from_numpy(triples)],
    )
    return {name: float(result.get_metric(metric)) for name, metric in METRICS.items()}
