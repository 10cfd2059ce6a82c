"""Whether a name is an entity's, and which type an entity has: the rules of kg.build.refine."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from kg.build.votes import most
from kg.graph import KnowledgeGraph

UNKNOWN = "未知"
VALUE = "value"
BEGINS = (
    "用于 适用于 主要 常见 常用 常有 常伴 常为 可有 可见 可伴 可能 可由 可触 可引 可出 可导 偶有"
    " 偶见 偶可 伴有 并有 或 及 与 "
    "患者 有时 有报道 无明显 多见 多为 多由 应用 长期 治疗各种 表现 尚不 尚未 未见 不宜 不能 其他"
    " 其它 一般 如有 由于 本品 "
    "的 引起 提示 见上 症见 属 每 呈 通过 主治 主要成"
).split()
ENDS = "等 等症 等症状 者 时 的 后 有关 患者 人群 慎用 禁用 尚不明确".split()
WITHIN = "引起 所致 导致 患者 用于 以及 或者 见上述 本品 的人 不可归类 成份为 成分为 可能 伴有 适量 等的".split()  # noqa: E501
_CHINESE = re.compile("[㐀-鿿]")
_SENTENCE = re.compile("[。；！？]")
_LIST = re.compile(r"[，。；：？！、…:;?!<>＜＞≤≥=＝《》“”\"]|(?<!\d),|,(?!\d)")
_DOSE = re.compile(
    r"\d\s*(?:[%％°℃]|(?:m|μ|k)?[gG](?![A-Za-z])|m?[lL](?![A-Za-z])|mmol|IU|毫|微克|克|升|单位|万|岁|天|小时|周|个月|次|片|粒)"
)
_RUN = re.compile("[A-Za-z0-9.]+")
_BEGINS = re.compile("|".join(map(re.escape, BEGINS)))
_ENDS = re.compile(f"(?:{'|'.join(map(re.escape, ENDS))})$")
_WITHIN = re.compile("|".join(map(re.escape, WITHIN)))
Triple = tuple[str, str, str]


def is_chinese(name: str) -> bool:
    """Whether there is a Chinese character in `name`."""
    return bool(_CHINESE.search(name))


def no_entity(name: str, kind: str, head: bool, longest: int = 15, foreign: bool = False) -> str:
    """The rule by which a `name` of the type `kind` is no entity's, or "". `head`: it heads a
    triple of its own."""
    if kind == VALUE:
        return "value"
    if not foreign and not is_chinese(name):
        return "script"
    if head:
        return "list" if _SENTENCE.search(name) else ""
    if _LIST.search(name):
        return "list"
    if _DOSE.search(name):
        return "dose"
    if _BEGINS.match(name) or _ENDS.search(name) or _WITHIN.search(name):
        return "wording"
    return "length" if len(_RUN.sub("x", name)) > longest else ""


def signatures(
    triples: Iterable[Triple], types: dict[str, str], share: float = 0.5
) -> dict[str, tuple[str, str]]:
    """relation -> the types of its heads and of its tails, "" where no type has more than `share`
    of its triples."""
    seen: Counter[str] = Counter()
    ends: dict[str, tuple[Counter[str], Counter[str]]] = defaultdict(lambda: (Counter(), Counter()))
    for head, relation, tail in triples:
        seen[relation] += 1
        for votes, entity in zip(ends[relation], (head, tail), strict=True):
            if kind := types[entity]:
                votes[kind] += 1

    def majority_type(votes: Counter[str], count: int) -> str:
        kind = most(votes)
        return kind if kind and votes[kind] > share * count else ""

    return {
        relation: (majority_type(ends[relation][0], n), majority_type(ends[relation][1], n))
        for relation, n in seen.items()
    }


def vote_types(
    triples: Sequence[Triple], types: dict[str, str], share: float = 0.5
) -> dict[str, str]:
    """entity without a type -> what most of its triples' relations say, for those of whom something
    is said."""
    kinds_of = signatures(triples, types, share)
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for head, relation, tail in triples:
        for entity, kind in zip((head, tail), kinds_of[relation], strict=True):
            if kind and not types[entity]:
                votes[entity][kind] += 1
    return count_votes(votes)


def count_votes(votes: dict[str, Counter[str]]) -> dict[str, str]:
    """entity -> the type with most votes, for those of whom there is one."""
    winners = {entity: most(counts) for entity, counts in votes.items()}
    return {entity: kind for entity, kind in winners.items() if kind}


def types_by_name(graph: KnowledgeGraph) -> dict[str, str]:
    """Name -> type, by the entities' own names, then by other names that one entity has; "value" is
    no type."""
    own_types: dict[str, set[str]] = defaultdict(set)
    for name, kind in graph.rows("entities", "name", "type"):
        own_types[name].add(kind)
    kinds = dict(graph.rows("entities", "id", "type"))
    others: dict[str, set[str]] = defaultdict(set)
    for entity, name in graph.rows("names", "id", "name"):
        others[name].add(entity)
    type_of = {name: kinds[next(iter(ids))] for name, ids in others.items() if len(ids) == 1}
    type_of |= {
        name: next(iter(votes)) if len(votes) == 1 else "" for name, votes in own_types.items()
    }
    return {name: kind for name, kind in type_of.items() if kind not in ("", VALUE, UNKNOWN)}


def loose_tails(triples: Sequence[Triple], types: dict[str, str]) -> set[str]:
    """Tails that are nothing else: they head no triple, are the tail of one alone and have no
    type."""
    heads, into = {head for head, _, _ in triples}, Counter(tail for _, _, tail in triples)
    return {
        tail
        for tail, count in into.items()
        if count == 1 and tail not in heads and not types.get(tail)
    }
