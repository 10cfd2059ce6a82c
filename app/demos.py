"""`kepl demo`: available graphs, and sentences to try them on."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

from core.tracking import runs_folder
from datamodules.options import Files

LOG = logging.getLogger(__name__)


class Demo(NamedTuple):
    """A graph of kg.build.source.

    source    its reader;  dataset, file  path of the file that it reads, if no installed package
              contains one
    examples  sentences in its language, of this project
    translations  names in a further language: a data set and its Babelon table
    english   whether that is English, so that the page says what is denied, of a relative, of the
              past or supposed
    """

    source: str
    examples: tuple[str, ...]
    dataset: str = ""
    file: str = ""
    translations: tuple[str, str] | None = None
    english: bool = True


DEMOS = {
    "hpo": Demo(
        "hpo",
        (
            "The boy had seizures, a small head and long fingers; his sister has Marfan syndrome.",
            (
                "Arachnodactyly, ectopia lentis and aortic root dilatation suggested a disorder of"
                " connective tissue."
            ),
            "She was seen for muscle weakness and ptosis. No difficulty swallowing, no seizures.",
        ),
    ),
    "hpo-zh": Demo(
        "hpo",
        (
            "患者行CT示 arachnodactyly，伴脊柱侧弯和主动脉瘤。",
            "患儿有小头畸形、视神经萎缩，无癫痫发作。",
            "A girl with 近视 and ectopia lentis, mother of normal height.",
        ),
        translations=("HPO-zh", "hp-zh.babelon.tsv.gz"),
        english=False,
    ),
    "medic": Demo(
        "medic",
        (
            (
                "Ataxia telangiectasia (AT) raises the risk of breast cancer; AT patients are"
                " sensitive to radiation."
            ),
            "Chronic kidney disease followed years of diabetes mellitus and high blood pressure.",
            "Two brothers with Duchenne muscular dystrophy died of heart failure.",
        ),
        "NCBI-EL",
        "medic_06Jul2012.txt.gz",
    ),
    "cmekg": Demo(
        "cmekg",
        (
            "患者有糖尿病和高血压，长期服用二甲双胍。",
            "肺炎常见的症状是发热、咳嗽和呼吸困难。",
            "类风湿关节炎可以用甲氨蝶呤治疗。",
        ),
        english=False,
    ),
}


def demo_graph(what: str, files: Files) -> Path:
    """The folder of a demo's graph, built first where it is missing. Raises InputError for a file
    that cannot be had."""
    from datamodules.sources import fetch_dataset, place
    from kg.build.source import build_graph

    demo = DEMOS[what]
    path = fetch_dataset(demo.dataset, place(), files.mirror) / demo.file if demo.dataset else None
    folder = runs_folder() / "data" / f"demo-{what}"
    translations = []
    if demo.translations:
        dataset, file = demo.translations
        translations.append(fetch_dataset(dataset, place(), files.mirror) / file)
    graph = build_graph(demo.source, path, folder, translations=translations)
    counts = ", ".join(f"{count:,} {part}" for part, count in graph.counts().items() if count)
    LOG.info(f"{folder}: {counts}")
    return folder
