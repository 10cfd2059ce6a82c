"""A causal language model chooses among candidates: never an id of its own, NIL, cached answers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from core.files import InputError
from datamodules.linking import Dictionary
from experiments.names import encoder
from inference import closed_set
from inference.chain import Pipeline
from inference.closed_set import LETTERS, MOST, NIL_OPTION, Answers, ClosedSet, served_ranker
from inference.linkers import Candidate, Names
from tests.fakes import graphs

NAMES = Names(Dictionary(["G:1", "G:2", "G:3"], ["ataxia", "gout", "renal failure"]), "lower")


class Fixed:
    """A model whose answers are given."""

    identity = "fixed"

    def __init__(self, answer: list[float]) -> None:
        self.answer, self.asked = answer, list[str]()

    def choose(self, prompt: str, count: int) -> tuple[list[float], int]:
        self.asked.append(prompt)
        return (self.answer + [0.0] * count)[:count], 7


def ranker(model: Any, folder: Path) -> ClosedSet:
    return ClosedSet(model, Answers(folder / "answers.db"))


def candidates(count: int) -> list[Candidate]:
    words = ["ataxia", "gout", "renal failure"]
    return [Candidate(f"G:{n % 3 + 1}", words[n % 3], 0.5) for n in range(count)]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    count=st.integers(1, 25),
    answer=st.lists(st.floats(0, 1), max_size=26),
    mention=st.text("abc [](){}\n", min_size=1, max_size=9),
)
def test_only_candidates_are_returned(
    tmp_path_factory: pytest.TempPathFactory, count: int, answer: list[float], mention: str
) -> None:
    found = candidates(count)
    ranked = ranker(Fixed(answer), tmp_path_factory.mktemp("x")).on(NAMES)
    (own,) = ranked.rank([mention], [None], [found])
    assert own == [] or sorted(c.concept for c in own) == sorted(c.concept for c in found)
    read = min(count, MOST)
    given = (answer + [0.0] * 26)[: read + 1]
    nil = given[read] if any(given) else 1.0
    assert (own == []) == (max(given[:read]) < nil)


def test_the_prompt_and_the_order(tmp_path: Path) -> None:
    model = Fixed([0.1, 0.7, 0.2])
    context = "He has START gout END and pain."
    (own,) = ranker(model, tmp_path).on(NAMES).rank(["gout"], [context], [candidates(2)])
    assert [(c.name, c.score) for c in own] == [("gout", 0.7), ("ataxia", 0.1)]
    prompt = model.asked[0]
    assert "Text: He has [[gout]] and pain.\n" in prompt
    assert f"A. ataxia\nB. gout\nC. {NIL_OPTION}\n" in prompt


def test_answers_are_kept_by_model_and_prompt(tmp_path: Path) -> None:
    model = Fixed([0.9, 0.1])
    first, again = ranker(model, tmp_path), ranker(model, tmp_path)
    one = first.on(NAMES).rank(["gout", "gout"], [None, None], [candidates(1)] * 2)
    assert first.usage.prompts == 2 and first.usage.cached == 1 and first.usage.tokens == 7
    assert again.on(NAMES).rank(["gout"], [None], [candidates(1)]) == one[:1]
    assert len(model.asked) == 1 and again.usage.cached == 1
    assert "1 from the cache" in again.report()
    other = Fixed([0.2, 0.8])
    other.identity = "other"
    assert ranker(other, tmp_path).on(NAMES).rank(["gout"], [None], [candidates(1)]) == [[]]


def write_causal(folder: Path) -> Path:
    """A tiny GPT-2 whose words are letters and a few others."""
    tokens = ["<unk>", "<s>", *LETTERS, "gout", "ataxia", "Text", "Mention", "Answer", ":", "."]
    made = Tokenizer(models.WordLevel({t: n for n, t in enumerate(tokens)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="<unk>", bos_token="<s>"
    ).save_pretrained(folder)
    torch.manual_seed(5)
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}
    GPT2LMHeadModel(GPT2Config(vocab_size=len(tokens), **sizes)).save_pretrained(folder)
    return folder


def test_a_local_model_scores_the_letters_that_follow(tmp_path: Path) -> None:
    folder = write_causal(tmp_path / "gpt")
    made = closed_set.LocalModel(encoder(str(folder)), "cpu", False)
    prompt = "Text: gout. A. gout B. ataxia"
    found, tokens = made.choose(prompt, 3)
    ids = made.tokenizer.encode(prompt + "\nAnswer:")
    assert tokens == len(ids)
    scores = made.model(torch.tensor([ids])).logits[0, -1]
    letters = [made.tokenizer.convert_tokens_to_ids(letter) for letter in "ABC"]
    assert found == pytest.approx(scores[letters].softmax(0).tolist(), abs=1e-6)
    long, count = made.choose("gout " * 500, 2)
    assert count == 64 and sum(long) == pytest.approx(1)


def test_a_local_model_in_a_chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPL_RUNS", str(tmp_path / "runs"))
    graph = graphs.write(tmp_path / "graph", {"G:1": ["gout"], "G:2": ["ataxia"]})
    chain = Pipeline(graph, f"dictionary > names > {write_causal(tmp_path / 'gpt')}")
    for mention in chain.link(["He has gout."])[0]:
        assert mention.entity in ("G:1", None)
        assert {c.entity for c in mention.candidates} <= {"G:1"}


@contextmanager
def serve(answer: Any, status: int = 200) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server with OpenAI's interface that always answers the same."""
    asked: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *words: Any) -> None: ...

        def do_POST(self) -> None:
            question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(question | {"path": self.path, "key": self.headers.get("Authorization")})
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", asked
    finally:
        server.shutdown()
        server.server_close()


def reply(content: str, likely: dict[str, float] | None = None) -> dict[str, Any]:
    """An answer of chat/completions, with the probabilities of its first token."""
    tops = [{"token": t, "logprob": math.log(p)} for t, p in (likely or {}).items()]
    logprobs = {"content": [{"token": content, "top_logprobs": tops}]} if likely else None
    choice = {"message": {"content": content}, "logprobs": logprobs}
    return {"choices": [choice], "usage": {"total_tokens": 40}}


def test_a_server_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPL_RUNS", str(tmp_path))
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with serve(reply("B", {"B": 0.6, " A": 0.2, "b": 0.1, "G:99": 0.1})) as (address, asked):
        made = served_ranker(f"{address}#tiny")
        for _ in range(2):
            (own,) = made.on(NAMES).rank(["gout"], [None], [candidates(2)])
            assert [c.name for c in own] == ["gout", "ataxia"]
            assert [c.score for c in own] == pytest.approx([0.75, 0.25])
        assert made.usage.cached == 1 and made.usage.tokens == 40
    assert len(asked) == 1 and asked[0]["model"] == "tiny" and asked[0]["key"] == "Bearer secret"
    assert asked[0]["path"] == "/v1/chat/completions"


@pytest.mark.parametrize(
    ("content", "expected"), [("A", ["ataxia", "gout"]), ("C", []), ("G:99", ["gout", "ataxia"])]
)
def test_a_server_without_probabilities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, expected: list[str]
) -> None:
    monkeypatch.setenv("KEPL_RUNS", str(tmp_path))
    with serve(reply(content)) as (address, _):
        made = served_ranker(f"{address}#m")
        (own,) = made.on(NAMES).rank(["gout"], [None], [candidates(2)])
    if content == "G:99":  # begins with no letter of the prompt: NIL, and counted
        assert own == [] and made.usage.no_letter == 1
        assert "1 answers without a letter" in made.report()
    else:
        assert [c.name for c in own] == expected


@pytest.mark.parametrize(("answer", "status"), [({}, 200), ([], 200), ({"error": "no"}, 404)])
def test_a_server_that_answers_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Any, status: int
) -> None:
    monkeypatch.setenv("KEPL_RUNS", str(tmp_path))
    with (
        serve(answer, status) as (address, _),
        pytest.raises(InputError, match=r"expected|refused"),
    ):
        served_ranker(f"{address}#m").on(NAMES).rank(["gout"], [None], [candidates(2)])


def test_addresses_and_servers_that_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closed_set, "TRIES", 1)
    monkeypatch.setenv("KEPL_RUNS", str(tmp_path))
    with pytest.raises(InputError, match="and a model's name"):
        served_ranker("http://127.0.0.1:8000/v1")
    with pytest.raises(InputError, match="no answer"):
        made = served_ranker("http://127.0.0.1:9/v1#m")
        made.on(NAMES).rank(["gout"], [None], [candidates(1)])
