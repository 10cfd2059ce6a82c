"""KeBioLM's released checkpoint, in the layout of its authors' code, as the files of an export."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import BertConfig, BertModel

from core.files import InputError
from models.kebiolm import KeBioLMEncoder

#: the MLM head's names in the authors' checkpoint, and here
RELEASED_HEAD = {
    "cls.predictions.transform.dense.": "dense.",
    "cls.predictions.transform.LayerNorm.": "norm.",
    "cls.predictions.bias": "bias",
}


def load_released(encoder: KeBioLMEncoder, state: dict[str, Tensor]) -> None:
    """Load the authors' weights into an encoder built with `compat`. Raises InputError naming what
    is missing."""
    if not encoder.compat:
        raise InputError(
            "the released checkpoint has a LayerNorm after Eq. (4): build the encoder with"
            ' compat="released"'
        )
    prefixes = {
        "embeddings.": "bert.embeddings.",
        "mention_detector.": "detector.",
        "layer_norm.": "norm.",
        "entity_linker.entity_embeddings.weight": "entity",
        "entity_linker.mention_to_entity_projection.": "mention_projection.",
        "entity_context_projection.": "entity_projection.",
    }
    for layer in range(len(encoder.bert.encoder.layer)):
        parameter, number = (
            ("context", layer)
            if layer < encoder.text_layers
            else ("recontext", layer - encoder.text_layers)
        )
        prefixes[f"{parameter}_encoder.layer.{number}."] = f"bert.encoder.layer.{layer}."
    renamed = {}
    for name, tensor in state.items():
        bare = name.removeprefix("bert.")
        for old, new in prefixes.items():
            if bare.startswith(old) and not bare.endswith("position_ids"):
                renamed[new + bare.removeprefix(old)] = tensor
    result = encoder.load_state_dict(renamed, strict=False)
    if result.missing_keys or result.unexpected_keys:
        raise InputError(
            f"not a KeBioLM checkpoint of this size: missing {result.missing_keys[:5]}, "
            f"unexpected {result.unexpected_keys[:5]}"
        )


def read_weights(file: Path) -> Any:
    """What a file of weights holds; it runs no code. Raises InputError for one that is none."""
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, pickle.UnpicklingError) as error:
        raise InputError(
            f"{file}: cannot be read as weights ({str(error).splitlines()[0]}). Fetch it again."
        ) from error


def _count_layers(weights: Mapping[str, Tensor], encoder: str) -> int:
    layers = {
        name.split(".")[2] for name in weights if name.startswith(f"{encoder}_encoder.layer.")
    }
    return len(layers)


def convert(source: Path, out: Path) -> None:
    """The authors' `pytorch_model.bin` (and config.json, where it is there) as the files of an
    export, written into `out`.

    Sizes are those of the weights; heads, candidates and mentions those of config.json, else the
    code's defaults (heads of 64, 100, 15). Raises InputError for a file that is no such checkpoint;
    loading runs no code.
    """
    file = source / "pytorch_model.bin"
    state = read_weights(file)
    bare = {k.removeprefix("bert."): v for k, v in state.items()} if isinstance(state, dict) else {}
    words, table = (
        bare.get("embeddings.word_embeddings.weight"),
        bare.get("entity_linker.entity_embeddings.weight"),
    )
    text, fused = _count_layers(bare, "context"), _count_layers(bare, "recontext")
    if words is None or table is None or not text:
        raise InputError(
            f"{file}: not KeBioLM's released checkpoint; expected"
            " embeddings.word_embeddings.weight, entity_linker.entity_embeddings.weight and"
            " context_encoder.layer.*"
        )
    file = source / "config.json"
    stored = json.loads(file.read_text()) if file.is_file() else {}
    config = BertConfig(
        vocab_size=words.shape[0],
        hidden_size=words.shape[1],
        num_hidden_layers=text + fused,
        num_attention_heads=stored.get("num_attention_heads", max(1, words.shape[1] // 64)),
        intermediate_size=bare["context_encoder.layer.0.intermediate.dense.weight"].shape[0],
        max_position_embeddings=bare["embeddings.position_embeddings.weight"].shape[0],
        type_vocab_size=bare["embeddings.token_type_embeddings.weight"].shape[0],
        hidden_act=stored.get("hidden_act", "gelu"),
        layer_norm_eps=stored.get("layer_norm_eps", 1e-12),
    )
    settings = {
        "text_layers": text,
        "candidates": stored.get("max_candidate_entities", 100),
        "max_mentions": stored.get("max_mentions", 15),
        "compat": "released",
    }
    encoder = KeBioLMEncoder(BertModel(config, add_pooling_layer=False), table, **settings)
    load_released(encoder, state)
    encoder.bert.save_pretrained(out)
    weights = {k: v for k, v in encoder.state_dict().items() if not k.startswith("bert.")}
    for old, new in RELEASED_HEAD.items():
        weights |= {
            f"head.{new}{k.removeprefix(old)}": v for k, v in state.items() if k.startswith(old)
        }
    save_file(
        {k: v.detach().cpu().contiguous() for k, v in weights.items()}, out / "kebiolm.safetensors"
    )
    (out / "kebiolm.json").write_text(json.dumps(settings, indent=1) + "\n")
