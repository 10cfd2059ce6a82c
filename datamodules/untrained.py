"""Encoders that nothing was trained on: baselines that start with random vectors.

A name of UNTRAINED means a BERT without layers: embeddings of Chinese characters and positions.
What makes a system of it is what fine-tuning puts above, its `settings` (MODEL=bilstm: a
bidirectional LSTM, :mod:`models.recurrent`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from core.files import atomic_folder
from core.tracking import runs_folder


class Untrained(NamedTuple):
    """An encoder without training, and the settings of fine-tuning that every profile has for
    it."""

    hidden: int
    settings: dict[str, Any]


UNTRAINED = {
    "bilstm": Untrained(
        128,
        {
            "model.init_args.recurrent": 128,
            "model.init_args.lr": 4.0e-5,
            "model.init_args.head_lr": 2.0e-3,
        },
    )
}


def untrained_folder(name: str) -> Path:
    """The folder of an encoder of UNTRAINED in the usual layout, written when there is none; its
    random numbers are the same everywhere."""
    folder = runs_folder() / "untrained" / name
    if (folder / "config.json").is_file():
        return folder
    import torch  # slow to import, and a name alone needs none of it
    from transformers import BertConfig, BertModel

    from datamodules.vocabulary import tokenizer, vocabulary

    tokens = vocabulary(())
    hidden = UNTRAINED[name].hidden
    config = BertConfig(
        vocab_size=len(tokens), hidden_size=hidden, num_hidden_layers=0, num_attention_heads=1
    )
    with torch.random.fork_rng(devices=[]), atomic_folder(folder) as partial:
        torch.manual_seed(0)
        BertModel(config, add_pooling_layer=False).save_pretrained(partial)
        tokenizer(tokens).save_pretrained(partial)
    return folder
