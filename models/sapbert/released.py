"""SapBERT's released checkpoints, each a BERT, as the files of an export."""

from __future__ import annotations

from pathlib import Path

from core.files import InputError
from core.json_files import write_json
from models.sapbert import POOLING
from models.transformer_files import load_bert


def convert(source: Path, out: Path, pooling: str = "cls") -> None:
    """The authors' checkpoint, a BERT, as the files of an export, written into `out`.

    Args:
        pooling: How a name's vector is made: cls, or mean for their mean-token versions.
    """
    if pooling not in POOLING:
        raise InputError(f"pooling {pooling!r}: expected one of {', '.join(POOLING)}")
    load_bert(str(source)).save_pretrained(out)
    write_json(out / "sapbert.json", {"pooling": pooling})
