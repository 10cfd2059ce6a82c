"""MedicalKGQA's folder of disease-centred JSON, and the same as a .tar.gz."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any


def record(disease: str, **changes: Any) -> dict[str, Any]:
    """A disease with one item in every list; `changes` replace what is in any part."""
    parts: dict[str, Any] = {
        "gaishu_info": {
            "name": disease,
            "desc": f"{disease}是一种病。",
            "medical_insurance": "否",
            "disease_ratio": "0.5%",
            "susceptible_people": "多见于小儿",
            "transmission_way": "无传染性",
            "has_complication": ["肺炎"],
            "belongs_to_department": ["儿科"],
            "treat_way": ["药物治疗"],
            "treat_cycle": "1-2个月",
            "cure_prob": "98%",
            "common_drug": ["糖浆"],
            "treat_cost": "不一致",
        },
        "cause_info": f"{disease}的原因一。\n{disease}的原因二。",
        "prevent_info": "",
        "symptom_data": {
            "symptoms": ["咳嗽"],
            "symptom_detail": [f"{disease}时咳嗽。", "夜间重。"],
        },
        "inspect_info": ["血常规"],
        "nursing_info": "注意休息。",
        "food_info": {
            "good_diet_text": "1.宜吃清淡的食物；",
            "avoid_diet_text": "",
            "recommand_recipes": ["白粥"],
            "good_food": ["鸡蛋"],
            "avoid_food": ["海虾"],
        },
    }
    for key, value in changes.items():
        holder = next((p for p in parts.values() if isinstance(p, dict) and key in p), parts)
        holder[key] = value
    return parts


RECORDS = [
    record(
        "百日咳",
        symptoms=["咳嗽", "干咳", "冬春季的慢性咳...", "咳嗽", ""],
        has_complication=["肺炎", "咳嗽"],
    ),
    record("肺炎", common_drug=[], symptoms=["咳嗽", "发热"]),
    record("百日咳", symptoms=["惊厥"], nursing_info="注意 休息。"),
]


def write(folder: Path, records: list[dict[str, Any]] = RECORDS) -> Path:
    """medical_0.json and medical_10.json (the last record) in `folder`, beside a word list."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, part in ((10, records[-1:]), (0, records[:-1])):
        text = json.dumps({str(i): one for i, one in enumerate(part)}, ensure_ascii=False)
        (folder / f"medical_{number}.json").write_text(text, encoding="utf-8")
    (folder / "diseases.txt").write_text("百日咳\n", encoding="utf-8")
    return folder


def write_archive(folder: Path) -> Path:
    """medicalkgqa.tar.gz in `folder`."""
    inner = write(folder / "medicalkgqa")
    with tarfile.open(folder / "medicalkgqa.tar.gz", "w:gz") as archive:
        archive.add(inner, "medicalkgqa")
    return folder / "medicalkgqa.tar.gz"
