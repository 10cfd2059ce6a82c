"""Mentions that come with the documents (PubMedDS, PubTator corpora), checked against the graph."""

from __future__ import annotations

from collections import Counter

from core.files import InputError
from kg.documents.mentions import Document, Mention
from kg.ids import Ids


class GivenLinker:
    """Keeps each document's own mentions in order of their places; where two overlap, the earlier
    and longer one.

    Ids are read as kg.ids does. A mention of several entities becomes a mention of each, at the
    same place, and one that its source gives no concept is left out.

    ids: the graph's.  unknown: "error" raises InputError at an id that means no entity of the
        graph, "drop" leaves it out.
    left_out: {why: mentions}, of all documents so far
    """

    def __init__(self, ids: Ids, *, unknown: str = "error") -> None:
        if unknown not in ("error", "drop"):
            raise InputError(
                f"no way {unknown!r} to treat unknown entity ids; choose from: error, drop"
            )
        self._ids, self.unknown = ids, unknown
        self.left_out: Counter[str] = Counter()

    def link_document(self, document: Document) -> list[Mention]:
        """The document's mentions. Raises InputError for an unknown id or offsets outside the
        text."""
        where = document.where or f"document {document.id!r}"
        mentions: list[Mention] = []
        for mention in sorted(document.mentions, key=lambda m: (m.start, -m.end)):
            resolved = self._ids.resolve(mention.entity)
            if resolved.unknown and self.unknown == "error":
                raise InputError(
                    f"{where}: document {document.id!r}, mention [{mention.start}, {mention.end}):"
                    f" entity id {resolved.unknown[0]!r} is not in the graph. Build the graph with"
                    " it, or leave such mentions out with --unknown drop."
                )
            if not resolved.entities:
                self.left_out["of an unknown id" if resolved.unknown else "without a concept"] += 1
            elif not 0 <= mention.start < mention.end <= len(document.text):
                raise InputError(
                    f"{where}: document {document.id!r}, mention [{mention.start}, {mention.end})"
                    f" is outside its text of {len(document.text)} characters."
                )
            elif (
                not mentions
                or mention.start >= mentions[-1].end
                or (mention.start, mention.end) == (mentions[-1].start, mentions[-1].end)
            ):
                here = {
                    m.entity for m in mentions if (m.start, m.end) == (mention.start, mention.end)
                }
                mentions += [
                    mention._replace(entity=entity)
                    for entity in resolved.entities
                    if entity not in here
                ]
            else:
                self.left_out["inside or across another"] += 1
        return mentions
