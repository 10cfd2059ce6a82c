"""What `make finetune`, `make synonyms` and `make probe` found, by the label of the model: what tables and figures are made of."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from benchmarks import probing, synonyms
from benchmarks.finetune import folder_name, tallies_of, told_p
from benchmarks.tasks import task
from core.files import InputError, digest, read_json
from core.tracking import ROOT, runs_folder
from models.metrics import bootstrap_interval, compared, score

#: What scores of one column must have in common, and how it is told.
ALIKE = {"profile": "PROFILE", "task_digest": "data", "metric": "metric", "scored_on": "scored split"}


def parted(label: str) -> tuple[str, str]:
    """(label without the run, the run that CKPT= named or nothing): "a/b@h-seed1 K=5" is ("a-b K=5", "h-seed1")."""
    name, space, options = label.partition(" ")
    name, _, run = name.partition("@")
    return name.replace("/", "-") + space + options, run


def fine_tuned(
    name: str, labels: Collection[str], profile: str | None = None, data: str | None = None
) -> dict[str, list[dict[str, Any]]]:
    """{label: its newest summary} of a task, of the `labels` that were scored; `data`: only on the data with this digest.

    Where single runs of a pre-training were fine-tuned (CKPT=), these stand under its label instead, one summary a run.

    Raises InputError when the scores are of different data, profiles or splits, or of runs of several pre-trainings.
    """
    place = runs_folder() / "finetune" / folder_name(task(name).name)
    newest: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for file in sorted(place.glob("*/*/summary.json"), key=lambda p: p.stat().st_mtime_ns):
        summary = read_json(file)
        label, run = parted(summary["model"])
        if label in labels and profile in (None, summary["profile"]) and data in (None, summary["task_digest"]):
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


def pretrained(label: str) -> tuple[Path | None, list[dict[str, float]]]:
    """(the configuration's folder, metrics at the end of each of its finished runs, by seed) of the newest pre-training of a label.

    label: as `make finetune` gives it to a paper's encoder, "kebiolm" or "kebiolm-pretrain_wem". (None, []) when none is finished.
    """
    paper, _, stem = label.partition("-")
    recipe = ROOT / "experiments" / paper / "encoder.yaml"
    if not stem and recipe.is_file():
        stem = str(yaml.safe_load(recipe.read_text())["stem"])
    finished = [p for p in (runs_folder() / paper / stem).glob("*/seed*/finished.json")] if stem else []
    if not finished:
        return None, []
    folder = max(finished, key=lambda p: p.stat().st_mtime_ns).parents[1]
    runs = sorted((p.parent for p in finished if p.parents[1] == folder), key=lambda p: seed_of(p.name) or 0)
    return folder, [read_json(run / "end.json") for run in runs]


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


class System(NamedTuple):
    """One encoder on one set of test examples."""

    label: str
    kind: str  # what its seeds are of: "pre-training" or "fine-tuning"
    tallies: dict[int, np.ndarray]  # {seed: tallies, their rows the same examples for all systems}

    @property
    def scores(self) -> list[float]:
        return [score(self.tallies[seed]) for seed in sorted(self.tallies)]


def seed_of(run: str) -> int | None:
    """The seed of a pre-training's run by the name of its folder, "seed1" or "<hash>-seed1"; None for another name."""
    found = re.search(r"(?:^|-)seed(\d+)$", run)
    return int(found[1]) if found else None


def system(label: str, several: Sequence[Mapping[str, Any]]) -> System:
    """The fine-tuned encoder `label` of its summaries: runs of a pre-training are its seeds, else those of fine-tuning are."""
    found = {}
    for one in several:
        own = tallies_of(Path(one["folder"]), one["seeds"], one["metric"])
        seed = seed_of(parted(one["model"])[1])
        if seed is None:
            return System(label, "fine-tuning", own)
        found[seed] = np.sum(list(own.values()), axis=0)
    return System(label, "pre-training", found)


def comparison(name: str, profile: str, base: str | None = None) -> str:
    """Every encoder that was scored on a task, best first, and the best against each other, or each against `base`.

    The runs of one pre-training that CKPT= named are its seeds. Raises InputError when there is none, or none of `base`.
    """
    definition = task(name)
    files = (runs_folder() / "finetune" / folder_name(definition.name)).glob("*/*/summary.json")
    every = [s for s in map(read_json, sorted(files, key=lambda p: p.stat().st_mtime_ns)) if s["profile"] == profile]
    if not every:
        raise InputError(
            f"no results of {definition.name} with PROFILE={profile}: `make finetune TASK={definition.name}` first"
        )
    newest = every[-1]
    alike = [s for s in every if all(s[key] == newest[key] for key in ALIKE)]
    found = fine_tuned(name, {parted(s["model"])[0] for s in alike}, profile, newest["task_digest"])
    title = f"{definition.name}, {newest['scored_on']} {newest['metric']}, PROFILE={profile}"
    return versus(title, [system(label, several) for label, several in found.items()], base)


def retrieval_comparison(samples: str | None = None, base: str | None = None) -> str:
    """The same of synonym retrieval, on the samples of the newest score, a block for each of its data sets."""
    every = [s for s in synonyms.summaries() if samples in (None, s["stamp"]["samples"])]
    if not every:
        raise InputError("nothing was scored on these synonyms: `make synonyms` first")
    chosen = [s for s in every if s["stamp"] == every[-1]["stamp"]]
    newest: dict[str, dict[int, dict[str, np.ndarray]]] = defaultdict(dict)
    kinds: dict[str, str] = {}
    for summary in chosen:
        seed = seed_of(summary.get("run", ""))
        kinds[summary["model"]] = "fine-tuning" if seed is None else "pre-training"
        newest[summary["model"]][seed or 0] = synonyms.tallies_of(summary)
    blocks = []
    for name in synonyms.DATASETS:
        systems = [
            System(label, kinds[label], {seed: t[name] for seed, t in runs.items() if len(t[name])})
            for label, runs in newest.items()
        ]
        systems = [s for s in systems if s.tallies]
        if systems:
            blocks.append(versus(f"{name}, Acc@1 among 20 names", systems, base))
    return "\n\n".join(blocks)


def versus(title: str, systems: Sequence[System], base: str | None = None) -> str:
    """A line for every system, best first, and one for each pair, with both tests: the best against each other, or each
    against the system `base`. Raises InputError when there is no such system.
    """
    order = sorted(systems, key=lambda s: -float(np.mean(s.scores)))
    best = order[0]
    lines = [f"{title}, {len(next(iter(best.tallies.values()))):,} examples, the same for all"]
    width = max(30, 2 + max(len(one.label) for one in order))
    for one in order:
        sd = f" ± {np.std(one.scores, ddof=1):.4f}" if len(one.scores) > 1 else ""
        low, high = bootstrap_interval(np.sum(list(one.tallies.values()), axis=0))
        seeds = ",".join(map(str, sorted(one.tallies)))
        mean = f"{one.label:<{width}}{np.mean(one.scores):.4f}{sd}"
        lines.append(f"{mean}  95 % interval {low:.4f} to {high:.4f}  {one.kind} seeds {seeds}")
    return "\n".join([*lines, *(_difference(one, other) for one, other in _pairs(order, base))])


def _pairs(order: Sequence[System], base: str | None) -> list[tuple[System, System]]:
    if base is None:
        return [(order[0], other) for other in order[1:]]
    named = [one for one in order if one.label == base]
    if not named:
        raise InputError(f"BASE={base}: not scored here; choose from: {', '.join(sorted(s.label for s in order))}")
    return [(one, named[0]) for one in order if one is not named[0]]


def _difference(one: System, other: System) -> str:
    common = sorted(set(one.tallies) & set(other.tallies)) if one.kind == other.kind else []
    if not common:
        return f"{one.label} against {other.label}: no common seed"
    c = compared({s: other.tallies[s] for s in common}, {s: one.tallies[s] for s in common})
    p = "" if c.p_seeds is None else f", paired t over {len(common)} {one.kind} seeds {told_p(c.p_seeds)}"
    return (
        f"{one.label} against {other.label}: {c.difference:+.4f}, 95 % interval {c.low:+.4f} to {c.high:+.4f}, "
        f"paired bootstrap over examples p = {c.p_bootstrap:.4f}{p}"
    )


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
