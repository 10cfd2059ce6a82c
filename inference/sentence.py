"""How a sentence-transformers folder makes a vector of a text: read from its files.

modules.json                        the steps: Transformer, Pooling, Dense …, Normalize
<n>_Pooling/config.json             which states the vector is made of
<n>_Dense/config.json, weights      linear layers behind it
sentence_bert_config.json           max_seq_length
config_sentence_transformers.json   prompts, and the one that is put before every text
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from core.files import InputError
from core.json_files import read_json
from core.reading import excerpt
from datamodules.pretrained import find_pretrained

#: key of a Pooling config -> our name of it
MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "sqrt",
    "pooling_mode_weightedmean_tokens": "weighted",
    "pooling_mode_lasttoken": "last",
}
#: names that `pooling_mode` has in newer folders
NEW_MODES = {"mean_sqrt_len_tokens": "sqrt", "weightedmean": "weighted", "lasttoken": "last"}
#: how vectors of known models without modules.json are made, by a part of the model's name
FAMILIES = {
    "sapbert": "cls",
    "medcpt": "cls",
    "coder": "cls",
    "bge-": "cls",
    "contriever": "mean",
    "biolord": "mean",
    "gte-": "mean",
    "e5-": "mean",
}
STEPS = ("Transformer", "Pooling", "Dense", "Normalize", "Dropout")


class Sentence(NamedTuple):
    """What is done with the states of a text."""

    pooling: str
    max_length: int | None
    dense: nn.Sequential  # empty where there is none
    unit: bool  # whether its vectors have length 1
    prompt: str  # put before every text
    pools_prompt: bool  # whether the tokens of the prompt count, too
    lower: bool = False  # whether texts are read in lower case


def pool(states: Tensor, mask: Tensor, how: str) -> Tensor:
    """(N, L, H) states and (N, L) mask, 1 on what counts -> (N, H).

    cls: the first token of all; last: the last one; mean, max; sqrt: the sum divided by the root of
    the number of tokens; weighted: a mean with weights 1, 2, 3 … of the tokens' places.
    """
    if how == "cls":
        return states[:, 0]
    if how == "last":
        place = torch.arange(mask.shape[1], device=mask.device)
        last = (mask * place).argmax(1)
        return states[torch.arange(len(states), device=mask.device), last]
    weight = mask[..., None].to(states.dtype)
    if how == "max":
        return states.masked_fill(weight == 0, -torch.inf).amax(1)
    if how == "weighted":
        weight = weight * torch.arange(1, mask.shape[1] + 1, device=mask.device)[None, :, None]
    total, count = (states * weight).sum(1), weight.sum(1)
    return total / (count.sqrt() if how == "sqrt" else count)


def family_pooling(name: str) -> str | None:
    """The pooling of the family that a model's name belongs to; None for others."""
    folder_name = Path(name).name.casefold()
    return next((how for part, how in FAMILIES.items() if part in folder_name), None)


def read_sentence(name: str) -> Sentence | None:
    """How the model `name` (a folder, a package, the hub) makes vectors; None for one without
    modules.json.

    Raises InputError for a step or a pooling that is not known here.
    """
    folder = Path(find_pretrained(name))
    if not (folder / "modules.json").is_file():
        return None
    pooling, dense, unit, prompts = "", list[nn.Module](), False, True
    steps = read_json(folder / "modules.json")
    if not isinstance(steps, list) or not all(
        isinstance(step, dict) and {"type", "path"} <= step.keys() for step in steps
    ):
        raise InputError(
            f"{folder / 'modules.json'}: expected a list of steps with type and path, got"
            f" {excerpt(steps)}"
        )
    for step in steps:
        kind, place = str(step["type"]).rpartition(".")[2], folder / str(step["path"])
        if kind not in STEPS:
            raise InputError(
                f"{folder / 'modules.json'}: a step {kind}; expected {', '.join(STEPS)}. Use"
                " sentence-transformers itself for this model."
            )
        if kind == "Pooling":
            settings = read_json(place / "config.json")
            pooling = _pooling(place / "config.json", settings)
            prompts = bool(settings.get("include_prompt", True))
        elif kind == "Dense":
            dense += _dense(place)
        unit = unit or kind == "Normalize"
    versions = _read(folder / "config_sentence_transformers.json")
    chosen = (versions.get("prompts") or {}).get(versions.get("default_prompt_name")) or ""
    limits = _read(folder / "sentence_bert_config.json")
    length = limits.get("max_seq_length")
    if length is None:
        length = _read(folder / "tokenizer_config.json").get("model_max_length")
    if length is not None and not isinstance(length, int | float):
        raise InputError(
            f"{folder / 'sentence_bert_config.json'}: max_seq_length {excerpt(length)}: expected a"
            " number of tokens"
        )
    known_length = int(length) if length and length < 1e6 else None
    lower = limits.get("do_lower_case") is True
    layers = nn.Sequential(*dense)
    return Sentence(pooling or "mean", known_length, layers, unit, chosen, prompts, lower)


def _read(file: Path) -> dict[str, Any]:
    return dict(read_json(file)) if file.is_file() else {}


def _pooling(file: Path, settings: dict[str, Any]) -> str:
    stored = settings.get("pooling_mode")
    new = [stored] if isinstance(stored, str) else list(stored or [])
    modes = [NEW_MODES.get(mode, mode) for mode in new] or [
        mode for key, mode in MODES.items() if settings.get(key)
    ]
    if len(modes) != 1 or modes[0] not in MODES.values():
        raise InputError(
            f"{file}: pooling {', '.join(modes) or 'of nothing'}; expected one of"
            f" {', '.join(MODES.values())}"
        )
    return modes[0]


def _dense(folder: Path) -> list[nn.Module]:
    """A linear layer and its activation."""
    settings = read_json(folder / "config.json")
    sizes = settings.get("in_features"), settings.get("out_features")
    if not all(isinstance(size, int) for size in sizes):
        raise InputError(
            f"{folder / 'config.json'}: expected in_features and out_features, whole numbers"
        )
    layer = nn.Linear(sizes[0], sizes[1], bias=settings.get("bias", True))
    if (folder / "model.safetensors").is_file():
        state = load_file(folder / "model.safetensors")
    else:
        state = torch.load(folder / "pytorch_model.bin", weights_only=True, map_location="cpu")
    try:
        layer.load_state_dict({k.removeprefix("linear."): v for k, v in state.items()})
    except RuntimeError as error:
        raise InputError(
            f"{folder}: its weights are of other shapes than its config.json says"
            f" ({sizes[0]} to {sizes[1]})"
        ) from error
    name = str(settings.get("activation_function", "torch.nn.modules.linear.Identity"))
    kind = name.rpartition(".")[2]
    if not name.startswith("torch.nn.") or not hasattr(nn, kind):
        raise InputError(
            f"{folder / 'config.json'}: activation_function {name}: expected one of torch.nn"
        )
    return [layer, getattr(nn, kind)()]
