"""Disease-centred JSON of xywy.com, as MedicalKGQA carries it -> KnowledgeGraph with the site's
running text.

A folder (or a .tar.gz of it, which is never unpacked to disk) with medical_0.json, medical_1.json,
…; each holds {"0": disease, "1": disease, …}, and a disease is

    gaishu_info    name, desc, has_complication, belongs_to_department, treat_way, common_drug [,
                   single values]
    symptom_data   symptoms, symptom_detail         inspect_info  examinations
    food_info      recommand_recipes, good_food, avoid_food, good_diet_text, avoid_diet_text
    cause_info, prevent_info, nursing_info          running text

Entities: the diseases and whatever their lists name, an entity's id being its name with whitespace
normalised. Relations are called as CMeKG calls them, so that graphs of both can be united: 常见症状 并发症
就诊科室 治疗 相关药物 检查, and 推荐食谱 宜吃 忌吃 for food. A disease is one however it is named elsewhere; any other
entity is what most lists say, "" where two draw. Definitions: `desc`. Names that the site has cut
("冬春季的慢性咳...") are left out and counted. Insurance, share, ways of transmission, durations, odds and
costs are values and no entities; they are not read.

texts() returns the running text: desc, cause, prevent, symptom, nursing, good-diet and avoid-diet.
"""  # noqa: E501

from __future__ import annotations

import lzma
import re
import tarfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from core.files import InputError, explain_error
from core.json_files import parse_json
from core.reading import WHOLE, decode, excerpt
from kg.build.votes import types_of_diseases
from kg.graph import KnowledgeGraph

#: (part of the record or "", list in it) -> (relation, type of what the list names)
LISTS = {
    ("gaishu_info", "has_complication"): ("并发症", "disease"),
    ("gaishu_info", "belongs_to_department"): ("就诊科室", "department"),
    ("gaishu_info", "treat_way"): ("治疗", "treatment"),
    ("gaishu_info", "common_drug"): ("相关药物", "drug"),
    ("symptom_data", "symptoms"): ("常见症状", "symptom"),
    ("", "inspect_info"): ("检查", "examination"),
    ("food_info", "recommand_recipes"): ("推荐食谱", "recipe"),
    ("food_info", "good_food"): ("宜吃", "food"),
    ("food_info", "avoid_food"): ("忌吃", "food"),
}
#: (part of the record or "", text or list of texts in it) -> kind of text
TEXTS = {
    ("gaishu_info", "desc"): "desc",
    ("", "cause_info"): "cause",
    ("", "prevent_info"): "prevent",
    ("symptom_data", "symptom_detail"): "symptom",
    ("", "nursing_info"): "nursing",
    ("food_info", "good_diet_text"): "good-diet",
    ("food_info", "avoid_diet_text"): "avoid-diet",
}
CUT = ("...", "…")
_FILE = re.compile(r"medical_(\d+)\.json")


def _number(name: str) -> int:
    match = _FILE.fullmatch(name)
    return int(match.group(1)) if match else -1


def files(path: str | Path) -> list[Path]:
    """The medical_<n>.json of the folder `path` by number, or the archive itself. Raises InputError
    for none."""
    path = Path(path)
    if not path.is_dir():
        return [path]
    paths = sorted(
        (f for f in path.rglob("*.json") if _number(f.name) >= 0), key=lambda f: _number(f.name)
    )
    if not paths:
        raise InputError(
            f"{path}: no medical_0.json, medical_1.json, … here. Give the folder data/ of"
            " MedicalKGQA, or a .tar.gz of it."
        )
    return paths


def _contents(path: Path) -> Iterator[tuple[str, bytes]]:
    """(where, content) of each medical_<n>.json by number."""
    if path.is_dir() or path.suffix == ".json":
        for file in files(path):
            try:
                yield str(file), file.read_bytes()
            except OSError as error:
                raise explain_error(error, file) from error
        return
    try:
        with tarfile.open(path) as archive:
            members = [
                m for m in archive if m.isfile() and _number(PurePosixPath(m.name).name) >= 0
            ]
            if not members:
                raise InputError(
                    f"{path}: no medical_0.json, medical_1.json, … in it. Give another archive."
                )
            for member in sorted(members, key=lambda m: _number(PurePosixPath(m.name).name)):
                if member.size > WHOLE:
                    raise InputError(
                        f"{path}/{member.name}: {member.size:,} bytes unpacked. Is this the right"
                        " archive?"
                    )
                handle = archive.extractfile(member)
                assert handle is not None  # it is a file
                yield f"{path}/{member.name}", handle.read()
    except (
        tarfile.TarError,
        EOFError,
        zlib.error,
        lzma.LZMAError,
        ValueError,
        OverflowError,
    ) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{path}: expected a folder or a .tar.gz; it is cut or no archive ({error}). Fetch it"
            " again."
        ) from error
    except OSError as error:
        if error.errno is None:
            raise InputError(
                f"{path}: the archive is cut or broken ({error}). Fetch it again."
            ) from error
        raise explain_error(error, path) from error


def _value(record: dict[str, Any], part: str, key: str, where: str) -> Any:
    """The value of `key` in `part`; None where it is missing."""
    holder = record.get(part, {}) if part else record
    if not isinstance(holder, dict):
        raise InputError(
            f"{where}, {part}: expected an object, got {excerpt(holder)}. Fix the record."
        )
    return holder.get(key)


def records(path: str | Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(where, the disease's name, record), in order. Raises InputError naming file and key for what
    is broken."""
    for where, content in _contents(Path(path)):
        diseases = parse_json(decode(content, where), where, "Fetch the file again.")
        if not isinstance(diseases, dict):
            raise InputError(
                f'{where}: expected {{"0": disease, …}}, got {type(diseases).__name__}.'
                " Fetch the file again."
            )
        for key, record in diseases.items():
            at = f"{where}: key {key!r}"
            if not isinstance(record, dict):
                raise InputError(
                    f"{at}: expected an object, got {excerpt(record)}. Fix the record."
                )
            name = _value(record, "gaishu_info", "name", at)
            if not isinstance(name, str) or not name.strip():
                raise InputError(
                    f"{at}, gaishu_info, name: expected a disease's name, got {name!r}. Fix the"
                    " record."
                )
            yield at, " ".join(name.split()), record


def _list_values(value: Any, where: str) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InputError(
            f"{where}: expected a list of strings, got {excerpt(value)}. Fix the record."
        )
    return [" ".join(item.split()) for item in value]


def read(path: str | Path, language: str = "zh", source: str = "xywy") -> KnowledgeGraph:
    """The graph in the folder or archive `path`.

    Cut names, empty ones, triples that occur twice and second records of a disease (their triples
    are kept) are counted in the manifest. Raises InputError naming file, key and field for what is
    broken.

    Args:
        language: Language of its names.
        source: Source that its names say they come from.
    """
    triples: dict[tuple[str, str, str], None] = {}
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    diseases: dict[str, None] = {}
    definitions: dict[tuple[str, str], None] = {}
    counts: Counter[str] = Counter()
    for where, name, record in records(path):
        if name.endswith(CUT):
            counts["diseases whose name is cut"] += 1
            continue
        counts["second records of a disease (their triples are kept)"] += name in diseases
        diseases[name] = None
        for relation, kind, tail in _listed_tails(record, where):
            row = (name, relation, tail)
            if not tail:
                counts["rows without a tail"] += 1
            elif tail.endswith(CUT):
                counts["rows whose tail is cut (…)"] += 1
            elif row in triples:
                counts["rows that stand there twice"] += 1
            else:
                triples[row] = None
                votes[tail][kind] += 1
        text = _value(record, "gaishu_info", "desc", where)
        if isinstance(text, str) and text.strip():
            definitions[name, " ".join(text.split())] = None
    types = types_of_diseases(diseases, votes)
    return KnowledgeGraph.from_rows(
        {
            "entities": [(entity, entity, kind) for entity, kind in types.items()],
            "names": [(entity, entity, "preferred", language, source) for entity in types],
            "definitions": definitions,
            "triples": triples,
        },
        manifest={
            "source": "xywy.com, as MedicalKGQA carries it",
            "version": "not stated",
            "licence": "none stated (scraped web text): for internal use",
            "left_out": dict(counts),
        },
    )


def _listed_tails(record: dict[str, Any], where: str) -> Iterator[tuple[str, str, str]]:
    """(relation, type of the tail, tail) of every list of a record."""
    for (part, key), (relation, kind) in LISTS.items():
        place = f"{where}, {part} {key}".replace("  ", " ")
        for tail in _list_values(_value(record, part, key, where), place):
            yield relation, kind, tail


def texts(path: str | Path) -> Iterator[tuple[str, str, str]]:
    """(disease, "<kind>-<n>", text): each record's running text, a text each kind, its paragraphs
    on lines of their own.

    n counts the records of a disease. A text that one of its records said already is not given
    again. Raises InputError as :func:`read` does.
    """
    numbers: Counter[tuple[str, str]] = Counter()
    seen: set[tuple[str, str]] = set()
    for where, name, record in records(path):
        for (part, key), kind in TEXTS.items():
            value = _value(record, part, key, where)
            if value is None:
                continue
            items = [value] if isinstance(value, str) else value
            if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
                raise InputError(
                    f"{where}, {part} {key}: expected text, got {excerpt(value)}. Fix the record."
                )
            paragraphs = (" ".join(line.split()) for item in items for line in item.splitlines())
            text = "\n".join(filter(None, paragraphs))
            if text and (name, text) not in seen:
                seen.add((name, text))
                yield name, f"{kind}-{numbers[name, kind]}", text
                numbers[name, kind] += 1
