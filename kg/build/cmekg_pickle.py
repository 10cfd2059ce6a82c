"""CMeKG's pickle, read without running anything."""

from __future__ import annotations

import pickle
import reprlib
from pathlib import Path
from typing import Any

from core.files import InputError
from core.reading import open_bytes

Heads = dict[str, dict[str, list[str]]]


def _is_text(value: str) -> bool:
    """Whether UTF-8 can hold it: a pickle's strings may have halves of surrogate pairs."""
    return value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value)


def _format_value(value: Any) -> str:
    """The beginning of a value that is none of a graph's, however deep it is and however many
    digits it has."""
    try:
        return reprlib.repr(value)
    except ValueError:
        return "of many digits"


class _Refused(Exception):
    """A pickle that would import or call something."""


class _Plain(pickle.Unpickler):
    """Reads dictionaries, lists and strings; whatever would import or call something is refused."""

    def find_class(self, module: str, name: str) -> Any:
        raise _Refused(f"it wants to run {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        raise _Refused(f"it refers to an object outside of it ({_format_value(pid)})")


def parse_pickle(path: Path) -> Heads:
    """{head: {predicate: [tail, ...]}} as the file has it.

    Raises InputError when the file is cut, would run code, or is something else; the message names
    the head.
    """
    wanted = "expected a pickle of {head: {predicate: [tail, ...]}}, strings only"
    with open_bytes(path) as handle:
        try:
            heads = _Plain(handle).load()
        except _Refused as error:
            raise InputError(
                f"{path}: {wanted}, but {error}; nothing was run. Take the file of PyCMeKG 0.2.5."
            ) from error
        # whatever the opcodes of a broken pickle lead to: MemoryError, OverflowError, TypeError …
        except Exception as error:
            raise InputError(
                f"{path}: {wanted}; it is cut or no pickle ({error}). Fetch it again."
            ) from error

    def broken(value: Any, what: str, *keys: Any) -> InputError:
        kinds = zip(("head", "predicate"), keys, strict=False)
        place = ", ".join(f"{kind} {_format_value(key)}" for kind, key in kinds) or "the whole"
        return InputError(
            f"{path}: {place}: expected {what}, got {type(value).__name__}"
            f" {_format_value(value):.60}. Take the file of PyCMeKG 0.2.5."
        )

    if not isinstance(heads, dict):
        raise broken(heads, "a dictionary of heads")
    for head, predicates in heads.items():
        if not isinstance(head, str) or not head.strip() or not _is_text(head):
            raise broken(head, "a name", head)
        if not isinstance(predicates, dict):
            raise broken(predicates, "a dictionary of predicates", head)
        for predicate, tails in predicates.items():
            if not isinstance(predicate, str) or not predicate.strip() or not _is_text(predicate):
                raise broken(predicate, "a name", head, predicate)
            if not isinstance(tails, list):
                raise broken(tails, "a list of tails", head, predicate)
            for tail in tails:
                if not isinstance(tail, str) or not _is_text(tail):
                    raise broken(tail, "strings as tails", head, predicate)
    return heads
