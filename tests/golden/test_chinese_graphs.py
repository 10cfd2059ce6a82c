"""Golden examples of the Chinese sources of graphs: a few records in the published layout, and
every row of the graph that they mean."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

from kg.build.sources import cmekg, disease39, spo, xywy
from tests.golden.graphs import list_parts

CMEKG = {
    "甲片": {
        "商品名": ["乙  片", "甲片"],
        "英文名": ["A tablet", "中文"],
        "成份": ["丙", ""],
        "适应症": ["甲炎", "甲炎 "],
    },
    "甲炎": {"常见症状": ["发热😀"], "别称": ["甲病"], "并发症": ["丙"]},
}


def test_cmekg(tmp_path: Path) -> None:
    """丙 is an ingredient of one triple and a disease of another: no type. A trade name is
    narrow; an English name in Chinese characters is none."""
    path = tmp_path / "cmekg.pkl"
    path.write_bytes(pickle.dumps(CMEKG))
    assert list_parts(cmekg.read(path)) == {
        "entities": [
            ("甲片", "甲片", "drug"),
            ("甲炎", "甲炎", "disease"),
            ("乙 片", "乙 片", "drug"),
            ("A tablet", "A tablet", "value"),
            ("中文", "中文", "value"),
            ("丙", "丙", ""),
            ("发热😀", "发热😀", "symptom"),
            ("甲病", "甲病", ""),
        ],
        "names": [
            ("甲片", "甲片", "preferred", "zh", "CMeKG"),
            ("甲炎", "甲炎", "preferred", "zh", "CMeKG"),
            ("乙 片", "乙 片", "preferred", "zh", "CMeKG"),
            ("A tablet", "A tablet", "preferred", "en", "CMeKG"),
            ("中文", "中文", "preferred", "zh", "CMeKG"),
            ("丙", "丙", "preferred", "zh", "CMeKG"),
            ("发热😀", "发热😀", "preferred", "zh", "CMeKG"),
            ("甲病", "甲病", "preferred", "zh", "CMeKG"),
            ("甲片", "乙 片", "narrow", "zh", "CMeKG"),
            ("甲片", "A tablet", "synonym", "en", "CMeKG"),
            ("甲炎", "甲病", "synonym", "zh", "CMeKG"),
        ],
        "triples": [
            ("甲片", "商品名", "乙 片"),
            ("甲片", "商品名", "甲片"),
            ("甲片", "英文名", "A tablet"),
            ("甲片", "英文名", "中文"),
            ("甲片", "成份", "丙"),
            ("甲片", "适应症", "甲炎"),
            ("甲炎", "常见症状", "发热😀"),
            ("甲炎", "别称", "甲病"),
            ("甲炎", "并发症", "丙"),
        ],
        "source": "CMeKG (Chinese Medical Knowledge Graph), as PyCMeKG carries it",
        "version": "not stated",
        "licence": "MIT (the package's); CMeKG: http://cmekg.pcl.ac.cn",
        "left_out": {
            "rows with an empty tail": 1,
            "rows that stand there twice": 1,
            "foreign names that are Chinese (their triples are kept)": 1,
        },
    }


DISEASE39 = """\
name,alias,part,age,department,checklist,symptom,complication,treatment,drug
甲炎,"甲病，甲、症,甲炎,长名...",头  颈,老人,内科,血常规 [详细],发热 咳嗽 暂无相关资料,乙炎,手术、药物治疗,丙片 枸橼酸...
甲炎,甲病,,,,,发热,,,
乙...,,头,,,,,,,
乙炎,侧、中症等,,,,,,发热😀,,
"""  # noqa: E501


def test_disease39(tmp_path: Path) -> None:
    """Aliases between commas may contain 、; where there is no comma, it parts them."""
    path = tmp_path / "disease.csv"
    path.write_bytes(DISEASE39.replace("\n", "\r\n").encode("gb18030"))
    own = [
        ("甲炎", "甲炎", "disease"),
        ("乙炎", "乙炎", "disease"),
        ("头", "头", "body part"),
        ("颈", "颈", "body part"),
        ("内科", "内科", "department"),
        ("血常规", "血常规", "examination"),
        ("发热", "发热", "symptom"),
        ("咳嗽", "咳嗽", "symptom"),
        ("手术", "手术", "treatment"),
        ("药物治疗", "药物治疗", "treatment"),
        ("丙片", "丙片", "drug"),
        ("发热😀", "发热😀", "disease"),
        ("甲病", "甲病", "disease"),
        ("甲、症", "甲、症", "disease"),
        ("侧", "侧", "disease"),
        ("中症", "中症", "disease"),
    ]
    aliases = [("甲炎", "甲病"), ("甲炎", "甲、症"), ("乙炎", "侧"), ("乙炎", "中症")]
    assert list_parts(disease39.read(path)) == {
        "entities": own,
        "names": [
            *((entity, entity, "preferred", "zh", "39.net") for entity, _, _ in own),
            *((name, alias, "synonym", "zh", "39.net") for name, alias in aliases),
        ],
        "triples": [
            ("甲炎", "常见发病部位", "头"),
            ("甲炎", "常见发病部位", "颈"),
            ("甲炎", "就诊科室", "内科"),
            ("甲炎", "检查", "血常规"),
            ("甲炎", "常见症状", "发热"),
            ("甲炎", "常见症状", "咳嗽"),
            ("甲炎", "并发症", "乙炎"),
            ("甲炎", "治疗", "手术"),
            ("甲炎", "治疗", "药物治疗"),
            ("甲炎", "相关药物", "丙片"),
            ("乙炎", "并发症", "发热😀"),
        ],
        "equivalences": [(name, "别称", alias) for name, alias in aliases],
        "source": "39.net, as QASystemOnMedicalGraph carries it",
        "version": "not stated",
        "licence": "none stated (scraped web table): for internal use",
        "left_out": {
            "names that are cut (…)": 2,
            "words for nothing (暂无相关资料)": 1,
            # the disease itself, and 甲病 of the second row
            "aliases that repeat the name or another alias": 2,
            "second rows of a disease (what they say is kept)": 1,
            "triples that stand there twice": 1,
            "rows whose disease is cut (…)": 1,
        },
    }


SPO = (
    "甲\t类别\t疾病\r\n甲\t类别\t疾病\n\n甲\t类别\t症状\n乙\t类别\t怪\n"
    "甲\t有  时\t丙😀\n甲\t有 时\t丙😀\n"
)


def test_spo(tmp_path: Path) -> None:
    path = tmp_path / "Medical.spo"
    path.write_bytes(SPO.encode())
    assert list_parts(spo.read(path)) == {
        "entities": [("甲", "甲", "disease"), ("乙", "乙", "怪"), ("丙😀", "丙😀", "")],
        "names": [
            ("甲", "甲", "preferred", "zh", "K-BERT"),
            ("乙", "乙", "preferred", "zh", "K-BERT"),
            ("丙😀", "丙😀", "preferred", "zh", "K-BERT"),
        ],
        "triples": [("甲", "有 时", "丙😀")],
        "source": "Medical.spo, a K-BERT knowledge graph",
        "version": "not stated",
        "licence": "none stated",
        "left_out": {"lines that stand there twice": 2, "further types of an entity": 1},
    }


XYWY = {
    "medical_10.json": {
        "0": {"gaishu_info": {"name": "甲炎", "desc": "又一种病。"}, "cause_info": "原因。"},
        "1": {"gaishu_info": {"name": "冬春季..."}},
    },
    "medical_2.json": {
        "0": {
            "gaishu_info": {
                "name": " 甲炎 ",
                "desc": "一种  病。",
                "has_complication": ["乙"],
                "belongs_to_department": ["内科"],
                "treat_way": ["手术"],
                "common_drug": ["丙片", ""],
                "cure_prob": "98%",
            },
            "symptom_data": {
                "symptoms": ["发热😀", "乙", "发热😀", "慢性..."],
                "symptom_detail": ["夜间 重。", "", "白天轻。"],
            },
            "inspect_info": ["血常规"],
            "food_info": {
                "recommand_recipes": ["白粥"],
                "good_food": ["鸡蛋"],
                "avoid_food": ["鸡蛋"],
                "good_diet_text": "清淡。",
                "avoid_diet_text": "",
            },
            "cause_info": "原因。\n\n 又一。",
            "prevent_info": None,
            "nursing_info": "清淡。",
        }
    },
}


def test_xywy(tmp_path: Path) -> None:
    """Files by their numbers, 2 before 10. 乙 is a disease as often as a symptom: no type; 鸡蛋 is
    food twice."""
    for name, content in XYWY.items():
        (tmp_path / name).write_text(json.dumps(content, ensure_ascii=False))
    own = [
        ("甲炎", "甲炎", "disease"),
        ("乙", "乙", ""),
        ("内科", "内科", "department"),
        ("手术", "手术", "treatment"),
        ("丙片", "丙片", "drug"),
        ("发热😀", "发热😀", "symptom"),
        ("血常规", "血常规", "examination"),
        ("白粥", "白粥", "recipe"),
        ("鸡蛋", "鸡蛋", "food"),
    ]
    assert list_parts(xywy.read(tmp_path)) == {
        "entities": own,
        "names": [(entity, entity, "preferred", "zh", "xywy") for entity, _, _ in own],
        "definitions": [("甲炎", "一种 病。"), ("甲炎", "又一种病。")],
        "triples": [
            ("甲炎", "并发症", "乙"),
            ("甲炎", "就诊科室", "内科"),
            ("甲炎", "治疗", "手术"),
            ("甲炎", "相关药物", "丙片"),
            ("甲炎", "常见症状", "发热😀"),
            ("甲炎", "常见症状", "乙"),
            ("甲炎", "检查", "血常规"),
            ("甲炎", "推荐食谱", "白粥"),
            ("甲炎", "宜吃", "鸡蛋"),
            ("甲炎", "忌吃", "鸡蛋"),
        ],
        "source": "xywy.com, as MedicalKGQA carries it",
        "version": "not stated",
        "licence": "none stated (scraped web text): for internal use",
        "left_out": {
            "rows without a tail": 1,
            "rows that stand there twice": 1,
            "rows whose tail is cut (…)": 1,
            "second records of a disease (their triples are kept)": 1,
            "diseases whose name is cut": 1,
        },
    }
    assert list(xywy.texts(tmp_path)) == [
        ("甲炎", "desc-0", "一种 病。"),
        ("甲炎", "cause-0", "原因。\n又一。"),
        ("甲炎", "symptom-0", "夜间 重。\n白天轻。"),
        ("甲炎", "nursing-0", "清淡。"),
        ("甲炎", "desc-1", "又一种病。"),
        ("甲炎", "cause-1", "原因。"),
    ]
