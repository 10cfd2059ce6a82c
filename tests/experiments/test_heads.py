"""The head that a plain model's configuration names, and defaults that a user sees."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.cli import first_word
from app.commands import Serve
from experiments.names import PLAIN, architecture


@pytest.mark.parametrize(
    ("config", "head"),
    [
        ({"architectures": ["BertForTokenClassification"]}, "token"),
        ({"architectures": ["GPT2LMHeadModel"]}, "causal"),
        ({"architectures": ["LlamaForCausalLM"]}, "causal"),
        # a cross-encoder has one label; without any, transformers means two
        ({"architectures": ["BertForSequenceClassification"]}, ""),
        ({"architectures": ["BertForSequenceClassification"], "num_labels": 2}, ""),
        ({"architectures": ["BertForSequenceClassification"], "num_labels": 1}, "pair"),
        ({"architectures": ["BertForSequenceClassification"], "id2label": {"0": "a"}}, "pair"),
        (
            {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "a", "1": "b"}},
            "",
        ),
        ({"architectures": ["BertModel"]}, ""),
        ({}, ""),
    ],
)
def test_heads(config: dict[str, Any], head: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    chosen: Any = SimpleNamespace(folder=str(tmp_path), load=PLAIN, paper="")
    assert architecture(chosen) == head
    (tmp_path / "modules.json").write_text("[]")
    assert architecture(chosen) == ""


def test_the_first_option_as_a_word_or_by_name() -> None:
    for words in (["smedbert"], ["--paper", "smedbert"], ["--paper=smedbert"], ["PAPER=smedbert"]):
        assert first_word(words, "paper") == "smedbert"
    assert first_word(["--paper"], "paper") is first_word([], "paper") is None


def test_a_server_listens_to_this_machine_alone_at_port_8000() -> None:
    assert (Serve.host, Serve.port) == ("127.0.0.1", 8000)
