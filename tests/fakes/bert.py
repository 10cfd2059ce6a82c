"""Writes a tiny random BERT, or RoBERTa, with a WordPiece tokenizer in the hub's layout."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
    XLMRobertaConfig,
    XLMRobertaModel,
)

from datamodules.tokenizers import byte_level_bpe

#: {type: (settings, model)}
TYPES: dict[str, tuple[Any, Any]] = {
    "bert": (BertConfig, BertModel),
    "roberta": (RobertaConfig, RobertaModel),
    "xlm-roberta": (XLMRobertaConfig, XLMRobertaModel),
}
KIND = "bert"  #: of :data:`TYPES`; a test of other types sets it
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def write(
    folder: Path,
    words: list[str],
    layers: int = 3,
    hidden: int = 32,
    length: int = 128,
    dropout: float = 0.1,
    seed: int = 0,
    characters: str = "",
) -> Path:
    """A BERT whose vocabulary is single characters, `characters` too, plus `words`; other words
    fall into characters. A RoBERTa has a byte-level vocabulary."""
    if KIND == "roberta":
        tokenizer = byte_level_bpe([f" {word}" for word in [*words, *characters] * 2], 1000)
        tokenizer.backend_tokenizer.post_processor = processors.RobertaProcessing(
            ("</s>", tokenizer.sep_token_id), ("<s>", tokenizer.cls_token_id)
        )
        tokenizer.save_pretrained(folder)
        write_model(folder, len(tokenizer), layers, hidden, length, dropout, seed)
        return folder
    single = string.ascii_lowercase + string.digits + string.punctuation
    characters = single + "".join(c for c in characters if c not in single)
    vocab = SPECIAL + list(characters) + [f"##{c}" for c in string.ascii_lowercase + string.digits]
    vocab += [w for w in dict.fromkeys(words) if len(w) > 1]
    backend = Tokenizer(models.WordPiece({t: i for i, t in enumerate(vocab)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(t, SPECIAL.index(t)) for t in ("[CLS]", "[SEP]")],
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )
    tokenizer.save_pretrained(folder)
    write_model(folder, len(vocab), layers, hidden, length, dropout, seed)
    return folder


def write_model(
    folder: Path, size: int, layers: int, hidden: int, length: int, dropout: float, seed: int
) -> None:
    """A random model of type KIND."""
    torch.manual_seed(seed)
    shape, kind = TYPES[KIND]
    config = shape(
        vocab_size=size,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=2 * hidden,
        max_position_embeddings=length + 2 * (KIND != "bert"),
        pad_token_id=int(KIND == "roberta"),
        type_vocab_size=2 if KIND == "bert" else 1,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    kind(config, add_pooling_layer=False).save_pretrained(folder)
