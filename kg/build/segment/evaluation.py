"""How a segmenter does against names cut by hand: kepl graph segment score.

The reviewed file has a name a line, | at each cut, optionally a tab and its type; lines with # are
remarks. Counted are the
boundaries inside names, over all names: precision, recall and their F1; and the share of names with
    every boundary right.
Baselines: Jieba with nothing but its own words, and the cut points alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from core.files import InputError
from core.reading import excerpt, lines
from kg.build.segment.cuts import cut_units
from kg.build.segment.segmenter import Segmenter, format_explanation, plain_jieba, units


class Score(NamedTuple):
    """Of inner boundaries; without any found, precision is 0, without any wanted, recall is. whole:
    names wholly right."""

    precision: float
    recall: float
    f1: float
    whole: float


class Scored(NamedTuple):
    """scores by system, the number of names, and (wanted, the segmenter's pieces) of the names that
    it got wrong."""

    scores: dict[str, Score]
    names: int
    wrong: list[tuple[list[str], list[str]]]


def read_reviewed(path: str | Path) -> list[list[str]]:
    """The pieces of each name in a reviewed file. Raises InputError naming path:line."""
    words: dict[str, list[str]] = {}
    for number, line in lines(path):
        if not line.strip() or line.startswith("#"):
            continue
        pieces = line.split("\t")[0].split("|")
        if not all(piece.strip() for piece in pieces):
            raise InputError(
                f"{path}:{number}: expected a name with | between its parts, got {excerpt(line)}."
                " Fix the line."
            )
        if (name := "".join(pieces)) in words:
            raise InputError(
                f"{path}:{number}: {name!r} is there twice. Leave one of the two lines."
            )
        words[name] = pieces
    if not words:
        raise InputError(
            f"{path}: no names. Expected a name with | between its parts on each line."
        )
    return list(words.values())


def boundaries(pieces: Iterable[str]) -> set[int]:
    """Offsets of the boundaries inside a name."""
    return set(list(accumulate(map(len, pieces)))[:-1])


def score(wanted: list[list[str]], predicted: list[list[str]]) -> Score:
    """The score of `predicted` against `wanted`, the pieces of the same names."""
    pairs = [(boundaries(w), boundaries(g)) for w, g in zip(wanted, predicted, strict=True)]
    right = sum(len(w & g) for w, g in pairs)
    precision = right / max(1, sum(len(g) for _, g in pairs))
    recall = right / max(1, sum(len(w) for w, _ in pairs))
    f1 = 2 * precision * recall / (precision + recall) if right else 0.0
    return Score(precision, recall, f1, sum(w == g for w, g in pairs) / max(1, len(pairs)))


def score_segmenter(segmenter: Segmenter, reviewed: list[list[str]]) -> Scored:
    """The segmenter and its baselines on reviewed names."""
    plain = plain_jieba()

    def cut_at_points(name: str) -> list[str]:
        return ["".join(stretch) for stretch in cut_units(units(name), segmenter.points)]

    systems: dict[str, Callable[[str], list[str]]] = {
        "segmenter": segmenter.pieces,
        "Jieba alone": plain.lcut,
        "cut points alone": cut_at_points,
    }
    names = ["".join(pieces) for pieces in reviewed]
    cuts = {system: list(map(cut, names)) for system, cut in systems.items()}
    wrong = [pair for pair in zip(reviewed, cuts["segmenter"], strict=True) if pair[0] != pair[1]]
    scores = {system: score(reviewed, pieces) for system, pieces in cuts.items()}
    return Scored(scores, len(names), wrong)


def show_pieces(segmenter: Path, name: Sequence[str]) -> None:
    """Cut names, and say how.

    Args:
        segmenter: Folder that kepl graph segment build wrote.
        name: Names to cut.
    """
    loaded = Segmenter.load(segmenter)
    for text in name:
        print(format_explanation(loaded.explain(text)))


def score_pieces(segmenter: Path, reviewed: Path) -> None:
    """Compare a segmenter with names cut by hand.

    Args:
        segmenter: Folder that kepl graph segment build wrote.
        reviewed: File with a name a line, | at each cut.
    """
    names = read_reviewed(reviewed)
    result = score_segmenter(Segmenter.load(segmenter), names)
    print(f"{reviewed}: {result.names} names, {sum(map(len, names)) - len(names)} boundaries")
    print("                  precision  recall     F1  names wholly right")
    for system, s in result.scores.items():
        print(f"{system:<16}  {s.precision:9.3f}  {s.recall:6.3f}  {s.f1:5.3f}  {s.whole:.3f}")
    print(f"wrong, {len(result.wrong)} names (expected, got):")
    for expected, cut_here in result.wrong:
        print(f"  {'|'.join(expected)}\t{'|'.join(cut_here)}")
