"""Recipes: what fine-tuning needs to know of a paper's encoders, experiments/<paper>/encoder.yaml.

load    dotted name, in `models`, of what makes the encoder of an export folder
linker  dotted name, in `datamodules`, of what makes its mentions, if it asks for them
stem    the run that the bare name means
small   settings that fine-tuning in PROFILE=small changes for it; under the name of a head
        (PairClassifier), those of the tasks with that head
masked_lm  dotted name, in `models`, of what fills masks with it; without the key, a masked LM
           in the usual layout
options    settings of `make finetune` that this encoder alone supports, numbers:
           {HITS: {setting: <config key>, help: …}}
"""

from __future__ import annotations

from typing import Any, NamedTuple

import yaml

from core.tracking import ROOT
from datamodules.pretrained import PACKAGED
from datamodules.untrained import UNTRAINED


def recipes() -> list[str]:
    """Names of experiments/ that say how their export is loaded."""
    return sorted(p.parent.name for p in (ROOT / "experiments").glob("*/encoder.yaml"))


def model_names() -> str:
    """The names that need no folder and no hub, for messages."""
    return ", ".join([*recipes(), *sorted([*PACKAGED, *UNTRAINED])])


def read_recipe(paper: str) -> dict[str, Any]:
    recipe: dict[str, Any] = yaml.safe_load(
        (ROOT / "experiments" / paper / "encoder.yaml").read_text()
    )
    return recipe


def default_stem(paper: str) -> str | None:
    """The run that a paper's bare name means."""
    return read_recipe(paper).get("stem")


class OwnOption(NamedTuple):
    """A setting of `make finetune` that only some encoders support."""

    name: str
    help: str


def own_options() -> list[OwnOption]:
    """Every option that a recipe names."""
    options = []
    for paper in recipes():
        for name, option in read_recipe(paper).get("options", {}).items():
            options.append(OwnOption(name, option["help"]))
    return options


def options() -> dict[str, list[str]]:
    """{setting of `make finetune` that only some encoders support: the recipes that name it}."""
    papers: dict[str, list[str]] = {}
    for paper in recipes():
        for setting in read_recipe(paper).get("options", {}):
            papers.setdefault(setting, []).append(paper)
    return papers
