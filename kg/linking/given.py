"""Mentions that come with the documents (PubMedDS, PubTator corpora), checked against the graph."""

from __future__ import annotations

from collections.abc import Iterable

from core.files import InputError
from kg.linking.mentions import Document, Mention


class GivenLinker:
    """Keeps each document's own mentions in order of their places; where two overlap, the earlier and longer one.

    ids: the graph's entity ids.  unknown: "error" raises InputError at a mention of an id that is not among them,
    "drop" leaves it out and counts it in `dropped`.
    """

    def __init__(self, ids: Iterable[str], *, unknown: str = "error") -> None:
        if unknown not in ("error", "drop"):
            raise InputError(f"no way {unknown!r} to treat unknown entity ids; choose from: error, drop")
        self._ids = frozenset(ids)
        self.unknown, self.dropped = unknown, 0

    def link_document(self, document: Document) -> list[Mention]:
        """The document's mentions. Raises InputError for an unknown id or offsets outside the text."""
        where = document.where or f"document {document.id!r}"
        kept: list[Mention] = []
        for mention in sorted(document.mentions, key=lambda m: (m.start, -m.end)):
            if mention.entity not in self._ids:
                if self.unknown == "error":
                    raise InputError(
                        f"{where}: document {document.id!r}, mention [{mention.start}, {mention.end}): "
                        f"entity id {mention.entity!r} is not in the graph. Build the graph with it, or "
                        "leave such mentions out with --unknown drop."
                    )
                self.dropped += 1
            elif not 0 <= mention.start < mention.end <= len(document.text):
                raise InputError(
                    f"{where}: document {document.id!r}, mention [{mention.start}, {mention.end}) is "
                    f"outside its text of {len(document.text)} characters."
                )
            elif not kept or mention.start >= kept[-1].end:
                kept.append(mention)
        return kept
