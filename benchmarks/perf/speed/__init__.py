"""How many times better ours is than a plain reference that must return the same.

    kepl measure speed NAME [--json]

NAME is a module of this folder with `measure_speed(...) -> dict`: name, ours, reference, ratio (the
worst over its settings), equal (whether both returned the same), settings (one dict each). The
function's parameters are the options.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json as jsons
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from core.choices import list_known
from core.files import InputError
from core.settings import Option, options_of, with_options

KEYS = ("name", "ours", "reference", "ratio", "equal", "settings")


def speed_names() -> list[str]:
    """Benchmarks: the modules beside this file."""
    return sorted(p.stem for p in Path(__file__).parent.glob("*.py") if not p.stem.startswith("_"))


def speed_command(name: str) -> Callable[..., int]:
    """Measure how many times better ours is than a plain reference. Where the two do not return
    the same, the exit code is 1 and nothing is saved: a ratio of two different things says nothing.
    """
    names = speed_names()
    if name not in names:
        raise InputError(f"no benchmark {name!r}; {list_known(name, names)}")
    module = importlib.import_module(f"benchmarks.perf.speed.{name}")

    def print_speed(json: bool, **options: Any) -> int:
        result = module.measure_speed(**options)
        if missing := [key for key in KEYS if key not in result]:
            raise ValueError(f"benchmark {name!r}: its result lacks {', '.join(missing)}")
        if result["equal"]:
            save_speed(result)
        print(jsons.dumps(result, ensure_ascii=False) if json else table(result))
        return 0 if result["equal"] else 1

    about = f"{inspect.getdoc(module)}\n\n{inspect.getdoc(module.measure_speed)}"
    about = about.partition("\n\nArgs:")[0]
    options = options_of(module.measure_speed).values()
    option = Option("json", bool, False, "Print one JSON object.")
    return with_options(print_speed, about, [*options, option])


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """A block in which torch uses one thread."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def summarize(
    name: str, settings: Sequence[Mapping[str, Any]], unit: str | None = None
) -> dict[str, Any]:
    """The result of a benchmark: the figures of the setting with the worst ratio, and all."""
    worst = min(settings, key=lambda setting: setting["ratio"])
    figures = {key: worst[key] for key in ("ours", "reference", "ratio")}
    equal = all(setting["equal"] for setting in settings)
    result = {"name": name, "unit": unit, **figures, "equal": equal, "settings": settings}
    return result if unit else {key: result[key] for key in KEYS}


def save_speed(result: Mapping[str, Any]) -> None:
    """Save the figures of a benchmark and of each of its settings as a result, for `kepl
    publish`."""
    # here, since the processes whose memory is measured import this module
    from benchmarks.measurements import save_measurement
    from benchmarks.results import OVERALL

    scores = {OVERALL: {key: result[key] for key in ("ours", "reference", "ratio")}}
    for number, setting in enumerate(result["settings"], start=1):
        label = str(setting.get("setting", f"setting {number}"))
        scores[label] = {
            key: value
            for key, value in setting.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
    unit = result.get("unit") or ""
    save_measurement("speed", result["name"], "ratio", scores, unit=unit)


def table(result: dict[str, Any]) -> str:
    """A line of `key  value` for each setting's figures, then the summary."""
    lines = []
    for setting in result["settings"]:
        lines += [f"  {key:<22}{value}" for key, value in setting.items()] + [""]
    agree = "same results" if result["equal"] else "RESULTS DIFFER, not saved"
    lines.append(f"{result['name']}: {result['ratio']} times the reference at worst, {agree}")
    return "\n".join(lines)
