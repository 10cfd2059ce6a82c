"""Whether a text denies what a mention names: "no sign of nephritis".

NegEx (Chapman et al., A simple algorithm for identifying negated findings and diseases in discharge summaries, Journal of
Biomedical Informatics 2001), as the negspacy package has it, with its English clinical phrases, sentence by sentence.
"""

from __future__ import annotations

from collections.abc import Sequence

from core.files import InputError

SPANS = "mentions"


class Negation:
    """The rules, ready. Raises InputError where negspacy is not installed."""

    def __init__(self) -> None:
        try:
            import spacy
            from negspacy.negation import Negex
        except ImportError as error:
            raise InputError(f"negation: {error}. Install the extra: pip install negspacy") from None
        self.language = spacy.blank("en")
        self.sentences = self.language.add_pipe("sentencizer")
        self.rules = Negex(
            self.language, name="negex", ent_types=[], extension_name="negated", chunk_prefix=[], span_keys=[SPANS],
            neg_termset=_phrases(),
        )  # fmt: skip

    def negated(self, text: str, places: Sequence[tuple[int, int]]) -> list[bool]:
        """For each (start, end) of the text: whether it is denied. Places may overlap; one inside a word means the word."""
        if not places:
            return []
        document = self.language.make_doc(text)
        self.sentences(document)
        spans = [document.char_span(start, end, label="mention", alignment_mode="expand") for start, end in places]
        if outside := [place for place, span in zip(places, spans, strict=True) if span is None]:
            raise ValueError(f"place {outside[0]}: expected one inside a text of {len(text)} characters")
        document.spans[SPANS] = [span for span in spans if span is not None]
        return [bool(span._.negated) for span in self.rules(document).spans[SPANS]]


def _phrases() -> dict[str, list[str]]:
    from negspacy.termsets import termset

    phrases: dict[str, list[str]] = termset("en_clinical").get_patterns()
    return phrases
