"""The English suite, the papers' subset of BLURB: five NER and three relation tasks; KeBioLM's
Table 1 prints the sizes.

EBM-PICO, BIOSSES, HoC, PubMedQA and BioASQ are in none of the five papers. BLURB's archive is not
public, so the tasks are rebuilt from the original corpora; `notes` say where that differs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datamodules import blurb, formats
from datamodules.tasks.definition import Definition, Published, Read, Splits

KEBIOLM = "KeBioLM Table 1"
MTL_NOTE = (
    "types merged into one; sentences of one abstract cannot be distinguished, so each is its own"
    " document"
)


def _sizes(train: int, dev: int, test: int) -> dict[str, int]:
    return {"train": train, "dev": dev, "test": test}


def _tokens(merged: str) -> Read:
    def read(paths: Sequence[Path], split: str, counts: Counter[str]) -> list[Any]:
        return formats.bio(paths[0], tokens=True, counts=counts, merged=merged)

    return read


def _ner(name: str, folder: str, merged: str, sizes: dict[str, int], *notes: str) -> Definition:
    files = {
        "train": f"{folder}/train.tsv",
        "dev": f"{folder}/devel.tsv",
        "test": f"{folder}/test.tsv",
    }
    return Definition(
        name,
        "BLURB",
        "ner",
        "en",
        "entity_f1",
        name,
        {s: (p,) for s, p in files.items()},
        _tokens(merged),
        published=(Published(KEBIOLM, "mentions", sizes),),
        notes=(*notes, MTL_NOTE),
    )


def _chemprot(paths: Sequence[Path], split: str, counts: Counter[str]) -> list[Any]:
    return list(blurb.chemprot(*paths, counts=counts))


def _chemprot_mentions(paths: Sequence[Path], split: str) -> list[str]:
    mentions: dict[tuple[str, str], str] = {}
    blurb.chemprot(*paths, mentions=mentions)
    return list(mentions.values())


def _chemprot_files(folder: str, part: str, end: str = "") -> tuple[str, ...]:
    stem = f"{folder}/chemprot_{part}_"
    return f"{stem}abstracts{end}.tsv", f"{stem}entities{end}.tsv", f"{stem}gold_standard.tsv"


DDI_ZIP = "DDICorpus-2013.zip"
DDI_FOLDERS = {"train": "DDICorpus/Train", "test": "DDICorpus/Test/Test for DDI Extraction task"}


def _ddi(paths: Sequence[Path], split: str, counts: Counter[str]) -> list[Any]:
    return list(blurb.ddi(paths[0], DDI_FOLDERS[split], counts=counts))


def _ddi_mentions(paths: Sequence[Path], split: str) -> list[str]:
    mentions: dict[tuple[str, str], str] = {}
    blurb.ddi(paths[0], DDI_FOLDERS[split], mentions=mentions)
    return list(mentions.values())


def _ddi_dev(splits: Splits) -> Splits:
    train, dev = blurb.split_documents(splits["train"], 2496, seed=0)
    return splits | {"train": train, "dev": dev}


def _gad(paths: Sequence[Path], split: str, counts: Counter[str]) -> list[Any]:
    return list(blurb.gad(paths[0], counts=counts))


def _gad_dev(splits: Splits) -> Splits:
    train, dev = blurb.split_last(splits["train"], 535)
    return splits | {"train": train, "dev": dev}


TASKS = (
    _ner("BC5-chem", "BC5CDR-chem-IOB", "Chemical", _sizes(5203, 5347, 5385)),
    _ner(
        "BC5-disease",
        "BC5CDR-disease-IOB",
        "Disease",
        _sizes(4182, 4244, 4424),
        "the public IOB files have 4,246 mentions in dev, two more than the paper prints",
    ),
    _ner(
        "NCBI",
        "NCBI-disease-IOB",
        "Disease",
        _sizes(5137, 787, 960),
        "the public IOB files have 5,134 mentions in train, three fewer than the paper prints",
    ),
    _ner("BC2GM", "BC2GM-IOB", "Gene", _sizes(15197, 3061, 6325)),
    _ner("JNLPBA", "JNLPBA-IOB", "Entity", _sizes(46750, 4551, 8662)),
    Definition(
        "ChemProt",
        "BLURB",
        "relation",
        "en",
        "micro_f1",
        "ChemProt",
        {
            "train": _chemprot_files("chemprot_training", "training"),
            "dev": _chemprot_files("chemprot_development", "development"),
            "test": _chemprot_files("chemprot_test_gs", "test", "_gs"),
        },
        _chemprot,
        published=(Published(KEBIOLM, "examples", _sizes(18035, 11268, 15745)),),
        markers=blurb.CHEMPROT_MARKERS,
        negative=blurb.NEGATIVE,
        mentions=_chemprot_mentions,
        notes=(
            (
                "sentences are split by a pattern, which BLURB's splitter is not: 29, 56 and 22"
                " pairs more than printed"
            ),
            (
                "gold relations between two sentences are in no example: 6, 0 and 3; they are not"
                " counted as missed, as in BLURB"
            ),
        ),
    ),
    Definition(
        "DDI",
        "BLURB",
        "relation",
        "en",
        "micro_f1",
        "DDI",
        {s: (DDI_ZIP,) for s in ("train", "test")},
        _ddi,
        published=(Published(KEBIOLM, "examples", _sizes(25296, 2496, 5716)),),
        markers=blurb.DDI_MARKERS,
        negative=blurb.NEGATIVE,
        derived=_ddi_dev,
        mentions=_ddi_mentions,
        notes=(
            (
                "dev: whole documents of train in the order of seed 0, 2,496 pairs; which ones"
                " BLURB took is not printed"
            ),
        ),
    ),
    Definition(
        "GAD",
        "BLURB",
        "relation",
        "en",
        "micro_f1",
        "GAD",
        {s: (f"gad/{s}.tsv",) for s in ("train", "test")},
        _gad,
        published=(Published(KEBIOLM, "examples", _sizes(4261, 535, 534)),),
        markers=blurb.GAD_MARKERS,
        negative="0",
        derived=_gad_dev,
        notes=(
            "fold 1; dev: the last 535 sentences of train; which ones BLURB took is not printed",
        ),
    ),
)
