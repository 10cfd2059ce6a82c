"""Tokenizers: load one with a clear error, name its content, and turn character spans into token
spans."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from tqdm import tqdm
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from core.artifact import check_files
from core.executor import Part, parts_folder
from core.files import InputError, atomic_write
from core.json_files import digest
from datamodules.pretrained import find_pretrained, load

LOG = logging.getLogger(__name__)
CASED = 0.05  #: share of words with capital letters above which a vocabulary is a cased one
_LOOKED_AT: set[str] = set()  #: folders that :func:`warn_of_case` has looked at
PIECE, PART = 20_000, 200_000  #: texts that are tokenised at once; texts of a part
BPE_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")  #: 0 to 4 of :func:`byte_level_bpe`


def byte_level_bpe(texts: Iterable[str], size: int) -> PreTrainedTokenizerFast:
    """A tokenizer as a BART has it, of at most `size` tokens learnt from `texts`: the bytes, and
    pairs that occur twice."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=list(BPE_SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    ids = {token: backend.token_to_id(token) for token in BPE_SPECIAL}
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[(t, ids[t]) for t in ("<s>", "</s>")],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<s>",
        eos_token="</s>",
        cls_token="<s>",
        sep_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        mask_token="<mask>",
        model_max_length=1024,
        model_input_names=["input_ids", "attention_mask"],
    )


#: how the names of files begin that a tokenizer is read from
VOCABULARIES = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab",
    "spiece",
    "spm",
    "sentencepiece",
    "bpe",
    "merges",
    "source.spm",
)
#: what a tokenizer of texts between [CLS] and [SEP] with masks must have
SPECIAL = ("cls_token", "sep_token", "mask_token", "pad_token")


def load_tokenizer(name: str, needed: Sequence[str] = SPECIAL) -> PreTrainedTokenizerFast:
    """The fast tokenizer in folder `name`, or of the hub model `name`. One without a padding token,
    as decoders have, pads with its end of text.

    Raises InputError when it cannot be had, is not a fast one, or lacks one of `needed`: [CLS],
    [SEP], [MASK], [PAD].
    """
    try:
        folder = Path(find_pretrained(name))
        if folder.is_dir() and not any(f.name.startswith(VOCABULARIES) for f in folder.iterdir()):
            raise ValueError("no vocabulary")  # transformers makes a tokenizer of nothing
        tokenizer = load(AutoTokenizer, name)
    except InputError:
        raise
    except (OSError, ValueError) as error:
        where = (
            "folder without a tokenizer"
            if Path(name).is_dir()
            else "neither a folder nor a model of the hub"
        )
        raise InputError(
            f"tokenizer {name!r}: {where}. Give a folder with tokenizer.json or vocab.txt, or check"
            f" the hub name and the network. ({str(error).splitlines()[0]})"
        ) from error
    if not tokenizer.is_fast:
        raise InputError(
            f"tokenizer {name!r}: no fast version, and character offsets need one. Convert it to"
            " tokenizer.json."
        )
    if tokenizer.pad_token is None and tokenizer.eos_token is not None:
        tokenizer.pad_token = tokenizer.eos_token
    for token in needed:
        if getattr(tokenizer, token) is None:
            raise InputError(f"tokenizer {name!r}: no {token}; a BERT-style tokenizer is needed")
    warn_of_case(str(folder), tokenizer)
    return tokenizer  # type: ignore[return-value]  # is_fast was asked for above


def warn_of_case(folder: str, tokenizer: PreTrainedTokenizerFast) -> None:
    """Warn, once a process, of a vocabulary with capital letters whose texts are lowercased because
    no file says otherwise: transformers takes every vocab.txt for an uncased one."""
    files = (Path(folder) / name for name in ("tokenizer_config.json", "tokenizer.json"))
    if folder in _LOOKED_AT or any(file.is_file() for file in files):
        return
    _LOOKED_AT.add(folder)
    normalizer = tokenizer.backend_tokenizer.normalizer
    if normalizer is None or normalizer.normalize_str("A") == "A":
        return
    words = set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens)
    words = {word for word in words if word.isalpha()}
    capital = sum(word != word.lower() for word in words)
    if capital > CASED * len(words):
        LOG.warning(
            f"{folder}: {capital:,} of {len(words):,} words of the vocabulary have capital letters,"
            " but texts are lowercased. If the model is cased, write"
            ' {"do_lower_case": false} into its tokenizer_config.json.'
        )


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerFast) -> str:
    """A digest of everything that decides how text becomes ids (not of padding or truncation
    settings)."""
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    return digest({k: v for k, v in content.items() if k not in ("padding", "truncation")})


def tokens_by_id(tokenizer: PreTrainedTokenizerFast) -> list[str]:
    """Every token of the vocabulary."""
    return tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))  # type: ignore[return-value]


def word_beginnings(words: list[int | None]) -> np.ndarray:
    """Whether each token begins a word, by the tokens' numbers of words."""
    numbers = np.array([-1 if word is None else word for word in words], np.int64)
    if not len(numbers):
        return np.zeros(0, bool)
    return np.concatenate([[True], numbers[1:] != numbers[:-1]])


def replacements(tokenizer: PreTrainedTokenizerFast) -> np.ndarray:
    """Ids of the tokens that may replace another one in masked text: all but the special and the
    unused ones."""
    special = set(tokenizer.all_special_ids)
    tokens = tokens_by_id(tokenizer)
    return np.array(
        [i for i, name in enumerate(tokens) if i not in special and not name.startswith("[unused")]
    )


def token_spans(offsets: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Token spans (m, 2) [first, last + 1) that cover the character spans (m, 2); an empty one
    where no token does.

    offsets (n, 2) character offsets of the tokens, in text order, disjoint.
    """
    # first token that ends after the span begins
    first = np.searchsorted(offsets[:, 1], spans[:, 0], side="right")
    # first token that begins at or after its end
    last = np.searchsorted(offsets[:, 0], spans[:, 1], side="left")
    return np.stack([first, np.maximum(first, last)], axis=1)


def token_rows(
    texts: pa.Array | pa.ChunkedArray,
    tokenizer: PreTrainedTokenizerFast,
    before: str = "",
    most: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """(token ids of all texts end to end, (texts + 1,) where each begins), without special tokens.

    before: put before each text that is not empty; most: tokens of a text at most, the first ones.
    uint16 where the vocabulary allows.
    """
    pieces = range(0, len(texts), PIECE)
    bar = tqdm(pieces, unit_scale=PIECE, unit=" texts", desc="tokens", disable=None)
    return _join_pieces(
        tokenizer, (_tokens(tokenizer, texts[begin : begin + PIECE], before, most) for begin in bar)
    )


Rows = tuple[np.ndarray, np.ndarray]  # token ids end to end, how many of them each text has


def _tokens(
    tokenizer: PreTrainedTokenizerFast,
    texts: pa.Array | pa.ChunkedArray,
    before: str,
    most: int | None,
) -> Rows:
    ids = tokenizer(
        [text and before + text for text in texts.to_pylist()],
        add_special_tokens=False,
        padding=False,
        truncation=False,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,
    )["input_ids"]
    ids = [sequence[:most] for sequence in ids]
    tokens = np.array(list(chain.from_iterable(ids)), _kind(tokenizer))
    return tokens, np.array(list(map(len, ids)), np.int64)


def _kind(tokenizer: PreTrainedTokenizerFast) -> type[np.unsignedinteger[Any] | np.int32]:
    return np.uint16 if len(tokenizer) <= 1 << 16 else np.int32


def _join_pieces(
    tokenizer: PreTrainedTokenizerFast, pieces: Iterable[Rows]
) -> tuple[np.ndarray, np.ndarray]:
    parts, sizes = [np.zeros(0, _kind(tokenizer))], [np.zeros(1, np.int64)]
    for tokens, part_pieces in pieces:
        parts.append(tokens)
        sizes.append(part_pieces)
    return np.concatenate(parts), np.concatenate(sizes).cumsum()


def token_rows_in_parts(
    texts: pa.Array | pa.ChunkedArray,
    tokenizer: PreTrainedTokenizerFast,
    place: Path,
    made_of: dict[str, Any],
    before: str = "",
    *,
    workers: int | None = 1,
    part: int = PART,
    fresh: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """:func:`token_rows` by several processes, or on a cluster (core.executor), in the folder
    `place`.

    made_of: what the texts follow from; a stopped run of the same resumes. The folder is the
        caller's to remove once what the tokens are for is written.
    workers: processes; None: one a core.

    Raises InputError as :func:`core.executor.parts_folder` does, and
    for a damaged part.
    """
    with parts_folder(
        place, made_of, what="parts of tokens", pattern="part-*", fresh=fresh
    ) as folder:
        with atomic_write(place / "texts.parquet", "wb") as handle:
            pq.write_table(pa.table({"text": texts}), handle)
        ranges = [(begin, min(begin + part, len(texts))) for begin in range(0, len(texts), part)]
        todo = [
            Part(f"part-{number:05d}.npy", part_counts, json.dumps([before, *part_counts]))
            for number, part_counts in enumerate(ranges)
        ]
        with tqdm(total=len(texts), unit=" texts", desc="tokens", disable=None) as bar:
            folder.map(
                partial(_write_part, before=before),
                todo,
                partial(_begin, tokenizer, place / "texts.parquet"),
                workers=workers or len(os.sched_getaffinity(0)),
                finished=lambda part_counts: bar.update(part_counts["texts"]),
            )
        check_files(
            place, folder.finish(todo, {})["sha256"], f"Remove {place} and run the command again."
        )
    return _join_pieces(tokenizer, (_read_part(place / part_counts.name) for part_counts in todo))


def _begin(
    tokenizer: PreTrainedTokenizerFast, file: Path
) -> tuple[PreTrainedTokenizerFast, pa.ChunkedArray]:
    return tokenizer, pq.read_table(file)["text"]


def _write_part(
    begun: tuple[PreTrainedTokenizerFast, pa.ChunkedArray],
    task: tuple[int, int],
    path: Path,
    *,
    before: str,
) -> dict[str, int]:
    tokenizer, texts = begun
    begin, end = task
    with atomic_write(path, "wb") as handle:
        for array in token_rows(texts[begin:end], tokenizer, before):
            np.save(handle, array, allow_pickle=False)
    return {"texts": end - begin}


def _read_part(path: Path) -> Rows:
    with open(path, "rb") as handle:
        tokens, offsets = (np.load(handle, allow_pickle=False) for _ in range(2))
    return tokens, np.diff(offsets)
