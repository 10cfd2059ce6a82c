import gzip
import json
import re
from collections import Counter
from dataclasses import fields
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.files import InputError
from kg.build import cleaning
from kg.documents.formats import files_in
from kg.documents.parts import InParts
from tests.commands import command

ALL = {"shortest": 1, "longest": 1000, "chinese": 0}


def clean_files(source, out, shortest=256, longest=512, chinese=0.5, **options):
    rules = cleaning.SegmentRules(shortest=shortest, longest=longest, chinese=chinese)
    names = {field.name for field in fields(InParts)} & set(options)
    work = InParts(**{"workers": 1} | {name: options.pop(name) for name in names})
    return cleaning.clean_files([source], out, rules=rules, work=work, **options)


def keep_segments(texts, **options):
    counts = Counter()
    return list(
        cleaning.segments(
            [(f"d{i}", text) for i, text in enumerate(texts)],
            counts,
            cleaning.SegmentRules(**(ALL | options)),
        )
    ), counts


def cleaned(folder, texts, **options):
    source = folder / "in.jsonl"
    source.write_text(
        "".join(json.dumps({"id": f"d{i}", "text": text}) + "\n" for i, text in enumerate(texts))
    )
    counts = clean_files(source, folder / "out.jsonl", **(ALL | options))
    found = [
        tuple(json.loads(line).values()) for line in (folder / "out.jsonl").read_text().splitlines()
    ]
    assert counts["segments"] == len(found) and counts["characters"] == sum(
        len(text) for _, text in found
    )
    assert sorted(p.name for p in folder.iterdir()) == ["in.jsonl", "out.jsonl"]
    return found, counts


@pytest.mark.parametrize(
    ("raw", "text", "found"),
    [
        ("<p>患者<b>发热</b>。</p><p>咳嗽</p>", "患者发热。\n咳嗽", {"tags": 6}),
        ("发热<br/>咳嗽<img src='a.png' alt=\"图\">", "发热\n咳嗽", {"tags": 2}),
        (
            "前<script type='x'>var a = '<b>';</script>后<!-- 注 -->完",
            "前\n后\n完",
            {"comments, scripts and styles": 2},
        ),
        ("P<0.05，A<B且C>D", "P<0.05，A<B且C>D", {}),
        ("P&lt;0.05&nbsp;&amp;&#33;&#x4e2d;AT&T", "P<0.05 &!中AT&T", {"entities": 5}),
        ("见http://www.a.com/x?y=1，再见www.b.cn。完", "见 ，再见 。完", {"URLs": 2}),
        ("见https://a.com/路", "见 路", {"URLs": 1}),
        ("写信给a.b-c@d-e.com.cn吧", "写信给 吧", {"e-mail addresses": 1}),
        ("发\u200b热\x07\ufffd", "发热", {"control characters": 3}),
        ("  发热 \t 咳嗽\r\n\r\n　头痛 ", "发热 咳嗽\n头痛", {}),
    ],
)
def test_clean(raw, text, found):
    got, counts = cleaning.clean(raw)
    assert got == text and +counts == found


def test_parts_by_hand():
    text = "一二三四。五六七。八九十。十一。"  # 5 + 4 + 4 + 3 = 16
    assert cleaning.parts(text, 16) == [text]
    assert cleaning.parts(text, 10) == ["一二三四。五六七。", "八九十。十一。"]
    assert cleaning.parts(text, 8) == ["一二三四。", "五六七。八九十。", "十一。"]
    assert cleaning.parts("一二三，四五六七八九十", 6) == ["一二三，", "四五六七八九", "十"]
    assert cleaning.parts("他说：“疼。”然后走了。", 8) == ["他说：“疼。”", "然后走了。"]
    assert cleaning.parts("标题\n正文一二三", 6) == ["标题", "正文一二三"]


@given(st.text("病痛。，！\n ", max_size=80), st.integers(1, 20))
def test_parts_lose_nothing_and_fit(text, longest):
    found = cleaning.parts(text, longest)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(len(part) <= longest for part in found)


@given(st.lists(st.integers(2, 12), min_size=1, max_size=30), st.integers(12, 40))
def test_parts_end_with_sentences_that_fit(sizes, longest):
    text = "".join("病" * (size - 1) + "。" for size in sizes)
    found = cleaning.parts(text, longest)
    assert all(part.endswith("。") for part in found)
    even = -(-len(text) // -(-len(text) // longest))
    # as few sentences as reach an even share, or as many as fit
    assert all(
        len(part) >= even or len(part) + len(re.match(".*?。", after).group()) > longest
        for part, after in pairwise(found)
    )


def test_segments_count_what_they_drop(tmp_path):
    texts = [
        "一" * 9,
        "二" * 10,
        "三" * 19 + "。" + "四" * 3,
        "ab" * 10,
        "二" * 10,
        "<b></b>",
        "12345。6789",
    ]
    found, counts = cleaned(tmp_path, texts, shortest=10, longest=20, chinese=0.5)
    assert found == [("d1", "二" * 10), ("d2/0", "三" * 19 + "。")]
    assert +counts == {
        "documents": 7,
        "segments": 2,
        "characters": 30,
        "tags": 2,
        "documents cut": 1,
        "dropped: documents of fewer than 10 characters": 2,
        "dropped: segments of another script": 2,
        "dropped: parts of a document that was cut of fewer than 10 characters": 1,
        "characters dropped as too short": 9 + 3 + 0,
        "dropped: segments that were there already": 1,
    }
    found = cleaned(tmp_path, texts, shortest=10, longest=20, twice=True)[0]
    assert [name for name, _ in found] == ["d1", "d2/0", "d3", "d4", "d6"]


def test_the_papers_lengths_are_the_defaults():
    counts = Counter()
    texts = [("a", "病" * 255), ("b", "痛" * 256), ("c", "热" * 512), ("d", "冷" * 513)]
    found = list(cleaning.segments(texts, counts, cleaning.SegmentRules()))
    assert [(name, len(text)) for name, text in found] == [("b", 256), ("c", 512), ("d/0", 512)]


@pytest.mark.parametrize(
    ("text", "share", "answer"),
    [
        ("病ab", 1 / 3, True),
        ("病ab", 0.34, False),
        ("123。", 0.1, False),
        ("ひらがな", 0.5, False),
        ("病1234", 1, True),
    ],
)
def test_script(text, share, answer):
    assert cleaning.is_chinese(text, share) is answer


@pytest.mark.parametrize(
    "wrong", [{"shortest": 0}, {"shortest": 30, "longest": 20}, {"chinese": 1.1}]
)
def test_bad_settings(wrong):
    with pytest.raises(InputError, match="expected 1 <= shortest <= longest"):
        keep_segments(["病"], **wrong)


def put(folder, encoding="gb18030"):
    (folder / "sub").mkdir(parents=True)
    (folder / "b.txt").write_bytes("发热一天。\n咳嗽两天。\n".encode(encoding))
    (folder / "sub" / "c.txt.gz").write_bytes(gzip.compress("头痛三天。\n".encode(encoding)))
    table = 'department,title,ask\r\n内科,"题目一","问，\n""答"""\r\n外科,,问二\r\n'
    (folder / "a.csv").write_bytes(table.encode(encoding))
    (folder / "notes.md").write_text("not read")
    return folder


def test_folders_tables_and_encodings(tmp_path):
    folder = put(tmp_path / "text")
    left_out = Counter()
    found = list(cleaning.texts(files_in([folder], left_out), "gb18030", ["title", "ask"]))
    assert +left_out == {"files of a folder whose names stand for no format (.md)": 1}
    assert found == [
        ("a:3", '题目一\n问，\n"答"'),
        ("a:4", "问二"),
        ("b:1", "发热一天。"),
        ("b:2", "咳嗽两天。"),
        ("c:1", "头痛三天。"),
    ]
    whole = list(
        cleaning.texts(files_in([folder / "b.txt", folder / "sub"]), "gb18030", whole=True)
    )
    assert whole == [("b", "发热一天。\n咳嗽两天。"), ("c", "头痛三天。")]
    (tmp_path / "only").mkdir()
    (folder / "a.csv").rename(tmp_path / "only" / "a.csv")
    assert len(list(cleaning.texts(files_in([tmp_path / "only"]), "gb18030", ["ask"]))) == 2
    for columns, message in (
        ([], "--columns, which of them are the text; it has department, title, ask"),
        (["answer"], "expected the column answer"),
    ):
        with pytest.raises(InputError, match=message):
            list(cleaning.texts(files_in([tmp_path / "only"]), "gb18030", columns))
    with pytest.raises(InputError, match=r"b\.txt:1: not utf-8 text"):
        list(cleaning.texts(files_in([folder])))
    with pytest.raises(InputError, match="--encoding gb99: no such encoding"):
        list(cleaning.texts(files_in([folder]), "gb99"))
    with pytest.raises(InputError, match="no text in this folder"):
        (tmp_path / "none").mkdir()
        list(files_in([tmp_path / "none"]))
    (tmp_path / "only" / "a.csv").write_text("ask\na,b\n")
    with pytest.raises(InputError, match=r"a\.csv:2: expected 1 columns, got 2"):
        list(cleaning.texts(files_in([tmp_path / "only"]), columns=["ask"]))


def write_texts(folder, count=400):
    """Files of several formats, with texts that come in more than one of them."""
    folder.mkdir()
    said = [
        f"患者第{i % 150}天发热。" + "咳嗽，" * (i % 11) + f"第{i % 150}次。" for i in range(count)
    ]
    half = count // 2
    (folder / "a.jsonl").write_text(
        "".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(said[:half]))
    )
    (folder / "b.txt").write_text("".join(text + "\n" for text in said[half:]))
    (folder / "c.csv").write_text("ask,answer\n" + "".join(f"{text},好\n" for text in said[::7]))
    return folder


@pytest.mark.parametrize("options", [{"workers": 1}, {"workers": 3}])
def test_parts_make_the_same_bytes(tmp_path, options):
    given = {"columns": ["ask"], "shortest": 4, "longest": 20}
    source = write_texts(tmp_path / "in")
    whole, counts = (
        tmp_path / "whole.jsonl",
        clean_files(source, tmp_path / "whole.jsonl", **given),
    )
    assert (
        counts["dropped: segments that were there already"] > 100
        and counts["documents"] == 400 + 58
    )
    out = tmp_path / "out.jsonl"
    assert clean_files(source, out, part_size=3000, **(given | options)) == counts
    assert out.read_bytes() == whole.read_bytes()


def test_a_stopped_run_resumes(tmp_path, monkeypatch):
    given = {"columns": ["ask"], "shortest": 4, "longest": 20, "part_size": 3000}
    source, out, read = write_texts(tmp_path / "in"), tmp_path / "out.jsonl", []
    counts = clean_files(source, tmp_path / "whole.jsonl", **given)
    write = cleaning._write_part

    def stops(reading, spans, path, **more):
        read.append(path.name)
        if len(read) == 4:
            raise KeyboardInterrupt
        return write(reading, spans, path, **more)

    monkeypatch.setattr(cleaning, "_write_part", stops)
    with pytest.raises(KeyboardInterrupt):
        clean_files(source, out, **given)
    assert not out.exists() and len(list((tmp_path / "out.jsonl.parts").glob("part-*"))) == 3
    with pytest.raises(InputError, match=r"begun with other settings \(shortest\). Add --fresh"):
        clean_files(source, out, **given | {"shortest": 5})
    part = tmp_path / "out.jsonl.parts" / "part-00000.jsonl"
    good = part.read_bytes()
    part.write_bytes(good.replace("发".encode(), "癹".encode(), 1))
    with pytest.raises(InputError, match=r"part-00000\.jsonl.*Remove"):
        clean_files(source, out, **given)
    part.write_bytes(good)
    assert not out.exists() and clean_files(source, out, **given) == counts
    assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert read[4:] == sorted(set(read))[3:]  # what was there is not cleaned again


def test_command(tmp_path, capsys):
    (tmp_path / "x.jsonl").write_text(
        json.dumps({"id": "d", "text": "<p>患者发热三天。</p>看 http://a.cn"}) + "\n"
    )
    words = ["--input", str(tmp_path / "x.jsonl"), "--out", str(tmp_path / "y.jsonl")]
    assert command("graph clean")([*words, "--shortest", "4"]) == 0
    said = capsys.readouterr().out
    assert (
        "1 segments, 9 characters of 1 documents" in said
        and "  2 tags" in said
        and "  1 URLs" in said
    )
    assert json.loads((tmp_path / "y.jsonl").read_text()) == {
        "id": "d",
        "text": "患者发热三天。 看",
    }
    assert command("graph clean")(words) == 2  # the paper's 256 characters
    assert "no segment is left of 1 documents" in capsys.readouterr().err
    assert json.loads((tmp_path / "y.jsonl").read_text())["id"] == "d"  # the old file stays
