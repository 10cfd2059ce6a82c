"""The file of a sweep: which command, with which settings, in a grid or a search by Optuna.

    command: finetune cMedQANER          # or pretrain <paper>, evaluate <task>, synonyms, probe
    settings: {MIRROR: downloads/, SEEDS: "0,1"}       # of every run, as `make` accepts them
    grid:                                # every combination
      MODEL: [zh, embert]
      model.init_args.lr: [1.0e-4, 3.0e-4]
    runs:                                # optional: what is not in a grid; each with every
                                         # combination
      - {PROFILE: small}
    at_once: 2                           # optional; AT_ONCE= replaces it
    report: [test/entity_f1]             # optional: which metrics the table shows

or, instead of grid and runs,

    search: tpe                          # Optuna's tree-structured Parzen estimator
    space:
      model.init_args.lr: {log: [1.0e-5, 1.0e-3]}
      EPOCHS: {from: [1, 10]}
      MODEL: [zh, embert]
    trials: 20
    goal: select/entity_f1               # the metric to maximise; `-` before it minimises

Names in capitals are settings of the command; names with dots are settings of its configs
(`ARGS="--name value"`).
"""

from __future__ import annotations

import re
import shlex
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from core.choices import list_known
from core.files import InputError
from core.json_files import digest
from core.reading import excerpt
from core.yaml_files import read_yaml

#: command -> (its words, the MLflow experiment; both may name the command's own word)
COMMANDS = {
    "pretrain": ("pretrain {0}", "{0}"),
    "kg": ("pretrain kg/{0}", "kg"),
    "finetune": ("finetune {0}", "{0}"),
    "evaluate": ("evaluate {0}", "{0}"),
    "synonyms": ("synonyms", "synonyms"),
    "probe": ("probe", "probing"),
}

KEYS = (
    "command",
    "settings",
    "grid",
    "runs",
    "search",
    "space",
    "trials",
    "goal",
    "at_once",
    "report",
)

Value = str | int | float | bool

Point = dict[str, Value]
Range = list[Value] | tuple[float, float, bool]


class Search(NamedTuple):
    """A search by Optuna: choices, or (low, high, whether on a log scale) of each setting."""

    space: dict[str, Range]
    trials: int
    goal: str


class Sweep(NamedTuple):
    """The content of a sweep's file; the `points` of a search are its trials so far."""

    name: str
    words: list[str]
    experiment: str
    settings: Point
    points: list[Point]
    at_once: int
    report: list[str]
    search: Search | None = None

    @property
    def identity(self) -> str:
        """A digest of what is run, not of how many at once."""
        return digest([self.words, self.settings, self.search or self.points])[:12]


def _read_values(file: Path, key: str, mapping: Any) -> Point:
    """{name: value}. Raises InputError for what is no mapping of names to plain values."""
    if not isinstance(mapping, dict):
        raise InputError(f"{file}: {key}: expected names with values, got {excerpt(mapping)}")
    for name, value in mapping.items():
        if not isinstance(name, str) or not (
            re.fullmatch("[A-Z][A-Z0-9_]*", name) or re.fullmatch(r"\w+(\.\w+)+", name)
        ):
            raise InputError(
                f"{file}: {key}: {name!r} is no setting; expected a name in capitals (MODEL) or one"
                " of a config, with dots (model.init_args.lr)"
            )
        if isinstance(value, (dict, list)) or value is None:
            raise InputError(f"{file}: {key}: {name}: expected one value, got {excerpt(value)}")
    return dict(mapping)


def _names(mapping: Any) -> set[Any]:
    return {*mapping} if isinstance(mapping, dict) else set()


def read_sweep(file: str | Path) -> Sweep:
    """A sweep's file. Raises InputError for one that is not there, no YAML, or asks for what there
    is not."""
    file = Path(file)
    content = read_yaml(file, f"{', '.join(KEYS)} (kepl sweep --help)")
    if unknown := [key for key in content if key not in KEYS]:
        raise InputError(f"{file}: no key {unknown[0]!r}; {list_known(unknown[0], KEYS)}")
    command, *rest = shlex.split(str(content.get("command") or "")) or [""]
    if command not in COMMANDS:
        raise InputError(
            f"{file}: command: expected one of {', '.join(COMMANDS)}, got {command or 'none'!r}"
        )
    words, experiment = COMMANDS[command]
    if len(rest) != words.count("{0}"):
        raise InputError(
            f"{file}: command: expected `{command}{' NAME' * words.count('{0}')}`, got"
            f" {content['command']!r}"
        )
    option_words = " ".join(rest)
    settings = _read_values(file, "settings", content.get("settings") or {})
    at_once, report = content.get("at_once", 1), content.get("report") or []
    if type(at_once) is not int or at_once < 1:
        raise InputError(f"{file}: at_once: expected a number, 1 or more, got {at_once!r}")
    if not isinstance(report, list) or not all(isinstance(name, str) for name in report):
        raise InputError(f"{file}: report: expected a list of metrics, got {excerpt(report)}")
    grid_names, runs = _names(content.get("grid")), content.get("runs") or [{}]
    if not isinstance(runs, list):
        raise InputError(f"{file}: runs: expected a list, got {excerpt(runs)}")
    of_runs = set[Any]().union(*map(_names, runs))
    twice = grid_names & ({*settings} | of_runs) | {*settings} & _names(content.get("space"))
    if twice:
        raise InputError(
            f"{file}: {min(twice)}: it is there twice, with one value and with several. Name it"
            " once."
        )
    whole = Sweep(
        file.stem,
        words.format(option_words).split(),
        experiment.format(option_words),
        settings,
        [],
        at_once,
        report,
    )
    if "search" in content:
        return whole._replace(search=_read_search(file, content))
    points = _read_points(file, runs, content.get("grid") or {})
    if command == "finetune" and any("SEEDS" in p for p in points):
        raise InputError(
            f"{file}: SEEDS: all seeds of one fine-tuning are one run with children; give them in"
            ' settings, SEEDS: "0,1,2", not in grid or runs'
        )
    if len({digest(p) for p in points}) < len(points):
        raise InputError(f"{file}: a run is in it twice; each value of the grid may be named once")
    return whole._replace(points=points)


def _read_points(file: Path, runs: list[Any], grid: Any) -> list[Point]:
    """Every run with every combination of the grid. Raises InputError for what is no grid."""
    if not isinstance(grid, dict) or not all(isinstance(v, list) and v for v in grid.values()):
        raise InputError(
            f"{file}: grid: expected a list of values for every name, such as MODEL: [zh, minilm]"
        )
    points = []
    for run in runs:
        for values in product(*grid.values()):
            combination = dict(zip(grid, values, strict=True))
            points.append(_read_values(file, "runs", run) | _read_values(file, "grid", combination))
    return points


def _read_search(file: Path, content: dict[str, Any]) -> Search:
    """The search of a sweep's file. Raises InputError for what is none."""
    space, trials, goal = content.get("space"), content.get("trials", 20), content.get("goal")
    if content["search"] != "tpe":
        raise InputError(f"{file}: search: expected tpe, got {content['search']!r}")
    if "grid" in content or "runs" in content:
        raise InputError(f"{file}: a search has a space instead of grid and runs")
    if not isinstance(space, dict) or not space:
        raise InputError(
            f"{file}: space: expected settings with {{log: [low, high]}}, {{from: [low, high]}} or"
            " a list of values"
        )
    if type(trials) is not int or trials < 1 or not isinstance(goal, str):
        raise InputError(
            f"{file}: trials, goal: expected a number of trials and the name of a metric, got"
            f" {trials!r} and {goal!r}"
        )
    return Search(
        {name: _read_range(file, name, values) for name, values in space.items()}, trials, goal
    )


def _read_range(file: Path, name: str, values: Any) -> Range:
    """The values or the range from which a search draws a setting. Raises InputError."""
    match values:
        case [_, *_]:
            for value in values:
                _read_values(file, "space", {name: value})
            return list(values)
        case {"log": [low, high]} | {"from": [low, high]} if len(values) == 1 and {
            type(low),
            type(high),
        } <= {int, float}:
            log = "log" in values
            least = "above 0" if log else "at most the other"
            if low > high or (log and low <= 0):
                raise InputError(
                    f"{file}: space: {name}: expected a low end, {least}, and a high one, got"
                    f" {low} and {high}"
                )
            _read_values(file, "space", {name: 0})
            return low, high, log
    raise InputError(
        f"{file}: space: {name}: expected {{log: [low, high]}}, {{from: [low, high]}} or a"
        " list of values"
    )
