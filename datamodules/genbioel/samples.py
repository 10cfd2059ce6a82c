"""Samples of KB-guided pre-training from any graph (Yuan et al., NAACL 2022, Section 2.2,
Appendices E.1 and E.2).

    names.parquet      name                  every distinct normalised string, sorted; its row is
                                             its number
    concepts.parquet   id                    likewise for concepts, in the graphs' order
    name-tokens.npy, name-offsets.npy        tokens of the names, a blank before each; likewise
                                             definition-*
    members.npy        (rows, 2)             concept, name: a training sample each, with the name as
                                             target
    held_out.npy       (rows, 2)             concept, name: names that no training sample holds, the
                                             mentions of validation
    described.npy      (definitions,)        concept of each definition, ascending

What a sample looks like (which other name is its mention, which template, which context) is drawn
when it is read, by (seed, epoch, sample).
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from transformers import PreTrainedTokenizerFast

from core.files import InputError
from datamodules.genbioel.concept_names import left_to_one, normalise_names
from datamodules.genbioel.inputs import Inputs
from datamodules.genbioel.store import FORMAT, SAMPLES, Rows, array, manifest_of, save_rows
from datamodules.genbioel.templates import DEFINITION, SAME, SYNONYMS, TEMPLATES, Template
from datamodules.graph_names import NameSource, number_texts, read_list, shuffle_rich
from datamodules.tokenizers import (
    load_tokenizer,
    token_rows,
    token_rows_in_parts,
    tokenizer_fingerprint,
)
from kg.graph import KnowledgeGraph
from kg.search.names import BIOSYN, normaliser

DEFINITIONS = 2  #: of a concept at most, the first ones; not in the paper, the released code's
OTHERS = 3  #: other names in a context at most, likewise


class Drawn(NamedTuple):
    """A sample by the numbers of its parts."""

    mention: int
    target: int
    template: Template
    definition: int | None  # the context c_e is this definition,
    context: list[int]  # or these names


def draw_example(
    own_names: np.ndarray,
    definitions: np.ndarray,
    target: int | None,
    mention: int | None,
    rng: np.random.Generator,
    few: int,
) -> Drawn:
    """Section 2.2 and Table 10: mention, template and context for a `target` of a concept with the
    names `own_names`.

    A mention is another name than the target where there is one. With a definition it is the
    context; without, up to OTHERS names that are neither mention nor target are; of a concept with
    at most `few` names, the target is (E.2).
    target None: drawn; mention given (validation): that one, which is not in `own_names`.
    """
    if target is None:
        target = int(own_names[rng.integers(len(own_names))])
    if mention is None:
        others = own_names[own_names != target]
        mention = int(others[rng.integers(len(others))]) if len(others) else target
    if len(definitions):
        template = DEFINITION[rng.integers(len(DEFINITION))]
        return Drawn(
            mention, target, template, int(definitions[rng.integers(len(definitions))]), []
        )
    if len(own_names) > few:
        others = own_names[(own_names != target) & (own_names != mention)]
        others = (
            others if len(others) else own_names[own_names != mention]
        )  # two names, where `few` is 1
        chosen = rng.permutation(others)[:OTHERS]
        if len(chosen):
            return Drawn(
                mention, target, SYNONYMS[rng.integers(len(SYNONYMS))], None, chosen.tolist()
            )
    return Drawn(mention, target, SAME[rng.integers(len(SAME))], None, [target])


class GraphSamples:
    """A folder that :func:`build_samples` wrote, memory-mapped. `few`: as in :func:`draw_example`.

    Raises InputError when it is none, or of another tokenizer.
    """

    def __init__(self, folder: str | Path, inputs: Inputs, few: int = 2) -> None:
        self.folder, self.few = Path(folder), few
        self.manifest = manifest_of(folder, tokenizer_fingerprint(inputs.tokenizer))
        self.names, self.definitions = Rows(self.folder, "name"), Rows(self.folder, "definition")
        self.members, self.kept_out = array(self.folder, "members"), array(self.folder, "held_out")
        described = array(self.folder, "described")
        concepts = np.arange(self.manifest["counts"]["concepts"] + 1)
        # where each concept's rows begin
        self.first_name = np.searchsorted(self.members[:, 0], concepts)
        self.first_definition = np.searchsorted(described, concepts)
        self.train = np.arange(len(self.members))
        self.held_out = len(self.members) + np.arange(len(self.kept_out))
        words = inputs.ids([template.words for template in TEMPLATES])
        self.words = dict(zip(TEMPLATES, words, strict=True))
        self.comma = inputs.tokenizer(",", add_special_tokens=False)["input_ids"]
        concept, name = (
            np.concatenate([self.members, self.kept_out]).T
            if len(self.members)
            else (concepts[:0],) * 2
        )
        text = np.zeros(len(concepts), np.int64)  # tokens of a concept's context, about
        np.maximum.at(text, np.asarray(described), self.definitions.lengths)
        # (samples,) about, for batches of similar length
        self.lengths = self.names.lengths[name] + text[concept]

    def row(self, sample: int) -> tuple[int, int, bool]:
        """(concept, name, whether the name is a held-out mention) of a sample."""
        is_held_out = sample >= len(self.members)
        concept, name = (
            self.kept_out[sample - len(self.members)] if is_held_out else self.members[sample]
        )
        return int(concept), int(name), is_held_out

    def draw(self, sample: int, rng: np.random.Generator) -> Drawn:
        concept, name, is_held_out = self.row(sample)
        own_names = self.members[self.first_name[concept] : self.first_name[concept + 1], 1]
        definitions = np.arange(self.first_definition[concept], self.first_definition[concept + 1])
        return draw_example(
            own_names,
            definitions,
            None if is_held_out else name,
            name if is_held_out else None,
            rng,
            self.few,
        )

    def parts(
        self, sample: int, rng: np.random.Generator
    ) -> tuple[list[int], list[int], list[int], list[int]]:
        """Tokens (left, mention, right, target), as drawn by `rng`."""
        drawn = self.draw(sample, rng)
        if drawn.definition is not None:
            context = self.definitions[drawn.definition]
        else:
            context = self.names[drawn.context[0]]
            for other in drawn.context[1:]:
                context = [*context, *self.comma, *self.names[other]]
        words = self.words[drawn.template]
        left, right = (
            ([], [*words, *context]) if drawn.template.mention_first else ([*context, *words], [])
        )
        return left, self.names[drawn.mention], right, self.names[drawn.target]


class _Read(NamedTuple):
    concepts: pa.Array  # ids
    names: pa.Array  # distinct strings, sorted
    member: np.ndarray  # (rows, 2) concept, name; sorted, distinct
    definitions: pa.Array
    described: np.ndarray  # (definitions,) concept
    counts: dict[str, int]


def _is_listed(names: pa.ChunkedArray, text: pa.ChunkedArray, listed: pa.Array) -> pa.ChunkedArray:
    """Whether the list holds a name in lower case, without punctuation, or normalised (`text`)."""
    lower = pc.utf8_lower(names)
    bare = pc.utf8_trim_whitespace(pc.replace_substring_regex(lower, r"[\s[:punct:]]+", " "))
    return pc.or_(
        pc.is_in(lower, value_set=listed),
        pc.or_(pc.is_in(bare, value_set=listed), pc.is_in(text, value_set=listed)),
    )


def _read_names(
    graph: KnowledgeGraph, source: NameSource, listed: pa.Array, counts: dict[str, int]
) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """(concept id of each name, the names, normalised); names left out are counted."""
    table = source.select_names(graph.names)
    text = normalise_names(table["name"])
    empty, stays_out = pc.equal(text, ""), _is_listed(table["name"], text, listed)
    excluded = pc.and_(stays_out, pc.invert(empty))
    counts["names"] += len(graph.names)
    counts["names of other languages or kinds"] += len(graph.names) - len(table)
    counts["empty names"] += pc.sum(empty).as_py() or 0
    counts["names that --exclude_names lists"] += pc.sum(excluded).as_py() or 0
    stays = pc.invert(pc.or_(empty, stays_out))
    return table["id"].filter(stays), text.filter(stays)


def _read_definitions(
    graphs: list[KnowledgeGraph], concepts: pa.Array
) -> tuple[pa.Array, np.ndarray]:
    """(the first definitions of each concept, the concept of each, ascending)."""
    owners, texts = [np.zeros(0, np.int64)], []
    for graph in graphs:
        table = graph.definitions
        owners.append(pc.index_in(table["id"], value_set=concepts).to_numpy().astype(np.int64))
        lower = pc.utf8_lower(table["text"])
        spaced = pc.replace_substring_regex(lower, r"[\s\p{Z}]+", " ")
        texts += pc.utf8_trim_whitespace(spaced).chunks
    owner = np.concatenate(owners)
    order = np.argsort(owner, kind="stable")
    described = owner[order]
    place = np.arange(len(described)) - np.searchsorted(described, described)
    first = place < DEFINITIONS
    definitions = pa.chunked_array(texts, pa.string()).take(pa.array(order[first]))
    return definitions.combine_chunks(), described[first]


def _read(folders: Sequence[str], source: NameSource) -> _Read:
    """The names and definitions of the graphs, and whose they are."""
    graphs = [KnowledgeGraph.load(folder) for folder in folders]
    concepts = pc.unique(pa.chunked_array([graph.ids for graph in graphs]))
    rules = [normaliser(rule) for rule in ("lower", BIOSYN)]
    spellings = {rule(name) for name in read_list(source.exclude_names) for rule in rules}
    listed = pa.array(sorted(spellings), pa.string())
    counts = {
        "names": 0,
        "names of other languages or kinds": 0,
        "empty names": 0,
        "names that --exclude_names lists": 0,
    }
    owners, texts = [], []
    for graph in graphs:
        ids, rows = _read_names(graph, source, listed, counts)
        owners.append(pc.index_in(ids, value_set=concepts).to_numpy().astype(np.int64))
        texts += rows.chunks
    text = pa.chunked_array(texts, pa.string())
    if not len(text):
        raise source.report_no_names(folders)
    names, number = number_texts(text)
    owner = np.concatenate(owners)
    member = np.unique(np.stack([owner, number], 1), axis=0)
    counts["names repeated in their concept"] = len(owner) - len(member)
    definitions, described = _read_definitions(graphs, concepts)
    counts["definitions"] = len(definitions)
    return _Read(concepts, names, member, definitions, described, counts)


def _held_out(member: np.ndarray, concepts: pa.Array, most: int, seed: int) -> np.ndarray:
    """Rows of `member` to hold out: a name of at most `most` concepts and of a tenth of those that
    have three names."""
    concept, start, size = np.unique(member[:, 0], return_index=True, return_counts=True)
    if size.max() < 2:
        return np.zeros(0, np.int64)
    rich = shuffle_rich(concept, size, concepts, seed)
    chosen = rich[: min(most, max(1, len(rich) // 10))]
    return np.array(sorted(int(start[i]) + byte % int(size[i]) for i, byte in chosen), np.int64)


@dataclass(frozen=True, kw_only=True)
class SampleChoice:
    """Which samples are made of the names, and which names are held out.

    Args:
        skip_alone: Leave out concepts of one name and no definition.
        one_concept: Leave a name of several concepts to the one with the fewest names.
        max_name: Tokens of a name with its end, below.
        max_definition: Tokens of a definition that count.
        held_out: Names kept for validation at most.
        seed: Seed of the names held out.

    Raises InputError for a number that cannot be.
    """

    skip_alone: bool = False
    one_concept: bool = True
    max_name: int = 128
    max_definition: int = 700
    held_out: int = 500
    seed: int = 0

    def __post_init__(self) -> None:
        if self.held_out < 1 or self.max_name < 2 or self.max_definition < 1:
            raise InputError(
                f"--held_out {self.held_out} --max_name {self.max_name} --max_definition"
                f" {self.max_definition}: expected 1, 2, 1 or more"
            )


def _select_members(
    read: _Read, lengths: np.ndarray, choice: SampleChoice, counts: dict[str, int]
) -> np.ndarray:
    """The rows of `read.member` that samples are made of, by the `lengths` of names in tokens; what
    is left out is counted."""
    fits = (lengths > 0) & (lengths < choice.max_name)
    counts["names that have no tokens"] = int((lengths == 0).sum())
    counts[f"names of {choice.max_name} tokens and more"] = int((lengths >= choice.max_name).sum())
    member = read.member[fits[read.member[:, 1]]]
    if choice.skip_alone:
        named = np.bincount(member[:, 0], minlength=len(read.concepts))
        defined = np.bincount(read.described, minlength=len(read.concepts))
        single = (named[member[:, 0]] == 1) & (defined[member[:, 0]] == 0)
        counts["names of concepts with nothing else, left out"] = int(single.sum())
        member = member[~single]
    uses = np.bincount(member[:, 1], minlength=len(read.names))
    counts["names of several concepts"] = int((uses > 1).sum())
    if choice.one_concept:
        stays = left_to_one(member)
        counts["names taken from a concept and left to one with fewer"] = int((~stays).sum())
        before, member = member, member[stays]
        lost = len(np.unique(before[:, 0])) - len(np.unique(member[:, 0]))
        counts["concepts left without a name by that"] = lost
    return member


def _count_samples(train: np.ndarray, described: np.ndarray, concepts: int) -> dict[str, int]:
    """The concepts with and without samples and definitions."""
    size = np.bincount(train[:, 0], minlength=concepts)
    bare = np.bincount(described, minlength=concepts) == 0
    return {
        "concepts": concepts,
        "concepts without a sample": int((size == 0).sum()),
        "concepts with a definition": int((~bare & (size > 0)).sum()),
        "concepts without, of more than two names": int((bare & (size > 2)).sum()),
        "concepts without, of one or two names": int((bare & (size > 0) & (size < 3)).sum()),
    }


def _divide_members(
    read: _Read, lengths: np.ndarray, choice: SampleChoice, graphs: list[str]
) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
    """(members that are trained on, members held out, counts).

    Raises InputError when no name is left.
    """
    counts = read.counts.copy()
    member = _select_members(read, lengths, choice, counts)
    if not len(member):
        raise InputError(
            f"{', '.join(graphs)}: no name of 1 to {choice.max_name - 1} tokens is left. Take a"
            " larger --max_name."
        )
    chosen = _held_out(member, read.concepts, choice.held_out, choice.seed)
    train = np.delete(member, chosen, axis=0)
    counts |= _count_samples(train, read.described, len(read.concepts))
    counts |= {"names held out": len(chosen), "samples of an epoch": len(train)}
    return train, member[chosen], counts


def build_samples(
    graph: list[str],
    tokenizer: str,
    out: str,
    workers: int | None = None,
    fresh: bool = False,
    source: NameSource = NameSource(),
    choice: SampleChoice = SampleChoice(),
) -> Path:
    """Make samples of KB-guided pre-training of graphs. Returns their folder.

    Args:
        graph: Folders of knowledge graphs.
        tokenizer: The model's tokenizer: a folder or hub name.
        out: Folder for the samples.
        workers: Processes, for the tokens. Default: one a core.
        fresh: Build again even if they are there.

    Raises InputError when no name is left, and when `out` holds something else.
    """
    folder, loaded = Path(out), load_tokenizer(tokenizer)
    place = folder.with_name(f"{folder.name}.parts")  # of tokens, until the samples are there
    Inputs(loaded)
    recipe = {"format": FORMAT, "tokenizer": tokenizer_fingerprint(loaded)}
    recipe |= source.describe(graph) | asdict(choice)
    if SAMPLES.is_kept(folder, {"recipe": recipe}, fresh):
        shutil.rmtree(place, ignore_errors=True)
        return folder
    read = _read(graph, source)
    rows = token_rows_in_parts(read.names, loaded, place, recipe, " ", workers=workers, fresh=fresh)
    members, kept_out, counts = _divide_members(read, np.diff(rows[1]), choice, graph)
    arrays = {"members": members, "held_out": kept_out, "described": read.described}
    text = (read.concepts, read.names, rows, read.definitions)
    manifest = {"recipe": recipe, "counts": counts}
    _write(folder, loaded, text, choice.max_definition, arrays, manifest)
    shutil.rmtree(place)
    return folder


def _write(
    folder: Path,
    tokenizer: PreTrainedTokenizerFast,
    text: tuple[pa.Array, pa.Array, tuple[np.ndarray, np.ndarray], pa.Array],
    max_definition: int,
    arrays: dict[str, np.ndarray],
    manifest: dict[str, Any],
) -> None:
    """The folder, whole or not at all."""
    concepts, names, rows, definitions = text
    with SAMPLES.create(folder, manifest | {"kind": "graph"}) as partial:
        pq.write_table(pa.table({"name": names}), partial / "names.parquet", compression="zstd")
        pq.write_table(pa.table({"id": concepts}), partial / "concepts.parquet", compression="zstd")
        save_rows(partial, "name", rows)
        save_rows(partial, "definition", token_rows(definitions, tokenizer, " ", max_definition))
        for name, values in arrays.items():
            np.save(partial / f"{name}.npy", np.ascontiguousarray(values, np.int32))
