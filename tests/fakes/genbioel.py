"""Writes everything that GenBioEL's pre-training reads: a graph, a tokenizer of it, its samples,
and a tiny BART.

Concepts with a definition and four, two or one names; without one of three, two and one; a
definition that two concepts share the words of; a name of symbols only, one repeated in another
case, one in another language, one of two concepts, one empty; three definitions of one concept; a
concept without any name.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch

from datamodules.genbioel import samples, tokenizer
from datamodules.linking import Dictionary, Mention, save_linking
from datamodules.tokenizers import load_tokenizer
from kg.graph import KnowledgeGraph, table
from models.genbioel import new_bart

SITES = ["renal", "cardiac", "hepatic", "ocular", "dermal", "neural", "gastric", "nasal"]
FORMS = ["failure", "lesion", "tumor"]
SIZE = 700  # tokens


class Folders(NamedTuple):
    graph: str
    tokenizer: str
    samples: str
    bart: str


def graph() -> KnowledgeGraph:
    names: list[tuple[str, str, str]] = []
    definitions: list[tuple[str, str]] = []
    for i, (site, form) in enumerate((s, f) for s in SITES for f in FORMS):
        every = (
            f"{site.title()} {form}",
            f"{form} of  the {site} region",
            f"{site} {form}, NOS",
            f"{form} ({site})",
        )
        names += [(f"E{i:02d}", name, "en") for name in every]
        definitions += [(f"E{i:02d}", f"A {form} that affects the {site} region.")]
    names += [
        ("E00", "RENAL  FAILURE", "en"),  # repeated
        ("E00", "Nierenversagen", "de"),
        ("E01", "odd shared name", "en"),
        ("TWO", "Odd shared name", "en"),
        ("TWO", "pair of words", "en"),
        ("TWO", "words, paired", "en"),
        ("E03", " ", "en"),  # empty
        ("THREE", "first of three", "en"),
        ("THREE", "second of three", "en"),
        ("THREE", "third of three", "en"),
        ("ONE", "alone", "en"),
        ("SIGN", "+", "en"),
        ("DEF", "defined alone", "en"),
    ]
    definitions += [
        ("E00", "The kidneys'  FAILURE."),
        ("E00", "A third one that is left out."),
        ("DEF", "Without synonyms."),
    ]
    ids = [*dict.fromkeys(one[0] for one in names), "NONE"]
    columns = dict(
        zip(("id", "name", "language"), map(list, zip(*names, strict=True)), strict=True)
    )
    more = {"kind": ["synonym"] * len(names), "source": ["fake"] * len(names)}
    return KnowledgeGraph(
        table("entities", {"id": ids, "name": ids, "type": ["finding"] * len(ids)}),
        table(
            "names", {k: (columns | more)[k] for k in ("id", "name", "kind", "language", "source")}
        ),
        table(
            "definitions", {"id": [d[0] for d in definitions], "text": [d[1] for d in definitions]}
        ),
        table("triples", {"head": [], "relation": [], "tail": []}),
        {"source": "fake", "version": "1", "licence": "none"},
    )


def bart(folder: Path, tokens: str, dropout: float = 0.0, seed: int = 0) -> Path:
    """A BART of 1 + 1 layers x 32 with the tokenizer in `tokens`."""
    words = load_tokenizer(tokens)
    torch.manual_seed(seed)
    new_bart(len(words), 1, 32, 4, 64, 128, dropout).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def write(folder: Path) -> Folders:
    place = str(graph().save(folder / "graph"))
    words = tokenizer.build_tokenizer([place], str(folder / "tokenizer"), SIZE)
    made = samples.build_samples(
        [place],
        str(words),
        str(folder / "samples"),
        choice=samples.SampleChoice(max_name=32, max_definition=40),
    )
    return Folders(place, str(words), str(made), str(bart(folder / "bart", str(words))))


def task(folder: Path) -> str:
    """A linking task with every oddity that fine-tuning counts."""
    names = {
        "C1": ["Heart attack", "MI", "myocardial infarction"],
        "C2": ["common cold", "cold"],
        "C3": ["fever", "cold"],  # a name of C2 too
        "C4": ["renal failure", "failure of the kidney"],
        "C5": ["tumor"],
    }
    ids = [i for i, every in names.items() for _ in every]
    dictionary = Dictionary(ids, [n for every in names.values() for n in every], {"C4": ["ALT4"]})
    text = (
        "Heart attack is what END users with START words call it. Acute renal failure (ARF) after"
        " it. ARF is bad."
    )

    def at(words: str, nth: int = 0) -> tuple[int, int]:
        start = -1
        for _ in range(nth + 1):
            start = text.index(words, start + 1)
        return start, start + len(words)

    train = [
        Mention("0", "d", *at("Heart attack"), "Heart attack", ["heart attack"], [["C1"]]),
        Mention("1", "d", *at("renal failure"), "renal failure", ["renal failure"], [["ALT4"]]),
        # inside the one before
        Mention("2", "d", *at("failure"), "failure", ["failure"], [["C4"]]),
        Mention("3", "d", *at("ARF", 1), "ARF", ["ARF"], [["C4"]]),
        Mention("4", "e", None, None, "high temp is bad", ["high temp is bad"], [["C3"]]),
        Mention("5", "e", None, None, "colds and fevers", ["colds", "fevers"], [["C2"], ["C3"]]),
        Mention("6", "e", None, None, "gone", ["gone"], [["C9"]]),
        Mention("7", "f", None, None, "either", ["either"], [["C1"], ["C2"]]),
        *(
            Mention(f"m{i}", f"g{i}", None, None, f"tumor {i}", [f"tumor {i}"], [["C5"]])
            for i in range(8)
        ),
    ]
    test = [Mention("0", "z", None, None, "kidney failure", ["kidney failure"], [["C4"]])]
    save_linking(folder, dictionary, {"train": train, "test": test}, {"d": text}, name="fake")
    return str(folder)
