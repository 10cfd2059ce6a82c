"""KeBioLM as a linker (inference.entity_table): one reading of a text for all its mentions, against
a window for each mention.

settings   a BERT of MiniLM's size with random weights (6 layers x 384, 4 of them read for linking),
           36,853 entities x 100, one thread; synthetic texts of 100 and 120 tokens, which fit, with
           10 and 20 mentions, and of 300 tokens with 30, in windows
reference  each mention in a window of its own, 128 tokens with the mention in the middle; batches
of similar length, as ours
equal      the same nearest entity for every mention of texts that fit, their scores to 1e-3
same       share of mentions with the same nearest entity; where a text does not fit, a mention's
           context differs
ratio      of mentions a second, in CPU seconds
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from transformers import BertConfig, BertModel

from benchmarks.perf.speed import one_thread, summarize
from datamodules.contexts import mark_mention
from datamodules.pretrained import PACKAGED
from datamodules.rows import length_batches, pad_rows
from datamodules.tokenizers import load_tokenizer
from inference.entity_table import NEAREST, EntityReader
from models.kebiolm import KeBioLMEncoder

SETTINGS = {
    "100 tokens, 10 mentions": (100, 10, True),
    "120 tokens, 20 mentions": (120, 20, True),
    "300 tokens, 30 mentions": (300, 30, False),
}


def reader(entities: int = 36_853, hidden: int = 384, layers: int = 6) -> EntityReader:
    """A KeBioLM of random weights, larger than BERT's start so that mentions differ."""
    torch.manual_seed(0)
    tokenizer = load_tokenizer(next(iter(PACKAGED)))
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=max(1, hidden // 32),
        intermediate_size=4 * hidden,
        initializer_range=1.5 / hidden**0.5,
    )
    bert = BertModel(config, add_pooling_layer=False).eval()
    model = KeBioLMEncoder(
        bert, torch.randn(entities, 100), text_layers=max(1, layers * 2 // 3)
    ).eval()
    ids = [str(number) for number in range(entities)]
    return EntityReader(model, tokenizer, ids, {}, "random")


def synthetic(
    reader: EntityReader, texts: int, tokens: int, mentions: int
) -> tuple[list[str], list[str]]:
    """(mentions, their texts with the mention marked): random words, mentions of two words."""
    random = np.random.default_rng(0)
    words = sorted(
        w for w in reader.tokenizer.get_vocab() if w.isalpha() and w.islower() and len(w) > 2
    )
    sentences, contexts = [], []
    for _ in range(texts):
        text = [words[i] for i in random.integers(len(words), size=tokens)]
        places = np.cumsum([0, *(len(word) + 1 for word in text)])
        for first in sorted(random.choice(tokens // 2, mentions, replace=False) * 2):
            start, end = int(places[first]), int(places[first + 2]) - 1
            whole = " ".join(text)
            sentences.append(whole[start:end])
            contexts.append(mark_mention(whole, start, end))
    return sentences, contexts


@torch.inference_mode()
def reference(
    reader: EntityReader, mentions: list[str], contexts: list[str]
) -> list[list[tuple[int, float]]]:
    """A window for each mention."""
    inputs = [reader.inputs(m, c) for m, c in zip(mentions, contexts, strict=True)]
    result: list[list[tuple[int, float]]] = [[] for _ in inputs]
    for batch in length_batches([len(ids) for ids, *_ in inputs], reader.tokens):
        rows_of_ids = [inputs[i][0] for i in batch]
        text, _ = reader.model.text_states(*pad_rows(rows_of_ids, reader.tokenizer.pad_token_id))  # type: ignore[arg-type]
        spans = torch.tensor([(row, *inputs[i][1:]) for row, i in enumerate(batch)])
        scores, rows = reader.model.nearest(text, spans, NEAREST)
        for i, s, r in zip(batch, scores.tolist(), rows.tolist(), strict=True):
            result[i] = list(zip(r, s, strict=True))
    return result


def measure_setting(reader: EntityReader, setting: str, texts: int) -> dict[str, Any]:
    tokens, count, fits = SETTINGS[setting]
    mentions, contexts = synthetic(reader, texts, tokens, count)
    started = time.process_time()
    ours = reader.nearest(mentions, contexts)
    fast = time.process_time() - started
    started = time.process_time()
    theirs = reference(reader, mentions, contexts)
    slow = time.process_time() - started
    same = [a[0][0] == b[0][0] for a, b in zip(ours, theirs, strict=True)]
    near = all(abs(a[0][1] - b[0][1]) < 1e-3 for a, b in zip(ours, theirs, strict=True))
    return {
        "setting": setting,
        "texts": texts,
        "mentions": len(mentions),
        "ours": round(len(mentions) / fast, 1),
        "reference": round(len(mentions) / slow, 1),
        "ratio": round(slow / fast, 2),
        "same": float(np.mean(same)),
        "equal": (all(same) and near) or not fits,
    }


def measure_speed(texts: int = 24) -> dict[str, Any]:
    """Compare both on one thread. Returns the keys that benchmarks.perf.speed asks for.

    Args:
        texts: Texts of each setting.
    """
    with one_thread():
        our_reader = reader()
        our_reader.nearest(*synthetic(our_reader, 1, 20, 2))  # what is set up once is not timed
        settings = [measure_setting(our_reader, setting, texts) for setting in SETTINGS]
    return summarize("kebiolm_link", settings, "mentions/s")
