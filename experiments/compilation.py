"""Training with parts of the encoder's layers compiled.

    make pretrain-kebiolm PROFILE=paper
        ARGS="--trainer.callbacks+ experiments.compilation.CompiledLayers"

What is not compiled is attention, so this goes with padded and with packed rows. A compiled dropout
draws other numbers than torch's: with dropout, two runs of one seed agree only when both are
compiled or neither is.
"""

from __future__ import annotations

import pytorch_lightning as pl
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from core.files import InputError

#: parts of a BERT's layer: products with what is computed place by place between them
PARTS = ("attention.output", "intermediate", "output")


def compile_layers(module: nn.Module) -> int:
    """Compile PARTS of every transformer layer in `module`, for any number of tokens. Returns how
    many layers have them."""
    layers = [part for part in module.modules() if isinstance(part, GradientCheckpointingLayer)]
    count = 0
    for layer in layers:
        names = {name for name, _ in layer.named_modules()}
        if names.issuperset(PARTS):
            count += 1
            for name in PARTS:
                layer.get_submodule(name).compile(dynamic=True)
    return count


class CompiledLayers(pl.Callback):
    """Compiles a model's layers before it is trained. Raises InputError for a model without a
    BERT's layers."""

    def on_fit_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if not compile_layers(module):
            raise InputError(
                f"{type(module).__name__}: no layers of a BERT to compile; leave"
                " experiments.compilation.CompiledLayers out of --trainer.callbacks"
            )
