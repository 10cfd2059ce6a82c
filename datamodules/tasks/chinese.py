"""The Chinese suites, the papers' subset: ChineseBLUE, CHIP / CBLUE and DXY's private sets; and an
answer ranking of our own.

SMedBERT's Table 5 and EMBERT's Table 2 print the sizes. The other ChineseBLUE tasks (cMedTC,
cMedIC, cMedIR, cEHRNER) are in none of the five papers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datamodules import chineseblue, formats, ranking
from datamodules.tasks.definition import Definition, Published, Read, Splits

SMEDBERT, EMBERT = "SMedBERT Table 5", "EMBERT Table 2"
BOTH = f"{SMEDBERT}, {EMBERT}"


def _characters(paths: Sequence[Path], split: str, counts: Counter[str]) -> list[Any]:
    return formats.bio(paths[0], tokens=False, counts=counts)


def _pairs(paths: Sequence[Path], split: str, counts: Counter[str]) -> list[Any]:
    return formats.pairs(paths[0], counts=counts)


def _answers(paths: Sequence[Path], split: str, counts: Counter[str]) -> list[Any]:
    return formats.pairs(paths[0], counts=counts, what="label, question, answer")


def _read_nested(paths: Sequence[Path], split: str, counts: Counter[str]) -> list[Any]:
    return chineseblue.read_nested(paths[0], counts=counts)


def _triples(paths: Sequence[Path], split: str, counts: Counter[str]) -> list[Any]:
    classes = chineseblue.schema(paths[1]) if len(paths) > 1 else None
    return chineseblue.triples(paths[0], counts=counts, classes=classes)


def _queries(first: str, second: str, labels: str) -> Read:
    def read(paths: Sequence[Path], split: str, counts: Counter[str]) -> list[Any]:
        return chineseblue.queries(paths[0], first, second, labels=tuple(labels), counts=counts)

    return read


def _questions(paths: Sequence[Path], split: str, counts: Counter[str]) -> list[Any]:
    return ranking.questions(paths[0], counts=counts)


def _make_rankings(splits: Splits, **settings: Any) -> Splits:
    return ranking.make_rankings(splits["train"], **settings)


def _files(pattern: str, *more: str, dev: str = "dev") -> dict[str, tuple[str, ...]]:
    return {s: (pattern.format(dev if s == "dev" else s), *more) for s in ("train", "dev", "test")}


def _sizes(train: int, dev: int | None, test: int | None) -> dict[str, int]:
    return {s: n for s, n in (("train", train), ("dev", dev), ("test", test)) if n is not None}


SCHEMA = "CMeIE/53_schemas.json"
ONE_PER_PAIR = (
    "one example per gold (subject, object), both marked; there is no negative class, so micro-F1"
    " is accuracy; any gold relation of a pair is right"
)
RESPLIT = (
    "a re-split of the official dev set, since train needs an application; not comparable with the"
    " papers"
)

TASKS = (
    Definition(
        "cMedQANER",
        "ChineseBLUE",
        "ner",
        "zh",
        "entity_f1",
        "cMedQANER",
        _files("cMedQANER/{}.txt"),
        _characters,
        published=(
            Published(BOTH, "examples", _sizes(1673, 175, 215)),
            Published("ChineseBLUE's BIO files", "mentions", _sizes(12490, 1024, 1340)),
            Published("ChineseBLUE's JSON files", "mentions", _sizes(12625, 1035, 1350)),
        ),
        notes=(
            (
                "read from the BIO files; the JSON files have 156 mentions more, all of them inside"
                " another mention"
            ),
            (
                "the 15 mentions of one training text are labelled one character too far right, as"
                " published"
            ),
        ),
    ),
    Definition(
        "cMedQQ",
        "ChineseBLUE",
        "pair",
        "zh",
        "f1",
        "cMedQQ",
        _files("cMedQQ/{}.txt"),
        _pairs,
        positive="1",
        published=(Published(BOTH, "examples", _sizes(16071, 1793, 1935)),),
    ),
    Definition(
        "cMedQNLI",
        "ChineseBLUE",
        "pair",
        "zh",
        "f1",
        "cMedQNLI",
        _files("cMedQNLI/{}.txt"),
        _pairs,
        positive="1",
        published=(Published(BOTH, "examples", _sizes(80950, 9065, 9969)),),
    ),
    Definition(
        "cMedQA",
        "ChineseBLUE",
        "ranking",
        "zh",
        "acc1",
        "cMedQA",
        _files("cMedQA/{}.txt"),
        _answers,
        published=(
            Published("ChineseBLUE README", "examples", _sizes(49719, 5475, 6149)),
            Published(BOTH, "examples", _sizes(186771, 46600, 46600)),
        ),
        notes=(
            (
                "ChineseBLUE's cMedQA is another set than the papers' (49,719 rows against"
                " 186,771), and 99 of its questions carry answers that are not theirs; cMedQA:clean"
                " leaves those out"
            ),
        ),
    ),
    Definition(
        "cMedQA:clean",
        "ChineseBLUE",
        "ranking",
        "zh",
        "acc1",
        "cMedQA:clean",
        _files("cMedQA/cMedQA_clean_{}.txt"),
        _answers,
        variant="clean",
        published=(
            Published("the re-split's own note", "questions", _sizes(683, 38, 80)),
            Published("the re-split's own note", "examples", _sizes(6632, 421, 861)),
        ),
        notes=(
            (
                "ChineseBLUE's dev and test without the 99 damaged questions, split by question;"
                " not the papers' set"
            ),
        ),
    ),
    Definition(
        "WebMedQA",
        "ChineseBLUE",
        "ranking",
        "zh",
        "acc1",
        "WebMedQA",
        {
            "train": ("WebMedQA/medQA.train.txt",),
            "dev": ("WebMedQA/medQA.valid.txt",),
            "test": ("WebMedQA/medQA.test.txt",),
        },
        _answers,
        published=(
            Published(BOTH, "examples", _sizes(252850, 31605, 31655)),
            Published("WebMedQA README", "questions", _sizes(50610, 6337, 6337)),
        ),
    ),
    Definition(
        "NeikeQA",
        "Toyhom",
        "ranking",
        "zh",
        "acc1",
        "NeikeQA",
        {"train": ("NeikeQA/neike_5000-6000.csv",)},
        _questions,
        derived=_make_rankings,
        published=(Published("", "questions", {}), Published("", "examples", {})),
        notes=(
            (
                "made here of internal-medicine questions and answers; wrong answers are drawn, so"
                " no published score compares"
            ),
        ),
    ),
    Definition(
        "CMeEE",
        "CBLUE",
        "nested",
        "zh",
        "entity_f1",
        "CMeEE",
        _files("CMeEE/CMeEE_{}.json"),
        _read_nested,
        aliases=("cNNER",),
        published=(Published(EMBERT, "examples", _sizes(12000, 3000, 5000)),),
        notes=(
            (
                "the papers call it cNNER; CBLUE gives its 15,000 training sentences undivided, and"
                " no gold for test"
            ),
        ),
    ),
    Definition(
        "CMeEE:resplit",
        "CBLUE",
        "nested",
        "zh",
        "entity_f1",
        "CMeEE:resplit",
        _files("CMeEE/CMeEE_resplit_{}.json"),
        _read_nested,
        aliases=("cNNER:resplit",),
        variant="resplit",
        published=(Published("the re-split's own note", "examples", _sizes(4000, 500, None)),),
        notes=(RESPLIT,),
    ),
    Definition(
        "CMeIE",
        "CBLUE",
        "relation",
        "zh",
        "micro_f1",
        "CMeIE",
        _files("CMeIE/CMeIE_{}.json", SCHEMA),
        _triples,
        aliases=("CHIP-RE",),
        markers=chineseblue.MARKERS,
        published=(Published(SMEDBERT, "triples", _sizes(43649, None, 10622)),),
        notes=(ONE_PER_PAIR, "the papers call it CHIP-RE; CBLUE gives no gold for test"),
    ),
    Definition(
        "CMeIE:resplit",
        "CBLUE",
        "relation",
        "zh",
        "micro_f1",
        "CMeIE:resplit",
        _files("CMeIE/CMeIE_resplit_{}.json", SCHEMA),
        _triples,
        aliases=("CHIP-RE:resplit",),
        variant="resplit",
        markers=chineseblue.MARKERS,
        published=(
            Published("the re-split's own note", "sentences", _sizes(2885, 350, None)),
            Published("", "triples", {}),
        ),
        notes=(RESPLIT, ONE_PER_PAIR),
    ),
    Definition(
        "KUAKE-QQR",
        "CBLUE",
        "pair",
        "zh",
        "accuracy",
        "KUAKE-QQR",
        _files("KUAKE-QQR/KUAKE-QQR_{}.json"),
        _queries("query1", "query2", "012"),
        published=(Published("CBLUE's files", "examples", _sizes(15000, 1600, None)),),
        notes=("CBLUE gives no gold for test",),
    ),
    Definition(
        "KUAKE-QTR",
        "CBLUE",
        "pair",
        "zh",
        "accuracy",
        "KUAKE-QTR",
        _files("KUAKE-QTR/KUAKE-QTR_{}.json"),
        _queries("query", "title", "0123"),
        published=(Published("CBLUE's files", "examples", _sizes(24174, 2913, None)),),
        notes=("CBLUE gives no gold for test",),
    ),
    Definition(
        "DXY-NER",
        "DXY",
        "ner",
        "zh",
        "entity_f1",
        "DXY-NER",
        _files("DXY-NER/{}.txt"),
        _characters,
        published=(Published(SMEDBERT, "examples", _sizes(34224, 8576, 8592)),),
        notes=("private data",),
    ),
    Definition(
        "DXY-RE",
        "DXY",
        "relation",
        "zh",
        "micro_f1",
        "DXY-RE",
        _files("DXY-RE/{}.json"),
        _triples,
        markers=chineseblue.MARKERS,
        published=(Published(SMEDBERT, "triples", _sizes(141696, 35456, 35794)),),
        notes=("private data", ONE_PER_PAIR),
    ),
)
