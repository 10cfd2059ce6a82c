"""Systems compared: paired tests of two groups of results, and the lines that report them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.groups import Group, find_differences, group_results
from benchmarks.results import OVERALL, Result
from core.choices import list_known
from core.files import InputError
from models.metrics import Comparison, adjust_holm, compare_systems, score


class Style(NamedTuple):
    """How scores of a kind are printed: times `scale` with `digits`; what the bootstrap samples."""

    scale: float
    digits: int
    over: str


STYLES = {
    "finetune": Style(1, 4, "examples"),
    "linking": Style(100, 2, "mentions"),
    "synonyms": Style(100, 2, "samples"),
    "probing": Style(100, 2, "queries"),
}


def style_of(group: Group) -> Style:
    """How a system's scores are printed. What a chain finds in running text is counted by text."""
    first = group.results[0]
    style = STYLES[first.kind]
    return style._replace(over="texts") if "gold" in first.protocol else style


def p_value(p: float) -> str:
    """A p-value of a t-test as text, which may be smaller than any number of digits shows."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def pair_results(system: Group, other: Group, key: str) -> tuple[Comparison, list[int]] | None:
    """(first minus other over the seeds that they share, these seeds); None without a common
    seed, or other examples."""
    tallies, theirs = system.tallies(key), other.tallies(key)
    if not tallies or not theirs:
        return None
    if not system.has_seeds and set(tallies) == {0}:
        tallies = dict.fromkeys(theirs, tallies[0])
    elif not other.has_seeds and set(theirs) == {0}:
        theirs = dict.fromkeys(tallies, theirs[0])
    elif system.kind != other.kind:
        if system.results[0].kind != "linking":
            return None
        # seeds of pre-training and of fine-tuning are no pairs; the mentions are
        tallies, theirs = _pool(tallies), _pool(theirs)
    common = sorted(set(tallies) & set(theirs))
    if not common or any(tallies[s].shape != theirs[s].shape for s in common):
        return None
    base, compared = {s: theirs[s] for s in common}, {s: tallies[s] for s in common}
    return compare_systems(base, compared), common


def _pool(tallies: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
    """The tallies of all seeds as those of one."""
    return {0: np.sum(list(tallies.values()), axis=0)}


def difference(
    system: Group, other: Group, key: str, style: Style, brackets: bool = False
) -> str | None:
    """The difference of two systems as text, with both tests; None where they cannot be paired."""
    paired = pair_results(system, other, key)
    if paired is None:
        return None
    c, seeds = paired
    s, d = style.scale, style.digits
    ends = (f"{s * c.low:+.{d}f}", f"{s * c.high:+.{d}f}")
    interval = f"[{ends[0]}, {ends[1]}]" if brackets else f"95 % interval {ends[0]} to {ends[1]}"
    t = ""
    if c.p_seeds is not None:
        t = f", paired t over {len(seeds)} {system.kind} seeds {p_value(c.p_seeds)}"
    first = f"{s * c.difference:+.{d}f}"
    is_trained = system.results[0].kind in ("finetune", "linking") and system.has_seeds
    one_seed = is_trained and len(system.tallies(key)) == 1
    of_one_seed = f"{style.over} of one seed" if one_seed else style.over
    over = f"seeds and {style.over}" if len(seeds) > 1 else of_one_seed
    seed_sets = [{*group.tallies(key)} for group in (system, other) if group.has_seeds]
    same_kind = system.kind == other.kind
    if same_kind and len(seed_sets) == 2 and seed_sets[0] != seed_sets[1]:
        first += f" over the seeds that both have ({','.join(map(str, seeds))})"
    return (
        f"{first}{' ' if brackets else ', '}{interval}, paired bootstrap over {over} p ="
        f" {c.p_bootstrap:.4f}{t}"
    )


BELOW = "both below the trivial baseline: no gain"


def mark_below(system: Group, other: Group, pool: Iterable[Group], key: str) -> str:
    """ " (both below the trivial baseline: no gain)" where that is so, else nothing: what the
    difference of two such systems says is not that one of them can do the task."""
    if system.is_trivial or other.is_trivial:
        return ""
    scores = [_mean_score(g, key) for g in (system, other)]
    trivial = [_mean_score(g, key) for g in pool if g.is_trivial and g.tallies(key)]
    is_below = bool(trivial) and np.max(scores) < max(trivial)  # never where a score is nan
    return f" ({BELOW})" if is_below else ""


def _mean_score(group: Group, key: str) -> float:
    """The mean over seeds of what the tallies of `key` come to; nan where none were kept."""
    scores = [score(t) for t in group.tallies(key).values()]
    return float(np.mean(scores)) if scores else float("nan")


def others(
    mine: Group, pool: Iterable[Result], key: str, skipped: Collection[str] = ()
) -> list[str]:
    """A line for each other system of the same protocol: mine minus its score, with both tests.

    skipped: folders of results whose comparison is printed elsewhere.
    """
    first = mine.results[0]
    style = style_of(mine)
    folders = {r.folder for r in mine.results}
    unshown = folders | {*skipped}
    same = [
        r
        for r in pool
        if not find_differences(first.protocol, r.protocol) and r.folder not in folders
    ]
    group, _, metric = key.rpartition("/")
    part = group if metric == first.metric or not group else f"{group} {metric}"
    what = f"{part}, " if part else ""
    lines = []
    groups = group_results([*same, *mine.results])
    for label, system in groups.items():
        # itself, of other seeds too
        if label == mine.label or any(r.folder in unshown for r in system.results):
            continue
        values = system.values(metric, group or OVERALL)
        if not values:
            continue
        tests = difference(mine, system, key, style) or "no common seed"
        lines.append(
            f"{what}against {label}"
            f" ({style.scale * np.mean(values):.{style.digits}f}): {tests}"
            f"{mark_below(mine, system, groups.values(), key)}"
        )
    return lines


def versus(title: str, groups: Sequence[Group], key: str, base: str | None = None) -> str:
    """A line for every system, best first, and one for each pair, with both tests: the best against
    each other, or each against the system `base`. Raises InputError when there is no such system.
    """
    scores: dict[str, list[float]] = {}
    for system in groups:
        by_seed = system.tallies(key)
        scores[system.label] = [score(by_seed[seed]) for seed in sorted(by_seed)]
    order = sorted(groups, key=lambda system: -float(np.mean(scores[system.label])))
    style = style_of(order[0])
    s, d = style.scale, style.digits
    tallies = next(iter(order[0].tallies(key).values()))
    lines = [f"{title}, {len(tallies):,} {style.over}, the same for all"]
    width = max(30, 2 + max(len(system.label) for system in order))
    for system in order:
        system_scores = scores[system.label]
        sd = f" ± {s * np.std(system_scores, ddof=1):.{d}f}" if len(system_scores) > 1 else ""
        low, high = system.interval(key) or (float("nan"), float("nan"))
        numbers = ",".join(map(str, sorted(system.tallies(key))))
        linked_once = system.results[0].kind == "linking" and len(system_scores) == 1
        seeds = "" if linked_once else f"  {system.kind} seeds {numbers}"
        lines.append(
            f"{system.label:<{width}}{s * np.mean(system_scores):.{d}f}{sd}  95 % interval"
            f" {s * low:.{d}f} to {s * high:.{d}f}{seeds}"
        )
    return "\n".join([*lines, *format_tests(order, key, base)])


def format_tests(order: Sequence[Group], key: str, base: str | None = None) -> list[str]:
    """A line for each pair of systems, in the order of their scores: the best against each other,
    or each against `base`, with both tests."""
    lines = []
    pairs = _pairs(order, base)
    compared = [pair_results(system, other, key) for system, other in pairs]
    p_seeds = [paired[0].p_seeds if paired else None for paired in compared]
    adjusted = iter(adjust_holm([p for p in p_seeds if p is not None]))
    for (system, other), p in zip(pairs, p_seeds, strict=True):
        line = difference(system, other, key, style_of(system)) or "no common seed"
        if len(pairs) > 1 and p is not None:
            line += f", by Holm over these {p_value(next(adjusted))}"
        lines.append(
            f"{system.label} against {other.label}: {line}{mark_below(system, other, order, key)}"
        )
    return lines


def _pairs(order: Sequence[Group], base: str | None) -> list[tuple[Group, Group]]:
    if base is None:  # a baseline is what others are compared with, also where it is the best
        best = next((system for system in order if not system.is_trivial), order[0])
        return [(best, other) for other in order if other is not best]
    named = [system for system in order if system.label == base.replace("/", "-")]
    if not named:
        raise InputError(
            f"BASE={base}: not scored here; {list_known(base, sorted(s.label for s in order))}"
        )
    return [(system, named[0]) for system in order if system is not named[0]]
