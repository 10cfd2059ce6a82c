"""Which names of a graph are used and can be matched, and how exactly they must be written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kg.graph import check_kinds, numbers, place_of_kind
from kg.linking.inflection import LONGEST_SHORT_FORM
from kg.linking.normal import SKIPPED, Level, kept_words, normal_text, word_class
from kg.linking.passage import Passage
from kg.linking.tokens import fold_case, words
from kg.linking.words import FUNCTION_WORDS

WEAK_KINDS = ("related", "broad")  #: a name of such a kind and of one ordinary word is no evidence
POSSESSIVE = "s"


def never_matches(name: str) -> bool:
    """Whether a name is of no use for linking: no letter, one character, or a function word not in
    capitals."""
    name = name.strip()
    return (
        len(name) < 2
        or not any(map(str.isalpha, name))
        or (fold_case(name) in FUNCTION_WORDS and not name.isupper())
    )


def needs_exact_case(name: str) -> bool:
    """Whether a name (as :func:`kg.linking.tokens.space_words` writes it) only matches in its own
    case."""
    return " " not in name and (len(name) <= 3 or (len(name) <= 6 and name.isupper()))


def is_ordinary_word(name: str) -> bool:
    """Whether a name is one word of letters, small but for the first: "death", "Scale"."""
    name = name.strip()
    return name.isalpha() and name.isascii() and name[1:].islower()


def usable_names(names: pa.Table, kinds: Iterable[str] | None = None) -> pa.Table:
    """The rows of a table of names that the rules above use: those of `kinds`, or all but the weak
    ones."""
    if kinds is not None:
        chosen = check_kinds(kinds)
        is_chosen = flag_values(names["kind"], lambda kind: kind.lower() in chosen)
        return names.take(to_indices(np.flatnonzero(is_chosen)))
    weak = np.flatnonzero(flag_values(names["kind"], lambda kind: kind.lower() in WEAK_KINDS))
    if not len(weak):
        return names
    ordinary = [is_ordinary_word(name) for name in names["name"].take(to_indices(weak)).to_pylist()]
    is_usable = np.ones(len(names), bool)
    is_usable[weak[ordinary]] = False
    return names.take(to_indices(np.flatnonzero(is_usable)))


def places_of_kinds(kinds: pa.ChunkedArray) -> np.ndarray:
    """(names,) the place of each name's kind in KINDS, in whatever case; behind them for others."""
    encoded = pc.dictionary_encode(kinds.combine_chunks())
    places = list(map(place_of_kind, encoded.dictionary.to_pylist()))
    return np.array(places, np.int8)[numbers(encoded.indices)]


def flag_values(column: pa.ChunkedArray, is_meant: Callable[[str], bool]) -> np.ndarray:
    """(rows,) whether each value of a column of few values is meant."""
    encoded = pc.dictionary_encode(column.combine_chunks())
    flags = list(map(is_meant, encoded.dictionary.to_pylist()))
    return np.array(flags, bool)[numbers(encoded.indices)]


def has_capitals(name: str) -> bool:
    """Whether a word of a name has a capital letter behind its first: plurals of such words are not
    compared."""
    return any(word[1:] != word[1:].lower() for word in name.split())


#: How English words do not end: two consonants that no word ends in, or one of these letters.
_ENDS = frozenset(
    """ch ck cs ct ds ff ft gh gs hs ks ld lf lk ll lm lp ls lt mb mp ms nd ng nk ns nt ph ps pt rb rc rd rk rl
rm rn rp rs rt sh sk sm sp ss st th ts tt wl wn ws xt zz bs""".split()  # noqa: E501
)
_NO_END = frozenset("jqv")
_VOWELS = frozenset("aeiouy")


def is_doubtful(surface: str) -> bool:
    """Whether a word in capitals may be an ordinary one: letters alone, few of them, with a vowel,
    and an English ending."""
    word = surface.lower()
    if not (
        surface.isupper()
        and surface.isalpha()
        and len(surface) <= LONGEST_SHORT_FORM
        and _VOWELS & {*word}
    ):
        return False
    return word[-1] not in _NO_END and (bool(_VOWELS & {*word[-2:]}) or word[-2:] in _ENDS)


def rows_of_texts(names: pa.ChunkedArray, texts: Sequence[str], level: Level) -> np.ndarray:
    """The rows of the names whose words all are words of the texts, or forms of these; and one that
    can be matched."""
    present = {word_class(word, level) for text in texts for word in Passage(text, level).words}
    if level != "exact":
        present |= {*SKIPPED, word_class(POSSESSIVE, level)}
    beginnings = {word[:1] for word in present}  # an irregular plural begins as its singular
    if "e" in beginnings:
        beginnings |= {"a", "o"}  # the class of oedema is that of edema
    rows, usable = [], None
    for row, name in enumerate(iterate_strings(names)):
        if usable is None and not never_matches(name) and kept_words(words(normal_text(name))):
            usable = row  # so that only a graph without any is refused
        if name.isascii() and name.lstrip()[:1].lower() not in beginnings:
            continue
        tokens = words(name if level == "exact" else normal_text(name))
        if all(word_class(word, level) in present for word in tokens):
            rows.append(row)
    if usable is not None:
        rows.append(usable)
    return np.array(sorted(set(rows)), np.int64)


def to_indices(rows: np.ndarray) -> pa.Array:
    """Rows as an Arrow array; pa.array would import pandas, a quarter of the start of `kepl
    link`."""
    return pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows.astype(np.int64))])


def iterate_strings(column: pa.ChunkedArray) -> Iterator[str]:
    """Values of a column, a few at a time in memory."""
    for batch in pa.table({"column": column}).to_batches(max_chunksize=1 << 16):
        yield from batch["column"].to_pylist()
