"""Names as strings: normalisation by stated rules, and character 3-gram TF-IDF with its nearest
names.

    lower        str.lower
    punctuation  runs of white space and ASCII punctuation become one space; none at either end
    (BioSyn's rule)
    symbols      runs of white space and of , . ; { } [ ] ( ) + - _ * / ? ! ` " ' = % > < become one
                 space; none at either end
    whitespace   runs of white space become one space; none at either end

Rules are joined by + and applied in that order ("lower+punctuation"); "none" leaves a name as it
is.
"""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from core.files import InputError

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_PUNCTUATION = re.compile(rf"[\s{re.escape(string.punctuation)}]+")
SYMBOLS = r"""[\s,.;{}\[\]()+\-_*/?!`"'=%><]+"""  #: as a pattern, for Arrow too
_SYMBOLS = re.compile(SYMBOLS)
RULES: dict[str, Callable[[str], str]] = {
    "lower": str.lower,
    "punctuation": lambda name: _PUNCTUATION.sub(" ", name).strip(),
    "symbols": lambda name: _SYMBOLS.sub(" ", name).strip(),
    "whitespace": lambda name: " ".join(name.split()),
}
#: What BioSyn does to dictionaries and mentions beside its abbreviations and spelling corrections.
BIOSYN = "lower+punctuation"


def normaliser(rules: str) -> Callable[[str], str]:
    """The function of rules joined by +, or of "none".

    A name of which nothing would be left ("+", "?") keeps what it was before the rule that would
    empty it. Raises InputError for a rule that is not known.
    """
    names = [] if rules == "none" else rules.split("+")
    if unknown := [name for name in names if name not in RULES]:
        raise InputError(
            f"no normalisation {unknown[0]!r}; choose from: none, or {', '.join(RULES)} joined by +"
        )
    chosen = [rule for name, rule in RULES.items() if name in names]

    def normalise(name: str) -> str:
        for rule in chosen:
            name = rule(name) or name
        return name

    return normalise


def one_name(names: Sequence[str], rule: str, key: str = "") -> str:
    """The one of `names` that represents a concept: the shortest, or one drawn by `key` ("sample"),
    whatever their order.

    A drawn one stays the same when others are taken away. Of equally short ones that which sorts
    first.
    """
    if rule == "shortest":
        return min(names, key=lambda name: (len(name), name))
    return min(
        names,
        key=lambda name: (hashlib.blake2b(f"{key}\t{name}".encode(), digest_size=8).digest(), name),
    )


def top_k(scores: csr_matrix, k: int) -> tuple[np.ndarray, np.ndarray]:
    """(scores (q, k), columns (q, k)) of the k highest of each row of (q, n); of equal ones the
    lowest columns.

    scores has no negative values and is never made dense; its empty cells are zeros. k is cut to n.
    """
    rows, k = scores.shape[0], min(k, scores.shape[1])
    best, columns = np.zeros((rows, k), scores.dtype), np.empty((rows, k), np.int64)
    for row in range(rows):
        entries = slice(scores.indptr[row], scores.indptr[row + 1])
        values, numbers = scores.data[entries], scores.indices[entries]
        if len(values) > k > 0:
            is_top = values >= np.partition(values, len(values) - k)[len(values) - k]
            values, numbers = values[is_top], numbers[is_top]
        order = np.lexsort((numbers, -values))[:k]
        best[row, : len(order)], columns[row, : len(order)] = values[order], numbers[order]
        if len(order) < k:  # of names that score nothing the first ones
            columns[row, len(order) :] = np.setdiff1d(np.arange(k + len(order)), numbers[order])[
                : k - len(order)
            ]
    return best, columns


class TfIdf:
    """Cosine of character 3-gram TF-IDF vectors between queries and `names`.

    3-grams of the whole string, across words (scikit-learn's analyzer "char"); idf smoothed and
    counted over `names`; raw term counts; vectors of unit length. A name of fewer than three
    characters is padded with blanks to three.
    """

    def __init__(self, names: Sequence[str], block: int = 256) -> None:
        # slow to import, and only this class needs it
        from sklearn.feature_extraction.text import TfidfVectorizer

        self.block = block
        self.vectors = TfidfVectorizer(
            analyzer="char", ngram_range=(3, 3), lowercase=False, dtype=np.float32
        )
        try:
            matrix = self.vectors.fit_transform([name.ljust(3) for name in names])
        except ValueError as error:
            raise InputError("TF-IDF: no name to search. Check the dictionary.") from error
        self.columns = matrix.T.tocsr()

    def search(self, queries: Sequence[str], k: int) -> tuple[np.ndarray, np.ndarray]:
        """(cosines (q, k), numbers of names (q, k)), best first; equal ones by number. Unlike names
        score 0."""
        rankings = []
        for start in range(0, len(queries), self.block):
            part = self.vectors.transform([q.ljust(3) for q in queries[start : start + self.block]])
            rankings.append(top_k((part @ self.columns).tocsr(), k))
        if not rankings:
            return np.zeros((0, k), np.float32), np.zeros((0, k), np.int64)
        scores, numbers = zip(*rankings, strict=True)
        return np.concatenate(scores), np.concatenate(numbers)

    def cosines(self, queries: Sequence[str], numbers: np.ndarray) -> np.ndarray:
        """(q,) cosine of each query with the one name whose number is given with it."""
        query_vectors = self.vectors.transform([q.ljust(3) for q in queries])
        names = self.columns.T.tocsr()[numbers]
        return np.asarray(query_vectors.multiply(names).sum(1)).ravel()
