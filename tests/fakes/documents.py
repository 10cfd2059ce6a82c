"""Documents in the real file formats, and a small graph whose entities they mention."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from kg.graph import KnowledgeGraph, table

Rows = list[tuple[str, str, str]]
#: id, name, kind
NAMES = [
    ("C01", "Seizure", "preferred"),
    ("C01", "epileptic seizure", "synonym"),
    ("C02", "Diabetes mellitus", "preferred"),
    ("C03", "Type 2 diabetes mellitus", "preferred"),
    ("C03", "T2DM", "abbreviation"),
    ("C04", "Insulin", "preferred"),
    ("C05", "糖尿病", "preferred"),
]
#: id, title, abstract, mentions as (surface, entity) in order of their places
ARTICLES = [
    (
        "101",
        "Seizure in diabetes mellitus.",
        "A patient with type 2 diabetes mellitus (T2DM) had a seizure. T2DM persisted.",
        [("Seizure", "C01"), ("diabetes mellitus", "C02"), ("type 2 diabetes mellitus", "C03"), ("seizure", "C01")],
    ),
    (
        "102",
        "Insulin and CO2.",
        "Insulin was given; no epileptic seizure followed.",
        [("Insulin", "C04"), ("Insulin", "C04"), ("epileptic seizure", "C01")],
    ),
    ("103", "患者有糖尿病史", "Nothing else.", [("糖尿病", "C05")]),
]


def graph(names: Rows = NAMES, triples: Rows | None = None) -> KnowledgeGraph:
    """A graph of the given names (id, name, kind)."""
    ids = sorted({row[0] for row in names})
    triples = triples or []
    return KnowledgeGraph(
        entities=table("entities", {"id": ids, "name": ids, "type": ["thing"] * len(ids)}),
        names=table(
            "names",
            {
                "id": [r[0] for r in names],
                "name": [r[1] for r in names],
                "kind": [r[2] for r in names],
                "language": ["en"] * len(names),
                "source": ["fake"] * len(names),
            },
        ),
        definitions=table("definitions", {"id": [], "text": []}),
        triples=table("triples", {c: [t[i] for t in triples] for i, c in enumerate(("head", "relation", "tail"))}),
        manifest={"source": "fake", "version": "1", "licence": "none"},
    )


def _spans(text: str, mentions: list[tuple[str, str]]) -> list[tuple[int, int, str, str]]:
    at, spans = 0, []
    for surface, entity in mentions:
        at = text.index(surface, at)
        spans.append((at, at + len(surface), surface, entity))
        at += len(surface)
    return spans


def _write(path: Path, content: str) -> Path:
    path.write_bytes(gzip.compress(content.encode(), mtime=0) if path.suffix == ".gz" else content.encode())
    return path


def jsonl(path: Path, articles: list = ARTICLES) -> Path:
    """JSON lines with id, text and mentions."""
    rows = []
    for name, title, abstract, mentions in articles:
        text = f"{title}\n{abstract}"
        given = [{"start": s, "end": e, "entity": x} for s, e, _, x in _spans(text, mentions)]
        rows.append(json.dumps({"id": name, "text": text, "mentions": given}, ensure_ascii=False) + "\n")
    return _write(path, "".join(rows))


def pubmedds(path: Path, articles: list = ARTICLES) -> Path:
    """PubMedDS's layout: _id, text, mentions with mention, start_offset, end_offset, link_id."""
    rows = []
    for name, title, abstract, mentions in articles:
        text = f"{title}\n{abstract}"
        given = [
            {"mention": m, "start_offset": s, "end_offset": e, "link_id": x} for s, e, m, x in _spans(text, mentions)
        ]
        rows.append(json.dumps({"_id": name, "text": text, "mentions": given}) + "\n")
    return _write(path, "".join(rows))


def plain(path: Path, articles: list = ARTICLES) -> Path:
    return _write(path, "".join(f"{title} {abstract}\n" for _, title, abstract, _ in articles))


def pubtator(path: Path, articles: list = ARTICLES) -> Path:
    """PubTator with a relation line and a mention without an entity, as BC5CDR has them."""
    blocks = []
    for name, title, abstract, mentions in articles:
        rows = [f"{name}|t|{title}", f"{name}|a|{abstract}"]
        rows += [f"{name}\t{s}\t{e}\t{m}\tDisease\t{x}" for s, e, m, x in _spans(f"{title} {abstract}", mentions)]
        rows += [f"{name}\t0\t2\t{title[:2]}\tDisease\t-1", f"{name}\tCID\tC04\tC01"]
        blocks.append("\n".join(rows) + "\n")
    return _write(path, "\n".join(blocks))


def pubmed_xml(path: Path, articles: list = ARTICLES) -> Path:
    """PubMed baseline XML: DOCTYPE, inline tags, sections, a correction with a PMID, a second abstract."""
    rows = []
    for name, title, abstract, _ in articles:
        first, _, second = abstract.partition(" ")
        title = title.replace("CO2", "CO<sub>2</sub>")
        rows.append(f"""<PubmedArticle><MedlineCitation Status="MEDLINE"><PMID Version="1">{name}</PMID><Article>
<ArticleTitle>{title}</ArticleTitle>
<Abstract><AbstractText Label="AIM">{first}</AbstractText>
<AbstractText Label="REST"><i>{second[:1]}</i>{second[1:]}</AbstractText>
<CopyrightInformation>(c)</CopyrightInformation></Abstract>
</Article><CommentsCorrectionsList><CommentsCorrections><PMID>9</PMID></CommentsCorrections></CommentsCorrectionsList>
<OtherAbstract><AbstractText>autre</AbstractText></OtherAbstract></MedlineCitation>
<PubmedData><ArticleIdList><ArticleId>{name}</ArticleId></ArticleIdList></PubmedData></PubmedArticle>
""")
    head = (
        '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE PubmedArticleSet PUBLIC "-//NLM//DTD PubMedArticle//EN" '
        '"https://dtd.nlm.nih.gov/ncbi/pubmed/out/pubmed_250101.dtd">\n<PubmedArticleSet>\n'
    )
    return _write(path, head + "".join(rows) + "</PubmedArticleSet>\n")
