"""Mentions as a table and as a notebook shows them."""

from __future__ import annotations

import pytest

from inference.entity_tagger import Span
from inference.results import SHOWN, Mentions


def test_texts_with_their_mentions_marked() -> None:
    text = "no <acne> & polio in Gout"
    spans = [
        Span(4, 8, "acne", "Disease", 0.5),
        Span(6, 8, "ne", "Part", 0.5),  # inside another: left out
        Span(12, 17, "polio", "", 0.5),
        Span(21, 25, "Gout", "Disease", 0.5),
    ]
    assert Mentions([spans], [text])._repr_html_() == (
        "<p>no &lt;<mark>acne <small>Disease</small></mark>&gt; &amp; <mark>polio"
        " <small>NIL</small></mark> in <mark>Gout <small>Disease</small></mark></p>"
    )


@pytest.mark.parametrize(("more", "said"), [(0, ""), (1, "<p>… and 1 more texts</p>")])
def test_a_notebook_shows_the_first_texts(more: int, said: str) -> None:
    count = SHOWN + more
    shown = Mentions([[] for _ in range(count)], [f"t{n}" for n in range(count)])._repr_html_()
    assert shown == "".join(f"<p>t{n}</p>" for n in range(SHOWN)) + said


def test_a_row_for_each_mention() -> None:
    found = Mentions([[], [Span(0, 4, "Gout", "Disease", 0.5)]], ["", "Gout"]).to_pandas()
    assert found.to_dict("records") == [
        {"document": 1, "start": 0, "end": 4, "text": "Gout", "type": "Disease", "score": 0.5}
    ]
    assert list(Mentions([[]], [""]).to_pandas().columns) == ["document", "start", "end", "text"]
