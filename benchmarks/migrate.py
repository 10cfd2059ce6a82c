"""Scores of before the one record of scores (summary.json), made into results: `kepl migrate`,
once.

What was a label is read back into fields here, and nowhere else. The old files stay; migrated.json
is added beside each.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.results import OVERALL, SELECT, Model, Result, folder_of, save_result
from core.files import InputError, read_json, write_json
from core.tracking import runs_folder
from datamodules import probing as queries_of
from experiments.names import recipes

LOG = logging.getLogger(__name__)
POOLINGS, RULES, SCORES = ("cls", "mean", "text"), ("best", "fairseq"), ("name", "mean", "sum")
DONE = "migrated.json"


def model_name(label: str) -> tuple[str, str]:
    """(MODEL= of a label's first word, the run that it names): "smedbert-pretrain_k5@h-seed1",
    "x--y" of the hub."""
    name, _, run = label.partition("@")
    paper = next((p for p in recipes() if name.startswith(f"{p}-")), None)
    return (
        f"{paper}/{name.removeprefix(f'{paper}-')}" if paper else name.replace("--", "/", 1)
    ), run


def fields_of(label: str, kind: str) -> tuple[str, str, dict[str, Any]]:
    """(model, its run, options) of a label. Raises InputError for a part that means no option.

    finetune "a-b@h-seed0 K=5"; linking "sapbert fine-tuned mean + back-off", "genbioel fine-tuned,
    target shortest, names shortest", "minilm cls dot"; synonyms "smedbert text without knowledge",
    "sgns char"; probing "minilm without head".
    """
    first, _, rest = label.partition(" ")
    if kind == "finetune":
        return *model_name(first), {
            k.lower(): _number(v) for k, v in (word.split("=", 1) for word in rest.split())
        }
    if kind == "probing":
        return *model_name(first), {"head": False} if rest else {}
    if kind == "synonyms":
        words = rest.split()
        if first in ("sgns", "glove"):
            return first, "", {"unit": words[0]}
        knowledge = {"knowledge": False} if words[1:] == ["without", "knowledge"] else {}
        return *model_name(first), {"pooling": words[0]} | knowledge
    return _linking(label)


def _number(text: str) -> float:
    value = float(text)
    return int(value) if value.is_integer() else value


def _linking(whole: str) -> tuple[str, str, dict[str, Any]]:
    label, backoff, _ = whole.partition(" + back-off")
    name, rest = re.fullmatch(r"([^\s,]*)(.*)", label).groups()  # type: ignore[union-attr]
    tuned: dict[str, str] = {}
    options: dict[str, Any] = {"finetuned": tuned} if rest.startswith(" fine-tuned") else {}
    for place, part in enumerate(rest.removeprefix(" fine-tuned").split(",")):
        words = part.split()
        if words[-1:] == ["dot"]:
            options["similarity"] = words.pop()
        if words and words[-1] in POOLINGS and (place == 0 or len(words) == 3):
            options["pooling"] = words.pop()
        if words == ["entities"]:
            options["by"] = "entities"
        elif len(words) == 2 and words[1].isdigit():
            options["candidates"] = ":".join(words)
        elif len(words) == 2 and words[0] == "names":
            options["names"] = words[1]
        elif len(words) == 2:
            tuned[words[0]] = words[1]
        elif len(words) == 1 and words[0] in (*RULES, *SCORES):
            options["finish" if words[0] in RULES else "score"] = words[0]
        elif words:
            raise InputError(
                f"the label {whole!r}: no option of kepl evaluate sets {' '.join(words)!r}"
            )
    order = ("finetuned", "pooling", "similarity", "by", "finish", "score", "candidates", "names")
    options = {k: options[k] for k in order if k in options} | (
        {"backoff": True} if backoff else {}
    )
    return *model_name(name), options


# results of the old summaries


def _finetune(file: Path, old: Mapping[str, Any]) -> Iterator[tuple[Result, Path]]:
    model, run, options = fields_of(old["model"], "finetune")
    base = _base(file, old)
    protocol = {
        "profile": old["profile"],
        "data": old["task_digest"],
        "metric": old["metric"],
        "split": old["scored_on"],
    }
    for place, seed in enumerate(old["seeds"]):
        folder = base / f"seed{seed}"
        with np.load(folder / "tallies.npz", allow_pickle=False) as kept:
            tallies = {name: kept[name] for name in kept.files}
        metric = old["metric"]
        scores = {metric: old["score"]["values"][place]} | {
            k: v["values"][place] for k, v in old["other"].items()
        }
        yield (
            Result(
                kind="finetune",
                task=old["task"],
                split=old["scored_on"],
                metric=metric,
                protocol=protocol,
                model=Model(model, run),
                options=options,
                seed=seed,
                tallies=tallies,
                data={"task": old["task_digest"]},
                scores={
                    OVERALL: scores | {"examples": old["examples"]},
                    SELECT: {metric: old["select"]["values"][place]},
                },
                details={
                    k: old[k]
                    for k in ("profile", "args", "suite", "settings", "selected_on", "variant")
                }
                | {
                    "options": options,
                    "parent": old["mlflow_run"],
                    "epoch": old["epochs"][place],
                },
                request=str(file.parent),
                commit="unknown",
                created=_time(file),
            ),
            folder,
        )


def _base(file: Path, old: Mapping[str, Any]) -> Path:
    """The folder of the seeds: that of the summary, or of the chosen point of a grid in it."""
    last = Path(old["folder"]).name
    return file.parent / last if last.startswith("grid-") else file.parent


def _linkers(file: Path, old: Mapping[str, Any]) -> Iterator[tuple[Result, Path]]:
    protocol = {k: v for k, v in old["stamp"].items() if k != "linker"}
    ranks = np.load(file.parent / "ranks.npy", allow_pickle=False)
    from benchmarks.linking.scores import tallies

    for label, own in old["results"].items():
        ours = label == old["model"]
        if not ours and (label not in ("exact", "tfidf")):
            continue
        model, run, options = fields_of(label, "linking")
        scores = {
            OVERALL: {m: own[m] for m in ("acc@1", "acc@5", "mrr")} | {"examples": len(ranks)}
        }
        if ours:
            scores |= {
                t: {"acc@1": p["model"], "examples": p["mentions"]}
                for t, p in old["populations"].items()
            }
        linker = old["stamp"]["linker"] if ours else label
        known = {} if isinstance(linker, str) else linker
        identity = next(
            (str(known[k]) for k in ("encoder", "generator", "entities") if k in known), str(linker)
        )
        result = Result(
            kind="linking",
            task=old["task"],
            split=old["stamp"]["split"],
            metric="acc@1",
            protocol=protocol,
            model=Model(model, run, identity),
            options=options,
            scores=scores,
            tallies=tallies(ranks) if ours else {},
            data={"mentions": protocol["mentions_digest"], "dictionary": protocol["dictionary"]},
            details={
                "linker": linker,
                "seconds": own["seconds"],
                "reasons": old["reasons"] if ours else {},
            }
            | ({} if ours else {"interval": [own["low"], own["high"]]}),
            commit=old["commit"],
            created=_time(file),
            mlflow_run=old["mlflow_run"] if ours else "",
        )
        yield result, file.parent if ours else folder_of(result)


def _synonyms(file: Path, old: Mapping[str, Any]) -> Iterator[tuple[Result, Path]]:
    model, run, options = fields_of(old["model"], "synonyms")
    with np.load(file.parent / "hits.npz", allow_pickle=False) as kept:
        hits = {
            f"{name}/acc@1": np.stack([kept[name], np.ones(len(kept[name]))], axis=1)
            for name in kept.files
            if len(kept[name])
        }
    yield (
        Result(
            kind="synonyms",
            task="synonyms",
            split="all",
            metric="acc@1",
            protocol=old["stamp"],
            model=Model(model, old.get("run") or run, str(old["identity"].get("encoder", ""))),
            options=options,
            scores={
                k: {"acc@1": r["acc@1"], "examples": r["samples"]}
                for k, r in old["results"].items()
            },
            tallies=hits,
            data={"samples": old["stamp"]["samples"]},
            details={"linker": old["identity"]},
            commit=old["commit"],
            created=_time(file),
            mlflow_run=old["mlflow_run"],
        ),
        file.parent,
    )


def _probing(file: Path, old: Mapping[str, Any]) -> Iterator[tuple[Result, Path]]:
    from benchmarks.probing import by_query, guesses_in, sampled, tallies_of

    model, run, options = fields_of(old["model"], "probing")
    queries = sampled(
        queries_of.load_queries(old["asked"]), old["stamp"]["limit"], old["stamp"]["seed"] or 0
    )
    counted = tallies_of(queries, by_query(guesses_in(file.parent), len(queries)))
    names = {
        "queries": "examples",
        "relations": "relations",
        "recall": "recall",
        "strict": "strict",
    }
    yield (
        Result(
            kind="probing",
            task="probing",
            split="all",
            metric="recall",
            protocol=old["stamp"],
            model=Model(model, run, str(old["identity"]["model"])),
            options=options,
            scores={
                g: {names[k]: v for k, v in r.items() if k in names}
                for g, r in old["results"].items()
            },
            tallies=counted,
            data={"queries": old["stamp"]["queries"]},
            details={"asked": old["asked"], "left_out": old["left_out"], "guesses": old["guesses"]},
            commit=old["commit"],
            created=_time(file),
            mlflow_run=old["mlflow_run"],
        ),
        file.parent,
    )


def _time(file: Path) -> str:
    return datetime.fromtimestamp(file.stat().st_mtime_ns / 1e9, UTC).isoformat(
        timespec="microseconds"
    )


READERS = {"finetune": _finetune, "linking": _linkers, "synonyms": _synonyms, "probing": _probing}


def migrate() -> dict[str, int]:
    """Convert every summary.json of the runs folder; {kind: results written}. What cannot be
    converted is said and left."""
    done = {}
    for kind, results in READERS.items():
        done[kind] = 0
        files = sorted(
            (runs_folder() / kind).glob("**/summary.json"), key=lambda f: f.stat().st_mtime_ns
        )
        for file in (f for f in files if not (f.parent / DONE).is_file()):
            try:
                for result, folder in results(file, read_json(file)):
                    save_result(result, folder)
                    done[kind] += 1
            except (InputError, OSError, KeyError, TypeError, ValueError) as error:
                LOG.error(f"{file}: not converted ({type(error).__name__}: {error})")
                continue
            write_json(file.parent / DONE, {"results": kind})
    return done
