"""python -m kg.pagerank --graph GRAPH --out FOLDER: what `kg.pagerank` documents."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import kg.pagerank
from core.files import InputError
from kg.pagerank.ppr import DENSE
from kg.pagerank.scores import ALPHA
from kg.pagerank.table import rank


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m kg.pagerank",
        description=kg.pagerank.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--graph",
        required=True,
        metavar="FOLDER",
        help="a graph that kg.build or kg.build.refine made",
    )
    parser.add_argument("--out", required=True, metavar="FOLDER", help="where the table goes")
    parser.add_argument("--k", type=int, default=10, help="neighbours of an entity (10)")
    parser.add_argument(
        "--alpha", type=float, default=ALPHA, help=f"probability of a jump ({ALPHA})"
    )
    parser.add_argument(
        "--n_iter", type=int, help="end the iteration after so many steps; default: at convergence"
    )
    parser.add_argument(
        "--counts", metavar="FILE", help="id<TAB>mentions in the corpus; acts with --n_iter"
    )
    parser.add_argument(
        "--dense", type=int, default=DENSE, help=f"largest dense matrix, in rows ({DENSE})"
    )
    parser.add_argument(
        "--fresh", action="store_true", help="make it again even if the same table is there"
    )
    try:
        made = rank(**vars(parser.parse_args(arguments))).manifest
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(
        f"{made['entities']:,} entities, {made['without_neighbours']:,} without neighbours,"
        f" {made['with_more_than_k']:,} with more than {made['settings']['k']};"
        f" {made['seconds']:.1f} s; no score more than {made['score_missing_at_most']:.2g} too"
        " small"
    )
    for reason, count in made["left_out"].items():
        if count:
            print(f"left out: {count:,} {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
