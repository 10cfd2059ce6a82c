"""Chains of this project and other people's linkers on one end-to-end task: the same graph, texts,
machine and scores.

    make peers TASK=NCBI-E2E MIRROR=downloads/
    make peers TASK=BC5CDR-disease-E2E SPLIT=dev CHAINS="dictionary; dictionary > sapbert"
    PEERS="gilda phrases" MIRROR=downloads/

Every linker runs in a process of its own (benchmarks.peers.worker) with one thread; it gets the
names of the task's dictionary and no downloaded model. Peers that this project's environment does
not hold are installed into one of their own (.cache/peers/<peer>), by pip, at the versions of
PEERS. A peer that cannot be installed, or that fails, is a row with the reason.
"""

from __future__ import annotations

import io
import json
import logging
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.finetune import score_seeds
from benchmarks.groups import group_results
from benchmarks.linking.ends import (
    METRIC,
    Annotated,
    Place,
    graph_of,
    place_of,
    read_annotated,
    result_of,
    write_predictions,
)
from benchmarks.options import Folds, Split
from benchmarks.paired_tests import difference, style_of
from benchmarks.results import OVERALL, Model, Result, save_logged
from core.choices import list_known
from core.commands import child_environment, python_command
from core.files import InputError, atomic_write
from core.json_files import digest, read_json, write_json
from core.settings import given_options
from core.spreadsheets import CsvWriter
from core.tracking import ROOT, folder_name, runs_folder
from datamodules.blurb import sentence_starts
from datamodules.options import Files
from datamodules.tasks.gold import Gold
from datamodules.tasks.linking import END_TO_END
from experiments.finetuned_names import NotTrained, is_task, list_trained
from experiments.machine import SeedTraining
from experiments.names import encoder
from experiments.pretrain import pretrain
from inference.chain import Pipeline
from inference.chain_steps import DETECTORS, steps_of
from inference.options import LinkerOptions, UnusedOptions
from kg.graph import KnowledgeGraph, fingerprint

LOG = logging.getLogger(__name__)
AT_ONCE = 32  # texts that are linked together
CACHE = ROOT / ".cache" / "peers"  # environments of peers
WORKER = Path(__file__).parent / "worker.py"
DETECTOR = "{detector}"  # in a peer's options: the task's own


class Peer(NamedTuple):
    """Another linker: its program, what pip installs for it (nothing: this environment has it), the
    program's options."""

    title: str
    program: str
    packages: tuple[str, ...] = ()
    options: Mapping[str, Any] = {}
    size: str = ""  # of the installed packages


PEERS = {
    "gilda": Peer("gilda", "gilda", ("gilda==1.6.1",), size="about 400 MB"),
    "phrases": Peer("spaCy PhraseMatcher", "phrases"),
    "scispacy": Peer(
        "dictionary > scispaCy's candidates",
        "scispacy",
        options={"detector": "dictionary", "threshold": 0.7},
    ),
    "scispacy-tagger": Peer(
        "tagger > scispaCy's candidates",
        "scispacy",
        options={"detector": DETECTOR, "threshold": 0.7},
    ),
    "medcat": Peer(
        "MedCAT",
        "medcat",
        ("medcat==2.9.0", "gensim>=4.3"),
        size="about 1.3 GB with the CPU build of torch",
    ),
}
TAGGERS = {
    "NCBI-E2E": "NCBI/minilm",
    "BC5CDR-disease-E2E": "BC5-disease/minilm",
    "BC5CDR-E2E": "BC5-chem/minilm + BC5-disease/minilm",
}


class Run(NamedTuple):
    """A linker's scores, or the reason why it has none."""

    title: str
    ours: bool
    result: Result | None
    reason: str = ""


def chains_of(task: str) -> list[str]:
    """The chains that are compared where none is named."""
    tagger = TAGGERS.get(task)
    if tagger is None:
        return ["dictionary", "dictionary > sapbert"]
    return ["dictionary", f"{tagger} > names", f"{tagger} > sapbert"]


# what is needed first


def train_missing(chains: Sequence[str], files: Files) -> None:
    """Train the taggers and encoders of chains that have not been trained yet; each says how long
    it takes."""
    for chain in chains:
        for word in dict.fromkeys(map(str.strip, re.split("[>+]", chain))):
            task, _, model = word.partition("/")
            if (
                is_task(word)
                and "@" not in word
                and not {model, folder_name(model)} & set(list_trained(task))
            ):
                LOG.info(f"{word} is missing: it is fine-tuned first")
                score_seeds(SeedTraining(task=task, model=model or None, files=files))
            elif word not in (*DETECTORS, "names") and not is_task(word):
                try:
                    encoder(word)
                except NotTrained as error:
                    LOG.info(f"{error}\nIt is pre-trained first, with PROFILE=small")
                    pretrain(error.paper)
        steps_of(chain)


def environment(name: str, peer: Peer) -> str:
    """The interpreter that has a peer's packages, installed first where they are not. Raises
    InputError where pip fails."""
    if not peer.packages:
        return sys.executable
    folder = CACHE / name
    python, done = folder / "bin" / "python", folder / "installed.json"
    if done.is_file() and read_json(done) == list(peer.packages):
        return str(python)
    LOG.info(f"{peer.title}: installed into {folder}, a few minutes, {peer.size}")
    torch = [
        line.strip()
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line.startswith("torch==")
    ]
    packages = [*(torch if name == "medcat" else []), *peer.packages]
    commands = (
        python_command("-m", "venv", "--clear", str(folder)),
        python_command(
            "-m",
            "pip",
            "--python",
            str(python),
            "install",
            "--quiet",
            "--disable-pip-version-check",
            *packages,
        ),
    )
    for command in commands:
        ended = subprocess.run(command, capture_output=True, text=True, env=child_environment())
        if ended.returncode:
            raise InputError(f"not installed: {_last(ended.stderr or ended.stdout)}")
    write_json(done, list(peer.packages))
    return str(python)


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it ended without a word"


# one linker in a process


def in_a_process(
    python: str, program: str, names: Path, texts: Path, options: Mapping[str, Any], out: Path
) -> dict[str, Any]:
    """The answer of benchmarks.peers.worker. Raises InputError with the last line of a process that
    failed."""
    request = out.with_suffix(".request.json")
    write_json(
        request,
        {
            "program": program,
            "names": str(names),
            "texts": str(texts),
            "out": str(out),
            "at_once": AT_ONCE,
            "options": dict(options),
        },
    )
    one_thread = {
        key: "1" for key in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    }
    out.unlink(missing_ok=True)
    environment = {} if python == sys.executable else {"PYTHONPATH": ""}
    words = [python, *python_command(str(WORKER), str(request))[1:]]
    ended = subprocess.run(
        words, capture_output=True, text=True, env=child_environment(one_thread | environment)
    )
    if ended.returncode or not out.is_file():
        raise InputError(f"failed: {_last(ended.stderr)}")
    return dict(read_json(out))


def write_lines(path: Path, rows: Sequence[Sequence[Any]]) -> Path:
    with atomic_write(path) as handle:
        handle.writelines(json.dumps(list(row), ensure_ascii=False) + "\n" for row in rows)
    return path


def names_of(graph: Path) -> list[tuple[str, str, str, str]]:
    """(concept, name, kind, the concept's preferred name) of all names of a graph."""
    loaded = KnowledgeGraph.load(graph)
    preferred = dict(zip(loaded.ids.to_pylist(), loaded.entities["name"].to_pylist(), strict=True))
    columns = (loaded.names[c].to_pylist() for c in ("id", "name", "kind"))
    return [
        (entity, name, kind, preferred[entity]) for entity, name, kind in zip(*columns, strict=True)
    ]


def write_inputs(place: Path, graph: Path, data: Annotated) -> tuple[Path, Path, Path]:
    """The files of names, of texts, and of the other texts, which are there to learn from."""
    others = [[d, text] for d, text in data.fold.documents.items() if d not in data.texts]
    return (
        write_lines(place / "names.jsonl", names_of(graph)),
        write_lines(place / "texts.jsonl", list(data.texts.items())),
        write_lines(place / "others.jsonl", others),
    )


def save_scores(
    data: Annotated, graph: Path, title: str, identity: str, answer: Mapping[str, Any]
) -> Result:
    """The result of what a process found, saved and logged."""
    dictionary = data.fold.dictionary
    predicted: dict[str, list[Place]] = {}
    example_rows: dict[str, list[list[Any]]] = {}
    for d, text in data.texts.items():
        rows = [row for row in answer["found"][d] if data.counts_at(d, row[0], row[1])]
        predicted[d] = [place_of(a, b, entity, dictionary) for a, b, entity in rows]
        example_rows[d] = [[a, b, text[a:b], entity, None, None] for a, b, entity in rows]
    sentences = sum(len(sentence_starts(text)) for text in data.texts.values())
    details = {
        "seconds": round(answer["seconds"], 2),
        "start_seconds": round(answer["start_seconds"], 2),
        "sentences_a_second": round(sentences / max(answer["seconds"], 1e-9), 1),
        "memory": round(answer["memory"]),
        "texts_a_second": round(len(data.texts) / max(answer["seconds"], 1e-9), 1),
    }
    result = result_of(data, predicted, graph, Model(title, "", identity), {}, details)
    write_predictions(result, data, example_rows)
    return save_logged(result, data.task)


# the table


def chains_with_options(
    graph: Path, chains: Sequence[str], nil: float | None, linker: LinkerOptions
) -> dict[str, tuple[Pipeline, dict[str, Any]]]:
    """{chain: (its pipeline, those of the given options that it uses)}.

    Raises InputError for what is no chain, and for an option that none of the chains uses.
    """
    options = given_options(linker)
    pipelines: dict[str, tuple[Pipeline, dict[str, Any]]] = {}
    unused = []
    for chain in chains:
        used_options = options
        try:
            pipeline = Pipeline(graph, chain, nil, 1, None, **used_options)
        except UnusedOptions as error:
            used_options = {
                name: value for name, value in options.items() if name not in error.options
            }
            pipeline = Pipeline(graph, chain, nil, 1, None, **used_options)
        pipelines[chain] = pipeline, used_options
        unused.append(set(options) - set(used_options))
    if unused_by_all := set.intersection(*unused):
        raise UnusedOptions(unused_by_all, " and ".join(chains))
    return pipelines


def check_peers(peers: Sequence[str]) -> None:
    """Raise InputError for a peer that does not exist."""
    for name in peers:
        if name not in PEERS:
            raise InputError(f"PEERS={name}: {list_known(name, PEERS)}")


def compare_peers(
    task: str,
    chains: Sequence[str] = (),
    peers: Sequence[str] = (),
    *,
    split: Split | None = None,
    graph: Path | None = None,
    nil: float | None = None,
    linker: LinkerOptions | None = None,
    files: Files | None = None,
    annotated: Gold = Gold(),
) -> tuple[Annotated, list[Run]]:
    """Run and score our chains and the peers. Raises InputError for a task, chain or peer that does
    not exist."""
    if annotated.gold:
        task = annotated.name(graph)
    elif task not in END_TO_END:
        raise InputError(f"TASK={task}: expected an end-to-end task: {', '.join(END_TO_END)}")
    check_peers(peers)
    files, linker = files or Files(), linker or LinkerOptions()
    wanted = list(chains) or chains_of(task)
    data = read_annotated(task, Folds(split=split, graph=graph), files, annotated)
    train_missing(wanted, files)
    dictionary = (graph or graph_of(data.fold.dictionary, data.fold.folder / "graph")).resolve()
    place = runs_folder() / "peers" / task / data.split
    place.mkdir(parents=True, exist_ok=True)
    names, texts, train = write_inputs(place, dictionary, data)
    runs: list[Run] = []
    for chain, (pipeline, used) in chains_with_options(dictionary, wanted, nil, linker).items():
        pipeline.prepare()  # makes the vectors of names
        LOG.info(f"linking by {chain}")
        settings = {k: str(v) if isinstance(v, Path) else v for k, v in used.items()}
        options = {"graph": str(dictionary), "chain": chain, "nil": nil, "linker": settings}
        answer = in_a_process(sys.executable, "chain", names, texts, options, place / "chain.json")
        result = save_scores(data, dictionary, chain, digest(pipeline.identities), answer)
        runs.append(Run(chain, True, result))
    for name in peers or PEERS:
        peer = PEERS[name]
        LOG.info(f"linking by {peer.title}")
        options = {"graph": str(dictionary), "train": str(train), **peer.options}
        try:
            if options.get("detector") == DETECTOR:
                options["detector"] = _tagger(task, wanted)
            answer = in_a_process(
                environment(name, peer), peer.program, names, texts, options, place / f"{name}.json"
            )
            own_options = {k: v for k, v in options.items() if k not in ("graph", "train")}
            identity = digest([peer.packages, own_options, fingerprint(dictionary)])
            result = save_scores(data, dictionary, f"peer {name}", identity, answer)
            runs.append(Run(peer.title, False, result))
        except InputError as error:
            runs.append(Run(peer.title, False, None, str(error)))
    return data, runs


def _tagger(task: str, chains: Sequence[str]) -> str:
    """The detector of the chains that is no dictionary. Raises InputError where there is none."""
    for chain in chains:
        if (detect := steps_of(chain).detect) != "dictionary":
            return detect
    raise InputError(f'no chain of {task} has a tagger; give one: CHAINS="TASK/encoder > names"')


COLUMNS = (
    "",
    "strict P",
    "R",
    "F1",
    "95 % interval",
    "overlap F1",
    "documents F1",
    "sentences/s",
    "start, s",
    "memory, MB",
)


def rows_of(runs: Sequence[Run]) -> list[list[str]]:
    """A row for each linker, ours first, in percent; one without scores has its reason."""
    rows = []
    for run in runs:
        if run.result is None:
            rows.append([run.title, run.reason, *[""] * (len(COLUMNS) - 2)])
            continue
        scores, details = run.result.scores, run.result.details
        low, high = group_results([run.result])[run.result.label].interval(METRIC) or (0.0, 0.0)
        strict = scores[OVERALL]
        rows.append(
            [
                run.title,
                *(f"{100 * strict[k]:.1f}" for k in ("precision", "recall", METRIC)),
                f"{100 * low:.1f} to {100 * high:.1f}",
                f"{100 * scores['overlap'][METRIC]:.1f}",
                f"{100 * scores['documents'][METRIC]:.1f}",
                f"{details['sentences_a_second']:,.0f}",
                f"{details['start_seconds']:.1f}",
                f"{details['memory']:,}",
            ]
        )
    return rows


def comparisons(runs: Sequence[Run]) -> list[str]:
    """The best chain against each peer, and the dictionary's speed beside the fastest peer of no
    lower F1 than it."""
    scored = {run.title: run.result for run in runs if run.result}
    groups = {title: group_results([result])[result.label] for title, result in scored.items()}
    strict = {title: result.scores[OVERALL][METRIC] for title, result in scored.items()}
    ours = [run.title for run in runs if run.result and run.ours]
    theirs = [run.title for run in runs if run.result and not run.ours]
    if not ours or not theirs:
        return []
    best = max(ours, key=strict.__getitem__)
    lines = [
        f"{best}, strict F1, against {t}:"
        f" {difference(groups[best], groups[t], METRIC, style_of(groups[best]))}"
        for t in theirs
    ]
    if "dictionary" in ours:
        speed = {title: result.details["sentences_a_second"] for title, result in scored.items()}
        fastest = max(theirs, key=speed.__getitem__)
        lines.append(
            f"dictionary beside the fastest peer, {fastest}:"
            f" {speed['dictionary'] / speed[fastest]:.1f} times the sentences a second,"
            f" {100 * (strict['dictionary'] - strict[fastest]):+.1f} points"
        )
    return lines


def format_comparison(data: Annotated, runs: Sequence[Run]) -> str:
    """The table as Markdown, and as runs/tables/peers_<task>_<split>.csv."""
    rows = [list(COLUMNS), *rows_of(runs)]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(COLUMNS))
    text = io.StringIO()
    CsvWriter(text).writerows(rows)
    out = runs_folder() / "tables" / f"peers_{data.task}_{data.split}.csv"
    out.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(out) as handle:
        handle.write(text.getvalue())
    gold = sum(bool(place.concepts) for places in data.gold.values() for place in places)
    title = (
        f"{data.task}, {data.split}: {len(data.texts):,} texts, {gold:,} concepts of mentions; one"
        " thread"
    )
    return "\n".join([title, "", *lines, "", *comparisons(runs), "", f"written to {out}"])
