"""Large delimited tables as Arrow record batches, with errors that name the line.

Arrow reads at full speed and has no line numbers; when it, or a check, meets something wrong,
:func:`broken_line` reads the file once more, slowly, to name the first line that is broken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv

from core.files import InputError
from core.reading import excerpt, lines, open_bytes

BLOCK = 16 << 20


def broken_line(
    path: Path,
    columns: Sequence[str],
    delimiter: str,
    skip: int,
    ended: bool,
    wanted: Mapping[str, str],
    cause: str,
) -> InputError:
    """The error for the first line that has the wrong number of columns or a value its pattern in
    `wanted` refuses.

    `ended` says that every column, the last one too, is followed by the delimiter (RRF). `cause` is
    reported when no such line is found. Raises InputError itself for undecodable bytes or a broken
    .gz.
    """
    patterns = [
        (columns.index(column), column, re.compile(pattern)) for column, pattern in wanted.items()
    ]
    for number, line in lines(path):
        if number <= skip:
            continue
        values = line.split(delimiter)
        count = len(values) - ended
        if count != len(columns) or (ended and values[-1]):
            end = f", each followed by {delimiter!r}" if ended else f", separated by {delimiter!r}"
            return InputError(
                f"{path}:{number}: expected {len(columns)} columns{end}, got {count} in"
                f" {excerpt(line)}. Fix the line or fetch the file again."
            )
        for place, column, pattern in patterns:
            if not pattern.fullmatch(values[place]):
                return InputError(
                    f"{path}:{number}: expected {column} like {pattern.pattern}, got "
                    f"{excerpt(values[place])}. Fix the line or fetch the file again."
                )
    return InputError(f"{path}: cannot be read as a table ({cause.strip()}). Fetch the file again.")


def batches(
    path: Path,
    columns: Sequence[str],
    used: Sequence[str],
    delimiter: str,
    skip: int = 0,
    ended: bool = False,
    wanted: Mapping[str, str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The columns `used` of a table without quoting, all strings, as batches in file order; .gz is
    read too.

    `columns` names every column, `skip` is the number of lines before the first row; `ended` and
    `wanted` as in :func:`broken_line`. Raises InputError naming path:line for a row with the wrong
    number of columns or bytes that are not UTF-8; a caller that finds a bad value raises
    :func:`broken_line` itself.
    """
    names = [*columns, "_end"] if ended else list(columns)
    open_bytes(path).close()  # a missing file is reported as one
    strings = dict.fromkeys(used, pa.string())
    try:
        with (
            pa.input_stream(str(path)) as stream,
            csv.open_csv(
                stream,
                read_options=csv.ReadOptions(column_names=names, skip_rows=skip, block_size=BLOCK),
                parse_options=csv.ParseOptions(
                    delimiter=delimiter, quote_char=False, ignore_empty_lines=False
                ),
                convert_options=csv.ConvertOptions(
                    include_columns=list(used), column_types=strings
                ),
            ) as reader,
        ):
            yield from reader
    except pa.ArrowInvalid as error:
        if "Empty CSV file" in str(error):
            return
        raise broken_line(
            path, columns, delimiter, skip, ended, wanted or {}, str(error)
        ) from error
    except OSError as error:  # Arrow's name for a compressed file that is cut or broken
        raise broken_line(
            path, columns, delimiter, skip, ended, wanted or {}, str(error)
        ) from error
