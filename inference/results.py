"""What a chain or a tagger finds in texts: a list of each text's mentions that also becomes a table
of pandas, and is shown with its texts in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
SHOWN = 20  #: texts that a notebook shows


class Mentions(list[list[T]]):
    """The mentions of each text, in order; `texts` are the texts.

    A mention is a NamedTuple with `start`, `end` and `type`, as inference.chain.Linked and
    inference.entity_tagger.Span have them.
    """

    def __init__(self, lists: Iterable[list[T]], texts: Sequence[str]) -> None:
        super().__init__(lists)
        self.texts = list(texts)

    def to_pandas(self) -> pd.DataFrame:
        """A row a mention: the text's number under `document`, and every field of the mention.
        Candidates are left out but for the best, which the other fields hold."""
        import pandas as pd

        rows = []
        for number, mentions in enumerate(self):
            for mention in mentions:
                fields: dict[str, Any] = mention._asdict()  # type: ignore[attr-defined]
                fields.pop("candidates", None)
                rows.append({"document": number} | fields)
        return pd.DataFrame(rows, columns=None if rows else ["document", "start", "end", "text"])

    def _repr_html_(self) -> str:
        """The texts with their mentions marked; of overlapping ones the first."""
        parts = [
            f"<p>{_mark_mentions(text, mentions)}</p>"
            for text, mentions in zip(self.texts[:SHOWN], self, strict=False)
        ]
        left = len(self.texts) - SHOWN
        return "".join(parts) + (f"<p>… and {left:,} more texts</p>" if left > 0 else "")


def as_record(mention: Any) -> dict[str, Any]:
    """A mention as JSON holds it."""
    record: dict[str, Any] = mention._asdict()
    if "candidates" in record:
        record["candidates"] = [candidate._asdict() for candidate in record["candidates"]]
    return record


def as_records(documents: Iterable[Any], mentions: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    """{id, text, mentions} of each document, or example of a task, as JSON holds it."""
    return [
        {"id": document.id, "text": document.text, "mentions": list(map(as_record, spans))}
        for document, spans in zip(documents, mentions, strict=True)
    ]


def _mark_mentions(text: str, mentions: Sequence[Any]) -> str:
    """A text as HTML; each mention's label is its entity and name, or its type."""
    pieces, place = [], 0
    for mention in mentions:
        if mention.start < place:
            continue
        entity = getattr(mention, "entity", None)
        meant = f"{entity} {mention.name}" if entity else str(mention.type or "NIL")
        denied = "not " if getattr(mention, "negated", None) else ""
        pieces.append(escape(text[place : mention.start]))
        pieces.append(
            f"<mark>{escape(text[mention.start : mention.end])}"
            f" <small>{escape(denied + meant)}</small></mark>"
        )
        place = mention.end
    return "".join([*pieces, escape(text[place:])])
