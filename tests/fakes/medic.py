"""MEDIC in the two layouts: CTD's download, tab- or comma-separated, and BioSyn's lines."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

HEADER = (
    "DiseaseName",
    "DiseaseID",
    "AltDiseaseIDs",
    "Definition",
    "ParentIDs",
    "TreeNumbers",
    "ParentTreeNumbers",
    "Synonyms",
    "SlimMappings",
)
ROWS = (
    ("Diseases", "MESH:C", "", "", "", "C", "", "", ""),
    (
        "Kidney Diseases",
        "MESH:D007674",
        "",
        "Diseases of the  kidney, or of its parts.",
        "MESH:C|MESH:C99",
        "C12",
        "C",
        "Disease, Kidney|Nephropathy|Kidney Diseases",
        "Urogenital disease (female)",
    ),
    (
        'Renal tubular acidosis, "distal"',
        "OMIM:179800",
        "MESH:C537758|OMIM:611590",
        "",
        "MESH:D007674",
        "C12/179800",
        "C12",
        "RTA|dRTA",
        "",
    ),
)
BIOSYN = (
    "C||Diseases\nD007674||Kidney Diseases|Disease,"
    " Kidney|Nephropathy\n179800|C537758|611590||Renal tubular acidosis|RTA\n"
)


def write(folder: Path, form: str = "tsv", rows: tuple[tuple[str, ...], ...] = ROWS) -> Path:
    """CTD_diseases.tsv.gz, CTD_diseases.csv.gz or BioSyn's medic.txt.gz in `folder`."""
    if form == "txt":
        text = BIOSYN
    else:
        comments = f"# MEDIC\n# Fields:\n# {','.join(HEADER)}\n#\n"
        handle = io.StringIO()
        if form == "csv":
            csv.writer(handle, lineterminator="\n").writerows(rows)
        else:
            handle.write("".join("\t".join(row) + "\n" for row in rows))
        text = comments + handle.getvalue()
    path = folder / ("medic.txt.gz" if form == "txt" else f"CTD_diseases.{form}.gz")
    path.write_bytes(gzip.compress(text.encode()))
    return path
