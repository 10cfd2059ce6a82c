"""Fine-tuned models in the layout of transformers.

A fine-tuned model's model.safetensors has the transformer's weights under transformers' names, so
that ``AutoModel`` loads it, whatever the head; a flat tagger over a plain encoder is a whole
``AutoModelForTokenClassification``. What these classes have no place for (a CRF, a recurrent layer,
tables of entities) is in the same file under our names, which they leave out: of a tagger with a
CRF, transformers' pipeline takes each token's best label instead of the best sequence.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING, PreTrainedModel
from transformers.utils import logging

from models.encoders import TextEncoder
from models.finetune import Finetuning, Tagger

#: names of the linear layer over the states, ours and that of transformers' token classifiers
LINEAR, CLASSIFIER = "head.linear.", "classifier."


def transformer_prefix(transformer: PreTrainedModel) -> str:
    """What transformers puts before the names of a transformer's weights in a model with a head
    ("bert."); "" where it has no such name."""
    name = type(transformer).base_model_prefix
    return f"{name}." if name else ""


def file_names(module: nn.Module) -> dict[str, str]:
    """{name of a weight of a fine-tuned model (models.finetune.Finetuning): its name in
    model.safetensors}."""
    encoder: Any = module.encoder
    prefix = transformer_prefix(encoder.bert)
    tags = isinstance(module.head, Tagger)
    names = {}
    for key in module.state_dict():
        if key.startswith("encoder.bert."):
            names[key] = prefix + key.removeprefix("encoder.bert.")
        elif tags and key.startswith(LINEAR):
            names[key] = CLASSIFIER + key.removeprefix(LINEAR)
        else:
            names[key] = key
    return names


def token_classifier(module: Finetuning) -> type[PreTrainedModel] | None:
    """The class of transformers that a fine-tuned model is, a CRF left out; None where there is
    none: another head than a tagger's, a recurrent layer, an encoder with knowledge, or a class
    with more than one linear layer over the states."""
    encoder = module.encoder
    if not isinstance(module.head, Tagger) or type(encoder) is not TextEncoder or module.recurrent:
        return None
    config = encoder.bert.config
    kind: Any = MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING.get(type(config), None)
    if kind is None:
        return None
    with torch.device("meta"), quiet():
        whole = kind(config)
    prefix = transformer_prefix(encoder.bert)
    expected = {prefix + key for key in encoder.bert.state_dict()}
    layer = {f"{CLASSIFIER}weight", f"{CLASSIFIER}bias"}
    return kind if set(whole.state_dict()) == expected | layer else None


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings of transformers."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


def save_config(module: Finetuning, labels: Sequence[str], folder: str | Path) -> None:
    """Write the config.json with which transformers loads a fine-tuned model's model.safetensors.

    labels: entity types of a tagger, or classes.
    """
    transformer: Any = module.encoder.bert  # type: ignore[union-attr]
    kind = token_classifier(module)
    settings = transformer.config.to_dict()
    if kind is not None:
        tags = ["O", *(f"{place}-{label}" for label in labels for place in "BI")]
        settings |= {
            "id2label": dict(enumerate(tags)),
            "label2id": {tag: number for number, tag in enumerate(tags)},
        }
    config = type(transformer.config).from_dict(settings)
    config.architectures = [(kind or type(transformer)).__name__]
    config.save_pretrained(folder)
