"""What a task's score is worth: systems that train nothing, by the same scorer.

    entities      dictionary   the longest names of the training mentions, those annotated in at
                               least a share of their occurrences there (TextDictionary)
    two texts     tf-idf       cosine of character 1- and 2-grams, classes by its value (CosineBins)
    answers       tf-idf       the same cosine of question and answer
    relations     majority     the most frequent class, or that of the two entities' types

Each choice (a share, a majority) is the one with the highest score on the selection split; the
thresholds of two texts are those with the highest accuracy on the training examples. Where the
selection split is a part of train, the chosen system then reads all of train.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.results import OVERALL, SELECT, TRIVIAL, Model, Result, save_result
from core.json_files import digest
from core.tracking import folder_name, runs_folder
from datamodules.tagging import units
from datamodules.tasks import Pair, Relation, Tagged, Task
from datamodules.tasks.selection import Selection, select_examples
from models.finetune import score_predictions

#: shares of its occurrences in which a name must be annotated
SHARES = tuple(round(0.05 * i, 2) for i in range(20))
BINS = 40


class TextDictionary:
    """Names of the training mentions, found again by longest match.

    Attributes:
        kind: {name: the type that it has most often}.
        share: {name: the share of its occurrences that are annotated}.
    """

    def __init__(self, examples: Sequence[Tagged], language: str) -> None:
        self.language = language
        annotated: dict[str, Counter[str]] = defaultdict(Counter)
        for example in examples:
            for start, end, kind in example.entities:
                annotated[example.text[start:end]][kind] += 1
        self.kind = {name: kinds.most_common(1)[0][0] for name, kinds in annotated.items()}
        self.longest = max((len(self._cut_text(name)) for name in self.kind), default=0)
        seen: Counter[str] = Counter()
        for example in examples:
            seen.update(name for _, _, name in self._occurrences(example))
        self.share = {
            name: min(1.0, kinds.total() / max(seen[name], 1)) for name, kinds in annotated.items()
        }

    def _cut_text(self, text: str) -> list[tuple[int, int]]:
        return units(Tagged("", "", text, []), self.language)

    def _occurrences(self, example: Tagged) -> list[tuple[int, int, str]]:
        """(first unit, last unit + 1, name) of every known name in the text, longest first at each
        place."""
        place = units(example, self.language)
        occurrences = []
        for first in range(len(place)):
            for last in range(min(len(place), first + self.longest), first, -1):
                name = example.text[place[first][0] : place[last - 1][1]]
                if name in self.kind:
                    occurrences.append((first, last, name))
        return occurrences

    def find(self, example: Tagged, share: float) -> list[tuple[int, int, str]]:
        """(start, end, type) of the names with at least `share`, from left to right, in
        characters."""
        place = units(example, self.language)
        mentions, reached = [], 0
        for first, last, name in self._occurrences(example):
            if first >= reached and self.share[name] >= share:
                mentions.append((place[first][0], place[last - 1][1], self.kind[name]))
                reached = last
        return mentions


class Cosines:
    """TF-IDF vectors of character 1- and 2-grams, with the idf of the training texts."""

    def __init__(self, examples: Sequence[Pair]) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        texts = dict.fromkeys(text for e in examples for text in (e.first, e.second))
        self.vectors = TfidfVectorizer(analyzer="char", ngram_range=(1, 2))
        self.vectors.fit(texts)

    def measure(self, examples: Sequence[Pair]) -> np.ndarray:
        """(n,) the cosine of each pair's two texts."""
        first = self.vectors.transform([e.first for e in examples])
        second = self.vectors.transform([e.second for e in examples])
        return np.asarray(first.multiply(second).sum(1)).ravel()


class CosineBins:
    """Classes of pairs by their cosine: of two classes one threshold, of more the majority of each
    of BINS quantiles."""

    def __init__(self, cosines: np.ndarray, labels: Sequence[str]) -> None:
        order = np.argsort(cosines, kind="stable")
        values, sorted_labels = cosines[order], np.array(labels)[order]
        kinds = sorted(set(labels))
        if len(kinds) == 2:
            high = np.where(sorted_labels == kinds[1], 1, -1)
            # right answers where all from a place on are the second class, and the other way round
            gain = np.concatenate([[high.sum()], high.sum() - 2 * np.cumsum(high)])
            upward = gain.max() >= -gain.min()
            cut = int(np.argmax(gain if upward else -gain))
            self.edges = np.array([np.inf if cut == len(values) else values[cut]])
            self.classes = kinds if upward else kinds[::-1]
            return
        self.edges = np.unique(np.quantile(values, np.linspace(0, 1, BINS + 1)[1:-1]))
        place = np.searchsorted(self.edges, values, side="right")
        common = Counter(labels).most_common(1)[0][0]
        self.classes = []
        for number in range(len(self.edges) + 1):
            bin_labels = Counter(sorted_labels[place == number].tolist())
            self.classes.append(bin_labels.most_common(1)[0][0] if bin_labels else common)

    def predict(self, cosines: np.ndarray) -> list[str]:
        return [self.classes[i] for i in np.searchsorted(self.edges, cosines, side="right")]


def find_majorities(
    examples: Sequence[Relation], markers: Sequence[str], negative: str | None
) -> dict[str, Callable[[Relation], str]]:
    """{how: class of an example}: the most frequent class, the most frequent one that is not
    `negative`, and that of the pair of markers (entity types)."""

    def pair(example: Relation) -> tuple[str, ...]:
        places = [(example.text.find(m), m) for m in markers if m in example.text]
        return tuple(m for _, m in sorted(places))

    counted = Counter(e.label for e in examples)
    positive = Counter({k: n for k, n in counted.items() if k != negative})
    of_pair: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for example in examples:
        of_pair[pair(example)][example.label] += 1
    most, other = counted.most_common(1)[0][0], (positive or counted).most_common(1)[0][0]

    def by_types(example: Relation) -> str:
        majority = of_pair.get(pair(example))
        return majority.most_common(1)[0][0] if majority else most

    return {
        "majority": lambda example: most,
        f"majority without {negative}": lambda example: other,
        "majority of the types": by_types,
    }


class Choice(NamedTuple):
    """One setting of a baseline: its predictions for examples, which the scorer accepts."""

    name: str
    predict: Callable[[Sequence[Any]], list[Any]]


def list_choices(task: Task, train: Sequence[Any]) -> list[Choice]:
    """The settings of a task's baseline, read off its training examples."""
    kind, manifest = task.kind, task.manifest
    if kind in ("ner", "nested"):
        names = TextDictionary(train, manifest["language"])

        def with_share(share: float) -> Choice:
            description = f"dictionary of training mentions, share {share:g}"
            return Choice(description, lambda examples: [names.find(e, share) for e in examples])

        return [with_share(share) for share in SHARES]
    if kind == "relation":
        majorities = find_majorities(train, manifest.get("markers") or [], manifest.get("negative"))

        def with_majority(name: str, label: Callable[[Relation], str]) -> Choice:
            return Choice(name, lambda examples: [label(e) for e in examples])

        return [with_majority(name, label) for name, label in majorities.items()]
    cosines = Cosines(train)
    if kind == "ranking":
        return [Choice("TF-IDF cosine", lambda examples: cosines.measure(examples).tolist())]
    bins = CosineBins(cosines.measure(train), [e.label for e in train])
    return [Choice("TF-IDF cosine", lambda examples: bins.predict(cosines.measure(examples)))]


def gold_of(example: Any) -> list[Any]:
    """The gold labels or entities of an example, as the scorer compares them."""
    if isinstance(example, Tagged):
        return list(example.entities)
    return list(example.gold) if isinstance(example, Relation) else [example.label]


class Scored(NamedTuple):
    """A baseline on a task."""

    name: str
    select: dict[str, float]
    score: dict[str, float]
    tallies: dict[str, np.ndarray]
    choices: dict[str, float]  # the score of each choice on the scored split
    selection: Selection


def score_trivial(task: Task, share: float = 1.0, seed: int = 0) -> Scored:
    """The baseline of a task, chosen on the selection split and scored on the other.

    share, seed: of the training documents, as datamodules.tasks.selection keeps them.
    """
    selection = select_examples(task, share, seed)
    examples, manifest = selection.examples, task.manifest
    metric = manifest["metric"]

    def measure(choice: Choice, split: str) -> tuple[dict[str, float], Mapping[str, np.ndarray]]:
        return score_predictions(
            task.kind,
            choice.predict(examples[split]),
            [gold_of(e) for e in examples[split]],
            task.labels,
            manifest.get("negative"),
            manifest.get("positive"),
            [e.document for e in examples[split]],
        )

    choices = list_choices(task, examples["train"])
    selected = [measure(choice, "select")[0] for choice in choices]
    if selection.selected_on != "dev":
        choices = list_choices(task, examples["train"] + examples["select"])
    tested = [measure(choice, "score") for choice in choices]
    best = max(range(len(choices)), key=lambda i: selected[i][metric])
    scores, tallies = tested[best]
    of_choices = {
        c.name: test_score[metric] for c, (test_score, _) in zip(choices, tested, strict=True)
    }
    return Scored(choices[best].name, selected[best], scores, dict(tallies), of_choices, selection)


def save_trivial(
    name: str, task: Task, data: str, profile: str, share: float = 1.0, seed: int = 0
) -> Result:
    """Score a task's baseline and keep it among the results of fine-tuning, where every comparison
    finds it.

    name: of the task; data: its checksum; profile: with whose results it is compared.
    """
    scored = score_trivial(task, share, seed)
    metric = task.manifest["metric"]
    protocol = trivial_protocol(data, profile, metric, scored.selection.scored, share)
    count = len(scored.tallies[metric])
    result = Result(
        kind="finetune",
        task=name,
        split=scored.selection.scored,
        metric=metric,
        protocol=protocol,
        model=Model(TRIVIAL, identity=scored.name),
        seed=seed,
        scores={OVERALL: scored.score | {"examples": count}, SELECT: scored.select},
        tallies=scored.tallies,
        data={"task": data},
        details={
            "profile": profile,
            "suite": task.manifest.get("suite"),
            "variant": task.manifest.get("variant"),
            "selected_on": scored.selection.selected_on,
            "system": scored.name,
            "choices": scored.choices,
        },
        request=digest(protocol),
    )
    place = runs_folder() / "finetune" / folder_name(name) / TRIVIAL / digest(protocol)[:12]
    return save_result(result, place / f"seed{seed}")


def trivial_protocol(
    data: str, profile: str, metric: str, split: str, share: float
) -> dict[str, Any]:
    """The protocol that the scores of one column of a task share."""
    protocol = {} if share == 1 else {"share": share}
    return {"profile": profile, "data": data, "metric": metric, "split": split} | protocol


def format_trivial(result: Result) -> str:
    """The baseline in one line, with its interval, and of a dictionary what it has without a
    share."""
    from models.metrics import bootstrap_interval

    low, high = bootstrap_interval(result.tallies[result.metric])
    line = (
        f"{result.task}, {result.split} {result.metric} without training"
        f" ({result.details['system']}): {result.value():.4f},"
        f" 95 % interval {low:.4f} to {high:.4f}"
    )
    choices = result.details["choices"]
    whole = next(iter(choices.values()))
    return f"{line}; without a share {whole:.4f}" if len(choices) == len(SHARES) else line
