"""A small HPO release in the real formats, hp.obo, phenotype.hpoa, genes_to_phenotype.txt:
`write(folder, terms)`.

One connected tree below HP:0000001: a phenotype branch (most terms) and a mode-of-inheritance
branch. Definitions and comments name other terms by label, so that dictionary linking finds
mentions in them.
"""

from __future__ import annotations

import random
from pathlib import Path

from core.files import atomic_write

SITES = (
    "renal",
    "cardiac",
    "hepatic",
    "retinal",
    "dental",
    "gastric",
    "spinal",
    "nasal",
    "dermal",
    "cranial",
    "femoral",
    "thyroid",
)
FORMS = (
    "dysplasia",
    "atrophy",
    "stenosis",
    "hyperplasia",
    "fibrosis",
    "calcification",
    "oedema",
    "agenesis",
    "fistula",
    "inflammation",
)
TOP = [
    ("HP:0000001", "All", None),
    ("HP:0000118", "Phenotypic abnormality", "HP:0000001"),
    ("HP:0000005", "Mode of inheritance", "HP:0000001"),
    ("HP:0000006", "Dominant inheritance", "HP:0000005"),
]
HEADER = """#description: "fake HPO annotations"
#version: 2099-01-01
database_id\tdisease_name\tqualifier\thpo_id\treference\tevidence\tonset\tfrequency\tsex\tmodifier\taspect\tbiocuration
"""


def write(folder: Path, terms: int = 60, seed: int = 0) -> Path:
    """The three files in `folder`, with `terms` terms (at least 8, at most 124) besides one
    obsolete term.

    terms // 4 diseases of three phenotypes each (one more row is qualified NOT), terms // 6 genes,
    the last without a symbol.
    """
    if not 8 <= terms <= len(TOP) + len(SITES) * len(FORMS):
        raise ValueError(f"terms: expected 8 to {len(TOP) + len(SITES) * len(FORMS)}, got {terms}")
    draw = random.Random(seed)
    labels = [f"{site} {form}".capitalize() for form in FORMS for site in SITES]
    draw.shuffle(labels)
    rows = list(TOP)
    for number, label in enumerate(labels[: terms - len(TOP)], 1001):
        parent = rows[draw.choice([1, *range(4, len(rows))])][0]
        rows.append((f"HP:{number:07d}", label, parent))
    phenotypes = rows[4:]
    with atomic_write(folder / "hp.obo") as handle:
        handle.write(
            "format-version: 1.2\ndata-version: fake/2099-01-01\ndefault-namespace:"
            " human_phenotype\nproperty_value: terms:license https://example.org/licence\n"
        )
        for term_id, label, parent in rows:
            one, two = draw.sample(phenotypes, 2)
            handle.write(f"\n[Term]\nid: {term_id}\nname: {label}\n")
            handle.write(
                f'def: "A finding of {label.lower()} seen with {one[1].lower()} in most patients,'
                f' and sometimes followed by {two[1].lower()}." [PMID:{draw.randrange(10**7)}]\n'
            )
            if draw.random() < 0.5:
                handle.write(f"comment: To be distinguished from {two[1].lower()}.\n")
            if parent and label.count(" ") == 1:
                site, form = label.lower().split()
                handle.write(f'synonym: "{form} of the {site} region" EXACT []\n')
                handle.write(f'synonym: "{site} trouble {term_id[-2:]}" RELATED layperson []\n')
            if parent:
                handle.write(f"is_a: {parent} ! parent\n")
        handle.write("\n[Term]\nid: HP:0009999\nname: obsolete Finding\nis_obsolete: true\n")
    with atomic_write(folder / "phenotype.hpoa") as handle:
        handle.write(HEADER)
        for number in range(1, terms // 4 + 1):
            disease = f"OMIM:{100000 + number}\tSyndrome {number}"
            for place, (term_id, _, _) in enumerate(draw.sample(phenotypes, 4)):
                qualifier = "NOT" if place == 3 else ""
                handle.write(
                    f"{disease}\t{qualifier}\t{term_id}\tPMID:1\tPCS\t\t1/2\t\t\tP\tHPO:fake[2099-01-01]\n"
                )
            handle.write(f"{disease}\t\tHP:0000006\tPMID:1\tPCS\t\t\t\t\tI\tHPO:fake[2099-01-01]\n")
    with atomic_write(folder / "genes_to_phenotype.txt") as handle:
        handle.write("ncbi_gene_id\tgene_symbol\thpo_id\thpo_name\tfrequency\tdisease_id\n")
        genes = terms // 6
        for number in range(1, genes + 1):
            symbol = "-" if number == genes else f"GENE{number}"
            for term_id, label, _ in draw.sample(phenotypes, 2):
                handle.write(f"{number}\t{symbol}\t{term_id}\t{label}\t-\tOMIM:{100000 + number}\n")
    return folder
