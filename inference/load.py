"""What links with a model: by the encoder's vectors, or as inference/<paper>.yaml says (`links`);
and what a name of a tagger means, of one that was fine-tuned here or of others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import yaml

from core.dotted import import_object
from core.files import InputError
from core.typed import check_types
from experiments.finetuned_names import is_fine_tuned
from experiments.names import Encoder, encoder, may_be_hub_name
from inference.entity_tagger import EntityTagger
from inference.linkers import Linker, Names
from inference.options import LinkerOptions, Work

if TYPE_CHECKING:
    from inference.taggers import PairModel, Ranker, RelationModel

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


@check_types
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
    make: Callable[[Encoder, LinkerOptions], Linkable] = import_object(name, "inference")
    return make(chosen, options)


def load_entity_tagger(
    name: str | Path, *, device: str = "cpu", precision: Literal["fp32", "bf16"] = "fp32"
) -> EntityTagger:
    """What finds entities by a name: a fine-tuned tagger, or a token classifier of others. Raises
    InputError for a model of another kind, as :func:`load_tagger` and
    :func:`inference.classifiers.load_token_classifier`."""
    model = load_model(name, device=device, precision=precision)
    if not isinstance(model, EntityTagger):
        raise InputError(
            f"{name}: a model of kind {model.kind}; expected a tagger (kind ner or nested) to find"
            " mentions"
        )
    return model


def load_model(
    name: str | Path, *, device: str = "cpu", precision: Literal["fp32", "bf16"] = "fp32"
) -> EntityTagger | RelationModel | PairModel | Ranker:
    """The model that a name means: fine-tuned here, or a token classifier in a folder or of the
    hub. Raises InputError as :func:`load_tagger`."""
    if not is_fine_tuned(str(name)) and (Path(name).is_dir() or may_be_hub_name(str(name))):
        from inference.classifiers import load_token_classifier

        return load_token_classifier(str(name), device, precision)
    from inference.taggers import load_tagger

    return load_tagger(name, device=device, precision=precision)
