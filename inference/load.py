"""What links with a model: by the encoder's vectors, or as inference/<paper>.yaml says
(`links`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import yaml

from core.dotted import imported
from core.typed import typed
from experiments.names import Encoder, encoder
from inference.linkers import Linker, Names
from inference.options import LinkerOptions, Work

EMBEDDER = "inference.encoders.embedder"


class Linkable(Protocol):
    """A model that links with any dictionary.

    identity  the same for the same weights
    settings  everything that decides a ranking, beside mention, context and dictionary
    uses      the fields of LinkerOptions that it has a use for
    options   what distinguishes it from the same model used otherwise; a result's label contains it
    on        the linker of a dictionary; `work`: who encodes its names, where it needs their
              vectors
    """

    identity: str
    uses: frozenset[str]

    @property
    def settings(self) -> dict[str, Any]: ...

    @property
    def options(self) -> dict[str, Any]: ...

    def on(self, names: Names, work: Work = ...) -> Linker: ...


@typed
def linkable(
    name: str, options: LinkerOptions | None = None, checkpoint: str | None = None
) -> Linkable:
    """What links with the model that `name` means. Raises InputError as
    :func:`experiments.names.encoder`."""
    return linkable_of(encoder(name, checkpoint), options or LinkerOptions())


def linkable_of(chosen: Encoder, options: LinkerOptions) -> Linkable:
    """What links with an encoder."""
    recipe = Path(__file__).parent / f"{chosen.paper}.yaml"
    name = yaml.safe_load(recipe.read_text())["links"] if recipe.is_file() else EMBEDDER
    make: Callable[[Encoder, LinkerOptions], Linkable] = imported(name, "inference")
    return make(chosen, options)
