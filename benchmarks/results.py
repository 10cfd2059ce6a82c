"""The one record of a score, and its store.

An evaluator returns a :class:`Result` for every seed and saves it with :func:`save_result`:
result.json, and outcomes.parquet with what each example counts (tallies, models.metrics), in the
run's folder. Everything that compares scores reads :func:`list_stored` and works on fields. A label
is printed from a result and never parsed.
"""

from __future__ import annotations

import json
import logging
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from core.arrays import load_arrays, save_arrays
from core.files import InputError, atomic_write
from core.journal import Journal
from core.json_files import digest, read_json
from core.reading import sha256
from core.tracking import command_words, commit, folder_name, runs_folder
from experiments.names import Encoder, split_name
from experiments.recipes import default_stem, recipes

LOG = logging.getLogger(__name__)
FILE, OUTCOMES = "result.json", "outcomes.parquet"
#: kinds of what is counted or timed, not scored over examples (benchmarks.measurements)
MEASURED = (
    "speed",
    "scale",
    "search",
    "engines",
    "overlap",
    "forms",
    "sentences",
    "embedding",
    "graph",
)
KINDS = ("finetune", "linking", "synonyms", "probing", "pretraining", *MEASURED)
#: groups of scores: all examples; the split that chose the epoch
OVERALL, SELECT = "overall", "select"
#: name of the system that trains nothing (benchmarks.trivial)
TRIVIAL = "trivial"
#: the systems of each kind that train nothing, which a gain must exceed
BASELINES = {"finetune": (TRIVIAL,), "linking": ("exact", "tfidf", "translated", "dictionary")}


class Model(NamedTuple):
    """What was scored: the name as MODEL= accepts it, the run that CKPT= named ("<hash>-seed<k>",
    or nothing), its checksum."""

    name: str
    run: str = ""
    identity: str = ""


def model_of(name: str, chosen: Encoder) -> Model:
    """The model that `name` means; a folder is called by its own name and a digest, or by that
    before it (NAME=FOLDER)."""
    name, _ = split_name(name)
    base, _, run = chosen.name.partition("@")
    typed = base in (name, name.replace("/", "-"), name.replace("/", "--"))
    return Model(short_name(name) if typed else base, run, chosen.identity)


def short_name(name: str) -> str:
    """A model as it is named in results: smedbert/pretrain is smedbert, whose usual run it is."""
    paper, _, stem = name.partition("/")
    return paper if stem and paper in recipes() and stem == default_stem(paper) else name


@dataclass(frozen=True, kw_only=True)
class Result:
    """One score, of one seed.

    kind      finetune, linking, synonyms, probing, pretraining, or one of MEASURED
    metric    the task's own;  split  the split that it is of
    protocol  what scores of one column must have in common, by name
    options   what distinguishes the system from others of the same model; it is in the label
    scores    {group of examples: {metric: value, examples: how many}}; "overall" is all of them
    tallies   {"metric", or "group/metric" of a part: (n, k) counts per example}
    data      {what was read: its checksum}
    details   what is reported and not compared
    request   results of one request share it: the same settings, other seeds, by one command or
              several
    argv      the words behind `kepl` of the command that made it
    """

    kind: str
    task: str
    split: str
    metric: str
    protocol: Mapping[str, Any]
    model: Model
    scores: Mapping[str, Mapping[str, float]]
    tallies: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False, compare=False)
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    data: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    request: str = ""
    argv: Sequence[str] = ()
    commit: str = ""
    created: str = ""
    mlflow_run: str = ""
    folder: str = ""

    @property
    def label(self) -> str:
        return label(self.model.name, self.options)

    @property
    def is_baseline(self) -> bool:
        """Whether it is of one of its kind's BASELINES. In running text a dictionary is a system
        like others."""
        return "gold" not in self.protocol and self.model.name in BASELINES.get(self.kind, ())

    def value(self, metric: str | None = None, group: str = OVERALL) -> float | None:
        """A score, None where there is none; metric None: the task's own."""
        score = self.scores.get(group, {}).get(metric or self.metric)
        return None if score is None else float(score)


#: How options are shown in a label, in this order; others follow as NAME=value.
_WORDS = {
    "pooling": " {}",
    "similarity": " {}",
    "by": " {}",
    "unit": " {}",
    "head": " without head",
    "knowledge": " without knowledge",
    "finish": ", {}",
    "score": ", {}",
    "candidates": ", {}",
    "names": ", names {}",
    "backoff": " + back-off",
}


def label(model: str, options: Mapping[str, Any]) -> str:
    """How a system is called in tables: "sapbert fine-tuned mean + back-off", "smedbert-pretrain_k5
    HITS=0.5".

    options: finetuned holds the options of the fine-tuning, {} for none.
    """
    text = model.replace("/", "-" if model.partition("/")[0] in recipes() else "--")
    if "finetuned" in options:
        text += " fine-tuned" + "".join(
            f", {name} {value}" for name, value in options["finetuned"].items()
        )
    for name, template in _WORDS.items():
        if name in options:
            text += template.format(str(options[name]).replace(":", " "))
    return text + "".join(
        f" {name.upper()}={value}"
        for name, value in options.items()
        if name not in (*_WORDS, "finetuned")
    )


# the store


def save_result(result: Result, folder: str | Path) -> Result:
    """Write result.json and outcomes.parquet into `folder`; returns the result with folder,
    command, commit and time."""
    folder = Path(folder)
    result = replace(
        result,
        folder=str(folder),
        argv=result.argv or command_words(),
        commit=result.commit or commit(),
        created=result.created or datetime.now(UTC).isoformat(timespec="microseconds"),
    )
    if result.tallies:
        save_arrays(folder / OUTCOMES, result.tallies)
    record = asdict(replace(result, tallies={}))
    del record["tallies"], record["folder"]
    record["model"] = result.model._asdict()
    record["outcomes"] = sha256(folder / OUTCOMES) if (folder / OUTCOMES).is_file() else None
    # in the order of its fields: that of the options is seen in the label
    with atomic_write(folder / FILE) as handle:
        handle.write(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    return result


def save_once(result: Result, folder: str | Path) -> Result:
    """Save a result of what an earlier command made, unless the folder has the same scores of the
    same commit: those keep the command that made them."""
    if (Path(folder) / FILE).is_file():
        stored = load_result(folder)
        if (stored.scores, stored.commit) == (result.scores, result.commit):
            return stored
    return save_result(result, folder)


class _Tallies(Mapping[str, np.ndarray]):
    """Tallies that are read when they are first asked for, and verified against the record's
    checksum."""

    def __init__(self, file: Path, checksum: str | None) -> None:
        self.file, self.checksum = file, checksum
        self.read: dict[str, np.ndarray] | None = None

    def _arrays(self) -> dict[str, np.ndarray]:
        if self.read is None:
            if self.checksum is None:
                self.read = {}
            elif not self.file.is_file() or sha256(self.file) != self.checksum:
                raise InputError(
                    f"{self.file}: missing, or not the file that {FILE} beside it describes. Score"
                    " again."
                )
            else:
                self.read = load_arrays(self.file)
        return self.read

    def __getitem__(self, key: str) -> np.ndarray:
        return self._arrays()[key]

    def __iter__(self) -> Any:
        return iter(self._arrays())

    def __len__(self) -> int:
        return len(self._arrays())


def load_result(folder: str | Path) -> Result:
    """The result in a folder. Raises InputError where there is none, or it is damaged."""
    folder = Path(folder)
    record = read_json(folder / FILE)
    try:
        outcomes = record.pop("outcomes")
        model = Model(**record["model"])
        record["model"] = model._replace(name=short_name(model.name))
        return Result(**record, tallies=_Tallies(folder / OUTCOMES, outcomes), folder=str(folder))
    except (TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{folder / FILE}: not a result ({error}). Score again.") from error


def list_stored(kind: str, task: str | None = None) -> list[Result]:
    """Every result of a kind (of one task), oldest first. A damaged one is left out with a
    warning: what others have scored can be compared all the same."""
    if kind not in KINDS:
        raise ValueError(f"kind {kind!r}: expected one of {', '.join(KINDS)}")
    place = runs_folder() / kind
    if task and kind in ("finetune", "linking"):
        place /= folder_name(task)
    results = []
    for file in sorted(place.glob(f"**/{FILE}")):
        try:
            results.append(load_result(file.parent))
        except InputError as error:
            LOG.warning(f"left out of all comparisons: {error}")
    return sorted((r for r in results if task in (None, r.task)), key=lambda r: r.created)


def result_folder(result: Result) -> Path:
    """Where the result of a linker, of synonyms or of probing is kept: by protocol, label and what
    decides it."""
    place = runs_folder() / result.kind
    if result.kind == "linking":
        place /= folder_name(result.task)
    identity = digest(
        [result.model.identity, dict(result.options), result.details.get("linker"), result.seed]
    )[:8]
    return place / digest(dict(result.protocol))[:12] / f"{folder_name(result.label)}-{identity}"


# MLflow


def save_logged(result: Result, experiment: str) -> Result:
    """Log a result of :func:`result_folder` to MLflow and save it there."""
    return save_result(
        replace(result, mlflow_run=log_result(result, experiment)), result_folder(result)
    )


def log_result(result: Result, experiment: str) -> str:
    """A new MLflow run of a result: protocol, model and options as parameters, scores as metrics.
    Returns its id.

    Where MLflow does not answer the run's journal stays in the result's folder for `kepl sync`, and
    the id is "".
    """
    place = result_folder(result) / f"mlflow-{secrets.token_hex(4)}"
    journal = Journal(
        place, experiment, result.label, {"kind": result.kind, "commit": result.commit or commit()}
    )
    journal.params({**result.protocol, "model": result.model.identity, **result.options})
    values: dict[str, float] = {}
    for group, scores in result.scores.items():
        prefix = result.split if group == OVERALL else group
        values |= {f"{prefix}/{metric}": value for metric, value in scores.items()}
    journal.metrics(values)
    journal.end()
    run = journal.run_id if journal.close() else ""
    if run:
        shutil.rmtree(place)
    return run
