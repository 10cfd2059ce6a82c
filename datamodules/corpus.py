"""A linked corpus on disk: memory-mapped token ids, word starts and mentions.

    kepl data corpus --linked FOLDER --graph GRAPH --tokenizer NAME --out FOLDER

One shard per part of the linked text, written whole or not at all, so building resumes where it
stopped; at the end the shards become one file of each kind, so that a corpus of any size opens six.
Sequences are stored without special tokens. A tenth of the texts (by a hash of the text, so that
equal texts stay together) is held out for validation.
"""

from __future__ import annotations

import bisect
import hashlib
import shutil
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from tqdm import tqdm
from transformers import PreTrainedTokenizerFast

from core.artifact import (
    Artifact,
    check_files,
    has_manifest,
    manifest_path,
    read_manifest,
    write_manifest,
)
from core.executor import Part, parts_folder
from core.files import InputError, atomic_folder
from core.json_files import digest, json_lines
from core.reading import sha256
from datamodules.tokenizers import (
    load_tokenizer,
    token_spans,
    tokenizer_fingerprint,
    word_beginnings,
)
from kg.graph import KnowledgeGraph, Numbers, fingerprint
from kg.linking.run import parts

FORMAT = 2  # 2: one file of each kind, with checksums
CORPUS = Artifact("corpus", "kepl data corpus --help", FORMAT, ("settings",))
ARRAYS = ("tokens", "word_start", "offsets", "mentions", "mention_offsets", "held_out")
# of those: where each sequence's tokens and mentions begin, and the last one's end
OFFSETS = ("offsets", "mention_offsets")
BLOCK = 1 << 16  # sequences whose mentions are counted at a time


class Example(NamedTuple):
    """One sequence, without special tokens."""

    ids: np.ndarray  # (n,) token ids
    word_start: np.ndarray  # (n,) bool
    # (m, 3) int32: first token, last token + 1, entity index; disjoint, in text order
    mentions: np.ndarray


def is_held_out(text: str, share: float) -> bool:
    """Whether a text belongs to the held-out `share`; depends on nothing but the text (case and
    spacing apart)."""
    content = " ".join(text.lower().split())
    return int.from_bytes(hashlib.sha256(content.encode()).digest()[:8], "big") < share * 2**64


def _disjoint(spans: np.ndarray) -> np.ndarray:
    """Rows of (m, 3) start, end, entity, overlaps resolved: the longest stays, then the leftmost.
    In text order."""
    disjoint: list[tuple[int, int, int]] = []  # in text order
    for start, end, entity in spans[np.lexsort((spans[:, 0], spans[:, 0] - spans[:, 1]))].tolist():
        # the spans before this place begin before this one ends: the last may reach into it
        place = bisect.bisect_left(disjoint, (end,))
        if not place or disjoint[place - 1][1] <= start:
            disjoint.insert(place, (start, end, entity))
    return np.array(disjoint, np.int32).reshape(-1, 3)


def _pieces(word_start: np.ndarray, mentions: np.ndarray, limit: int) -> Iterator[tuple[int, int]]:
    """[start, end) pieces of at most `limit` tokens, cut before a word and outside mentions where
    that is possible."""
    free = word_start.copy()
    for start, end, _ in mentions:
        free[start + 1 : end] = False
    start, length = 0, len(word_start)
    while start < length:
        end = min(start + limit, length)
        if end < length:
            candidates = np.flatnonzero(free[start + 1 : end + 1])
            end = start + 1 + int(candidates[-1]) if len(candidates) else end
        yield start, end
        start = end


class _Row(NamedTuple):
    """A linked text: the number of its line, its record, the numbers of its mentions' entities."""

    number: int
    record: dict[str, Any]
    entity: np.ndarray


def _read_rows(part: Path, index: Numbers) -> Iterator[_Row]:
    """The lines of linked text. Raises InputError for one without its fields, an empty text, a
    mention outside its text and an entity that the graph lacks."""
    records = json_lines(part, advice="Link the text again: kepl data link --help")
    for number, (_, row) in enumerate(records, 1):
        where = f"{part}:{number}"
        try:
            text, mentions = row["text"], row["mentions"]
        except KeyError as error:
            raise InputError(
                f"{where}: expected a JSON object with id, text and mentions ({error!r}). "
                "Link the text again: kepl data link --help"
            ) from error
        if not text.strip():
            raise InputError(
                f"{where}: document {row.get('id')!r} has an empty text. Drop it from the input."
            )
        for m in mentions:
            if not 0 <= m["start"] < m["end"] <= len(text):
                raise InputError(
                    f"{where}: mention [{m['start']}, {m['end']}) is outside its text of "
                    f"{len(text)} characters. Link the text again."
                )
        entity = index.positions([str(m["entity"]) for m in mentions])
        if (entity < 0).any():
            raise InputError(
                f"{where}: unknown entity id {mentions[int(entity.argmin())]['entity']!r};"
                " the graph does not have it. Link the text with this graph."
            )
        yield _Row(number, row, entity)


def _token_mentions(
    row: _Row, offsets: list[tuple[int, int]], counts: dict[str, int]
) -> np.ndarray:
    """(m, 3) first token, last + 1, entity of a text's mentions; overlapping ones are counted."""
    places = [(m["start"], m["end"]) for m in row.record["mentions"]]
    spans = np.array(places, np.int64).reshape(-1, 2)
    tokens = token_spans(np.array(offsets, np.int64).reshape(-1, 2), spans)
    rows = np.concatenate([tokens, row.entity[:, None]], axis=1)
    rows = rows[rows[:, 1] > rows[:, 0]]
    mentions = _disjoint(rows)
    counts["overlapping_mentions_dropped"] += len(rows) - len(mentions)
    return mentions


def _examples(
    part: Path,
    tokenizer: PreTrainedTokenizerFast,
    index: Numbers,
    limit: int,
    held_out: float,
    long_texts: str,
    counts: dict[str, int],
) -> Iterator[tuple[Example, bool]]:
    """(an example of `limit` tokens at most, whether it is held out) of each text of a part, or of
    each piece of a long one."""
    rows = list(_read_rows(part, index))
    for begin in range(0, len(rows), 1000):
        chunk = rows[begin : begin + 1000]
        encodings = tokenizer(
            [row.record["text"] for row in chunk],
            add_special_tokens=False,
            return_offsets_mapping=True,
            verbose=False,
        )
        for i, row in enumerate(chunk):
            ids = np.array(encodings["input_ids"][i], np.int64)
            if len(ids) > limit and long_texts == "error":
                raise InputError(
                    f"{part}:{row.number}: document {row.record.get('id')!r} has {len(ids)} tokens,"
                    f" the limit is {limit}. Choose --long_texts split or truncate, or a longer"
                    " --max_length."
                )
            word_start = word_beginnings(encodings.word_ids(i))
            mentions = _token_mentions(row, encodings["offset_mapping"][i], counts)
            outside = is_held_out(row.record["text"], held_out)
            for start, end in _pieces(word_start, mentions, limit):
                # mentions are disjoint, in text order: their starts ascend, and so do their ends
                first = np.searchsorted(mentions[:, 0], start)
                last = np.searchsorted(mentions[:, 1], end, side="right")
                inside: np.ndarray = mentions[first:last] - np.array([start, start, 0], np.int32)
                yield Example(ids[start:end], word_start[start:end], inside), outside
                if end < len(ids) and long_texts == "truncate":
                    counts["truncated_tokens"] += len(ids) - end
                    break


def _begin(tokenizer: str, graph: str) -> tuple[PreTrainedTokenizerFast, Numbers]:
    """What all shards need: the tokenizer, and the index of each entity."""
    return load_tokenizer(tokenizer), Numbers(KnowledgeGraph.load(graph).ids)


def _write_shard(
    begun: tuple[PreTrainedTokenizerFast, Numbers],
    part: tuple[Path, str],
    out: Path,
    *,
    limit: int,
    held_out: float,
    long_texts: str,
) -> dict[str, int]:
    """Write the shard of one linked part, (path, checksum), to folder `out`. Returns its counts."""
    path, checksum = part
    check_files(path.parent, {path.name: checksum}, "Link the text again: kepl data link --help")
    counts = {"overlapping_mentions_dropped": 0, "truncated_tokens": 0}
    tokenizer, index = begun
    pairs = list(_examples(path, tokenizer, index, limit, held_out, long_texts, counts))
    examples = [e for e, _ in pairs]
    dtype = np.uint16 if len(tokenizer) < 2**16 else np.uint32
    arrays = {
        "tokens": np.concatenate([e.ids for e in examples] or [np.zeros(0)]).astype(dtype),
        "word_start": (
            np.concatenate([e.word_start for e in examples] or [np.zeros(0)]).astype(bool)
        ),
        "offsets": np.cumsum([0] + [len(e.ids) for e in examples], dtype=np.int64),
        "mentions": (
            np.concatenate([e.mentions for e in examples] or [np.zeros((0, 3))]).astype(np.int32)
        ),
        "mention_offsets": np.cumsum([0] + [len(e.mentions) for e in examples], dtype=np.int64),
        "held_out": np.array([h for _, h in pairs], bool),
    }
    with atomic_folder(out) as folder:
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array, allow_pickle=False)
    return counts | {
        "sequences": len(examples),
        "tokens": len(arrays["tokens"]),
        "mentions": len(arrays["mentions"]),
        "held_out_sequences": int(arrays["held_out"].sum()),
    }


def _merge(shards: Sequence[Path], checksums: dict[str, str], out: Path) -> None:
    """Write the arrays of `shards`, one behind the other, to folder `out`, in the memory of one
    shard.

    checksums: of the shards' files, {shard/file: SHA-256}. Raises InputError for a file that has
        another.
    """
    lengths = dict.fromkeys(ARRAYS, 0)
    types = {}
    sums: dict[str, dict[str, str]] = {shard.name: {} for shard in shards}
    for name, shard_sums in checksums.items():
        sums[name.partition("/")[0]][name] = shard_sums
    for shard in shards:
        check_files(
            shard.parent,
            sums[shard.name],
            f"Delete {shard} and run the command again; the other shards are kept.",
        )
        for name in ARRAYS:
            array = np.load(shard / f"{name}.npy", mmap_mode="r", allow_pickle=False)
            types[name] = array.dtype, array.shape[1:]
            lengths[name] += len(array) - (name in OFFSETS)
    with atomic_folder(out) as folder:
        for name, (dtype, rest) in types.items():
            shape = (lengths[name] + (name in OFFSETS), *rest)
            whole = np.lib.format.open_memmap(folder / f"{name}.npy", "w+", dtype, shape)
            place, before = 0, 0
            for shard in shards:
                array = np.load(shard / f"{name}.npy", allow_pickle=False)
                whole[place : place + len(array)] = array + before if name in OFFSETS else array
                # a shard's last offset is the next one's first
                place += len(array) - (name in OFFSETS)
                before += int(array[-1]) if name in OFFSETS else 0
            whole.flush()


def build_corpus(
    linked: str,
    graph: str,
    tokenizer: str,
    out: str,
    max_length: int = 512,
    held_out: float = 0.1,
    long_texts: Literal["error", "split", "truncate"] = "error",
    workers: int = 1,
    fresh: bool = False,
) -> Path:
    """Tokenise linked text into shards under `out`; finished shards of the same settings are kept.

    Args:
        linked: Folder of `kepl data link`.
        graph: Folder of the graph that it was linked to.
        tokenizer: The model's tokenizer: a folder or hub name.
        out: Folder for the corpus.
        max_length: Longest sequence in tokens, its two special tokens included.
        held_out: Share of the texts that is kept for validation.
        long_texts: What happens to a longer text: error, split into several sequences, truncate.
        workers: Processes.
        fresh: Build again what is there.

    Raises InputError for broken input (file and line), a mention outside its text, an unknown
    entity, an empty text, a text over the limit, or a folder that holds a corpus of other settings.
    """
    target = Path(out)
    settings = {
        "format": FORMAT,
        "linked": digest([checksum for _, checksum in parts(linked)]),
        "graph": fingerprint(graph),
        "tokenizer": tokenizer_fingerprint(load_tokenizer(tokenizer)),
        "max_length": max_length,
        "held_out": held_out,
        "long_texts": long_texts,
    }
    shards = target / "shards"  # these until the corpus is whole
    if not fresh and is_built(target, settings):
        shutil.rmtree(shards, ignore_errors=True)
        return target
    todo = [Part(f"shard-{number:05d}", part, part[1]) for number, part in enumerate(parts(linked))]
    with parts_folder(shards, settings, what="shards", pattern="shard-*", fresh=fresh) as folder:
        manifest_path(target).unlink(missing_ok=True)
        with tqdm(total=len(todo), desc="corpus shards", dynamic_ncols=True) as bar:
            limit = max_length - 2  # without its two special tokens
            counts = folder.map(
                partial(_write_shard, limit=limit, held_out=held_out, long_texts=long_texts),
                todo,
                partial(_begin, tokenizer, graph),
                workers=workers,
                finished=lambda _: bar.update(),
            )
        checksums = folder.finish(todo, {})["sha256"]
        _merge([shards / part.name for part in todo], checksums, target / "arrays")
        total = {name: sum(map(itemgetter(name), counts)) for name in counts[0]}
        sums = {f"arrays/{name}.npy": sha256(target / "arrays" / f"{name}.npy") for name in ARRAYS}
        write_manifest(target, {"settings": settings, "counts": total, "sha256": sums})
    shutil.rmtree(shards)
    return target


def is_built(target: Path, settings: dict[str, Any]) -> bool:
    """Whether a folder holds the corpus of these settings. Raises InputError for one of others."""
    if not has_manifest(target):
        return False
    before = read_manifest(target).get("settings") or {}
    if changed := [k for k, v in settings.items() if before.get(k) != v]:
        raise InputError(
            f"{target}: holds a corpus built with other settings ({', '.join(changed)}). "
            "Choose another folder, or --fresh to build it again."
        )
    return CORPUS.is_kept(target, {"settings": settings})


class Corpus:
    """A built corpus, memory-mapped. ``corpus[i]`` is sequence i as an :class:`Example`.

    Raises InputError when the folder is no finished corpus, a file is missing or damaged, or the
    corpus was built with another tokenizer or graph than the ones given (fingerprints; None skips
    the check).
    """

    def __init__(
        self, folder: str | Path, tokenizer: str | None = None, graph: str | None = None
    ) -> None:
        self.folder = Path(folder)
        self.manifest = CORPUS.manifest(folder)
        for name, wanted in (("tokenizer", tokenizer), ("graph", graph)):
            if wanted is not None and self.manifest["settings"][name] != wanted:
                raise InputError(
                    f"{folder}: this corpus was built with another {name}"
                    f" ({self.manifest['settings'][name][:12]}, not {wanted[:12]}). Build it again"
                    f" with this {name}."
                )
        CORPUS.check(folder, self.manifest)
        arrays = (
            np.load(self.folder / "arrays" / f"{name}.npy", mmap_mode="r", allow_pickle=False)
            for name in ARRAYS
        )
        (
            self.tokens,
            self.word_start,
            self.offsets,
            self.mentions,
            self.mention_offsets,
            self.held_out,
        ) = arrays

    def __len__(self) -> int:
        return len(self.held_out)

    def __getitem__(self, i: int) -> Example:
        begin, end = self.offsets[i], self.offsets[i + 1]
        first, last = self.mention_offsets[i], self.mention_offsets[i + 1]
        return Example(
            np.asarray(self.tokens[begin:end]),
            np.asarray(self.word_start[begin:end]),
            np.asarray(self.mentions[first:last]),
        )

    @cached_property
    def lengths(self) -> np.ndarray:
        """(sequences,) tokens of each, without special tokens."""
        return np.diff(self.offsets)

    @cached_property
    def mention_counts(self) -> np.ndarray:
        """(sequences,) mentions of each."""
        return np.diff(self.mention_offsets)

    def check_length(self, max_length: int, more: int = 0) -> None:
        """Raise InputError unless its sequences, with `more` special tokens than [CLS] and [SEP],
        fit `max_length` tokens."""
        longest = self.manifest["settings"]["max_length"]
        if longest + more > max_length:
            with_more = f", and {more} more for what is between their parts" if more else ""
            raise InputError(
                f"{self.folder}: sequences of up to {longest} tokens{with_more}, but max_length is"
                f" {max_length}. Build the corpus with --max-length {max_length - more}."
            )

    def divide(self, min_mentions: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """(numbers of the training sequences with at least `min_mentions` mentions, numbers of all
        held-out ones).

        Raises InputError when nothing is held out.
        """
        train, held_out = self.indices(False), self.indices(True)
        train = train[self.mention_counts[train] >= min_mentions]
        if not len(held_out):
            raise InputError(
                f"{self.folder}: no text is held out for validation. Use more text, or build the"
                " corpus again with a larger --held-out share."
            )
        return train, held_out

    def indices(self, held_out: bool) -> np.ndarray:
        """Numbers of the held-out sequences, or of the others."""
        return np.flatnonzero(self.held_out == held_out)

    def entity_counts(self, entities: int) -> np.ndarray:
        """(entities,) int64: how often each is mentioned in the sequences that are not held out."""
        counts = np.zeros(entities, np.int64)
        for begin in range(0, len(self), BLOCK):
            places = self.mention_offsets[begin : begin + BLOCK + 1]
            train = np.repeat(~self.held_out[begin : begin + BLOCK], np.diff(places))
            counts += np.bincount(
                self.mentions[places[0] : places[-1], 2][train], minlength=entities
            )
        return counts
