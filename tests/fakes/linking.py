"""Small entity-linking data sets in the real formats, under the names of sources.yaml:
`write(folder)`.

Four diseases and two chemicals. One name belongs to two concepts, one concept has an alternative
id, one mention is composite, one means a concept that no dictionary has, one has no concept.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

from core.files import written

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
    with written(path) as handle:
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
    """Every data set's folder in `folder`, as datamodules.sources.fetched would leave them side by
    side."""
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
    rows = ["translation_language\tsubject_id\tpredicate_id\ttranslation_value"]
    rows += [f"zh\tHP:{n:07d}\trdfs:label\t名{n}" for n in range(1, 80)]
    compressed(folder / "HPO-zh/hp-zh.babelon.tsv.gz", "\n".join(rows) + "\n")
    return folder
