"""Disease table of 39.net with aliases, as QASystemOnMedicalGraph carries it -> KnowledgeGraph with
equivalences.

A CSV (.gz too) in GB18030 with the columns name, alias, part, department, checklist, symptom,
complication, treatment, drug; others are not read. Cells hold several names with blanks between
(treatments also 、) and may end in "[详细]".

Entities: the diseases, their aliases and whatever the cells name, an entity's id being its name.
    Relations are called as
CMeKG calls them: 常见发病部位 就诊科室 检查 常见症状 并发症 治疗 相关药物. Rows of one disease are taken together.
Aliases (between , ， ; ；, or 、 where there is no other of these) become names of the disease, and
equivalences of it with an entity of their own. Names that the site has cut ("枸橼酸西地那非...") and words
for nothing (NOTHING) are left out and counted.
"""  # noqa: E501

from __future__ import annotations

import csv
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from core.files import InputError, lines
from kg.graph import KnowledgeGraph, table

#: column -> (relation, type of what it names)
COLUMNS = {
    "part": ("常见发病部位", "body part"),
    "department": ("就诊科室", "department"),
    "checklist": ("检查", "examination"),
    "symptom": ("常见症状", "symptom"),
    "complication": ("并发症", "disease"),
    "treatment": ("治疗", "treatment"),
    "drug": ("相关药物", "drug"),
}
ALIAS = "别称"
CUT = ("...", "…")
NOTHING = ("暂无相关资料", "暂无", "无", "不详", "详细")
MORE = re.compile(r"\[详细\]")
_BLANKS, _TREATMENTS = re.compile(r"\s+"), re.compile(r"[\s、，,；;]+")
_ALIASES, _PAUSE = re.compile(r"[,，;；]"), re.compile("、")


def files(path: str | Path) -> list[Path]:
    return [Path(path)]


def rows(path: str | Path, encoding: str = "gb18030") -> Iterator[tuple[str, dict[str, str]]]:
    """(path:line, values by column). Raises InputError for a missing column, another number of
    columns, other bytes."""
    path = Path(path)
    number = 0

    def text() -> Iterator[str]:
        nonlocal number
        for number, line in lines(path, encoding):  # noqa: B007 - used in errors
            yield line + "\n"

    try:
        reader = csv.reader(text(), strict=True)
        header = next(reader, [])
        if missing := [c for c in ("name", "alias", *COLUMNS) if c not in header]:
            raise InputError(
                f"{path}:1: expected the columns name, alias, {', '.join(COLUMNS)}; {missing[0]} is"
                " missing. Give disease.csv of QASystemOnMedicalGraph."
            )
        for values in reader:
            if len(values) != len(header):
                raise InputError(
                    f"{path}:{number}: expected {len(header)} columns, got {len(values)}. Fix the"
                    " line."
                )
            yield f"{path}:{number}", dict(zip(header, values, strict=True))
    except csv.Error as error:
        raise InputError(f"{path}:{number}: not valid CSV ({error}). Fix the line.") from error


def aliases(cell: str) -> list[str]:
    """The names in a cell of aliases; 、 is part of a name ("侧孔、中孔闭锁综合征") where another mark
    separates them."""  # noqa: E501
    separator = _ALIASES if _ALIASES.search(cell) else _PAUSE
    return [
        name
        for part in separator.split(cell)
        if (name := " ".join(part.split()).removesuffix("等"))
    ]


def read(
    path: str | Path, encoding: str = "gb18030", language: str = "zh", source: str = "39.net"
) -> KnowledgeGraph:
    """The table at `path`.

    Rows and names that are cut, words for nothing, aliases that say the name again and triples that
    occur twice are counted in the manifest. Raises InputError naming path:line for a broken line or
    a row without a name.

    Args:
        encoding: Encoding of the file.
        language: Language of its names.
        source: Source that its names say they come from.
    """
    triples: dict[tuple[str, str, str], None] = {}
    same: dict[tuple[str, str], None] = {}
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    diseases: dict[str, None] = {}
    counts: Counter[str] = Counter()
    for where, row in rows(path, encoding):
        name = " ".join(row["name"].split())
        if not name:
            raise InputError(f"{where}: name is empty. Fill it in or take the line out.")
        if name.endswith(CUT):
            counts["rows whose disease is cut (…)"] += 1
            continue
        counts["second rows of a disease (what they say is kept)"] += name in diseases
        diseases[name] = None
        for column, (relation, kind) in COLUMNS.items():
            cell = MORE.sub(" ", row[column])
            for item in filter(
                None, (_TREATMENTS if column == "treatment" else _BLANKS).split(cell)
            ):
                if item.endswith(CUT):
                    counts["names that are cut (…)"] += 1
                elif item in NOTHING:
                    counts["words for nothing (暂无相关资料)"] += 1
                elif (name, relation, item) in triples:
                    counts["triples that stand there twice"] += 1
                else:
                    triples[name, relation, item] = None
                    votes[item][kind] += 1
        for alias in aliases(row["alias"]):
            if alias.endswith(CUT):
                counts["names that are cut (…)"] += 1
            elif alias == name or (name, alias) in same:
                counts["aliases that repeat the name or another alias"] += 1
            else:
                same[name, alias] = None
    types = dict.fromkeys(diseases, "disease")
    for entity, said in votes.items():
        if entity not in types:
            first = said.most_common(2)
            types[entity] = first[0][0] if len(first) == 1 or first[0][1] > first[1][1] else ""
    for _, alias in same:
        types.setdefault(alias, "disease")
    ids, found = list(types), list(triples)
    named = [(entity, entity, "preferred") for entity in ids] + [
        (name, alias, "synonym") for name, alias in same
    ]
    return KnowledgeGraph(
        entities=table("entities", {"id": ids, "name": ids, "type": list(types.values())}),
        names=table(
            "names",
            {c: [row[i] for row in named] for i, c in enumerate(("id", "name", "kind"))}
            | {"language": [language] * len(named), "source": [source] * len(named)},
        ),
        definitions=table("definitions", {"id": [], "text": []}),
        triples=table(
            "triples",
            {c: [row[i] for row in found] for i, c in enumerate(("head", "relation", "tail"))},
        ),
        equivalences=table(
            "equivalences",
            {
                "head": [n for n, _ in same],
                "relation": [ALIAS] * len(same),
                "tail": [a for _, a in same],
            },
        ),
        manifest={
            "source": "39.net, as QASystemOnMedicalGraph carries it",
            "version": "not stated",
            "licence": "none stated (scraped web table): for internal use",
            "left_out": dict(counts),
        },
    )
