"""disease.csv of QASystemOnMedicalGraph: GB18030, with the empty columns at its end."""

from __future__ import annotations

import gzip
from pathlib import Path

HEADER = "name,alias,part,age,infection,insurance,department,checklist,symptom,complication,treatment,drug,period,rate,money,,,,,"  # noqa: E501
ROWS = (
    (
        '阳痿,"勃起功能障碍,阳萎",阴茎,成年男性,无传染性,非医保疾病,男科 生殖健康,B超 血常规'
        " [详细],精冷 [详细],,"
        "药物治疗、心理治疗 [详细],枸橼酸西地那非... 他达拉非片 [详细],1-2个月,85%,,,,,,"
    ),
    (
        " 癫痫,羊癫疯，羊角风；癫痫,颅脑,所有人群,无传染性,医保疾病,神经内科,脑电图,惊厥"
        " 昏睡,抑郁症,暂无相关资料,普瑞巴林胶囊,,,,,,,,"
    ),
    (
        "癫痫,羊角风,颅脑,所有人群,无传染性,医保疾病,神经内科,脑电图"
        " 头颅平片,惊厥,抑郁症,,奥卡西平片,,,,,,,,"
    ),
    "孔闭锁,小儿侧孔、中孔闭锁；Dandy综合征,,,,,,,,,,,,,,,,,,",
    "寿斑,老年斑、色素斑,皮肤,,,,皮肤科,,,,,,,,,,,,,",
    " 类风湿性关节...,,,,,,,,,,,,,,,,,,,",
)


def write(
    folder: Path, rows: tuple[str, ...] = ROWS, header: str = HEADER, encoding: str = "gb18030"
) -> Path:
    """disease.csv.gz in `folder`."""
    path = folder / "disease.csv.gz"
    path.write_bytes(gzip.compress("\r\n".join([header, *rows, ""]).encode(encoding)))
    return path
