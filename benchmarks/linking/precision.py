"""The threshold on a linker's score at which a precision is reached, found on one part of the texts
and applied to another:   kepl evaluate NCBI-EL --model sapbert --target-precision 0.95

    dev     the task's dev split; of one's own texts (--gold) half of the documents, by the checksum
            of their ids
    test    the task's test split; the other half

Ten thresholds, chosen by scores alone, keep the best 10, 20, … 100 % of dev's answers. Of each, the
lower bound of precision is Clopper and Pearson's, one-sided at 95 %, divided among the thresholds
by Bonferroni (each at 99.5 %): whichever is taken, its true precision is below what was asked for
in at most 5 % of cases. The lowest threshold whose bound reaches it is taken.

Answers in one document are no independent observations. Korn and Graubard (Survey Methodology 24,
1998): the number of answers is divided by the design effect, the variance of precision over
documents by that of a binomial, and by 1 at least.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from scipy.stats import beta

from benchmarks.linking.sets import refuse_sets
from benchmarks.options import Evaluation
from benchmarks.results import Result
from core.files import InputError
from core.json_files import json_lines
from datamodules.tasks.linking import END_TO_END, linking_task

SPLITS: tuple[Literal["dev"], Literal["test"]] = ("dev", "test")
STEPS = 10  #: thresholds that are tried
CONFIDENCE = 0.95


class Answer(NamedTuple):
    """A linked mention, its score, and whether it is right."""

    document: str
    score: float
    right: bool


class Counted(NamedTuple):
    """Answers that a threshold keeps."""

    answered: int
    right: int
    design_effect: float

    @property
    def precision(self) -> float:
        return self.right / self.answered if self.answered else 0.0

    def bounds(self, below: float, above: float = 0.0) -> tuple[float, float]:
        """Clopper and Pearson's bounds of precision, with the probabilities of a true value below
        and above them; (0, 1) of no answer."""
        answered, right = self.answered / self.design_effect, self.right / self.design_effect
        wrong = answered - right
        low = float(beta.ppf(below, right, wrong + 1)) if self.right else 0.0
        high = float(beta.ppf(1 - above, right + 1, wrong)) if self.answered > self.right else 1.0
        return low, high


class Choice(NamedTuple):
    """A threshold, what it keeps of dev, and the lower bound of its precision."""

    threshold: float
    dev: Counted
    bound: float


def design_effect(answers: Sequence[Answer]) -> float:
    """The variance of precision over documents divided by a binomial's, 1 at least."""
    documents = sorted({answer.document for answer in answers})
    if len(documents) < 2:
        return 1.0
    place = {document: row for row, document in enumerate(documents)}
    counts = np.zeros((len(documents), 2))  # (documents, answers and right ones)
    for answer in answers:
        counts[place[answer.document]] += (1, answer.right)
    total, right = counts.sum(0)
    precision = right / total
    if precision in (0.0, 1.0):
        return 1.0
    residuals = counts[:, 1] - precision * counts[:, 0]
    variance = len(documents) / (len(documents) - 1) * float((residuals**2).sum()) / total**2
    return max(1.0, variance / (precision * (1 - precision) / total))


def count_answers(
    answers: Sequence[Answer], threshold: float, least_effect: float = 1.0
) -> Counted:
    """The answers that a threshold keeps, counted."""
    answered = [answer for answer in answers if answer.score >= threshold]
    effect = max(least_effect, design_effect(answered))
    return Counted(len(answered), sum(answer.right for answer in answered), effect)


def thresholds_of(scores: Iterable[float]) -> list[float]:
    """At most STEPS thresholds, which keep equal further shares of the scores, highest first."""
    ordered = sorted(scores, reverse=True)
    ranks = [-(-step * len(ordered) // STEPS) for step in range(1, STEPS + 1)]
    return sorted({ordered[rank - 1] for rank in ranks if rank}, reverse=True)


def threshold_choices(answers: Sequence[Answer]) -> list[Choice]:
    """Every threshold that is tried, highest first, with the bound at which all of them hold
    together."""
    thresholds = thresholds_of(answer.score for answer in answers)
    overall = design_effect(answers)  # of few answers, all right, none can be estimated
    below = (1 - CONFIDENCE) / max(1, len(thresholds))
    choices = []
    for threshold in thresholds:
        dev = count_answers(answers, threshold, overall)
        choices.append(Choice(threshold, dev, dev.bounds(below)[0]))
    return choices


def choose_threshold(answers: Sequence[Answer], precision: float) -> Choice | None:
    """The lowest threshold whose precision is at least that, with confidence; None for none."""
    reached = [choice for choice in threshold_choices(answers) if choice.bound >= precision]
    return reached[-1] if reached else None


def halves(answers: Sequence[Answer]) -> tuple[list[Answer], list[Answer]]:
    """(dev, test): the documents by the checksum of their ids."""
    parts: tuple[list[Answer], list[Answer]] = ([], [])
    for answer in answers:
        parts[hashlib.sha256(answer.document.encode()).digest()[0] % 2].append(answer)
    return parts


def read_answers(result: Result) -> list[Answer]:
    """The answers in the predictions of a saved result. Raises InputError where they have no
    scores."""
    answers = []
    for where, line in json_lines(Path(str(result.folder)) / "predictions.jsonl"):
        if "found" in line:
            rights = line.get("right", [])
            rows = [
                (line["id"], mention[5], right)
                for mention, right in zip(line["found"], rights, strict=False)
                if mention[3] is not None
            ]
        else:
            scores = line["score"]
            whole = bool(scores) and None not in scores
            rows = [(line["document"], min(scores), line["reason"] == "right")] if whole else []
        for document, score, right in rows:
            if score is None:
                raise InputError(f"{where}: no score, which --target-precision needs")
            answers.append(Answer(document, float(score), bool(right)))
    return answers


def check_precision(evaluation: Evaluation) -> float:
    """The precision that is asked for. Raises InputError for one that is not between 0 and 1, and
    for other options that it does not go with."""
    if evaluation.task and evaluation.task not in END_TO_END:
        refuse_sets(linking_task(evaluation.task), "--target-precision is")
    precision = evaluation.target_precision
    if precision is None or not 0 < precision < 1:
        raise InputError(
            f"--target-precision {precision}: expected a number between 0 and 1, such as 0.95"
        )
    if evaluation.threshold is not None or evaluation.part.split is not None:
        option = "threshold" if evaluation.threshold is not None else "split"
        raise InputError(
            f"--target-precision: finds the threshold on dev, for test. Leave --{option} out"
        )
    return precision


def format_precision(precision: float, dev: Sequence[Answer], test: Sequence[Answer]) -> str:
    """The threshold that reaches a precision, with the answers that it keeps and leaves out."""
    choices = threshold_choices(dev)
    title = (
        f"precision {100 * precision:g} %, with {100 * CONFIDENCE:g} % confidence over"
        f" {len(choices)} thresholds (Clopper-Pearson, Bonferroni)"
    )
    reached = [choice for choice in choices if choice.bound >= precision]
    if not reached:
        if not choices:
            return f"{title}: no answer on dev"
        best = max(choices, key=lambda choice: choice.bound)
        return (
            f"{title}: no threshold reaches it on the dev part. The best is {best.threshold:.4g}:"
            f" {100 * best.dev.precision:.2f} % of {best.dev.answered:,} answers, of which the"
            f" lower bound is {100 * best.bound:.2f} %. Ask for less, or annotate more."
        )
    choice = reached[-1]
    lines = [
        f"{title}: threshold {choice.threshold:.4g}",
        f"{'':<6}{'answers':>9}{'kept':>8}{'coverage':>10}{'precision':>11}   95 % interval"
        "      left out: right, wrong",
    ]
    overall = design_effect(test)
    parts = (
        ("dev", dev, choice.dev),
        ("test", test, count_answers(test, choice.threshold, overall)),
    )
    for name, answers, counted in parts:
        low, high = counted.bounds(0.025, 0.025)
        right = sum(answer.right for answer in answers) - counted.right
        wrong = len(answers) - counted.answered - right
        coverage = counted.answered / max(1, len(answers))
        lines.append(
            f"{name:<6}{len(answers):>9,}{counted.answered:>8,}{100 * coverage:>9.1f} %"
            f"{100 * counted.precision:>9.2f} %   {100 * low:.2f} to {100 * high:.2f} %"
            f"      {right:,}, {wrong:,}"
        )
    lines.append(
        f"lower bound on dev {100 * choice.bound:.2f} %; design effect of documents"
        f" {choice.dev.design_effect:.2f}"
    )
    return "\n".join(lines)
