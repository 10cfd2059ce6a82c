"""Settings NAME=VALUE of the linking commands, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.files import InputError


def choice(given: Mapping[str, str], key: str, allowed: Sequence[str], default: str) -> str:
    """A setting's value. Raises InputError for one that is not among those allowed."""
    value = given.get(key) or default
    if value not in allowed:
        raise InputError(f"{key}={value}: choose from: {', '.join(allowed)}")
    return value


def number(given: Mapping[str, str], key: str, default: int, least: int = 1) -> int:
    """A setting's number. Raises InputError for anything else, and for one below `least`."""
    value = given.get(key) or str(default)
    if not value.isdigit() or int(value) < least:
        raise InputError(f"{key}={value}: wanted a number of at least {least}")
    return int(value)


def device_of(given: Mapping[str, str]) -> str:
    """DEVICE=, or the CPU. Raises InputError for a GPU that is not there."""
    device = given.get("DEVICE") or "cpu"
    if device.startswith("cuda"):
        import torch

        if not torch.cuda.is_available():
            raise InputError(f"DEVICE={device}: no GPU here; take DEVICE=cpu")
    return device
