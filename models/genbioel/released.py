"""GenBioEL's released checkpoints, each a BART, as the files of an export."""

from __future__ import annotations

from pathlib import Path

from models.genbioel import load_bart


def convert(source: Path, out: Path) -> None:
    """The authors' checkpoint, a BART, as the files of an export, written into `out`."""
    load_bart(str(source), "sdpa").save_pretrained(out)
