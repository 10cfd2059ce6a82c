"""A segmenter and the entity vocabulary from a graph and text: kepl graph segment build.

phrases.tsv       phrase, count, quality (kg.build.segment.phrases)
cut_points.tsv    the characters that long names might be cut at, with what was decided
                  (kg.build.segment.cuts)
words.tsv         what Jieba learns: names and good phrases of at most three characters, and users'
                  dictionaries
segments.parquet  name, pieces (list), how: every name of the vocabulary that is long
vocabulary/       a graph: the given one, and each good phrase that no name of it equals as an
                  entity of type 短语
its manifest      settings, counts
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from core.files import InputError, atomic_write
from core.json_files import digest
from core.reading import sha256
from kg.build.segment.cuts import (
    REVIEWED,
    CutPoint,
    count_cut_characters,
    propose_cuts,
    read_cut_points,
    write_cut_points,
)
from kg.build.segment.ngrams import fold_text
from kg.build.segment.phrases import (
    Mined,
    Mining,
    PhraseModel,
    Precision,
    mine,
    precision,
    write_phrases,
)
from kg.build.segment.segmenter import (
    FORMAT,
    SEGMENTER,
    SHORT,
    SINGLES,
    Explained,
    Segmenter,
    is_ideograph,
    read_dictionary,
    units,
)
from kg.documents.formats import documents, files_in
from kg.graph import KnowledgeGraph, fingerprint

PHRASE = "短语"  #: the type of a phrase that is no name of the graph
SEGMENTS = pa.schema(
    [("name", pa.string()), ("pieces", pa.list_(pa.string())), ("how", pa.string())]
)
#: For the vocabulary; a trial showed everyday expressions of several words below it ("较好的效果"),
#: rarely above.
QUALITY = 0.9


def vocabulary(graph: KnowledgeGraph, phrases: Sequence[str]) -> tuple[KnowledgeGraph, list[str]]:
    """(`graph` with each of `phrases` that no name of it equals as an entity of its own, those
    phrases).

    Compared in lower case and NFKC. Ids are phrase:<text>.
    """
    names = [*graph.entities["name"].to_pylist(), *graph.names["name"].to_pylist()]
    known_names = set(map(fold_text, names))
    added = [phrase for phrase in dict.fromkeys(phrases) if fold_text(phrase) not in known_names]
    ids = {phrase: f"phrase:{phrase}" for phrase in added}
    rows: dict[str, list[tuple[str, ...]]] = {
        "entities": [(i, phrase, PHRASE) for phrase, i in ids.items()],
        "names": [(i, phrase, "preferred", "zh", "phrases") for phrase, i in ids.items()],
    }
    return graph.with_rows(rows, {"phrases": len(added)}), added


def _is_long_candidate(name: str) -> bool:
    return len("".join(name.split())) > SHORT and any(map(is_ideograph, name))


def request(
    graph: str | Path,
    inputs: Sequence[str | Path],
    cut_points: str | Path | None,
    dictionaries: Sequence[str | Path],
    settings: Mapping[str, Any],
) -> str:
    """A digest of all that decides what :func:`build_segmenter` makes: the content of graph, text
    and tables, and its `settings`."""
    files = [*files_in(inputs), Path(cut_points or REVIEWED), *map(Path, dictionaries)]
    for path in files:
        if not path.is_file():
            raise InputError(f"{path}: no such file")
    return digest(
        {
            "format": FORMAT,
            "graph": fingerprint(graph),
            "files": [sha256(f) for f in files],
            **settings,
        }
    )


def build_segmenter(
    graph: Path,
    input: Sequence[Path],
    out: Path,
    quality: float = QUALITY,
    cut_points: Path | None = None,
    dictionary: Sequence[Path] = (),
    format: str | None = None,
    encoding: str = "utf-8",
    singles: float = SINGLES,
    fresh: bool = False,
    mining: Mining = Mining(),
) -> None:
    """Mine phrases of a text, make the entity vocabulary, and cut its long names.

    Args:
        graph: Folder of a knowledge graph.
        input: Files, plain or .gz, or folders of them.
        out: Folder for the segmenter and the vocabulary.
        quality: Least quality of a phrase of the vocabulary.
        cut_points: A reviewed cut_points.tsv. Default: the project's, for Chinese.
        dictionary: Files of more words for Jieba, one a line.
        format: Format of the files (kg.documents.formats). Default: by their names.
        encoding: Encoding of the text files, such as gb18030.
        singles: Share of single characters that is too many.
        fresh: Build again what is built.

    Raises InputError for anything that cannot be read, before the text is.
    """
    _check_quality(quality)
    cutting = {"encoding": encoding, "singles": singles, "quality": quality}
    settings = cutting | asdict(mining) | {"read_as": format}
    wanted = request(graph, input, cut_points, dictionary, settings)
    if SEGMENTER.is_kept(out, {"request": wanted}, fresh):
        return
    loaded, reviewed = KnowledgeGraph.load(graph), read_cut_points(cut_points or REVIEWED)
    dictionary_words = [word for path in dictionary for word in read_dictionary(path)]
    names = list(dict.fromkeys(loaded.names["name"].to_pylist()))
    paths = files_in(input)
    texts = documents(paths, format, "skip", encoding, used=False)
    mined = mine((document.text for document in texts), names, mining)
    whole, added = vocabulary(loaded, mined.select_phrases(quality))
    cut = _cut_names([*names, *added], dictionary_words, mined, reviewed, singles)
    about = {"request": wanted, "singles": singles, "quality": quality, "seed": mining.seed}
    about |= {"graph": fingerprint(graph), "inputs": [path.name for path in paths]}
    manifest = about | _count_names(mined, names, added, dictionary_words, reviewed, cut)
    with SEGMENTER.create(out, manifest) as folder:
        _write_tables(folder, mined, cut)
        whole.save(folder / "vocabulary")
    _print_counts(manifest, precision(mined, seed=mining.seed))


def _check_quality(quality: float) -> None:
    """Raise InputError for a quality that is no share."""
    if not 0 < quality <= 1:
        raise InputError(f"--quality {quality}: expected a share above 0 and at most 1")


class _Cut(NamedTuple):
    """rows: the names that are cut. points: the characters that names might be cut at. words: what
    Jieba learns. counts: names by their length."""

    rows: list[Explained]
    points: list[CutPoint]
    words: list[tuple[str, int | None]]
    counts: dict[str, int]


def _cut_names(
    names: Iterable[str],
    dictionary_words: Sequence[tuple[str, int | None]],
    mined: Mined,
    reviewed: dict[str, str],
    singles: float,
) -> _Cut:
    """Propose cut points for the long ones of some names, and cut these."""
    model = PhraseModel.from_counts(mined.phrases, mined.total)
    distinct = list(dict.fromkeys(names))
    candidates = [name for name in distinct if _is_long_candidate(name)]
    pieces = (model.pieces(units(name), whole=False) for name in candidates)
    points = propose_cuts(count_cut_characters(pieces), reviewed)
    unseen = set(reviewed) - {point.character for point in points}
    points += [CutPoint(c, 0, 0, "", True, reviewed[c]) for c in sorted(unseen)]
    short = [
        name
        for name in distinct
        if 1 < len(name) <= SHORT and name.isalnum() and any(map(is_ideograph, name))
    ]
    words = [*((name, None) for name in short), *dictionary_words]
    segmenter = Segmenter(words, reviewed, model, singles=singles)
    rows = [row for row in map(segmenter.explain, candidates) if len(row.pieces) > 1]
    counts = {
        "short, for Jieba": len(short),
        "long candidates": len(candidates),
        "long": len(rows),
        "not cut, so short": len(candidates) - len(rows),
    }
    return _Cut(rows, points, words, counts)


def _count_names(
    mined: Mined, names: Sized, added: Sized, dictionary_words: Sized, reviewed: Sized, cut: _Cut
) -> dict[str, Any]:
    """What was mined and cut, for the manifest."""
    return {
        "format": FORMAT,
        "total": mined.total,
        "mined": mined.report,
        "vocabulary": {
            "names of the graph": len(names),
            "phrases added": len(added),
            **cut.counts,
            "user words": len(dictionary_words),
        },
        "long by": dict(Counter(row.how for row in cut.rows)),
        "cut points": len(reviewed),
    }


def _write_tables(folder: Path, mined: Mined, cut: _Cut) -> None:
    """Write the phrases, cut points, words and segments."""
    write_phrases(folder / "phrases.tsv", mined.phrases)
    write_cut_points(folder / "cut_points.tsv", cut.points)
    with atomic_write(folder / "words.tsv") as handle:
        for word, count in cut.words:
            handle.write(word + (f"\t{count}" if count else "") + "\n")
    segments = pa.Table.from_pylist([row._asdict() for row in cut.rows], schema=SEGMENTS)
    pq.write_table(segments, folder / "segments.parquet", compression="zstd")


def _print_counts(manifest: dict[str, Any], measured: Precision) -> None:
    for part in ("mined", "vocabulary", "long by"):
        print(
            f"{part}: " + ", ".join(f"{count:,} {what}" for what, count in manifest[part].items())
        )
    if not manifest["mined"].get("phrases"):
        print(
            "warning: no phrases: the text has no candidates, or no names of the graph among them;"
            " names are cut by cut points and Jieba alone"
        )
        return
    print(
        f"of the best {measured.best:,} phrases that the trees were not trained on,"
        f" {measured.names:,} are names held out; {measured.chance:.1f} by chance. Some of them"
        " (phrase, count, quality):"
    )
    for phrase, count, quality, is_name in measured.sample:
        remark = "\theld-out name" if is_name else ""
        print(f"  {phrase}\t{count}\t{quality:.2f}{remark}")
