"""K-BERT's .spo files -> KnowledgeGraph: subject<TAB>predicate<TAB>object (.gz too).

In Medical.spo the predicate is 类别 throughout, and says of 13,864 entities whether they are 疾病, 症状,
部位, 治疗 or 检查: these become types (TYPES). A line with another predicate is a triple, whose object is
an entity as well.
"""  # noqa: E501

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from core.files import InputError
from core.reading import excerpt, lines
from kg.graph import KnowledgeGraph

TYPE = "类别"
TWICE = "lines that stand there twice"
TYPES = {
    "疾病": "disease",
    "症状": "symptom",
    "部位": "body part",
    "治疗": "treatment",
    "检查": "examination",
}


def files(path: str | Path) -> list[Path]:
    return [Path(path)]


def read(
    path: str | Path, encoding: str = "utf-8", language: str = "zh", source: str = "K-BERT"
) -> KnowledgeGraph:
    """The file at `path`; an object of 类别 that is not in TYPES is a type of that name.

    An entity of two types keeps the first. These and lines that occur twice are counted in the
    manifest. Raises InputError naming path:line for a line that is not three names.

    Args:
        encoding: Encoding of the file.
        language: Language of its names.
        source: Source that its names say they come from.
    """
    types: dict[str, str] = {}
    triples: dict[tuple[str, str, str], None] = {}
    counts: Counter[str] = Counter()
    for head, relation, tail in _rows(path, encoding):
        if relation == TYPE:
            kind = TYPES.get(tail, tail)
            if types.get(head) == kind:
                counts[TWICE] += 1
            elif types.get(head):
                counts["further types of an entity"] += 1
            else:
                types[head] = kind
        elif (head, relation, tail) in triples:
            counts[TWICE] += 1
        else:
            triples[head, relation, tail] = None
            types.setdefault(head, "")
            types.setdefault(tail, "")
    return KnowledgeGraph.from_rows(
        {
            "entities": [(entity, entity, kind) for entity, kind in types.items()],
            "names": [(entity, entity, "preferred", language, source) for entity in types],
            "triples": triples,
        },
        manifest={
            "source": f"{Path(path).name}, a K-BERT knowledge graph",
            "version": "not stated",
            "licence": "none stated",
            "left_out": dict(counts),
        },
    )


def _rows(path: str | Path, encoding: str) -> Iterator[tuple[str, str, str]]:
    """(subject, predicate, object) of each line. Raises InputError for a line that is not three
    names."""
    for number, line in lines(path, encoding):
        if not line.strip():
            continue
        parts = [" ".join(value.split()) for value in line.split("\t")]
        if len(parts) != 3 or not all(parts):
            raise InputError(
                f"{path}:{number}: expected subject, predicate, object, tabs between them, got"
                f" {excerpt(line)}. Fix the line."
            )
        head, relation, tail = parts
        yield head, relation, tail
