"""Tokenizers: load one with a clear error, name its content, and turn character spans into token spans."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from tqdm import tqdm
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from core.files import InputError, digest
from kg.pretrained import pretrained

BPE_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")  #: 0 to 4 of :func:`byte_level_bpe`


def byte_level_bpe(texts: Iterable[str], size: int) -> PreTrainedTokenizerFast:
    """A tokenizer as a BART has it, of at most `size` tokens learnt from `texts`: the bytes, and pairs that stand there twice."""
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
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[(t, ids[t]) for t in ("<s>", "</s>")]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", cls_token="<s>", sep_token="</s>",
        pad_token="<pad>", unk_token="<unk>", mask_token="<mask>", model_max_length=1024,
        model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip


def load_tokenizer(name: str) -> PreTrainedTokenizerFast:
    """The fast tokenizer in folder `name`, or of the hub model `name`.

    Raises InputError when it cannot be had, is not a fast one, or lacks [CLS], [SEP], [MASK] or [PAD].
    """
    folder = pretrained(name)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError) as error:
        where = (
            "folder without a tokenizer" if Path(name).is_dir() else "neither a folder nor a model that the hub gave"
        )
        raise InputError(
            f"tokenizer {name!r}: {where}. Give a folder with tokenizer.json or vocab.txt, or check the "
            f"hub name and the network. ({str(error).splitlines()[0]})"
        ) from error
    if not tokenizer.is_fast:
        raise InputError(
            f"tokenizer {name!r}: no fast version, and character offsets need one. Convert it to tokenizer.json."
        )
    for token in ("cls_token", "sep_token", "mask_token", "pad_token"):
        if getattr(tokenizer, token) is None:
            raise InputError(f"tokenizer {name!r}: no {token}; a BERT-style tokenizer is needed")
    return tokenizer  # type: ignore[return-value]  # is_fast was asked for above


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerFast) -> str:
    """A digest of everything that decides how text becomes ids (not of padding or truncation settings)."""
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    return digest({k: v for k, v in content.items() if k not in ("padding", "truncation")})


def replacements(tokenizer: PreTrainedTokenizerFast) -> np.ndarray:
    """Ids of the tokens that may stand for another one in masked text: all but the special and the unused ones."""
    special = set(tokenizer.all_special_ids)
    names = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    return np.array([i for i, name in enumerate(names) if i not in special and not name.startswith("[unused")])


def token_spans(offsets: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Token spans (m, 2) [first, last + 1) that cover the character spans (m, 2); an empty one where no token does.

    offsets (n, 2) character offsets of the tokens, in text order, disjoint.
    """
    first = np.searchsorted(offsets[:, 1], spans[:, 0], side="right")  # first token that ends after the span begins
    last = np.searchsorted(offsets[:, 0], spans[:, 1], side="left")  # first token that begins at or after its end
    return np.stack([first, np.maximum(first, last)], axis=1)


def token_rows(
    texts: pa.Array | pa.ChunkedArray,
    tokenizer: PreTrainedTokenizerFast,
    before: str = "",
    most: int | None = None,
    piece: int = 20_000,
) -> tuple[np.ndarray, np.ndarray]:
    """(token ids of all texts end to end, (texts + 1,) where each begins), without special tokens.

    before: put before each text that is not empty; most: tokens of a text at most, the first ones.
    uint16 where the vocabulary allows.
    """
    kind = np.uint16 if len(tokenizer) <= 1 << 16 else np.int32
    parts, sizes = [np.zeros(0, kind)], [np.zeros(1, np.int64)]
    for begin in tqdm(range(0, len(texts), piece), unit_scale=piece, unit=" texts", desc="tokens", disable=None):
        ids = tokenizer(
            [text and before + text for text in texts[begin : begin + piece].to_pylist()],
            add_special_tokens=False,
            padding=False,
            truncation=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )["input_ids"]
        ids = [one[:most] for one in ids]
        sizes.append(np.array([len(one) for one in ids], np.int64))
        parts.append(np.array([token for one in ids for token in one], kind))
    return np.concatenate(parts), np.concatenate(sizes).cumsum()
