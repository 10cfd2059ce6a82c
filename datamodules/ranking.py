"""Answer ranking made of questions and their answers: each question's own answers among answers to
other questions.

questions   a table of questions and answers -> right answers (:class:`datamodules.tasks.Pair`), a
            question's together
ranked      right answers -> train, dev and test with drawn wrong answers
"""

from __future__ import annotations

import csv
import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from core.files import InputError
from core.reading import lines, read_bytes
from datamodules.formats import group, line_id, some
from datamodules.tasks import Pair

COLUMNS = ("department", "title", "ask", "answer")
ORDER = ("test", "dev", "train")  # test and dev stay the same when train grows

REPEATED = "rows whose question and answer stand there already, left out"
FURTHER = "further answers to a question that stands there already, all of them right"


def _rows(path: Path, encoding: str) -> Iterator[tuple[str, dict[str, str]]]:
    number, start = 0, 1
    raw = read_bytes(path)
    if encoding.lower().replace("-", "") not in ("utf8", "utf8sig") and not raw.isascii():
        try:  # GB18030 reads nearly any bytes, and would give other characters without a word
            raw.decode("utf-8")
        except UnicodeDecodeError:
            pass
        else:
            raise InputError(
                f"{path}: UTF-8 text, expected {encoding}. Give the file as it was published, or"
                " convert it."
            )

    def text() -> Iterator[str]:
        nonlocal number
        for number, line in lines(path, encoding):  # noqa: B007 - used in errors
            yield line + "\n"

    reader = csv.reader(text(), strict=True)
    try:
        header = next(reader, [])
        if missing := [column for column in COLUMNS if column not in header]:
            raise InputError(
                f"{path}:1: expected the columns {', '.join(COLUMNS)}; {missing[0]} is missing."
                " Give the table with its header."
            )
        for values in reader:
            where, start = f"{path}:{start + 1}", number
            if len(values) != len(header):
                raise InputError(
                    f"{where}: expected {len(header)} columns, got {len(values)}. Fix the line."
                )
            yield where, dict(zip(header, values, strict=True))
    except csv.Error as error:
        raise InputError(f"{path}:{start + 1}: not valid CSV ({error}). Fix the line.") from error


def questions(
    path: Path, *, counts: Counter[str] | None = None, encoding: str = "gb18030"
) -> list[Pair]:
    """Right answers (label 1) of a CSV with the columns department, title, ask and answer.

    A question is title and ask, blanks made one: a title alone (11 characters in the median of the
    internal-medicine sample) seldom says who asks and what was tried, and many titles ask the same
    of different patients. Rows of one question are taken together, whatever their department.
    `document` is of the question, and the ids of its answers begin with its first line. Raises
    InputError for another encoding, a missing column and an empty cell.
    """
    counts = Counter() if counts is None else counts
    answers: dict[str, list[tuple[str, str]]] = defaultdict(list)  # question -> (id, answer)
    for where, row in _rows(path, encoding):
        title, ask, answer = (" ".join(row[column].split()) for column in COLUMNS[1:])
        for column, value in (("title", title), ("ask", ask), ("answer", answer)):
            if not value:
                raise InputError(f"{where}: {column} is empty. Fill it in or take the line out.")
        answers_of_question = answers[f"{title} {ask}"]
        if answer in (earlier for _, earlier in answers_of_question):
            counts[REPEATED] += 1
        else:
            counts[FURTHER] += bool(answers_of_question)
            answers_of_question.append((line_id(path, where), answer))
    pairs: list[Pair] = []
    for question, answers_of_question in answers.items():
        pairs += [
            Pair(i, group(question), question, answer, "1") for i, answer in answers_of_question
        ]
    return some(pairs, path)


def _rank(seed: int, text: str) -> str:
    return hashlib.sha256(f"{seed}/{text}".encode()).hexdigest()


def alike(right: Sequence[Pair]) -> list[list[str]]:
    """Questions in groups that share answers, directly or through others: a group must not be
    split. In order of appearance."""
    parent = {pair.first: pair.first for pair in right}

    def root(question: str) -> str:
        while parent[question] != question:
            question = parent[question]
        return question

    texts: dict[str, str] = {}
    for pair in right:
        parent[root(pair.first)] = root(texts.setdefault(pair.second, pair.first))
    groups: dict[str, list[str]] = defaultdict(list)
    for question in parent:
        groups[root(question)].append(question)
    return list(groups.values())


def make_rankings(
    right: Sequence[Pair], sizes: Mapping[str, int], negatives: int, seed: int
) -> dict[str, list[Pair]]:
    """{split: right answers and `negatives` wrong ones for each question}, `sizes` questions a
    split.

    Which split a question goes to depends on its hash; questions that share an answer go together.
    Wrong answers (label 0) are drawn without repetition from the answers to other questions of the
    same split, so that no answer of test is seen in training; none equals a right one. Raises
    InputError when there are too few questions or answers.
    """
    pairs_of_question: dict[str, list[Pair]] = defaultdict(list)
    for pair in right:
        pairs_of_question[pair.first].append(pair)
    chosen: dict[str, list[str]] = {split: [] for split in ORDER if split in sizes}
    for questions in sorted(alike(right), key=lambda some: _rank(seed, min(some))):
        for split, members in chosen.items():
            if len(members) + len(questions) <= sizes[split]:
                members += questions
                break
    for split, members in chosen.items():
        if len(members) < sizes[split]:
            raise InputError(
                f"{len(pairs_of_question):,} questions are too few for"
                f" {', '.join(f'{n:,} of {s}' for s, n in sizes.items())}: {split} has"
                f" {len(members):,}. Ask for fewer."
            )
    result: dict[str, list[Pair]] = {}
    for split in sizes:
        pool = sorted(
            {pair.second for question in chosen[split] for pair in pairs_of_question[question]}
        )
        result[split] = []
        for question in sorted(chosen[split], key=lambda q: _rank(seed, q)):
            answers = {pair.second for pair in pairs_of_question[question]}
            wrong = [answer for answer in pool if answer not in answers]
            if len(wrong) < negatives:
                raise InputError(
                    f"{split}: {len(wrong):,} answers to other questions, expected {negatives}"
                    " wrong ones a question. Ask for more questions or fewer wrong answers."
                )
            first = pairs_of_question[question][0]
            rng = np.random.default_rng(int(_rank(seed, question), 16))
            drawn = rng.choice(len(wrong), negatives, replace=False)
            result[split] += pairs_of_question[question]
            result[split] += [
                Pair(f"{first.id}/{n}", first.document, question, wrong[i], "0")
                for n, i in enumerate(drawn, 1)
            ]
    return result
