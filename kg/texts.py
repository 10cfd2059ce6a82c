"""A source's own running text (definitions, comments) as JSONL that the linker reads.

python -m kg.texts hpo [PATH] --out FILE
"""

from __future__ import annotations

import argparse
import json
import sys

from kg.build import source_module
from kg.files import InputError, written


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m kg.texts", description=__doc__)
    parser.add_argument("source", help="a module in kg/sources that has texts()")
    parser.add_argument("path", nargs="?", help="where the source's files are, if not in an installed package")
    parser.add_argument("--out", required=True, help="JSONL file to write: one {id, text} per line")
    options = parser.parse_args()
    try:
        module = source_module(options.source)
        if not hasattr(module, "texts"):
            raise InputError(
                f"source {options.source!r} has no running text of its own; give CORPUS= text files instead"
            )
        count = 0
        with written(options.out) as handle:
            for entity, kind, text in module.texts(*([options.path] if options.path else [])):
                handle.write(json.dumps({"id": f"{entity}/{kind}", "text": text}, ensure_ascii=False) + "\n")
                count += 1
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    print(f"{options.out}: {count:,} texts")


if __name__ == "__main__":
    main()
