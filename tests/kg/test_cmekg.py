import os
import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from core.files import InputError
from core.json_files import read_json
from kg.build.cmekg_pickle import parse_pickle
from kg.build.sources import cmekg
from kg.graph import KnowledgeGraph
from tests.fakes import cmekg as fake

pytestmark = pytest.mark.usefixtures("preloaded")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def real():
    return cmekg.read()


@pytest.mark.slow
def test_real_counts(real):
    """The file in the wheel against counts taken from it by hand: 967,409 rows, one without tail,
    two twice."""
    assert real.counts() == {
        "entities": 170214,
        "names": 208028,
        "definitions": 0,
        "triples": 967406,
        "relations": 469,
        "equivalences": 0,
    }
    assert real.manifest["left_out"] == {
        "rows with an empty tail": 1,
        "rows that stand there twice": 2,
        "foreign names that are Chinese (their triples are kept)": 58,
    }
    assert real.manifest["version"] == "PyCMeKG 0.2.5"
    relations = Counter(real.triples["relation"].to_pylist())
    assert (
        relations["不良反应"] == 279980
        and relations["成份"] == 124944
        and relations["英文名"] == 13467
    )
    assert "pyCMeKG" not in sys.modules


@pytest.mark.slow
def test_real_types_and_names(real):
    types = dict(
        zip(real.entities["id"].to_pylist(), real.entities["type"].to_pylist(), strict=True)
    )
    heads = list(types.values())[:27403]
    assert heads.count("") < 0.02 * len(heads)
    wanted = {
        "盐酸地尔硫卓缓释胶囊（II）": "drug",
        "肾病综合征": "disease",
        "鸡骨草": "herb",
        "静态视野检查": "examination",
        "心血管内科": "department",
        "菊科": "taxon",
        "遮光，密闭保存": "value",
    }
    assert {name: types[name] for name in wanted} == wanted
    names = {
        (row["id"], row["name"], row["kind"], row["language"]) for row in real.names.to_pylist()
    }
    assert ("品他病", "pinta", "synonym", "en") in names and (
        "肝细胞癌",
        "HCC",
        "synonym",
        "zh",
    ) in names
    assert ("美洛昔康片", "莫乐新", "narrow", "zh") in names and (
        "阳虚发热",
        "中医科",
        "synonym",
        "en",
    ) not in names


@pytest.mark.slow
def test_real_texts():
    texts = list(cmekg.texts())
    kinds = Counter(kind.split("-")[0] for _, kind, _ in texts)
    assert (
        set(kinds) == {"templated", "phrase"}
        and kinds["templated"] > 90_000
        and kinds["phrase"] > 4_000
    )
    assert len({(entity, kind) for entity, kind, _ in texts}) == len(texts)
    assert max(len(text) for _, _, text in texts) <= 126 and all(
        text.endswith(("。", "）。")) for *_, text in texts
    )


def test_fake(tmp_path):
    graph = cmekg.read(fake.write(tmp_path, drugs=20))
    types = dict(
        zip(graph.entities["id"].to_pylist(), graph.entities["type"].to_pylist(), strict=True)
    )
    counts = Counter(types.values())
    assert (
        counts["drug"] == 20 + 20
        and counts["disease"] == 10
        and counts["herb"] == 3
        and counts["examination"] == 2
    )
    assert types["头痛"] == "symptom" and types["菊科"] == "taxon" and types["通用片3"] == "drug"
    # per disease 4 + 1 + 1 + 1 + 2, per drug 3 + 2 + 5 + 4, per herb 5, one more of 主治, per
    # examination 1 + 2 + 3
    assert len(graph.triples) == 10 * 9 + 20 * 14 + 3 * 5 + 1 + 2 * 6
    assert graph.manifest["left_out"]["rows with an empty tail"] == 1
    assert graph.manifest["left_out"]["rows that stand there twice"] == 1
    assert ("草药0", "功效", "清热 解毒") in set(
        zip(*(c.to_pylist() for c in graph.triples.columns), strict=True)
    )
    names = {(row["name"], row["kind"], row["language"]) for row in graph.names.to_pylist()}
    assert {
        ("Herba x", "synonym", "la"),
        ("disease 0 of 10%", "synonym", "en"),
        ("通用片0", "broad", "zh"),
    } <= names
    assert graph.manifest["version"] == "not stated"


def test_reading_twice_returns_the_same(tmp_path):
    file = fake.write(tmp_path)
    one, two = cmekg.read(file), cmekg.read(file)
    assert (
        one.entities.equals(two.entities)
        and one.triples.equals(two.triples)
        and one.names.equals(two.names)
    )
    assert list(cmekg.texts(file)) == list(cmekg.texts(file))


def test_texts_say_every_triple_once(tmp_path):
    """Every head, predicate and tail comes in a templated text; tails in order, joined by 、;
    several templates."""
    file = fake.write(tmp_path)
    said: dict[str, str] = {}
    for head, kind, text in cmekg.texts(file):
        if kind.startswith("templated"):
            assert text.startswith(head) or head in text
            said[head] = said.get(head, "") + text
    for head, _, tail in zip(
        *(c.to_pylist() for c in cmekg.read(file).triples.columns), strict=True
    ):
        assert tail in said[head]
    heads = parse_pickle(file)
    disease = next(iter(heads))
    assert "、".join(heads[disease]["常见症状"]) in said[disease]
    forms = {pair[0] for i in range(40) for pair in cmekg.sentences(f"病{i}", "常见症状", ["头痛"])}
    assert (
        len({form.replace(f"病{i}", "") for form in forms for i in range(40) if f"病{i}" in form})
        >= 4
    )
    phrases = [text for _, kind, text in cmekg.texts(file) if kind.startswith("phrase")]
    # 40 drugs, four ways to take them
    assert len(phrases) == 4 and all("饭后用温开水送服" in text for text in phrases)


def test_long_lists_become_several_sentences():
    tails = [f"症状{i}" for i in range(100)]
    found = list(cmekg.sentences("某药", "不良反应", tails, "该药"))
    assert len(found) > 3 and all(len(full) < 100 for full, _ in found)
    assert all("某药" in full and "该药" in short and "某药" not in short for full, short in found)
    assert sum(full.count("症状") for full, _ in found) == 100


class Runs:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self):
        return os.system, (f"touch {self.file}",)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_would_run_code_runs_nothing(tmp_path, protocol):
    (tmp_path / "cmekg.pkl").write_bytes(
        pickle.dumps({"药": {"成份": [Runs(tmp_path / "ran")]}}, protocol)
    )
    with pytest.raises(
        InputError,
        match=r"cmekg\.pkl: expected a pickle .*wants to run \w+\.system; nothing was run",
    ):
        cmekg.read(tmp_path / "cmekg.pkl")
    assert not (tmp_path / "ran").exists()


def test_a_pickle_that_refers_elsewhere_is_refused(tmp_path):
    class Elsewhere(pickle.Pickler):
        def persistent_id(self, obj):
            return "there" if obj == "药" else None

    with open(tmp_path / "cmekg.pkl", "wb") as handle:
        Elsewhere(handle).dump({"药": {}})
    with pytest.raises(InputError, match="refers to an object outside of it .'there'"):
        cmekg.read(tmp_path / "cmekg.pkl")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (["药"], "the whole: expected a dictionary of heads, got list"),
        ({3: {}}, "head 3: expected a name, got int"),
        ({" ": {}}, "head ' ': expected a name"),
        ({"药": ["成份"]}, "head '药': expected a dictionary of predicates, got list"),
        ({"药": {"": ["糖"]}}, "head '药', predicate '': expected a name"),
        ({"药": {"成份": "糖"}}, "head '药', predicate '成份': expected a list of tails, got str"),
        (
            {"药": {"成份": ["糖", None]}},
            "head '药', predicate '成份': expected strings as tails, got NoneType",
        ),
    ],
)
def test_broken_shapes_are_named(tmp_path, value, message):
    (tmp_path / "cmekg.pkl").write_bytes(pickle.dumps(value))
    with pytest.raises(InputError, match=message):
        cmekg.read(tmp_path / "cmekg.pkl")


def test_cut_and_missing_files(tmp_path):
    file = fake.write(tmp_path)
    for content in (file.read_bytes()[:200], b"", b"no pickle at all", b"\x80\x04]\x94]\x94b."):
        file.write_bytes(content)
        with pytest.raises(
            InputError, match=r"cmekg\.pkl: expected a pickle of .* it is cut or no pickle"
        ):
            cmekg.read(file)
    with pytest.raises(InputError, match=r"none\.pkl: missing"):
        cmekg.read(tmp_path / "none.pkl")


def test_the_commands(tmp_path):
    """kepl graph build cmekg and kepl graph texts cmekg, on a file of one's own."""
    file = fake.write(tmp_path)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    for name, out in (("graph build", "graph"), ("graph texts", "texts.jsonl")):
        command = [sys.executable, "-m", "core.call", *name.split(), "cmekg", str(file)]
        command += ["--out", str(tmp_path / out)]
        subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    assert KnowledgeGraph.load(tmp_path / "graph").counts() == cmekg.read(file).counts()
    assert read_json(tmp_path / "graph" / "manifest.json")["reader"] == "cmekg"
    lines = (tmp_path / "texts.jsonl").read_text().splitlines()
    assert len(lines) == len(list(cmekg.texts(file))) and "/templated-0" in lines[0]


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x04\x8e" + (2**62).to_bytes(8, "little") + b".",  # 4 EiB of bytes to come
        b"\x80\x02\x8b\xff\xff\xff\x7f.",  # an integer of 2 GiB
        pickle.dumps({"a": {"b": ["\ud800"]}}, 4),
        pickle.dumps({"a": {"b": [10**5000]}}, 4),
        b"(" * 200_000 + b"l" * 199_999 + b".",  # a list in a list in a list …
    ],
)
def test_opcodes_of_a_broken_pickle_are_one_error(tmp_path, content):
    (tmp_path / "cmekg.pkl").write_bytes(content)
    with pytest.raises(InputError, match=r"cmekg\.pkl: .*expected"):
        parse_pickle(tmp_path / "cmekg.pkl")
