"""Arguments that are checked against annotations: what fits, and what is said where it does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest

from core.files import InputError
from core.typed import check_fields, check_types

if TYPE_CHECKING:
    from decimal import Decimal


@check_types
def called(
    path: str | Path,
    names: Sequence[str] = (),
    least: float | None = None,
    *,
    count: int = 1,
    way: Literal["a", "b"] = "a",
    span: tuple[int, int] = (0, 1),
    found: Counter[str] | None = None,
    given: Mapping[str, int] | None = None,
    act: Callable[[str], object] = print,
    every: Iterable[int] = (),
    any_: Any = None,
    later: Decimal | None = None,
    flag: bool = False,
    several: Sequence[Decimal] = (),
    **more: int,
) -> str:
    return str(path)


def test_what_fits() -> None:
    from decimal import Decimal

    assert called("x") == "x" and called(Path("y"), ["a"], 1) == "y"
    called("x", ("a",), np.float32(0.5), count=np.int64(3), way="b", span=(2, 3), found=Counter())
    called("x", given={"a": 1}, act=len, every=iter([1]), any_=object(), later=Decimal(1), other=3)
    called("x", several=[Decimal(2)])
    with pytest.raises(InputError, match=r"way: expected 'a' or 'b', got str \('c'\)"):
        called("x", way="c")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"path": None}, r"called: path: expected str or Path, got NoneType \(None\)"),
        ({"path": 3}, r"path: expected str or Path, got int \(3\)"),
        ({}, r"called: missing a required argument: 'path'"),
        ({"names": "abc"}, r"names: expected a sequence of str, got str \('abc'\)"),
        ({"names": ["a", 3]}, r"names: expected a sequence of str, got list"),
        ({"least": "0.5"}, r"least: expected float or None, got str"),
        ({"least": True}, r"least: expected float or None, got bool"),
        ({"count": 1.5}, r"count: expected int, got float"),
        ({"way": 3}, r"way: expected 'a' or 'b', got int \(3\)"),
        ({"several": [1]}, r"several: expected a sequence of Decimal, got list"),
        ({"span": (1, 2, 3)}, r"span: expected a tuple of int, int, got tuple"),
        ({"found": {}}, r"found: expected .* or None, got dict"),
        ({"given": [("a", 1)]}, r"given: expected a mapping or None, got list"),
        ({"act": "print"}, r"act: expected a function, got str"),
        ({"every": 3}, r"every: expected an iterable of int, got int"),
        ({"every": {"a"}}, r"every: expected an iterable of int, got set"),
        ({"later": 1.0}, r"later: expected Decimal or None, got float"),
        ({"flag": "no"}, r"flag: expected bool, got str"),
    ],
)
def test_what_does_not_fit(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        called(**({"path": "x"} if arguments else {}) | arguments)


@dataclass
class Settings:
    size: int = 1
    way: Literal["a"] = "a"

    def __post_init__(self) -> None:
        check_fields(self)


def test_fields_of_a_dataclass() -> None:
    Settings(2)
    with pytest.raises(TypeError, match=r"Settings: size: expected int, got str \('2'\)"):
        Settings("2")  # type: ignore[arg-type]
