"""python -m datamodules.sources TASK [--mirror FOLDER ...]: fetch and verify a task's files (`make data TASK=… MIRROR=…`)."""

from __future__ import annotations

import argparse
import sys
from typing import cast

from core.files import InputError
from datamodules.sources import dataset_of, fetched, place
from datamodules.sources.listing import sources


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m datamodules.sources", description=cast(str, __doc__).splitlines()[0])
    parser.add_argument("task", help="a task's name, such as cMedQANER or NCBI-EL, or a data set's")
    parser.add_argument(
        "--mirror", nargs="*", action="extend", default=[], help="folders or archives that hold the files"
    )
    parser.add_argument("--data", default=str(place()), help=f"where data sets lie (default: {place()})")
    given = parser.parse_args(argv)
    try:
        dataset = dataset_of(given.task)
        if dataset is None:
            print(f"{given.task}: nothing to fetch; its data come with the installed packages")
            return 0
        source = sources()[dataset]
        folder = fetched(dataset, given.data, given.mirror)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted: the same command goes on from here", file=sys.stderr)
        return 130
    there = [file.path for file in source.files if (folder / file.path).is_file()]
    print(f"{folder}: {len(there)} of {len(source.files)} files of {dataset}, verified")
    print(f"licence: {source.licence}\ncite: {source.citation}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
