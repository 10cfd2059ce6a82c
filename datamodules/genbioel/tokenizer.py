"""A byte-level BPE tokenizer of a graph's names and definitions, as a BART's that ``AutoTokenizer``
loads.

<s>, <pad>, </s>, <unk> and <mask> are 0 to 4; the words that samples are made of (START, END, is,
the templates') are one token each with the blank before them, as long as the vocabulary holds more
than the 256 bytes and those.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerFast

from core.artifact import Artifact
from core.files import InputError
from datamodules.contexts import END, START
from datamodules.genbioel.inputs import Inputs, plain
from datamodules.genbioel.templates import TEMPLATES
from datamodules.tokenizers import (
    BPE_SPECIAL,
    byte_level_bpe,
    load_tokenizer,
    tokenizer_fingerprint,
)
from kg.graph import KnowledgeGraph, fingerprint

FORMAT = 1
TOKENIZER = Artifact("tokenizer", "kepl data tokenizer --help", FORMAT, ("recipe",), "")
OFTEN = 1000  # each of the samples' own words counts as often as a frequent word of the texts


def train_tokenizer(texts: Iterable[str], size: int) -> PreTrainedTokenizerFast:
    """A tokenizer of at most `size` tokens, learnt from lower-cased texts. Raises InputError for
    too small a size."""
    templates = " ".join(template.words for template in TEMPLATES)
    words = sorted({*templates.split(), START, END})
    pieces = sum(len(word) for word in words)  # merges that make each of them one token, at most
    if size < len(BPE_SPECIAL) + 256 + pieces:
        raise InputError(
            f"--size {size}: expected at least {len(BPE_SPECIAL) + 256 + pieces}, the bytes and the"
            " samples' own words"
        )

    def training_texts() -> Iterator[str]:
        for word in words:
            yield from repeat(f" {word}", OFTEN)
        yield from (f" {plain(text)}" for text in texts)

    return byte_level_bpe(training_texts(), size)


def graph_texts(graph: KnowledgeGraph) -> Iterator[str]:
    for table, column in ((graph.names, "name"), (graph.definitions, "text")):
        for chunk in table[column].chunks:
            for value in chunk:
                yield value.as_py()


def build_tokenizer(graph: list[str], out: str, size: int = 8000, fresh: bool = False) -> Path:
    """Train a BART tokenizer of the names and definitions of graphs. Returns its folder.

    Args:
        graph: Folders of knowledge graphs.
        out: Folder for the tokenizer.
        size: Tokens of its vocabulary at most.
        fresh: Build again even if it is there.

    Raises InputError when `out` holds something else.
    """
    folder = Path(out)
    recipe = {"format": FORMAT, "graphs": [fingerprint(g) for g in graph], "size": size}
    if TOKENIZER.is_kept(folder, {"recipe": recipe}, fresh):
        return folder
    loaded = [KnowledgeGraph.load(g) for g in graph]
    tokenizer = train_tokenizer(chain.from_iterable(map(graph_texts, loaded)), size)
    manifest: dict[str, Any] = {"recipe": recipe}
    with TOKENIZER.create(folder, manifest) as partial:
        tokenizer.save_pretrained(partial)
        again = load_tokenizer(str(partial))
        Inputs(again)  # raises unless " is" is one token
        manifest["counts"] = {"tokens": len(again)}
        manifest["fingerprint"] = tokenizer_fingerprint(again)
    return folder
