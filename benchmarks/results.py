"""The one record of a score, its store, and what is printed of several: comparisons and reports.

An evaluator returns a :class:`Result` for every seed and saves it with :func:`save_result`:
result.json, and outcomes.parquet with what each example counts (tallies, models.metrics), in the
run's folder. Everything that compares scores reads :func:`list_stored` and works on fields. A label
is printed from a result and never parsed.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import shutil
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from core.arrays import load_arrays, save_arrays
from core.choices import list_known
from core.files import InputError, atomic_write
from core.journal import Journal
from core.json_files import digest, read_json
from core.reading import sha256
from core.tracking import commit, folder_name, runs_folder
from experiments.names import Encoder, default_stem, recipes, split_name
from models.metrics import Comparison, adjust_holm, bootstrap_interval, compare_systems, score

if TYPE_CHECKING:
    pass

LOG = logging.getLogger(__name__)
FILE, OUTCOMES = "result.json", "outcomes.parquet"
KINDS = ("finetune", "linking", "synonyms", "probing")
#: groups of scores: all examples; the split that chose the epoch
OVERALL, SELECT = "overall", "select"
#: name of the system that trains nothing (benchmarks.trivial)
TRIVIAL = "trivial"


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

    kind      finetune, linking, synonyms or probing
    metric    the task's own;  split  the split that it is of
    protocol  what scores of one column must have in common, by name
    options   what distinguishes the system from others of the same model; it is in the label
    scores    {group of examples: {metric: value, examples: how many}}; "overall" is all of them
    tallies   {"metric", or "group/metric" of a part: (n, k) counts per example}
    data      {what was read: its checksum}
    details   what is reported and not compared
    request   results of one request share it: the same settings, other seeds, by one command or
              several
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
    commit: str = ""
    created: str = ""
    mlflow_run: str = ""
    folder: str = ""

    @property
    def label(self) -> str:
        return label(self.model.name, self.options)

    def value(self, metric: str | None = None, group: str = OVERALL) -> float | None:
        """A score, None where there is none; metric None: the task's own."""
        found = self.scores.get(group, {}).get(metric or self.metric)
        return None if found is None else float(found)


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
    """Write result.json and outcomes.parquet into `folder`; returns the result with folder, commit
    and time."""
    folder = Path(folder)
    result = replace(
        result,
        folder=str(folder),
        commit=result.commit or commit(),
        created=result.created or datetime.now(UTC).isoformat(timespec="microseconds"),
    )
    if result.tallies:
        save_arrays(folder / OUTCOMES, result.tallies)
    record = {
        k: v
        for k, v in asdict(replace(result, tallies={})).items()
        if k not in ("tallies", "folder")
    }
    record["model"] = result.model._asdict()
    record["outcomes"] = sha256(folder / OUTCOMES) if (folder / OUTCOMES).is_file() else None
    # in the order of its fields: that of the options is seen in the label
    with atomic_write(folder / FILE) as handle:
        handle.write(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    return result


class _Tallies(Mapping[str, np.ndarray]):
    """Tallies that are read when they are first asked for, and verified against the record's
    checksum."""

    def __init__(self, file: Path, checksum: str | None) -> None:
        self.file, self.checksum, self.read = (
            file,
            checksum,
            None,
        )  # type: Path, str | None, dict[str, np.ndarray] | None

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
    place = place / folder_name(task) if task and kind in ("finetune", "linking") else place
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
    place = (
        runs_folder() / result.kind / (folder_name(result.task) if result.kind == "linking" else "")
    )
    own = digest(
        [result.model.identity, dict(result.options), result.details.get("linker"), result.seed]
    )[:8]
    return place / digest(dict(result.protocol))[:12] / f"{folder_name(result.label)}-{own}"


# groups: the seeds of one system


class Group(NamedTuple):
    """Results of one system; `kind` says what its seeds are of: "fine-tuning" or "pre-training"."""

    label: str
    kind: str
    results: list[Result]

    def values(self, metric: str | None = None, group: str = OVERALL) -> list[float]:
        """A score for each seed; of several fine-tunings of one pre-training run their mean."""
        runs: dict[Any, list[float]] = defaultdict(list)
        for i, result in enumerate(self.results):
            if (value := result.value(metric, group)) is not None:
                runs[
                    (
                        result.model.run
                        if self.kind == "pre-training" and self.results[0].kind == "finetune"
                        else i
                    )
                ].append(value)
        return [float(np.mean(several)) for several in runs.values()]

    def tallies(self, key: str) -> dict[int, np.ndarray]:
        """{seed: tallies}, summed over what shares a seed. Linkers are compared as one system: all
        under seed 0."""
        found: dict[int, np.ndarray] = {}
        for result in self.results:
            if key not in result.tallies:
                continue
            run = seed_of(result.model.run)
            seed = (
                0
                if result.kind == "linking"
                else result.seed
                if run is None and result.kind == "finetune"
                else run or 0
            )
            own = np.asarray(result.tallies[key])
            # of two scores of one seed the newer one counts
            newest_counts = result.kind != "synonyms"
            found[seed] = found[seed] + own if seed in found and newest_counts else own
        return found

    def interval(self, key: str) -> tuple[float, float] | None:
        """95 % bootstrap interval of the pooled tallies over examples."""
        several = list(self.tallies(key).values())
        return bootstrap_interval(np.sum(several, axis=0)) if several else None

    @property
    def is_trivial(self) -> bool:
        """Whether it is the baseline that trains nothing (benchmarks.trivial)."""
        return self.results[0].model.name == TRIVIAL

    @property
    def places(self) -> tuple[str, ...]:
        """MLflow runs, or folders where there are none, each once."""
        return tuple(
            dict.fromkeys(r.details.get("parent") or r.mlflow_run or r.folder for r in self.results)
        )


def seed_of(run: str) -> int | None:
    """The seed in the name of a pre-training's run, "seed1" or "<hash>-seed1"; None for another
    name."""
    found = re.search(r"(?:^|-)seed(\d+)$", run)
    return int(found[1]) if found else None


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
        for training, own in trainings.items():
            title = (
                f"{name} of pre-training {training}" if training and len(trainings) > 1 else name
            )
            groups[title] = Group(
                title, "pre-training" if _seeds_are_runs(own) else "fine-tuning", own
            )
    return groups


def _seeds_are_runs(results: Sequence[Result]) -> bool:
    if results[0].kind == "finetune":
        return any(r.model.run for r in results)
    return any(seed_of(r.model.run) is not None for r in results)


def _drop_replaced(several: list[Result]) -> list[Result]:
    """The results of one label, oldest first, without those that newer ones replace."""
    runs = _seeds_are_runs(several)
    # scored again, in another precision for example, a run is one seed all the same
    if several[0].kind != "finetune":
        return (
            list({(r.model.run, r.seed, digest(dict(r.protocol))): r for r in several}.values())
            if runs
            else several
        )
    newest = {r.model.run: r.request for r in several}  # oldest first: the last one stays
    kept = [r for r in several if r.request == newest[r.model.run] and bool(r.model.run) == runs]
    check_seeds(kept)
    return sorted(kept, key=lambda r: (r.model.run, r.seed))


def check_seeds(results: Sequence[Result]) -> None:
    """Raise InputError where two results are of one system and seed, as two precisions or a copied
    folder are: a mean would count the seed twice."""
    known: dict[tuple[str, str, int], str] = {}
    for result in results:
        first = known.setdefault((result.label, result.model.run, result.seed), result.folder)
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
        scores = [value for r in several if (value := r.value()) is not None]
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
    told = "; ".join(
        f"{', '.join(dict.fromkeys(who))}: "
        + ", ".join(f"{p} {first.protocol.get(p)!r}" for p in parts)
        for first, who in groups.values()
    )
    place = runs_folder() / firsts[0].kind
    raise InputError(
        f"{where}: results of different protocols cannot be in one column ({told}). {choose}"
        f"{' Or move' if choose else 'Move'} those aside that are not meant, in {place}."
    )


# comparison and report


class Style(NamedTuple):
    """How scores of a kind are printed: times `scale` with `digits`; what the bootstrap samples."""

    scale: float
    digits: int
    over: str


STYLES = {
    "finetune": Style(1, 4, "examples"),
    "linking": Style(100, 2, "mentions"),
    "synonyms": Style(100, 2, "samples"),
    "probing": Style(100, 2, "queries"),
}


def style_of(group: Group) -> Style:
    """How a system's scores are printed. What a chain finds in running text is counted by text."""
    first = group.results[0]
    style = STYLES[first.kind]
    return style._replace(over="texts") if "gold" in first.protocol else style


def p_value(p: float) -> str:
    """A p-value of a t-test as text, which may be smaller than any number of digits shows."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def pair_results(one: Group, other: Group, key: str) -> tuple[Comparison, int] | None:
    """(first minus other over the seeds that they share, how many seeds); None without a common
    seed, or other examples."""
    own, theirs = one.tallies(key), other.tallies(key)
    if not own or not theirs:
        return None
    # what trains nothing is the same for every seed
    if one.is_trivial and set(own) == {0}:
        own = dict.fromkeys(theirs, own[0])
    elif other.is_trivial and set(theirs) == {0}:
        theirs = dict.fromkeys(own, theirs[0])
    elif one.kind != other.kind and one.results[0].kind != "linking":
        return None
    common = sorted(set(own) & set(theirs))
    if not common or any(own[s].shape != theirs[s].shape for s in common):
        return None
    return compare_systems({s: theirs[s] for s in common}, {s: own[s] for s in common}), len(common)


def difference(
    one: Group, other: Group, key: str, style: Style, brackets: bool = False
) -> str | None:
    """The difference of two systems as text, with both tests; None where they cannot be paired."""
    found = pair_results(one, other, key)
    if found is None:
        return None
    c, seeds = found
    s, d = style.scale, style.digits
    ends = (f"{s * c.low:+.{d}f}", f"{s * c.high:+.{d}f}")
    told = f"[{ends[0]}, {ends[1]}]" if brackets else f"95 % interval {ends[0]} to {ends[1]}"
    t = (
        ""
        if c.p_seeds is None
        else f", paired t over {seeds} {one.kind} seeds {p_value(c.p_seeds)}"
    )
    first = f"{s * c.difference:+.{d}f}"
    trained = one.results[0].kind == "finetune"
    alone = f"{style.over} of one seed" if trained else style.over
    over = f"seeds and {style.over}" if seeds > 1 else alone
    several = [{*group.tallies(key)} for group in (one, other) if not group.is_trivial]
    if len(several) == 2 and several[0] != several[1]:
        common = ",".join(map(str, sorted(several[0] & several[1])))
        first += f" over the seeds that both have ({common})"
    return (
        f"{first}{' ' if brackets else ', '}{told}, paired bootstrap over {over} p ="
        f" {c.p_bootstrap:.4f}{t}"
    )


BELOW = "both below the trivial baseline: no gain"


def mark_below(one: Group, other: Group, pool: Iterable[Group], key: str) -> str:
    """ " (both below the trivial baseline: no gain)" where that is so, else nothing: what the
    difference of two such systems says is not that one of them can do the task."""
    trivial = next((g for g in pool if g.is_trivial), None)
    if trivial is None or one.is_trivial or other.is_trivial:
        return ""
    scores = [_mean_score(g, key) for g in (one, other, trivial)]
    below = None not in scores and max(scores[0] or 0, scores[1] or 0) < (scores[2] or 0)
    return f" ({BELOW})" if below else ""


def _mean_score(group: Group, key: str) -> float | None:
    """The mean over seeds of what the tallies of `key` come to."""
    found = [score(t) for t in group.tallies(key).values()]
    return float(np.mean(found)) if found else None


def others(mine: Group, pool: Iterable[Result], key: str) -> list[str]:
    """A line for each other system of the same protocol: mine minus its score, with both tests."""
    first = mine.results[0]
    style = style_of(mine)
    folders = {r.folder for r in mine.results}
    same = [
        r
        for r in pool
        if not find_differences(first.protocol, r.protocol) and r.folder not in folders
    ]
    group, _, metric = key.rpartition("/")
    part = group if metric == first.metric or not group else f"{group} {metric}"
    what = f"{part}, " if part else ""
    lines = []
    groups = group_results([*same, *mine.results])
    for label_, one in groups.items():
        # itself, of other seeds too
        if label_ == mine.label or any(r.folder in folders for r in one.results):
            continue
        values = one.values(metric, group or OVERALL)
        if not values:
            continue
        told = difference(mine, one, key, style) or "no common seed"
        lines.append(
            f"{what}against {label_}"
            f" ({style.scale * np.mean(values):.{style.digits}f}): {told}"
            f"{mark_below(mine, one, groups.values(), key)}"
        )
    return lines


def versus(title: str, groups: Sequence[Group], key: str, base: str | None = None) -> str:
    """A line for every system, best first, and one for each pair, with both tests: the best against
    each other, or each against the system `base`. Raises InputError when there is no such system.
    """
    scores = {one.label: [score(t) for _, t in sorted(one.tallies(key).items())] for one in groups}
    order = sorted(groups, key=lambda one: -float(np.mean(scores[one.label])))
    style = style_of(order[0])
    s, d = style.scale, style.digits
    count = len(next(iter(order[0].tallies(key).values())))
    lines = [f"{title}, {count:,} {style.over}, the same for all"]
    width = max(30, 2 + max(len(one.label) for one in order))
    for one in order:
        own = scores[one.label]
        sd = f" ± {s * np.std(own, ddof=1):.{d}f}" if len(own) > 1 else ""
        low, high = one.interval(key) or (float("nan"), float("nan"))
        numbers = ",".join(map(str, sorted(one.tallies(key))))
        seeds = "" if one.results[0].kind == "linking" else f"  {one.kind} seeds {numbers}"
        lines.append(
            f"{one.label:<{width}}{s * np.mean(own):.{d}f}{sd}  95 % interval {s * low:.{d}f} to"
            f" {s * high:.{d}f}{seeds}"
        )
    return "\n".join([*lines, *format_tests(order, key, base)])


def format_tests(order: Sequence[Group], key: str, base: str | None = None) -> list[str]:
    """A line for each pair of systems, in the order of their scores: the best against each other,
    or each against `base`, with both tests."""
    lines = []
    pairs = _pairs(order, base)
    tests = [found[0] if (found := pair_results(one, other, key)) else None for one, other in pairs]
    told = iter(adjust_holm([p for c in tests if c and (p := c.p_seeds) is not None]))
    for (one, other), test in zip(pairs, tests, strict=True):
        line = difference(one, other, key, style_of(one)) or "no common seed"
        if len(pairs) > 1 and test and test.p_seeds is not None:
            line += f", by Holm over these {p_value(next(told))}"
        lines.append(
            f"{one.label} against {other.label}: {line}{mark_below(one, other, order, key)}"
        )
    return lines


def _pairs(order: Sequence[Group], base: str | None) -> list[tuple[Group, Group]]:
    if base is None:  # a baseline is what others are compared with, also where it is the best
        best = next((one for one in order if not one.is_trivial), order[0])
        return [(best, other) for other in order if other is not best]
    named = [one for one in order if one.label == base.replace("/", "-")]
    if not named:
        raise InputError(
            f"BASE={base}: not scored here; {list_known(base, sorted(s.label for s in order))}"
        )
    return [(one, named[0]) for one in order if one is not named[0]]


# MLflow


def log_result(result: Result, experiment: str, folder: str | Path) -> str:
    """A new MLflow run of a result: protocol, model and options as parameters, scores as metrics.
    Returns its id.

    folder: of the result. Where MLflow does not answer the run's journal stays there for `kepl
        sync`, and the id is "".
    """
    place = Path(folder) / f"mlflow-{secrets.token_hex(4)}"
    journal = Journal(
        place, experiment, result.label, {"kind": result.kind, "commit": result.commit or commit()}
    )
    journal.params({**result.protocol, "model": result.model.identity, **result.options})
    journal.metrics(
        {_name(result, g, m): v for g, own in result.scores.items() for m, v in own.items()}
    )
    journal.end()
    run = journal.run_id if journal.close() else ""
    if run:
        shutil.rmtree(place)
    return run


def _name(result: Result, group: str, metric: str) -> str:
    return f"{result.split if group == OVERALL else group}/{metric}"
