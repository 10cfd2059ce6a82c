"""Text encoders from a folder or the hub, and running a part of a BERT's layers.

An encoder, of whatever paper, is a module with `forward(input_ids, attention_mask, mentions=None)`
-> (B, L, hidden), and `hidden_size`, `max_length` and `resize_token_embeddings(size)`. One with
`segments = True` also accepts `second` (B, L), 1 on the second of two texts.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import (
    AutoConfig,
    BertConfig,
    BertModel,
)
from transformers.masking_utils import create_bidirectional_mask
from transformers.utils import logging

from core.artifact import check_export
from core.files import InputError
from core.tensors import read_tensors
from datamodules.pretrained import load
from models.packing import PACKED, Layout, Packing
from models.transformer_files import (
    LAYERED,
    explain_missing,
    load_bert,
    load_transformer,
    save_transformer,
    token_limit,
)

ModuleT = TypeVar("ModuleT", bound=nn.Module)

#: what :func:`bert_layer_config` copies of an encoder's settings
LAYER_SETTINGS = (
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "initializer_range",
    "layer_norm_eps",
)


def start_as_bert(std: float, *modules: nn.Module) -> None:
    """Set new parts to the values that BERT's start from: weights of linear layers and embeddings
    N(0, std), biases 0.

    std: the encoder's `initializer_range`. What is inside a module counts, too; norms keep their
        own start.
    """
    for module in modules:
        for part in module.modules():
            if isinstance(part, nn.Linear | nn.Embedding):
                nn.init.normal_(part.weight, std=std)
            if isinstance(part, nn.Linear) and part.bias is not None:
                nn.init.zeros_(part.bias)


def bert_layer_config(config: Any, **sizes: int) -> BertConfig:
    """Settings of further layers like those of an encoder, but for `sizes`."""
    settings = BertConfig(**({key: getattr(config, key) for key in LAYER_SETTINGS} | sizes))
    settings._attn_implementation = "sdpa"
    return settings


def load_mlm_head(name: str, head: nn.Module) -> bool:
    """Fill `head` (an :class:`models.heads.MLMHead`) with that of the masked LM in folder `name`;
    False if it holds none. Raises InputError for a model that cannot be had."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        kind = LAYERED[load(AutoConfig, name).model_type][1]
        loaded: Any = load(kind, name, dtype=torch.float32, output_loading_info=True)
    except OSError as error:
        raise explain_missing(name, error) from error
    finally:
        logging.set_verbosity(verbosity)
    whole, report = loaded
    heads = ("cls.predictions.transform", "lm_head.dense")
    if any(key.startswith(heads) for key in report["missing_keys"]):
        return False
    for target, source in mlm_head_parts(head, whole):
        target.load_state_dict(source.state_dict())
    with torch.no_grad():
        head.bias.copy_(mlm_bias(whole))  # type: ignore[union-attr, operator]
    return True


def mlm_head_parts(head: Any, whole: Any) -> list[tuple[nn.Module, nn.Module]]:
    """Pairs (a module of an :class:`models.heads.MLMHead`, that of a masked LM of transformers)."""
    if hasattr(whole, "lm_head"):  # RoBERTa
        return [(head.dense, whole.lm_head.dense), (head.norm, whole.lm_head.layer_norm)]
    transform = whole.cls.predictions.transform
    return [(head.dense, transform.dense), (head.norm, transform.LayerNorm)]


def mlm_bias(whole: Any) -> nn.Parameter:
    """The bias of a masked LM's words."""
    bias: nn.Parameter = (
        whole.lm_head if hasattr(whole, "lm_head") else whole.cls.predictions
    ).bias
    return bias


def save_masked_lm(bert: BertModel, head: nn.Module, folder: str | Path) -> None:
    """Write `bert` and `head` (an :class:`models.heads.MLMHead`) as a folder that
    ``AutoModelForMaskedLM`` loads."""
    kind: Any = LAYERED[bert.config.model_type][1]
    whole = kind(bert.config)
    whole.base_model.load_state_dict(bert.state_dict())
    for source, target in mlm_head_parts(head, whole):
        target.load_state_dict(source.state_dict())
    with torch.no_grad():
        mlm_bias(whole).copy_(head.bias)  # type: ignore[arg-type]
    whole.tie_weights()
    whole.save_pretrained(folder)


def attention_mask_4d(bert: Any, states: Tensor, attention_mask: Tensor | Layout) -> Tensor | None:
    """The mask that the layers accept, from a (B, L) one; None when nothing is masked. That of a
    :class:`Layout` is not read."""
    packed = isinstance(attention_mask, Layout)
    if isinstance(attention_mask, Layout):
        if attention_mask.whole:
            return None
        attention_mask = attention_mask.mask
    mask: Tensor | None = create_bidirectional_mask(
        config=bert.config,
        inputs_embeds=states,
        attention_mask=attention_mask,
        allow_is_bidirectional_skip=not packed,  # transformers reads the whole mask to find out
    )  # type: ignore[assignment]  # flex attention's BlockMask is not used here
    return mask


def layers_mask(
    bert: BertModel, states: Tensor, attention_mask: Tensor | Layout
) -> Tensor | Packing | None:
    """What :func:`through_layers` accepts for a (B, L) mask: a :class:`Packing` where the encoder's
    `attention` is "packed".

    Only of a training batch that has padding (:class:`Layout`); else the mask of
    :func:`attention_mask_4d`.
    """
    packs = bert.config._attn_implementation == PACKED
    if not packs or not isinstance(attention_mask, Layout) or attention_mask.whole:
        return attention_mask_4d(bert, states, attention_mask)
    offsets = nn.functional.pad(attention_mask.mask.sum(1).cumsum(0), (1, 0))
    return Packing(attention_mask.tokens, offsets, attention_mask.mask.shape[1])


def through_layers(
    bert: BertModel, states: Tensor, mask: Tensor | Packing | None, first: int, last: int
) -> Tensor:
    """`states` (B, L, H) after layers [first, last); of a packing padding passes through none of
    them, and is 0 after them."""
    if isinstance(mask, Packing) and first < last:
        flat = states.flatten(0, 1)
        packed = flat[mask.tokens][None]  # (1, T, H)
        for layer in bert.encoder.layer[first:last]:
            packed = layer(packed, mask)
        return packed.new_zeros(flat.shape).index_copy(0, mask.tokens, packed[0]).view_as(states)
    for layer in bert.encoder.layer[first:last]:
        states = layer(states, mask)
    return states


def layer_at(layer: nn.Module, states: Tensor, attention_mask: Tensor, places: Tensor) -> Tensor:
    """What BERT's `layer` makes of `states` (B, L, H) at `places` (B, m) only, (B, m, H): of a last
    layer no more is wanted.

    attention_mask (B, L). Keys and values are of all positions, everything else of m. For
    inference: dropout is left out.
    """
    attention: Any = layer.attention
    selected = states.gather(1, places[..., None].expand(-1, -1, states.shape[-1]))
    heads = (-1, attention.self.attention_head_size)
    query = attention.self.query(selected).unflatten(-1, heads).transpose(1, 2)
    key = attention.self.key(states).unflatten(-1, heads).transpose(1, 2)
    value = attention.self.value(states).unflatten(-1, heads).transpose(1, 2)
    seen = None if attention_mask.all() else attention_mask.bool()[:, None, None, :]
    read = scaled_dot_product_attention(
        query, key, value, attn_mask=seen, scale=attention.self.scaling
    )
    result: Tensor = layer.feed_forward_chunk(
        attention.output(read.transpose(1, 2).flatten(2), selected)
    )  # type: ignore[operator]
    return result


def states_at(bert: Any, input_ids: Tensor, attention_mask: Tensor, places: Tensor) -> Tensor:
    """(B, L) ids and mask, (B, m) positions -> (B, m, H): a BERT's last states there. For
    inference."""
    last = len(bert.encoder.layer) - 1
    states = bert.embeddings(input_ids=input_ids)
    states = through_layers(bert, states, attention_mask_4d(bert, states, attention_mask), 0, last)
    return layer_at(bert.encoder.layer[last], states, attention_mask, places)


def embed_tokens(bert: BertModel, input_ids: Tensor, second: Tensor | None = None) -> Tensor:
    """(B, L) ids -> (B, L, H) before the first layer. second: (B, L) 1 on the second of two texts,
    which a model of one kind of segments, as RoBERTa, does not tell apart."""
    types = second if bert.config.type_vocab_size > 1 else None
    states: Tensor = bert.embeddings(input_ids=input_ids, token_type_ids=types)
    return states


def last_states(
    bert: BertModel,
    input_ids: Tensor,
    attention_mask: Tensor | Layout,
    second: Tensor | None = None,
) -> Tensor:
    """(B, L) ids and mask -> (B, L, H) of all layers. second: (B, L) 1 on the second of two texts,
    where the BERT supports two."""
    states = embed_tokens(bert, input_ids, second)
    return through_layers(
        bert, states, layers_mask(bert, states, attention_mask), 0, len(bert.encoder.layer)
    )


def knowledge_layer(wanted: int | None, layers: int, of_twelve: int = 10) -> int:
    """After how many layers knowledge comes in: `wanted`, or the paper's `of_twelve` of 12 as a
    share of `layers`.

    Raises InputError when an encoder has no such layer.
    """
    place = max(1, round(layers * of_twelve / 12)) if wanted is None else wanted
    if not 0 < place <= layers:
        raise InputError(f"knowledge_after {place}: expected 1 to {layers}, the encoder's layers")
    return place


def write_export(
    folder: str | Path,
    paper: str,
    encoder: nn.Module,
    settings: dict[str, Any],
    further: dict[str, nn.Module] | None = None,
) -> None:
    """Write an encoder's BERT as a Hugging Face folder (``AutoModel`` loads it) and the rest beside
    it, into `folder`.

    The rest is <paper>.safetensors, with the modules `further` under their names, and <paper>.json,
    `settings`.
    """
    bert: Any = encoder.bert
    save_transformer(bert, folder)
    state = {k: v for k, v in encoder.state_dict().items() if not k.startswith("bert.")}
    for name, module in (further or {}).items():
        state |= {f"{name}.{k}": v for k, v in module.state_dict().items()}
    save_file(
        {k: v.detach().cpu().contiguous() for k, v in state.items()},
        Path(folder) / f"{paper}.safetensors",
    )
    (Path(folder) / f"{paper}.json").write_text(json.dumps(settings, indent=1) + "\n")


def read_export(
    folder: str | Path,
    paper: str,
    title: str,
    settings: Sequence[str],
    make: Callable[..., ModuleT],
) -> ModuleT:
    """The encoder that :func:`write_export` wrote: `make` (bert, entity vectors, each of
    `settings`), filled.

    A setting that came after the export was written has its default, which is what the encoder did
    then. Raises InputError when a file or a weight is missing, or is not as it was written.
    """
    folder = Path(folder)
    for name in (f"{paper}.safetensors", f"{paper}.json", "config.json"):
        if not (folder / name).is_file():
            raise InputError(
                f"{folder / name}: missing; this is no {title} export. Export the run again."
            )
    check_export(folder)
    state = read_tensors(folder / f"{paper}.safetensors", "Export the run again.")
    stored = json.loads((folder / f"{paper}.json").read_text())
    encoder = make(
        load_bert(str(folder)), state["entity"], **{k: stored[k] for k in settings if k in stored}
    )
    missing = [
        k
        for k in encoder.load_state_dict(state, strict=False).missing_keys
        if not k.startswith("bert.")
    ]
    if missing:
        raise InputError(f"{folder}/{paper}.safetensors: missing {missing}. Export the run again.")
    return encoder


class TextEncoder(nn.Module):
    """Any transformer that has a state for each token, as an encoder; `name` is a folder or hub
    name, as :func:`load_transformer` accepts it.

    `bert` is the transformer, whatever its type. Of a BERT, training steps may leave the padding
    out.
    """

    def __init__(self, name: str, attention: str = "sdpa") -> None:
        super().__init__()
        self.bert = load_transformer(name, attention)
        config = self.bert.config
        self.hidden_size: int = config.hidden_size
        self.max_length = token_limit(config)
        self.segments = isinstance(self.bert, BertModel) or (
            getattr(config, "type_vocab_size", 0) > 1
            and "token_type_ids" in inspect.signature(self.bert.forward).parameters
        )

    def resize_token_embeddings(self, size: int) -> None:
        """Make room for `size` tokens; new rows start as the model's do."""
        self.bert.resize_token_embeddings(size)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | Layout,
        mentions: Any = None,
        second: Tensor | None = None,
    ) -> Tensor:
        """(B, L) ids and mask -> (B, L, H)."""
        if isinstance(self.bert, BertModel):
            return last_states(self.bert, input_ids, attention_mask, second)
        mask = attention_mask.mask if isinstance(attention_mask, Layout) else attention_mask
        kinds = {} if second is None or not self.segments else {"token_type_ids": second}
        output: Tensor = self.bert(
            input_ids=input_ids, attention_mask=mask, **kinds
        ).last_hidden_state
        return output
