"""The steps of a chain (inference.chain), read from its text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from core.files import InputError
from core.typed import check_types
from experiments.finetuned_names import close_names, fine_tuned_names, is_task
from experiments.names import may_be_hub_name
from experiments.recipes import recipes
from inference.detectors import DICTIONARY

DETECTORS = (DICTIONARY, "kebiolm")  #: names that detect, beside fine-tuned taggers


class Steps(NamedTuple):
    """The steps of a chain. `detect` may unite several detectors: "NCBI/minilm + dictionary"."""

    detect: str
    candidates: str | None
    rerank: str | None

    def __str__(self) -> str:
        """The chain as it is written with one blank between its words."""
        detect = " + ".join(self.detectors)
        return " > ".join(step for step in (detect, self.candidates, self.rerank) if step)

    @property
    def detectors(self) -> list[str]:
        return re.split(r"\s+\+\s+", self.detect)


@check_types
def steps_of(chain: str) -> Steps:
    """The steps of a chain such as "NCBI/minilm > sapbert". Raises InputError for a first step that
    detects nothing."""
    words = [word.strip() for word in chain.split(">")]
    if not all(words) or len(words) > 3:
        raise InputError(
            f"chain {chain!r}: expected DETECTOR, DETECTOR > CANDIDATES or DETECTOR > CANDIDATES >"
            " RERANKER; DETECTOR may be A + B"
        )
    steps = Steps(
        words[0], words[1] if len(words) > 1 else None, words[2] if len(words) > 2 else None
    )
    for word in steps.detectors:
        if word.partition("/")[0] in DETECTORS or is_task(word) or Path(word).is_dir():
            continue
        if word.partition("/")[0] not in recipes() and may_be_hub_name(word):
            continue  # a token classifier, if its files say so
        near = [name for name in close_names(word, DETECTORS) if is_task(name) or name in DETECTORS]
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        tuned = (
            ", ".join(fine_tuned_names()) or "TASK/encoder, once `make finetune` has trained one"
        )
        raise InputError(
            f"chain {chain!r}: {word!r} finds no mentions.{hint} Begin with one of:"
            f" {', '.join(DETECTORS)}, {tuned}; as in 'dictionary > {word}'"
        )
    for word in filter(None, steps[1:]):
        check_slip(chain, word)
    return steps


def check_slip(chain: str, word: str) -> None:
    """Raise InputError for a later step that is one letter from a known name, before a model of its
    name is looked for on the hub."""
    if "/" in word or Path(word).exists():
        return
    near = [name for name in close_names(word, ("names",)) if not is_task(name)]
    if near and word not in near:
        raise InputError(f"chain {chain!r}: no model {word!r}; did you mean {near[0]}?")
