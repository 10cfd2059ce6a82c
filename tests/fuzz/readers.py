"""Every reader with a valid file of its own: what is mutated, how it is read, and how many rows
must be accounted for."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from core.json_files import json_records, read_json, write_json
from core.reading import lines_of, sha256
from datamodules import blurb, chineseblue, formats, ranking
from datamodules.linking import load_linking
from datamodules.linking import readers as linking
from datamodules.tasks import load_task
from inference.predict import read_rows, typed_documents
from kg import graph
from kg.build import cleaning, thesaurus
from kg.build.segment import cuts, evaluation, phrases, segmenter
from kg.build.sources import cmekg, disease39, hpo, medic, mesh, obo, spo, tables, umls, xywy
from kg.documents import formats as docs
from kg.documents import pubtator
from kg.documents.parts import InParts
from kg.linking.run import link_corpus, linked_documents
from kg.pagerank.table import frequencies
from tests.fakes import blurb as fake_blurb
from tests.fakes import chineseblue as fake_chinese
from tests.fakes import cmekg as fake_cmekg
from tests.fakes import disease39 as fake_disease39
from tests.fakes import documents as fake_documents
from tests.fakes import hpo as fake_hpo
from tests.fakes import linking as fake_linking
from tests.fakes import medic as fake_medic
from tests.fakes import obo as fake_obo
from tests.fakes import tasks as fake_tasks
from tests.fakes import umls as fake_umls
from tests.fakes import xywy as fake_xywy


class Reader(NamedTuple):
    """A reader of files.

    seed   writes the valid files to a folder and returns those that are mutated
    read   reads from that folder; returns the rows that were used or counted as left out, None
           where rows are not counted
    rows   the rows of a mutated file, counted without the reader
    fix   what is to be done after a mutation, so that it is not found by its checksum alone
    """

    seed: Callable[[Path], list[Path]]
    read: Callable[[Path], int | None]
    rows: Callable[[bytes], int] | None = None
    fix: Callable[[Path], Any] | None = None


def put(name: str, content: str | bytes) -> Callable[[Path], list[Path]]:
    def seed(folder: Path) -> list[Path]:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return [path]

    return seed


def written(name: str, write: Callable[..., Any], *more: Any) -> Callable[[Path], list[Path]]:
    def seed(folder: Path) -> list[Path]:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, *more)
        return [path]

    return seed


def everything(write: Callable[[Path], Any]) -> Callable[[Path], list[Path]]:
    def seed(folder: Path) -> list[Path]:
        write(folder)
        return sorted(p for p in folder.rglob("*") if p.is_file())

    return seed


def unpacked(write: Callable[[Path], Path], name: str) -> Callable[[Path], list[Path]]:
    """A fake that comes compressed, as it is when it is decompressed."""

    def seed(folder: Path) -> list[Path]:
        (folder / "packed").mkdir()
        return put(name, gzip.decompress(write(folder / "packed").read_bytes()))(folder)

    return seed


def split(content: bytes) -> list[bytes]:
    """Lines that end in LF, or by any line end where the file's first lines have no LF."""
    start = content[: 1 << 16]
    ends = rb"\r\n|\r|\n" if b"\r" in start and b"\n" not in start else rb"\n"
    found = re.split(ends, content.removeprefix(b"\xef\xbb\xbf"))
    return found if found[-1] else found[:-1]


def text_lines(content: bytes) -> int:
    return len(split(content))


def table_lines(content: bytes) -> int:
    """As `full_lines`, of a table, which may be UTF-16."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        content = content.decode("utf-16", errors="replace").encode()
    return full_lines(content)


def full_lines(content: bytes) -> int:
    """Lines with something in them: blank ones of JSON lines and of tables hold nothing."""
    return sum(bool(line.decode().strip()) for line in split(content))


def json_annotations(content: bytes) -> int:
    value = json.loads(content.decode().removeprefix("\ufeff"))
    given = (
        value if isinstance(value, list) else value.get("documents") or value.get("PubTator3") or []
    )
    parts = (
        part for d in given for p in d["passages"] for part in (p, *(p.get("sentences") or ()))
    )
    return sum(len(part.get("annotations") or ()) for part in parts)


def document_rows(name: str, of: str = "documents") -> Callable[[Path], int | None]:
    """Reads `name`; counts documents, mentions and relations of `of`."""

    def read(folder: Path) -> int | None:
        left_out: Counter[str] = Counter()
        found = list(docs.documents([folder / name], empty="skip", left_out=left_out))
        mentions = sum(len(d.mentions) for d in found)
        if of == "documents":
            return len(found) + left_out[docs.EMPTY]
        counted = mentions + left_out[docs.NO_ENTITY]
        if of == "annotations":
            return None if left_out[docs.EMPTY] else counted
        return (
            None
            if left_out[docs.EMPTY]
            else counted + left_out[pubtator.RELATIONS] + 2 * len(found)
        )

    return read


def consumed(
    read: Callable[[Path], Iterable[Any]], name: str, more: int | None = None
) -> Callable[[Path], int | None]:
    """Reads `name` to the end; each of what is made is a row, and `more` are headers, where `more`
    is given."""

    def run(folder: Path) -> int | None:
        made = sum(1 for _ in read(folder / name))
        return None if more is None else made + more

    return run


def no_rows(read: Callable[[Path], Any], name: str = "") -> Callable[[Path], int | None]:
    def run(folder: Path) -> int | None:
        read(folder / name if name else folder)
        return None

    return run


def counted(
    read: Callable[[Path, Counter[str]], Iterable[Any]], name: str, *reasons: str
) -> Callable[[Path], int | None]:
    """Rows that `read` makes, and those that it counts under `reasons`."""

    def run(folder: Path) -> int | None:
        found: Counter[str] = Counter()
        return len(list(read(folder / name, found))) + sum(found[reason] for reason in reasons)

    return run


TABLES = {
    "entities.csv": 'id,name,type\nE1,"Aspirin, plain",drug\nE2,Headache,symptom\n',
    "names.tsv": (
        "id\tname\tkind\tlanguage\tsource\nE1\tASA\tabbreviation\ten\there\nE2\t头痛\t\tzh\t\n"
    ),
    "definitions.jsonl": '{"id": "E1", "text": "A drug."}\n',
    "triples.csv": "head,relation,tail,score\nE1,treats,E2,1\nE1,treats,E2,2\nE2,needs,E1,2\n",
    "equivalences.csv": "head,tail\nE1,E2\n",
}
SPO = "糖尿病\t类别\t疾病\n发热\t类别\t症状\n糖尿病\t引起\t发热\n糖尿病\t引起\t发热\n"
CSV = 'title,ask,answer\n"发热，怎么办",两天,"多喝水\n休息"\n头痛,一天,休息\n'


def _triple_file(folder: Path) -> int:
    made = tables.read(folder / "a.tsv", missing="add")
    return (
        len(made.triples)
        + made.manifest["left_out"].get("rows of triples that stand there twice", 0)
        + 1
    )


def _spo(folder: Path) -> int:
    made = spo.read(folder / "a.spo")
    return (
        len(made.triples)
        + sum(made.manifest["left_out"].values())
        + sum(bool(t) for t in made.entities["type"].to_pylist())
    )


def _terms(folder: Path) -> int:
    made = obo.read(folder / "a.obo")
    return (
        len(made.entities)
        + made.manifest["left_out"]["obsolete terms"]
        + made.manifest["left_out"]["terms without a label"]
    )


def _diseases(folder: Path) -> int:
    made = xywy.read(folder)
    lost = made.manifest["left_out"]
    names = {name for _, name, _ in xywy.records(folder)}
    return len(names) + lost.get("second records of a disease (their triples are kept)", 0)


def _graph(folder: Path) -> list[Path]:
    fake_documents.graph().save(folder / "g")
    return sorted((folder / "g").iterdir())


def _reseal(folder: Path) -> None:
    """Write the checksums of a folder's files into its manifest, where it still is one."""
    for file in folder.rglob("manifest.json"):
        try:
            manifest = json.loads(file.read_text())
            sums = manifest["sha256"]
            manifest["sha256"] = (
                {name: sha256(file.parent / name) for name in sums}
                if isinstance(sums, dict)
                else None
            )
            write_json(file, manifest)
        except (ValueError, KeyError, TypeError, OSError, RecursionError):
            pass


def _linked(folder: Path) -> list[Path]:
    fake_documents.graph().save(folder / "g")
    texts = [fake_documents.jsonl(folder / "a.jsonl")]
    with redirect_stdout(StringIO()):  # standard output is the fuzzer's
        link_corpus(folder / "g", texts, folder / "out", work=InParts(workers=1))
    return sorted(p for p in (folder / "out").iterdir() if p.suffix in (".json", ".jsonl"))


def _linking_task(folder: Path) -> list[Path]:
    from tests.fakes.genbioel import task

    task(folder / "t")
    return sorted((folder / "t").iterdir())


def _biosyn(folder: Path) -> list[Path]:
    for name, text in fake_linking.biosyn_files("x").items():
        put(name.partition("/")[2], text)(folder)
    return [folder / "test_dictionary.txt", *sorted(folder.glob("processed_test/*"))]


def _ddi(folder: Path) -> list[Path]:
    return put("Train/a.xml", fake_blurb.ddi_document("a"))(folder)


def _chemprot(folder: Path) -> list[Path]:
    return fake_blurb.chemprot(folder / "x_")


def _typed(name: str) -> Callable[[Path], int | None]:
    return no_rows(lambda path: list(typed_documents([path], None, "skip", "utf-8", True)), name)


def _numbers(folder: Path) -> list[Path]:
    _graph(folder)
    return put("counts.tsv", "C01\t3\nC02\t0\n")(folder)


def _bio_rows(content: bytes) -> int:
    return sum(bool(line.decode().strip(" \t\r")) for line in split(content))


def _bio(tokens: bool) -> Callable[[Path], int | None]:
    def run(folder: Path) -> int | None:
        made = formats.bio(folder / "a.txt", tokens=tokens, merged="X")
        return sum(len(t.words or t.text) for t in made) if not tokens else None

    return run


def _annotated(folder: Path, form: str) -> None:
    """A file of annotated texts, or those of a folder."""
    from inference.convert import FORMATS, write_records

    mention = {"start": 4, "end": 8, "type": "Disease", "entity": "HP:1", "score": 1.0}
    record = {"id": "a", "text": "Has gout.\nNo more.", "mentions": [mention]}
    if not FORMATS[form].ending:
        write_records([record], folder / "d", form)
        for file in (folder / "d").iterdir():
            file.rename(folder / file.name)
        (folder / "d").rmdir()
        return
    write_records([record], folder / f"a{FORMATS[form].ending}", form)


def _annotations(path: Path, form: str | None = None) -> None:
    """Reads a file with its mentions, as scoring and training do."""
    list(docs.annotated_documents([path], form, Counter()))


READERS: dict[str, Reader] = {
    "jsonl": Reader(written("a.jsonl", fake_documents.jsonl), document_rows("a.jsonl"), full_lines),
    "jsonl.gz": Reader(written("a.jsonl.gz", fake_documents.jsonl), document_rows("a.jsonl.gz")),
    "pubmedds": Reader(
        written("a.json", fake_documents.pubmedds), document_rows("a.json"), full_lines
    ),
    "text": Reader(written("a.txt", fake_documents.plain), document_rows("a.txt"), text_lines),
    "brat": Reader(
        everything(lambda folder: _annotated(folder, "brat")), no_rows(_annotations, "a.txt")
    ),
    "conll": Reader(
        everything(lambda folder: _annotated(folder, "conll")), no_rows(_annotations, "a.conll")
    ),
    "docbin": Reader(
        everything(lambda folder: _annotated(folder, "docbin")), no_rows(_annotations, "a.spacy")
    ),
    "pubannotation": Reader(
        everything(lambda folder: _annotated(folder, "pubannotation")),
        no_rows(lambda path: _annotations(path, "pubannotation"), "a.json"),
    ),
    "xmi": Reader(
        everything(lambda folder: _annotated(folder, "xmi")), no_rows(_annotations, "a.xmi")
    ),
    "table": Reader(
        put("a.csv", 'id,text\n1,"Gout, he said"\n2,"two\nlines"\n'),
        no_rows(_annotations, "a.csv"),
    ),
    "json array": Reader(
        put("b.json", '[{"id": 1, "text": "gout"}, {"id": 2, "text": "a"}]'),
        no_rows(_annotations, "b.json"),
    ),
    "pubtator": Reader(
        written("a.pubtator", fake_documents.pubtator),
        document_rows("a.pubtator", "lines"),
        full_lines,
    ),
    "pubmed": Reader(
        written("a.xml", fake_documents.pubmed_xml),
        document_rows("a.xml"),
        lambda c: c.count(b"<PubmedArticle>"),
    ),
    "pubmed.gz": Reader(written("a.xml.gz", fake_documents.pubmed_xml), document_rows("a.xml.gz")),
    "bioc": Reader(
        written("a.bioc.xml", fake_documents.bioc_xml),
        document_rows("a.bioc.xml", "annotations"),
        lambda content: content.count(b"<annotation "),
    ),
    "biocjson": Reader(
        written("a.bioc.json", fake_documents.bioc_json),
        document_rows("a.bioc.json", "annotations"),
        json_annotations,
    ),
    "records": Reader(
        written("a.json", fake_documents.bioc_json),
        no_rows(lambda path: list(json_records(path, keys=("PubTator3",))), "a.json"),
    ),
    "standard input": Reader(
        put("a", "one\ntwo\nthree\n"),
        no_rows(lambda path: list(lines_of(open(path, "rb"), "standard input")), "a"),  # noqa: SIM115
    ),
    "json": Reader(put("a.json", '{"a": [1, {"b": null}]}'), no_rows(read_json, "a.json")),
    "typed jsonl": Reader(
        put(
            "a.jsonl",
            '{"id": 1, "text": "a cat", "mentions": [{"start": 2, "end": 5, "type": "x", "score":'
            " 1.0}]}\n",
        ),
        _typed("a.jsonl"),
    ),
    "typed pubtator": Reader(written("a.pubtator", fake_documents.pubtator), _typed("a.pubtator")),
    "pairs and answers": Reader(
        put(
            "a.jsonl",
            '{"id": 7, "question": "what", "answers": ["a", "b"]}\n{"question": "why", "answers":'
            ' ["c"]}\n',
        ),
        consumed(lambda path: read_rows([path], "question", "answers", "utf-8"), "a.jsonl", 0),
        full_lines,
    ),
    "tables": Reader(
        lambda folder: [put(name, text)(folder)[0] for name, text in TABLES.items()],
        no_rows(tables.read),
    ),
    "table of triples": Reader(
        put("a.tsv", TABLES["triples.csv"].replace(",", "\t")), _triple_file, table_lines
    ),
    "spo": Reader(put("a.spo", SPO), _spo, full_lines),
    "disease39": Reader(
        everything(lambda folder: fake_disease39.write(folder)),
        no_rows(lambda f: disease39.read(next(f.iterdir()))),
    ),
    "xywy": Reader(everything(fake_xywy.write), no_rows(xywy.read)),
    "xywy archive": Reader(
        everything(fake_xywy.write_archive),
        no_rows(lambda f: xywy.read(next(iter(sorted(f.glob("*.gz")))))),
    ),
    "obo": Reader(
        written("a.obo", fake_obo.write_text),
        _terms,
        lambda c: len(re.findall(rb"(?m)^\s*\[Term\]\s*$", c)),
    ),
    "obo.json": Reader(written("a.json", fake_obo.write_json), no_rows(obo.read, "a.json")),
    "medic": Reader(
        unpacked(fake_medic.write, "CTD_diseases.tsv"), no_rows(medic.read, "CTD_diseases.tsv")
    ),
    "medic biosyn": Reader(
        put("medic.txt", fake_medic.BIOSYN), consumed(medic.concepts, "medic.txt", 0), full_lines
    ),
    "mesh table": Reader(
        put("mesh.tsv", "D1\tA\tB|C\nD2\tB\t\n"),
        consumed(mesh.table_rows, "mesh.tsv", 0),
        full_lines,
    ),
    "mesh xml": Reader(
        put(
            "desc.xml",
            "<DescriptorRecordSet><DescriptorRecord><DescriptorUI>D1</DescriptorUI><DescriptorName>"
            "<String>Acne</String></DescriptorName><TreeNumberList><TreeNumber>A1.2</TreeNumber></TreeNumberList><ConceptList>"
            "<Concept "
            'PreferredConceptYN="Y"><ConceptUI>M1</ConceptUI><TermList><Term><String>Acne</String></Term><Term><String>Pimples'
            "</String></Term></TermList></Concept></ConceptList></DescriptorRecord></DescriptorRecordSet>",
        ),
        no_rows(mesh.read, "desc.xml"),
    ),
    "cmekg": Reader(
        everything(lambda folder: fake_cmekg.write(folder, 4)),
        no_rows(lambda f: cmekg.read(next(f.iterdir()))),
    ),
    "hpo": Reader(everything(lambda folder: fake_hpo.write(folder, 20)), no_rows(hpo.read)),
    "umls": Reader(everything(fake_umls.write), no_rows(umls.read)),
    "graph": Reader(_graph, no_rows(graph.KnowledgeGraph.load, "g"), fix=_reseal),
    "thesaurus pairs": Reader(
        put("a.tsv", "a\tb\nc\td##e\n"), consumed(thesaurus.read_pairs, "a.tsv", 0), full_lines
    ),
    "thesaurus json": Reader(
        put("a.json", '[{"text": "a", "normalized_result": "b##c"}]'),
        consumed(thesaurus.read_pairs, "a.json"),
    ),
    "cleaning": Reader(
        put("a.csv", CSV),
        no_rows(lambda path: list(cleaning.texts([path], columns=("title", "ask"))), "a.csv"),
    ),
    "cut points": Reader(
        put("a.tsv", "\t".join(cuts.COLUMNS) + "\n炎\t3\t4\t肺炎\tyes\tbehind\n"),
        no_rows(cuts.read_cut_points, "a.tsv"),
    ),
    "phrases": Reader(
        put("a.tsv", "phrase\tcount\tquality\n肺炎\t3\t0.5\n"),
        consumed(phrases.read_phrases, "a.tsv", 1),
        text_lines,
    ),
    "reviewed": Reader(
        put("a.tsv", "# remark\n急性|肺炎\tx\n"), no_rows(evaluation.read_reviewed, "a.tsv")
    ),
    "dictionary": Reader(
        put("a.txt", "糖尿病\n高血压 30\n肺结核\t7 n\n"),
        consumed(segmenter.read_dictionary, "a.txt", 0),
        full_lines,
    ),
    "frequencies": Reader(
        _numbers,
        no_rows(lambda f: frequencies(f / "counts.tsv", graph.KnowledgeGraph.load(f / "g"))),
    ),
    "linked corpus": Reader(_linked, no_rows(lambda f: list(linked_documents(f / "out")))),
    "task": Reader(
        everything(lambda folder: fake_tasks.write(folder, "ner", {"train": 2, "test": 2})),
        no_rows(load_task),
    ),
    "linking task": Reader(_linking_task, no_rows(load_linking, "t"), fix=_reseal),
    "bio of tokens": Reader(
        written("a.txt", fake_blurb.iob),
        no_rows(lambda path: formats.bio(path, tokens=True), "a.txt"),
    ),
    "bio of characters": Reader(written("a.txt", fake_chinese.bio), _bio(False), _bio_rows),
    "tagged pubtator": Reader(
        written("a.txt", fake_documents.pubtator), no_rows(formats.pubtator, "a.txt")
    ),
    "pairs": Reader(
        written("a.txt", fake_chinese.pairs),
        counted(lambda p, found: formats.pairs(p, counts=found), "a.txt"),
        text_lines,
    ),
    "gad": Reader(
        written("a.tsv", fake_blurb.gad),
        counted(lambda p, found: blurb.gad(p, counts=found), "a.tsv"),
        text_lines,
    ),
    "chemprot": Reader(
        _chemprot,
        no_rows(
            lambda f: blurb.chemprot(
                *(f / f"x_{n}.tsv" for n in ("abstracts", "entities", "gold_standard"))
            )
        ),
    ),
    "ddi": Reader(_ddi, no_rows(lambda folder: blurb.ddi(folder, "Train"))),
    "ddi archive": Reader(
        written("a.zip", fake_blurb.ddi),
        no_rows(lambda path: blurb.ddi(path, "DDICorpus/Train"), "a.zip"),
    ),
    "cMedQANER": Reader(
        written("a.json", fake_chinese.mentions),
        counted(lambda p, found: chineseblue.mentions(p, counts=found), "a.json"),
    ),
    "CMeEE": Reader(
        written("a.json", fake_chinese.nested), no_rows(chineseblue.read_nested, "a.json")
    ),
    "CMeIE": Reader(
        written("a.json", fake_chinese.triples), no_rows(chineseblue.triples, "a.json")
    ),
    "CMeIE schema": Reader(
        written("a.json", fake_chinese.schema), no_rows(chineseblue.schema, "a.json")
    ),
    "KUAKE": Reader(
        written("a.json", fake_chinese.queries, "query1", "query2"),
        no_rows(lambda path: chineseblue.queries(path, "query1", "query2"), "a.json"),
    ),
    "questions": Reader(
        written(
            "a.csv",
            fake_chinese.write_dialogues,
            [("内科", "发热", "两天", "多喝水"), ("外科", "头痛", "一天", "休息")],
        ),
        no_rows(ranking.questions, "a.csv"),
    ),
    "biosyn dictionary": Reader(
        _biosyn, no_rows(lambda folder: linking.biosyn_dictionary(folder, "test_dictionary.txt"))
    ),
    "biosyn mentions": Reader(
        _biosyn, no_rows(lambda folder: linking.biosyn_mentions(folder, "processed_test", {}))
    ),
    "biosyn archive": Reader(
        lambda f: [fake_linking.tar(f / "a.tar.gz", fake_linking.biosyn_files("x"))],
        no_rows(lambda path: linking.biosyn_dictionary(path, "test_dictionary.txt"), "a.tar.gz"),
    ),
    "linking pubtator": Reader(
        written("a.txt", fake_linking.pubtator, fake_linking.TEST),
        no_rows(linking.pubtator_mentions, "a.txt"),
    ),
    "cometa": Reader(
        everything(fake_linking.cometa),
        consumed(lambda path: linking.cometa(path, {}), "train.csv", 1),
    ),
    "phrases of drugs": Reader(
        put("a.txt", "\n".join(fake_linking.PHRASES["train"]) + "\n"),
        consumed(linking.phrases, "a.txt", 0),
        lambda content: sum(bool(line.decode("latin-1").strip()) for line in split(content)),
    ),
}
