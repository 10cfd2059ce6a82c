"""Linked corpora as `kepl data link` writes them, of documents that are given."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from core.json_files import write_json
from core.reading import sha256
from kg.documents.parts import part_name
from kg.linking.run import FORMAT


def document(name: str, text: str, *mentions: tuple[int, int, str]) -> dict[str, Any]:
    return {
        "id": name,
        "text": text,
        "mentions": [{"start": a, "end": b, "entity": e, "score": 1.0} for a, b, e in mentions],
    }


def write(folder: Path, *parts: Iterable[dict[str, Any]]) -> Path:
    """A linked corpus of these parts."""
    folder.mkdir(parents=True, exist_ok=True)
    counts, sums = [], {}
    for number, part in enumerate(parts):
        rows = [json.dumps(row, ensure_ascii=False) + "\n" for row in part]
        (folder / part_name(number)).write_text("".join(rows), encoding="utf-8")
        counts.append(len(rows))
        sums[part_name(number)] = sha256(folder / part_name(number))
    facts = {
        "format": FORMAT,
        "settings": {},
        "sha256": sums,
        "parts": counts,
        "documents": sum(counts),
    }
    write_json(folder / "manifest.json", facts)
    return folder
