"""The Chinese tasks' files in their real formats, with invented text.

`write(dataset, folder)` lays a data set's folder out as the task definitions expect it; the other
functions write one file each.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

#: text with entities as (surface, type), in the order of their places
SENTENCES: list[tuple[str, list[tuple[str, str]]]] = [
    ("我嘴里起了水泡，要吃甲药吗", [("嘴里", "body"), ("水泡", "symptom"), ("甲药", "drug")]),
    ("头痛\u3000三天\xa0了，CT正常", [("头痛", "symptom"), ("三天", "time"), ("CT", "test")]),
    ("得了乙病怎么办", [("乙病", "disease")]),
    ("乙病甲药", [("乙病", "disease"), ("甲药", "drug")]),
    ("多喝水就好", []),
]
PAIRS = [
    ("1", "乙病怎么治", "如何治疗乙病"),
    ("0", '他说"没""事"', "甲药多少钱"),
    ("1", "头痛吃什么药", "头痛用药"),
    ("0", "头痛吃什么药", "水泡能挑破吗"),
]
ANSWERS = [
    ("1", "乙病怎么治", "吃甲药，多休息"),
    ("0", "乙病怎么治", '医生说"没""事"'),
    ("0", "头痛要紧吗", "去买水果"),
    ("1", "头痛要紧吗", "不要紧，注意休息"),
]
Triple = tuple[str, str, str, str, str]
#: text, triples (subject, subject type, predicate, object type, object)
FACTS: list[tuple[str, list[Triple]]] = [
    ("乙病@乙病患者可用甲药治疗。", [("乙病", "疾病", "药物治疗", "药物", "甲药")]),
    (
        "丙病@丙病又名丙症，丙病引起头痛。",
        [
            ("丙病", "疾病", "同义词", "疾病", "丙症"),
            ("丙病", "疾病", "临床表现", "症状", "头痛"),
            ("丙病", "疾病", "并发症", "症状", "头痛"),
        ],
    ),
]
SCHEMA = [
    ("疾病", "药物治疗", "药物"),
    ("疾病", "同义词", "疾病"),
    ("疾病", "临床表现", "症状"),
    ("疾病", "并发症", "症状"),
]


def _write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def spans(text: str, entities: list[tuple[str, str]]) -> list[tuple[int, int, str]]:
    """(start, end, type) of the entities, each looked for after the one before."""
    at, result = 0, []
    for surface, kind in entities:
        at = text.index(surface, at)
        result.append((at, at + len(surface), kind))
        at += len(surface)
    return result


def bio(path: Path, sentences: list = SENTENCES, joint: str = "_", sep: str = " ") -> Path:
    """cMedQANER's .txt: a character, a blank and its tag on each line; `joint` as in B_type or
    B-type."""
    rows = []
    for text, entities in sentences:
        tags = ["O"] * len(text)
        for start, end, kind in spans(text, entities):
            tags[start:end] = [f"B{joint}{kind}"] + [f"I{joint}{kind}"] * (end - start - 1)
        rows.append("".join(f"{c}{sep}{t}\n" for c, t in zip(text, tags, strict=True)))
    return _write(path, "\n".join(rows))


def mentions(path: Path, sentences: list = SENTENCES) -> Path:
    """cMedQANER's .json: JSON lines with offsets as strings."""
    rows = []
    for text, entities in sentences:
        given = [
            {"mention": text[s:e], "type": k, "offset": str(s)} for s, e, k in spans(text, entities)
        ]
        rows.append(json.dumps({"mention_data": given, "text": text}, ensure_ascii=False) + "\n")
    return _write(path, "".join(rows))


def json_list(path: Path, values: list[Any]) -> Path:
    """A JSON list over many lines, as CBLUE writes it."""
    return _write(path, json.dumps(values, ensure_ascii=False, indent=2))


def json_lines(path: Path, values: list[Any]) -> Path:
    return _write(path, "".join(json.dumps(v, ensure_ascii=False) + "\n" for v in values))


def nested(path: Path, sentences: list = SENTENCES, labels: bool = True) -> Path:
    """CMeEE's JSON list, end_idx included; an entity of two characters or more has its first one
    nested in it."""
    values: list[dict[str, Any]] = []
    for text, entities in sentences:
        both = [(s, e, k) for s, e, k in spans(text, entities)]
        both += [(s, s + 1, "bod") for s, e, _ in both if e - s > 1]
        given = [
            {"start_idx": s, "end_idx": e - 1, "type": k, "entity": text[s:e]} for s, e, k in both
        ]
        values.append({"text": text} | ({"entities": given} if labels else {}))
    return json_list(path, values)


def triples(path: Path, facts: list = FACTS, labels: bool = True) -> Path:
    """CMeIE's JSON lines."""
    values = []
    for text, given in facts:
        spo = [
            {
                "Combined": False,
                "predicate": predicate,
                "subject": subject,
                "subject_type": kind,
                "object": {"@value": object_},
                "object_type": {"@value": object_kind},
            }
            for subject, kind, predicate, object_kind, object_ in given
        ]
        values.append({"text": text} | ({"spo_list": spo} if labels else {}))
    return json_lines(path, values)


def schema(path: Path, classes: list[tuple[str, str, str]] = SCHEMA) -> Path:
    names = ("subject_type", "predicate", "object_type")
    return json_lines(path, [dict(zip(names, c, strict=True)) for c in classes])


def pairs(path: Path, rows: list[tuple[str, str, str]] = PAIRS) -> Path:
    """cMedQQ's rows label, question, question; cMedQA's label, question, answer."""
    return _write(path, "".join("\t".join(row) + "\n" for row in rows))


def queries(path: Path, first: str, second: str, rows: list = PAIRS, labels: bool = True) -> Path:
    """KUAKE's JSON list."""
    values = []
    for number, (label, one, two) in enumerate(rows, 1):
        values.append(
            {"id": f"s{number}", first: one, second: two} | ({"label": label} if labels else {})
        )
    return json_list(path, values)


def write_dialogues(
    path: Path, rows: list[tuple[str, ...]], header: str = "department,title,ask,answer"
) -> Path:
    """The dialogue table's CSV, every cell quoted, in GB18030."""
    cells = [",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in rows]
    return _write(path, "".join(f"{line}\n" for line in [header, *cells]).encode("gb18030"))


def write(dataset: str, folder: Path) -> Path:
    """The data set's folder: train, dev and, where the real one has gold labels for it, test."""
    for split in ("train", "dev", "test"):
        keep = slice(None) if split == "train" else slice(0, 2) if split == "dev" else slice(2, 4)
        test = split == "test"
        match dataset:
            case "cMedQANER":
                bio(folder / f"cMedQANER/{split}.txt", SENTENCES[keep])
                mentions(folder / f"cMedQANER/{split}.json", SENTENCES[keep])
            case "DXY-NER":
                bio(folder / f"DXY-NER/{split}.txt", SENTENCES[keep], "-")
            case "cMedQQ" | "cMedQNLI":
                pairs(folder / f"{dataset}/{split}.txt", PAIRS[keep])
            case "cMedQA":
                pairs(folder / f"cMedQA/{split}.txt", ANSWERS[keep])
            case "cMedQA:clean" if not test:
                pairs(folder / f"cMedQA/cMedQA_clean_{split}.txt", ANSWERS[keep])
            case "WebMedQA":
                rows = [("内科", label, "7", q, a) for label, q, a in ANSWERS[keep]]
                name = "valid" if split == "dev" else split
                pairs(folder / f"WebMedQA/medQA.{name}.txt", rows)  # type: ignore[arg-type]
            case "CMeEE":
                nested(folder / f"CMeEE/CMeEE_{split}.json", SENTENCES[keep], labels=not test)
            case "CMeEE:resplit" if not test:
                nested(folder / f"CMeEE/CMeEE_resplit_{split}.json", SENTENCES[keep])
            case "CMeIE":
                triples(folder / f"CMeIE/CMeIE_{split}.json", FACTS, labels=not test)
            case "CMeIE:resplit" if not test:
                triples(folder / f"CMeIE/CMeIE_resplit_{split}.json", FACTS)
            case "DXY-RE":
                triples(folder / f"DXY-RE/{split}.json", FACTS)
            case "KUAKE-QQR":
                path = folder / f"KUAKE-QQR/KUAKE-QQR_{split}.json"
                queries(path, "query1", "query2", PAIRS[keep], labels=not test)
            case "KUAKE-QTR":
                queries(
                    folder / f"KUAKE-QTR/KUAKE-QTR_{split}.json",
                    "query",
                    "title",
                    PAIRS[keep],
                    labels=not test,
                )
    # as many questions as experiments/finetune/NeikeQA.yaml asks for, and a few more
    if dataset == "NeikeQA":
        rows = [
            ("内科", f"乙病{i}怎么治", f"得了乙病{i}，要紧吗", f"吃甲药{i}") for i in range(2010)
        ]
        write_dialogues(folder / "NeikeQA/neike_5000-6000.csv", rows)
    if dataset.startswith("CMeIE"):
        schema(folder / "CMeIE/53_schemas.json")
    return folder
