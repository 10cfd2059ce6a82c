"""An English encoder that reads another script: its vocabulary gets the characters of a graph.

    kepl data characters --graph GRAPH --encoder minilm --out FOLDER

BERT's tokenizer makes a word of every Chinese character, so a character that the vocabulary lacks
is unknown, and most are. Each missing one gets a token behind the others; its vector is, by
`start`,

    aligned  the mean of the English pieces' vectors that it translates to, each weighted by how
             probably it does: IBM Model 1 (Brown et al. 1993, Computational Linguistics 19(2),
             Section 4.2) between the characters of a name and the pieces of the English names of
             its concept
    mean     the mean over the English pieces of all names of concepts that it is in a name of
    random   drawn with the deviation of the encoder's own vectors
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from transformers import AutoModel, PreTrainedModel

from core.artifact import Artifact
from core.files import InputError
from core.reading import lines, sha256
from datamodules.pretrained import identity, load
from datamodules.tokenizers import load_tokenizer
from kg.graph import KnowledgeGraph, fingerprint

FORMAT = 1
EXTENDED = Artifact("encoder", "kepl data characters --help", FORMAT, ("recipe",), "")
ROUNDS = 10  # of expectation and maximisation
Start = Literal["aligned", "mean", "random"]


class Parallel(NamedTuple):
    """Names of the same concepts: (names,) the ids of the other language's tokens and of the
    English pieces of each pair."""

    other: list[list[int]]
    english: list[list[int]]


def align_tokens(parallel: Parallel, rounds: int = ROUNDS) -> tuple[np.ndarray, np.ndarray]:
    """((links, 2) token and English piece that occur together, (links,) the probability that the
    token is translated by the piece), by IBM Model 1, begun with equal probabilities.

    The probabilities of a token sum to one. Brown et al. 1993, Eq. (11) to (14), without the
    empty word: expected links of a pair of names are shared among the tokens of the one side, then
    divided by the token's sum.
    """
    tokens, pieces, groups = [], [], []
    group = 0
    for other, english in zip(parallel.other, parallel.english, strict=True):
        for piece in english:
            tokens += other
            pieces += [piece] * len(other)
            groups += [group] * len(other)
            group += 1
    links = np.stack([np.array(tokens, np.int64), np.array(pieces, np.int64)], 1)
    distinct, place = np.unique(links, axis=0, return_inverse=True)
    place, owner = place.reshape(-1), np.unique(distinct[:, 0], return_inverse=True)[1].reshape(-1)
    share = np.array(groups, np.int64)
    probability = np.ones(len(distinct))
    for _ in range(rounds):
        expected = probability[place]
        expected /= np.bincount(share, expected)[share]
        counts = np.bincount(place, expected, len(distinct))
        probability = counts / np.bincount(owner, counts)[owner]
    return distinct, probability


def mean_links(parallel: Parallel) -> tuple[np.ndarray, np.ndarray]:
    """As :func:`align_tokens`, with the share of each piece in the names that a token is in."""
    return align_tokens(parallel, rounds=1)


def parallel_names(
    graph: KnowledgeGraph, tokenizer: Any, languages: Sequence[str], excluded: set[str]
) -> Parallel:
    """Every name in `languages` but those `excluded` (in lower case), beside the preferred English
    name of its concept; names of concepts without one are not used."""
    preferred: dict[str, str] = {}
    others: list[tuple[str, str]] = []
    names = graph.preferred_first()
    columns = (names[c].to_pylist() for c in ("id", "name", "language"))
    for concept, name, language in zip(*columns, strict=True):
        if language == "en":
            preferred.setdefault(concept, name)
        elif language in languages and name.lower() not in excluded:
            others.append((concept, name))
    pairs = [(name, preferred[concept]) for concept, name in others if concept in preferred]

    def encode(texts: list[str]) -> list[list[int]]:
        if not texts:
            return []
        ids: list[list[int]] = tokenizer(texts, add_special_tokens=False)["input_ids"]
        return ids

    return Parallel(encode([name for name, _ in pairs]), encode([name for _, name in pairs]))


def missing_characters(texts: Sequence[str], tokenizer: Any) -> list[str]:
    """The characters of the texts that the tokenizer makes words of and has no token for."""
    vocabulary = tokenizer.get_vocab()
    backend = tokenizer.backend_tokenizer
    normal, split = backend.normalizer, backend.pre_tokenizer
    missing: set[str] = set()
    for text in texts:
        line = normal.normalize_str(text) if normal is not None else text
        for word, _ in split.pre_tokenize_str(line):
            if len(word) == 1 and word not in vocabulary:
                missing.add(word)
    return sorted(missing)


def next_token(tokenizer: Any) -> int:
    """The number of a token behind all others; a vocabulary may leave numbers out."""
    return int(max(tokenizer.get_vocab().values())) + 1


def add_tokens(tokenizer: Any, characters: Sequence[str]) -> Any:
    """The tokenizer with the characters as words of its WordPiece vocabulary, behind its others.

    Raises InputError for a tokenizer that is not BERT's.
    """
    from tokenizers import Tokenizer

    state = json.loads(tokenizer.backend_tokenizer.to_str())
    if state["model"].get("type") != "WordPiece":
        raise InputError(
            f"a tokenizer of the kind {state['model'].get('type')}: expected BERT's word pieces. A"
            " multilingual encoder (XLM-R) needs no further characters."
        )
    size = next_token(tokenizer)
    state["model"]["vocab"] |= {character: size + i for i, character in enumerate(characters)}
    options = {"tokenizer_object": Tokenizer.from_str(json.dumps(state))}
    options |= {f"{part}_token": getattr(tokenizer, f"{part}_token") for part in PARTS}
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        **options,
        model_max_length=tokenizer.model_max_length,
        model_input_names=tokenizer.model_input_names,
    )


PARTS = ("unk", "sep", "pad", "cls", "mask")


def word_embedding(model: PreTrainedModel) -> torch.nn.Embedding:
    """The vectors of a model's tokens."""
    embedding = model.get_input_embeddings()
    assert isinstance(embedding, torch.nn.Embedding)
    return embedding


def start_rows(
    model: PreTrainedModel, old: int, parallel: Parallel, start: Start, seed: int
) -> torch.Tensor:
    """(new tokens, hidden) vectors of the tokens from number `old` on; one that no name has is
    drawn at random, as all are with `random`."""
    embedding = word_embedding(model)
    vectors = embedding.weight.detach()[:old].numpy()
    count = embedding.num_embeddings - old
    drawn = np.random.default_rng(seed).normal(0, vectors.std(), (count, vectors.shape[1]))
    rows = drawn.astype(np.float32)
    if start != "random" and parallel.other:
        links, weight = (align_tokens if start == "aligned" else mean_links)(parallel)
        new = (links[:, 0] >= old) & (links[:, 1] < old)
        links, weight = links[new], weight[new]
        sums = np.zeros((count, vectors.shape[1]), np.float64)
        np.add.at(sums, links[:, 0] - old, weight[:, None] * vectors[links[:, 1]])
        total = np.bincount(links[:, 0] - old, weight, count)
        seen = total > 0
        rows[seen] = sums[seen] / total[seen, None]
    return torch.from_numpy(rows)


def names_in(graph: KnowledgeGraph, folder: str, languages: Sequence[str]) -> list[str]:
    """The names of a graph in some languages. Raises InputError for none."""
    spoken = zip(*(graph.names[c].to_pylist() for c in ("name", "language")), strict=True)
    texts = [name for name, language in spoken if language in languages]
    if not texts:
        raise InputError(
            f"{folder}: no name in {', '.join(languages)}. Build it with --translations, or name"
            " other --languages."
        )
    return texts


def load_with_rows(encoder: str, tokens: int, seed: int) -> Any:
    """The model with a word embedding of so many rows at least; some models have more of them than
    tokens. `seed` is of weights that the checkpoint lacks, such as a pooler's."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = load(AutoModel, encoder)
        size = max(word_embedding(model).num_embeddings, tokens)
        model.resize_token_embeddings(size, mean_resizing=False)
    return model


def extend_encoder(
    graph: str,
    out: str,
    encoder: str = "minilm",
    languages: Sequence[str] = ("zh",),
    start: Start = "aligned",
    exclude_names: str | None = None,
    seed: int = 0,
    fresh: bool = False,
) -> Path:
    """Make an encoder of BERT's type that has the characters of a graph's names. Returns its
    folder.

    Args:
        graph: Folder of a knowledge graph with names in English and in `languages`.
        out: Folder for the encoder.
        encoder: The encoder: a folder or hub name.
        languages: Languages whose characters are added.
        start: What the vectors of new characters start from.
        exclude_names: File of names to leave out, one a line, in any case; their characters count.
        seed: Seed of vectors that are drawn.
        fresh: Build again even if it is there.

    Raises InputError where the graph has no name in `languages`, and for another kind of tokenizer.
    """
    folder = Path(out)
    recipe = {
        "format": FORMAT,
        "graph": fingerprint(graph),
        "encoder": identity(encoder),
        "languages": list(languages),
        "start": start,
        "exclude_names": sha256(exclude_names) if exclude_names else None,
        "seed": seed,
    }
    if EXTENDED.is_kept(folder, {"recipe": recipe}, fresh):
        return folder
    loaded = KnowledgeGraph.load(graph)
    excluded = (
        {line.strip().lower() for _, line in lines(exclude_names)} if exclude_names else set()
    )
    texts = names_in(loaded, graph, languages)
    tokenizer = load_tokenizer(encoder)
    old = next_token(tokenizer)
    characters = missing_characters(texts, tokenizer)
    extended = add_tokens(tokenizer, characters)
    model = load_with_rows(encoder, next_token(extended), seed)
    parallel = parallel_names(loaded, extended, languages, excluded)
    rows = start_rows(model, old, parallel, start, seed)
    with torch.no_grad():
        word_embedding(model).weight[old:] = rows
    counts = {"characters added": len(characters), "names aligned": len(parallel.other)}
    with EXTENDED.create(folder, {"recipe": recipe, "counts": counts}) as partial:
        model.save_pretrained(partial)
        extended.save_pretrained(partial)
    print(f"{folder}: " + ", ".join(f"{count:,} {what}" for what, count in counts.items()))
    return folder
