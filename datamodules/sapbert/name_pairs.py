"""Pairs of names for SapBERT (Liu et al., NAACL 2021, Appendix A.2 and A.3).

    kepl data pairs --graph GRAPH [GRAPH ...] --tokenizer NAME --out FOLDER

writes, from the names of one or more graphs, lower-cased, with single spaces, once a concept:

    names.parquet      name                  every distinct string, in alphabetical order; its row
                                             is its number
    concepts.parquet   id                    likewise for concepts, in the graphs' order
    tokens.npy, offsets.npy                  token ids of all names end to end, without special
                                             tokens; where each begins
    members.npy        (rows, 2)             name, concept: what may be trained on
    held_out.npy       (rows, 2)             name, concept: one name of some concepts, for
                                             validation, in no pair
    pairs-00000.npy …  (rows, 3)             name, name, concept
    neighbours.npy     (concepts, K)         with --neighbours K: concepts with similar names,
                                             nearest first; -1 where fewer
    its manifest                             recipe and counts

Concepts of several graphs are one where their ids are equal, and with --unite also where they have
the same name (`united`): what ontologies without common ids call the same is otherwise trained
apart. Trade names (UMLS): a has_tradename or tradename_of triple adds the names of the trade
concept to its ingredient too. The authors' script keeps the last such concept of an ingredient
only; here all count.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from core.arrays import read_table
from core.artifact import Artifact, content_digest
from core.files import InputError
from datamodules.graph_names import describe_list, number_texts, shuffle_rich
from datamodules.linking import Dictionary, Linking, load_linking
from datamodules.sapbert.alike import normalise_names, same_words, similar_concepts
from datamodules.sapbert.names_by_concept import Names, PairSource, read_names, row_ranges
from datamodules.tokenizers import (
    load_tokenizer,
    token_rows,
    token_rows_in_parts,
    tokenizer_fingerprint,
)

FORMAT = 1
PAIRS = Artifact("pairs", "kepl data pairs --help", FORMAT, ("recipe",))
SHARD = 1 << 22  # pairs in a file
HELD_OUT = 500  #: mentions of a task kept for validation at most


def drawn_pairs(size: int, most: int, key: str) -> np.ndarray:
    """(pairs, 2) places i < j of `size` names: all of them, or `most` drawn by `key`, in order."""
    first, second = np.triu_indices(size, 1)
    if len(first) > most:
        seed = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big")
        chosen = np.sort(np.random.default_rng(seed).choice(len(first), most, replace=False))
        first, second = first[chosen], second[chosen]
    return np.stack([first, second], 1)


def _held_out(member: np.ndarray, concepts: pa.Array, most: int, seed: int) -> np.ndarray:
    """Rows of `member` to hold out: a name of at most `most` concepts, and of a tenth of those that
    have three names.

    A name that another concept has too is never held out.
    """
    concept, start, size = np.unique(member[:, 0], return_index=True, return_counts=True)
    is_single = np.bincount(member[:, 1])[member[:, 1]] == 1
    rich = shuffle_rich(concept, size, concepts, seed)
    chosen: list[int] = []
    for i, byte in rich:
        if len(chosen) >= min(most, max(1, len(rich) // 10)):
            break
        rows = start[i] + np.flatnonzero(is_single[start[i] : start[i] + size[i]])
        if len(rows) and size[i] > 1:
            chosen.append(int(rows[byte % len(rows)]))
    return np.array(sorted(chosen), np.int64)


def _pairs(
    member: np.ndarray, concepts: pa.Array, most: int, seed: int, bags: np.ndarray | None = None
) -> tuple[np.ndarray, int, int]:
    """((pairs, 3) name, name, concept by concept; concepts with more than `most` pairs; pairs that
    these lose).

    With `bags` (:func:`same_words`) every name of a concept but the first of each bag is left out
    before.
    """
    if bags is not None:
        first = np.unique(
            np.stack([member[:, 0], bags[member[:, 1]]], 1), axis=0, return_index=True
        )[1]
        member = member[np.sort(first)]
    concept, start, size = np.unique(member[:, 0], return_index=True, return_counts=True)
    parts, trimmed, lost = [np.zeros((0, 3), np.int64)], 0, 0
    for k in np.unique(size[size > 1]):
        these = np.flatnonzero(size == k)
        count = k * (k - 1) // 2
        if count <= most:
            places = np.broadcast_to(drawn_pairs(k, most, ""), (len(these), count, 2))
        else:
            trimmed, lost = trimmed + len(these), lost + len(these) * (int(count) - most)
            places = np.stack(
                [
                    drawn_pairs(k, most, f"{seed}\t{concepts[int(concept[i])].as_py()}")
                    for i in these
                ]
            )  # (concepts of k names, most, 2)
        names = member[start[these, None, None] + places, 1]
        owners = np.broadcast_to(concept[these, None, None], (*names.shape[:2], 1))
        parts.append(np.concatenate([names, owners], 2).reshape(-1, 3))
    pairs = np.concatenate(parts)
    return pairs[np.argsort(pairs[:, 2], kind="stable")].astype(np.int32), trimmed, lost


def balance_languages(
    pairs: np.ndarray, spoken: np.ndarray, across: float, seed: int
) -> tuple[np.ndarray, int]:
    """(`pairs` (n, 3) of which a share `across` joins names of different languages, how many were
    left out for it): as many as there can be, in order, drawn by the seed from the larger part.

    spoken: (names,) the languages of each name, a bit of each. Raises InputError where one of the
    two parts is empty and wanted.
    """
    crossing = (spoken[pairs[:, 0]] & spoken[pairs[:, 1]]) == 0
    parts = {True: np.flatnonzero(crossing), False: np.flatnonzero(~crossing)}
    shares = {True: across, False: 1 - across}
    for crosses, share in shares.items():
        if share and not len(parts[crosses]):
            raise InputError(
                f"--across {across}: no pair {'across' if crosses else 'within'} languages. Name"
                " two --languages that the graph has names in."
            )
    total = min(int(len(parts[which]) / share) for which, share in shares.items() if share)
    draws = np.random.default_rng(seed)
    balanced = [
        draws.choice(parts[which], min(len(parts[which]), round(total * share)), replace=False)
        for which, share in shares.items()
    ]
    rows = np.sort(np.concatenate(balanced))
    return pairs[rows], len(pairs) - len(rows)


def _write(
    folder: Path,
    text: tuple[pa.Array, pa.Array],
    tokens: tuple[np.ndarray, np.ndarray],
    rows: dict[str, np.ndarray],
    pairs: np.ndarray,
    manifest: dict[str, Any],
) -> None:
    """The folder, whole or not at all.

    text: (ids of the concepts, names). rows: members and held_out, (n, 2) name and concept; and
        neighbours, if any.
    """
    concepts, names = text
    with PAIRS.create(folder, manifest) as partial:
        pq.write_table(pa.table({"name": names}), partial / "names.parquet", compression="zstd")
        pq.write_table(pa.table({"id": concepts}), partial / "concepts.parquet", compression="zstd")
        arrays = {"tokens": tokens[0], "offsets": tokens[1]} | {
            k: v.astype(np.int32) for k, v in rows.items()
        }
        arrays |= {
            f"pairs-{i:05d}": pairs[i * SHARD : (i + 1) * SHARD]
            for i in range(-(-len(pairs) // SHARD))
        }
        for name, array in arrays.items():
            np.save(partial / f"{name}.npy", np.ascontiguousarray(array))


@dataclass(frozen=True, kw_only=True)
class PairChoice:
    """Which pairs are made of the names, and which names are held out.

    Args:
        max_pairs: Pairs of a concept at most.
        held_out: Names kept for validation at most.
        distinct_words: Take one of a concept's names that differ in the order of words or an s
            (MeSH's permuted entry terms).
        neighbours: Note so many concepts with similar names of each, for batches of similar
            concepts.
        across: Share of pairs whose names are of different languages. Default: as they come.
        seed: Seed of what is drawn.

    Raises InputError for a number that cannot be.
    """

    max_pairs: int = 50
    held_out: int = 500
    distinct_words: bool = False
    neighbours: int = 0
    across: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.max_pairs < 1 or self.held_out < 1:
            raise InputError(
                f"--max_pairs {self.max_pairs} --held_out {self.held_out}: expected 1 or more of"
                " each"
            )
        if self.neighbours < 0:
            raise InputError(f"--neighbours {self.neighbours}: expected 0 or more")
        if self.across is not None and not 0 <= self.across <= 1:
            raise InputError(f"--across {self.across}: expected a share between 0 and 1")


def _pairs_recipe(
    graphs: Sequence[str], source: PairSource, choice: PairChoice, tokenizer: str
) -> dict[str, Any]:
    """What distinguishes these pairs from those of other options."""
    recipe = {"format": FORMAT, "tokenizer": tokenizer, **source.describe(graphs), **asdict(choice)}
    recipe["exclude_concepts"] = describe_list(source.exclude_concepts)
    recipe |= {"trade_names": source.trade_names, "unite": source.unite}
    if choice.across is None:
        del recipe["across"]
    return recipe


def _choose_pairs(
    graphs: list[str], all_names: Names, choice: PairChoice
) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, int]]:
    """((pairs, 3) name, name, concept; the members and those held out; counts)."""
    concepts, names, member, spoken, counts = all_names
    kept_out = _held_out(member, concepts, choice.held_out, choice.seed)
    rest = np.delete(member, kept_out, axis=0)
    bags = same_words(names.to_pylist()) if choice.distinct_words else None
    pairs, trimmed, lost = _pairs(rest, concepts, choice.max_pairs, choice.seed, bags)
    if not len(pairs):
        raise InputError(
            f"{', '.join(graphs)}: no concept has two names, so there is no pair. Take a graph with"
            " synonyms."
        )
    if choice.across is not None:
        pairs, left_out = balance_languages(pairs, spoken, choice.across, choice.seed)
        counts = counts | {"pairs left out for the share across languages": left_out}
    owners, uses = np.bincount(member[:, 0], minlength=len(concepts)), np.bincount(member[:, 1])
    counts = counts | {
        "concepts": len(concepts),
        "concepts without a name": int((owners == 0).sum()),
        "concepts with one name, which give no pair": int((owners == 1).sum()),
        "distinct names": len(names),
        "names shared by several concepts": int((uses > 1).sum()),
        "names held out": len(kept_out),
        "concepts with more pairs than --max_pairs": trimmed,
        "pairs left out there": lost,
        "pairs": len(pairs),
    }
    return pairs, {"members": rest[:, ::-1], "held_out": member[kept_out][:, ::-1]}, counts


def _find_neighbours(pairs: np.ndarray, all_names: Names, most: int) -> dict[str, np.ndarray]:
    """The array of concepts with similar names, where `most` of a concept are wanted."""
    if not most:
        return {}
    names, concepts = all_names.names.to_pylist(), len(all_names.concepts)
    return {"neighbours": similar_concepts(pairs, names, concepts, most)}


def build_pairs(
    graph: list[str],
    tokenizer: str,
    out: str,
    workers: int | None = None,
    fresh: bool = False,
    source: PairSource = PairSource(),
    choice: PairChoice = PairChoice(),
) -> Path:
    """Make pairs of the names of one or more graphs. Returns their folder.

    Args:
        graph: Folders of knowledge graphs.
        tokenizer: The encoder's tokenizer: a folder or hub name.
        out: Folder for the pairs.
        workers: Processes, for the tokens. Default: one a core.
        fresh: Build again even if they are there.

    Raises InputError when nothing is left to pair, and when `out` holds something else.
    """
    folder, loaded = Path(out), load_tokenizer(tokenizer)
    place = folder.with_name(f"{folder.name}.parts")  # of tokens, until the pairs are there
    recipe = _pairs_recipe(graph, source, choice, tokenizer_fingerprint(loaded))
    if PAIRS.is_kept(folder, {"recipe": recipe}, fresh):
        shutil.rmtree(place, ignore_errors=True)
        return folder
    names = read_names(graph, source)
    pairs, rows, counts = _choose_pairs(graph, names, choice)
    tokens = token_rows_in_parts(names.names, loaded, place, recipe, workers=workers, fresh=fresh)
    rows |= _find_neighbours(pairs, names, choice.neighbours)
    _write(folder, names[:2], tokens, rows, pairs, {"recipe": recipe, "counts": counts})
    shutil.rmtree(place)
    return folder


def _read_mentions(task: str, linking: Linking) -> tuple[list[tuple[str, str]], dict[str, int]]:
    """((string, concept) of each training mention of one concept of the dictionary, counts)."""
    mentions = linking.splits.get("train", [])
    if not mentions:
        raise InputError(f"{task}: no train split, so there is nothing to fine-tune on")
    counts = {
        "train mentions": len(mentions),
        "composite mentions": 0,
        "mentions of no or several concepts": 0,
    }
    pairs: list[tuple[str, str]] = []
    for mention in mentions:
        concepts = [linking.dictionary.concepts_of(gold) for gold in mention.gold]
        if len(mention.parts) > 1:
            counts["composite mentions"] += 1
        elif len(concepts) != 1 or len(concepts[0]) != 1:
            counts["mentions of no or several concepts"] += 1
        else:
            pairs.append((mention.parts[0], next(iter(concepts[0]))))
    return pairs, counts


def _number_mentions(
    dictionary: Dictionary, pairs: list[tuple[str, str]]
) -> tuple[pa.Array, pa.Array, np.ndarray, np.ndarray]:
    """(concepts; names; (rows, 2) name and concept of the dictionary; likewise of the mentions that
    are no name of their concept)."""
    concepts = pa.array(sorted(set(dictionary.ids)), pa.string())
    texts = [*dictionary.names, *(text for text, _ in pairs)]
    owners = [*dictionary.ids, *(concept for _, concept in pairs)]
    normal = normalise_names(pa.array(texts, pa.string()))
    names, number = number_texts(normal)
    owner = pc.index_in(pa.array(owners, pa.string()), value_set=concepts).to_numpy()
    rows = np.stack([number, owner.astype(np.int64)], 1)
    count = len(dictionary.ids)
    members, mentions = np.unique(rows[:count], axis=0), np.unique(rows[count:], axis=0)
    named = np.isin(mentions[:, 1] << 32 | mentions[:, 0], members[:, 1] << 32 | members[:, 0])
    return concepts, names, members, mentions[~named]


def _pair_with_names(trained: np.ndarray, members: np.ndarray) -> np.ndarray:
    """(pairs, 3) mention, name, concept: each mention with every name of its concept."""
    order = np.argsort(members[:, 1], kind="stable")
    owner = members[order, 1]
    begin, end = (np.searchsorted(owner, trained[:, 1], side) for side in ("left", "right"))
    size = end - begin
    place = order[row_ranges(begin, size)]
    return np.stack(
        [np.repeat(trained[:, 0], size), members[place, 0], np.repeat(trained[:, 1], size)], 1
    )


def build_mentions(task: str, tokenizer: str, out: str, seed: int = 0) -> Path:
    """The folder with pairs for fine-tuning on an entity-linking task.

    Section 3.2's fine-tuning: each training mention with each name that the dictionary of the task
    folder `task` (datamodules.linking) has for its concept; identical strings make no pair.
    Composite mentions, and those of several concepts or of none in the dictionary, are left out and
    counted. Names are lower-cased as in pre-training. A twentieth of the mentions, HELD_OUT at
    most, are kept for validation, searched among the dictionary's names.

    Raises InputError for a task without train mentions, and when nothing is left to pair.
    """
    folder, loaded, linking = Path(out), load_tokenizer(tokenizer), load_linking(task)
    recipe = {
        "format": FORMAT,
        "task": content_digest(task),
        "tokenizer": tokenizer_fingerprint(loaded),
        "held_out": HELD_OUT,
        "seed": seed,
    }
    if PAIRS.is_kept(folder, {"recipe": recipe}):
        return folder
    mention_pairs, counts = _read_mentions(task, linking)
    concepts, names, members, mentions = _number_mentions(linking.dictionary, mention_pairs)
    counts["distinct mentions that are no name of their concept"] = len(mentions)
    chosen = np.random.default_rng(seed).permutation(len(mentions))
    most = min(HELD_OUT, max(1, len(mentions) // 20))
    kept_out, trained = mentions[np.sort(chosen[:most])], mentions[np.sort(chosen[most:])]
    pairs = _pair_with_names(trained, members)
    if not len(pairs):
        raise InputError(
            f"{task}: no training mention differs from the names of its concept, so there is no"
            " pair"
        )
    counts |= {"mentions held out": len(kept_out), "pairs": len(pairs)}
    tokens, arrays = token_rows(names, loaded), {"members": members, "held_out": kept_out}
    manifest = {"recipe": recipe, "counts": counts}
    _write(folder, (concepts, names), tokens, arrays, pairs.astype(np.int32), manifest)
    return folder


class Pairs:
    """A folder that :func:`build_pairs` wrote, memory-mapped. Raises InputError when it is none, or
    of another tokenizer."""

    def __init__(self, folder: str | Path, tokenizer: str | None = None) -> None:
        self.folder = Path(folder)
        self.manifest = PAIRS.manifest(folder)
        recipe = self.manifest["recipe"]
        if tokenizer is not None and recipe["tokenizer"] != tokenizer:
            raise InputError(
                f"{folder}: made with another tokenizer. Build the pairs with this encoder's:"
                " --tokenizer"
            )
        PAIRS.check(folder, self.manifest)
        self.tokens, self.offsets, self.members, self.held_out = map(
            self._array, ("tokens", "offsets", "members", "held_out")
        )
        self.shards = [self._array(p.stem) for p in sorted(self.folder.glob("pairs-*.npy"))]
        self.lengths = np.diff(self.offsets)  # (names,) tokens
        # (concepts, K)
        self.neighbours = self._array("neighbours") if recipe.get("neighbours") else None

    def _array(self, name: str) -> np.ndarray:
        file = self.folder / f"{name}.npy"
        if not file.is_file():
            raise InputError(f"{file}: missing. Build the pairs again.")
        array: np.ndarray = np.load(file, mmap_mode="r", allow_pickle=False)
        return array

    def __len__(self) -> int:
        return sum(map(len, self.shards))

    def __getitem__(self, indices: np.ndarray) -> np.ndarray:
        """(pairs, 3) of pair numbers."""
        shard, row = np.divmod(indices, SHARD)
        rows = np.empty((len(indices), 3), np.int64)
        for i in np.unique(shard):
            rows[shard == i] = self.shards[i][row[shard == i]]
        return rows

    @property
    def names(self) -> list[str]:
        return read_table(self.folder / "names.parquet", ["name"])["name"].to_pylist()

    @property
    def concepts(self) -> list[str]:
        return read_table(self.folder / "concepts.parquet", ["id"])["id"].to_pylist()
