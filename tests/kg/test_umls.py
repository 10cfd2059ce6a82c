import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from core.files import InputError
from kg.build import rrf
from kg.build.sources import umls
from tests.fakes import umls as fake


def rows(table):
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.fixture
def folder(tmp_path):
    return fake.write(tmp_path / "META")


@pytest.mark.parametrize("end", ["", ".gz"])
def test_whole(tmp_path, end):
    graph = umls.read(fake.write(tmp_path, end))
    assert rows(graph.entities) == [
        # TUI order, not file order
        ("C0000001", "Aspirin", "Organic Chemical|Pharmacologic Substance"),
        ("C0000002", "Headache", "Sign or Symptom"),
        ("C0000003", "Fever", "Sign or Symptom"),
        ("C0000005", "Analgesic", ""),
    ]
    assert rows(graph.names) == [
        ("C0000001", "Aspirin", "preferred", "en", "MSH"),
        ("C0000001", "Acetylsalicylic acid", "synonym", "en", "MSH"),
        ("C0000001", "ASA", "abbreviation", "en", "NCI"),
        ("C0000002", "Headache", "preferred", "en", "MSH"),
        ("C0000002", '"Cephalalgia" \'quoted', "synonym", "en", "SNOMEDCT_US"),
        ("C0000003", "Fever", "preferred", "en", "MSH"),
        ("C0000003", "Pyrexia", "synonym", "en", "NCI"),
        ("C0000005", "Analgesic", "preferred", "en", "MSH"),
    ]
    # MRREL's row C0000002|RO|C0000001|may_treat says that the second, aspirin, may treat the first,
    # headache.
    assert rows(graph.triples) == [
        ("C0000001", "may_treat", "C0000002"),
        ("C0000001", "may_treat", "C0000003"),
        ("C0000002", "may_be_treated_by", "C0000001"),
        ("C0000005", "inverse_isa", "C0000001"),
    ]
    assert rows(graph.definitions) == [
        ("C0000001", "The prototypical analgesic for headache / mixed."),
        ("C0000001", "A drug against fever."),
    ]
    assert graph.manifest["version"] == "2099AA"
    assert graph.manifest["left_out"] == {
        "MRCONSO rows by filter or repeated": 5,
        "MRREL rows by source or suppression": 1,
        "MRREL rows without RELA or by relation": 1,
        "MRREL rows of concepts left out": 1,
        "MRREL self loops": 1,
        "MRREL repeated": 1,
    }


def test_batches_of_any_size_give_the_same_graph(tmp_path, monkeypatch):
    folder = fake.write_large(tmp_path, names=3000, relations=4000, concepts=500)
    whole = umls.read(folder, skip=("MRDEF",))
    monkeypatch.setattr("kg.build.delimited.BLOCK", 1 << 12)
    monkeypatch.setattr(rrf, "ROWS", 37)
    monkeypatch.setattr(umls, "MERGE", 100)
    small = umls.read(folder, skip=("MRDEF",))
    assert small.triples["head"].num_chunks > 10
    for part in ("entities", "names", "triples"):
        assert rows(getattr(small, part)) == rows(getattr(whole, part))


def test_large_against_plain_python(tmp_path):
    folder = fake.write_large(tmp_path, names=2000, relations=5000, concepts=300)
    graph = umls.read(folder, skip=("MRDEF",))
    conso = [line.split("|") for line in (folder / "MRCONSO.RRF").read_text().splitlines()]
    rel = [line.split("|") for line in (folder / "MRREL.RRF").read_text().splitlines()]
    assert set(rows(graph.triples)) == {(r[4], r[7], r[0]) for r in rel if r[0] != r[4]}
    assert len(graph.triples) == len(set(rows(graph.triples)))
    assert {row[:2] for row in rows(graph.names)} == {(r[0], r[14]) for r in conso}
    assert {row[:2] for row in rows(graph.entities)} == {
        (r[0], r[14]) for r in conso if r[2] == "P"
    }


def test_languages(folder):
    graph = umls.read(folder, languages=("SPA", "ENG"))
    aspirin = [row[1:4] for row in rows(graph.names) if row[0] == "C0000001"]
    assert aspirin[0] == ("Aspirina", "preferred", "es") and ("Aspirin", "synonym", "en") in aspirin
    assert ("C0000001", "Un analgésico.") in rows(graph.definitions)
    assert umls.read(folder, languages=("SPA",)).ids.to_pylist() == ["C0000001"]


def test_preferred_name_by_ts_stt_and_ispref(folder):
    """Rows drop out best first; the preferred name is always the best that is left."""
    best_first = [(ts, stt, pref) for ts in "PS" for stt in ("PF", "VO") for pref in "YN"]
    for left in range(1, 9):
        kept = [
            f"C0000001 ENG {ts} {stt} S00000{n + 10} {pref} MSH MH {ts}-{stt}-{pref} N"
            for n, (ts, stt, pref) in enumerate(best_first)
        ][-left:]
        (folder / "MRCONSO.RRF").write_text("".join(fake.conso(line) for line in reversed(kept)))
        assert umls.read(folder).entities["name"].to_pylist() == ["-".join(best_first[-left])]


def test_sources(folder):
    graph = umls.read(folder, sources=("NCI",))
    assert rows(graph.names) == [
        ("C0000001", "ASA", "preferred", "en", "NCI"),
        ("C0000003", "Pyrexia", "preferred", "en", "NCI"),
    ]
    assert rows(graph.triples) == [("C0000001", "may_treat", "C0000003")]


def test_suppress(folder):
    graph = umls.read(folder, suppress=("N", "O"))
    assert ("C0000001", "Aspirin obsolete", "obsolete", "en", "MTH") in rows(graph.names)
    assert ("C0000004", "Old thing", "Pharmacologic Substance") in rows(graph.entities)
    assert ("C0000003", "co-occurs_with", "C0000002") in rows(graph.triples)


@pytest.mark.parametrize("wanted", ["T109", "Organic Chemical"])
def test_semantic_types(folder, wanted):
    assert rows(umls.read(folder, semantic_types=(wanted,)).entities) == [
        ("C0000001", "Aspirin", "Organic Chemical|Pharmacologic Substance")
    ]


def test_term_types_relations_and_bare_rel(folder):
    assert "ASA" not in umls.read(folder, term_types=("MH", "ET")).names["name"].to_pylist()
    assert set(umls.read(folder, relations=("may_treat",)).triples["relation"].to_pylist()) == {
        "may_treat"
    }
    bare = set(rows(umls.read(folder, include_rel=True).triples)) - set(
        rows(umls.read(folder).triples)
    )
    assert bare == {("C0000002", "RO", "C0000003")}


def test_missing_files(folder):
    (folder / "MRREL.RRF").unlink()
    with pytest.raises(InputError, match=r"MRREL\.RRF: missing \(the triples\).*--skip MRREL"):
        umls.read(folder)
    assert len(umls.read(folder, skip=("MRREL",)).triples) == 0
    graph = umls.read(folder, skip=("MRREL", "MRSTY", "MRDEF"))
    assert set(graph.entities["type"].to_pylist()) == {""} and len(graph.definitions) == 0
    with pytest.raises(InputError, match="semantic_types needs MRSTY"):
        umls.read(folder, skip=("MRREL", "MRSTY"), semantic_types=("T109",))
    with pytest.raises(InputError, match="--skip MRCONSO: expected MRSTY, MRREL or MRDEF"):
        umls.read(folder, skip=("MRCONSO",))
    (folder / "MRCONSO.RRF").unlink()
    with pytest.raises(InputError, match=r"MRCONSO\.RRF: missing"):
        umls.read(folder)


def test_filters_that_leave_nothing(folder):
    with pytest.raises(InputError, match=r"no name is left: languages XXX.*languages are ENG, SPA"):
        umls.read(folder, languages=("XXX",))
    with pytest.raises(InputError, match=r"no semantic type 'T999'; choose from: .*T109"):
        umls.read(folder, semantic_types=("T999",))
    (folder / "MRCONSO.RRF").write_text("")
    with pytest.raises(InputError, match="it is empty"):
        umls.read(folder)


@pytest.mark.parametrize(
    ("name", "line", "old", "new", "message"),
    [
        ("MRCONSO", 3, "|ASA|0|N||", "|ASA", "expected 18 columns.*got 14"),
        ("MRCONSO", 3, "|ASA|0|N||", "|ASA|0|N|||", "expected 18 columns.*got 19"),
        ("MRCONSO", 8, "C0000002|", "C000002|", r"expected CUI like C\\d\{7\}, got 'C000002'"),
        ("MRCONSO", 8, "C0000002|", "D0000002|", r"expected CUI like .*got 'D0000002'"),
        ("MRCONSO", 8, "C0000002|", "C00000x2|", r"expected CUI like .*got 'C00000x2'"),
        ("MRCONSO", 11, "|S0000010|", "|Sx|", "expected SUI like .*got 'Sx'"),
        ("MRCONSO", 5, "Aspirin obsolete", "Aspirin \udcff", "not utf-8 text"),
        ("MRSTY", 3, "|T184|", "|T18|", "expected TUI like .*got 'T18'"),
        ("MRREL", 2, "|C0000002|", "||", "expected CUI2 like .*got ''"),
        ("MRREL", 4, "|may_treat|", "|may|treat|", "expected 16 columns.*got 17"),
        ("MRDEF", 6, "C0000004", "4", "expected CUI like .*got '4'"),
    ],
)
@pytest.mark.parametrize("end", ["", ".gz"])
def test_broken_row(tmp_path, name, line, old, new, message, end):
    path = fake.write(tmp_path, end) / f"{name}.RRF{end}"
    data = gzip.decompress(path.read_bytes()) if end else path.read_bytes()
    broken = data.decode().splitlines(keepends=True)
    assert old in broken[line - 1]
    broken[line - 1] = broken[line - 1].replace(old, new)
    data = "".join(broken).encode("utf-8", "surrogateescape")
    path.write_bytes(gzip.compress(data) if end else data)
    with pytest.raises(InputError, match=rf"{name}\.RRF({end})?:{line}: {message}"):
        umls.read(tmp_path)


def test_empty_line_and_broken_row_far_into_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr("kg.build.delimited.BLOCK", 1 << 12)
    folder = fake.write_large(tmp_path, names=900, relations=5000, concepts=100)
    text = (folder / "MRREL.RRF").read_text().splitlines(keepends=True)
    (folder / "MRREL.RRF").write_text("".join([*text[:4000], "\n", *text[4000:]]))
    with pytest.raises(InputError, match=r"MRREL\.RRF:4001: expected 16 columns"):
        umls.read(folder, skip=("MRDEF",))
    (folder / "MRREL.RRF").write_text("".join([*text[:4000], text[4000][:30]]))
    # a file that was cut
    with pytest.raises(InputError, match=r"MRREL\.RRF:4001: expected 16 columns"):
        umls.read(folder, skip=("MRDEF",))


def test_cut_gz(tmp_path):
    folder = fake.write(tmp_path, ".gz")
    path = folder / "MRCONSO.RRF.gz"
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(
        InputError, match=r"MRCONSO\.RRF\.gz:\d+: the compressed file is cut or broken"
    ):
        umls.read(folder)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
def test_memory(tmp_path):
    """The full release (16 M names, 62 M relation rows) must fit in 16 GB: at most 180 bytes a
    name, 60 a relation."""
    names, relations = 2_000_000, 4_000_000
    fake.write_large(tmp_path, names, relations, concepts=500_000)
    script = (
        "import json, sys; from kg.build.sources import umls\n"
        "graph = umls.read(sys.argv[1], skip=('MRDEF',))\n"
        # not getrusage: its peak is inherited from the process that started this one
        "peak = next(line.split()[1] for line in open('/proc/self/status') if"
        " line.startswith('VmHWM'))\n"
        "print(json.dumps([int(peak) * 1024, *graph.counts().values()]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    peak, entities, kept, *_ = json.loads(done.stdout)
    assert (entities, kept) == (500_000, names)
    fixed = 350 << 20  # Python and Arrow, the tables by CUI number, the blocks being read
    assert peak < fixed + 180 * names + 60 * relations


def test_ids_of_earlier_releases(tmp_path):
    """Those that mean a kept concept, through others too, are its alternatives; the rest is
    counted."""
    folder = fake.write(tmp_path / "META")
    kept = umls.read(folder).ids.to_pylist()
    rows = [
        ("C9999991", "SY", kept[0]),
        ("C9999992", "SY", "C9999991"),
        ("C9999993", "RB", kept[0]),
        ("C9999994", "DEL", ""),
        ("C9999995", "SY", "C9999996"),
        (kept[1], "SY", kept[0]),
    ]
    (folder / "MRCUI.RRF").write_text(
        "".join(f"{old}|2001AA|{relation}|||{new}|Y|\n" for old, relation, new in rows)
    )
    manifest = umls.read(folder).manifest
    assert manifest["alternatives"] == {kept[0]: ["C9999991", "C9999992"]}
    assert manifest["left_out"]["ids of MRCUI that mean no kept concept"] == 3
    (folder / "MRCUI.RRF").write_text("C9999991|2001AA|SY|||X|Y|\n")
    assert umls.read(folder).manifest["alternatives"] == {}
    (folder / "MRCUI.RRF").write_text("C9999991|SY|C0000001|\n")
    with pytest.raises(InputError, match=r"MRCUI\.RRF:1: expected 7 columns"):
        umls.read(folder)
