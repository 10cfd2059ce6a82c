"""Names into the words they are made of: the appendix of EMBERT (Cai et al., NLPCC 2021), step by
step.

Units        A name is a row of units that nothing cuts: one ideograph, or one run of other letters
             and digits, each with the punctuation and blanks that follow it (an opening bracket
             goes with what it opens).
Short names  of three characters or fewer, or without an ideograph, are left whole.
1 Cut points    The others are cut at cut points (kg.build.segment.cuts).
2 Jieba         Each stretch goes through Jieba, which has the short names and phrases beside its
                own words; its words are concatenated. Letters and digits are joined with one
                ideograph behind or, without one, before them (2型, 抗HIV); a single letter with what
                follows (β受体). A character that is cut behind ends a word, so where Jieba leaves it
                alone it is joined with the word before it (假膜性).
3 Correction    If more than `singles` of the units are one ideograph alone, that was no
                segmentation: the phrases cut the name instead
                (kg.build.segment.phrases.PhraseModel). If that is no better the name is left whole,
                as a unknown name is better whole than in characters. One in three is the default:
                one odd character beside a word of two (胃|穿孔) happens in good segmentations, two in
                a name of five do not.
4               A name with one piece is short, any other long.

Joined pieces are the name, character by character.
"""  # noqa: E501

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jieba

from core.artifact import Artifact
from core.files import InputError
from core.reading import excerpt, lines
from kg.build.segment.cuts import cut_units, read_cut_points
from kg.build.segment.ngrams import even_text
from kg.build.segment.phrases import PhraseModel, read_phrases
from kg.linking.tokens import IDEOGRAPHS

FORMAT = 1
SEGMENTER = Artifact(
    "segmenter", "kepl graph segment build --help", FORMAT, ("total", "singles"), ""
)
SHORT = 3  # characters of the longest name that is always short
SINGLES = 1 / 3
LONGEST = 200  # units; a longer name is no name and left whole
_RANGES = [(low, high) for low, high in zip(IDEOGRAPHS[::3], IDEOGRAPHS[2::3], strict=True)]
_OPENING = "([{（［｛【〔《〈「『“‘"


class Explained(NamedTuple):
    """How a name was cut.

    how      "short", "whole" (nothing cuts it), "cut points", "jieba", "cut points and jieba" or
             "phrases"
    stretches, words, corrected   what steps 1, 2 and 3 returned; empty where a step was not needed
    """

    name: str
    how: str
    pieces: list[str]
    stretches: list[str]
    words: list[str]
    corrected: list[str]


def is_ideograph(character: str) -> bool:
    return any(low <= character <= high for low, high in _RANGES)


def units(name: str) -> list[str]:
    """The strings of `name` that nothing cuts; joined they are the name."""
    pieces: list[str] = []
    opened = False  # what comes next belongs to the unit at the end
    for before, character in zip(" " + name, name, strict=False):
        letter = character.isalnum() and not is_ideograph(character)
        if character in _OPENING:
            if pieces and not opened:
                pieces.append("")
            opened = True
        elif character.isalnum():
            if not opened and not (letter and before.isalnum() and not is_ideograph(before)):
                pieces.append("")
            opened = False
        if not pieces:  # punctuation before anything else goes with what comes
            pieces.append("")
            opened = True
        pieces[-1] += character
    return pieces


def _core(piece: str) -> str:
    return "".join(filter(str.isalnum, piece))


def _is_single(piece: str) -> bool:
    core = _core(piece)
    return len(core) == 1 and is_ideograph(core)


def _is_letters(piece: str) -> bool:
    core = _core(piece)
    return bool(core) and not any(map(is_ideograph, core))


def join_pieces(pieces: list[str]) -> list[str]:
    """`pieces` with letters and digits joined to their neighbours by the rule in the module's
    docstring."""
    pieces = list(pieces)
    at = 0
    while at < len(pieces):
        if _is_letters(pieces[at]) and len(pieces) > 1:
            behind = at + 1 < len(pieces)
            if behind and _is_single(pieces[at + 1]):
                first = at
            elif at and _is_single(pieces[at - 1]):
                first = at - 1
            elif len(_core(pieces[at])) == 1:
                first = at if behind else at - 1
            else:
                first = -1
            if first >= 0:
                pieces[first : first + 2] = ["".join(pieces[first : first + 2])]
                at = first
        at += 1
    return pieces


def too_many_singles(pieces: list[str], size: int, singles: float = SINGLES) -> bool:
    """Whether more than a share `singles` of `size` units are one ideograph alone."""
    return sum(map(_is_single, pieces)) > singles * size


def plain_jieba() -> Any:
    """A tokenizer of its own with Jieba's own words.

    Jieba would read them from, and write them to, a file of a fixed name in the machine's temporary
    folder, whoever has put it there; its initialisation is done here instead, without that file.
    """
    tokenizer = jieba.Tokenizer()
    tokenizer.FREQ, tokenizer.total = tokenizer.gen_pfdict(tokenizer.get_dict_file())
    tokenizer.initialized = True
    return tokenizer


def read_dictionary(path: str | Path) -> Iterator[tuple[str, int | None]]:
    """(word, frequency or None) of a user dictionary: word, optionally a count, optionally a tag,
    blanks or tabs between.

    Raises InputError naming path:line.
    """
    for number, line in lines(path):
        values = line.split()
        if not values:
            continue
        count = values[1] if len(values) > 1 and re.fullmatch("[0-9]{1,12}", values[1]) else None
        if (
            len(values) > 3
            or (len(values) == 3 and count is None)
            or (count is not None and int(count) < 1)
        ):
            raise InputError(
                f"{path}:{number}: expected a word, then a count of at least 1 and a tag if you"
                f" like, with blanks or tabs between, got {excerpt(line)}. Fix the line."
            )
        yield values[0], None if count is None else int(count)


class Segmenter:
    """Cuts names by the rules of this module.

    words    what Jieba learns: (word, frequency; None leaves it to Jieba, so that the word is not
             cut).
    points   character -> "behind" or "before".  phrases  the model that corrects.
    """

    def __init__(
        self,
        words: Iterable[tuple[str, int | None]],
        points: Mapping[str, str],
        phrases: PhraseModel,
        *,
        singles: float = SINGLES,
    ) -> None:
        if not 0 <= singles <= 1:
            raise InputError(f"singles {singles}: expected a share from 0 to 1")
        self.points, self.phrases, self.singles = dict(points), phrases, singles
        self.jieba = plain_jieba()
        for word, count in words:
            self.jieba.add_word(word, count)

    @classmethod
    def load(cls, folder: str | Path) -> Segmenter:
        """The segmenter that `kepl graph segment build` wrote to `folder`. Raises
        InputError when there is none."""
        folder = Path(folder)
        manifest = SEGMENTER.manifest(folder)
        return cls(
            read_dictionary(folder / "words.tsv"),
            read_cut_points(folder / "cut_points.tsv"),
            PhraseModel.from_counts(read_phrases(folder / "phrases.tsv"), manifest["total"]),
            singles=manifest["singles"],
        )

    def _words(self, stretch: list[str]) -> list[str]:
        """What Jieba makes of the units of a stretch; its boundaries inside a unit are left out."""
        text = "".join(stretch)
        legal, at = set(), 0
        for unit in stretch:
            at += len(unit)
            legal.add(at)
        words: list[str] = []
        start, end = 0, 0
        for word in self.jieba.cut(even_text(text)):
            end += len(word)
            if end in legal:
                if words and self.points.get(even_text(text[start:end])) == "behind":
                    words[-1] += text[start:end]
                else:
                    words.append(text[start:end])
                start = end
        return words

    def explain(self, name: str) -> Explained:
        """How `name` is cut. Raises InputError for a name without a character that is not blank."""
        if not name.strip():
            raise InputError(f"name {name!r}: expected a name, got nothing but blanks")
        parts = units(name)
        core = _core(name)
        if len("".join(name.split())) <= SHORT or not any(map(is_ideograph, core)):
            return Explained(name, "short", [name], [], [], [])
        if len(parts) > LONGEST:
            return Explained(name, "whole", [name], [], [], [])
        stretches = cut_units(parts, self.points)
        cuts = ["".join(stretch) for stretch in stretches]
        words = join_pieces([word for stretch in stretches for word in self._words(stretch)])
        if too_many_singles(words, len(parts), self.singles):
            corrected = join_pieces(self.phrases.pieces(parts))
            if too_many_singles(corrected, len(parts), self.singles):
                corrected = [name]
            how = "phrases" if len(corrected) > 1 else "whole"
            return Explained(name, how, corrected, cuts, words, corrected)
        if len(words) == 1:
            how = "whole"
        elif words == cuts:
            how = "cut points"
        else:
            how = "jieba" if len(cuts) == 1 else "cut points and jieba"
        return Explained(name, how, words, cuts, words, [])

    def pieces(self, name: str) -> list[str]:
        """The pieces of `name`, one if it is short; joined they are the name. Raises InputError as
        `explain` does."""
        return self.explain(name).pieces


def format_explanation(explained: Explained) -> str:
    """An explanation as lines."""
    lines = [f"{explained.name}  ->  {'|'.join(explained.pieces)}  ({explained.how})"]
    if explained.how == "short":
        lines.append(f"  short: at most {SHORT} characters, or no Chinese character")
    if explained.stretches:
        lines += [
            f"  cut points: {'|'.join(explained.stretches)}",
            f"  jieba: {'|'.join(explained.words)}",
        ]
    if explained.corrected:
        lines.append(f"  too many single characters; the phrases: {'|'.join(explained.corrected)}")
    if explained.how == "whole":
        lines.append("  one piece: counted as short")
    return "\n".join(lines)
