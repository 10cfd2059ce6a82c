"""A source's own running text (definitions, comments) as JSONL that the linker reads.

python -m kg.build.texts hpo [PATH] --out FILE [--share 0.2] [--without RELATION,RELATION]
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import sys
from pathlib import Path

from core.files import InputError, written
from core.outputs import check_no_input
from kg.build.source import source_module


def is_chosen(name: str, share: float) -> bool:
    """Whether the text `name` belongs to a `share` of all; depends on the name alone."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") < share * 2**64


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m kg.build.texts", description=__doc__)
    parser.add_argument("source", help="a module in kg/build/sources that has texts()")
    parser.add_argument(
        "path", nargs="?", help="where the source's files are, if not in an installed package"
    )
    parser.add_argument("--out", required=True, help="JSONL file to write: one {id, text} per line")
    parser.add_argument(
        "--share", type=float, default=1.0, help="of the texts, chosen by their ids"
    )
    parser.add_argument(
        "--without", default="", metavar="A,B", help="relations of which nothing is said"
    )
    options = parser.parse_args()
    try:
        module = source_module(options.source)
        if not hasattr(module, "texts"):
            raise InputError(
                f"source {options.source!r} has no running text of its own; give CORPUS= text files"
                " instead"
            )
        if not 0 < options.share <= 1:
            raise InputError(f"--share {options.share}: expected a share above 0 and at most 1")
        without = frozenset(filter(None, options.without.split(",")))
        if without and "without" not in inspect.signature(module.texts).parameters:
            raise InputError(
                f"--without: the texts of {options.source!r} are not made from relations"
            )
        check_no_input(Path(options.out), [options.path] if options.path else [])
        settings = {"without": without} if without else {}
        count = 0
        with written(options.out) as handle:
            for entity, kind, text in module.texts(
                *([options.path] if options.path else []), **settings
            ):
                if is_chosen(name := f"{entity}/{kind}", options.share):
                    handle.write(json.dumps({"id": name, "text": text}, ensure_ascii=False) + "\n")
                    count += 1
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    print(f"{options.out}: {count:,} texts")


if __name__ == "__main__":
    main()
