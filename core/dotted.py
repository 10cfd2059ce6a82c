"""Names of functions and classes in configuration, as dotted paths inside one room."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from core.files import InputError


def imported(name: str, room: str) -> Any:
    """What `name` (``<room>.<file>.<function>``, or a class's method) stands for.

    Only the project's own room is looked into, so that a configuration cannot name arbitrary code. Raises InputError.
    """
    parts = name.split(".")
    if parts[0] != room or len(parts) < 3:
        raise InputError(f"{name}: wanted {room}.<file>.<function>")
    try:
        found: Any = importlib.import_module(".".join(parts[:2]))
        for place, part in enumerate(parts[2:], 3):
            if isinstance(found, ModuleType) and not hasattr(found, part):
                importlib.import_module(".".join(parts[:place]))  # a file of a package that nothing has imported yet
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise InputError(f"{name}: {error}. Wanted {room}.<file>.<function>.") from error
    return found
