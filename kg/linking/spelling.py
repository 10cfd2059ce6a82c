"""British and American spelling of English words, Greek letters by their names, Roman numbers.

:func:`respell` gives the spellings of one word one string; the string itself is no word.

>>> respelled("haemorrhage") == respelled("hemorrhage"), respelled("tumour") == respelled("tumor")
(True, True)
>>> respelled("fibre") == respelled("fiber"), respelled("β") == respelled("beta")
(True, True)
>>> respelled("toes"), respelled("four"), respelled("iv"), respelled("iia")
('toes', 'four', '4', '2a')
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

from kg.linking.inflection import NO_PLURALS

SHORTEST = 5  #: letters of a word that has two spellings
LONGEST_NUMBER = 6  #: letters of a Roman number, and one behind it: xviiia

#: (what British spelling writes, what American spelling does); all of them are applied.
BRITISH = (
    (r"(?<=[a-z]{2})our(?=(?:s|ed|ings?|al|less|able|ful)?$)", "or"),  # tumour, behavioural
    (r"(?<=[bt])re(?=s?$)", "er"),  # fibre, titres
    (r"(?<=[bt])red$", "ered"),  # centred
    # haemorrhage, oesophagus, diarrhoea; not hexaene, Loesch, poems
    (r"(?!(?<=ex|ct|tr|nt|pt|ec)aen|oe(?:ck|h|sch))[ao]e(?=[a-z]{2}|[ai]$)(?![b-z]s$)", "e"),
    (r"sulph", "sulf"),
    (r"(?<=[a-z]{3})is(?=(?:ed|ing|ations?)$)", "iz"),  # localised
    (r"(?<=[a-z]{3})ys(?=(?:ed|ing)$)", "yz"),  # paralysed
    (r"(?<=[a-z]{4})ll(?=(?:ed|ings?)$)", "l"),  # labelled, signalling
    (r"^aluminium$", "aluminum"),
    (r"^mould", "mold"),
)
_BRITISH = tuple((re.compile(pattern), new) for pattern, new in BRITISH)
# most words have none of it
_MAY_BE_BRITISH = re.compile(
    r"our|[bt]re(?:s?|d)$|[ao]e|sulph|[iy]s(?:ed|ing|ation)|ll(?:ed|ings?)$|^alumin|^mould"
)
#: Words that a number follows, Roman or not: "type II", "factor 8".
NUMBERED = frozenset(
    "category class complex degree factor form grade group level phase stage subtype type".split()
)
_ROMAN = re.compile(r"(x?)(ix|iv|v?i{0,3})([a-h]?)")
_UNITS = dict(zip(",i,ii,iii,iv,v,vi,vii,viii,ix".split(","), range(10), strict=True))
_LETTER = re.compile(r"GREEK SMALL LETTER (?:FINAL )?([A-Z]+)$")


@cache
def _names_of_letters() -> dict[str, str]:
    """The name in lower case of each small Greek letter: alpha of α."""
    names = {}
    for letter in map(chr, range(0x03B1, 0x03CA)):
        match = _LETTER.match(unicodedata.name(letter, ""))
        if match is not None:
            names[letter] = match[1].lower().replace("lamda", "lambda")
    return names


def is_greek_letter(word: str) -> bool:
    """Whether a word in lower case is one Greek letter."""
    return word in _names_of_letters()


def is_numeral(word: str) -> bool:
    """Whether a word in lower case is a number up to 19, Roman or not, with a letter or without."""
    return word[:1].isdigit() or respell(word)[:1].isdigit()


def _arabic(word: str) -> str | None:
    """The number up to 19 that a Roman one is, in digits; None where it is none."""
    match = _ROMAN.fullmatch(word)
    if match is None or not (match[1] or match[2]):
        return None
    return f"{10 * len(match[1]) + _UNITS[match[2]]}{match[3]}"


def respell(word: str) -> str:
    """What a word in lower case, without accents, shares with its other spelling."""
    if not word.isascii():
        return _names_of_letters().get(word, word)
    if len(word) <= LONGEST_NUMBER and word[:1] in ("i", "v", "x"):
        return _arabic(word) or word
    if len(word) < SHORTEST or not word.isalpha() or not _MAY_BE_BRITISH.search(word):
        return word
    if word in NO_PLURALS:  # a word of Latin: gonorrhoeae
        return word
    for pattern, new in _BRITISH:
        word = pattern.sub(new, word)
    return word
