"""Tokenizer and inputs of GenBioEL's released checkpoints."""

from __future__ import annotations

from pathlib import Path

from core.files import InputError
from core.json_files import write_json
from datamodules.genbioel.inputs import FILE, Inputs
from datamodules.tokenizers import load_tokenizer


def convert(source: Path, out: Path, prompt: str = "yes") -> None:
    """Tokenizer and inputs of the authors' checkpoint, into `out`: the paper's settings.

    Args:
        prompt: Whether a mention's name begins with the paper's prompt: yes, or no for their runs
            without it.
    """
    if prompt not in ("yes", "no"):
        raise InputError(f"prompt {prompt!r}: expected yes or no")
    tokenizer = load_tokenizer(str(source))
    tokenizer.save_pretrained(out)
    write_json(out / FILE, Inputs(tokenizer, prompt=prompt == "yes").settings)
