"""Table 10: the clauses that hold a mention s^a and its simulated context c_e together."""

from __future__ import annotations

from typing import NamedTuple


class Template(NamedTuple):
    """`words` between mention and context; which of the two is first."""

    words: str
    mention_first: bool


DEFINITION = (
    Template("is defined as", True),
    Template("is described as", True),
    Template("are the definitions of", False),
    Template("describe", False),
)
SYNONYMS = (
    Template("are the synonyms of", False),
    Template("indicate the same concept as", False),
    Template("has synonyms such as", True),
    Template("refers to the same concepts as", True),
)
SAME = (
    Template("is", False),
    Template("is the same as", False),
    Template("is", True),
    Template("is the same as", True),
)
TEMPLATES = (*DEFINITION, *SYNONYMS, *SAME)
