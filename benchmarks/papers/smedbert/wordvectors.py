"""Word vectors that encoders are compared with (SMedBERT, Appendix C): SGNS and GloVe, of
characters and of words.

    sgns    skip-gram with negative sampling (Mikolov et al., 2013), gensim's
    glove   Pennington, Socher and Manning, EMNLP 2014: Glove, here

A name's vector is the mean over its characters; in the word-level models it is its own if the text
has the name as a word often enough, and that of the character-level model otherwise, as the paper
has it (cosines between the two say little).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn
from tqdm import tqdm

from core.artifact import content_digest
from core.files import InputError
from kg.linking import linked_documents
from kg.linking.tokens import words as characters

UNITS = ("char", "word")
#: width, context on either side, occurrences below which a word has no vector
SIZE, WINDOW, LEAST = 100, 5, 5
NEGATIVES, PASSES = 5, 5  #: of SGNS, the tool's defaults
#: of GloVe; the paper's, and its 50 passes cut to what a CPU allows
X_MAX, ALPHA, RATE, EPOCHS = 100.0, 0.75, 0.05, 15


def texts(linked: Path) -> Iterator[str]:
    """The texts in a folder of linked text. Raises InputError when it is none."""
    return (document.text for document in linked_documents(linked))


def cut_text(text: str, unit: str) -> list[str]:
    """A text as characters (a run of Latin letters or digits is one), or as jieba's words."""
    if unit == "char":
        return characters(text)
    import jieba

    jieba.setLogLevel("ERROR")  # it logs where it keeps its dictionary
    return [w for w in jieba.lcut(text.lower()) if not w.isspace()]


def cooccurrences(documents: Sequence[np.ndarray], size: int, window: int) -> sparse.coo_matrix:
    """(size, size) X_ij: how often word j is near word i, each time counting 1 / distance, on
    either side."""
    total = sparse.csr_matrix((size, size))
    for begin in range(0, len(documents), 20_000):
        part = [d for d in documents[begin : begin + 20_000] if len(d)]
        if not part:
            continue
        flat = np.concatenate(part)
        number = np.repeat(np.arange(len(part)), [len(d) for d in part])
        for distance in range(1, window + 1):
            left, right = flat[:-distance], flat[distance:]
            same = number[:-distance] == number[distance:]
            shape = (np.full(int(same.sum()), 1 / distance), (left[same], right[same]))
            total += sparse.csr_matrix(shape, (size, size))
    return (total + total.T).tocoo()


class Glove(nn.Module):
    """w_i . w~_j + b_i + b~_j fits log X_ij, weighted by f(X_ij) = min(1, (X_ij / x_max)^alpha);
    the vectors are w + w~."""

    def __init__(
        self, words: int, size: int = SIZE, x_max: float = X_MAX, alpha: float = ALPHA
    ) -> None:
        super().__init__()
        self.x_max, self.alpha = x_max, alpha
        self.word, self.context = nn.Embedding(words, size), nn.Embedding(words, size)
        self.bias, self.context_bias = nn.Embedding(words, 1), nn.Embedding(words, 1)
        for part in (self.word, self.context, self.bias, self.context_bias):
            nn.init.uniform_(part.weight, -0.5 / size, 0.5 / size)

    def forward(self, row: Tensor, column: Tensor, count: Tensor) -> Tensor:
        """() mean over (n,) places of the matrix of f(X) (w . w~ + b + b~ - log X)^2."""
        predicted = (self.word(row) * self.context(column)).sum(-1) + (
            self.bias(row) + self.context_bias(column)
        )[:, 0]
        weight = (count / self.x_max).pow(self.alpha).clamp_max(1.0)
        return (weight * (predicted - count.log()).square()).mean()

    @property
    def vectors(self) -> np.ndarray:
        result: np.ndarray = (self.word.weight + self.context.weight).detach().numpy()
        return result


def glove(
    documents: Sequence[np.ndarray], size: int, seed: int, epochs: int = EPOCHS, batch: int = 8192
) -> np.ndarray:
    """(size, SIZE) vectors of words 0 to size - 1; `documents` are sequences of them."""
    counts = cooccurrences(documents, size, WINDOW)
    torch.manual_seed(seed)
    model = Glove(size)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=RATE)
    row, column = (torch.from_numpy(a.astype(np.int64)) for a in (counts.row, counts.col))
    value = torch.from_numpy(counts.data.astype(np.float32))
    for _ in tqdm(range(epochs), desc="GloVe, epochs", disable=None):
        for part in torch.randperm(len(value)).split(batch):
            optimizer.zero_grad()
            # the tool's: one step sums its places
            (model(row[part], column[part], value[part]) * len(part)).backward()
            optimizer.step()
    return model.vectors


def sgns(documents: Sequence[list[str]], seed: int, least: int) -> tuple[list[str], np.ndarray]:
    """(words, (n, SIZE) their vectors). Raises InputError when gensim is not installed."""
    try:
        from gensim.models import Word2Vec
    except ImportError as error:
        raise InputError("MODEL=sgns: needs gensim. Run make setup.") from error
    model = Word2Vec(
        documents,
        vector_size=SIZE,
        window=WINDOW,
        min_count=least,
        sg=1,
        negative=NEGATIVES,
        epochs=PASSES,
        seed=seed,
        workers=1,
    )
    return list(model.wv.index_to_key), np.asarray(model.wv.vectors)


def word_vectors(kind: str, unit: str, linked: Path, seed: int) -> dict[str, np.ndarray]:
    """{character or word: its vector}, trained on the text. Characters have one whatever their
    number."""
    documents = [
        cut_text(text, unit)
        for text in tqdm(texts(linked), desc=f"{unit}s", unit=" texts", disable=None)
    ]
    least = 1 if unit == "char" else LEAST
    if kind == "sgns":
        words, vectors = sgns(documents, seed, least)
    else:
        counts = Counter(chain.from_iterable(documents))
        words = sorted((w for w, n in counts.items() if n >= least), key=lambda w: (-counts[w], w))
        index = {word: i for i, word in enumerate(words)}
        numbered = [np.array([index[w] for w in d if w in index], np.int64) for d in documents]
        vectors = glove(numbered, len(words), seed)
    return dict(zip(words, vectors, strict=True))


def compose_names(
    names: Sequence[str],
    characters_of: dict[str, np.ndarray],
    words_of: dict[str, np.ndarray] | None,
) -> np.ndarray:
    """(n, SIZE) unit vectors of names; zeros for one of which nothing is known."""
    result = np.zeros((len(names), SIZE), np.float32)
    for row, name in enumerate(names):
        if words_of is not None and name.lower() in words_of:
            result[row] = words_of[name.lower()]
        elif vectors := [characters_of[c] for c in cut_text(name, "char") if c in characters_of]:
            result[row] = np.mean(vectors, axis=0)
    length = np.linalg.norm(result, axis=1, keepdims=True)
    return result / np.where(length == 0, 1, length)


def train_vectors(
    kind: str, unit: str, linked: Path, seed: int
) -> tuple[dict[str, Any], Callable[[Sequence[str]], np.ndarray]]:
    """(what decides the vectors, names -> (n, SIZE) vectors) of sgns or glove on the text in folder
    `linked`."""
    if unit not in UNITS:
        raise InputError(
            f"MODEL={kind}:{unit}: choose from: {', '.join(f'{kind}:{u}' for u in UNITS)}"
        )
    vectors = word_vectors(kind, "char", linked, seed)
    words_of = word_vectors(kind, "word", linked, seed) if unit == "word" else None
    identity = {
        "vectors": kind,
        "unit": unit,
        "text": content_digest(linked),
        "seed": seed,
        "size": SIZE,
        "window": WINDOW,
        "least": LEAST,
    }
    return identity, lambda names: compose_names(names, vectors, words_of)
