"""Options of EMBERT's figures. Importing them loads no model library."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from core.files import InputError
from core.tracking import runs_folder

#: of `make pretrain-embert`, in runs/data
FOLDERS = {
    "linked_text": "embert-small/linked",
    "graph": "embert-small/segments/vocabulary",
    "thesaurus": "embert-small/thesaurus",
    "segments": "embert-small/segments",
}


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What the sentences are drawn from. Default: what `make pretrain-embert` made.

    Args:
        linked_text: Folder of linked text.
        graph: Folder of the graph.
        thesaurus: Folder of the graph's synonyms.
        segments: Folder of the graph's segmented names.
    """

    linked_text: Path | None = None
    graph: Path | None = None
    thesaurus: Path | None = None
    segments: Path | None = None

    def folders(self) -> dict[str, Path]:
        """{input: its folder}."""
        usual = runs_folder() / "data"
        names = [field.name for field in fields(self)]
        return {name: getattr(self, name) or usual / FOLDERS[name] for name in names}


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Which sentences are drawn.

    Args:
        sentences: Sentences, of an entity one at most.
        window: Characters of a sentence.
        least: Least characters of a sentence's context.
        seed: Seed of what is drawn.
    """

    sentences: int = 500
    window: int = 128
    least: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        if self.sentences < 1:
            raise InputError(f"SENTENCES={self.sentences}: expected a number of at least 1")


@dataclass(frozen=True, kw_only=True)
class Panels:
    """What of the encoders and sentences is shown.

    Args:
        layer2: Layer of Figure 2, from 1. Default: at the paper's share of the depth.
        layer3: Layer of Figure 3, from 1. Default: at the paper's share of the depth.
        pick2: Row of the sentence drawn in Figure 2. Default: the median.
        pick3: Row of the sentence drawn in Figure 3. Default: the median.
    """

    layer2: int | None = None
    layer3: int | None = None
    pick2: int | None = None
    pick3: int | None = None
