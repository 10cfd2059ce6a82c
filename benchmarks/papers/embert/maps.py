"""The attention of one layer of an encoder, summed over its heads, without padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from transformers import BertModel, PreTrainedTokenizerFast

from core.files import InputError

BATCH = 16


class Text(NamedTuple):
    """[CLS] text [SEP] as token ids, and the places of each of its parts."""

    ids: list[int]
    parts: list[np.ndarray]

    @property
    def whole(self) -> np.ndarray:
        """Places of all tokens, [CLS] and [SEP] too."""
        return np.arange(len(self.ids))

    @property
    def inside(self) -> np.ndarray:
        """Places of the text's own tokens."""
        return np.arange(1, len(self.ids) - 1)


def join_parts(tokenizer: PreTrainedTokenizerFast, parts: Sequence[str]) -> Text:
    """A text given in parts, each made into tokens for itself, so that no token reaches over two of
    them.

    Texts that differ in one part therefore have the same tokens in all others.
    """
    ids, places = [int(tokenizer.cls_token_id)], []  # type: ignore[arg-type]
    for part in parts:
        part_ids = tokenizer(part, add_special_tokens=False, verbose=False)["input_ids"]
        places.append(np.arange(len(ids), len(ids) + len(part_ids)))
        ids += part_ids
    return Text([*ids, int(tokenizer.sep_token_id)], places)  # type: ignore[arg-type]


@torch.inference_mode()
def attention_maps(
    bert: BertModel, texts: Sequence[Text], layer: int, pad: int = 0
) -> Iterator[np.ndarray]:
    """(L, L) of each text: weights of `layer` (from 1), summed over heads; each row sums to their
    number.

    `bert` is loaded with attention="eager", the one that returns its weights. Raises InputError for
    a layer that it does not have and a text that it cannot hold.
    """
    config = bert.config
    if not 1 <= layer <= config.num_hidden_layers:
        raise InputError(f"layer {layer}: the encoder has layers 1 to {config.num_hidden_layers}")
    longest = max((len(t.ids) for t in texts), default=0)
    if longest > config.max_position_embeddings:
        raise InputError(
            f"a text of {longest} tokens; the encoder holds {config.max_position_embeddings}. Give"
            " a smaller WINDOW="
        )
    bert.eval()
    device = bert.embeddings.word_embeddings.weight.device
    for begin in range(0, len(texts), BATCH):
        batch = texts[begin : begin + BATCH]
        most = max(len(t.ids) for t in batch)
        ids = torch.tensor([t.ids + [pad] * (most - len(t.ids)) for t in batch], device=device)
        mask = torch.tensor(
            [[1] * len(t.ids) + [0] * (most - len(t.ids)) for t in batch], device=device
        )
        weights = bert(ids, mask, output_attentions=True).attentions
        summed = weights[layer - 1].float().sum(1).cpu().numpy()  # (B, L, L)
        for text, attention in zip(batch, summed, strict=True):
            yield attention[: len(text.ids), : len(text.ids)]
