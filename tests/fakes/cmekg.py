"""A small CMeKG in the real format, a pickle of {head: {predicate: [tail, ...]}}: `write(folder,
drugs)`.

Drugs with ingredients, indications and running text, diseases with symptoms and departments, herbs
and examinations; drugs treat diseases that are heads themselves, so the graph is connected. One row
has no tail and one occurs twice.
"""

from __future__ import annotations

import pickle
import random
from pathlib import Path

from core.files import atomic_write

FIRST = "肺 肾 肝 胃 心 脑 皮肤 关节 甲状腺 结肠".split()
SECOND = "炎 出血 水肿 结核 损伤 囊肿 溃疡 纤维化".split()
SYMPTOMS = "恶心 呕吐 头痛 发热 乏力 皮疹 腹泻 咳嗽 胸闷 水肿 失眠 眩晕".split()
INGREDIENTS = "当归 黄芪 甘草 人参 阿司匹林 蔗糖 淀粉 α-淀粉酶".split()
DEPARTMENTS = "内科 外科 皮肤科 消化内科".split()


def write(folder: Path, drugs: int = 40, seed: int = 0) -> Path:
    """cmekg.pkl in `folder`: `drugs` drugs, drugs // 2 diseases (at most 80), 3 herbs and 2
    examinations."""
    draw = random.Random(seed)
    diseases = [a + b for b in SECOND for a in FIRST][: drugs // 2]
    heads: dict[str, dict[str, list[str]]] = {}
    for number, disease in enumerate(diseases):
        heads[disease] = {
            "常见症状": draw.sample(SYMPTOMS, 4),
            "就诊科室": [draw.choice(DEPARTMENTS)],
            "英文名": [f"disease {number} of 10%"],
            "并发症": draw.sample([d for d in diseases if d != disease] or ["休克"], 1),
            "别称": [f"{disease}病", f"{disease}症"],
        }
    for number in range(drugs):
        name = f"{draw.choice(INGREDIENTS)}第{number}号片"
        heads[name] = {
            "成份": draw.sample(INGREDIENTS, 3),
            "适应症": draw.sample(diseases, 2),
            "不良反应": draw.sample(SYMPTOMS, 5),
            "用法用量": [f"口服，一次{number % 4 + 1}片，一日3次，饭后用温开水送服"],
            "OTC类型": ["甲类OTC"],
            "通用名": [f"通用片{number}"],
            "规格": [f"{number + 1}mg×10片（Ⅱ型，20℃）"],
        }
    for number in range(3):
        heads[f"草药{number}"] = {
            "性味": ["性平", "味苦"],
            "科": ["菊科"],
            "功效": ["清热  解毒"],
            "拉丁学名": ["Herba x"],
        }
    for number in range(2):
        heads[f"化验{number}"] = {
            "所属分类": ["血"],
            "相关疾病": diseases[:2],
            "相关症状": SYMPTOMS[:3],
        }
    heads["草药0"]["主治"] = ["咳嗽", "咳嗽", ""]
    with atomic_write(folder / "cmekg.pkl", "wb") as handle:
        pickle.dump(heads, handle)
    return folder / "cmekg.pkl"
