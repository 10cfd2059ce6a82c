"""Cut points: characters at which long names are cut, and on which side.

Counted from the inner boundaries of the phrase segmentation of names longer than three characters,
the name itself not being one of its phrases: how often a character is the last one before a
boundary and the first one behind it. The most frequent `MOST` are written to a table that a person
reviews:

    character   first   last   example   keep      side
    性           0       2312   慢性|肝炎   yes       behind

keep says whether names are cut at the character, side where: `behind` it or `before` it. Cutting
happens by itself and on every occurrence, so a character is only good if nearly every word that has
it ends (begins) there: 性 and 型 end words, 综 and 检 begin them (综合征, 检查), whereas 病 is in 病毒, 病变 and
病理 as often as at an end, and 心 begins and ends words alike. Most are ends, for Chinese marks its
adjectives by their last character; none is cut on both sides.

Two rules keep words whole: no cut leaves one character alone on either side (性激素, 慢性病), and none is
    made behind a character
that another such one follows, for that belongs to the same word (炎症性: behind 性, not behind 症); but
a character that is doubled ends one word and begins the next (女性|性功能).
"""  # noqa: E501

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from core.files import InputError, atomic_write
from core.reading import excerpt, lines
from kg.build.segment.ngrams import even_text

MOST = 100  # the paper's
REVIEWED = Path(__file__).with_name("cut_points_zh.tsv")
COLUMNS = ("character", "first", "last", "example", "keep", "side")
SIDES = ("behind", "before")


class CutPoint(NamedTuple):
    """A candidate; first, last: how often it is the first, last character of a segment at an inner
    boundary."""

    character: str
    first: int
    last: int
    example: str
    keep: bool
    side: str


def count_cut_characters(
    segmented: Iterable[list[str]], most: int = MOST
) -> list[tuple[str, int, int, str]]:
    """(character, count as first, count as last, example) of the `most` frequent characters at
    inner boundaries.

    Letters and digits are left out. The example is the first name that has the character where it
    is more frequent.
    """
    first: Counter[str] = Counter()
    last: Counter[str] = Counter()
    examples: dict[tuple[str, int], str] = {}
    for pieces in segmented:
        for before, behind in pairwise(pieces):
            for counter, character, side in ((last, before[-1], 1), (first, behind[0], 0)):
                if _is_cuttable(character):
                    counter[character] += 1
                    examples.setdefault((character, side), "|".join(pieces))
    both = first + last
    ordered = sorted(both, key=lambda c: (-both[c], c))[:most]
    return [(c, first[c], last[c], examples[c, int(last[c] >= first[c])]) for c in ordered]


def _is_cuttable(character: str) -> bool:
    return character.isalpha() and not character.isascii()


def propose_cuts(
    candidates: Iterable[tuple[str, int, int, str]], reviewed: Mapping[str, str]
) -> list[CutPoint]:
    """The candidates with what `reviewed` (character -> side) says; whoever is not in it is not
    kept."""
    rows = []
    for character, first, last, example in candidates:
        side = reviewed.get(character) or ("behind" if last >= first else "before")
        rows.append(CutPoint(character, first, last, example, character in reviewed, side))
    return rows


def write_cut_points(path: str | Path, rows: Iterable[CutPoint]) -> None:
    with atomic_write(path) as handle:
        handle.write("\t".join(COLUMNS) + "\n")
        for row in rows:
            values = (
                row.character,
                row.first,
                row.last,
                row.example,
                "yes" if row.keep else "no",
                row.side,
            )
            handle.write("\t".join(map(str, values)) + "\n")


def read_cut_points(path: str | Path) -> dict[str, str]:
    """Character -> side, of the kept ones in a table such as :func:`write_cut_points` writes; lines
    with # are remarks.

    Raises InputError naming path:line.
    """
    cut_points: dict[str, str] = {}
    header = False
    for number, line in lines(path):
        if not line.strip() or line.startswith("#"):
            continue
        values = line.split("\t")
        if not header:
            if tuple(values) != COLUMNS:
                raise InputError(
                    f"{path}:{number}: expected the columns {', '.join(COLUMNS)}, separated by"
                    f" tabs, got {excerpt(line)}. Start from the cut_points.tsv of a segmenter."
                )
            header = True
            continue
        if (
            len(values) != len(COLUMNS)
            or len(values[0]) != 1
            or values[4] not in ("yes", "no")
            or values[5] not in SIDES
        ):
            raise InputError(
                f"{path}:{number}: expected one character, two counts, an example, yes or no, and "
                f"{' or '.join(SIDES)}, separated by tabs, got {excerpt(line)}. Fix the line."
            )
        if values[0] in cut_points:
            raise InputError(
                f"{path}:{number}: {values[0]!r} is kept twice. Leave one of the two lines."
            )
        if values[4] == "yes":
            cut_points[values[0]] = values[5]
    if not header:
        raise InputError(
            f"{path}: no cut points: expected a first line {', '.join(COLUMNS)}. Take another file."
        )
    return cut_points


def cut_units(units: list[str], points: Mapping[str, str]) -> list[list[str]]:
    """`units` (strings never to be cut) in stretches, parted at the cut points by the rules of this
    module."""
    pieces: list[list[str]] = [[]]
    sides = [points.get(even_text(unit)) for unit in units]
    # characters from this unit on, and in the stretch that is open
    left, size = sum(map(len, units)), 0
    for at, (unit, side) in enumerate(zip(units, sides, strict=True)):
        if side == "before" and size > 1 and left > 1:
            pieces.append([])
            size = 0
        pieces[-1].append(unit)
        size, left = size + len(unit), left - len(unit)
        same_word = sides[at + 1 : at + 2] == ["behind"] and units[at + 1] != unit
        if side == "behind" and not same_word and size > 1 and left > 1:
            pieces.append([])
            size = 0
    return [stretch for stretch in pieces if stretch]
