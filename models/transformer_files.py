"""Read and write whole transformers, BERTs and others, as Hugging Face folders or from the hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn
from transformers import (
    MODEL_FOR_TEXT_ENCODING_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForTextEncoding,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    CamembertForMaskedLM,
    CamembertModel,
    PreTrainedModel,
    RobertaForMaskedLM,
    RobertaModel,
    XLMRobertaForMaskedLM,
    XLMRobertaModel,
)
from transformers.utils import logging

from core.files import InputError
from core.tensors import check_finite, read_tensors
from datamodules.pretrained import find_pretrained, load

#: key of config.json in encoder/ of a fine-tuned model's export: the transformer's weights are in
#: the export's model.safetensors, after this prefix
IN_FINE_TUNED = "kepl_in_fine_tuned"


def fill_fine_tuned(model: nn.Module, folder: Path) -> None:
    """Fill the encoder of a fine-tuned model, in `folder`, with its weights. Raises InputError
    where they do not fit."""
    file = folder.parent / "model.safetensors"
    prefix = getattr(model.config, IN_FINE_TUNED)
    try:
        with safe_open(file, "pt") as weights:
            state = {key: weights.get_tensor(f"{prefix}{key}") for key in model.state_dict()}
        check_finite(str(file), state.items())
        model.load_state_dict(state)
    except (OSError, RuntimeError, SafetensorError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{file}: not the weights of {folder}'s encoder ({reason}). Export the run again."
        ) from error


def set_dropout(module: nn.Module, p: float) -> None:
    """Set the probability of every dropout in `module`."""
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = p
        elif isinstance(part, nn.MultiheadAttention):
            part.dropout = p


def explain_missing(name: str, error: Exception) -> InputError:
    return InputError(
        f"encoder {name!r}: neither a folder with config.json and weights nor a model of the hub. "
        f"Check the path, or the name and the network. ({str(error).splitlines()[0]})"
    )


#: types of models whose tokens see only those before them: a name's vector is its last token's
DECODERS = frozenset({"gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "opt"})


def load_transformer(
    name: str, attention: str = "sdpa", dropout: float | None = None
) -> PreTrainedModel:
    """The transformer in folder `name`, or of the hub model `name`, whatever its type, in float32
    and without pooler; of an encoder-decoder (T5, BART) the encoder.

    dropout: its probability everywhere; None: the model's own.
    Raises InputError when it cannot be had, or transformers has no model of the type that returns
    a state for each token.
    """
    try:
        config = load(AutoConfig, name)
    except (OSError, ValueError) as error:
        raise explain_missing(name, error) from error
    if isinstance(config, BertConfig):
        return load_bert(name, attention, dropout)
    options: dict[str, Any] = {"config": config, "dtype": torch.float32}
    has_encoder = type(config) in MODEL_FOR_TEXT_ENCODING_MAPPING  # T5's, without its decoder
    kind = AutoModelForTextEncoding if has_decoder(config) and has_encoder else AutoModel
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        if hasattr(config, IN_FINE_TUNED):
            loaded: Any = kind.from_config(config)
            model = text_part(loaded).eval()
            fill_fine_tuned(model, Path(find_pretrained(name)))
        elif hasattr(config, TEXT_PART):
            model = text_part(kind.from_config(config)).eval()
            weights = Path(find_pretrained(name)) / "model.safetensors"
            model.load_state_dict(read_tensors(weights, "Fetch them again."))
        else:
            loaded, report = load(kind, name, output_loading_info=True, **options)
            model = text_part(loaded)
            if missing := [k for k in report["missing_keys"] if "pooler" not in k]:
                raise InputError(
                    f"encoder {name!r}: its weights lack {sorted(missing)[:3]}; this is no whole"
                    f" {config.model_type} of the shape that its config.json describes"
                )
    except InputError:
        raise
    except (KeyError, ValueError, AttributeError) as error:
        raise InputError(
            f"encoder {name!r}: a {config.model_type} model, of which transformers makes no encoder"
            f" of text ({str(error).splitlines()[0]})"
        ) from error
    except OSError as error:
        raise explain_missing(name, error) from error
    finally:
        logging.set_verbosity(verbosity)
    if dropout is not None:
        set_dropout(model, dropout)
    return model


#: key of the config.json of the encoder of an encoder-decoder for which transformers has no class:
#: model.safetensors has the names of the encoder's own weights
TEXT_PART = "kepl_text_part"


def save_transformer(model: PreTrainedModel, folder: str | Path) -> None:
    """Write a transformer so that :func:`load_transformer` reads it, and ``AutoModel``, too, where
    transformers has a class for it: it has none for the encoder of a BART alone."""
    config: Any = model.config
    if not has_decoder(config):
        model.save_pretrained(folder)
        return
    kind = MODEL_FOR_TEXT_ENCODING_MAPPING.get(type(config), None)
    if kind is not None:
        whole: Any = kind(config)  # type: ignore[operator]
        whole.encoder.load_state_dict(model.state_dict())
        whole.save_pretrained(folder)
        return
    settings = type(config).from_dict(config.to_dict() | {TEXT_PART: True})
    settings.architectures = None
    settings.save_pretrained(folder)
    state = {k: v.detach().cpu().contiguous().clone() for k, v in model.state_dict().items()}
    save_file(state, Path(folder) / "model.safetensors", metadata={"format": "pt"})


def initial_deviation(config: Any) -> float:
    """The standard deviation with which a model's weights start, under any of its names; 0.02 of
    one that does not say."""
    deviation = getattr(config, "initializer_range", None) or getattr(config, "init_std", None)
    return float(deviation or 0.02)


def has_decoder(config: Any) -> bool:
    """Whether it is an encoder-decoder's, also where the encoder alone was saved (T5)."""
    return config.is_encoder_decoder or getattr(config, "num_decoder_layers", None) is not None


def text_part(model: Any) -> PreTrainedModel:
    """What of a model makes the states of a text: of an encoder-decoder the encoder, and no pooler,
    which no state needs and which would wait for gradients."""
    part = model
    if has_decoder(model.config) and hasattr(model, "get_encoder"):
        part = model.get_encoder()
    if getattr(part, "pooler", None) is not None:
        part.pooler = None
    return part  # type: ignore[no-any-return]


def token_limit(config: Any) -> int:
    """The most tokens of a text, special ones included: positions of the model, without those that
    RoBERTa and its kin keep for padding; 512 where it has relative ones and names no number."""
    limit = getattr(config, "max_position_embeddings", None) or 512
    families = ("roberta", "camembert", "longformer", "mpnet", "xlm-roberta", "xmod", "esm")
    reserved = 2 if any(family in config.model_type for family in families) else 0
    return int(limit) - reserved


#: {type: (encoder, masked LM)} of the models whose layers are BERT's, and are run one by one
LAYERED: dict[str, tuple[type[PreTrainedModel], type[PreTrainedModel]]] = {
    "bert": (BertModel, BertForMaskedLM),
    "roberta": (RobertaModel, RobertaForMaskedLM),
    "camembert": (CamembertModel, CamembertForMaskedLM),
    "xlm-roberta": (XLMRobertaModel, XLMRobertaForMaskedLM),
}


def load_bert(name: str, attention: str = "sdpa", dropout: float | None = None) -> BertModel:
    """The BERT in folder `name`, or of the hub model `name`, in float32 and without pooler; or a
    RoBERTa, whose layers are the same and whose attributes have the same names.

    dropout: its probability everywhere; None: the model's own.
    Raises InputError when it cannot be had or is none of :data:`LAYERED`. Reads safetensors, or a
    .bin file with weights only.
    """
    try:
        config = load(AutoConfig, name)
    except (OSError, ValueError) as error:
        raise explain_missing(name, error) from error
    if config.model_type not in LAYERED:
        raise InputError(
            f"encoder {name!r}: a {config.model_type} model; this paper needs a BERT or RoBERTa"
            f" (config.json with model_type {', '.join(LAYERED)}), whose layers it runs one by one."
            " Other types are read by fine-tuning, SapBERT, rerankers, embed and link."
        )
    kind: Any = LAYERED[config.model_type][0]
    if hasattr(config, IN_FINE_TUNED):
        return _fine_tuned_bert(Path(find_pretrained(name)), config, attention, dropout)
    verbosity = logging.get_verbosity()
    # the pooler that is left out is no news; what is missing is checked below
    logging.set_verbosity_error()
    try:
        loaded: Any = load(
            kind,
            name,
            config=config,
            dtype=torch.float32,
            add_pooling_layer=False,
            attn_implementation=attention,
            output_loading_info=True,
        )
    except OSError as error:
        raise explain_missing(name, error) from error
    finally:
        logging.set_verbosity(verbosity)
    bert: BertModel = loaded[0]
    report: dict[str, Any] = loaded[1]
    if report["missing_keys"]:
        raise InputError(
            f"encoder {name!r}: its weights lack {sorted(report['missing_keys'])[:3]}; this is no"
            f" whole {kind.__name__} of the shape that its config.json describes"
        )
    if dropout is not None:
        set_dropout(bert, dropout)
    return bert


def _fine_tuned_bert(folder: Path, config: Any, attention: str, dropout: float | None) -> BertModel:
    """The BERT of a fine-tuned model, whose weights are in the file of the whole model, one folder
    up."""
    kind: Any = LAYERED[config.model_type][0]
    bert: BertModel = kind._from_config(
        config, add_pooling_layer=False, attn_implementation=attention
    ).eval()
    fill_fine_tuned(bert, folder)
    if dropout is not None:
        set_dropout(bert, dropout)
    return bert
