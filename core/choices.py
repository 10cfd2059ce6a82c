"""What a message says of a name that is not known: the nearest one, and all that are."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


def nearest(word: str, names: Sequence[str]) -> str:
    """What a misspelt word may mean ("did you mean X? "), or "" where nothing is near."""
    # a word cut short
    longer = sorted(
        (k for k in names if len(word) > 2 and k.lower().startswith(word.lower())), key=len
    )
    close = (
        longer
        or difflib.get_close_matches(word, names, 1, 0.6)
        or difflib.get_close_matches(word.lower(), names, 1, 0.6)
    )
    return f"did you mean {close[0]}? " if close else ""


def list_known(word: str, choices: Iterable[str]) -> str:
    """The end of a message about a word that is none of the known ones.

    >>> list_known("diseas", ["disease", "gene"])
    'did you mean disease? Choose from: disease, gene'
    >>> list_known("x", ["disease", "gene"])
    'choose from: disease, gene'
    """
    names = list(choices)
    if not names:
        return "there is none"
    hint = nearest(word, names)
    return f"{hint}{'C' if hint else 'c'}hoose from: {', '.join(names)}"
