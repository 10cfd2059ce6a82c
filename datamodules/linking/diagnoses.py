"""CHIP-CDN (CBLUE): a diagnosis as a doctor wrote it -> the names of ICD-10 that it means, one or
several.

Zhang et al. 2022, CBLUE, Section 3: Clinical Diagnosis Normalization. Names are those of the
Beijing clinical edition of ICD-10, version 601.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from core.files import InputError
from datamodules.linking import SPLITS, Dictionary, Mention, split_by_hash

NAMES = "CHIP-CDN/国际疾病分类 ICD-10北京临床版v601.xlsx"
FILES = {split: f"CHIP-CDN/CHIP-CDN_{split}.json" for split in SPLITS}
SEVERAL = "##"  # between the names of one diagnosis
SHARED_NAMES = "names of ICD-10 that several codes have; the first code stands for them"
WITHOUT_TEXT = "diagnoses without a text or without a name, left out"
#: What separates the diagnoses of one text: punctuation, numbering, and words for "with"
_BETWEEN = re.compile(r"[,，;；。、+?？/：:\s\x04.\"!！]+|\d+[.、]|伴有|伴|并发|合并")
_AROUND = "()（）-"
_QUOTES = ' \t"'


def cut_diagnosis(text: str) -> list[str]:
    """The parts of a diagnosis, each of which may have a name; the text itself without any.

    >>> cut_diagnosis("头痛.头晕，左膝退变伴游离体")
    ['头痛', '头晕', '左膝退变', '游离体']
    """
    parts = (part.strip(_AROUND) for part in _BETWEEN.split(text))
    return [part for part in parts if part] or [text]


def read_icd(path: Path, counts: Counter[str] | None = None) -> Dictionary:
    """The names of ICD-10: an Excel table without a heading, code and name. A name that several
    codes have is one concept, under the first code; the others are its other ids.

    Raises InputError for a file that is no such table.
    """
    import pandas as pd

    try:
        table = pd.read_excel(path, header=None, dtype=str)
    except (ValueError, OSError, KeyError) as error:
        raise InputError(f"{path}: expected an Excel table (.xlsx): {error}") from error
    if table.shape[1] < 2:
        raise InputError(f"{path}: expected two columns, code and name")
    codes: dict[str, list[str]] = {}
    for row, (code, name) in enumerate(zip(table[0], table[1], strict=True), 1):
        if not isinstance(code, str) or not isinstance(name, str) or not name.strip(_QUOTES):
            raise InputError(f"{path}, row {row}: expected a code and a name")
        codes.setdefault(name.strip(_QUOTES), []).append(code.strip())
    if counts is not None:
        counts[SHARED_NAMES] += sum(len(codes_of_name) > 1 for codes_of_name in codes.values())
    first = {
        codes_of_name[0]: codes_of_name[1:]
        for codes_of_name in codes.values()
        if len(codes_of_name) > 1
    }
    return Dictionary(
        [codes_of_name[0] for codes_of_name in codes.values()], list(codes), alternatives=first
    )


def read_diagnoses(
    path: Path, icd: Dictionary, counts: Counter[str] | None = None
) -> list[Mention]:
    """The diagnoses of one file, each with its parts and the codes of its names.

    A name that `icd` lacks is its own id, so that it is gold and no linker finds it. Raises
    InputError for a file that is no list of objects with text and normalized_result.
    """
    counts = Counter() if counts is None else counts
    code = dict(zip(icd.names, icd.ids, strict=True))
    mentions = []
    for number, item in enumerate(read_items(path)):
        text = item["text"].strip(_QUOTES)
        answer = item.get("normalized_result")
        if not isinstance(answer, str):
            raise InputError(
                f"{path}, item {number + 1}: expected normalized_result, names of ICD-10 with"
                f" {SEVERAL} between them"
            )
        names = [name.strip(_QUOTES) for name in answer.split(SEVERAL)]
        names = list(dict.fromkeys(name for name in names if name))
        if not text or not names:
            counts[WITHOUT_TEXT] += 1
            continue
        gold = [[code.get(name, name)] for name in names]
        parts = cut_diagnosis(text)
        mentions.append(Mention(f"{path.stem}:{number}", "", None, None, text, parts, gold))
    return mentions


def read_items(path: Path) -> list[dict[str, Any]]:
    """The items of a file of CHIP-CDN. Raises InputError for one that is no list of objects with a
    text."""
    try:
        items = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path}: expected JSON: {error}") from error
    if not isinstance(items, list):
        raise InputError(f"{path}: expected a list of objects with text and normalized_result")
    for number, item in enumerate(items, 1):
        if not isinstance(item, dict) or not isinstance(item.get("text"), str):
            raise InputError(f"{path}, item {number}: expected an object with a text")
    return items


RESPLIT = (("test", 10), ("dev", 20), ("train", 100))
OFFICIAL = (("dev", 10), ("train", 100))  # of train, beside the official dev part as test


def chip_cdn(
    data: Path, official: bool, counts: Counter[str]
) -> tuple[Dictionary, dict[str, list[Mention]]]:
    """(names of ICD-10, diagnoses by split). official: the official dev part is the test split, and
    dev a tenth of train; otherwise train is cut 80 / 10 / 10 by its texts."""
    icd = read_icd(data / NAMES, counts)
    splits: dict[str, list[Mention]] = {split: [] for split in SPLITS}
    shares = OFFICIAL if official else RESPLIT
    for mention in read_diagnoses(data / FILES["train"], icd, counts):
        splits[split_by_hash(mention.mention, shares)].append(mention)
    if official:
        splits["test"] = read_diagnoses(data / FILES["dev"], icd, counts)
    return icd, splits


def named_by_train(icd: Dictionary, train: list[Mention]) -> Dictionary:
    """The names of ICD-10 and, as further names, the diagnoses of train that mean one."""
    single = [m for m in train if len(m.gold) == 1 and len(m.parts) == 1]
    return icd.with_names((m.gold[0][0], m.mention) for m in single)
