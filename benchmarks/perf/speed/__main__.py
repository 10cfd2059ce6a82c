"""python -m benchmarks.perf.speed NAME [--json]: how many times better ours is than a plain
reference that must agree.

NAME is a module of this folder with `run() -> dict`: name, ours, reference, ratio (the worst over
its settings), equal (whether both returned the same), settings (one dict each). A module may have
`arguments(parser)`; what it adds goes to `run`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path
from typing import Any

from core.files import InputError

KEYS = ("name", "ours", "reference", "ratio", "equal", "settings")


def names() -> list[str]:
    """Benchmarks: the modules beside this file."""
    return sorted(p.stem for p in Path(__file__).parent.glob("*.py") if not p.stem.startswith("_"))


def table(result: dict[str, Any]) -> str:
    """A line of `key  value` for each setting's figures, then the summary."""
    lines = []
    for setting in result["settings"]:
        lines += [f"  {key:<22}{value}" for key, value in setting.items()] + [""]
    agree = "same results" if result["equal"] else "RESULTS DIFFER"
    lines.append(f"{result['name']}: {result['ratio']} times the reference at worst, {agree}")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.perf.speed", description=__doc__.splitlines()[0]
    )  # type: ignore[union-attr]
    parser.add_argument("name", help=f"one of: {', '.join(names())}")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object and nothing else"
    )
    given, rest = parser.parse_known_args(argv)
    if given.name not in names():
        print(f"no benchmark {given.name!r}; choose from: {', '.join(names())}", file=sys.stderr)
        return 2
    module = importlib.import_module(f"benchmarks.perf.speed.{given.name}")
    own = argparse.ArgumentParser(f"python -m benchmarks.perf.speed {given.name}")
    if hasattr(module, "arguments"):
        module.arguments(own)
    try:
        result = module.measure_speed(**vars(own.parse_args(rest)))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if missing := [key for key in KEYS if key not in result]:
        print(f"benchmark {given.name!r}: its result lacks {', '.join(missing)}", file=sys.stderr)
        return 1
    print(json.dumps(result, ensure_ascii=False) if given.json else table(result))
    return 0 if result["equal"] else 1


if __name__ == "__main__":
    sys.exit(main())
