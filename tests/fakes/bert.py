"""Writes a tiny random BERT with a WordPiece tokenizer in the Hugging Face folder layout."""

from __future__ import annotations

import string
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

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
    fall into characters."""
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
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(vocab),
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=2 * hidden,
        max_position_embeddings=length,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    return folder
