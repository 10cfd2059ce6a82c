"""Fine-tuning: a head over any encoder, for every kind of downstream task.

    token labels (NER)                   Tagger: first sub-token, linear (KeBioLM Section 4.3;
                                         Devlin et al., 2019)
    nested entities                      NestedTagger: biaffine spans (Yu et al., ACL 2020), loss of
                                         Su et al., 2022
    two texts                            PairClassifier: the head that SMedBERT's released code puts
                                         on [CLS]
    relations                            RelationClassifier: the two markers' states (KeBioLM
                                         Section 4.3)
    answers to a question                AnswerRanker: pairwise margin (SMedBERT's released code,
                                         margin 0.3)

A head is a module with `loss(states, batch)` -> scalar and `outputs(states, batch)` -> one array
per sequence, made by `head(hidden size, number of labels)`. The best epoch is the one with the
highest score on the selection split.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from core.dotted import import_object
from core.files import InputError
from datamodules.finetune import IGNORE, FinetuneBatch
from models.base import PaperModule
from models.crf import LinearChainCRF
from models.metrics import acc1_tallies, accuracy_tallies, f1_of, label_tallies, score, span_tallies
from models.recurrent import RecurrentLayer

Head = Callable[[int, int], nn.Module]


def rows_at(states: Tensor, position: Tensor) -> Tensor:
    """(B, U, H) states (B, L, H) at positions (B, U)."""
    return states.gather(1, position[..., None].expand(-1, -1, states.shape[-1]))


class Tagger(nn.Module):
    """BIO labels of units from each one's first token.

    labels  entity types; 2 labels + 1 classes
    crf     score label sequences with a linear-chain CRF (models.crf) instead of each label alone
    """

    def __init__(self, hidden: int, labels: int, dropout: float = 0.1, crf: bool = False) -> None:
        super().__init__()
        self.dropout, self.linear = nn.Dropout(dropout), nn.Linear(hidden, 2 * labels + 1)
        self.crf = LinearChainCRF(2 * labels + 1) if crf else None

    def scores(self, states: Tensor, batch: FinetuneBatch) -> Tensor:
        """(B, U, 2 labels + 1)."""
        assert batch.unit is not None
        return self.linear(self.dropout(rows_at(states, batch.unit))).float()  # type: ignore[no-any-return]

    def loss(self, states: Tensor, batch: FinetuneBatch) -> Tensor:
        assert batch.labels is not None
        scores = self.scores(states, batch)
        if self.crf is not None:
            likelihood: Tensor = self.crf(scores, batch.labels.clamp_min(0), batch.unit_mask)
            return -likelihood
        return nn.functional.cross_entropy(
            scores.flatten(0, 1), batch.labels.flatten(), ignore_index=IGNORE
        )

    @torch.no_grad()
    def outputs(self, states: Tensor, batch: FinetuneBatch) -> list[np.ndarray]:
        """Per sequence (U,) labels."""
        assert batch.unit_mask is not None
        scores = self.scores(states, batch)
        if self.crf is not None:
            return [np.array(labels) for labels in self.crf.decode(scores, batch.unit_mask)]
        return [r[m].cpu().numpy() for r, m in zip(scores.argmax(-1), batch.unit_mask, strict=True)]


def all_pairs_loss(scores: Tensor, gold: Tensor, valid: Tensor) -> Tensor:
    """Mean over rows of log(1 + sum over wrong spans e^s) + log(1 + sum over gold spans e^-s) (Su
    et al., 2022, Eq. 5).

    scores (R, N), gold (R, N) bool, valid (R, N) bool. It keeps balance when almost no span is an
    entity.
    """
    zero = scores.new_zeros(len(scores), 1)
    wrong = torch.cat([scores.masked_fill(gold | ~valid, -torch.inf), zero], 1).logsumexp(1)
    right = torch.cat([(-scores).masked_fill(~gold | ~valid, -torch.inf), zero], 1).logsumexp(1)
    return (wrong + right).mean()


class NestedTagger(nn.Module):
    """Every span of units scored for every type: s = start' U end + w [start; end] + b + l(length).
    Where s > 0 is an entity.

    Entities may nest, overlap and have several types. Without l, a bias for each length in units
    (those of LENGTHS and more share one), the first epochs go into learning that nearly all pairs
    of a start and an end are far apart.
    """

    LENGTHS = 32

    def __init__(self, hidden: int, labels: int, size: int = 64, dropout: float = 0.1) -> None:
        super().__init__()
        self.dropout, self.labels, self.size = nn.Dropout(dropout), labels, size
        self.start = nn.Sequential(nn.Linear(hidden, size), nn.GELU())
        self.end = nn.Sequential(nn.Linear(hidden, size), nn.GELU())
        self.biaffine = nn.Parameter(torch.randn(labels, size, size) / size)
        self.from_start, self.from_end = (
            nn.Linear(size, labels),
            nn.Linear(size, labels, bias=False),
        )
        self.length = nn.Embedding(self.LENGTHS, labels)
        with torch.no_grad():  # a prior: nothing is an entity, and long spans least of all
            self.length.weight.copy_(
                -1 - torch.arange(1, self.LENGTHS + 1)[:, None].log().expand(-1, labels) * 2
            )

    def scores(self, states: Tensor, batch: FinetuneBatch) -> tuple[Tensor, Tensor]:
        """((B, labels, U, U) scores of spans first unit x last unit, (B, 1, U, U) which of them are
        spans)."""
        assert batch.unit is not None and batch.unit_mask is not None
        units = self.dropout(rows_at(states, batch.unit))
        start, end = self.start(units).float(), self.end(units).float()
        with torch.autocast(states.device.type, enabled=False):
            crossed = torch.einsum("bsi,tij->btsj", start, self.biaffine)
            scores = torch.einsum("btsj,bej->btse", crossed, end)
            scores = scores + self.from_start(start).transpose(1, 2)[..., None]
            scores = scores + self.from_end(end).transpose(1, 2)[:, :, None]
            place = torch.arange(start.shape[1], device=start.device)
            between = (place[None] - place[:, None]).clamp(0, self.LENGTHS - 1)
            scores = scores + self.length(between).permute(2, 0, 1)
        valid = (batch.unit_mask[:, :, None] & batch.unit_mask[:, None]).triu()
        return scores, valid[:, None]

    def loss(self, states: Tensor, batch: FinetuneBatch) -> Tensor:
        assert batch.spans is not None
        scores, valid = self.scores(states, batch)
        gold = torch.zeros_like(scores, dtype=torch.bool)
        row, first, last, kind = batch.spans.unbind(1)
        gold[row, kind, first, last] = True
        flat = (len(scores) * self.labels, -1)
        return all_pairs_loss(
            scores.reshape(flat), gold.reshape(flat), valid.expand_as(scores).reshape(flat)
        )

    @torch.no_grad()
    def outputs(self, states: Tensor, batch: FinetuneBatch) -> list[np.ndarray]:
        """Per sequence (n, 3) first unit, last unit, type."""
        scores, valid = self.scores(states, batch)
        spans = ((scores > 0) & valid).nonzero().cpu().numpy()  # row, type, first, last
        return [spans[spans[:, 0] == row][:, [2, 3, 1]] for row in range(len(scores))]


class PairClassifier(nn.Module):
    """Dense, GELU, dropout, LayerNorm, linear on [CLS]."""

    def __init__(self, hidden: int, labels: int, dropout: float = 0.3) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(hidden, hidden),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.LayerNorm(hidden),
            nn.Linear(hidden, labels),
        )

    def loss(self, states: Tensor, batch: FinetuneBatch) -> Tensor:
        assert batch.labels is not None
        return nn.functional.cross_entropy(self.layers(states[:, 0]).float(), batch.labels)

    @torch.no_grad()
    def outputs(self, states: Tensor, batch: FinetuneBatch) -> list[np.ndarray]:
        """Per sequence its class."""
        return list(self.layers(states[:, 0]).argmax(-1).cpu().numpy())


class RelationClassifier(nn.Module):
    """Dropout and a linear layer on the states of the two markers, in the text's order."""

    def __init__(self, hidden: int, labels: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.dropout, self.linear = nn.Dropout(dropout), nn.Linear(2 * hidden, labels)

    def scores(self, states: Tensor, batch: FinetuneBatch) -> Tensor:
        """(B, labels)."""
        assert batch.anchor is not None
        return self.linear(self.dropout(rows_at(states, batch.anchor).flatten(1))).float()  # type: ignore[no-any-return]

    def loss(self, states: Tensor, batch: FinetuneBatch) -> Tensor:
        assert batch.labels is not None
        return nn.functional.cross_entropy(self.scores(states, batch), batch.labels)

    @torch.no_grad()
    def outputs(self, states: Tensor, batch: FinetuneBatch) -> list[np.ndarray]:
        """Per sequence its class."""
        return list(self.scores(states, batch).argmax(-1).cpu().numpy())


class AnswerRanker(nn.Module):
    """A score in (0, 1) from [CLS]; a right answer's is to exceed a wrong one's by `margin`.

    In training, rows 0, 2, 4 … are right answers and rows 1, 3, 5 … wrong ones to the same
    questions.
    """

    def __init__(self, hidden: int, labels: int, margin: float = 0.3, dropout: float = 0.1) -> None:
        super().__init__()
        self.margin, self.dropout, self.linear = margin, nn.Dropout(dropout), nn.Linear(hidden, 1)

    def scores(self, states: Tensor) -> Tensor:
        """(B,)."""
        return self.linear(self.dropout(states[:, 0])).float().sigmoid()[:, 0]  # type: ignore[no-any-return]

    def loss(self, states: Tensor, batch: FinetuneBatch) -> Tensor:
        right, wrong = self.scores(states).reshape(-1, 2).unbind(1)
        return (self.margin - right + wrong).clamp_min(0).mean()

    @torch.no_grad()
    def outputs(self, states: Tensor, batch: FinetuneBatch) -> list[np.ndarray]:
        """Per sequence its score."""
        return list(self.scores(states).double().cpu().numpy())


def _spans_of_type(documents: list[Any], label: str) -> list[list[Any]]:
    return [[span for span in spans if span[2] == label] for spans in documents]


def score_predictions(
    kind: str,
    predicted: list[Any],
    gold: list[list[Any]],
    labels: list[str],
    negative: str | None,
    positive: str | None,
    question: list[str],
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """({metric: score}, {metric: tallies per test example}) of a task's predictions.

    predicted, gold: as :meth:`datamodules.finetune.FinetuneData.decode_outputs` and `gold` return
        them.
    question: per example, what its answers belong to (ranking). negative: the class that micro-F1
    leaves out; positive: the class whose F1 is asked for, where one is. Scores without tallies
    (precision, recall, macro-F1) carry no interval.
    """
    tallies: dict[str, np.ndarray] = {}
    extra: dict[str, float] = {}
    if kind in ("ner", "nested"):
        tallies["entity_f1"] = counts = span_tallies(predicted, gold)
        both, predictions, f1_by_type = counts.sum(0)
        extra = {"precision": both / max(predictions, 1), "recall": both / max(f1_by_type, 1)}
        for t in labels if len(labels) > 1 else []:
            of_type = span_tallies(_spans_of_type(predicted, t), _spans_of_type(gold, t))
            if of_type.sum():  # a type that is neither there nor predicted has no score
                extra[f"f1_{t}"] = score(of_type)
    elif kind == "ranking":
        tallies["acc1"] = acc1_tallies(predicted, [g == ["1"] for g in gold], question)[1]
        extra["questions_without_right_answer"] = float(
            len(set(question)) - len({q for q, g in zip(question, gold, strict=True) if g == ["1"]})
        )
    else:
        # a class that train lacks is missed, not ignored
        types = set(labels).union(*gold)
        counted = sorted(types - {negative})
        tallies["accuracy"] = accuracy_tallies(predicted, gold)
        if kind == "relation":
            tallies["micro_f1"] = label_tallies(predicted, gold, counted)
        elif positive is not None:
            tallies["f1"] = label_tallies(predicted, gold, [positive])
        classes = [label_tallies(predicted, gold, [c]).sum(0) for c in counted]
        # a class that is neither there nor predicted has no score, as in scikit-learn
        f1_by_type = [f1_of(c) for c in classes if c.sum()]
        extra["macro_f1"] = float(np.mean(f1_by_type)) if f1_by_type else 0.0
    return {k: score(t) for k, t in tallies.items()} | {
        k: float(v) for k, v in extra.items()
    }, tallies


def confusion(
    kind: str, predicted: list[Any], gold: list[list[Any]], labels: list[str]
) -> dict[str, dict[str, int]]:
    """{gold class: {predicted class: how often}}.

    For entities by span: the type of exactly the same characters, "-" where there is no such span.
    An example with several gold classes counts under the predicted one if that is right, else under
    its first.
    """
    table: dict[str, dict[str, int]] = {}

    def add(row: str, column: str) -> None:
        table.setdefault(row, {}).setdefault(column, 0)
        table[row][column] += 1

    if kind in ("ner", "nested"):
        for document, golds in zip(predicted, gold, strict=True):
            predicted_spans, gold_spans = set(map(tuple, document)), set(map(tuple, golds))
            for span in predicted_spans & gold_spans:
                add(span[2], span[2])
            wrong = {s[:2]: s[2] for s in predicted_spans - gold_spans}
            for span in sorted(gold_spans - predicted_spans):
                add(span[2], wrong.pop(span[:2], "-"))
            for left in wrong.values():
                add("-", left)
    elif kind != "ranking":
        for document, golds in zip(predicted, gold, strict=True):
            add(document if document in golds else golds[0], document)
    return table


class Finetuning(PaperModule):
    """An encoder under a head.

    encoder      folder or hub name that `load` accepts
    load         dotted name, in `models`, of what makes the encoder
                 (experiments/<paper>/encoder.yaml)
    head         a head of this file
    lr           of the encoder, and of what is above it unless `head_lr` is given
    recurrent    size of a recurrent layer between encoder and head (models.recurrent); 0: none
    warmup_steps share of all steps (KeBioLM Section 4.1: 10 %)
    """

    def __init__(
        self,
        encoder: str,
        head: Head,
        load: str = "models.encoders.TextEncoder",
        lr: float = 3e-5,
        head_lr: float | None = None,
        recurrent: int = 0,
        weight_decay: float = 0.01,
        warmup_steps: float = 0.1,
    ) -> None:
        super().__init__(lr, weight_decay, warmup_steps)
        self.head_lr, self.recurrent_size = head_lr, recurrent
        self.recurrent: RecurrentLayer | None = None
        self.source, self.load, self.make_head = encoder, load, head
        self.encoder: nn.Module | None = None
        #: epoch and result of the best validation of this process
        self.selected: tuple[int, dict[str, Any]] | None = None

    def configure_model(self) -> None:
        """Read the encoder and build the head; Lightning calls this before it needs parameters."""
        if self.encoder is None:
            data: Any = self.trainer.datamodule  # type: ignore[attr-defined]
            self.build(data)
            if self.recurrent is not None:
                self.recurrent.read_pairs(f.ids for f in data.features["train"])

    def rate(self, name: str) -> float:
        """That of the encoder or of what is above it."""
        above = not name.startswith("encoder.")
        return self.head_lr if above and self.head_lr is not None else self.lr

    def build(self, data: Any) -> None:
        """Read the encoder and build the head for the labels of `data`
        (:class:`datamodules.finetune.FinetuneData`)."""
        encoder = import_object(self.load, "models")(self.source)
        if data.max_length > int(encoder.max_length):  # type: ignore[arg-type]
            raise InputError(
                f"max_length {data.max_length}: this encoder takes at most {encoder.max_length}"
                f' tokens. Give --args "--data.init_args.max_length {encoder.max_length}"'
            )
        if data.markers:
            encoder.resize_token_embeddings(len(data.tokenizer))  # type: ignore[operator]
        self.encoder = encoder
        hidden = int(encoder.hidden_size)  # type: ignore[arg-type]
        if self.recurrent_size:
            self.recurrent = RecurrentLayer(hidden, self.recurrent_size)
            hidden = self.recurrent.hidden_size
        self.head = self.make_head(hidden, len(data.labels))
        self.train()  # from_pretrained returns modules in evaluation mode, without dropout

    def states(self, batch: FinetuneBatch) -> Tensor:
        """(B, L, H)."""
        assert self.encoder is not None
        extra = {"second": batch.second} if getattr(self.encoder, "segments", False) else {}
        states: Tensor = self.encoder(
            batch.input_ids, batch.attention_mask, batch.mentions, **extra
        )
        if self.recurrent is None:
            return states
        return self.recurrent(states, batch.input_ids, batch.attention_mask)  # type: ignore[no-any-return]

    def training_step(self, batch: FinetuneBatch, batch_idx: int) -> Tensor:
        loss: Tensor = self.head.loss(self.states(batch), batch)  # type: ignore[operator]
        self.log("train/loss", loss, batch_size=len(batch.feature), prog_bar=True)
        return loss

    def on_validation_epoch_start(self) -> None:
        self._outputs: dict[int, Any] = {}

    on_test_epoch_start = on_validation_epoch_start

    def validation_step(self, batch: FinetuneBatch, batch_idx: int) -> None:
        outputs = self.head.outputs(self.states(batch), batch)  # type: ignore[operator]
        for number, output in zip(batch.feature.tolist(), outputs, strict=True):
            self._outputs[number] = output

    test_step = validation_step

    def validation_metrics(self) -> dict[str, float]:  # type: ignore[override]
        """The scores of the epoch; the best one's result is kept in `selected`."""
        result = self.result("select")
        self.log("val/score", result["score"], batch_size=1, prog_bar=True)
        better = self.selected is None or result["score"] > self.selected[1]["score"]
        if better and not self.trainer.sanity_checking:
            self.selected = self.current_epoch, result
        return {f"val/{name}": value for name, value in result["scores"].items()}

    def on_test_epoch_end(self) -> None:
        self.test_result = self.result("score")

    def result(self, split: str) -> dict[str, Any]:
        """Scores, tallies and predictions of the split ("select" or "score") that was just run
        through."""
        data = self.trainer.datamodule  # type: ignore[attr-defined]
        manifest = data.task.manifest
        predicted, gold = data.decode_outputs(split, self._outputs), data.gold(split)
        examples = data.examples[split]
        scores, tallies = score_predictions(
            data.kind,
            predicted,
            gold,
            data.labels,
            manifest.get("negative"),
            manifest.get("positive"),
            [e.document for e in examples],
        )
        metric = manifest["metric"]
        if metric not in tallies:
            raise InputError(f"metric {metric}: a {data.kind} task has {', '.join(tallies)}")
        return {
            "metric": metric,
            "score": scores[metric],
            "scores": scores,
            "tallies": tallies,
            "predictions": [
                {"id": e.id, "gold": g, "predicted": p}
                for e, g, p in zip(examples, gold, predicted, strict=True)
            ],
            "confusion": confusion(data.kind, predicted, gold, data.labels),
        }
