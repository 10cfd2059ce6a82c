"""gilda (Gyori, Hoyt and Steppi, Bioinformatics Advances 2022): its annotator over the graph's
names.

Its downloaded disambiguation models are left out, as those of every other peer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def make(
    names: Path, options: dict[str, Any]
) -> Callable[[Sequence[str]], list[list[tuple[int, int, str]]]]:
    """See benchmarks.peers.worker."""
    from gilda.grounder import Grounder
    from gilda.ner import annotate
    from gilda.process import normalize
    from gilda.term import Term

    terms: list[Term] = []
    for line in names.read_text(encoding="utf-8").split("\n")[:-1]:
        entity, name, kind, preferred = json.loads(line)
        if norm := normalize(name).strip():
            terms.append(
                Term(
                    norm,
                    name,
                    "graph",
                    entity,
                    preferred,
                    "name" if kind == "preferred" else "synonym",
                    "graph",
                )
            )
    grounder = Grounder(terms)
    grounder.adeft_disambiguators, grounder.gilda_disambiguators = {}, {}

    def link(texts: Sequence[str]) -> list[list[tuple[int, int, str]]]:
        return [
            [(a.start, a.end, a.matches[0].term.id) for a in annotate(text, grounder=grounder)]
            for text in texts
        ]

    return link
