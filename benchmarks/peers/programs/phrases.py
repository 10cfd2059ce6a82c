"""spaCy's PhraseMatcher over the graph's names, in lower case; of overlapping matches the longest
(spacy.util.filter_spans)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def make(
    names: Path, options: dict[str, Any]
) -> Callable[[Sequence[str]], list[list[tuple[int, int, str]]]]:
    """See benchmarks.peers.worker."""
    import spacy
    from spacy.matcher import PhraseMatcher
    from spacy.util import filter_spans

    language: Any = spacy.blank("en")
    matcher = PhraseMatcher(language.vocab, attr="LOWER")
    patterns: dict[str, list[str]] = {}
    for line in names.read_text(encoding="utf-8").split("\n")[:-1]:
        entity, name, *_ = json.loads(line)
        patterns.setdefault(entity, []).append(name)
    for entity, entity_patterns in patterns.items():
        matcher.add(entity, list(language.tokenizer.pipe(entity_patterns)))

    def link(texts: Sequence[str]) -> list[list[tuple[int, int, str]]]:
        result = []
        for doc in language.tokenizer.pipe(texts):
            spans = filter_spans(matcher(doc, as_spans=True))
            result.append([(s.start_char, s.end_char, s.label_) for s in spans])
        return result

    return link
