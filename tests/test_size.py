"""How large the code is counted to be: comments, docstrings and line breaks are not code."""

from __future__ import annotations

from bin.size import measure

TEXT = '''"""What a module is about."""

LIMIT = 3  # a comment


def add(
    a: int, b: int = LIMIT
) -> int:
    """What a function does."""
    return a + b
'''


def test_tokens_and_lines_of_code_are_counted() -> None:
    size = measure(TEXT)
    # LIMIT = 3 | def add ( | a : int , b : int = LIMIT | ) - > int : | return a + b
    assert size.tokens == 3 + 3 + 9 + 4 + 4
    assert size.lines == 5


def test_long_functions_and_many_parameters_are_counted() -> None:
    body = "\n".join(f"    x = {number}" for number in range(60))
    few = measure(f"def f(a):\n{body}\n")
    assert (few.long_functions, few.many_parameters) == (1, 0)
    parameters = ", ".join(f"a{number}" for number in range(12))
    many = measure(f"async def f({parameters}):\n    pass\n")
    assert (many.long_functions, many.many_parameters) == (0, 1)
