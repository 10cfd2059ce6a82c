"""Which of twenty names means the same: SMedBERT's unsupervised evaluation of encoders (Table 1, Section 4.3, Appendix C).

    python -m benchmarks.run synonyms [MODEL=zh | MODEL=sgns:char|sgns:word|glove:char|glove:word] [SAMPLES= LINKED= ...]

    MODEL      an encoder, as `make finetune` takes it; or word vectors, trained on the text in LINKED for the purpose
    SAMPLES    folder of `python -m datamodules.synonyms build`; default: that of `make pretrain-smedbert`
    LINKED     folder of linked text: Dataset-3 counts its mentions, word vectors are trained on it; default: beside SAMPLES
    POOLING    text (default: the mean over the name's tokens, without [CLS] and [SEP]), cls, mean;  SIMILARITY  cosine, dot
    KNOWLEDGE  yes (default: an encoder that takes linked mentions gets them), no
    FREQUENT   Dataset-3: pairs of which one side is mentioned at most so often (200)

Acc@1: the gold entity's name is nearer to the query's than the 19 others; equal scores share the hit. Scores go to
runs/synonyms/<samples>/<label>/ and to MLflow; later runs on the same samples are compared with them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.linking.evaluate import embedder_of
from benchmarks.linking.settings import number
from core.files import InputError, digest, lines, read_json, write_json, written
from core.tracking import commit, new_run, runs_folder
from datamodules.synonyms import Sample, load
from models.metrics import bootstrap_interval, compared, score

SETTINGS = (
    "MODEL", "CKPT", "SAMPLES", "LINKED", "POOLING", "SIMILARITY", "MAX_LENGTH", "PRECISION", "KNOWLEDGE", "FREQUENT",
    "SEED", "DEVICE",
)  # fmt: skip
WORDS = ("sgns", "glove")
DATASETS = ("D1", "D2", "D3")
HITS = "hits.npz"  # hit or not of every sample, by data set
Vectors = Callable[[Sequence[str]], np.ndarray]


def mention_counts(linked: Path) -> Counter[str]:
    """{entity id: mentions} in a folder of linked text. Raises InputError when there is none."""
    if not (linked / "manifest.json").is_file():
        raise InputError(
            f"LINKED={linked}: no finished linked text here (manifest.json is missing). Run: python -m kg.linking --help"
        )
    counts: Counter[str] = Counter()
    for part in sorted(linked.glob("part-*.jsonl")):
        for _, line in lines(part):
            counts.update(m["entity"] for m in json.loads(line)["mentions"])
    return counts


def members(samples: Sequence[Sample], counts: Mapping[str, int], frequent: int) -> dict[str, np.ndarray]:
    """{dataset: which samples belong to it}."""
    rare = [min(counts.get(s.query, 0), counts.get(s.candidates[0], 0)) <= frequent for s in samples]
    return {"D1": np.ones(len(samples), bool), "D2": np.array([s.shared for s in samples]), "D3": np.array(rare)}


def hits(samples: Sequence[Sample], vectors: Vectors) -> np.ndarray:
    """(n,) 1 where the gold name is the nearest, 1/k where it is one of k nearest, else 0.

    vectors: names to (n, d), whose products are the similarities.
    """
    names = list(dict.fromkeys(name for s in samples for name in (s.query_name, *s.candidate_names)))
    place = {name: i for i, name in enumerate(names)}
    rows = vectors(names)
    result = np.zeros(len(samples))
    for i, s in enumerate(samples):
        similarity = rows[[place[n] for n in s.candidate_names]] @ rows[place[s.query_name]]
        best = similarity >= similarity.max() - 1e-7  # the same vector may come out differently in the last digit
        result[i] = best[0] / best.sum()
    return result


def vectors_of(given: Mapping[str, str], model: str, linked: Path) -> tuple[str, dict[str, Any], Vectors]:
    """(label, what decides the vectors, the vectors) of an encoder or of word vectors."""
    kind, _, unit = model.partition(":")
    if kind in WORDS:
        from benchmarks.papers.smedbert.wordvectors import trained

        return trained(kind, unit or "char", linked, int(given.get("SEED") or 0))
    _, embedder = embedder_of({"POOLING": "text", **given}, model)
    label = f"{model.replace('/', '-')} {embedder.pooling}" + (
        " without knowledge" if given.get("KNOWLEDGE") == "no" else ""
    )
    return label, embedder.settings, lambda names: embedder(names).numpy()


def sum_of(given: Mapping[str, str]) -> str | None:
    """The sum of the samples in the folder that SAMPLES= names, None without it. Raises InputError where there are none."""
    if not given.get("SAMPLES"):
        return None
    found = read_json(Path(given["SAMPLES"]) / "manifest.json").get("sha256")
    if not isinstance(found, str):  # a graph's manifest has a sum for each of its files
        raise InputError(f"SAMPLES={given['SAMPLES']}: no samples of synonyms; wanted a folder of datamodules.synonyms build")
    return found


def evaluate(given: Mapping[str, str]) -> dict[str, Any]:
    """Score MODEL on the samples; returns the summary that it writes. Raises InputError for what cannot be done."""
    folder = Path(given.get("SAMPLES") or runs_folder() / "data" / "smedbert-small" / "synonyms")
    samples = load(folder)
    linked = Path(given["LINKED"]) if given.get("LINKED") else folder.parent / "linked"
    frequent = number(given, "FREQUENT", 200, 0)
    counts = mention_counts(linked)
    inside = members(samples, counts, frequent)
    label, identity, vectors = vectors_of(given, given.get("MODEL") or "zh", linked)
    found = hits(samples, vectors)
    tallies = {name: np.stack([found[rows], np.ones(int(rows.sum()))], axis=1) for name, rows in inside.items()}
    stamp = {
        "samples": read_json(folder / "manifest.json")["sha256"],
        "frequent": frequent,
        "mentions": digest(sorted(counts.items())),
    }
    summary: dict[str, Any] = {
        "model": label,
        "run": Path(given["CKPT"]).name if given.get("CKPT") else "",
        "identity": identity,
        "stamp": stamp,
        "results": {
            name: {"acc@1": score(t), "samples": len(t), **dict(zip(("low", "high"), bootstrap_interval(t), strict=True))}
            for name, t in tallies.items() if len(t)
        },
        "commit": commit(),
    }  # fmt: skip
    out = runs_folder() / "synonyms" / digest(stamp)[:12]
    out /= re.sub(r"[^\w.@+-]+", "-", label) + "-" + digest(identity)[:8]
    summary["folder"] = str(out)
    with written(out / HITS, "wb") as handle:
        np.savez(handle, **{name: found[rows] for name, rows in inside.items()})  # type: ignore[arg-type]
    summary["mlflow_run"] = record(summary)
    write_json(out / "summary.json", summary)
    print(report(summary))
    for other in others(summary):
        theirs = tallies_of(other)
        for name, t in tallies.items():
            if len(t):
                c = compared({0: theirs[name]}, {0: t})
                print(
                    f"{name} against {other['model']} ({100 * other['results'][name]['acc@1']:.2f}): {100 * c.difference:+.2f}, "
                    f"95 % interval {100 * c.low:+.2f} to {100 * c.high:+.2f}, p = {c.p_bootstrap:.4f}"
                )
    return summary


def tallies_of(summary: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """{dataset: (n, 2) hit, 1 of each of its samples}. Raises InputError where they were not kept."""
    file = Path(summary["folder"]) / HITS
    if not file.is_file():
        raise InputError(
            f"{file}: missing; {summary['model']} was scored by an earlier version. Score it again: make synonyms"
        )
    with np.load(file, allow_pickle=False) as kept:
        return {name: np.stack([kept[name], np.ones(len(kept[name]))], axis=1) for name in kept.files}


def summaries() -> list[dict[str, Any]]:
    """Everything that was scored, oldest first."""
    files = (runs_folder() / "synonyms").glob("*/*/summary.json")
    return [read_json(f) for f in sorted(files, key=lambda p: p.stat().st_mtime_ns)]


def others(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What else was scored on the same samples."""
    same = [s for s in summaries() if s["stamp"] == summary["stamp"] and s["folder"] != summary["folder"]]
    return [s for s in same if (Path(s["folder"]) / HITS).is_file()]  # earlier versions kept their hits otherwise


def record(summary: Mapping[str, Any]) -> str:
    """Log a summary to the MLflow experiment ``synonyms``. Returns the run's id."""
    client, identifier = new_run("synonyms", summary["model"], {"commit": summary["commit"]})
    for key, value in {**summary["stamp"], **summary["identity"]}.items():
        client.log_param(identifier, key, str(value)[:500])
    for name, result in summary["results"].items():
        for key, value in result.items():
            client.log_metric(identifier, f"{name}/{key.replace('@', '_')}", value)
    client.set_terminated(identifier)
    return identifier


def report(summary: Mapping[str, Any]) -> str:
    """The scores as a table."""
    text = [f"{summary['model']}: Acc@1 among 20 names of one type"]
    for name in DATASETS:
        if r := summary["results"].get(name):
            text.append(
                f"{name:<4}{100 * r['acc@1']:>7.2f}   95 % interval {100 * r['low']:.2f} to {100 * r['high']:.2f}   "
                f"{r['samples']:,} samples"
            )
        else:
            text.append(f"{name:<4}      -   no sample belongs to it")
    return "\n".join(text)
