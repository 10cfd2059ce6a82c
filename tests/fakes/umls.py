"""A small UMLS release in the real RRF layout: `write(folder)`. All content is invented.

C0000001 Aspirin       names in ENG and SPA, an abbreviation, a suppressed and an obsolete name, two
                       definitions
C0000002 Headache      two semantic types
C0000003 Fever         its preferred row comes last; one string from two sources
C0000004 Old thing     only suppressed names: no entity
C0000005 Analgesic     only a row that is not TS=P
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from core.files import atomic_write

# CUI LAT TS STT SUI ISPREF SAB TTY STR SUPPRESS
NAMES = [
    "C0000001 ENG P PF S0000001 Y MSH MH Aspirin N",
    "C0000001 ENG S PF S0000002 Y MSH ET Acetylsalicylic_acid N",
    "C0000001 ENG S PF S0000003 Y NCI AB ASA N",
    "C0000001 ENG S PF S0000004 Y MTH SY Aspirin_suppressed E",
    "C0000001 ENG S PF S0000005 Y MTH OP Aspirin_obsolete O",
    "C0000001 SPA P PF S0000006 Y MSHSPA MH Aspirina N",
    "C0000002 ENG P PF S0000007 Y MSH MH Headache N",
    'C0000002 ENG S PF S0000008 Y SNOMEDCT_US SY "Cephalalgia"_\'quoted N',
    "C0000003 ENG S PF S0000009 Y NCI SY Pyrexia N",
    "C0000003 ENG S PF S0000009 N MSH ET Pyrexia N",
    "C0000003 ENG P PF S0000010 Y MSH MH Fever N",
    "C0000004 ENG P PF S0000011 Y MSH MH Old_thing O",
    "C0000005 ENG S VO S0000012 N MSH ET Analgesic N",
]
TYPES = [
    "C0000001 T121 Pharmacologic_Substance",
    "C0000001 T109 Organic_Chemical",
    "C0000002 T184 Sign_or_Symptom",
    "C0000003 T184 Sign_or_Symptom",
    "C0000004 T121 Pharmacologic_Substance",
]
# CUI1 REL CUI2 RELA SAB SUPPRESS: the second concept has the relation RELA to the first
RELATIONS = [
    "C0000002 RO C0000001 may_treat MED-RT N",  # aspirin may treat headache
    "C0000001 RO C0000002 may_be_treated_by MED-RT N",
    "C0000003 RO C0000001 may_treat MED-RT N",
    "C0000003 RO C0000001 may_treat NCI N",  # the same from another source
    "C0000003 RO C0000002 - MSH N",  # no RELA
    "C0000001 RO C0000001 mapped_to MSH N",  # self loop
    "C0000001 RO C0000004 may_treat MSH N",  # a concept without a kept name
    "C0000002 RO C0000003 co-occurs_with MSH O",  # suppressed
    "C0000001 CHD C0000005 inverse_isa NCI N",
]
DEFINITIONS = [
    ("C0000001", "NCI", "The prototypical analgesic for headache | mixed.", "N"),
    ("C0000001", "MSH", "A drug against fever.", "N"),
    ("C0000001", "NCI", "A drug against fever.", "N"),
    ("C0000001", "MSHSPA", "Un analgésico.", "N"),
    ("C0000003", "MSH", "Withdrawn text.", "O"),
    ("C0000004", "MSH", "Of an entity that is left out.", "N"),
]


def _row(*values: str) -> str:
    return "|".join(values) + "|\n"


def conso(line: str) -> str:
    cui, lat, ts, stt, sui, ispref, sab, tty, text, suppress = line.split(" ")
    return _row(
        cui,
        lat,
        ts,
        "L" + sui[1:],
        stt,
        sui,
        ispref,
        "A" + sui[1:],
        "",
        "M1",
        "D1",
        sab,
        tty,
        "D1",
        text.replace("_", " "),
        "0",
        suppress,
        "",
    )


def sty(line: str) -> str:
    cui, tui, name = line.split(" ")
    return _row(cui, tui, "A1.2.3", name.replace("_", " "), "AT00000001", "256")


def rel(line: str) -> str:
    one, label, two, rela, sab, suppress = line.split(" ")
    return _row(
        one,
        "A0000001",
        "SCUI",
        label,
        two,
        "A0000002",
        "SCUI",
        "" if rela == "-" else rela,
        "R00000001",
        "",
        sab,
        sab,
        "",
        "",
        suppress,
        "",
    )


def write(folder: Path, end: str = "") -> Path:
    """MRCONSO, MRSTY, MRREL, MRDEF and release.dat in `folder`; `end` ".gz" compresses the
    tables."""
    tables = {
        "MRCONSO": [conso(line) for line in NAMES],
        "MRSTY": [sty(line) for line in TYPES],
        "MRREL": [rel(line) for line in RELATIONS],
        "MRDEF": [
            _row(cui, "A1", "AT1", "", sab, text.replace("|", "/"), suppress, "")
            for cui, sab, text, suppress in DEFINITIONS
        ],
    }
    for name, rows in tables.items():
        with atomic_write(folder / f"{name}.RRF{end}") as handle:
            handle.writelines(rows)
    with atomic_write(folder / "release.dat") as handle:
        handle.write("umls.release.name=2099AA\numls.release.date=20990101\n")
    return folder


def write_large(folder: Path, names: int, relations: int, concepts: int, seed: int = 0) -> Path:
    """Random MRCONSO, MRSTY and MRREL of the given sizes, for measuring memory."""
    draw = np.random.default_rng(seed)
    owner = (
        np.sort(np.concatenate([np.arange(concepts), draw.integers(0, concepts, names - concepts)]))
        + 1
    )
    with atomic_write(folder / "MRCONSO.RRF") as handle:
        for number, cui in enumerate(owner.tolist()):
            best = "P" if number == 0 or owner[number - 1] != cui else "S"
            handle.write(
                f"C{cui:07d}|ENG|{best}|L{number:08d}|PF|S{number:08d}|Y|A{number:08d}||M1|D1|MSH|MH|D1|"
                f"a name of thirty characters {number}|0|N||\n"
            )
    with atomic_write(folder / "MRSTY.RRF") as handle:
        for cui in range(1, concepts + 1):
            handle.write(f"C{cui:07d}|T{cui % 127 + 1:03d}|A1|Type {cui % 127 + 1}|AT0|256|\n")
    with atomic_write(folder / "MRREL.RRF") as handle:
        for one, two, label in zip(
            *(draw.integers(1, high, relations).tolist() for high in (concepts, concepts, 900)),
            strict=True,
        ):
            handle.write(
                f"C{one:07d}|A0000001|SCUI|RO|C{two:07d}|A0000002|SCUI|relation_number_{label}|R1||MSH|MSH|||N||\n"
            )
    return folder
