"""Mentions that name several things in one phrase: "breast and ovarian cancer".

A rule expands the phrase; a split is made only where every part is a name of the dictionary and the whole is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_BETWEEN = re.compile(r"\s*,\s*(?:(?:and|or|and/or)\s+)?|\s+(?:and|or|and/or|&)\s+|\s*/\s*")
MOST = 8  #: conjuncts: longer enumerations are left whole


def expansions(mention: str) -> Iterator[list[str]]:
    """Ways to read a coordination, each a list of phrases: with a shared end, with a shared beginning, as it is written.

    "breast and ovarian cancer": [breast cancer, ovarian cancer], [breast, ovarian cancer] last, since
    "breast" may be a name, too. Shorter shared parts come first.
    """
    conjuncts = [part for part in _BETWEEN.split(mention) if part]
    if not 2 <= len(conjuncts) <= MOST:
        return
    last = conjuncts[-1].split()
    for shared in range(len(last) - 1, 0, -1):
        end = " ".join(last[shared:])
        yield [*(f"{part} {end}" for part in conjuncts[:-1]), conjuncts[-1]]
    first = conjuncts[0].split()
    for shared in range(1, len(first)):
        beginning = " ".join(first[:shared])
        yield [conjuncts[0], *(f"{beginning} {part}" for part in conjuncts[1:])]
    yield conjuncts


def parts_of(mention: str, known: Callable[[str], bool]) -> list[str]:
    """The phrases that a composite mention combines.

    The mention alone where it is known itself, and where no reading has known parts only.
    """
    if known(mention):
        return [mention]
    for parts in expansions(mention):
        if len(set(parts)) > 1 and all(map(known, parts)):
            return list(dict.fromkeys(parts))
    return [mention]
