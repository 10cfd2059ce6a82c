"""Defaults of all options of all commands, and of what the YAML files construct, against
interface.json: whoever leaves an option out gets what it says. A changed default changes what a
command of a document does, and belongs in CHANGELOG.md.

    python -m tests.golden.test_interface      writes interface.json again
"""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from app.verbs import VERBS
from core.call import COMMANDS, load_function

FILE = Path(__file__).with_name("interface.json")
EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"


def list_classes(value: Any) -> Iterator[str]:
    """The dotted names under class_path in a YAML."""
    if isinstance(value, dict):
        if isinstance(value.get("class_path"), str):
            yield value["class_path"]
        for part in value.values():
            yield from list_classes(part)


def list_defaults(function: Any) -> dict[str, Any]:
    """{parameter: its default}, those of option groups included."""
    found: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        default = parameter.default
        if default is inspect.Parameter.empty or name == "self":
            continue
        nested = hasattr(type(default), "__dataclass_fields__")
        found[name] = list_defaults(type(default)) if nested else default
    return found


def describe_interface() -> dict[str, dict[str, Any]]:
    """{command or class: {option: default}}."""
    commands = {**VERBS, **COMMANDS}
    found = {
        f"kepl {name}": list_defaults(load_function(command.function))
        for name, command in commands.items()
        if not command.choices
    }
    classes: set[str] = set()
    for file in EXPERIMENTS.rglob("*.yaml"):
        classes |= {*list_classes(yaml.safe_load(file.read_text("utf-8")))}
    for name in sorted(classes):
        module, _, leaf = name.rpartition(".")
        if module.partition(".")[0] in ("models", "datamodules"):
            found[name] = list_defaults(getattr(importlib.import_module(module), leaf))
    written: dict[str, dict[str, Any]] = json.loads(json.dumps(found, default=str))
    return written


def test_defaults_of_commands_and_of_modules() -> None:
    assert describe_interface() == json.loads(FILE.read_text())


if __name__ == "__main__":
    FILE.write_text(f"{json.dumps(describe_interface(), indent=1, sort_keys=True)}\n")
