"""Commands as the tests call them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from core import call


def command(name: str) -> Callable[[Sequence[str]], int]:
    """A function that runs the command `name` with options, and returns its exit code."""
    return lambda words: call.main([*name.split(), *words])
