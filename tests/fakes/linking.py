"""Small entity-linking data sets in the real formats, under the names of sources.yaml:
`write(folder)`.

Four diseases and two chemicals. One name belongs to two concepts, one concept has an alternative
id, one mention is composite, one means a concept that no dictionary has, one has no concept.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path

from core.files import atomic_write

#: BioSyn's dictionary: id[|id]||name
NAMES = [
    "D001||retinal tumor",
    "D001||tumor of retina",
    "D002||pineal tumor",
    "D003|600001||heart attack",
    "D003|600001||myocardial infarction",
    "D004||renal failure",
    "D004|D005||failure",
]
TRAIN_NAMES = ["D004||kidney failure"]
#: documents: id, title, abstract, mentions (text, type, PubTator's ids, BioSyn's string or None)
TRAIN = [
    (
        "11",
        "Kidney failure in aspirin users.",
        "Acute renal failure (ARF) is rare. ARF after lithium.",
        [
            ("Kidney failure", "SpecificDisease", "D004", "kidney failure"),
            ("aspirin", "Chemical", "D101", None),
            ("renal failure", "SpecificDisease", "D004", "renal failure"),
        ],
    ),
]
DEV = [
    (
        "21",
        "Heart attack and nothing.",
        "A heart attack with unknown fever.",
        [
            ("Heart attack", "Modifier", "OMIM:600001", "heart attack"),
            ("fever", "SpecificDisease", "D999", "fever"),
            ("nothing", "SpecificDisease", "-1", None),
        ],
    ),
]
TEST = [
    (
        "31",
        "Retinal and pineal tumors.",
        "Acute kidney failure (AKF) is failure. AKF returns.",
        [
            (
                "Retinal and pineal tumors",
                "CompositeMention",
                "D001|D002",
                "retinal tumor|pineal tumors",
            ),
            ("kidney failure", "SpecificDisease", "D004", "kidney failure"),
            ("failure", "SpecificDisease", "D005", "failure"),
        ],
    ),
]
SPLITS = {"train": TRAIN, "dev": DEV, "test": TEST}


def _spans(title: str, abstract: str, mentions: list) -> list[tuple[int, int]]:
    text = f"{title} {abstract}"
    return [(text.index(m[0]), text.index(m[0]) + len(m[0])) for m in mentions]


def _disease(mention: tuple) -> tuple:
    """The mention as BC5CDR types it."""
    text, kind, *rest = mention
    return (text, "Chemical" if kind == "Chemical" else "Disease", *rest)


def pubtator(path: Path, documents: list) -> Path:
    with atomic_write(path) as handle:
        for name, title, abstract, mentions in documents:
            handle.write(f"{name}|t|{title}\n{name}|a|{abstract}\n")
            for (start, end), m in zip(_spans(title, abstract, mentions), mentions, strict=True):
                handle.write(f"{name}\t{start}\t{end}\t{m[0]}\t{m[1]}\t{m[2]}\n")
            handle.write("\n")
    return path


def tar(path: Path, files: dict[str, str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return path


def biosyn_files(top: str) -> dict[str, str]:
    files = {}
    for split, documents in SPLITS.items():
        for name, title, abstract, mentions in documents:
            spans = _spans(title, abstract, mentions)
            lines = [
                f"{name}||{s}|{t}||{m[1]}||{m[3]}||{m[2].removeprefix('OMIM:')}"
                for (s, t), m in zip(spans, mentions, strict=True)
                if m[3]
            ]
            files[f"{top}/processed_{split}/{name}.concept"] = "\n".join(lines) + "\n"
    for split in SPLITS:
        more = [] if split == "train" else TRAIN_NAMES
        files[f"{top}/{split}_dictionary.txt"] = "\n".join([*NAMES, *more]) + "\n"
    return files


def compressed(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()))
    return path


def text(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return path


#: A mention without a text, one with, one of two ids, and one that its text does not mark
XL_BEL = (
    "C0000001||心梗\n"
    "C0000002||肾衰||他有<tgt>肾衰</tgt>多年\n"
    "C0000001|C0000003||fever||a <tgt>fever</tgt> of <tgt>old</tgt>\n"
    "C0000003||cough||no mark here\n"
)
#: Two units: an annotation, two of one place, and one repeated
MANTRA = """<?xml version="1.0" encoding="UTF-8"?>
<Corpus id="c" lang="de"><document id="d1"><unit id="d1.u1">
<text>Niere &amp; Fieber</text>
<e id="e1" cui="C0000001" type="Body Part" grp="ANAT" offset="0" len="5">Niere</e>
<e id="e2" cui="C0000002" grp="DISO" offset="8" len="6">Fieber</e>
<e id="e3" cui="C0000003" grp="DISO" offset="8" len="6">Fieber</e>
<e id="e4" cui="C0000003" grp="DISO" offset="8" len="6"/>
</unit></document><document id="d2"><unit id="d2.u1"><text>nichts</text></unit></document></Corpus>
"""
#: Names of ICD-10; two codes have one name, one name has quotation marks
ICD = [
    ("A00", "霍乱"),
    ("A00.9", "霍乱"),
    ("I10", "高血压"),
    ("R51", "头痛"),
    ("S80", '"损伤,小腿"'),
    ("M81", "骨质疏松"),
]
DIAGNOSES = [
    ("头痛.高血压病", "头痛##高血压"),
    ('"骨松"', "骨质疏松"),
    ("小腿软组织损伤", '"损伤,小腿"'),
    ("没有名称的病", "表里没有"),
    ("霍乱；头疼", "霍乱##头痛##霍乱"),
]


def chip_cdn(folder: Path) -> None:
    """CHIP-CDN: names of ICD-10 in an Excel table, and JSON; train has each diagnosis with numbers
    after it, so that every split has some."""
    import pandas as pd

    table = folder / "CHIP-CDN/国际疾病分类 ICD-10北京临床版v601.xlsx"
    table.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(ICD).to_excel(table, header=False, index=False)
    several = [(f"{one}{number}", names) for number in range(20) for one, names in DIAGNOSES]
    for split, rows in {"train": DIAGNOSES + several, "dev": DIAGNOSES}.items():
        items = [{"text": one, "normalized_result": names} for one, names in rows]
        text(table.with_name(f"CHIP-CDN_{split}.json"), json.dumps(items, ensure_ascii=False))
    items = [{"text": one} for one, _ in DIAGNOSES]
    text(table.with_name("CHIP-CDN_test.json"), json.dumps(items, ensure_ascii=False))


PHRASES = {
    "train": ["1\tHeadache\thead hurts", "2\tNausea\tfelt sick", "1\tHeadache\tpounding head"],
    "validation": ["2\tNausea\tqueasy"],
    "test": ["1\tHeadache\thead hurts", "3\tInsomnia\tcaf\xe9 sleep"],
}
COMETA = (
    "ID\tTerm\tGeneral SNOMED Label\tGeneral SNOMED ID\tSpecific SNOMED Label\tSpecific SNOMED"
    " ID\tExample\tSubreddit\n"
)


def phrases(folder: Path, stem: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for fold in range(10):
        for split, rows in PHRASES.items():
            (folder / f"{stem}.fold-{fold}.{split}.txt").write_text(
                "\n".join(rows) + "\n", encoding="latin-1"
            )
    return folder


def cometa(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.csv").write_text(
        COMETA + '3\tsleepless\tInsomnia\t193462001\tInsomnia\t193462001\tI am "sleepless" again'
        " .\tsleep\n"
        "4\tmigrane\tMigraine\t37796009\tMigraine\t37796009\tno such word\tmigraine\n"
    )
    (folder / "dev.csv").write_text(
        COMETA + '7\tinsomnia\tInsomnia\t193462001\tInsomnia\t193462001\tquote " insomnia\tsleep\n'
        "8\tgout\tGout\t90560007\tGout\t90560007\tmy gout\tgout\n"
    )
    return folder


def write(folder: Path) -> Path:
    """Every data set's folder in `folder`, as datamodules.sources.fetch_dataset would leave them
    side by side."""
    for name, top in (("NCBI-EL", "ncbi-disease"), ("BC5CDR-EL", "bc5cdr-disease")):
        archive = (
            "biosyn_ncbi-disease.tar.gz"
            if top == "ncbi-disease"
            else "biosyn_bc5cdr-disease_train_dev.tar.gz"
        )
        files = biosyn_files(top)
        if top == "bc5cdr-disease":
            files = {k: v for k, v in files.items() if "processed_test" not in k}
        tar(folder / name / archive, files)
    names = {"train": "train", "dev": "develop", "test": "test"}
    for split, documents in SPLITS.items():
        pubtator(folder / f"NCBI-EL/ncbi_pubtator/NCBI{names[split]}set_corpus.txt", documents)
        pubtator(folder / f"MedMentions-EL/medmentions/{split}.txt", documents)
        if split != "test":
            chemical = ("aspirin", "Chemical", "D101", None)
            extra = [
                (n, t, a + " More aspirin.", [*map(_disease, m), chemical])
                for n, t, a, m in documents
            ]
            pubtator(folder / f"BC5CDR-EL/bc5cdr_pubtator/{split}_corpus.txt", extra)
    compressed(
        folder / "NCBI-EL/medic_06Jul2012.txt.gz",
        "D001||Retinal Tumor|Tumor of Retina\nD003|600001||Heart Attack\n"
        "D004||Renal Failure\nD002||Pineal Tumor\n",
    )
    compressed(
        folder / "BC5CDR-EL/medic_06Jul2012.txt.gz",
        "D003|600001||Heart Attack|fever\nD004||Renal Failure\n",
    )
    compressed(
        folder / "BC5CDR-EL/mesh_id_label_synonyms.tsv.gz",
        "D003\tMyocardial Infarction\tHeart Attack|Infarction, Myocardial\n"
        "D004\tRenal Failure\t\nD101\tAspirin\tASA\n",
    )
    cometa(folder / "COMETA-EL/cometa/stratified_general")
    phrases(folder / "AAP-EL/askapatient", "AskAPatient")
    phrases(folder / "TwADR-L-EL/twadrl", "TwADR-L")
    chip_cdn(folder / "CHIP-CDN")
    chip_cdn(folder / "CHIP-CDN:resplit")
    for language in ("en", "zh", "de", "es", "fi", "ru", "tr", "ko", "ja", "th"):
        text(folder / f"XL-BEL/xl_bel/xlbel_v1.0/{language}_1k_test_query_with_context.txt", XL_BEL)
    for language in ("en", "de", "es", "fr", "nl"):
        text(folder / f"Mantra-GSC/Mantra-GSC/Medline_GSC_{language}_man.xml", MANTRA)
    rows = ["translation_language\tsubject_id\tpredicate_id\ttranslation_value"]
    rows += [f"zh\tHP:{n:07d}\trdfs:label\t名{n}" for n in range(1, 80)]
    compressed(folder / "HPO-zh/hp-zh.babelon.tsv.gz", "\n".join(rows) + "\n")
    return folder
