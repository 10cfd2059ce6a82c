"""Names of functions and classes in configuration, as dotted paths inside one room."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from core.files import InputError


def import_object(name: str, room: str) -> Any:
    """The object of `name` (``<room>.<file>.<function>``, or a class's method).

    Only what is defined in the project's own room is returned, so that a configuration cannot name
    arbitrary code: a library that a file imports (``models.finetune.torch.load``) is refused.
    Raises InputError.
    """
    parts = name.split(".")
    if parts[0] != room or len(parts) < 3:
        raise InputError(f"{name}: expected {room}.<file>.<function>")
    try:
        target: Any = importlib.import_module(".".join(parts[:2]))
        for place, part in enumerate(parts[2:], 3):
            if isinstance(target, ModuleType) and not hasattr(target, part):
                # a file of a package that nothing has imported yet
                importlib.import_module(".".join(parts[:place]))
            target = getattr(target, part)
    except (ImportError, AttributeError) as error:
        raise InputError(f"{name}: {error}. Expected {room}.<file>.<function>.") from error
    if str(getattr(target, "__module__", None)).partition(".")[0] != room:
        raise InputError(f"{name}: not defined in {room}. Expected {room}.<file>.<function>.")
    return target
