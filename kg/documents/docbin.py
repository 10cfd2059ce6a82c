"""DocBin, what spaCy saves (.spacy): doc.ents and doc.spans, their labels and kb_ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from core.files import InputError
from kg.documents.mentions import (
    BY_LINE,
    OVERLAPPING,
    Document,
    Layout,
    Mention,
    Source,
    make_document,
)

# --- DocBin


def docbin_documents(
    path: Source,
    encoding: str = "utf-8",
    left_out: Counter[str] | None = None,
    used: bool = True,
    layout: Layout = BY_LINE,
) -> Iterator[Document]:
    """The documents of a spaCy DocBin, in its own order; ids are user_data["id"], or numbers.

    Raises InputError for a file that is none.
    """
    import spacy
    from spacy.tokens import DocBin

    left_out = Counter() if left_out is None else left_out
    stem = layout.name_file(Path(path))
    try:
        docs = list(DocBin().from_bytes(Path(path).read_bytes()).get_docs(spacy.blank("xx").vocab))
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else repr(error)
        raise InputError(f"{path}: not a DocBin of spaCy ({reason})") from error
    for number, doc in enumerate(docs, start=1):
        spans = [*doc.ents, *(span for group in doc.spans.values() for span in group)]
        mentions = [Mention(e.start_char, e.end_char, e.kb_id_, 1.0, e.label_) for e in spans]
        distinct = list(dict.fromkeys(mentions))
        name = str(doc.user_data.get("id") or f"{stem}:{number}")
        yield make_document(name, doc.text, distinct, f"{path}: document {number}", left_out)


NO_TOKEN = "mentions that no token has a part of"
WIDENED = "places inside a token, widened to the whole of it"


def docbin_bytes(records: Iterable[dict[str, Any]], lost: Counter[str]) -> bytes:
    """Records as a DocBin; of overlapping mentions the longest, widened to whole tokens, which
    `lost` counts."""
    import spacy
    from spacy.tokens import DocBin
    from spacy.util import filter_spans

    nlp, stored = spacy.blank("xx"), DocBin(store_user_data=True)
    for record in records:
        doc = nlp(record["text"])
        doc.user_data["id"] = str(record["id"])
        spans = []
        for m in record["mentions"]:
            span = doc.char_span(
                m["start"],
                m["end"],
                label=str(m.get("type") or "ENTITY"),
                kb_id=str(m.get("entity") or ""),
                alignment_mode="expand",
            )
            if span is None:
                lost[NO_TOKEN] += 1
                continue
            lost[WIDENED] += (span.start_char, span.end_char) != (m["start"], m["end"])
            spans.append(span)
        doc.ents = filter_spans(spans)
        lost[OVERLAPPING] += len(spans) - len(doc.ents)
        stored.add(doc)
    content: bytes = stored.to_bytes()
    return content
