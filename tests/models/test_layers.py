"""models.layers against loops over tokens."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.layers import added_to_spans, bio_spans, boundary_states, in_rows, unit_length


def brute_spans(labels: list[int]) -> list[tuple[int, int]]:
    """BIO decoding token by token: B opens, I continues or opens after O, everything else
    closes."""
    spans: list[list[int]] = []
    previous = 0
    for i, label in enumerate(labels):
        if label == 1 or (label == 2 and previous not in (1, 2)):
            spans.append([i, i + 1])
        elif label == 2:
            spans[-1][1] = i + 1
        previous = label
    return [(a, b) for a, b in spans]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from([0, 1, 2, -100]), min_size=7, max_size=7), min_size=1, max_size=4
    ),
    st.integers(1, 4),
)
def test_bio_spans_equal_brute_force(rows: list[list[int]], limit: int) -> None:
    wanted = [(r, a, b) for r, row in enumerate(rows) for a, b in brute_spans(row)]
    assert bio_spans(torch.tensor(rows)).tolist() == [list(w) for w in wanted]
    limited = [(r, a, b) for r, row in enumerate(rows) for a, b in brute_spans(row)[:limit]]
    assert bio_spans(torch.tensor(rows), limit).tolist() == [list(w) for w in limited]


def test_an_inside_label_after_outside_opens_a_span() -> None:
    assert bio_spans(torch.tensor([[0, 2, 2, 1, 2, 1, 0]])).tolist() == [
        [0, 1, 3],
        [0, 3, 5],
        [0, 5, 6],
    ]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from([0, 1, 2]), min_size=6, max_size=6), min_size=1, max_size=4),
    st.integers(0, 99),
)
def test_entities_are_on_exactly_their_tokens(rows: list[list[int]], seed: int) -> None:
    """KeBioLM D1: nothing behind a mention, nothing on other sentences' first tokens."""
    rng = torch.Generator().manual_seed(seed)
    hidden, spans = torch.randn(len(rows), 6, 5, generator=rng), bio_spans(torch.tensor(rows))
    addition = torch.randn(len(spans), 5, generator=rng)
    wanted = hidden.clone()
    for m, (row, start, end) in enumerate(spans.tolist()):
        for i in range(start, end):
            wanted[row, i] += addition[m]
    assert torch.equal(added_to_spans(hidden, spans, addition), wanted)


def test_boundary_states() -> None:
    hidden = torch.arange(24.0).view(2, 4, 3)
    got = boundary_states(hidden, torch.tensor([[0, 1, 3], [1, 2, 3]]))
    assert got.tolist() == [[3, 4, 5, 6, 7, 8], [18, 19, 20, 18, 19, 20]]


def test_no_span_at_all_changes_nothing_and_keeps_the_gradient() -> None:
    hidden, addition = torch.randn(1, 3, 2), torch.zeros(0, 2, requires_grad=True)
    out = added_to_spans(hidden, torch.zeros(0, 3, dtype=torch.long), addition)
    out.sum().backward()
    assert torch.equal(out, hidden) and addition.grad is not None


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 999), st.floats(1e-3, 1e3))
def test_unit_length_is_torch_s_with_its_gradient(seed: int, scale: float) -> None:
    x = scale * torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(seed))
    weight = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(seed + 1))
    results = []
    for function in (lambda x: torch.nn.functional.normalize(x, dim=-1), unit_length):
        argument = x.clone().requires_grad_()
        value = function(argument)
        (weight * value).sum().backward()
        results.append((value.detach(), argument.grad * scale))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)


def test_unit_length_of_zeros_is_zeros() -> None:
    x = torch.zeros(2, 4, requires_grad=True)
    unit = unit_length(x)
    assert torch.equal(unit, torch.zeros(2, 4))
    unit.sum().backward()
    assert torch.isfinite(x.grad).all()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=4), st.integers(0, 2))
def test_in_rows_numbers_the_spans_of_each_row(counts: list[int], more: int) -> None:
    """Span by span; a larger S leaves places empty."""
    spans = torch.tensor(
        [(row, i, i + 1) for row, n in enumerate(counts) for i in range(n)], dtype=torch.long
    ).view(-1, 3)
    size = max(1, *counts, 0) + more
    there, place = in_rows(spans, len(counts), size if more else None)
    assert there.tolist() == [[i < n for i in range(size)] for n in counts]
    assert place.tolist() == [row * size + i for row, n in enumerate(counts) for i in range(n)]
