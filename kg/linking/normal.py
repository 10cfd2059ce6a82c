"""The normal form in which names and texts are compared, with places in the text as it is.

Always, whatever the language (`exact` alone leaves it out):
    characters   canonical and compatibility forms (NFKC): decomposed accents, full width,
                 subscripts, ligatures, Roman numerals and units in one character
    apostrophes  and primes, typographic or not, are '; quotation marks are "
    dashes       hyphens, dashes and minus signs are -
    invisible    soft hyphens, zero-width characters and variation selectors are left out
Kept as they are: fractions (NFKC makes 1 and 1/2 of 1½ one number), trade marks and accents
without a letter. A circled number is a number and a word of its own.

Weaker forms, which a name that is written as the text always beats (:class:`Difference`):
    accents      Sjögren and Sjogren
    punctuation  commas, hyphens, apostrophes and the possessive: "Diabetes mellitus, type 2" and
                 "Diabetes mellitus type 2", "T-cell" and "T cell", "Crohn's" and "Crohn"
    spelling     British and American spelling of English names, Greek letters by their names in
                 names of several words, "type II" and "type 2" (kg.linking.spelling)
    plural       the plural and the singular of a word of English names (kg.linking.inflection)

>>> normalize("Ⅱ型糖尿病，Alzheimer’s").text
"II型糖尿病,Alzheimer's"
>>> difference("Diabetes mellitus, type 2", "diabetes mellitus type 2")
'punctuation'
>>> difference("neuron", "neurons"), difference("ALS", "AL")
('plural', None)
>>> difference("TNF-alpha", "TNFα"), difference("breast tumor", "breast tumour")
('spelling+punctuation', 'spelling')
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from kg.linking.inflection import is_inflected, is_lower, stem
from kg.linking.spelling import NUMBERED, is_greek_letter, is_numeral, respell
from kg.linking.tokens import IDEOGRAPHS, cased_words, fold_case

Level = Literal["exact", "normal", "inflected"]
LEVELS: tuple[Level, ...] = ("exact", "normal", "inflected")
BEST: Level = "inflected"  #: by measurement: docs/linking.md
ENGLISH = frozenset(("", "en", "eng", "english"))  #: a name without a language may be English

APOSTROPHES = "\u2018\u2019\u201b\u2032\u2035\u02b9\u02bb\u02bc\u00b4`\u055a\ua78c"
QUOTATION_MARKS = "\u201c\u201d\u201e\u201f\u00ab\u00bb"
DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u2043"
INVISIBLE = "\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufe00-\ufe0f\ufeff"
_PLAIN = str.maketrans(
    dict.fromkeys(APOSTROPHES, "'")
    | dict.fromkeys(QUOTATION_MARKS, '"')
    | dict.fromkeys(DASHES, "-")
)
_KEPT = re.compile("[\u00bc-\u00be\u2150-\u215f\u2189\u2120\u2122]")
_CIRCLED = re.compile("[\u2460-\u2473\u2776-\u2793\u24ea-\u24ff]")
_INVISIBLE = re.compile(f"[{INVISIBLE}]")
# Blocks that have compatibility forms, and the marks above. One character is looked up at a time.
_BLOCKS = (
    "\u00a0-\u00be\u0132-\u017f\u01c4-\u01cc\u01f1-\u01f3\u02b0-\u02e4\u037a\u0384-\u0385"
    "\u03d0-\u03f9\u055a\u0587\u1d2c-\u1dbf\u1e9a-\u1e9b\u1fbd-\u1fff\u2000-\u218b\u2212\u222c-\u2230"
    "\u2460-\u24ff\u2776-\u2793\u2a0c\u2a74-\u2a76\u2c7c-\u2c7d\u2e9f-\u2fd5\u3000\u3036-\u303a"
    "\u309b-\u309f\u30ff\u3131-\u33ff\ua69c-\ua69d\ua770\ua78c\ua7f2-\ua7f9\uab5c-\uab69"
    "\uf900-\ufefc\uff01-\uffee\U0001d400-\U0001d7ff\U0001f100-\U0001f251\U0002f800-\U0002fa1d"
    "\u212a-\u212b\u0340-\u0344\u0374\u037e\u0387`"
)
_MARKS = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u093c\u1ab0-\u1aff"
    "\u1dc0-\u1dff\u20d0-\u20ff\u3099\u309a\ufe20-\ufe2f"
)
_JAMO = "[\u1100-\u1112][\u1161-\u1175][\u11a8-\u11c2]?"
_CHANGES = re.compile(f"[{_BLOCKS}{INVISIBLE}]")
_HAS_MARKS = re.compile(f"[{_MARKS}\u1100-\u1112]")
# More marks on one letter than any script writes are not composed: putting them in order takes the
# square of the time.
_CLUSTERS = re.compile(f"{_JAMO}|[^{_MARKS}][{_MARKS}]{{1,30}}|[{_BLOCKS}{INVISIBLE}]", re.DOTALL)


class Normal(NamedTuple):
    """A text in normal form.

    starts, ends: (characters,) where the part of the source begins and ends that a character comes
    from; None where every character is at its own place.
    """

    text: str
    starts: np.ndarray | None = None
    ends: np.ndarray | None = None

    def place(self, start: int, end: int) -> tuple[int, int]:
        """The characters of the source that [start, end) of the normal form come from."""
        if self.starts is None or self.ends is None:
            return start, end
        return int(self.starts[start]), int(self.ends[end - 1])


def is_normal(text: str) -> bool:
    """Whether a text is seen at once to be in normal form, as most English texts are."""
    return text.isascii() and "`" not in text


def normalize(text: str) -> Normal:
    """The normal form of a text, in its own case."""
    if is_normal(text):
        return Normal(text)
    pattern = _CLUSTERS if _HAS_MARKS.search(text) else _CHANGES
    changes = [(m.start(), m.end(), normal_characters(m[0])) for m in pattern.finditer(text)]
    changes = [change for change in changes if text[change[0] : change[1]] != change[2]]
    if not changes:
        return Normal(text)
    pieces, end = [], 0
    for start, after, new in changes:
        pieces += [text[end:start], new]
        end = after
    normal = "".join([*pieces, text[end:]])
    if all(after - start == len(new) for start, after, new in changes):
        return Normal(normal)
    return Normal(normal, *_sources(changes, len(text), len(normal)))


def normal_text(text: str) -> str:
    """A name in normal form, in its own case."""
    return normalize(text).text


def comparable(text: str) -> str:
    """A text in normal form and lower case, one space between two words: equal for equal names."""
    return " ".join(fold_case(word) for word in cased_words(normal_text(text)))


def _sources(
    changes: Sequence[tuple[int, int, str]], length: int, new_length: int
) -> tuple[np.ndarray, np.ndarray]:
    """(starts, ends) of :class:`Normal` for a text of `length` characters after `changes`."""
    starts, ends = np.empty(new_length, np.int64), np.empty(new_length, np.int64)
    source = place = 0
    for start, after, new in [*changes, (length, length, "")]:
        unchanged = np.arange(source, start)
        starts[place : place + len(unchanged)] = unchanged
        ends[place : place + len(unchanged)] = unchanged + 1
        place += len(unchanged)
        starts[place : place + len(new)] = start
        ends[place : place + len(new)] = after
        place += len(new)
        source = after
    return starts, ends


@lru_cache(maxsize=1 << 14)
def normal_characters(characters: str) -> str:
    """The normal form of a character, or of a letter with its marks."""
    if _KEPT.match(characters):
        return characters
    characters = _INVISIBLE.sub("", characters)
    normal = unicodedata.normalize("NFKC", characters.translate(_PLAIN)).translate(_PLAIN)
    if _CIRCLED.match(characters):
        return f" {normal} "
    if normal.startswith(" ") and not characters.isspace():
        return characters  # an accent without a letter
    return normal


# --- weaker forms -------------------------------------------------------------------------------

_IDEOGRAPH = re.compile(f"[{IDEOGRAPHS}]")
#: Words before which a text may have a comma that the name has not: "diabetes mellitus, type 2".
QUALIFIERS = frozenset(
    "class congenital due familial grade group hereditary stage subtype susceptibility type".split()
)
SKIPPED = frozenset(",-'")  #: marks that names and texts may have differently
_LETTERS = str.maketrans(
    {
        "ø": "o",
        "ł": "l",
        "đ": "d",
        "ð": "d",
        "þ": "th",
        "ß": "ss",
        "æ": "ae",
        "œ": "oe",
        "ı": "i",
        "Ø": "O",
        "Ł": "L",
        "Đ": "D",
        "Æ": "AE",
        "Œ": "OE",
    }
)


@lru_cache(maxsize=1 << 16)
def without_accents(word: str) -> str:
    """A word without the accents of Latin and Greek letters; those of other scripts are letters."""
    if word.isascii():
        return word
    letters = []
    for letter in word.translate(_LETTERS):
        base = unicodedata.normalize("NFD", letter)[0]
        is_latin = base < "\u0250" or "\u0370" <= base < "\u0400"
        letters.append(base if is_latin else letter)
    return "".join(letters)


@lru_cache(maxsize=1 << 16)
def word_class(word: str, level: Level) -> str:
    """What a lower-case word shares with all words that a form of `level` allows in its place."""
    if level == "exact":
        return word
    bare = without_accents(word)
    return stem(respell(bare)) if level == "inflected" else bare


def form_key(name: str) -> str:
    """A string that a name shares with all of its forms; equal keys are compared by
    :func:`compare_words`."""
    matched_words = kept_words([fold_case(word) for word in cased_words(normal_text(name))])
    return " ".join(word_class(word, "inflected") for word in matched_words)


class Difference(NamedTuple):
    """How a name and a text differ; the empty one is least, and a plural is the most."""

    plural: bool = False
    spelling: bool = False
    punctuation: bool = False
    accents: bool = False

    def __str__(self) -> str:
        return "+".join(name for name, value in self._asdict().items() if value)


NO_DIFFERENCE = Difference()


def kept_words(words: Sequence[str]) -> list[str]:
    """Words without the marks that names and texts may have differently, and without a possessive
    s."""
    matched_words = []
    for place, word in enumerate(words):
        if word in SKIPPED or (word in ("s", "S") and place and words[place - 1] == "'"):
            continue
        matched_words.append(word)
    return matched_words


def compare_words(
    name: Sequence[str], text: Sequence[str], level: Level = BEST, english: bool = True
) -> Difference | None:
    """How the words of a name and of a text differ, both in their own case; None: another name.

    level: the forms that may be used. english: whether the name is, so that plurals are compared.
    """
    lower_name, lower_text = [fold_case(word) for word in name], [fold_case(word) for word in text]
    if lower_name == lower_text:
        return NO_DIFFERENCE
    if level == "exact":
        return None
    kept_name, kept_text = kept_words(name), kept_words(text)
    if len(kept_name) != len(kept_text) or not kept_name:
        return None
    accents = plural = spelling = False
    for place, (name_word, other) in enumerate(zip(kept_name, kept_text, strict=True)):
        one_lower, other_lower = fold_case(name_word), fold_case(other)
        if one_lower == other_lower:
            continue
        one_bare, other_bare = without_accents(one_lower), without_accents(other_lower)
        if one_bare == other_bare:
            accents = True
            continue
        if level != "inflected" or not english:
            return None
        if is_inflected(name_word, other, one_bare, other_bare):
            plural = True
            continue
        one_respelled, other_respelled = respell(one_bare), respell(other_bare)
        if is_greek_letter(one_bare) or is_greek_letter(other_bare):
            # a letter alone is a sign: "α = 0.05"
            if len(kept_name) == 1 or one_respelled != other_respelled:
                return None
        elif is_numeral(one_bare) and is_numeral(other_bare):
            # "type II" and "type 2"; the I of a sentence is no number
            is_numbered = place > 0 and fold_case(kept_name[place - 1]) in NUMBERED
            if not is_numbered or one_respelled != other_respelled:
                return None
        elif one_respelled == other_respelled:
            if not (is_lower(name_word) and is_lower(other)):
                return None
        elif is_inflected(name_word, other, one_respelled, other_respelled):
            plural = True
        else:
            return None
        spelling = True
    if len(kept_name) == len(name) and len(kept_text) == len(text):
        return Difference(plural, spelling, False, accents)
    name_marks, text_marks = _marks(lower_name), _marks(lower_text)
    punctuation = name_marks != text_marks
    if punctuation and any(map(_IDEOGRAPH.match, kept_text)):
        return None  # Chinese writes nothing between words: a comma there is between two names
    for place, mark in text_marks:
        is_new = mark == "," and (place, mark) not in name_marks and place < len(kept_text)
        if is_new and fold_case(kept_text[place]) not in QUALIFIERS:
            return None  # "muscle, rigidity" lists two things
    return Difference(plural, spelling, punctuation, accents)


def _marks(words: Sequence[str]) -> list[tuple[int, str]]:
    """Skipped words, and before which of the others each is."""
    marks, count = [], 0
    for place, word in enumerate(words):
        if word in SKIPPED or (word == "s" and place and words[place - 1] == "'"):
            marks.append((count, word))
        else:
            count += 1
    return marks


def difference(name: str, text: str, level: Level = BEST, english: bool = True) -> str | None:
    """How a name and a text differ ("" : not at all, "plural", …); None where they are not one
    name."""
    words = [cased_words(normal_text(phrase)) for phrase in (name, text)]
    change = compare_words(words[0], words[1], level, english)
    return None if change is None else str(change)
