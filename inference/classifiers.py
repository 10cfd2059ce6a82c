"""Classifiers of other people in the hub's layout, used as their config.json says.

    a token classifier (…ForTokenClassification)             finds mentions: TokenClassifier
    a sequence classifier with one label                     ranks candidates: PairScorer, a
    (…ForSequenceClassification, a "cross-encoder")          chain's third step

Mentions and their scores are those of transformers' own token-classification pipeline with
aggregation_strategy="first" and stride=a quarter of the length: a word's label is its first
sub-token's. Labels may be BIO, BIOES or BILOU, or plain types.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    TokenClassificationPipeline,
)

from core.files import InputError
from datamodules.pretrained import check_vocabulary, load_whole
from datamodules.tasks import Tagged
from datamodules.tokenizers import load_tokenizer
from experiments.names import Encoder, architecture, encoder
from inference.entity_tagger import EntityTagger, Span
from inference.linkers import Names, Ranking, text_of
from inference.options import Work, bfloat16, checked_device, checked_texts, uses_bf16
from inference.results import Mentions, as_records
from models.transformer_files import token_limit

STRIDE = 4  #: windows of a long text share a quarter of their tokens
PREFIXES = {"U": "B", "S": "B", "L": "I", "E": "I", "M": "I"}  #: of BILOU and BIOES, as in BIO


def read_label(label: str) -> str:
    """A label of BILOU or BIOES as in BIO; others as they are."""
    match = re.fullmatch(r"([USLEM])[-_](.+)", label)
    if match:
        return f"{PREFIXES[match[1]]}-{match[2]}"
    return re.sub(r"^([BI])_", r"\1-", label)


class TokenClassifier(EntityTagger):
    """A token classifier that was not trained here; a text is read in overlapping windows.

    name, identity  of the model; labels: its types; kind, language: as a tagger of ours has them
    """

    kind, language = "ner", None

    def __init__(
        self, chosen: Encoder, device: str = "cpu", bf16: bool = False, batch_size: int = 64
    ) -> None:
        self.name, self.identity = chosen.name, chosen.identity
        self.device, self.bf16, self.batch_size = device, bf16, batch_size
        self._made_of = chosen.folder
        model = load_whole(AutoModelForTokenClassification, chosen.folder, dtype=torch.float32)
        named = {int(number): str(label) for number, label in model.config.id2label.items()}
        if all(label == f"LABEL_{number}" for number, label in named.items()):
            raise InputError(
                f"{chosen.name}: its config.json does not name its labels (id2label), so what it"
                " finds has no types. Name them there."
            )
        model.config.id2label = {number: read_label(label) for number, label in named.items()}
        kinds = {label.removeprefix("B-").removeprefix("I-") for label in named.values()}
        self.labels = sorted({read_label(kind) for kind in kinds} - {"O"})
        tokenizer = load_tokenizer(chosen.folder, needed=("pad_token",))
        check_vocabulary(chosen.name, tokenizer, model)
        limit = min(token_limit(model.config), int(tokenizer.model_max_length))
        tokenizer.model_max_length = limit
        self._find = TokenClassificationPipeline(
            model=model,
            tokenizer=tokenizer,
            aggregation_strategy="first",
            stride=limit // STRIDE,
            device=torch.device(device),
            batch_size=batch_size,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """What a Ray actor gets: not the weights, but what they are read from."""
        folder = str(self._made_of)
        return _read_again, (folder, self.device, self.bf16, self.batch_size, self.identity)

    def predict(self, texts: str | Iterable[str]) -> Mentions[Span]:
        """The entities of each text, in order; `texts`: one, or any iterable of them."""
        texts = checked_texts(texts)
        filled = [number for number, text in enumerate(texts) if text.strip()]
        result: list[list[Span]] = [[] for _ in texts]
        with bfloat16(self.device, self.bf16):
            predicted = self._find([texts[number] for number in filled]) if filled else []
        for number, groups in zip(filled, predicted, strict=True):
            text = texts[number]
            for group in groups:
                start, end = _trim(text, int(group["start"]), int(group["end"]))
                if start < end:
                    kind, score = str(group["entity_group"]), float(group["score"])
                    result[number].append(Span(start, end, text[start:end], kind, score))
        return Mentions(result, texts)

    def predict_examples(self, examples: Sequence[Tagged]) -> list[dict[str, Any]]:
        """{id, text, mentions} of each example."""
        return as_records(examples, self.predict([example.text for example in examples]))


def _trim(text: str, start: int, end: int) -> tuple[int, int]:
    """A place without the whitespace at its ends, which some tokenizers count to a word."""
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end


def load_token_classifier(
    name: str,
    device: str = "cpu",
    precision: Literal["fp32", "bf16"] = "fp32",
    batch_size: int = 64,
) -> TokenClassifier:
    """The token classifier that a folder or a hub name means. Raises InputError for another model,
    and a GPU that is not available."""
    chosen = encoder(name)
    kind = architecture(chosen)
    if kind != "token":
        raise InputError(
            f"{name}: expected a fine-tuned model (TASK/encoder, or its folder) or a token"
            f" classifier; its config.json names {kind or 'no head'}"
        )
    return TokenClassifier(chosen, checked_device(device), uses_bf16(precision, device), batch_size)


def _read_again(
    name: str, device: str, bf16: bool, batch_size: int, identity: str
) -> TokenClassifier:
    """A classifier from its files. Raises InputError where they are others by now."""
    classifier = load_token_classifier(name, device, "bf16" if bf16 else "fp32", batch_size)
    if classifier.identity != identity:
        raise InputError(f"{name}: not the model that the run began with. Run the command again.")
    return classifier


class PairScorer:
    """A cross-encoder of others: reads (mention, candidate) as a pair; a candidate's score is the
    sigmoid of its one output, as sentence-transformers' CrossEncoder has it.

    The mention is read without its text: such models were trained on a query and a name or passage.
    """

    uses = frozenset({"device", "precision"})

    def __init__(
        self, chosen: Encoder, device: str = "cpu", bf16: bool = False, batch: int = 64
    ) -> None:
        self.identity = chosen.identity
        self.device, self.bf16, self.batch = device, bf16, batch
        model = load_whole(AutoModelForSequenceClassification, chosen.folder, dtype=torch.float32)
        self.model = model.to(device).eval()
        self.tokenizer = load_tokenizer(chosen.folder, needed=("pad_token",))
        check_vocabulary(chosen.name, self.tokenizer, model)
        self.max_length = min(token_limit(model.config), int(self.tokenizer.model_max_length))

    @property
    def settings(self) -> dict[str, Any]:
        return {"pair_scorer": self.identity, "precision": "bf16" if self.bf16 else "fp32"}

    def on(self, names: Names, work: Work | None = None) -> PairScored:
        return PairScored(self, names)

    @torch.inference_mode()
    def scores(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """The score of each pair, in (0, 1)."""
        order = sorted(range(len(pairs)), key=lambda n: (-len("".join(pairs[n])), n))
        result = [0.0] * len(pairs)
        for start in range(0, len(order), self.batch):
            some = order[start : start + self.batch]
            encoded = self.tokenizer(
                [pairs[n][0] for n in some],
                [pairs[n][1] for n in some],
                truncation=True,
                max_length=self.max_length,
                padding=True,
                return_tensors="pt",
            ).to(self.device)
            with bfloat16(self.device, self.bf16):
                logits = self.model(**encoded).logits[:, 0]
            for n, score in zip(some, logits.float().sigmoid().cpu().tolist(), strict=True):
                result[n] = score
        return result


class PairScored:
    """A cross-encoder of others for the candidates of a dictionary."""

    def __init__(self, scorer: PairScorer, names: Names) -> None:
        self.scorer, self.names = scorer, names

    def rank(
        self, mentions: Sequence[str], contexts: Sequence[str | None], rankings: Sequence[Ranking]
    ) -> list[Ranking]:
        pairs = [
            (mention, text_of(candidate, self.names))
            for mention, ranking in zip(mentions, rankings, strict=True)
            for candidate in ranking
        ]
        scores = iter(self.scorer.scores(pairs))
        result = []
        for ranking in rankings:
            scored = [candidate._replace(score=next(scores)) for candidate in ranking]
            result.append(sorted(scored, key=lambda candidate: -candidate.score))
        return result
