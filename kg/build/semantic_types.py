"""Semantic types of UMLS's concepts (MRSTY.RRF)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from core.choices import list_known
from core.files import InputError
from kg.build.rrf import CONCEPTS, parse_ids, read_batches


class ConceptTypes(NamedTuple):
    label: np.ndarray  # (CONCEPTS,) int32: position in `labels`, 0 where a concept has no type
    labels: list[str]
    allowed: np.ndarray  # (CONCEPTS,) bool


def read_semantic_types(path: Path | None, wanted: Sequence[str] | None) -> ConceptTypes:
    if path is None and wanted is not None:
        raise InputError(
            "semantic_types needs MRSTY.RRF; take MRSTY out of --skip, or give no semantic types"
        )
    if path is None:
        return ConceptTypes(np.zeros(CONCEPTS, np.int32), [""], np.ones(CONCEPTS, bool))
    pairs, names = [], dict[int, str]()
    for batch in read_batches(path, "MRSTY"):
        cui = parse_ids(batch["CUI"], "C", path, "MRSTY").astype(np.int64)
        tui = parse_ids(batch["TUI"], "T", path, "MRSTY")
        pairs.append(cui * 1000 + tui)
        for number, row in zip(*np.unique(tui, return_index=True), strict=True):
            names[int(number)] = batch["STY"][int(row)].as_py()
    packed = np.unique(np.concatenate(pairs)) if pairs else np.zeros(0, np.int64)
    cui, tui = np.divmod(packed, 1000)
    allowed = np.ones(CONCEPTS, bool)
    if wanted is not None:
        allowed = np.zeros(CONCEPTS, bool)
        allowed[cui[np.isin(tui, _number_types(path, wanted, names))]] = True
    label, labels = _label_types(cui, tui, names)
    return ConceptTypes(label, labels, allowed)


def _number_types(path: Path, wanted: Sequence[str], names: dict[int, str]) -> list[int]:
    """The numbers of semantic types, each named by its TUI or its name. Raises InputError for one
    that the file lacks."""
    numbers = {f"T{number:03d}": number for number in names}
    numbers |= {name: number for number, name in names.items()}
    for code in wanted:
        if code not in numbers:
            raise InputError(
                f"{path}: no semantic type {code!r}; {list_known(code, sorted(numbers))}"
            )
    return [numbers[code] for code in wanted]


def _label_types(
    cui: np.ndarray, tui: np.ndarray, names: dict[int, str]
) -> tuple[np.ndarray, list[str]]:
    """((CONCEPTS,) the place of each concept's label, the labels: its types' names by TUI)."""
    concepts, start, count = np.unique(cui, return_index=True, return_counts=True)
    place = np.arange(len(cui)) - np.repeat(start, count)
    rows = np.full((len(concepts), max(int(count.max(initial=0)), 1)), -1, np.int16)
    # (concepts, most types of one): TUIs in order
    rows[np.repeat(np.arange(len(concepts)), count), place] = tui
    combinations, which = np.unique(rows, axis=0, return_inverse=True)
    label = np.zeros(CONCEPTS, np.int32)
    label[concepts] = which.reshape(-1) + 1
    labels = [""]
    for row in combinations:
        labels.append("|".join(names[number] for number in row.tolist() if number >= 0))
    return label, labels
