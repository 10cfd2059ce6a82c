"""Writes small learnable tasks of every kind in the canonical form, from invented words."""

from __future__ import annotations

import random
from pathlib import Path

from datamodules.tasks import Example, Pair, Relation, Tagged, save_task

DISEASES = ["acne", "gout", "mumps", "polio"]
DRUGS = ["zyban", "advil", "botox"]
OTHER = ["the", "doctor", "saw", "much", "today", "and", "gave", "some"]
WORDS = [*DISEASES, *DRUGS, *OTHER, "fever", "of", "severe"]
MARKERS = ["@GENE$", "@DISEASE$"]


def _tagged(rng: random.Random, number: int, nested: bool) -> Tagged:
    words, entities, spans, position = [], [], [], 0
    for _ in range(rng.randint(4, 8)):
        word = rng.choice(WORDS)
        words.append(word)
        spans.append((position, position + len(word)))
        if word in DISEASES + DRUGS:
            entities.append(
                (position, position + len(word), "disease" if word in DISEASES else "drug")
            )
            if nested and len(words) > 1 and words[-2] == "severe":
                entities.append((spans[-2][0], position + len(word), "drug"))
        position += len(word) + 1
    return Tagged(str(number), str(number), " ".join(words), entities, spans)


def _example(kind: str, rng: random.Random, number: int) -> Example:
    if kind in ("ner", "nested"):
        return _tagged(rng, number, kind == "nested")
    if kind == "relation":
        middle = rng.choice(["causes", "follows", "knows"])
        label = {"causes": "cause", "follows": "effect", "knows": "none"}[middle]
        text = f"{rng.choice(OTHER)} @GENE$ {middle} @DISEASE$ {rng.choice(OTHER)}"
        return Relation(str(number), str(number // 2), text, label, [label])
    first, second = rng.choice(DISEASES), rng.choice(DISEASES)
    if kind == "pair":
        return Pair(
            str(number),
            str(number),
            f"{first} today",
            f"severe {second}",
            str(int({first, second} <= {"acne", "gout"})),
        )
    question, place = divmod(number, 3)
    return Pair(
        str(number),
        f"q{question}",
        f"what of {DISEASES[question % 4]}",
        f"{DISEASES[(question + place) % 4]} {place}",
        "1" if place == 0 else "0",
    )


def write(
    folder: Path, kind: str, sizes: dict[str, int] | None = None, seed: int = 0, **manifest: object
) -> Path:
    """A task of `kind` with `sizes` examples a split."""
    rng = random.Random(seed)
    splits = {
        split: [_example(kind, rng, i) for i in range(size)]
        for split, size in (sizes or {"train": 24, "dev": 9, "test": 9}).items()
    }
    metric = {
        "ner": "entity_f1",
        "nested": "entity_f1",
        "pair": "f1",
        "ranking": "acc1",
        "relation": "micro_f1",
    }[kind]
    own = (
        {"markers": MARKERS, "negative": "none"}
        if kind == "relation"
        else {"positive": "1" if kind == "pair" else None}
    )
    save_task(
        folder,
        splits,
        **{"name": f"fake-{kind}", "kind": kind, "metric": metric, "language": "en"}
        | own
        | manifest,
    )
    return folder
