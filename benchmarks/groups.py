"""Results grouped into systems: the seeds of one, what newer results replace, and the protocol that
results of one column share."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.results import OVERALL, Result
from core.files import InputError
from core.json_files import digest
from core.tracking import runs_folder
from experiments.recipes import recipes
from models.metrics import bootstrap_interval


class Group(NamedTuple):
    """Results of one system; `kind` says what its seeds are of: "fine-tuning" or "pre-training"."""

    label: str
    kind: str
    results: list[Result]

    def values(self, metric: str | None = None, group: str = OVERALL) -> list[float]:
        """A score for each seed; of several fine-tunings of one pre-training run their mean."""
        by_run = self.kind == "pre-training" and self.results[0].kind in ("finetune", "linking")
        runs: dict[str | int, list[float]] = defaultdict(list)
        for i, result in enumerate(self.results):
            value = result.value(metric, group)
            if value is not None:
                runs[result.model.run if by_run else i].append(value)
        return [float(np.mean(values)) for values in runs.values()]

    def tallies(self, key: str) -> dict[int, np.ndarray]:
        """{seed: tallies}, summed over what shares a seed."""
        tallies: dict[int, np.ndarray] = {}
        for result in self.results:
            if key not in result.tallies:
                continue
            seed = seed_of_result(result)
            counted = np.asarray(result.tallies[key])
            if seed in tallies and result.kind != "synonyms":
                counted = tallies[seed] + counted
            tallies[seed] = counted  # of two scores of synonyms the newer one counts
        return tallies

    def interval(self, key: str) -> tuple[float, float] | None:
        """95 % bootstrap interval of the pooled tallies over examples."""
        several = list(self.tallies(key).values())
        return bootstrap_interval(np.sum(several, axis=0)) if several else None

    @property
    def is_trivial(self) -> bool:
        """Whether it is one of its kind's baselines, which train nothing."""
        return self.results[0].is_baseline

    @property
    def has_seeds(self) -> bool:
        """Whether another seed would make another system of it. A baseline is the same for every
        seed, and so is an encoder of others that links as it is."""
        first = self.results[0]
        if self.is_trivial:
            return False
        if first.kind != "linking":
            return True
        ours = first.model.name.partition("/")[0] in recipes()
        tuned = "finetuned" in first.options or first.options.get("rerank") == "trained"
        return ours or tuned or bool(first.model.run)

    @property
    def places(self) -> tuple[str, ...]:
        """MLflow runs, or folders where there are none, each once."""
        return tuple(
            dict.fromkeys(r.details.get("parent") or r.mlflow_run or r.folder for r in self.results)
        )


def seed_of_result(result: Result) -> int:
    """The seed under which a result's tallies are compared: of its pre-training, where the run says
    it, else its own."""
    run_seed = seed_of(result.model.run)
    return result.seed if run_seed is None else run_seed


def seed_of(run: str) -> int | None:
    """The seed in the name of a pre-training's run, "seed1" or "<hash>-seed1"; None for another
    name."""
    match = re.search(r"(?:^|-)seed(\d+)$", run)
    return int(match[1]) if match else None


def training_of(run: str) -> str:
    """The pre-training in the name of its run: "<hash>" of "<hash>-seed1"; empty for another
    name."""
    return run.rpartition("-")[0] if seed_of(run) is not None else ""


def group_results(results: Iterable[Result]) -> dict[str, Group]:
    """{label: its results}. The runs of several pre-trainings are groups of their own, whose labels
    name them.

    Of a fine-tuned encoder the newest request counts; of a run of a pre-training that was scored
    several times, the newest score. Where single runs of a pre-training were fine-tuned (CKPT=),
    these are the group, a seed each.
    """
    labels: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        labels[result.label].append(result)
    groups: dict[str, Group] = {}
    for name, several in labels.items():
        trainings: dict[str, list[Result]] = defaultdict(list)
        for result in _drop_replaced(several):
            trainings[training_of(result.model.run)].append(result)
        for training, members in trainings.items():
            title = name
            if training and len(trainings) > 1:
                title += f" of pre-training {training}"
            kind = "pre-training" if _seeds_are_runs(members) else "fine-tuning"
            groups[title] = Group(title, kind, members)
    return groups


def _seeds_are_runs(results: Sequence[Result]) -> bool:
    if results[0].kind == "finetune":
        return any(r.model.run for r in results)
    return any(seed_of(r.model.run) is not None for r in results)


def _drop_replaced(several: list[Result]) -> list[Result]:
    """The results of one label, oldest first, without those that newer ones replace."""
    runs = _seeds_are_runs(several)
    if several[0].kind != "finetune":
        if not runs and "finetuned" not in several[0].options:
            return several
        # scored or fine-tuned again, in another precision for example, it is one seed all the same
        newest_of = {(r.model.run, r.seed, digest(dict(r.protocol))): r for r in several}
        return list(newest_of.values())
    newest = {r.model.run: r.request for r in several}  # oldest first: the last one stays
    newest_results = [
        r for r in several if r.request == newest[r.model.run] and bool(r.model.run) == runs
    ]
    check_seeds(newest_results)
    return sorted(newest_results, key=lambda r: (r.model.run, r.seed))


def check_seeds(results: Sequence[Result]) -> None:
    """Raise InputError where two results are of one system and seed, as two precisions or a copied
    folder are: a mean would count the seed twice."""
    folders: dict[tuple[str, str, int], str] = {}
    for result in results:
        first = folders.setdefault((result.label, result.model.run, result.seed), result.folder)
        if first != result.folder:
            raise InputError(
                f"{result.task}: {first} and {result.folder} are both {result.label} with seed"
                f" {result.seed}. Give one of them, or move the other out of the runs' folder:"
                " another precision, for example, is no other seed."
            )


def list_replaced(results: Sequence[Result], groups: Iterable[Group]) -> list[str]:
    """A line for each request of fine-tunings that is in no group, since the same model was
    fine-tuned again with other settings."""
    counted = {r.folder for group in groups for r in group.results}
    replaced: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in results:
        if result.folder not in counted:
            replaced[result.label, result.request].append(result)
    lines = []
    for (name, _), several in replaced.items():
        scores = [value for value in (r.value() for r in several) if value is not None]
        seeds = ",".join(str(r.seed) for r in sorted(several, key=lambda r: r.seed))
        lines.append(
            f"left out: {name}, seeds {seeds}, {float(np.mean(scores)):.4f}: a later command"
            f" fine-tuned this model again ({Path(several[0].folder).parent})"
        )
    return lines


def find_differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """The parts in which two protocols differ."""
    return sorted(k for k in set(first) | set(second) if first.get(k) != second.get(k))


def check_protocol(
    where: str, results: Iterable[Result], varies: Sequence[str] = (), choose: str = ""
) -> None:
    """Raise InputError when results have several protocols, with the parts that differ; `varies`
    may.

    choose: the settings that distinguish them, for the message.
    """
    groups: dict[str, tuple[Result, list[str]]] = {}
    for result in results:
        key = digest({k: v for k, v in result.protocol.items() if k not in varies})
        groups.setdefault(key, (result, []))[1].append(result.label)
    if len(groups) < 2:
        return
    firsts = [first for first, _ in groups.values()]
    parts = [p for p in find_differences(firsts[0].protocol, firsts[1].protocol) if p not in varies]
    columns = []
    for first, labels in groups.values():
        values = ", ".join(f"{p} {first.protocol.get(p)!r}" for p in parts)
        columns.append(f"{', '.join(dict.fromkeys(labels))}: {values}")
    place = runs_folder() / firsts[0].kind
    raise InputError(
        f"{where}: results of different protocols cannot be in one column ({'; '.join(columns)})."
        f" {choose}{' Or move' if choose else 'Move'} those aside that are not meant, in {place}."
    )
