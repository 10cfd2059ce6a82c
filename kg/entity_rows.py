"""Tables with a row for each entity of a graph: the ids beside them, and whether they fit it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from core.files import InputError, atomic_write
from core.reading import lines


def write_ids(folder: Path, entities: Sequence[str], relations: Sequence[str]) -> None:
    """Write entities.txt and relations.txt, an id a line."""
    for name, ids in (("entities", entities), ("relations", relations)):
        with atomic_write(folder / f"{name}.txt") as handle:
            handle.writelines(f"{i}\n" for i in ids)


def read_ids(folder: Path) -> tuple[list[str], list[str]]:
    """(entities, relations) that :func:`write_ids` wrote."""
    entities = [line for _, line in lines(folder / "entities.txt")]
    relations = [line for _, line in lines(folder / "relations.txt")]
    return entities, relations


def check_entities(table: str, rows: Sequence[str], ids: pa.Array, graph: str, remedy: str) -> None:
    """Raise InputError unless the rows of a table are the entities `ids` of a graph, in order.

    table, graph: names, for the message.  remedy: what to do.
    """
    values = pa.array(rows, pa.string())
    if len(values) == len(ids) and pc.all(pc.equal(values, ids)).as_py() is not False:
        return
    rows_present = set(rows)
    missing = next((i for i in ids.to_pylist() if i not in rows_present), None)
    first = (
        f"entity {missing!r} has no row" if missing else "the order or number of entities differs"
    )
    raise InputError(
        f"the {table} table ({len(values)} rows) does not match the graph {graph} ({len(ids)}"
        f" entities): {first}. {remedy}"
    )
