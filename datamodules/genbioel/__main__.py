"""python -m datamodules.genbioel tokenizer|samples: what GenBioEL's pre-training reads, from
knowledge graphs."""

from __future__ import annotations

import argparse
import os
import sys

from core.artifact import read_manifest
from core.files import InputError
from datamodules.genbioel import samples, tokenizer


def _words(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m datamodules.genbioel", description=str(__doc__)
    )
    commands = parser.add_subparsers(dest="command", required=True)
    words = commands.add_parser(
        "tokenizer", help="a BART tokenizer of the graphs' names and definitions"
    )
    words.add_argument("--size", type=int, default=8000, help="tokens (8000)")
    made = commands.add_parser("samples", help="samples of KB-guided pre-training")
    made.add_argument(
        "--tokenizer", required=True, help="the model's tokenizer: a folder or hub name"
    )
    made.add_argument(
        "--languages", type=_words, default=("en",), metavar="A,B", help="languages of names (en)"
    )
    made.add_argument(
        "--kinds", type=_words, default=None, metavar="A,B", help="kinds of names (all)"
    )
    made.add_argument(
        "--skip_alone", action="store_true", help="leave out concepts of one name and no definition"
    )
    made.add_argument(
        "--one_concept",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="a name of several concepts is left to the one with the fewest names",
    )
    made.add_argument(
        "--max_name", type=int, default=128, help="tokens of a name with its end, below (128)"
    )
    made.add_argument(
        "--max_definition", type=int, default=700, help="tokens of a definition that count (700)"
    )
    made.add_argument(
        "--held_out", type=int, default=500, help="names kept for validation at most (500)"
    )
    made.add_argument(
        "--exclude_names", metavar="FILE", help="names to leave out, one a line, in any case"
    )
    made.add_argument(
        "--workers",
        type=int,
        default=len(os.sched_getaffinity(0)),
        help="processes, for the tokens (all cores)",
    )
    made.add_argument("--seed", type=int, default=0, help="of the names held out (0)")
    for one in (words, made):
        one.add_argument(
            "--graph", required=True, nargs="+", action="extend", help="folders of knowledge graphs"
        )
        one.add_argument("--out", required=True, help="folder to write")
        one.add_argument("--fresh", action="store_true", help="build again even if it is there")
    given = vars(parser.parse_args(argv))
    build = {"tokenizer": tokenizer.build_tokenizer, "samples": samples.build_samples}[
        given.pop("command")
    ]
    try:
        folder = build(**given)  # type: ignore[operator]
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(folder)
    for what, count in read_manifest(folder)["counts"].items():
        print(f"{count:>12,} {what}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
