"""How the files of each linking task are read into its splits, dictionaries and texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from datamodules.linking import Dictionary, Mention, Spans, diagnoses, multilingual
from datamodules.linking import readers as read


class Part(NamedTuple):
    """One fold of a task (most have one): splits, a dictionary for each scored split, texts, and
    what save_linking says of them."""

    splits: dict[str, list[Mention]]
    dictionaries: dict[str, Dictionary]
    documents: dict[str, str]
    annotated: dict[str, Spans] | None = None


#: (folder of the data set, dictionary of GRAPH= or None, counts) -> the folds of a task
PartReader = Callable[[Path, Dictionary | None, Counter[str]], list[Part]]
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


def find_unpacked(data: Path, archive: str, folder: str) -> Path:
    """The archive, or the folder that it unpacks to, whichever is there."""
    if not (data / archive).exists() and (data / folder).is_dir():
        return data / folder
    return data / archive


def _texts(data: Path, files: Mapping[str, str]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for name in files.values():
        if (data / name).is_file():
            texts |= read.pubtator_mentions(data / name).documents
    return texts


def biosyn_parts(
    archive: str, folder: str, test: str | None, files: Mapping[str, str]
) -> PartReader:
    def parts(data: Path, graph: Dictionary | None, counts: Counter[str]) -> list[Part]:
        place, texts = find_unpacked(data, archive, folder), _texts(data, files)
        places = {"train": place, "dev": place}
        if test is None:
            places["test"] = place
        elif (data / test).exists() or (data / folder / "processed_test").is_dir():
            places["test"] = data / test if (data / test).exists() else data / folder
        splits = {
            s: read.biosyn_mentions(p, f"processed_{s}", texts, counts) for s, p in places.items()
        }
        # train's own dictionary, which the others extend by train's mentions, is what models find
        # training candidates in
        scored = [
            s
            for s in ("train", "dev", "test")
            if s in splits and (s != "train" or TRAIN_DICTIONARY in read.contents(place))
        ]
        dictionaries: dict[str, Dictionary] = {
            s: graph or read.biosyn_dictionary(place, f"{s}_dictionary.txt", counts) for s in scored
        }
        named = {m.document for mentions in splits.values() for m in mentions}
        return [Part(splits, dictionaries, {i: t for i, t in texts.items() if i in named})]

    return parts


def pubtator_parts(
    files: Mapping[str, str], types: tuple[str, ...], dictionary: str | None
) -> PartReader:
    def parts(data: Path, graph: Dictionary | None, counts: Counter[str]) -> list[Part]:
        splits: dict[str, list[Mention]] = {}
        texts: dict[str, str] = {}
        annotated: dict[str, Spans] = {}
        for split, name in files.items():
            if (data / name).is_file():
                annotations = read.pubtator_mentions(data / name, types, counts)
                splits[split] = annotations.mentions
                texts |= annotations.documents
                annotated[split] = {
                    document: annotations.without_concept.get(document, [])
                    for document in annotations.documents
                }
        assert graph is not None or dictionary is not None
        fold_dictionary = graph
        if fold_dictionary is None and dictionary is not None:
            fold_dictionary = (read.medic if "medic" in dictionary else read.mesh)(
                data / dictionary, counts
            )
        assert fold_dictionary is not None
        return [
            Part(
                splits,
                {s: fold_dictionary for s in ("dev", "test") if s in splits},
                texts,
                annotated,
            )
        ]

    return parts


COMETA_FILES = {s: f"cometa/stratified_general/{s}.csv" for s in ("train", "dev", "test")}


def cometa_parts(closed: bool) -> PartReader:
    def parts(data: Path, graph: Dictionary | None, counts: Counter[str]) -> list[Part]:
        texts: dict[str, str] = {}
        splits: dict[str, list[Mention]] = {}
        fold_dictionary = graph
        for split, file in COMETA_FILES.items():
            if not (data / file).is_file():
                continue
            rows = read.cometa(data / file, texts, counts)
            splits[split] = [row.mention for row in rows]
            if closed and split == "train":
                labels = [(row.mention.gold[0][0], row.label) for row in rows]
                fold_dictionary = read.terms_dictionary(labels, file)
        assert fold_dictionary is not None
        return [Part(splits, {s: fold_dictionary for s in ("dev", "test") if s in splits}, texts)]

    return parts


FOLDS = range(10)
FOLD_SPLITS = {"train": "train", "dev": "validation", "test": "test"}


def fold_files(folder: str, stem: str) -> tuple[str, ...]:
    return tuple(_fold_file(folder, stem, fold, split) for fold in FOLDS for split in FOLD_SPLITS)


def _fold_file(folder: str, stem: str, fold: int, split: str) -> str:
    return f"{folder}/{stem}.fold-{fold}.{FOLD_SPLITS[split]}.txt"


def fold_parts(folder: str, stem: str) -> PartReader:
    def parts(data: Path, graph: Dictionary | None, counts: Counter[str]) -> list[Part]:
        folds: list[dict[str, list[Mention]]] = []
        pairs: list[tuple[str, str]] = []
        for number in FOLDS:
            folds.append({})
            for split in FOLD_SPLITS:
                rows = read.phrases(data / _fold_file(folder, stem, number, split), counts)
                folds[-1][split] = [row.mention for row in rows]
                pairs += [(row.mention.gold[0][0], row.term) for row in rows]
        fold_dictionary = graph or read.terms_dictionary(pairs, f"{folder}/{stem}")
        return [
            Part(splits, {"dev": fold_dictionary, "test": fold_dictionary}, {}) for splits in folds
        ]

    return parts


def hpo_parts(data: Path, graph: Dictionary | None, counts: Counter[str]) -> list[Part]:
    from datamodules.linking.layperson import hpo_layperson

    dictionary, splits = hpo_layperson(data, counts)
    fold_dictionary = graph or dictionary
    return [Part(splits, {"dev": fold_dictionary, "test": fold_dictionary}, {})]


HPO_ZH = "hp-zh.babelon.tsv.gz"


def translated_parts(with_others: bool) -> PartReader:
    def parts(data: Path, graph: Dictionary | None, counts: Counter[str]) -> list[Part]:
        from datamodules.linking.layperson import hpo_translated

        dictionary, splits = hpo_translated(data / HPO_ZH, None, with_others, counts)
        fold_dictionary = graph or dictionary
        return [Part(splits, {"dev": fold_dictionary, "test": fold_dictionary}, {})]

    return parts


def diagnosis_parts(official: bool) -> PartReader:
    def parts(data: Path, graph: Dictionary | None, counts: Counter[str]) -> list[Part]:
        icd, splits = diagnoses.chip_cdn(data, official, counts)
        icd = graph or icd
        named = diagnoses.named_by_train(icd, splits["train"])
        return [Part(splits, {"train": icd, "dev": named, "test": named}, {})]

    return parts


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


def xl_bel_parts(file: str) -> PartReader:
    def parts(data: Path, graph: Dictionary | None, counts: Counter[str]) -> list[Part]:
        texts: dict[str, str] = {}
        mentions = multilingual.read_xl_bel(data / file, texts, counts)
        return _test_alone(mentions, texts, graph, None)

    return parts


def mantra_parts(files: tuple[str, ...]) -> PartReader:
    def parts(data: Path, graph: Dictionary | None, counts: Counter[str]) -> list[Part]:
        mentions, texts, places = multilingual.read_mantra_files(data, files, counts)
        return _test_alone(mentions, texts, graph, places)

    return parts
