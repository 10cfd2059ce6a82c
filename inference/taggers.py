"""Fine-tuned models on new text: entities, relations, classes of two texts, ranked answers.

    model = load_tagger("NCBI/minilm")                   a name or a folder
                                                         (experiments.finetuned_names.find_finetuned)
    model.predict(["Renal failure is rare."])            [[Span(0, 13, "Renal failure", "Disease",
                                                         0.98)]]

    Tagger         predict(texts)                        task kinds ner and nested
    RelationModel  predict(texts, pairs), relations(texts, mentions)
    PairModel      predict(pairs)
    Ranker         rank(question, answers)

Texts are read by the functions of datamodules.tagging, so that a text that fits max_length has the
result of fine-tuning. English texts are tagged sentence by sentence (datamodules.pairs.sentences),
as English tasks are. What is still too long is tagged in overlapping windows: of the windows that
contain a mention, the one with the most units around it decides. Longer pairs, and texts with
relations, are cut as in fine-tuning.

Scores of spans: flat tagger, the mean over the units of its label's probability (softmax; with a
CRF, the marginal probability given the whole sequence); nested tagger, the sigmoid of the span's
score. Of a class: its probability (softmax). Of an answer: the head's score in (0, 1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from lightning_fabric.utilities import move_data_to_device
from safetensors.torch import load_file
from torch import Tensor

from core.artifact import check_export
from core.dotted import import_object
from core.files import InputError
from core.typed import check_types
from datamodules.finetune import Feature, FinetuneBatch, FinetuneData
from datamodules.pairs import candidate_pairs, mark_pair, may_overlap, sentences
from datamodules.tagging import bio_decoded, units
from datamodules.tasks import Pair, Relation, Tagged
from experiments.finetuned_names import FineTuned, find_finetuned
from inference.entity_tagger import EntityTagger, Span
from inference.options import bfloat16, checked_device, checked_texts, uses_bf16
from inference.results import Mentions, as_records
from models.standard import file_names

OVERLAP = 4  #: windows of a long text share a quarter of their tokens
SPLIT = "new"  # of FinetuneData, which holds the sequences of one call


class Labelled(NamedTuple):
    """A class and its probability."""

    label: str
    score: float


class Related(NamedTuple):
    """A relation between two mentions of a text, by their numbers."""

    first: int
    second: int
    label: str
    score: float


class Answer(NamedTuple):
    """An answer by its number among those that were given."""

    number: int
    text: str
    score: float


def crf_marginals(crf: Any, scores: Tensor, mask: Tensor) -> Tensor:
    """(B, U, C) probabilities of each unit's labels given the whole sequence, by the
    forward-backward algorithm.

    scores (B, U, C) of the labels, mask (B, U) bool, true on each sequence's first units.
    """
    forward = [crf.start_transitions + scores[:, 0]]
    backward = [crf.end_transitions.expand_as(scores[:, 0])]
    for t in range(1, scores.shape[1]):
        step = (forward[-1][:, :, None] + crf.transitions).logsumexp(1) + scores[:, t]
        forward.append(torch.where(mask[:, t, None], step, forward[-1]))
    for t in range(scores.shape[1] - 1, 0, -1):
        step = (crf.transitions + (scores[:, t] + backward[-1])[:, None]).logsumexp(2)
        backward.append(torch.where(mask[:, t, None], step, backward[-1]))
    return (torch.stack(forward, 1) + torch.stack(backward[::-1], 1)).softmax(-1)


class FineTunedModel:
    """An encoder under a head, on one device. `kind`, `labels`, `language`, `task`: what it was
    trained on."""

    def __init__(
        self,
        module: Any,
        data: FinetuneData,
        trained: FineTuned,
        device: str,
        bf16: bool,
        batch_size: int,
    ) -> None:
        self.module, self.data = module.to(device).eval(), data
        self.device, self.bf16, self.batch_size = device, bf16, batch_size
        self.name, self.identity = trained.label, trained.identity
        self.task = str(trained.manifest["task"])
        self.negative: str | None = trained.manifest.get("negative")
        self.kind, self.labels, self.language = data.kind, data.labels, data.language
        self.folder = trained.folder

    def __reduce__(self) -> tuple[Any, ...]:
        """What a Ray actor gets: not the weights, but what they are read from."""
        return _read_again, (self.folder, self.device, self.bf16, self.batch_size, self.identity)

    @torch.inference_mode()
    def _outputs(self, features: list[Feature]) -> list[tuple[Any, Any]]:
        """(the head's output, its probabilities or score) of each sequence, in batches of similar
        length, longest first."""
        self.data.features[SPLIT] = features
        result: list[Any] = [None] * len(features)
        order = np.argsort([-len(f.ids) for f in features], kind="stable")
        for first in range(0, len(order), self.batch_size):
            numbers = order[first : first + self.batch_size]
            batch: FinetuneBatch = move_data_to_device(
                self.data.batch(SPLIT, numbers.tolist()), self.device
            )
            with bfloat16(self.device, self.bf16):
                states = self.module.states(batch)
                outputs = self.module.head.outputs(states, batch)  # as fine-tuning scores them
                scores = self._scores(states, batch, outputs)
            for number, *pair in zip(numbers, outputs, scores, strict=True):
                result[number] = tuple(pair)
        return result

    def _scores(self, states: Tensor, batch: FinetuneBatch, outputs: list[Any]) -> list[Any]:
        raise NotImplementedError

    def predict_examples(self, examples: Sequence[Any]) -> list[dict[str, Any]]:
        """A record of each example of a task (datamodules.tasks), read exactly as fine-tuning reads
        its scored split."""
        raise NotImplementedError


class Tagger(FineTunedModel, EntityTagger):
    """Finds entities: disjoint ones (kind ner), or ones that may nest (kind nested)."""

    def predict(
        self,
        texts: str | Iterable[str],
        words: Sequence[Sequence[tuple[int, int]] | None] | None = None,
    ) -> Mentions[Span]:
        """The entities of each text, in order; `texts`: one, or any iterable of them.

        words: of each text, the places [start, end) of the words that get a label, where the source
        has them; None: words and signs, of Chinese every character. An English text without them is
        read sentence by sentence, as English tasks are. Raises TypeError, with its position, for
        what is no text.
        """
        texts = checked_texts(texts)
        result: list[list[Span]] = [[] for _ in texts]
        examples, places = [], []
        for number, (text, words_of_text) in enumerate(
            zip(texts, words or [None] * len(texts), strict=True)
        ):
            if words_of_text is None:
                parts, labelled = sentences(text, self.language, []), None
            else:
                parts, labelled = [(0, len(text))], list(words_of_text)
            for first, last in parts:
                examples.append(Tagged("", "", text[first:last], [], labelled))
                places.append((number, first))
        predicted = self._spans(examples, (self.data.max_length - 2) // OVERLAP)
        for (number, first), spans in zip(places, predicted, strict=True):
            result[number] += [s._replace(start=s.start + first, end=s.end + first) for s in spans]
        return Mentions(result, texts)

    def predict_examples(self, examples: Sequence[Tagged]) -> list[dict[str, Any]]:
        """{id, text, mentions} of each example; long texts are cut where fine-tuning cuts them,
        without overlap."""
        return as_records(examples, self._spans(examples, 0))

    def _scores(self, states: Tensor, batch: FinetuneBatch, outputs: list[Any]) -> list[Any]:
        head = self.module.head
        if self.kind == "nested":
            scores = head.scores(states, batch)[0].sigmoid().cpu().numpy()  # (B, labels, U, U)
            return [
                scores[row, spans[:, 2], spans[:, 0], spans[:, 1]]
                for row, spans in enumerate(outputs)
            ]
        scores = head.scores(states, batch)
        assert batch.unit_mask is not None
        hidden = (
            scores.softmax(-1)
            if head.crf is None
            else crf_marginals(head.crf, scores, batch.unit_mask)
        )
        return [
            p[np.arange(len(labels)), labels]
            for p, labels in zip(hidden.cpu().numpy(), outputs, strict=True)
        ]

    def _spans(self, examples: Sequence[Tagged], overlap: int) -> list[list[Span]]:
        features = [f for i, e in enumerate(examples) for f in self.data.cut_windows(i, e, overlap)]
        # first unit, output, scores, units
        windows: list[list[tuple[int, Any, Any, int]]] = [[] for _ in examples]
        for feature, (output, scores) in zip(features, self._outputs(features), strict=True):
            windows[feature.example].append((feature.first_unit, output, scores, len(feature.unit)))
        return [self._merge(*pair, overlap) for pair in zip(examples, windows, strict=True)]

    def _merge(
        self, example: Tagged, windows: list[tuple[int, Any, Any, int]], overlap: int
    ) -> list[Span]:
        """The spans of an example from its windows."""
        if not windows:
            return []
        # fine-tuning joins the labels of windows that do not overlap
        if self.kind == "ner" and not overlap:
            _, outputs, scores, sizes = zip(*windows, strict=True)
            windows = [(0, np.concatenate(outputs), np.concatenate(scores), sum(sizes))]
        unit = units(example, self.language)
        # context, first unit, last + 1, type, score
        spans: list[tuple[float, int, int, str, float]] = []
        places = [(first, first + size) for first, _, _, size in windows]
        for number, (first, output, scores, _) in enumerate(windows):
            for start, end, kind, score in self._decode(output, scores):
                span = first + start, first + end
                near = range(max(0, number - 2), min(len(places), number + 3))
                context = {w: around(span, places[w], len(unit)) for w in near}
                if max(context, key=lambda w: context[w]) == number:
                    spans.append((context[number], *span, kind, score))
        if self.kind == "ner" and len(windows) > 1:
            spans = apart(spans)
        result = [(unit[s][0], unit[e - 1][1], kind, score) for _, s, e, kind, score in spans]
        return [
            Span(s, e, example.text[s:e], kind, float(score))
            for s, e, kind, score in sorted(result)
        ]

    def _decode(self, output: Any, scores: Any) -> list[tuple[int, int, str, float]]:
        """(first unit, last + 1, type, score) of a window's entities."""
        if self.kind == "nested":
            return [
                (int(s), int(e) + 1, self.labels[int(t)], float(p))
                for (s, e, t), p in zip(output, scores, strict=True)
            ]
        return [
            (s, e, t, float(np.mean(scores[s:e])))
            for s, e, t in bio_decoded(output.tolist(), self.labels)
        ]


def around(span: tuple[int, int], window: tuple[int, int], total: int) -> float:
    """Units that a window has on the poorer side of a span; -1 when the span is not inside. A
    text's own end is no lack."""
    (s, e), (first, last) = span, window
    if s < first or e > last:
        return -1.0
    return min(s - first if first else np.inf, last - e if last < total else np.inf)


def apart(
    spans: list[tuple[float, int, int, str, float]],
) -> list[tuple[float, int, int, str, float]]:
    """Spans (context, first, last + 1, …) without those that overlap one with more context."""
    chosen, taken = [], set[int]()
    for span in sorted(spans, key=lambda s: (-s[0], s[1])):
        positions = set(range(span[1], span[2]))
        if not positions & taken:
            taken |= positions
            chosen.append(span)
    return chosen


class _Classifier(FineTunedModel):
    def _label(self, features: list[Feature]) -> list[Labelled]:
        return [
            Labelled(self.labels[int(label)], float(p[int(label)]))
            for label, p in self._outputs(features)
        ]


class RelationModel(_Classifier):
    """Names the relation of two entities of a text, which are marked as the task's reader marks
    them (datamodules.pairs)."""

    @check_types
    def predict(
        self,
        texts: Sequence[str],
        pairs: Sequence[tuple[tuple[int, int], tuple[int, int]]] | None = None,
    ) -> list[Labelled]:
        """The class of each text's pair of entities.

        pairs: the two places [start, end) of each text; None: the texts have the task's markers in
            them.
        Raises InputError for a place outside its text, or two that overlap where the task has no
        marker for that.
        """
        if pairs is not None:
            markers = self.data.markers
            texts = [mark_pair(t, *pair, markers) for t, pair in zip(texts, pairs, strict=True)]
        examples = [Relation("", "", text, "", []) for text in texts]
        return self._label([self.data.make_relation(i, e) for i, e in enumerate(examples)])

    @check_types
    def relations(
        self, texts: Sequence[str], mentions: Sequence[Sequence[tuple[int, int, str | None]]]
    ) -> list[list[Related]]:
        """The relations between the mentions (start, end, type) of each text, all but the task's
        negative class.

        Pairs are those that the task classifies: by type, inside one sentence (datamodules.pairs).
        A task without a negative class (CMeIE) names a relation for every pair.
        """
        related: list[list[Related]] = [[] for _ in texts]
        texts_read, parts, pairs = [], [], []
        for number, (text, spans) in enumerate(zip(texts, mentions, strict=True)):
            for i, j, start, end in self._find_pairs(text, spans):
                (a, b), (c, d) = spans[i][:2], spans[j][:2]
                texts_read.append((number, i, j))
                parts.append(text[start:end])
                pairs.append(((a - start, b - start), (c - start, d - start)))
        for (number, i, j), (label, score) in zip(
            texts_read, self.predict(parts, pairs), strict=True
        ):
            if label != self.negative:
                related[number].append(Related(i, j, label, score))
        return related

    def _find_pairs(
        self, text: str, mentions: Sequence[tuple[int, int, str | None]]
    ) -> Iterator[tuple[int, int, int, int]]:
        """(first, second, start, end): the numbers of two mentions that the task classifies, and
        the place of their sentence."""
        if not mentions:
            return
        markers = self.data.markers
        for start, end in sentences(text, self.language, [m[:2] for m in mentions]):
            inside = [i for i, m in enumerate(mentions) if start <= m[0] and m[1] <= end]
            for first, second in candidate_pairs([mentions[i][2] for i in inside], markers):
                i, j = inside[first], inside[second]
                (a, b), (c, d) = mentions[i][:2], mentions[j][:2]
                overlap = a < d and c < b
                if not overlap or may_overlap(markers):
                    yield i, j, start, end

    def predict_examples(self, examples: Sequence[Relation]) -> list[dict[str, Any]]:
        """{id, text, label, score} of each example."""
        predicted = self.predict([e.text for e in examples])
        return [
            {"id": e.id, "text": e.text, **p._asdict()}
            for e, p in zip(examples, predicted, strict=True)
        ]

    def _scores(self, states: Tensor, batch: FinetuneBatch, outputs: list[Any]) -> list[Any]:
        return list(self.module.head.scores(states, batch).softmax(-1).cpu().numpy())


class PairModel(_Classifier):
    """Names the class of two texts."""

    @check_types
    def predict(self, pairs: Sequence[tuple[str, str]]) -> list[Labelled]:
        return self._label(
            [self.data.make_pair(i, Pair("", "", *pair, "")) for i, pair in enumerate(pairs)]
        )

    def predict_examples(self, examples: Sequence[Pair]) -> list[dict[str, Any]]:
        """{id, first, second, label, score} of each example."""
        predicted = self.predict([(e.first, e.second) for e in examples])
        return [
            {"id": e.id, "first": e.first, "second": e.second, **p._asdict()}
            for e, p in zip(examples, predicted, strict=True)
        ]

    def _scores(self, states: Tensor, batch: FinetuneBatch, outputs: list[Any]) -> list[Any]:
        return list(self.module.head.layers(states[:, 0]).float().softmax(-1).cpu().numpy())


class Ranker(FineTunedModel):
    """Ranks answers to a question."""

    def scores(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """The score of each (question, answer)."""
        features = [self.data.make_pair(i, Pair("", "", *pair, "")) for i, pair in enumerate(pairs)]
        return [float(score) for score, _ in self._outputs(features)]

    @check_types
    def rank(self, question: str, answers: Sequence[str]) -> list[Answer]:
        """The answers, best first; of equal scores the one that was given first."""
        scores = self.scores([(question, answer) for answer in answers])
        ranked = map(Answer, range(len(answers)), answers, scores)
        return sorted(ranked, key=lambda a: -a.score)

    def predict_examples(self, examples: Sequence[Pair]) -> list[dict[str, Any]]:
        """{id, question, answer, score} of each example."""
        scores = self.scores([(e.first, e.second) for e in examples])
        return [
            {"id": e.id, "question": e.first, "answer": e.second, "score": s}
            for e, s in zip(examples, scores, strict=True)
        ]

    def _scores(self, states: Tensor, batch: FinetuneBatch, outputs: list[Any]) -> list[Any]:
        return outputs


KINDS: dict[str, type[Tagger] | type[RelationModel] | type[PairModel] | type[Ranker]] = {
    "ner": Tagger,
    "nested": Tagger,
    "relation": RelationModel,
    "pair": PairModel,
    "ranking": Ranker,
}


@check_types
def load_tagger(
    name: str | Path,
    *,
    device: str = "cpu",
    precision: Literal["fp32", "bf16"] = "fp32",
    batch_size: int = 64,
) -> Tagger | RelationModel | PairModel | Ranker:
    """The fine-tuned model that `name` means, a folder or TASK/encoder
    (:func:`experiments.finetuned_names.find_finetuned`).

    batch_size: sequences that are read at once (fine-tuning scores 64). Raises InputError for a
    name that means none, a file that is missing or not the one that the manifest describes, and a
    GPU that is not available.
    """
    trained = find_finetuned(str(name))
    folder, manifest = trained.folder, trained.manifest
    check_export(folder)
    linker = manifest["linker"] or {"name": None, "folder": "encoder", "settings": {}}
    if linker["folder"] not in ("encoder", "linker"):
        raise InputError(
            f"{folder}: linker folder {linker['folder']!r}; expected encoder or linker"
        )
    data = FinetuneData(
        "",
        str(folder),
        manifest["max_length"],
        linker=linker["name"],
        linker_folder=str(folder / linker["folder"]),
        linker_settings=linker["settings"],
    )
    data.read_as(manifest["kind"], manifest["labels"], manifest["language"], manifest["markers"])
    head = partial(
        import_object(manifest["head"]["class_path"], "models"), **manifest["head"]["init_args"]
    )
    settings = manifest["model"]["init_args"]
    module = import_object(manifest["model"]["class_path"], "models")(
        encoder=str(folder / "encoder"), head=head, **settings
    )
    module.build(data)
    weights = load_file(folder / "model.safetensors")
    names = file_names(module)
    if lacking := [name for name in names.values() if name not in weights]:
        raise InputError(
            f"{folder / 'model.safetensors'}: no weight {lacking[0]}; an export of an earlier"
            " version has other names. Fine-tune again."
        )
    module.load_state_dict({key: weights[name] for key, name in names.items()})
    return KINDS[data.kind](
        module, data, trained, checked_device(device), uses_bf16(precision, device), batch_size
    )


def _read_again(
    folder: Path, device: str, bf16: bool, batch_size: int, identity: str
) -> Tagger | RelationModel | PairModel | Ranker:
    """A model from its folder. Raises InputError where that holds another one by now."""
    model = load_tagger(
        folder, device=device, precision="bf16" if bf16 else "fp32", batch_size=batch_size
    )
    if model.identity != identity:
        raise InputError(f"{folder}: not the model that the run began with. Run the command again.")
    return model
