"""Tiny random models of many types, with a tokenizer of words, in the hub's layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AlbertConfig,
    AutoModel,
    AutoModelForMaskedLM,
    BartConfig,
    BertConfig,
    BigBirdConfig,
    DebertaConfig,
    DebertaV2Config,
    DistilBertConfig,
    ElectraConfig,
    ErnieConfig,
    LongformerConfig,
    MBartConfig,
    ModernBertConfig,
    MPNetConfig,
    NomicBertConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
    RobertaConfig,
    T5Config,
    XLMRobertaConfig,
)

from tests.fakes import tasks

WORDS = list(dict.fromkeys(["renal", "failure", "gout", "of", "query", ":", *tasks.WORDS]))


def write_tokenizer(
    folder: Path, cls: str = "[CLS]", sep: str = "[SEP]", pad: str = "[PAD]"
) -> int:
    """A tokenizer of words with these special tokens; returns its size."""
    tokens = [pad, cls, sep, "[UNK]", "[MASK]", *WORDS]
    made = Tokenizer(models.WordLevel({t: i for i, t in enumerate(tokens)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}", special_tokens=[(cls, 1), (sep, 2)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=made,
        cls_token=cls,
        sep_token=sep,
        pad_token=pad,
        unk_token="[UNK]",
        mask_token="[MASK]",
        model_max_length=30,
    ).save_pretrained(folder)
    return len(tokens)


SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 20,
}
TYPES: dict[str, tuple[type, dict[str, Any]]] = {
    "bert": (BertConfig, SIZES),
    "roberta": (RobertaConfig, SIZES | {"max_position_embeddings": 42, "pad_token_id": 0}),
    "distilbert": (DistilBertConfig, {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 20}),
    "electra": (ElectraConfig, SIZES | {"embedding_size": 16}),
    "deberta-v2": (DebertaV2Config, SIZES | {"relative_attention": True}),
    "modernbert": (
        ModernBertConfig,
        SIZES
        | {
            "pad_token_id": 0,
            "cls_token_id": 1,
            "sep_token_id": 2,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
    "xlm-roberta": (XLMRobertaConfig, SIZES | {"max_position_embeddings": 42, "pad_token_id": 0}),
    "deberta": (DebertaConfig, SIZES | {"pad_token_id": 0}),
    "albert": (AlbertConfig, SIZES | {"embedding_size": 16, "pad_token_id": 0}),
    "mpnet": (MPNetConfig, SIZES | {"max_position_embeddings": 42, "pad_token_id": 0}),
    "longformer": (
        LongformerConfig,
        SIZES | {"max_position_embeddings": 42, "pad_token_id": 0, "attention_window": 8},
    ),
    "big_bird": (BigBirdConfig, SIZES | {"attention_type": "original_full", "pad_token_id": 0}),
    "nomic_bert": (NomicBertConfig, SIZES | {"pad_token_id": 0}),
    "ernie": (ErnieConfig, SIZES | {"pad_token_id": 0}),
    "t5": (T5Config, {"d_model": 16, "d_kv": 8, "d_ff": 20, "num_layers": 2, "num_heads": 2}),
    "bart": (
        BartConfig,
        {
            "d_model": 16,
            "encoder_layers": 2,
            "decoder_layers": 1,
            "encoder_attention_heads": 2,
            "decoder_attention_heads": 2,
            "encoder_ffn_dim": 20,
            "decoder_ffn_dim": 20,
            "pad_token_id": 0,
        },
    ),
    "mbart": (
        MBartConfig,
        {
            "d_model": 16,
            "encoder_layers": 2,
            "decoder_layers": 1,
            "encoder_attention_heads": 2,
            "decoder_attention_heads": 2,
            "encoder_ffn_dim": 20,
            "decoder_ffn_dim": 20,
            "pad_token_id": 0,
        },
    ),
    "qwen3": (Qwen3Config, SIZES | {"num_key_value_heads": 1, "head_dim": 8}),
}


#: types without a masked language model
WITHOUT_MASKS = ("t5", "bart", "mbart", "qwen3")


def write_model(folder: Path, kind: str, masks: bool = False) -> Path:
    """A random model of this type. masks: with the head of its masked language model."""
    size = write_tokenizer(folder)
    config, settings = TYPES[kind]
    torch.manual_seed(0)
    make = AutoModelForMaskedLM if masks else AutoModel
    make.from_config(config(vocab_size=size, **settings)).save_pretrained(folder)
    return folder
