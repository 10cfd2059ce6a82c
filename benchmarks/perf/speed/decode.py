"""Constrained beam search (GenBioEL's decoder) against transformers.generate with a dictionary
trie: same model, same names.

settings   a tiny BART (2 + 2 layers of 64) and one of base size (6 + 6 of 768), weights at random,
           vocabulary of 50,265, one thread; 100,000 synthetic names of 3 to 9 pieces, contexts of
           160 tokens, prompts of 5, 5 beams
reference  generate(num_beams=5, early_stopping="never", length_penalty=1,
prefix_allowed_tokens_fn=...), with nested
           dictionaries, as GENRE and its descendants hold their names
equal      our search with finish_rule="transformers", which is generate's own rule, finds the same
           top-1 and the same five names, scores to 1e-3, for every mention. `best_top1` and
           `best_top5` are the shares of mentions for which our default rule returns the same (it
           also keeps names that a beam completes at a lower rank)
ratio      of mentions a second, each at its fastest run, at batch 8, at the worse setting; `curve`
           is ours at other sizes
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import BartConfig, BartForConditionalGeneration

from benchmarks.perf.speed import one_thread, summarize
from benchmarks.perf.speed._names import EOS, FIRST, VOCABULARY, nest_names, synthetic
from kg.search.trie import Ragged, Trie
from models.decoding import Ranking, constrained_search

ROOT, BEAMS = 16, 5
SCORES = 1e-3


def bart(size: int, layers: int) -> BartForConditionalGeneration:
    """Random weights, larger than BART's start so that the next tokens differ in probability."""
    torch.manual_seed(0)
    config = BartConfig(
        vocab_size=VOCABULARY,
        d_model=size,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=max(1, size // 64),
        decoder_attention_heads=max(1, size // 64),
        encoder_ffn_dim=4 * size,
        decoder_ffn_dim=4 * size,
        # generate would close every sequence at the last step, also in the middle of a name
        forced_eos_token_id=None,
        init_std=2 / size**0.5,
    )
    return BartForConditionalGeneration(config).eval()


def inputs(count: int, context: int) -> tuple[Tensor, list[list[int]]]:
    """((count, context) token ids, prompts: </s>, three tokens of a mention, " is")."""
    random = np.random.default_rng(1)
    ids = torch.from_numpy(random.integers(FIRST, VOCABULARY, (count, context)))
    return ids, [[EOS, *random.integers(FIRST, VOCABULARY, 3).tolist(), ROOT] for _ in range(count)]


def ours(
    model: BartForConditionalGeneration,
    trie: Trie,
    ids: Tensor,
    prompts: list[list[int]],
    **rule: str,
) -> list[Ranking]:
    return constrained_search(model, trie, ids, torch.ones_like(ids), prompts, beams=BEAMS, **rule)  # type: ignore[arg-type]


def reference(
    model: BartForConditionalGeneration,
    trie: dict[int, Any],
    depth: int,
    ids: Tensor,
    prompts: list[list[int]],
) -> list[list[tuple[tuple[int, ...], float]]]:
    """generate's (name, score) for each mention, best first."""
    length = len(prompts[0])

    def list_allowed(mention: int, sequence: Tensor) -> list[int]:
        node = trie
        for token in sequence.tolist()[length:]:
            node = node.get(token, {})
        return list(node) or [EOS]  # behind a complete name; generate refuses an empty list

    with torch.inference_mode():
        generated: Any = model.generate(  # type: ignore[misc]
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            decoder_input_ids=torch.tensor(prompts),
            prefix_allowed_tokens_fn=list_allowed,
            num_beams=BEAMS,
            num_return_sequences=BEAMS,
            early_stopping="never",
            length_penalty=1.0,
            max_length=length + depth + 1,
            return_dict_in_generate=True,
            output_scores=True,
        )
    rankings: list[list[tuple[tuple[int, ...], float]]] = [[] for _ in prompts]
    for i, (sequence, score) in enumerate(
        zip(generated.sequences.tolist(), generated.sequences_scores.tolist(), strict=True)
    ):
        name = sequence[length:]
        rankings[i // BEAMS].append((tuple(name[: name.index(EOS)]), score))
    return rankings


def same(
    ours: list[Ranking], two: list[list[tuple[tuple[int, ...], float]]], trie: Trie
) -> tuple[float, float]:
    """Shares of mentions with the same top-1, and with the same set of names at the same scores."""
    first = whole = 0
    for a, b in zip(ours, two, strict=True):
        leaves = np.array([leaf for leaf, _ in a])
        names = [tuple(sequence.tolist()) for sequence in trie.sequences(leaves).rows()]
        first += names[0] == b[0][0]
        whole += set(names) == {name for name, _ in b} and np.allclose(
            [score for _, score in a], [score for _, score in b], atol=SCORES
        )
    return first / len(ours), whole / len(ours)


def measure_setting(
    setting: str,
    size: int,
    layers: int,
    ragged: Ragged,
    mentions: int,
    context: int,
    batch: int,
    sizes: Sequence[int],
    repeats: int,
) -> dict[str, Any]:
    model, plain = bart(size, layers), nest_names(*ragged)
    trie = Trie.build(ragged, vocabulary=VOCABULARY)
    ids, prompts = inputs(mentions, context)
    parts = [slice(i, i + batch) for i in range(0, mentions, batch)]
    fast, slow = [], []
    for _ in range(repeats):
        started = time.perf_counter()
        ranked: list[Ranking] = []
        for p in parts:
            ranked += ours(model, trie, ids[p], prompts[p], finish_rule="transformers")
        fast.append(time.perf_counter() - started)
        started = time.perf_counter()
        wanted: list[list[tuple[tuple[int, ...], float]]] = []
        for p in parts:
            wanted += reference(model, plain, trie.depth, ids[p], prompts[p])
        slow.append(time.perf_counter() - started)
    top1, top5 = same(ranked, wanted, trie)
    best: list[Ranking] = []
    for p in parts:
        best += ours(model, trie, ids[p], prompts[p])
    best_top1, best_top5 = same(best, wanted, trie)
    curve = {}
    for each in sizes:
        again, questions = inputs(max(each, min(mentions, 16)), context)
        started = time.perf_counter()
        for i in range(0, len(again), each):
            ours(model, trie, again[i : i + each], questions[i : i + each])
        curve[each] = round(len(again) / (time.perf_counter() - started), 2)
    return {
        "setting": setting,
        "batch": batch,
        "mentions": mentions,
        "ours": round(mentions / min(fast), 2),
        "reference": round(mentions / min(slow), 2),
        "ratio": round(min(slow) / min(fast), 2),
        "equal": top1 == top5 == 1,
        "best_top1": round(best_top1, 3),
        "best_top5": round(best_top5, 3),
        "curve": curve,
    }


def measure_speed(
    names: int = 100_000,
    mentions: int = 32,
    context: int = 160,
    batch: int = 8,
    curve: Sequence[int] = (1, 2, 4, 8, 16, 32, 64),
    repeats: int = 2,
    tiny: bool = False,
) -> dict[str, Any]:
    """Compare both on one thread. Returns the keys that benchmarks.perf.speed asks for.

    Args:
        names: Names of the trie.
        mentions: Mentions for the tiny model; of base size a quarter.
        context: Tokens of a context.
        batch: Mentions of a batch.
        curve: Batch sizes of the tiny model's curve.
        repeats: Alternating runs of which the fastest counts.
        tiny: Leave the model of base size out.
    """
    ragged = Ragged(*synthetic(names))
    with one_thread():
        settings = [
            measure_setting("tiny", 64, 2, ragged, mentions, context, batch, curve, repeats)
        ]
        if not tiny:
            few = max(batch, mentions // 4)
            settings.append(
                measure_setting(
                    "base size", 768, 6, ragged, few, context, batch, (), max(1, repeats - 1)
                )
            )
    return summarize("decode", settings, "mentions/s")
