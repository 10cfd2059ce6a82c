"""What `make finetune`, `make synonyms` and `make probe` found, by the label of the model: what tables and figures are made of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import probing, synonyms
from benchmarks.finetune import folder_name
from benchmarks.tasks import task
from kg.files import InputError, digest, read_json
from kg.tracking import runs_folder

#: What scores of one column must have in common, and how it is told.
ALIKE = {"profile": "PROFILE", "task_digest": "data", "metric": "metric", "scored_on": "scored split"}


def parted(label: str) -> tuple[str, str]:
    """(label without the run, the run that CKPT= named or nothing): "a/b@h-seed1 K=5" is ("a-b K=5", "h-seed1")."""
    name, space, options = label.partition(" ")
    name, _, run = name.partition("@")
    return name.replace("/", "-") + space + options, run


def fine_tuned(name: str, labels: Collection[str], profile: str | None = None) -> dict[str, list[dict[str, Any]]]:
    """{label: its newest summary} of a task, of the `labels` that were scored.

    Where single runs of a pre-training were fine-tuned (CKPT=), these stand under its label instead, one summary a run.

    Raises InputError when the scores are of different data, profiles or splits, or of runs of several pre-trainings.
    """
    place = runs_folder() / "finetune" / folder_name(task(name).name)
    newest: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for file in sorted(place.glob("*/*/summary.json"), key=lambda p: p.stat().st_mtime_ns):
        summary = read_json(file)
        label, run = parted(summary["model"])
        if label in labels and profile in (None, summary["profile"]):
            newest[label][run] = summary
    found = {}
    for label, runs in newest.items():
        single = {run: summary for run, summary in runs.items() if run}
        if len(settings := {run.rpartition("-")[0] for run in single}) > 1:
            raise InputError(
                f"{name}: {label} was fine-tuned from runs of several pre-trainings ({', '.join(sorted(settings))}), which are "
                f"no seeds of one. Move those aside that are not meant, in {place}."
            )
        found[label] = [single[run] for run in sorted(single)] or [runs[""]]
    for key, meaning in ALIKE.items():
        groups: dict[str, list[str]] = defaultdict(list)
        for label, several in found.items():
            for summary in several:
                groups[str(summary[key])].append(label)
        if len(groups) > 1:
            told = "; ".join(f"{value[:12]}: {', '.join(dict.fromkeys(who))}" for value, who in groups.items())
            wanted = (
                "Say which with PROFILE=." if key == "profile" else f"Move those aside that are not meant, in {place}."
            )
            raise InputError(f"{name}: scores of different {meaning} do not belong into one column ({told}). {wanted}")
    return found


def values(several: Sequence[Mapping[str, Any]], split: str, metric: str | None = None) -> list[float]:
    """Scores on `split`: one a fine-tuning seed of a single summary, one a run (its mean) of several.

    metric: None is the task's own. Nothing when the split was not scored: dev counts where it chose the epoch, too.
    """
    found = []
    for one in several:
        if split == one["scored_on"]:
            found.append(one["score"] if metric in (None, one["metric"]) else one["other"].get(metric))
        elif split == one["selected_on"] and metric in (None, one["metric"]):
            found.append(one["select"])
    known = [score for score in found if score]
    if len(known) == 1:
        return [float(v) for v in known[0]["values"]]
    return [float(np.mean(score["values"])) for score in known]


def interval(several: Sequence[Mapping[str, Any]], split: str, metric: str | None = None) -> tuple[float, float] | None:
    """The 95 % interval of a single score, where it was made: on the scored split, of the task's own metric."""
    one = several[0]
    if len(several) > 1 or len(one["seeds"]) > 1 or split != one["scored_on"] or metric not in (None, one["metric"]):
        return None
    low, high = one["interval"]
    return float(low), float(high)


def remarks(name: str, found: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """What a reader of a column must know of its scores: the variant of the data, and ARGS= that some were made with."""
    every = [(label, one) for label, several in found.items() for one in several]
    variants = {one["variant"] for _, one in every if one["variant"]}
    lines = [f"{name}: variant {variant} (not the official set)" for variant in sorted(variants)]
    own = {label: one["args"] for label, one in every if one["args"]}
    return lines + [f"{name}: {label} was fine-tuned with ARGS={args!r}" for label, args in own.items()]


def retrieved(labels: Collection[str], samples: str | None = None) -> dict[str, list[dict[str, Any]]]:
    """{label: its summaries} of synonym retrieval; runs of one label are seeds. `samples`: only those of this sum.

    Raises InputError when they are of different samples, or count rare mentions in different text.
    """
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    stamps: dict[str, list[str]] = defaultdict(list)
    for summary in synonyms.summaries():
        if summary["model"] in labels and samples in (None, summary["stamp"]["samples"]):
            found[summary["model"]].append(summary)
            stamps[digest(summary["stamp"])[:12]].append(summary["model"])
    if len(stamps) > 1:
        place = runs_folder() / "synonyms"
        told = "; ".join(f"{place / stamp}: {', '.join(dict.fromkeys(who))}" for stamp, who in stamps.items())
        raise InputError(
            f"synonyms: scores of different samples or text do not belong into one table ({told}). "
            "Say which with SAMPLES=, or move those aside that are not meant."
        )
    return dict(found)


def probed(labels: Collection[str], given: Mapping[str, str]) -> dict[str, list[dict[str, Any]]]:
    """{label: its summaries} of `make probe`; runs of one label are seeds.

    given: GRAPH (name of the folder of queries), LIMIT, SEED, METHOD, MASKS, BEAM: only those asked so. Raises InputError when
    they were asked different queries, or in different ways.
    """
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    stamps: dict[str, list[str]] = defaultdict(list)
    keys = {"LIMIT": "limit", "SEED": "seed", "METHOD": "method", "MASKS": "masks", "BEAM": "beams"}
    for summary in probing.summaries():
        stamp = summary["stamp"]
        wanted = all(str(stamp[own]) == given[name] for name, own in keys.items() if given.get(name))
        if given.get("GRAPH") and Path(summary["asked"]).name != Path(given["GRAPH"]).name:
            wanted = False
        if wanted and summary["model"] in labels:
            found[summary["model"]].append(summary)
            stamps[digest(stamp)[:12]].append(summary["model"])
    if len(stamps) > 1:
        place = runs_folder() / "probing"
        told = "; ".join(f"{place / stamp}: {', '.join(dict.fromkeys(who))}" for stamp, who in stamps.items())
        raise InputError(
            f"probing: scores of different queries, or asked in different ways, do not belong into one table ({told}). Say "
            f"which with GRAPH=, {'=, '.join(keys)}=, or move those aside that are not meant."
        )
    return dict(found)
