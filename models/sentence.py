"""Name encoders in the layout of sentence-transformers."""

from __future__ import annotations

from pathlib import Path

from core.json_files import write_json

NAME_TOKENS = 25  #: tokens of a name, as SapBERT cuts them
#: our name of a pooling -> key of sentence-transformers' Pooling
POOLING_KEYS = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens"}


def save_sentence_files(folder: str | Path, hidden_size: int, pooling: str, length: int) -> bool:
    """Write beside a Hugging Face folder what sentence-transformers needs to make our vectors of
    it: unit length, texts cut to `length` tokens. Returns False, and writes nothing, for a pooling
    that it does not have."""
    if pooling not in POOLING_KEYS:
        return False
    folder = Path(folder)
    module = "sentence_transformers.models"
    steps = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    rows = [
        {"idx": number, "name": str(number), "path": place, "type": f"{module}.{kind}"}
        for number, (place, kind) in enumerate(steps)
    ]
    for place, _ in steps[1:]:
        (folder / place).mkdir(exist_ok=True)
    write_json(folder / "modules.json", rows)
    modes = {key: name == pooling for name, key in POOLING_KEYS.items()}
    write_json(
        folder / "1_Pooling" / "config.json", {"word_embedding_dimension": hidden_size} | modes
    )
    write_json(
        folder / "sentence_bert_config.json", {"max_seq_length": length, "do_lower_case": False}
    )
    return True
