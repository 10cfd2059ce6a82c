"""python -m kg.build.segment build | show | score: what `kg.build.segment` documents."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import kg.build.segment
from core.files import InputError
from kg.build.segment.evaluation import read_reviewed, scored
from kg.build.segment.mining import QUALITY, build_segmenter, request
from kg.build.segment.segmenter import SEGMENTER, SINGLES, Segmenter, format_explanation
from kg.documents.formats import FORMATS


def arguments() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        "python -m kg.build.segment", description=kg.build.segment.__doc__, formatter_class=raw
    )
    commands = parser.add_subparsers(dest="command", required=True)
    made = commands.add_parser(
        "build", help="mine phrases, make the vocabulary, cut its long names"
    )
    made.add_argument(
        "--graph", required=True, metavar="FOLDER", help="folder of a knowledge graph"
    )
    made.add_argument(
        "--input",
        required=True,
        nargs="+",
        metavar="TEXT",
        help="files, plain or .gz, or folders of them",
    )
    made.add_argument(
        "--out", required=True, metavar="FOLDER", help="where the segmenter and the vocabulary go"
    )
    made.add_argument(
        "--quality",
        type=float,
        default=QUALITY,
        help=f"least quality of a phrase of the vocabulary ({QUALITY})",
    )
    made.add_argument(
        "--cut-points",
        metavar="FILE",
        help="a reviewed cut_points.tsv (the project's, for Chinese)",
    )
    made.add_argument(
        "--dictionary",
        nargs="+",
        default=[],
        metavar="USERFILE",
        help="more words for Jieba, one a line",
    )
    made.add_argument(
        "--format", help=f"{', '.join(FORMATS)}; taken from the file name if left out"
    )
    made.add_argument(
        "--encoding", default="utf-8", help="of the text files, such as gb18030 (utf-8)"
    )
    made.add_argument(
        "--singles",
        type=float,
        default=SINGLES,
        help="share of single characters that is too many (1/3)",
    )
    made.add_argument("--least", type=int, default=10, help="places where a phrase occurs (10)")
    made.add_argument("--longest", type=int, default=8, help="characters of a phrase (8)")
    made.add_argument(
        "--most",
        type=int,
        default=30_000_000,
        help="characters of text, more is thinned (30,000,000)",
    )
    made.add_argument(
        "--held-out",
        type=float,
        default=0.2,
        help="share of the known names that measure the precision (0.2)",
    )
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--fresh", action="store_true", help="build again what is built")
    shown = commands.add_parser("show", help="cut names and say how")
    shown.add_argument("--segmenter", required=True, metavar="FOLDER", help="what build wrote")
    shown.add_argument("name", nargs="+", metavar="NAME")
    tested = commands.add_parser("score", help="compare with names cut by hand")
    tested.add_argument("--segmenter", required=True, metavar="FOLDER", help="what build wrote")
    tested.add_argument(
        "--reviewed", required=True, metavar="FILE", help="a name a line, | at each cut"
    )
    return parser


def _build(given: argparse.Namespace) -> None:
    settings = {
        "quality": given.quality,
        "encoding": given.encoding,
        "singles": given.singles,
        "least": given.least,
        "longest": given.longest,
        "most": given.most,
        "held_out": given.held_out,
        "seed": given.seed,
    }
    tables = {"cut_points": given.cut_points, "dictionaries": given.dictionary}
    wanted = request(given.graph, given.input, **tables, **settings, read_as=given.format)
    if SEGMENTER.is_kept(given.out, {"request": wanted}, given.fresh):
        return
    made, measured = build_segmenter(
        given.graph, given.input, given.out, **tables, **settings, format=given.format
    )
    for part in ("mined", "vocabulary", "long by"):
        print(f"{part}: " + ", ".join(f"{count:,} {what}" for what, count in made[part].items()))
    if not made["mined"].get("phrases"):
        print(
            "warning: no phrases: the text has no candidates, or no names of the graph among them;"
            " names are cut by cut points and Jieba alone"
        )
    else:
        print(
            f"of the best {measured.best:,} phrases that the trees were not trained on,"
            f" {measured.names:,} are names held out; {measured.chance:.1f} by chance. Some of them"
            " (phrase, count, quality):"
        )
        for phrase, count, quality, known in measured.sample:
            print(f"  {phrase}\t{count}\t{quality:.2f}{'	held-out name' if known else ''}")


def _score(given: argparse.Namespace) -> None:
    reviewed = read_reviewed(given.reviewed)
    found = scored(Segmenter.load(given.segmenter), reviewed)
    print(
        f"{given.reviewed}: {found.names} names, {sum(len(pieces) - 1 for pieces in reviewed)}"
        " boundaries"
    )
    print("                  precision  recall     F1  names wholly right")
    for system, s in found.scores.items():
        print(f"{system:<16}  {s.precision:9.3f}  {s.recall:6.3f}  {s.f1:5.3f}  {s.whole:.3f}")
    print(f"wrong, {len(found.wrong)} names (wanted, got):")
    for wanted, got in found.wrong:
        print(f"  {'|'.join(wanted)}\t{'|'.join(got)}")


def main(argv: Sequence[str] | None = None) -> int:
    given = arguments().parse_args(argv)
    try:
        if given.command == "build":
            _build(given)
        elif given.command == "show":
            segmenter = Segmenter.load(given.segmenter)
            for name in given.name:
                print(format_explanation(segmenter.explain(name)))
        else:
            _score(given)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
