"""The English tasks' files in their real formats, with invented text. `write(dataset, folder)` as
for the Chinese ones."""

from __future__ import annotations

import zipfile
from pathlib import Path
from xml.sax.saxutils import quoteattr

FOLDERS = {
    "BC5-chem": ("BC5CDR-chem-IOB", "Chemical"),
    "BC5-disease": ("BC5CDR-disease-IOB", "Disease"),
    "NCBI": ("NCBI-disease-IOB", "Disease"),
    "BC2GM": ("BC2GM-IOB", "GENE"),
    "JNLPBA": ("JNLPBA-IOB", "protein"),
}
#: tokens with tags; X is the data set's type
SENTENCES = [
    [("Foozin", "B-X"), ("cures", "O"), ("bar", "B-X"), ("pox", "I-X"), (".", "O")],
    [("Two", "O"), ("qux", "B-X"), ("zyxes", "B-X"), ("failed", "O")],
    [("Nothing", "O"), ("here", "O")],
]
GAD = [
    ("The A1 allele of @GENE$ was seen with @DISEASE$ in mice.", "1"),
    ("No link of @GENE$ to @DISEASE$ was seen.", "0"),
]
Row = tuple[str, ...]


def _write(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode())
    return path


def iob(path: Path, sentences: list = SENTENCES, kind: str = "Disease") -> Path:
    """The MTL corpora's token, tab, tag."""
    blocks = ["".join(f"{w}\t{t.replace('X', kind)}\n" for w, t in s) for s in sentences]
    return _write(path, "\n".join(blocks))


def tsv(path: Path, rows: list[Row]) -> Path:
    return _write(path, "".join("\t".join(row) + "\n" for row in rows))


#: id, title, abstract
ABSTRACTS: list[Row] = [
    (
        "11",
        "Foozin and BAR1.",
        "Foozin (e.g. 5 mg) inhibits BAR1. It spares QUX2, as Smith et al. Say. Zyxol-QUX2 binds.",
    ),
    ("12", "Nothing much.", "No names stand here."),
]
#: document, key, type, surface, how many times it occurs before
NAMES = [
    ("11", "T1", "CHEMICAL", "Foozin", 0),
    ("11", "T2", "GENE-Y", "BAR1", 0),
    ("11", "T3", "CHEMICAL", "Foozin", 1),
    ("11", "T4", "GENE-N", "BAR1", 1),
    ("11", "T5", "GENE-Y", "QUX2", 0),
    ("11", "T6", "CHEMICAL", "Zyxol", 0),
    ("11", "T7", "GENE-Y", "Zyxol-QUX2", 0),
]
#: two relations of one pair, one relation between two sentences
GOLD: list[Row] = [
    ("11", "CPR:4", "Arg1:T3", "Arg2:T4"),
    ("11", "CPR:3", "Arg1:T3", "Arg2:T4"),
    ("11", "CPR:9", "Arg1:T6", "Arg2:T7"),
    ("11", "CPR:5", "Arg1:T3", "Arg2:T5"),
]


def entities(abstracts: list[Row] = ABSTRACTS, names: list = NAMES) -> list[Row]:
    texts = {name: f"{title} {abstract}" for name, title, abstract in abstracts}
    rows = []
    for document, key, kind, surface, before in names:
        at = -1
        for _ in range(before + 1):
            at = texts[document].index(surface, at + 1)
        rows.append((document, key, kind, str(at), str(at + len(surface)), surface))
    return rows


def chemprot(
    stem: Path, end: str = "", abstracts: list = ABSTRACTS, names: list = NAMES, gold: list = GOLD
) -> list[Path]:
    """ChemProt's three tables `stem`abstracts`end`.tsv …"""
    return [
        tsv(stem.parent / f"{stem.name}abstracts{end}.tsv", abstracts),
        tsv(stem.parent / f"{stem.name}entities{end}.tsv", entities(abstracts, names)),
        tsv(stem.parent / f"{stem.name}gold_standard.tsv", gold),
    ]


#: sentence, entities (charOffset, text), pairs (entity, entity, type or "false" or "" for true
#: without a type)
DRUGS = [
    ("Foozin raises barol.", [("0-5", "Foozin"), ("14-18", "barol")], [(0, 1, "mechanism")]),
    (
        "Take mu- or nu-blocking quxes & foozin.",
        [("5-7;15-28", "mu-blocking quxes"), ("12-28", "nu-blocking quxes"), ("32-37", "foozin")],
        [(0, 1, "false"), (0, 2, "advise"), (1, 2, "effect")],
    ),
    ("No drug here.", [], []),
    ("Alfin betin.", [("0-4", "Alfin"), ("6-10", "betin")], [(0, 1, "int")]),
]


def ddi_document(name: str, sentences: list = DRUGS) -> str:
    rows = ['<?xml version="1.0" encoding="UTF-8"?>', f'<document id="{name}">']
    for i, (text, given, pairs) in enumerate(sentences):
        rows.append(f'<sentence id="{name}.s{i}" text={quoteattr(text)}>')
        for j, (offset, surface) in enumerate(given):
            rows.append(
                f'<entity id="{name}.s{i}.e{j}" charOffset="{offset}"\n type="drug"'
                f" text={quoteattr(surface)}/>"
            )
        for j, (one, two, kind) in enumerate(pairs):
            label = (
                'ddi="false"'
                if kind == "false"
                else 'ddi="true"' + (f' type="{kind}"' if kind else "")
            )
            rows.append(
                f'<pair id="{name}.s{i}.p{j}" e1="{name}.s{i}.e{one}"\n e2="{name}.s{i}.e{two}"'
                f" {label}/>"
            )
        rows.append("</sentence>")
    return "\n".join([*rows, "</document>\n"])


def ddi(path: Path, train: int = 6, test: int = 2) -> Path:
    """The corpus' zip archive, with the folders and stray files of the real one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("DDICorpus/.DS_Store", b"\0")
        for i in range(train):
            archive.writestr(
                f"DDICorpus/Train/DrugBank/Drug {i}_ddi.xml", ddi_document(f"DDI-DrugBank.d{i}")
            )
        for i in range(test):
            name = f"DDICorpus/Test/Test for DDI Extraction task/MedLine/{i}.xml"
            archive.writestr(name, ddi_document(f"DDI-MedLine.d{i}"))
            archive.writestr(
                f"DDICorpus/Test/Test for DrugNER task/MedLine/{i}.xml", ddi_document(f"X.d{i}")
            )
    return path


def gad(path: Path, indexed: bool = False, rows: list = GAD) -> Path:
    """GAD in BioBERT's form: train without, test with a first line and an index."""
    head: list[Row] = [("index", "sentence", "label")] if indexed else []
    body = [(str(i), *row) if indexed else row for i, row in enumerate(rows)]
    return tsv(path, head + body)


def write(dataset: str, folder: Path) -> Path:
    """The data set's folder with train, dev and test; GAD's train has 540 sentences, since 535 of
    them become dev."""
    if dataset in FOLDERS:
        name, kind = FOLDERS[dataset]
        for split in ("train", "devel", "test"):
            iob(
                folder / name / f"{split}.tsv",
                SENTENCES if split == "train" else SENTENCES[:2],
                kind,
            )
    elif dataset == "ChemProt":
        chemprot(folder / "chemprot_training/chemprot_training_")
        chemprot(folder / "chemprot_development/chemprot_development_")
        chemprot(folder / "chemprot_test_gs/chemprot_test_", "_gs")
    elif dataset == "DDI":
        ddi(folder / "DDICorpus-2013.zip", train=600)
    elif dataset == "GAD":
        gad(
            folder / "gad/train.tsv",
            rows=[(f"{i} {t}", label) for i in range(270) for t, label in GAD],
        )
        gad(folder / "gad/test.tsv", indexed=True)
    return folder
