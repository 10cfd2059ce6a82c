"""Decoding of several masks (models.probing) against decoding as the released code does it: same
model, same queries.

settings   a BERT of random weights (128 wide, 2 layers, vocabulary of 30,522), one thread;
           synthetic queries of 10 to 26 tokens, 1 to 10 masks, 5 beams. --model names another
           masked LM
reference  one query at a time, as the released code has it: all five slots go through the whole
           model at every step, the first too, in one batch, and all L x V logits are made; of each
           slot's five best tokens at masked places the five best by accumulated log probability are
           kept, also those that fill the same places with the same tokens in another order
equal      the mean over queries and numbers of masks of the best log probability is not lower than
           the reference's, and lower for fewer than 1 % of the queries (by more than 0.0001, in the
           mean over numbers of masks); `worse` lists these
same       share of (query, number of masks) with the same best filling; `worse_lengths` the share
           with a lower one
duplicates share of the reference's final slots that repeat another one
ratio      of queries a second, in CPU seconds, so that other work on the machine counts little
"""

from __future__ import annotations

import copy
import time
from itertools import chain
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForMaskedLM, BertConfig, BertForMaskedLM, PreTrainedModel

from benchmarks.perf.speed import one_thread
from datamodules.pretrained import load
from models.probing import Filling, fillings, from_transformers

MASK, FIRST, VOCABULARY = 103, 1000, 30_522
TOLERANCE = 1e-4


def bert(size: int, layers: int) -> BertForMaskedLM:
    """Random weights, larger than BERT's start so that tokens differ in probability."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=size,
        num_hidden_layers=layers,
        num_attention_heads=max(1, size // 64),
        intermediate_size=4 * size,
        initializer_range=1.5 / size**0.5,
    )
    return BertForMaskedLM(config).eval()


def synthetic(count: int, vocabulary: int = VOCABULARY) -> list[list[int]]:
    """Queries of 10 to 26 random tokens with the mask near one end, as in those of the task."""
    random = np.random.default_rng(0)
    queries = []
    for number in range(count):
        ids = random.integers(FIRST, vocabulary, random.integers(10, 27)).tolist()
        ids[1 if number % 2 else -3] = MASK
        queries.append(ids)
    return queries


@torch.inference_mode()
def reference(
    model: PreTrainedModel, prompt: list[int], mask_id: int, masks: int, beams: int = 5
) -> list[Filling]:
    """The final slots of one query, best first."""
    first = prompt.index(mask_id)
    wide = [*prompt[:first], *[mask_id] * masks, *prompt[first + 1 :]]
    slots = [(wide, list(range(first, first + masks)), 0.0)] * beams
    for step in range(masks):
        logits = model(input_ids=torch.tensor([ids for ids, _, _ in slots])).logits  # (B, L, V)
        extended = []
        # at first all slots are the same
        for number, (ids, open_, score) in enumerate(slots[: beams if step else 1]):
            values, places = logits[number, open_].log_softmax(-1).flatten().topk(beams)
            for value, place in zip(values.tolist(), places.tolist(), strict=True):
                at, token = open_[place // logits.shape[-1]], place % logits.shape[-1]
                extended.append(
                    (
                        [*ids[:at], token, *ids[at + 1 :]],
                        [p for p in open_ if p != at],
                        score + value,
                    )
                )
        slots = sorted(extended, key=lambda slot: -slot[2])[:beams]
    return [Filling(tuple(ids[first : first + masks]), score) for ids, _, score in slots]


def best_scores(filled: list[list[list[Filling]]]) -> np.ndarray:
    """(masks, queries) scores of the best fillings."""
    return np.array([[several[0].score for several in queries] for queries in filled])


def measure_setting(
    setting: str,
    model: PreTrainedModel,
    queries: list[list[int]],
    mask_id: int,
    masks: int,
    beams: int,
) -> dict[str, Any]:
    lm = from_transformers(copy.deepcopy(model))
    lengths = range(1, masks + 1)
    fillings(lm, queries[:2], mask_id, 2, beams)  # what is set up once is not timed
    reference(model, queries[0], mask_id, 2, beams)
    started = time.process_time()
    filled = [fillings(lm, queries, mask_id, n, beams) for n in lengths]
    fast = time.process_time() - started
    started = time.process_time()
    wanted = [[reference(model, query, mask_id, n, beams) for query in queries] for n in lengths]
    slow = time.process_time() - started
    ours, theirs = best_scores(filled), best_scores(wanted)
    slots = list(chain.from_iterable(wanted))
    pairs = zip(chain.from_iterable(filled), slots, strict=True)
    same = [guesses[0].tokens == other[0].tokens for guesses, other in pairs]
    distinct = sum(len({filling.tokens for filling in several}) for several in slots)
    worse = [
        {"query": i, "by": round(float(theirs[:, i].mean() - ours[:, i].mean()), 6)}
        for i in range(len(queries))
        if ours[:, i].mean() < theirs[:, i].mean() - TOLERANCE
    ]
    return {
        "setting": setting,
        "queries": len(queries),
        "masks": masks,
        "beams": beams,
        "ours": round(len(queries) / fast, 3),
        "reference": round(len(queries) / slow, 3),
        "ratio": round(slow / fast, 2),
        "equal": bool(ours.mean() >= theirs.mean() - TOLERANCE)
        and len(worse) < 0.01 * len(queries),
        "best": round(float(ours.mean()), 4),
        "best_reference": round(float(theirs.mean()), 4),
        "worse": worse,
        "worse_lengths": round(float((ours < theirs - TOLERANCE).mean()), 4),
        "better_lengths": round(float((ours > theirs + TOLERANCE).mean()), 4),
        "same": round(float(np.mean(same)), 4),
        "duplicates": round(1 - distinct / sum(map(len, slots)), 4),
    }


def measure_speed(
    queries: int = 64, masks: int = 10, beams: int = 5, model: str | None = None
) -> dict[str, Any]:
    """Compare both on one thread. Returns the keys that benchmarks.perf.speed asks for.

    Args:
        queries: Queries; the default fills batches, as a graph does.
        masks: Masks of a query at most.
        beams: Beams of the search.
        model: Masked LM in a folder or on the hub, or minilm, in place of one with random weights.
    """
    with one_thread():
        if model is None:
            setting = measure_setting("tiny", bert(128, 2), synthetic(queries), MASK, masks, beams)
        else:
            whole: Any = load(AutoModelForMaskedLM, model, dtype=torch.float32)
            mask_id = MASK
            setting = measure_setting(
                model,
                whole.eval(),
                synthetic(queries, whole.config.vocab_size),
                mask_id,
                masks,
                beams,
            )
    return {
        "name": "probe",
        "unit": "queries/s",
        **{key: setting[key] for key in ("ours", "reference", "ratio", "equal", "worse")},
        "settings": [setting],
    }
