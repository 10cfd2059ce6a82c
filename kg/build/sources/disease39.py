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
from dataclasses import dataclass, field
from pathlib import Path

from core.files import InputError
from core.reading import lines
from kg.build.votes import types_of_diseases
from kg.graph import KnowledgeGraph

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
CUT_NAMES = "names that are cut (…)"
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
    names = (" ".join(part.split()).removesuffix("等") for part in separator.split(cell))
    return [name for name in names if name]


@dataclass
class _Diseases:
    """What the rows of the table say: diseases, their triples and aliases, votes for the types of
    what they name; counts of what is left out."""

    diseases: dict[str, None] = field(default_factory=dict)
    triples: dict[tuple[str, str, str], None] = field(default_factory=dict)
    same: dict[tuple[str, str], None] = field(default_factory=dict)
    votes: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    counts: Counter[str] = field(default_factory=Counter)

    def add_row(self, where: str, row: dict[str, str]) -> None:
        """Add what a row says. Raises InputError for one without a name."""
        name = " ".join(row["name"].split())
        if not name:
            raise InputError(f"{where}: name is empty. Fill it in or take the line out.")
        if name.endswith(CUT):
            self.counts["rows whose disease is cut (…)"] += 1
            return
        self.counts["second rows of a disease (what they say is kept)"] += name in self.diseases
        self.diseases[name] = None
        for column, (relation, kind) in COLUMNS.items():
            separator = _TREATMENTS if column == "treatment" else _BLANKS
            for item in filter(None, separator.split(MORE.sub(" ", row[column]))):
                self._add_triple((name, relation, item), kind)
        for alias in aliases(row["alias"]):
            self._add_alias(name, alias)

    def _add_triple(self, triple: tuple[str, str, str], kind: str) -> None:
        item = triple[2]
        if item.endswith(CUT):
            self.counts[CUT_NAMES] += 1
        elif item in NOTHING:
            self.counts["words for nothing (暂无相关资料)"] += 1
        elif triple in self.triples:
            self.counts["triples that stand there twice"] += 1
        else:
            self.triples[triple] = None
            self.votes[item][kind] += 1

    def _add_alias(self, name: str, alias: str) -> None:
        if alias.endswith(CUT):
            self.counts[CUT_NAMES] += 1
        elif alias == name or (name, alias) in self.same:
            self.counts["aliases that repeat the name or another alias"] += 1
        else:
            self.same[name, alias] = None


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
    diseases = _Diseases()
    for where, row in rows(path, encoding):
        diseases.add_row(where, row)
    types = types_of_diseases(diseases.diseases, diseases.votes)
    for _, alias in diseases.same:
        types.setdefault(alias, "disease")
    own_names = [(entity, entity, "preferred", language, source) for entity in types]
    other_names = [(name, alias, "synonym", language, source) for name, alias in diseases.same]
    return KnowledgeGraph.from_rows(
        {
            "entities": [(entity, entity, kind) for entity, kind in types.items()],
            "names": [*own_names, *other_names],
            "triples": diseases.triples,
            "equivalences": [(name, ALIAS, alias) for name, alias in diseases.same],
        },
        manifest={
            "source": "39.net, as QASystemOnMedicalGraph carries it",
            "version": "not stated",
            "licence": "none stated (scraped web table): for internal use",
            "left_out": dict(diseases.counts),
        },
    )
