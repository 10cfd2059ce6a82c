"""A causal language model that chooses among candidates, or NIL, by likelihood: a chain's third
step.

    kepl link --graph g --chain "dictionary > sapbert > models/qwen" --text …
    kepl link --graph g --chain "dictionary > sapbert > http://127.0.0.1:8000/v1#qwen" --text …

The model reads :data:`PROMPT` with the text around the mention, and the candidates under letters,
the last of which is "none of these". A candidate's score is the probability of its letter among
those of the prompt; the remaining probability belongs to NIL. Where NIL's letter is the likeliest,
the mention is linked to nothing. Ids are never written by the model, so that it can return none
that is not among its candidates.

A model in a folder or of the hub is read here; an address is that of a server with OpenAI's
interface (chat/completions with logprobs; the key in OPENAI_API_KEY, where it wants one). Of a
server that returns no probabilities, the letter that it writes has probability 1; an answer that
begins with no letter of the prompt is NIL, and counted. Answers are kept in
runs/cache/closed_set.db by model, prompt and settings; :attr:`ClosedSet.usage` counts prompts,
answers from there, tokens and seconds.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sqlite3
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from core.files import InputError
from core.json_files import digest
from core.tracking import runs_folder
from datamodules.contexts import sides
from experiments.names import Encoder
from inference.linkers import Names, Ranking, text_of
from inference.options import Work

LOG = logging.getLogger(__name__)
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#: candidates that a model reads: with NIL 20 letters, of which servers return probabilities
MOST = 19
ROOM = 400  #: characters of the text on each side of a mention
PROMPT = """Which entry of a biomedical terminology does the marked mention mean?

Text: {left}[[{mention}]]{right}
Mention: {mention}

{options}

Answer with one letter."""
NIL_OPTION = "none of these"
TIMEOUT = 60  #: seconds that a server has for one answer
TRIES = 3


class ChoiceModel(Protocol):
    """What chooses: `choose` returns the probability of each of the first `count` letters, and the
    tokens that were read and written."""

    identity: str

    def choose(self, prompt: str, count: int) -> tuple[list[float], int]: ...


@dataclass
class Usage:
    """What a ranker has asked. cached: answers from the cache; no_letter: answers that begin with
    no letter of the prompt."""

    prompts: int = 0
    cached: int = 0
    no_letter: int = 0
    tokens: int = 0
    seconds: float = 0.0


class Answers:
    """Probabilities by model and prompt, in one file that several processes may write."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def _open(self) -> sqlite3.Connection:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self.file, timeout=60)
        connection.execute("CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, value TEXT)")
        return connection

    def find(self, key: str) -> list[float] | None:
        with closing(self._open()) as connection:
            row = connection.execute("SELECT value FROM answers WHERE key = ?", (key,)).fetchone()
        return None if row is None else [float(value) for value in json.loads(row[0])]

    def keep(self, key: str, probabilities: list[float]) -> None:
        with closing(self._open()) as connection, connection:
            connection.execute(
                "INSERT OR REPLACE INTO answers VALUES (?, ?)", (key, json.dumps(probabilities))
            )


class ClosedSet:
    """A causal language model as a reranker (inference.reranker.Reranking)."""

    uses = frozenset({"device", "precision"})

    def __init__(self, model: ChoiceModel, answers: Answers | None = None) -> None:
        self.model, self.usage = model, Usage()
        self.answers = answers or Answers(runs_folder() / "cache" / "closed_set.db")
        self.identity = digest([model.identity, PROMPT, NIL_OPTION, MOST, ROOM])

    @property
    def settings(self) -> dict[str, Any]:
        return {"closed_set": self.identity, "prompt": digest([PROMPT, NIL_OPTION])[:12]}

    def on(self, names: Names, work: Work | None = None) -> ClosedSetRanker:
        return ClosedSetRanker(self, names)

    def probabilities(self, prompt: str, count: int) -> list[float]:
        """Of each of the first `count` letters, from the cache where they are known."""
        key = digest([self.identity, prompt, count])
        self.usage.prompts += 1
        stored = self.answers.find(key)
        if stored is not None:
            self.usage.cached += 1
            return stored
        began = time.perf_counter()
        result, tokens = self.model.choose(prompt, count)
        self.usage.seconds += time.perf_counter() - began
        self.usage.tokens += tokens
        if not any(result):  # an answer that is none of the letters
            self.usage.no_letter += 1
            result = [0.0] * (count - 1) + [1.0]
        self.answers.keep(key, result)
        return result

    def report(self) -> str:
        """What was asked so far, in words."""
        usage = self.usage
        lost = f", {usage.no_letter:,} answers without a letter" if usage.no_letter else ""
        return (
            f"closed-set ranker: {usage.prompts:,} prompts, {usage.cached:,} from the cache,"
            f" {usage.tokens:,} tokens, {usage.seconds:.1f} s{lost}"
        )


class ClosedSetRanker:
    """A causal language model for the candidates of a dictionary."""

    def __init__(self, ranker: ClosedSet, names: Names) -> None:
        self.ranker, self.names = ranker, names

    def rank(
        self, mentions: Sequence[str], contexts: Sequence[str | None], rankings: Sequence[Ranking]
    ) -> list[Ranking]:
        """The candidates by the probabilities of their letters; none where NIL's is the highest.
        Candidates beyond MOST come after, with 0."""
        result: list[Ranking] = []
        for mention, context, ranking in zip(mentions, contexts, rankings, strict=True):
            if not ranking:
                result.append([])
                continue
            read, rest = ranking[:MOST], ranking[MOST:]
            prompt = write_prompt(mention, context, [text_of(c, self.names) for c in read])
            *scores, nil = self.ranker.probabilities(prompt, len(read) + 1)
            scored = [c._replace(score=p) for c, p in zip(read, scores, strict=True)]
            ordered = sorted(scored, key=lambda c: -c.score)
            unranked = [*ordered, *(c._replace(score=0.0) for c in rest)]
            result.append(unranked if ordered[0].score >= nil else [])
        LOG.info(self.ranker.report())
        return result


def write_prompt(mention: str, context: str | None, candidates: Sequence[str]) -> str:
    """What the model reads; the last option is NIL's."""
    left, right = sides(mention, context)
    options = [*candidates, NIL_OPTION]
    lines = [f"{letter}. {text}" for letter, text in zip(LETTERS, options, strict=False)]
    return PROMPT.format(
        left=left[-ROOM:], mention=mention, right=right[:ROOM], options="\n".join(lines)
    )


class LocalModel:
    """A causal language model in the hub's layout. The letter is scored as what follows the
    prompt, in the tokenizer's chat template where it has one."""

    def __init__(self, chosen: Encoder, device: str, bf16: bool) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        from datamodules.pretrained import load

        self.identity = digest([chosen.identity, "bf16" if bf16 else "fp32"])
        self.name, self.device = chosen.name, device
        kind = torch.bfloat16 if bf16 else torch.float32
        self.model = load(AutoModelForCausalLM, chosen.folder, dtype=kind).to(device).eval()
        self.tokenizer = load(AutoTokenizer, chosen.folder)
        self.max_length = int(getattr(self.model.config, "max_position_embeddings", 1024))
        self._letters = self._letter_tokens()

    def _letter_tokens(self) -> dict[str, list[int]]:
        """The tokens that a letter may be as an answer: with and without a space before it."""
        tokens = {}
        for letter in LETTERS:
            ids = [
                self.tokenizer.encode(text, add_special_tokens=False)
                for text in (letter, f" {letter}")
            ]
            tokens[letter] = sorted({token_ids[0] for token_ids in ids if len(token_ids) == 1})
        single = [tuple(ids) for ids in tokens.values()]
        if not all(single) or len(set(single)) < len(single):
            raise InputError(
                f"{self.name}: its tokenizer has no token for each of the letters A to Z, by which"
                " a closed-set ranker answers. Use another model."
            )
        return tokens

    def choose(self, prompt: str, count: int) -> tuple[list[float], int]:
        """Probabilities of the letters among themselves, after the whole prompt; its middle is cut
        where it is longer than the model reads."""
        import torch

        if getattr(self.tokenizer, "chat_template", None):
            ids = self.tokenizer.apply_chat_template(
                [{"role": "user", "content": prompt}], add_generation_prompt=True, tokenize=False
            )
            ids = self.tokenizer.encode(ids, add_special_tokens=False)
        else:
            ids = self.tokenizer.encode(prompt + "\nAnswer:")
        if len(ids) > self.max_length:
            half = self.max_length // 2
            ids = [*ids[: self.max_length - half], *ids[-half:]]
        with torch.inference_mode():
            scores = self.model(torch.tensor([ids], device=self.device)).logits[0, -1].float()
        letters = [scores[self._letters[letter]].logsumexp(0) for letter in LETTERS[:count]]
        return [float(p) for p in torch.stack(letters).softmax(0)], len(ids)


class ServedModel:
    """A model behind OpenAI's interface. `address`: http://server/v1; `name`: the model's."""

    def __init__(self, address: str, name: str) -> None:
        self.address, self.name = address.rstrip("/"), name
        self.identity = digest([self.address, name])

    def choose(self, prompt: str, count: int) -> tuple[list[float], int]:
        """Probabilities of the letters that the server names, among themselves; all 0 for an answer
        that begins with none of them."""
        answer = self._ask(
            {
                "model": self.name,
                "messages": [{"role": "user", "content": prompt}],
                "max_tokens": 1,
                "temperature": 0,
                "logprobs": True,
                "top_logprobs": 20,
            }
        )
        try:
            choice = answer["choices"][0]
            content = str(choice["message"]["content"] or "")
            tokens = int((answer.get("usage") or {}).get("total_tokens", 0))
            places = (choice.get("logprobs") or {}).get("content") or []
            likely = places[0].get("top_logprobs") or [] if places else []
            options = [
                (str(option["token"]).strip(), float(option["logprob"])) for option in likely
            ]
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"{self.address}: expected an answer of chat/completions, got {answer!s:.80}"
            ) from error
        probabilities = [0.0] * count
        for token, log_probability in options:
            if len(token) == 1 and token in LETTERS[:count] and math.isfinite(log_probability):
                probabilities[LETTERS.index(token)] += math.exp(log_probability)
        if not options and content.strip()[:1] and content.strip()[0] in LETTERS[:count]:
            probabilities[LETTERS.index(content.strip()[0])] = 1.0
        total = sum(probabilities)
        return [p / total for p in probabilities] if total else probabilities, tokens

    def _ask(self, question: dict[str, Any]) -> Any:
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get("OPENAI_API_KEY"):
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(
            f"{self.address}/chat/completions", json.dumps(question).encode(), headers
        )
        for attempt in range(TRIES):
            try:
                with urllib.request.urlopen(request, timeout=TIMEOUT) as reply:
                    return json.loads(reply.read())
            except urllib.error.HTTPError as error:
                text = error.read()[:200].decode(errors="replace")
                if error.code < 500 and error.code != 429:
                    raise InputError(
                        f"{self.address}: the server refused ({error.code}: {text}). Check the"
                        " model's name and OPENAI_API_KEY."
                    ) from error
                reason = f"{error.code}: {text}"
            except (OSError, ValueError) as error:
                reason = str(error)
            if attempt + 1 < TRIES:
                time.sleep(2**attempt)
        raise InputError(
            f"{self.address}: no answer ({reason}). Start the server, or check the address; answers"
            " so far are kept: the same command resumes after them."
        )


def served_ranker(name: str) -> ClosedSet:
    """The ranker of an address http://server/v1#model. Raises InputError for one without a model's
    name."""
    address, _, model = name.partition("#")
    if not model:
        raise InputError(
            f"{name}: expected the address of a server and a model's name, as"
            " http://127.0.0.1:8000/v1#qwen"
        )
    return ClosedSet(ServedModel(address, model))


def local_ranker(chosen: Encoder, device: str, bf16: bool) -> ClosedSet:
    """The ranker of a causal language model in a folder or of the hub."""
    return ClosedSet(LocalModel(chosen, device, bf16))
