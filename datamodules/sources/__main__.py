"""python -m datamodules.sources DATASET --data FOLDER [--mirror PATH ...]: a data set's files,
fetched and verified."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from core.files import InputError
from core.logs import set_up
from datamodules.sources import fetched


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m datamodules.sources", description=__doc__)
    parser.add_argument("dataset")
    parser.add_argument(
        "--data",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="the files come to FOLDER/DATASET",
    )
    parser.add_argument(
        "--mirror",
        nargs="*",
        default=[],
        metavar="PATH",
        help="folders or archives that hold the files",
    )
    given = parser.parse_args(words)
    set_up()
    try:
        print(f"{given.dataset}: in {fetched(given.dataset, given.data, given.mirror)}")
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
