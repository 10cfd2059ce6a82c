"""Plural and singular of English words, with the Latin and Greek endings that medicine uses.

:func:`stem` gives a plural and its singular one string; the string itself is no word. Words of
three letters and fewer are their own. Two words with one stem are compared by
:func:`is_inflected`, which leaves out words in capitals: AIDS is no plural of AID, but ECGs is one
of ECG.

>>> stem("neurons") == stem("neuron"), stem("metastases") == stem("metastasis")
(True, True)
>>> stem("cortices") == stem("cortex"), stem("bacteria") == stem("bacterium")
(True, True)
>>> stem("virus"), stem("viruses")
('virus', 'virus')
"""

from __future__ import annotations

from functools import cache

SHORTEST = 3  #: letters of a word that has a plural
LONGEST_SHORT_FORM = 6  #: letters in capitals that may be a short form; longer words are headings

#: Plurals that no rule below leads to their singular.
IRREGULAR = {
    "atlases": "atlas",
    "biases": "bias",
    "children": "child",
    "corpora": "corpus",
    "epididymides": "epididymis",
    "feet": "foot",
    "genera": "genus",
    "irides": "iris",
    "lenses": "lens",
    "lice": "louse",
    "men": "man",
    "mice": "mouse",
    "pancreases": "pancreas",
    "pelves": "pelvis",
    "teeth": "tooth",
    "testes": "testis",
    "viscera": "viscus",
    "women": "woman",
}
#: Words that look like plurals: adjectives of species ("Haemophilus influenzae") and words of
#: their own.
NO_PLURALS = frozenset(
    (
        "diphtheriae",
        "dysenteriae",
        "gonorrhoeae",
        "influenzae",
        "meningitidis",
        "news",
        "pneumoniae",
    )
)
#: (ending of a plural, letters the word has at least, what replaces it); the first counts.
PLURALS = (
    ("itides", 8, "itis"),
    ("mata", 6, "ma"),
    ("ies", 5, "y"),
    ("oes", 6, "o"),
    ("ves", 5, "f"),
    ("sses", 5, "ss"),
    ("shes", 5, "sh"),
    ("ches", 5, "ch"),
    ("ses", 5, "s"),
    ("xes", 4, "x"),
    ("zes", 5, "z"),
    ("ces", 5, "c"),
    ("ges", 5, "g"),
    ("ae", 5, "a"),
    ("ss", 1, "ss"),
    ("us", 1, "us"),
    ("is", 1, "is"),
    ("s", 4, ""),
)
#: The same for singulars, and for plurals of Latin and Greek words.
SINGULARS = (
    ("ie", 5, "y"),
    ("sse", 5, "ss"),
    ("she", 5, "sh"),
    ("che", 5, "ch"),
    ("se", 4, "s"),
    ("xe", 4, "x"),
    ("ze", 4, "z"),
    ("ce", 4, "c"),
    ("ge", 4, "g"),
    ("ve", 4, "f"),
    ("fe", 4, "f"),
    ("sis", 5, "s"),
    ("xis", 4, "x"),
    ("ex", 4, "ic"),
    ("ix", 4, "ic"),
    ("ax", 5, "ac"),
    ("yx", 4, "yc"),
    ("nx", 5, "ng"),
    ("mina", 6, "men"),
    ("glion", 7, "glia"),
    ("chondrion", 11, "chondria"),
    ("zoon", 6, "zoa"),
    ("menon", 7, "mena"),
    ("terion", 8, "teria"),
    ("um", 4, "a"),
    ("i", 4, "us"),
)


#: last letters of the endings; other words are their own stems
_LAST_LETTERS = frozenset(ending[-1] for ending, *_ in (*PLURALS, *SINGULARS))


def stem(word: str) -> str:
    """What a lower-case word shares with its plural, or with its singular."""
    if word[-1:] not in _LAST_LETTERS or not word.isalpha() or not word.isascii():
        return IRREGULAR.get(word, word)
    if word in NO_PLURALS:
        return word
    word = IRREGULAR.get(word, word)
    if len(word) <= SHORTEST:
        return word
    word = _replace_ending(word, _plurals_of(word[-2:]))
    return _replace_ending(word, _singulars_of(word[-2:]))


_Rules = tuple[tuple[str, int, str], ...]


def _replace_ending(word: str, rules: _Rules) -> str:
    for ending, least, new in rules:
        if len(word) >= least and word.endswith(ending):
            return word[: len(word) - len(ending)] + new
    return word


# Most words end in letters for which there is no rule, or one: each new word of a text comes here.
@cache
def _plurals_of(last_two: str) -> _Rules:
    return tuple(rule for rule in PLURALS if last_two.endswith(rule[0][-2:]))


@cache
def _singulars_of(last_two: str) -> _Rules:
    return tuple(rule for rule in SINGULARS if last_two.endswith(rule[0][-2:]))


def is_lower(word: str) -> bool:
    """Whether a word is in lower case behind its first letter, or in a heading: it is no symbol."""
    is_heading = word.isupper() and len(word) > LONGEST_SHORT_FORM
    return is_heading or word[1:] == word[1:].lower()


def is_short_form(word: str) -> bool:
    """Whether a word is one of three or more capitals ("ECG")."""
    return word.isupper() and word.isalpha() and len(word) >= SHORTEST


def is_inflected(name: str, text: str, bare_name: str, bare_text: str) -> bool:
    """Whether a word of a text is the plural or the singular of a name's.

    name, text: the words in their own case. bare_name, bare_text: in lower case, without accents.
    """
    if stem(bare_name) != stem(bare_text):
        return False
    if is_short_form(name) and text == f"{name}s":
        return True
    if min(len(bare_name), len(bare_text)) < SHORTEST or not (is_lower(name) and is_lower(text)):
        return False
    return len(bare_name) > SHORTEST or name.islower()
