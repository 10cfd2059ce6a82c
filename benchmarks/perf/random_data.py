"""Data of any size that is shaped like the real: names of a thesaurus, abstracts that name them,
PubMed's XML, triples."""

from __future__ import annotations

import gzip
from itertools import pairwise, product
from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np
import pyarrow as pa

from core.files import atomic_folder
from kg.graph import KINDS, KnowledgeGraph, table


def umls_like(
    names: int, abstracts: int, seed: int = 0
) -> tuple[pa.Table, pa.Array, np.ndarray, list[str]]:
    """Synthetic names, ids, degree and abstracts of 200 words: an eighth of the pieces are names of
    the table."""
    random = np.random.default_rng(seed)
    parts = product("bcdfglmnprstv", "aeiou", ("", "l", "n", "r", "s", "x"))
    syllables = np.array(list(map("".join, parts)))
    pool = sorted(
        {"".join(random.choice(syllables, n)) for n in random.integers(2, 5, 80_000).tolist()}
    )
    vocabulary = np.array(pool, dtype=object)[random.permutation(len(pool))]
    weight = 1 / (np.arange(len(vocabulary)) + 30.0)  # Zipf's law, flattened at its head
    lengths = np.clip(random.poisson(2.6, names) + 1, 1, 12)
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    drawn = vocabulary[random.choice(len(vocabulary), bounds[-1], p=weight / weight.sum())].tolist()
    entity = random.integers(0, names // 3, names)
    kind = random.choice(
        len(KINDS), names, p=[0.3, 0.2, 0.3, *[0.2 / (len(KINDS) - 3)] * (len(KINDS) - 3)]
    )
    style = random.random(names)
    strings = []
    for (start, end), how in zip(pairwise(bounds.tolist()), style.tolist(), strict=True):
        name = " ".join(drawn[start:end])
        if how < 0.04:
            initials = "".join(word[0] for word in drawn[start : start + 2])
            name = f"{initials}{drawn[start][-1]}{end % 9}".upper()
        elif how < 0.5:
            name = name.capitalize()
        elif how < 0.6:
            name = name.replace(" ", ", ", 1)
        strings.append(name)
    ids = pa.array([f"C{i:07d}" for i in range(names // 3)], pa.string())
    columns = {
        "id": [f"C{i:07d}" for i in entity.tolist()],
        "name": strings,
        "kind": [KINDS[i] for i in kind.tolist()],
    }
    names_table = table("names", columns | {"language": ["en"] * names, "source": [""] * names})
    texts = [
        _abstract(random, strings, vocabulary, weight / weight.sum()) for _ in range(abstracts)
    ]
    return names_table, ids, random.integers(0, 50, names // 3), texts


_COMMON = """
the of and in to with was for were by that from as is on at an be or this are which we patients study results treatment
increased associated group significantly compared clinical observed effect methods during after
"""  # noqa: E501


def _abstract(
    random: np.random.Generator, names: list[str], vocabulary: np.ndarray, weight: np.ndarray
) -> str:
    """200 words: common words, words of the vocabulary, and names; sentences, numbers, parentheses,
    a definition."""
    other = vocabulary[random.choice(len(vocabulary), 100, p=weight)].tolist()
    common = _COMMON.split()
    words_left, pieces = 200, []
    while words_left > 0:
        draw = random.random()
        if draw < 0.5:
            piece = common[int(random.integers(len(common)))]
        elif draw < 0.8:
            piece = other[int(random.integers(100))]
        elif draw < 0.93:
            # Zipf's law: text names the same things again
            piece = names[int(len(names) ** random.random()) - 1]
            if draw < 0.81:
                piece += f" ({''.join(word[0] for word in piece.split()).upper()})"
        elif draw < 0.97:
            piece = str(int(random.integers(100)))
        else:
            piece = f"({int(random.integers(100))} %)"
        words_left -= len(piece.split())
        if random.random() < 0.05:
            piece += ". "
        elif random.random() < 0.05:
            piece += ", "
        else:
            piece += " "
        pieces.append(piece)
    return "".join(pieces).strip()


def graph_like(names: int, triples: int) -> tuple[KnowledgeGraph, list[str]]:
    """A graph of a third as many concepts as `names`, and 1,000 abstracts that name them.

    Its triples have 50 relations; some concepts are in many, as in the UMLS.
    """
    names_table, ids, _, texts = umls_like(names, 1_000)
    random = np.random.default_rng(0)
    ends = (random.random((triples, 2)) ** 2 * len(ids)).astype(np.int64)
    entities = {
        "id": ids.to_pylist(),
        "name": [f"concept {i}" for i in range(len(ids))],
        "type": ["T047"] * len(ids),
    }
    relations = pa.array([f"relation_{i:02d}" for i in range(50)], pa.string()).take(
        pa.array(random.integers(0, 50, triples))
    )
    columns = {
        "head": ids.take(pa.array(ends[:, 0])),
        "relation": relations,
        "tail": ids.take(pa.array(ends[:, 1])),
    }
    nothing = table("definitions", {"id": [], "text": []})
    manifest = {"source": "synthetic", "version": "0", "licence": "none"}
    return (
        KnowledgeGraph(
            table("entities", entities), names_table, nothing, pa.table(columns), manifest
        ),
        texts,
    )


_AUTHORS = "".join(
    f'<Author ValidYN="Y"><LastName>Family{i}</LastName><ForeName>Given'
    f" {i}</ForeName><Initials>G</Initials><AffiliationInfo><Affiliation>Department of Medicine"
    f" {i}, University Hospital, 12345 City, Country.</Affiliation></AffiliationInfo></Author>"
    for i in range(6)
)
_HEADINGS = "".join(
    f'<MeshHeading><DescriptorName UI="D{i:06d}" MajorTopicYN="N">Heading'
    f" {i}</DescriptorName></MeshHeading>"
    for i in range(12)
)
_DATES = "".join(
    "<PubMedPubDate"
    f' PubStatus="{status}"><Year>2020</Year><Month>1</Month><Day>31</Day><Hour>6</Hour><Minute>0</Minute>'  # noqa: E501
    "</PubMedPubDate>"
    for status in ("received", "accepted", "entrez", "pubmed", "medline")
)
_REFERENCES = "".join(
    f"<Reference><Citation>Family A, Family B. A title of some words about a disease {i}. Journal."
    " 2010;1(1):1-9.</Citation>"
    "<ArticleIdList><ArticleId"
    f' IdType="pubmed">{20_000_000 + i}</ArticleId></ArticleIdList></Reference>'
    for i in range(12)
)


def _article(pmid: int, title: str, text: str) -> str:
    """An article with what surrounds title and abstract in PubMed's own files: some 8,000
    characters, 170 elements."""
    return (
        '<PubmedArticle><MedlineCitation Status="MEDLINE" Owner="NLM"><PMID'
        f' Version="1">{pmid}</PMID><DateCompleted><Year>2020'
        "</Year><Month>01</Month><Day>31</Day></DateCompleted><Article"
        ' PubModel="Print"><Journal><ISSN IssnType="Print">0000-0000'
        "</ISSN><JournalIssue"
        ' CitedMedium="Print"><Volume>1</Volume><PubDate><Year>2020</Year></PubDate></JournalIssue><Title>J'  # noqa: E501
        f"</Title></Journal><ArticleTitle>{escape(title)}</ArticleTitle><Abstract><AbstractText>{escape(text)}</AbstractText></Abstract>"
        "<AuthorList"
        f' CompleteYN="Y">{_AUTHORS}</AuthorList><Language>eng</Language></Article><MeshHeadingList>{_HEADINGS}'  # noqa: E501
        f"</MeshHeadingList></MedlineCitation><PubmedData><History>{_DATES}</History><PublicationStatus>ppublish</PublicationStatus>"
        "<ArticleIdList><ArticleId"
        f' IdType="pubmed">{pmid}</ArticleId></ArticleIdList><ReferenceList>{_REFERENCES}</ReferenceList>'  # noqa: E501
        "</PubmedData></PubmedArticle>\n"
    )


def pubmed(
    folder: str | Path, texts: list[str], documents: int, files: int, compressed: bool = False
) -> list[Path]:
    """Write `documents` articles in `files` files of PubMed's XML to `folder`; their texts are
    `texts`, in turn."""
    with atomic_folder(folder) as partial:
        for number in range(files):
            path = partial / f"pubmed26n{number:04d}.xml{'.gz' if compressed else ''}"
            with (
                gzip.open(path, "wt", 1, "utf-8")
                if compressed
                else open(path, "w", encoding="utf-8")
            ) as handle:
                handle.write('<?xml version="1.0" encoding="utf-8"?>\n<PubmedArticleSet>\n')
                for i in range(number * documents // files, (number + 1) * documents // files):
                    handle.write(
                        _article(i + 1, f"Article {i} of {documents}", texts[i % len(texts)])
                    )
                handle.write("</PubmedArticleSet>\n")
    return sorted(Path(folder).iterdir())
