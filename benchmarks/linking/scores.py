"""Scores of rankings, by stated rules, and the evaluation protocol that says which.

rank       how many concepts of a ranking must be looked at until a mention is right; 0: not among
           those ranked
acc@k      share of mentions with 1 <= rank <= k;   mrr   mean of 1 / rank, 0 where rank is 0
parts      every string of a composite mention must be right
union      (BioSyn's rule) a string is right when its concept has any of the mention's gold ids
each       every string must hit a gold concept, and every gold concept must be hit by one of the
           strings
NIL        a mention none of whose gold ids is in the dictionary is wrong, or left out (and counted)
ids        a concept is right under any of its ids
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from datamodules.linking import Dictionary, Mention
from inference.linkers import DEPTH, Names, Ranking
from models.metrics import score

METRICS = ("acc@1", "acc@5", "mrr")


def _first(ranking: Ranking, concepts: frozenset[str]) -> int | None:
    return next((i for i, c in enumerate(ranking, 1) if c.concept in concepts), None)


def right_concepts(mention: Mention, dictionary: Dictionary) -> frozenset[str]:
    """The concepts of all gold ids of a mention."""
    return frozenset().union(*(dictionary.concepts_of(ids) for ids in mention.gold))


def is_tied(rankings: Sequence[Ranking]) -> bool:
    """Whether several concepts are tied for the first place of a mention of one string."""
    return len(rankings) == 1 and bool(rankings[0]) and rankings[0][0].tied


def rank_of(
    mention: Mention, rankings: Sequence[Ranking], dictionary: Dictionary, composite: str = "union"
) -> int:
    """The rank of a mention, from the ranking of each of its parts."""
    ranks: list[int | None]
    if composite == "union":
        right = right_concepts(mention, dictionary)
        ranks = [_first(r, right) for r in rankings]
    else:
        gold = [dictionary.concepts_of(ids) for ids in mention.gold]
        places = [[_first(r, g) for g in gold] for r in rankings]  # (parts, gold concepts)
        lines = [*places, *(list(column) for column in zip(*places, strict=True))]
        ranks = [min((p for p in line if p is not None), default=None) for line in lines]
    return 0 if any(r is None for r in ranks) else max(r for r in ranks if r is not None)


def tallies(ranks: np.ndarray) -> dict[str, np.ndarray]:
    """{metric: (n, 2) per mention: what it counts, 1}, as models.metrics takes them."""
    ones = np.ones(len(ranks))
    hits = {
        "acc@1": ranks == 1,
        "acc@5": (ranks >= 1) & (ranks <= 5),
        "mrr": np.where(ranks > 0, 1 / np.maximum(ranks, 1), 0),
    }
    return {
        metric: np.stack([values.astype(float), ones], axis=1) for metric, values in hits.items()
    }


def scores(ranks: np.ndarray) -> dict[str, float]:
    return {metric: score(t) for metric, t in tallies(ranks).items()} if len(ranks) else {}


def split_ties(
    mentions: Sequence[Mention],
    ranked: Sequence[Sequence[Ranking]],
    ranks: np.ndarray,
    dictionary: Dictionary,
) -> np.ndarray:
    """(mentions,) float: 1 or 0 as Acc@1 counts a mention, or the share of right concepts among
    those tied for the first place.

    Tied are concepts of one name that nothing decides between (inference.linkers). A composite
    mention counts as it is.
    """
    values = (ranks == 1).astype(float)
    for row, (mention, rankings) in enumerate(zip(mentions, ranked, strict=True)):
        if is_tied(rankings):
            best = rankings[0][0]
            tied = [
                c.concept
                for c in rankings[0]
                if c.tied and (c.name, c.score) == (best.name, best.score)
            ]
            right = right_concepts(mention, dictionary)
            values[row] = sum(concept in right for concept in tied) / len(tied)
    return values


# sub-populations (GenBioEL, Table 8)


def populations(
    mentions: Sequence[Mention], train: Sequence[Mention], names: Names
) -> dict[str, np.ndarray]:
    """{name: which mentions belong to it}. Strings are compared normalised, concepts by their gold
    ids.

    direct match: each string is a name of one of the mention's gold concepts in the dictionary;
    shared name: a string is a name of several concepts; top 100: one of its ids is among the 100
    that train has most often (of equally frequent ones those that sort first).
    """
    normalised = names.normalised
    strings = {normalised(m.mention) for m in train}
    frequent: Counter[str] = Counter()
    for m in train:
        for gold in m.gold:
            frequent.update(gold)
    top = {i for i, _ in sorted(frequent.items(), key=lambda item: (-item[1], item[0]))[:100]}
    rows = []
    for m in mentions:
        ids = set[str]().union(*m.gold)
        concepts = names.dictionary.concepts_of(ids)
        direct = all(concepts & set(names.concepts.get(normalised(p), ())) for p in m.parts)
        seen = normalised(m.mention) in strings
        several = len(m.mention.split()) > 1
        seen_concept = bool(ids & set(frequent))
        shared = any(len(names.concepts.get(normalised(p), ())) > 1 for p in m.parts)
        rows.append(
            (
                not several,
                several,
                seen,
                not seen,
                seen_concept,
                not seen_concept,
                direct,
                not direct,
                shared,
                bool(ids & top),
                len(m.parts) > 1,
            )
        )
    titles = (
        "single word",
        "multi-word",
        "seen mention",
        "unseen mention",
        "seen concept",
        "unseen concept",
        "direct match",
        "not direct match",
        "shared name",
        "top 100",
        "composite",
    )
    table = np.array(rows, dtype=bool).reshape(-1, len(titles))
    return {title: table[:, i] for i, title in enumerate(titles)}


LENGTHS = ((1, 4), (5, 8), (9, None))  # characters of a mention, inclusive
FEWEST = 20  # mentions of a kind whose scores are reported


def language_populations(mentions: Sequence[Mention]) -> dict[str, np.ndarray]:
    """{name: which mentions belong to it} of a task across languages: by their length in
    characters, and by the kind of their term where at least 20 mentions have it.

    Words, which :func:`populations` counts, are not written apart in Chinese.
    """
    lengths = np.array([len(m.mention) for m in mentions], np.int64)
    groups = {}
    for least, most in LENGTHS:
        title = f"{least} to {most} characters" if most else f"{least} characters or more"
        groups[title] = (lengths >= least) & (lengths <= (most or lengths.max(initial=0)))
    kinds = np.array([m.kind for m in mentions], object)
    for kind, count in sorted(Counter(kinds).items()):
        if kind and count >= FEWEST:
            groups[f"kind: {kind}"] = kinds == kind
    return groups


# errors


def reason(mention: Mention, rankings: Sequence[Ranking], rank: int, names: Names) -> str:
    """Why a mention is wrong, as far as data can tell; "right" when it is not. The first that
    holds, in this order."""
    if rank == 1:
        return "right"
    dictionary = names.dictionary
    gold = right_concepts(mention, dictionary)
    if not gold:
        return "gold not in the dictionary"
    if len(mention.parts) > 1:
        return "composite"
    if not rankings[0]:
        return "no candidate"
    best = rankings[0][0]
    if gold & set(names.concepts[best.name]):
        return "one name, several concepts"
    if names.normalised(mention.parts[0]) == best.name:
        return "exact name of another concept"
    above = dictionary.broader.get(best.concept, ())
    if gold & set(above):
        return "near miss: narrower than gold"
    if any(best.concept in dictionary.broader.get(g, ()) for g in gold):
        return "near miss: broader than gold"
    if any(set(above) & set(dictionary.broader.get(g, ())) for g in gold):
        return "near miss: beside gold"
    if not rank:
        return "far off"
    return f"gold among the first {5 if rank <= 5 else DEPTH}"


def prediction(
    mention: Mention, rankings: Sequence[Ranking], rank: int, names: Names
) -> dict[str, Any]:
    """A line of predictions.jsonl: gold and prediction with their names, rank and reason."""
    dictionary = names.dictionary
    return {
        "id": mention.id,
        "document": mention.document,
        "mention": mention.mention,
        "parts": mention.parts,
        "gold": mention.gold,
        "gold_names": [_names_of(g, names) for g in mention.gold],
        "predicted": [r[0].concept if r else None for r in rankings],
        "predicted_names": [r[0].name if r else None for r in rankings],
        "score": [r[0].score if r else None for r in rankings],
        "first5": [[c.concept for c in r[:5]] for r in rankings],
        "rank": rank,
        "reason": reason(mention, rankings, rank, names),
        "in_dictionary": bool(right_concepts(mention, dictionary)),
    }


def _names_of(gold: Sequence[str], names: Names) -> list[str]:
    result: list[str] = []
    for concept in sorted(names.dictionary.concepts_of(gold)):
        result += names.dictionary.names_of[concept]
    return result[:3]
