"""Sentences of English text: papers, and notes whose lines and list items are statements.

A sentence ends at . ! ? with what closes behind it (quotation marks, brackets) and white space, at
a Chinese mark, at a blank line, and at the end of a line unless the text is wrapped there: the next
line continues in lower case behind a line of some length, or the line ends in a comma or a word
that cannot end a statement ("history of"). A full stop ends no sentence behind
    an initial          "E. coli", "J. Smith", also at a text's start and behind a quotation mark
    a dotted short form "U.S.", "b.i.d.", "e.g."
    an abbreviation     ABBREVIATIONS; a short word without a vowel before a lower-case one ("pt.
                        was")
    the number of a list item at the beginning of a line
but a capitalized function word behind the first two does begin one ("vitamin E. The patient").

>>> [t for t in split_sentences("E. coli grew, cf. Figs. 1 and 2. It was “rare”. Really?")]
['E. coli grew, cf. Figs. 1 and 2. ', 'It was “rare”. ', 'Really?']
>>> split_sentences("No fever\\nCough for two days")
['No fever\\n', 'Cough for two days']
"""

from __future__ import annotations

import re

from kg.linking.words import FUNCTION_WORDS

#: Words that a full stop does not make the end of a sentence, in lower case.
ABBREVIATIONS = frozenset(
    """
abd approx appt bact bv ca cf chr ch cv dept det diff dr ed eds eq eqs esp est exp ext fig figs
gen hosp hx incl ind inf inj lab lat lit max med min mr mrs ms mt nat no nos nov nr obs orig ph pl
pos pp prof pt pts pv ref refs rel resp sect ser sol sp spp ssp st staph strep subsp subst suppl
tab tabl temp univ var vit viz vol vs wt
""".split()
)
#: Abbreviations that may end a sentence, where a capital letter begins the next one.
ENDING = frozenset(
    "al etc inc ltd co jr sr sp spp corp jan feb apr aug sep sept oct nov dec".split()
)
#: Words that end no statement: a line that ends in one is wrapped.
OPEN = frozenset(
    """
a an and are as at be been by for from had has have in into is of on or per than that
the their this to under via was were when which while who whose with without
""".split()
)

WRAPPED = 50  #: characters of a line that may be wrapped before a word in lower case
_CLOSING = "[\"'”’»)\\]]*"
# A run of marks is tried from its first one alone, and never again shorter: the time grows with the
# text, not its square.
_END = re.compile(rf"(?<![.!?])[.!?]++{_CLOSING}+(?=\s)|[。！？]{_CLOSING}+|\n")
_BLANK = re.compile(r"\s*")
_LINE_END = re.compile("\r(?!\n)|[\v\f\x85\u2028\u2029]")
_WORD_BEFORE = re.compile(r"[\w.\-/]*\Z")
ITEM = re.compile(r"[ \t]*(?:[-*\u2022\u00b7+]|\(?\d{1,2}[.)])[ \t]")
_ITEM_NUMBER = re.compile(r"[ \t]*\(?\d{1,2}\Z")
_NEXT_WORD = re.compile(r"\s*([\"'“‘(\[]*)(\w*)")
_VOWEL = re.compile("[aeiouy]")
_LOOK = 64  # characters before a mark that are looked at


def unify_line_ends(text: str) -> str:
    """The text, as long as it was, with \\n for every other end of a line or paragraph: a carriage
    return alone (HL7), vertical tabs, form feeds, NEL and Unicode's separators."""
    return _LINE_END.sub("\n", text)


def sentence_starts(text: str) -> list[int]:
    """Where the sentences of a text begin, the first at 0; white space behind one belongs to it."""
    text = unify_line_ends(text)
    # line: where it begins; passed: what is known to hold no further end
    starts, line, passed = [0], 0, 0
    for match in _END.finditer(text):
        is_line_end = match[0] == "\n"
        if match.start() >= passed:
            ends = (_line_ends_sentence if is_line_end else _mark_ends_sentence)(text, line, match)
            if ends:
                passed = _end_of_blank(text, match.end())
                if passed < len(text) and text[starts[-1] : match.end()].strip():
                    starts.append(passed)
        if is_line_end:
            line = match.end()
    return starts


def _end_of_blank(text: str, place: int) -> int:
    """Where white space that begins at `place` ends."""
    match = _BLANK.match(text, place)
    return place if match is None else match.end()


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """[start, end) of each sentence; together they are the text."""
    starts = sentence_starts(text)
    return list(zip(starts, [*starts[1:], len(text)], strict=True))


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, with the white space behind each."""
    return [text[start:end] for start, end in sentence_spans(text)]


def _line_ends_sentence(text: str, line: int, match: re.Match[str]) -> bool:
    """Whether a line end ends a sentence; line: where its line begins."""
    end = match.start()
    line_text = text[max(line, end - 400) : end].rstrip()
    rest = text[end + 1 : end + 1 + _LOOK]
    following = rest.lstrip(" \t\r")
    if not line_text or not following or following[0] == "\n" or ITEM.match(rest):
        return True
    last_word = line_text.rpartition(" ")[2]
    if line_text[-1] in ",-(" or last_word.lower() in OPEN:
        return False
    return end - line < WRAPPED or not following[0].islower()


def _mark_ends_sentence(text: str, line: int, match: re.Match[str]) -> bool:
    """Whether a mark ends a sentence; line: where its line begins."""
    if match[0][0] != ".":
        return True
    before = text[max(line, match.start() - _LOOK) : match.start()]
    if len(before) == match.start() - line and _ITEM_NUMBER.fullmatch(before):
        return False
    word_before = _WORD_BEFORE.search(before)
    word = word_before[0].rpartition("-")[2].rpartition("/")[2] if word_before else ""
    next_match = _NEXT_WORD.match(text, match.end())
    next_word = next_match[2] if next_match else ""
    begins = next_word[:1].isupper() and next_word.lower() in FUNCTION_WORDS
    is_initial = len(word) == 1 and word.isupper()
    if is_initial or re.fullmatch(r"(?:[A-Za-z]{1,3}\.)+[A-Za-z]{1,2}", word):
        return begins and match.end() < len(text)
    lower = word.lower()
    if lower in ENDING:
        return next_word[:1].isupper()
    if lower in ABBREVIATIONS:
        return False
    is_short = 0 < len(word) <= 4 and word.isalpha() and not _VOWEL.search(lower)
    return not (is_short and word.islower() and next_word[:1].islower())
