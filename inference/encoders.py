"""Vectors of names by an encoder, and the nearest names by them."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from core.artifact import check_files, has_manifest
from core.dotted import import_object
from core.executor import Part, parts_folder
from core.files import InputError, atomic_write
from core.json_files import digest
from core.tracking import runs_folder
from core.typed import check_types
from datamodules.pretrained import check_vocabulary
from datamodules.rows import length_batches, pad_rows
from datamodules.tokenizers import load_tokenizer
from experiments.names import PLAIN, Encoder, architecture
from inference.linkers import Names, Ranking
from inference.options import (
    LinkerOptions,
    Work,
    bfloat16,
    checked_device,
    checked_texts,
    uses_bf16,
)
from inference.sentence import Sentence, family_pooling, pool, read_sentence
from kg.search.index import EXACT, INDEX, Index, backends_in, checked_backend, extend, write
from models.sentence import NAME_TOKENS
from models.transformer_files import DECODERS, token_limit

LOG = logging.getLogger(__name__)
#: names that are encoded together: a dictionary of more is encoded in parts, which a later run
#: does not make again
PART = 65_536
TOKENS = 4096  #: padded tokens of a batch of names
#: options of an encoder of names (inference.options.LinkerOptions)
USES = frozenset({"pooling", "similarity", "max_length", "precision", "backend", "index", "device"})


class Embedder:
    """Vectors of names by an encoder: [CLS], the mean over all tokens or over those of the text
    (more: :func:`inference.sentence.pool`), of unit length unless `dot`.

    Names are cut to `max_length` tokens and grouped by length, at most `tokens` padded ones in a
    batch, so that hardly anything is padded.
    No vector is kept: its last digits hang on what it was computed beside, so that only the same
    names at once give the same numbers, in a resumed run, too. `identity` names the encoder's
    weights, and `linker` makes its mentions, where it takes them
    (experiments/<paper>/encoder.yaml). `sentence`: what a sentence-transformers folder does
    besides. `usual_pooling`: where the options name none.
    """

    def __init__(
        self,
        encoder: Any,
        tokenizer: Any,
        identity: str,
        options: LinkerOptions = LinkerOptions(),
        usual_pooling: str = "cls",
        tokens: int = TOKENS,
        linker: Callable[[list[str], list[list[tuple[int, int]]]], Any] | None = None,
        sentence: Sentence | None = None,
    ) -> None:
        self.linker, self.sentence, self.tokens = linker, sentence, tokens
        self.pooling, self.dot = options.pooling or usual_pooling, options.similarity == "dot"
        usual_length = (sentence and sentence.max_length) or NAME_TOKENS
        most = _count_positions(encoder)
        if most is not None and (options.max_length or 0) > most:
            raise InputError(
                f"--max-length {options.max_length}: the model has positions for {most} tokens"
            )
        self.max_length = options.max_length or min(usual_length, most or usual_length)
        self.device, self.bf16 = options.device, uses_bf16(options.precision, options.device)
        self.backend, self.index = options.backend or "torch", options.index
        self.hidden_size = int(encoder.hidden_size)
        if sentence is not None:
            sentence.dense.to(self.device)
            linear = [part for part in sentence.dense if isinstance(part, torch.nn.Linear)]
            self.hidden_size = linear[-1].out_features if linear else self.hidden_size
        self.encoder = encoder.to(self.device).eval()
        self.tokenizer, self.identity = tokenizer, identity
        self.made_by: tuple[Encoder, LinkerOptions] | None = None
        self.uses = USES

    def __reduce_ex__(self, protocol: Any) -> Any:
        """What a Ray actor gets: not the weights, but what they are read from, where that is
        known."""
        return (embedder, self.made_by) if self.made_by else super().__reduce_ex__(protocol)

    @property
    def settings(self) -> dict[str, Any]:
        """What decides a vector, beside the name."""
        return {
            "encoder": self.identity,
            "pooling": self.pooling,
            "similarity": "dot" if self.dot else "cosine",
            "max_length": self.max_length,
            "precision": "bf16" if self.bf16 else "fp32",
            **({"mentions": "linked"} if self.linker else {}),
        }

    def __call__(self, names: Sequence[str]) -> Tensor:
        """(n, hidden) float32 on the CPU."""
        names = checked_texts(names)
        rows = {name: row for row, name in enumerate(dict.fromkeys(names))}
        vectors = self._encode(list(rows))
        return vectors if len(rows) == len(names) else vectors[[rows[name] for name in names]]

    @property
    def options(self) -> dict[str, Any]:
        """What tells it from the same encoder used otherwise."""
        return {"pooling": self.pooling} | ({"similarity": "dot"} if self.dot else {})

    def on(self, names: Names, work: Work | None = None) -> Encoded:
        """The nearest-name linker of a dictionary; its index is kept in `index`, or in a folder of
        its own."""
        return make_nearest_linker(names, self, self.backend, self.index, work)

    @torch.inference_mode()
    def _encode(self, names: list[str]) -> Tensor:
        prompt = self.sentence.prompt if self.sentence else ""
        if self.sentence and self.sentence.lower:
            names = [name.lower() for name in names]
        encoded = self.tokenizer(
            [prompt + name for name in names] if prompt else names,
            truncation=True,
            max_length=self.max_length,
            padding=False,
            return_offsets_mapping=True,
        )
        ids, offsets = encoded["input_ids"], encoded["offset_mapping"]
        vectors = torch.empty(len(names), self.hidden_size)
        with tqdm(
            total=len(names), desc="encoding names", unit="name", disable=None, leave=False
        ) as bar:
            for batch in length_batches(list(map(len, ids)), self.tokens):
                padded, mask = pad_rows([ids[i] for i in batch], self.tokenizer.pad_token_id)
                mentions = (
                    self.linker([names[i] for i in batch], [offsets[i] for i in batch])
                    if self.linker
                    else None
                )
                vectors[batch] = self._pool(
                    padded.to(self.device), mask.to(self.device), mentions
                ).cpu()
                bar.update(len(batch))
        return vectors

    def _pool(self, ids: Tensor, mask: Tensor, mentions: Any) -> Tensor:
        whole = (
            ()
            if mentions is None
            else (type(mentions)(*(part.to(self.device) for part in mentions)),)
        )
        with bfloat16(self.device, self.bf16):
            states = self.encoder(ids, mask, *whole).float()  # (names, tokens, hidden)
        how = self.pooling
        if how == "text":
            ends = torch.tensor(self.tokenizer.all_special_ids, device=ids.device)
            text = mask.masked_fill(torch.isin(ids, ends), 0)
            mask = torch.where(text.any(1, keepdim=True), text, mask)  # a name without a token
            how = "mean"
        if self.sentence is not None and self.sentence.prompt and not self.sentence.pools_prompt:
            mask = mask.clone()
            mask[:, : self._prompt_tokens()] = 0
        pooled = pool(states, mask, how)
        if self.sentence is not None:
            pooled = self.sentence.dense(pooled)
        raw = self.dot and not (self.sentence and self.sentence.unit)
        return pooled if raw else torch.nn.functional.normalize(pooled, dim=1)

    def _prompt_tokens(self) -> int:
        """Tokens before a text: its prompt's, with the first special one."""
        assert self.sentence is not None
        ids = self.tokenizer(self.sentence.prompt)["input_ids"]
        ended = bool(ids) and ids[-1] in (self.tokenizer.sep_token_id, self.tokenizer.eos_token_id)
        return len(ids) - int(ended)


class Encoded:
    """Nearest names by an encoder. `index` is made from the dictionary's strings where none is
    given."""

    def __init__(
        self, names: Names, embedder: Embedder, index: Index | None = None, backend: str = "torch"
    ) -> None:
        self.names, self.embedder = names, embedder
        wanted = index_made_of(names, embedder)
        if index is not None and index.made_of != wanted:
            raise InputError(
                f"this index does not fit: it is made of {index.made_of}, expected {wanted}. Build"
                " it again."
            )
        self.index = index or Index(
            embedder(names.strings), wanted, backend, device=embedder.device
        )

    def link(self, mentions: Sequence[str], contexts: Sequence[str | None]) -> list[Ranking]:
        strings = [self.names.normalised(mention) for mention in mentions]
        # each is encoded and searched once
        row = {string: number for number, string in enumerate(dict.fromkeys(strings))}
        rows = np.array([row[string] for string in strings], np.int64)
        vectors = self.embedder(list(row))

        def search(some: list[int], k: int) -> tuple[np.ndarray, np.ndarray]:
            wanted, place = np.unique(rows[some], return_inverse=True)
            scores, numbers = self.index.search(vectors[wanted], k)
            return np.asarray(scores)[place], np.asarray(numbers)[place]

        return self.names.rank(search, contexts)


def index_made_of(names: Names, embedder: Embedder) -> dict[str, Any]:
    """What an index of these names by this encoder is made of: an index of anything else is
    refused."""
    return {"dictionary": names.digest, **embedder.settings}


def make_nearest_linker(
    names: Names, embedder: Embedder, backend: str, folder: Path | None, work: Work | None = None
) -> Encoded:
    """The nearest-name linker; its index is read from `folder`, and made there first where it is
    missing."""
    made_of = index_made_of(names, embedder)
    folder = folder or runs_folder() / "linking" / "index" / digest([made_of, "memory-mapped"])[:16]
    backend = checked_backend(backend, len(names.strings), embedder.hidden_size)
    if not has_manifest(folder):
        write_index(names.strings, embedder, folder, made_of, backend, work or Work())
    elif backend not in (*EXACT, *backends_in(folder)):
        extend(folder, made_of, backend)
    return Encoded(
        names, embedder, Index.load(folder, made_of, backend=backend, device=embedder.device)
    )


def write_index(
    strings: Sequence[str],
    embedder: Embedder,
    folder: Path,
    made_of: dict[str, Any],
    backend: str,
    work: Work,
) -> None:
    """Write the index of `strings`; more than PART are encoded in parts in FOLDER.parts, and a run
    that was stopped resumes.

    Parts are the same whoever makes them: a name's vector hangs on the names of its part alone.
    Raises InputError for parts that were begun for other names or another encoder, for parts that
    another process makes, and where `folder` holds something else.
    """
    INDEX.check_replaceable(folder)
    shape = len(strings), embedder.hidden_size
    if len(strings) <= PART:
        write(folder, [embedder(strings)] if strings else [], shape, made_of, backend)
        return
    cut = [strings[start : start + PART] for start in range(0, len(strings), PART)]
    parts = [
        Part(f"part-{number:05}.npy", vectors, digest(vectors))
        for number, vectors in enumerate(cut)
    ]
    place = folder.with_name(f"{folder.name}.parts")
    with parts_folder(
        place, made_of, what="vectors of names", pattern="part-*", anew="INDEX=<another folder>"
    ) as out:
        if out.manifest is None:
            finished = sum(counts["names"] for counts in out.done(parts))
            with tqdm(
                total=len(strings),
                initial=finished,
                desc="names in parts",
                unit="name",
                disable=None,
            ) as bar:
                out.map(
                    _write_vectors,
                    parts,
                    lambda: embedder,
                    finished=lambda counts: bar.update(counts["names"]),
                    **work.settings(embedder.device),
                )
            out.finish(parts, {})
        assert out.manifest is not None
        check_files(
            place, out.manifest["sha256"], f"Remove it (rm -r {place}) and run the command again."
        )
        write(folder, _read_vectors(place, parts), shape, made_of, backend)
    shutil.rmtree(place)


def _write_vectors(embedder: Embedder, names: Sequence[str], path: Path) -> dict[str, Any]:
    with atomic_write(path, "wb") as handle:
        np.save(handle, embedder(names).numpy(), allow_pickle=False)
    return {"names": len(names)}


def _read_vectors(place: Path, parts: Sequence[Part]) -> Iterator[Tensor]:
    for part in parts:
        yield torch.from_numpy(np.load(place / part.name, allow_pickle=False))


def default_pooling(module: Any, sentence: Sentence | None, name: str) -> str:
    """What a model's vectors are made of, as its files, its paper or its family say
    (inference.sentence.FAMILIES): of a decoder its last token, of others [CLS], which is said."""
    if sentence is not None:
        return sentence.pooling
    if hasattr(module, "pooling"):
        return str(module.pooling)
    if family := family_pooling(name):
        return family
    transformer = getattr(module, "bert", None)
    if transformer is not None and transformer.config.model_type in DECODERS:
        return "last"
    LOG.info(
        f"{name}: vectors are its [CLS] states, as no file of it says how (modules.json). For a"
        " model that was trained with means, give --pooling mean."
    )
    return "cls"


def _count_positions(encoder: Any) -> int | None:
    """The most tokens that an encoder has positions for; None where they are relative."""
    config = getattr(getattr(encoder, "bert", None), "config", None)
    if config is None or not getattr(config, "max_position_embeddings", None):
        return None
    return token_limit(config)


def check_encodes(chosen: Encoder) -> None:
    """Raise InputError for a plain model that compares two texts and makes no vector of one."""
    if architecture(chosen) == "pair":
        raise InputError(
            f"{chosen.name}: a cross-encoder, which compares two texts and makes no vectors. Make"
            f" it a chain's third step ('dictionary > sapbert > {chosen.name}'), or evaluate with"
            f" MODEL=sapbert RERANK={chosen.name}"
        )


@check_types
def embedder(chosen: Encoder, options: LinkerOptions) -> Embedder:
    """An encoder as an embedder. Raises InputError for a GPU that is not available, and a
    cross-encoder."""
    check_encodes(chosen)
    checked_device(options.device)
    module = import_object(chosen.load, "models")(chosen.folder)
    sentence = read_sentence(chosen.folder) if chosen.load == PLAIN else None
    linker = (
        import_object(chosen.linker, "datamodules")(chosen.folder)
        if chosen.linker and options.knowledge
        else None
    )
    tokenizer = load_tokenizer(chosen.folder, needed=("pad_token",))
    transformer = getattr(module, "bert", None)
    if transformer is not None:
        check_vocabulary(chosen.name, tokenizer, transformer)
    result = Embedder(
        module,
        tokenizer,
        chosen.identity,
        options,
        "" if options.pooling else default_pooling(module, sentence, chosen.name),
        linker=linker,
        sentence=sentence,
    )
    result.made_by = chosen, options
    if chosen.linker:
        result.uses |= {"knowledge"}
    return result
