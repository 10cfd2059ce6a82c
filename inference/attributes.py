"""What an English text says of a mention: denied, of a relative, of the past, or only supposed.

ConText (Harkema, Dowling, Thornblade and Chapman, ConText: an algorithm for determining negation,
experiencer and temporal status from clinical reports, Journal of Biomedical Informatics 2009),
which extends NegEx (Chapman et al., 2001): a phrase of PHRASES gives the mentions in its reach an
attribute. It reaches from the phrase to the end of the sentence, or to the first of TERMINATORS;
before it, behind it, or in both directions. Sentences are those of kg.linking.sentences: a line of
a note, and an item of a list, is a statement of its own. A phrase of PSEUDO contains another one
and gives nothing.

>>> find_attributes("No fever, but cough. Mother had asthma.", [(3, 8), (14, 19), (32, 38)])
[Attributes(negated=True, family=False, historical=False, hypothetical=False), \
Attributes(negated=False, family=False, historical=False, hypothetical=False), \
Attributes(negated=False, family=True, historical=False, hypothetical=False)]
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from inference.attribute_phrases import BEFORE, BEHIND, BOTH, PHRASES, PSEUDO, TERMINATORS
from kg.linking.passage import Passage
from kg.linking.sentences import ITEM


class Attributes(NamedTuple):
    """negated: the text denies it.  family: a relative has it.  historical: the patient had it.

    hypothetical: it is only supposed, feared or to be looked for.
    """

    negated: bool = False
    family: bool = False
    historical: bool = False
    hypothetical: bool = False


NOT = "not"  #: how a denied mention is shown


def describe(record: Mapping[str, Any]) -> dict[str, str]:
    """What a record of a mention says beside its place, entity and score: for every output and page
    that shows mentions.

    {negated, family, historical, hypothetical: "true" where they are; long_form, part, matched;
    tied: "true"}.
    """
    values = {name: "true" for name in Attributes._fields if record.get(name)}
    values |= {
        name: str(record[name]) for name in ("long_form", "part", "matched") if record.get(name)
    }
    best: Mapping[str, Any] = next(iter(record.get("candidates") or ()), {})
    if record.get("entity") is not None and best.get("tied"):
        values["tied"] = "true"
    return values


def describe_in_words(record: Mapping[str, Any]) -> list[str]:
    """The same in words, as they are printed."""
    words = {"negated": NOT, "long_form": "= {}", "part": "part: {}", "matched": "by {}"}
    return [words.get(name, name).format(value) for name, value in describe(record).items()]


#: "Fever: denied." "Cough no": a word at the end of its sentence that denies what is before it.
_LAST = re.compile(r"(?<!\w)(?:denies|denied|none|no|neg)\Z", re.IGNORECASE)
#: "fever: no; cough: yes", "fever (-)", "fever-free": what denies the words before it, back to a
#: comma or semicolon.
_LABEL = re.compile(
    r"(?:[:=-][ \t]*(?:no|none|denied|denies|neg|negative|absent)(?!\w)(?=["
    r" \t]*[;,.)\n])|\(-\)|-free(?!\w))",
    re.IGNORECASE,
)
_CLAUSE_END = re.compile("[,;]")
_NUMBER = re.compile(r"\.[ \t]*\d")  # "No. 5"


def _pattern(phrases: Sequence[str]) -> re.Pattern[str]:
    """Any of the phrases, the longest first, as whole words, whatever the white space in them."""
    longest = sorted(phrases, key=len, reverse=True)
    choices = "|".join(r"\s+".join(map(re.escape, phrase.split())) for phrase in longest)
    return re.compile(rf"(?<![\w-])(?:{choices})(?![\w])", re.IGNORECASE)


def _rules() -> dict[str, list[tuple[str, str]]]:
    """{phrase: [(attribute, where it stands)]}; nothing for those of PSEUDO."""
    rules: dict[str, list[tuple[str, str]]] = {phrase: [] for phrase in PSEUDO}
    for attribute, places in PHRASES.items():
        for place, phrases in places.items():
            for phrase in phrases:
                rules.setdefault(phrase, []).append((attribute, place))
    return rules


_RULES = _rules()
_TRIGGERS = _pattern(list(_RULES))
_ENDS = re.compile(_pattern(TERMINATORS[:-1]).pattern + "|;", re.IGNORECASE)


def find_attributes(text: str | Passage, places: Sequence[tuple[int, int]]) -> list[Attributes]:
    """The attributes of each (start, end) of a text; places may overlap.

    Raises ValueError for a place outside the text.
    """
    passage = text if isinstance(text, Passage) else Passage(text)
    if not passage.is_normalized:
        passage = Passage(passage.source)
    length = len(passage.source)
    for start, end in places:
        if not 0 <= start < end <= length:
            raise ValueError(
                f"place {(start, end)}: expected one inside a text of {length} characters"
            )
    if not places:
        return []
    starts = passage.sentence_starts
    statements = _Statements(_without_nitric_oxide(passage, places), starts)
    attributes = []
    for start, _ in places:
        place = passage.normal_offset(start)
        reaches = statements.reaches(bisect_right(starts, place) - 1)
        attributes.append(
            Attributes(**{key: _is_reached(reach, place) for key, reach in reaches.items()})
        )
    return attributes


def _without_nitric_oxide(passage: Passage, places: Sequence[tuple[int, int]]) -> str:
    """The text with another word, as long, for each place that is "NO": what a text mentions denies
    nothing."""
    text = passage.text
    for start, end in places:
        if passage.source[start:end] == "NO":
            first = passage.normal_offset(start)
            text = f"{text[:first]}it{text[first + 2 :]}"
    return text


class _Statements:
    """The sentences of a text, and where mentions in them have an attribute; each is looked at
    once.

    A heading that ends in a colon ("Denies:") says of the items of the list under it what it says
    of its own end.
    """

    def __init__(self, text: str, starts: Sequence[int]) -> None:
        self.text, self.starts = text, starts
        self._reaches: dict[int, dict[str, _Reach]] = {}
        self._headings: dict[int, frozenset[str]] = {}

    def bounds(self, number: int) -> tuple[int, int]:
        end = self.starts[number + 1] if number + 1 < len(self.starts) else len(self.text)
        return self.starts[number], end

    def reaches(self, number: int) -> dict[str, _Reach]:
        """{attribute: where mentions of a sentence have it}."""
        if number not in self._reaches:
            low, high = self.bounds(number)
            self._reaches[number] = _reaches(self.text[low:high], low, self.heading(number))
        return self._reaches[number]

    def heading(self, number: int) -> frozenset[str]:
        """The attributes that the heading of its list gives an item."""
        first = number
        while (
            first >= 0 and first not in self._headings and ITEM.match(self.text, self.starts[first])
        ):
            first -= 1
        attributes = self._headings.get(first)
        if attributes is None:
            attributes = frozenset[str]()
            if 0 <= first < number:
                low, high = self.bounds(first)
                if (title := self.text[low:high].rstrip()).endswith(":"):
                    reaches = _reaches(title[:-1] + " x", low, frozenset())
                    attributes = frozenset(
                        key
                        for key, reach in reaches.items()
                        if _is_reached(reach, low + len(title))
                    )
        for item in range(first + 1, number + 1):
            self._headings[item] = attributes
        return attributes


class _Reach(NamedTuple):
    """Where mentions have an attribute: those that begin from `starts` on before `stops`, in the
    order of `starts`."""

    starts: list[int]
    stops: list[int]


def _reaches(sentence: str, offset: int, heading: frozenset[str]) -> dict[str, _Reach]:
    """{attribute: where mentions of a sentence, which begins at `offset`, have it}; `heading`: what
    its heading says of all."""
    ends = [match.span() for match in _ENDS.finditer(sentence)]
    begins_of_ends = [start for start, _ in ends]
    reaches: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for attribute in heading:
        reaches[attribute].append((0, len(sentence)))
    for match in _TRIGGERS.finditer(sentence):
        if match[0].lower() == "no" and _NUMBER.match(sentence, match.end()):
            continue
        for attribute, place in _RULES[" ".join(match[0].lower().split())]:
            if place in (BEFORE, BOTH):
                following = bisect_left(begins_of_ends, match.end())
                stop = ends[following][0] if following < len(ends) else len(sentence)
                reaches[attribute].append((match.end(), stop))
            if place in (BEHIND, BOTH):
                before = bisect_left(begins_of_ends, match.start()) - 1
                begin = ends[before][1] if before >= 0 else 0
                reaches[attribute].append((begin, match.start()))
    statement = sentence.rstrip(" \t\r\n.;,)")
    last = _LAST.search(statement, max(len(statement) - 10, 0))
    denials = [match.start() for match in _LABEL.finditer(sentence)] + (
        [] if last is None else [last.start()]
    )
    clauses = [0, *(match.end() for match in _CLAUSE_END.finditer(sentence))] if denials else []
    for denial in denials:
        reaches["negated"].append((clauses[bisect_right(clauses, denial) - 1], denial))
    return {attribute: _unite(spans, offset) for attribute, spans in reaches.items()}


def _unite(spans: list[tuple[int, int]], offset: int) -> _Reach:
    """Spans that overlap or touch as one."""
    starts: list[int] = []
    stops: list[int] = []
    for start, stop in sorted(spans):
        if stops and start + offset <= stops[-1]:
            stops[-1] = max(stops[-1], stop + offset)
        else:
            starts.append(start + offset)
            stops.append(stop + offset)
    return _Reach(starts, stops)


def _is_reached(reach: _Reach, start: int) -> bool:
    """Whether a mention that begins at `start` has an attribute."""
    number = bisect_right(reach.starts, start) - 1
    return number >= 0 and start < reach.stops[number]
