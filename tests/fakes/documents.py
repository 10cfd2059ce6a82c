"""Documents in the real file formats, and a small graph whose entities they mention."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from core.files import atomic_write
from kg.documents.mentions import Document
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
        [
            ("Seizure", "C01"),
            ("diabetes mellitus", "C02"),
            ("type 2 diabetes mellitus", "C03"),
            ("seizure", "C01"),
        ],
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
        triples=table(
            "triples",
            {c: [t[i] for t in triples] for i, c in enumerate(("head", "relation", "tail"))},
        ),
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
    path.write_bytes(
        gzip.compress(content.encode(), mtime=0) if path.suffix == ".gz" else content.encode()
    )
    return path


def jsonl(path: Path, articles: list = ARTICLES) -> Path:
    """JSON lines with id, text and mentions."""
    rows = []
    for name, title, abstract, mentions in articles:
        text = f"{title}\n{abstract}"
        given = [{"start": s, "end": e, "entity": x} for s, e, _, x in _spans(text, mentions)]
        rows.append(
            json.dumps({"id": name, "text": text, "mentions": given}, ensure_ascii=False) + "\n"
        )
    return _write(path, "".join(rows))


def pubmedds(path: Path, articles: list = ARTICLES) -> Path:
    """PubMedDS's layout: _id, text, mentions with mention, start_offset, end_offset, link_id."""
    rows = []
    for name, title, abstract, mentions in articles:
        text = f"{title}\n{abstract}"
        given = [
            {"mention": m, "start_offset": s, "end_offset": e, "link_id": x}
            for s, e, m, x in _spans(text, mentions)
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
        rows += [
            f"{name}\t{s}\t{e}\t{m}\tDisease\t{x}"
            for s, e, m, x in _spans(f"{title} {abstract}", mentions)
        ]
        rows += [f"{name}\t0\t2\t{title[:2]}\tDisease\t-1", f"{name}\tCID\tC04\tC01"]
        blocks.append("\n".join(rows) + "\n")
    return _write(path, "\n".join(blocks))


def pubmed_xml(path: Path, articles: list = ARTICLES) -> Path:
    """PubMed baseline XML: DOCTYPE, inline tags, sections, a correction with a PMID, a second
    abstract."""
    rows = []
    for name, title, abstract, _ in articles:
        first, _, second = abstract.partition(" ")
        title = title.replace("CO2", "CO<sub>2</sub>")
        rows.append(
            f"""<PubmedArticle><MedlineCitation Status="MEDLINE"><PMID Version="1">{name}</PMID><Article>
<ArticleTitle>{title}</ArticleTitle>
<Abstract><AbstractText Label="AIM">{first}</AbstractText>
<AbstractText Label="REST"><i>{second[:1]}</i>{second[1:]}</AbstractText>
<CopyrightInformation>(c)</CopyrightInformation></Abstract>
</Article><CommentsCorrectionsList><CommentsCorrections><PMID>9</PMID></CommentsCorrections></CommentsCorrectionsList>
<OtherAbstract><AbstractText>autre</AbstractText></OtherAbstract></MedlineCitation>
<PubmedData><ArticleIdList><ArticleId>{name}</ArticleId></ArticleIdList></PubmedData></PubmedArticle>
"""  # noqa: E501
        )
    head = (
        '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE PubmedArticleSet PUBLIC "-//NLM//DTD'
        ' PubMedArticle//EN"'
        ' "https://dtd.nlm.nih.gov/ncbi/pubmed/out/pubmed_250101.dtd">\n<PubmedArticleSet>\n'
    )
    return _write(path, head + "".join(rows) + "</PubmedArticleSet>\n")


def bioc_xml(path: Path, articles: list = ARTICLES) -> Path:
    """BioC: title and abstract as passages, the abstract as sentences; a mention without an entity,
    one of two places."""
    rows = []
    for name, title, abstract, mentions in articles:
        spans = _spans(f"{title}\n{abstract}", mentions)
        notes = [
            f'<annotation id="{i}"><infon key="type">Disease</infon><infon'
            f' key="identifier">{x}</infon><location offset="{s}"'
            f' length="{e - s}"/><text>{m}</text></annotation>'
            for i, (s, e, m, x) in enumerate(spans)
        ]
        notes.append(
            '<annotation id="n"><infon key="identifier">-</infon><location offset="0"'
            ' length="2"/><text/></annotation>'
        )
        at = len(title) + 1
        first, _, second = abstract.partition(" ")
        rows.append(
            f'<document><id>{name}</id><infon key="year">2020</infon>\n<passage><infon'
            ' key="type">title</infon>'
            f"<offset>0</offset><text>{title}</text>{''.join(notes)}</passage>\n<passage><offset>{at}</offset>"
            f"<sentence><offset>{at}</offset><text>{first}</text></sentence>"
            + (
                f"<sentence><offset>{at + len(first)}</offset><text> {second}</text></sentence>"
                if second
                else ""
            )
            + '</passage><relation id="R"><infon key="type">CID</infon><node refid="0"'
            ' role="a"/></relation></document>\n'
        )
    head = (
        '<?xml version="1.0" encoding="UTF-8"?><!DOCTYPE collection SYSTEM'
        ' "BioC.dtd"><collection><source>x</source>\n'
    )
    return _write(path, head + "".join(rows) + "</collection>")


def bioc_json(path: Path, articles: list = ARTICLES) -> Path:
    """BioC JSON as PubTator 3 returns it."""
    rows = []
    for name, title, abstract, mentions in articles:
        at = len(title) + 1
        notes = [
            {
                "infons": {"identifier": x, "type": None},
                "text": m,
                "locations": [{"offset": s, "length": e - s}],
            }
            for s, e, m, x in _spans(f"{title}\n{abstract}", mentions)
        ]
        passages = [
            {
                "offset": 0,
                "text": title,
                "annotations": [n for n in notes if n["locations"][0]["offset"] < at],
            },
            {
                "offset": at,
                "text": abstract,
                "annotations": [n for n in notes if n["locations"][0]["offset"] >= at],
            },
        ]
        rows.append({"_id": f"{name}|None", "id": name, "infons": {}, "passages": passages})
    return _write(path, json.dumps({"PubTator3": rows}, ensure_ascii=False))


def write_documents(path: str | Path, given: Iterable[Document | tuple[str, str]]) -> Path:
    """Documents, or pairs (id, text), as JSON lines that
    :func:`kg.documents.jsonlines.json_documents` reads. Returns the path."""
    with atomic_write(path) as handle:
        for document in given:
            record: dict[str, Any] = {"id": document[0], "text": document[1]}
            if isinstance(document, Document) and document.mentions:
                record["mentions"] = [m._asdict() for m in document.mentions]
            handle.write(json.dumps(record, ensure_ascii=False) + "\n")
    return Path(path)
