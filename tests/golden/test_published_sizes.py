"""Sizes of the tasks' splits against this table, which is typed from where they are printed; and
what of a data set is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.files import InputError
from datamodules.sources import fetch
from datamodules.sources.listing import sources
from datamodules.tasks.chinese import TASKS as CHINESE
from datamodules.tasks.english import TASKS as ENGLISH

REAL = Path(__file__).resolve().parents[2].parent / "shared" / "data"

#: {task: {unit: the sizes of train, dev and test in one source, of each source}}
SIZES: dict[str, dict[str, list[tuple[int, ...]]]] = {
    # KeBioLM, Table 1 (mentions, or pairs)
    "BC5-chem": {"mentions": [(5203, 5347, 5385)]},
    "BC5-disease": {"mentions": [(4182, 4244, 4424)]},
    "NCBI": {"mentions": [(5137, 787, 960)]},
    "BC2GM": {"mentions": [(15197, 3061, 6325)]},
    "JNLPBA": {"mentions": [(46750, 4551, 8662)]},
    "ChemProt": {"examples": [(18035, 11268, 15745)]},
    "DDI": {"examples": [(25296, 2496, 5716)]},
    "GAD": {"examples": [(4261, 535, 534)]},
    # EMBERT, Table 2, and SMedBERT's table of data sets; ChineseBLUE's files and README; the
    # README of WebMedQA; notes of the re-splits
    "cMedQANER": {
        "examples": [(1673, 175, 215)],
        "mentions": [(12490, 1024, 1340), (12625, 1035, 1350)],
    },
    "cMedQQ": {"examples": [(16071, 1793, 1935)]},
    "cMedQNLI": {"examples": [(80950, 9065, 9969)]},
    "cMedQA": {"examples": [(49719, 5475, 6149), (186771, 46600, 46600)]},
    "cMedQA:clean": {"questions": [(683, 38, 80)], "examples": [(6632, 421, 861)]},
    "WebMedQA": {"examples": [(252850, 31605, 31655)], "questions": [(50610, 6337, 6337)]},
    "CMeEE": {"examples": [(12000, 3000, 5000)]},
    "CMeEE:resplit": {"examples": [(4000, 500)]},
    "CMeIE": {"triples": [(43649, 10622)]},
    "CMeIE:resplit": {"sentences": [(2885, 350)]},
    "KUAKE-QQR": {"examples": [(15000, 1600)]},
    "KUAKE-QTR": {"examples": [(24174, 2913)]},
    "DXY-NER": {"examples": [(34224, 8576, 8592)]},
    "DXY-RE": {"triples": [(141696, 35456, 35794)]},
}
ICD = "CHIP-CDN/国际疾病分类 ICD-10北京临床版v601.xlsx"
FOLDS = ("train", "validation", "test")
#: {data set: the files without which there is no task}; every other file is optional
NEEDED = {
    **{f"{name}": {f"{name}/train.txt"} for name in ("cMedQANER", "cMedQQ", "cMedQNLI", "cMedQA")},
    "cMedQA:clean": {"cMedQA/cMedQA_clean_train.txt"},
    "WebMedQA": {"WebMedQA/medQA.train.txt"},
    "NeikeQA": {"NeikeQA/neike_5000-6000.csv"},
    "CMeEE": {"CMeEE/CMeEE_train.json"},
    "CMeEE:resplit": {"CMeEE/CMeEE_resplit_train.json"},
    "CHIP-CDN": {"CHIP-CDN/CHIP-CDN_train.json", "CHIP-CDN/CHIP-CDN_dev.json", ICD},
    "CHIP-CDN:resplit": {"CHIP-CDN/CHIP-CDN_train.json", ICD},
    "CMeIE": {"CMeIE/53_schemas.json", "CMeIE/CMeIE_train.json"},
    "CMeIE:resplit": {"CMeIE/53_schemas.json", "CMeIE/CMeIE_resplit_train.json"},
    "KUAKE-QQR": {"KUAKE-QQR/KUAKE-QQR_train.json"},
    "KUAKE-QTR": {"KUAKE-QTR/KUAKE-QTR_train.json"},
    "DXY-NER": {"DXY-NER/train.txt"},
    "DXY-RE": {"DXY-RE/train.json"},
    "BC5-chem": {"BC5CDR-chem-IOB/train.tsv"},
    "BC5-disease": {"BC5CDR-disease-IOB/train.tsv"},
    "NCBI": {"NCBI-disease-IOB/train.tsv"},
    "BC2GM": {"BC2GM-IOB/train.tsv"},
    "JNLPBA": {"JNLPBA-IOB/train.tsv"},
    "ChemProt": {
        f"chemprot_training/chemprot_training_{part}.tsv"
        for part in ("abstracts", "entities", "gold_standard")
    },
    "DDI": {"DDICorpus-2013.zip"},
    "GAD": {"gad/train.tsv"},
    "NCBI-EL": {"biosyn_ncbi-disease.tar.gz"},
    "BC5CDR-EL": {"bc5cdr_pubtator/train_corpus.txt", "bc5cdr_pubtator/dev_corpus.txt"},
    "MedMentions-EL": {"medmentions/train.txt", "medmentions/dev.txt"},
    "COMETA-EL": {"cometa/stratified_general/train.csv", "cometa/stratified_general/dev.csv"},
    "AAP-EL": {f"askapatient/AskAPatient.fold-{k}.{s}.txt" for k in range(10) for s in FOLDS},
    "TwADR-L-EL": {f"twadrl/TwADR-L.fold-{k}.{s}.txt" for k in range(10) for s in FOLDS},
    "Ontologies": {
        "mesh_id_label_synonyms.tsv.gz",
        "ncit-disease-2018-06-08.json.gz",
        "doid-2018-07-05.json.gz",
    },
    "HPO-zh": {"hp-zh.babelon.tsv.gz"},
    "XL-BEL": set(),  # each language is a task
    "Mantra-GSC": set(),
}


def test_sizes_are_those_that_are_printed() -> None:
    found: dict[str, dict[str, list[tuple[int, ...]]]] = {}
    for task in (*CHINESE, *ENGLISH):
        for one in task.published:
            if one.sizes:
                order = [
                    one.sizes[split] for split in ("train", "dev", "test") if split in one.sizes
                ]
                found.setdefault(task.name, {}).setdefault(one.unit, []).append(tuple(order))
    assert found == SIZES


def test_what_of_a_data_set_is_needed() -> None:
    found = {
        name: {file.path for file in source.files if not file.optional}
        for name, source in sources().items()
    }
    assert found == NEEDED


@pytest.mark.skipif(not REAL.is_dir(), reason=f"no real data in {REAL}")
def test_lengths_of_files_are_those_of_the_real_ones(tmp_path: Path) -> None:
    """A mirror's files are recognised by their length before their checksum is computed."""
    wrong, compared = [], 0
    for name, source in sources().items():
        try:
            folder = fetch(name, tmp_path, [REAL], network=False).folder
        except InputError:  # not among the real data
            continue
        for file in source.files:
            if file.bytes and (folder / file.path).is_file():
                compared += 1
                if (folder / file.path).stat().st_size != file.bytes:
                    wrong.append(file.path)
    assert wrong == []
    assert compared >= 60
