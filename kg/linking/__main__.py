"""python -m kg.linking --graph GRAPH --input FILE ... --out FOLDER"""

from __future__ import annotations

import argparse
import os
import sys

from core.files import InputError, limit_documents
from kg.documents.formats import FORMATS
from kg.linking.run import LINKERS, PART, link_corpus


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m kg.linking", description="Find a graph's entities in text."
    )
    parser.add_argument("--graph", required=True, help="folder of a knowledge graph")
    parser.add_argument(
        "--input", required=True, nargs="+", help="files, plain or .gz, or folders of them"
    )
    parser.add_argument(
        "--out", required=True, help="folder for the linked parts; the same command resumes in it"
    )
    parser.add_argument("--linker", default="dictionary", help=", ".join(LINKERS))
    parser.add_argument(
        "--format", help=f"{', '.join(FORMATS)}; taken from the file name if left out"
    )
    parser.add_argument(
        "--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes (all cores)"
    )
    parser.add_argument(
        "--part-size",
        type=int,
        default=PART,
        metavar="BYTES",
        help="input in a part, about (4 MiB)",
    )
    parser.add_argument(
        "--fresh", action="store_true", help="do it anew, whatever is in the folder"
    )
    parser.add_argument("--empty", default="error", help="documents without text: error, skip")
    parser.add_argument(
        "--encoding", default="utf-8", help="of the text files, such as gb18030 (utf-8)"
    )
    parser.add_argument(
        "--unknown",
        default="error",
        help="given mentions whose entity the graph lacks: error, drop",
    )
    parser.add_argument(
        "--pipeline", help="scispacy: name or folder of a spaCy pipeline with entities"
    )
    parser.add_argument(
        "--threshold", type=float, default=0.85, help="scispacy: least similarity (0.85)"
    )
    parser.add_argument("--k", type=int, default=30, help="scispacy: nearest names to look at (30)")
    parser.add_argument(
        "--max-document", type=int, default=16, metavar="MiB", help="largest document or line (16)"
    )
    return parser


def main(argv: list[str] | None = None) -> int:
    given = vars(arguments().parse_args(argv))
    try:
        limit_documents(given.pop("max_document"))
        made = link_corpus(
            given.pop("graph"),
            given.pop("input"),
            given["out"],
            progress=True,
            **{key: value for key, value in given.items() if key != "out"},
        )
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted: the same command resumes", file=sys.stderr)
        return 130
    print(
        f"{given['out']}: {made['documents']} documents, {made['mentions']} mentions of"
        f" {made['entities']} entities"
    )
    for reason, count in made.get("left_out_mentions", {}).items():
        print(f"left out: {count:,} mentions {reason}")
    for reason, count in made.get("unread", {}).items():
        print(f"left out: {count:,} {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
