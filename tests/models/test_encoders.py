"""models.encoders: what new parts start from. Loading and layers are tested with the papers that
call them."""

from __future__ import annotations

import torch
from torch import nn

from models.encoders import start_as_bert


def test_new_parts_start_as_berts_do() -> None:
    """Weights are drawn with the encoder's deviation at every depth, biases are 0, norms and what
    is not named stay."""
    torch.manual_seed(0)
    norm = nn.LayerNorm(300)
    nn.init.constant_(norm.weight, 3.0)
    inner = nn.Linear(300, 300, bias=False)
    named = nn.Sequential(
        nn.Linear(300, 300), nn.Tanh(), nn.ModuleList([nn.Embedding(300, 300), inner]), norm
    )
    other = nn.Linear(300, 300)
    before = other.weight.clone()
    single = nn.Linear(300, 300)
    start_as_bert(0.05, named, single)
    for weight in (
        w.detach() for w in (named[0].weight, named[2][0].weight, inner.weight, single.weight)
    ):
        assert abs(float(weight.std()) - 0.05) < 0.001 and abs(float(weight.mean())) < 0.001
    assert not named[0].bias.any() and not single.bias.any()
    assert bool((norm.weight == 3.0).all()) and torch.equal(other.weight, before)
