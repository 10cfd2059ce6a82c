"""Chinese sentences that mention names, and the linked corpus made of them, as the makers of the
house make it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from datamodules import corpus
from kg.documents.parts import InParts
from kg.linking.run import link_corpus

PLAIN = "患者出现并需要服用注意休息常见检查后发现以及今日"  # what is between names
LENGTH = 47


def linked_corpus(
    folder: Path,
    encoder: Path,
    names: Sequence[str],
    rng: np.random.Generator,
    texts: int,
    clauses: tuple[int, int],
    share: float,
) -> None:
    """Write texts.jsonl, linked and corpus beside the graph in `folder`.

    A text has clauses[0] to clauses[1] - 1 clauses, each of which mentions one of `names` with
    probability `share`.
    """
    with open(folder / "texts.jsonl", "w") as handle:
        for number in range(texts):
            text = ""
            for _ in range(int(rng.integers(*clauses))):
                text += "".join(rng.choice(list(PLAIN), int(rng.integers(1, 6))))
                if rng.random() < share:
                    text += str(rng.choice(names))
                text += str(rng.choice(list("。，；")))
            handle.write(json.dumps({"id": str(number), "text": text}, ensure_ascii=False) + "\n")
    one = InParts(workers=1)
    link_corpus(folder / "graph", [folder / "texts.jsonl"], folder / "linked", work=one)
    corpus.build_corpus(
        str(folder / "linked"),
        str(folder / "graph"),
        str(encoder),
        str(folder / "corpus"),
        max_length=LENGTH,
        held_out=0.2,
        long_texts="split",
    )
