import errno
import gzip
import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import core.files
from core.files import InputError, atomic_folder, atomic_write
from core.json_files import digest, read_json, write_json
from core.reading import lines, open_bytes, sha256
from kg.graph import SCHEMAS, KnowledgeGraph, Numbers, fingerprint, table

PARTS = {
    "entities": {"id": ["a", "b", "c"], "name": ["A", "B", "C"], "type": ["t", "t", "u"]},
    "names": {
        "id": ["a", "b"],
        "name": ["A", "B"],
        "kind": ["preferred"] * 2,
        "language": ["en"] * 2,
        "source": ["x"] * 2,
    },
    "definitions": {"id": ["a"], "text": ["The first."]},
    "triples": {"head": ["a", "c", "b"], "relation": ["s", "r", "s"], "tail": ["b", "a", "c"]},
}


def graph(**changes):
    return KnowledgeGraph(
        **{part: table(part, rows) for part, rows in (PARTS | changes).items()},
        manifest={"source": "test", "version": "1", "licence": "none"},
    )


def test_indices():
    one = graph()
    assert one.ids.to_pylist() == ["a", "b", "c"] and one.relations == ["r", "s"]
    assert one.triple_indices().tolist() == [[0, 1, 1], [2, 0, 0], [1, 1, 2]]
    assert one.index_of(pa.array(["c", "a"])).tolist() == [2, 0]
    assert one.counts() == {
        "entities": 3,
        "names": 2,
        "definitions": 1,
        "triples": 3,
        "relations": 2,
        "equivalences": 0,
    }


def test_empty_graph(tmp_path):
    empty = KnowledgeGraph(**{part: schema.empty_table() for part, schema in SCHEMAS.items()})
    assert KnowledgeGraph.load(empty.save(tmp_path / "g")).counts() == dict.fromkeys(
        [*SCHEMAS, "relations"], 0
    )


def test_save_and_load(tmp_path):
    folder = graph().save(tmp_path / "deep" / "g")
    loaded = KnowledgeGraph.load(folder)
    for part in SCHEMAS:
        assert getattr(loaded, part).equals(getattr(graph(), part))
    assert loaded.manifest["source"] == "test" and loaded.manifest["counts"] == graph().counts()
    assert sorted(p.name for p in folder.iterdir()) == sorted(
        [f"{part}.parquet" for part in PARTS] + ["manifest.json"]
    )
    assert [p.name for p in folder.parent.iterdir()] == ["g"]  # nothing temporary stays


def test_save_replaces_an_older_graph(tmp_path):
    first = fingerprint(graph().save(tmp_path / "g"))
    (tmp_path / "g" / "mine.txt").touch()
    again = fingerprint(graph(definitions={"id": ["b"], "text": ["Other."]}).save(tmp_path / "g"))
    assert again != first and (tmp_path / "g" / "mine.txt").exists()  # not the graph's: it stays
    assert [p.name for p in tmp_path.iterdir()] == ["g"]
    assert fingerprint(graph().save(tmp_path / "h")) == first


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"entities": {"id": ["a", "b", "b"], "name": ["A", "B", "C"], "type": ["t"] * 3}},
            "id 'b' occurs more",
        ),
        (
            {
                "names": {
                    "id": ["a", "z"],
                    "name": ["A", "Z"],
                    "kind": ["x"] * 2,
                    "language": ["en"] * 2,
                    "source": ["x"] * 2,
                }
            },
            "names: row 1: unknown entity id 'z' in id",
        ),
        (
            {"definitions": {"id": ["z"], "text": ["x"]}},
            "definitions: row 0: unknown entity id 'z'",
        ),
        (
            {"triples": {"head": ["a", "a"], "relation": ["r", "r"], "tail": ["b", "y"]}},
            "triples: row 1: .*'y' in tail",
        ),
        (
            {"triples": {"head": ["x"], "relation": ["r"], "tail": ["b"]}},
            "triples: row 0: .*'x' in head",
        ),
        (
            {"equivalences": {"head": ["a"], "relation": ["r"], "tail": ["q"]}},
            "equivalences: row 0: .*'q' in tail",
        ),
        (
            {"equivalences": {"head": ["q"], "relation": ["r"], "tail": ["a"]}},
            "equivalences: row 0: .*'q' in head",
        ),
        (
            {"definitions": {"id": ["a"], "text": [None]}},
            "definitions: column text has empty values",
        ),
    ],
)
def test_bad_tables(changes, message):
    with pytest.raises(InputError, match=message):
        graph(**changes)


def test_wrong_columns():
    one = graph()
    with pytest.raises(
        InputError, match=r"triples: expected the columns \['head', 'relation', 'tail'\], got"
    ):
        KnowledgeGraph(
            one.entities,
            one.names,
            one.definitions,
            one.triples.select(["head", "tail", "relation"]),
        )


SAME = {"head": ["a", "c"], "relation": ["same", "same"], "tail": ["b", "a"]}


def test_equivalences_are_saved_apart(tmp_path):
    with_them = graph(equivalences=SAME)
    loaded = KnowledgeGraph.load(with_them.save(tmp_path / "g"))
    assert loaded.equivalences.to_pydict() == SAME and loaded.counts()["equivalences"] == 2
    assert loaded.relations == ["r", "s"] and loaded.degree().tolist() == graph().degree().tolist()
    assert loaded.triple_indices().tolist() == graph().triple_indices().tolist()


def test_equivalences_change_the_fingerprint_and_their_absence_does_not(tmp_path):
    """A graph that has none is on disk what it was before there were any."""
    without = fingerprint(graph().save(tmp_path / "g"))
    assert sorted(read_json(tmp_path / "g" / "manifest.json")["sha256"]) == sorted(
        f"{p}.parquet" for p in PARTS
    )
    assert without == digest(
        {f"{p}.parquet": sha256(tmp_path / "g" / f"{p}.parquet") for p in PARTS}
    )
    assert fingerprint(graph(equivalences=SAME).save(tmp_path / "h")) != without
    pq.write_table(graph(equivalences=SAME).equivalences, tmp_path / "g" / "equivalences.parquet")
    with pytest.raises(InputError, match=r"equivalences\.parquet: missing, or not the file"):
        KnowledgeGraph.load(tmp_path / "g")


@pytest.mark.parametrize("part", SCHEMAS)
def test_load_refuses_what_the_manifest_does_not_describe(tmp_path, part):
    folder = graph(equivalences=SAME).save(tmp_path / "g")
    file = folder / f"{part}.parquet"
    # a sound file, but another one
    pq.write_table(getattr(graph(equivalences=SAME), part).slice(1), file)
    with pytest.raises(InputError, match=rf"{part}\.parquet: missing, or not the file"):
        KnowledgeGraph.load(folder)
    file.unlink()
    with pytest.raises(InputError, match=rf"{part}\.parquet: missing"):
        KnowledgeGraph.load(folder)


def test_load_names_what_is_wrong_with_the_manifest(tmp_path):
    with pytest.raises(InputError, match=r"nothing: no knowledge graph here .*kepl graph build"):
        KnowledgeGraph.load(tmp_path / "nothing")
    folder = graph().save(tmp_path / "g")
    manifest = read_json(folder / "manifest.json")
    for broken, message in [
        ({**manifest, "format": 99}, "no knowledge graph of format 1"),
        ({k: v for k, v in manifest.items() if k != "sha256"}, "expected an object under sha256"),
    ]:
        write_json(folder / "manifest.json", broken)
        with pytest.raises(InputError, match=message):
            KnowledgeGraph.load(folder)
    (folder / "manifest.json").write_text("{")
    with pytest.raises(InputError, match=r"manifest\.json: not valid JSON"):
        KnowledgeGraph.load(folder)


# Full disk and missing permission


def test_full_disk_while_saving_keeps_the_old_graph(tmp_path, monkeypatch):
    first = fingerprint(graph().save(tmp_path / "g"))
    write, done = pq.write_table, []

    def full(*arguments, **options):
        if len(done) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done.append(write(*arguments, **options))

    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(InputError, match=r"g: the disk is full\. Free some space"):
        graph(definitions={"id": ["b"], "text": ["Other."]}).save(tmp_path / "g")
    assert len(done) == 2 and fingerprint(tmp_path / "g") == first
    assert KnowledgeGraph.load(tmp_path / "g").counts() == graph().counts()
    assert [p.name for p in tmp_path.iterdir()] == ["g"]


class FullDisk(io.StringIO):
    def write(self, text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_full_disk_while_writing_a_file(tmp_path, monkeypatch):
    with atomic_write(tmp_path / "x.txt") as handle:
        handle.write("old")
    monkeypatch.setattr(core.files, "open", lambda *_, **__: FullDisk(), raising=False)
    with (
        pytest.raises(InputError, match=r"x\.txt: the disk is full"),
        atomic_write(tmp_path / "x.txt") as handle,
    ):
        handle.write("new")
    monkeypatch.undo()
    assert (tmp_path / "x.txt").read_text() == "old" and [p.name for p in tmp_path.iterdir()] == [
        "x.txt"
    ]


def test_no_permission(tmp_path, monkeypatch):
    def refused(*_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "mkdir", refused)  # tests may run as root, whom no file mode stops
    with pytest.raises(InputError, match="g: no permission to write here"):
        graph().save(tmp_path / "g")
    with (
        pytest.raises(InputError, match=r"x\.txt: no permission"),
        atomic_write(tmp_path / "x.txt"),
    ):
        pass
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_folder(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="no permission to write here"):
        graph().save(tmp_path / "g")
    tmp_path.chmod(0o700)


# Writing whole or not at all


@pytest.mark.parametrize("name", ["x.txt", "x.txt.gz"])
def test_written_failing_in_the_middle_keeps_the_old_file(tmp_path, name):
    with atomic_write(tmp_path / name) as handle:
        handle.write("whole é\n")
    with pytest.raises(ZeroDivisionError), atomic_write(tmp_path / name) as handle:
        handle.write("half")
        raise ZeroDivisionError
    assert list(lines(tmp_path / name)) == [(1, "whole é")]
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_written_folder_failing_in_the_middle_keeps_the_old_folder(tmp_path):
    with atomic_folder(tmp_path / "d") as folder:
        (folder / "a").write_text("1")
    with pytest.raises(ZeroDivisionError), atomic_folder(tmp_path / "d") as folder:
        (folder / "a").write_text("2")
        raise ZeroDivisionError
    assert (tmp_path / "d" / "a").read_text() == "1" and [p.name for p in tmp_path.iterdir()] == [
        "d"
    ]


def test_killed_while_writing_leaves_no_file_under_the_real_name(tmp_path):
    script = (
        "import os, sys; from core.files import atomic_write\n"
        "with atomic_write(sys.argv[1]) as handle:\n   "
        " handle.write('half'); handle.flush(); os._exit(9)"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "x.txt")], cwd=root)
    assert done.returncode == 9 and not (tmp_path / "x.txt").exists()


# Reading


def test_lines_and_opened(tmp_path):
    (tmp_path / "x.txt").write_bytes(b"one\r\ntwo\nth\xc3\xa9")
    (tmp_path / "x.txt.gz").write_bytes(gzip.compress(b"one\r\ntwo\nth\xc3\xa9"))
    for name in ("x.txt", "x.txt.gz"):
        assert list(lines(tmp_path / name)) == [(1, "one"), (2, "two"), (3, "thé")]
    with open_bytes(tmp_path / "x.txt.gz") as handle:
        assert handle.read() == b"one\r\ntwo\nth\xc3\xa9"
    with pytest.raises(InputError, match=r"x\.txt:3: not ascii text"):
        list(lines(tmp_path / "x.txt", "ascii"))
    with pytest.raises(InputError, match=r"none\.txt: no such file"):
        list(lines(tmp_path / "none.txt"))


def test_broken_gz(tmp_path):
    whole = gzip.compress(b"".join(os.urandom(40).hex().encode() + b"\n" for _ in range(2000)))
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    for name, data in [
        ("cut", whole[: len(whole) // 2]),
        ("flipped", bytes(flipped)),
        ("plain", b"not compressed\n"),
    ]:
        (tmp_path / f"{name}.gz").write_bytes(data)
        with pytest.raises(
            InputError, match=rf"{name}\.gz:\d+: the compressed file is cut or broken"
        ):
            list(lines(tmp_path / f"{name}.gz"))


def test_digests(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a").write_text("x")
    assert (
        sha256(tmp_path / "d" / "a")
        == "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    )  # sha256sum
    before = sha256(tmp_path / "d")
    (tmp_path / "d" / "a").rename(tmp_path / "d" / "b")
    assert sha256(tmp_path / "d") != before
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1}) != digest({"a": 1, "b": [3]})


@pytest.mark.parametrize(
    "manifest", ["[]", '{"format": 1, "counts": {}, "sha256": null}', '{"format": 1', "[" * 100_000]
)
def test_a_manifest_that_is_none_is_one_error(tmp_path, manifest):
    folder = graph().save(tmp_path / "g")
    (folder / "manifest.json").write_text(manifest)
    with pytest.raises(InputError, match=r"manifest\.json: (expected|not valid)"):
        KnowledgeGraph.load(folder)


@pytest.mark.parametrize("content", [b"", b"PAR1" + bytes(60) + b"PAR1", "numbers"])
def test_a_bad_parquet_file_with_a_right_checksum_is_one_error(tmp_path, content):
    folder = graph().save(tmp_path / "g")
    file = folder / "names.parquet"
    if content == "numbers":
        columns = {name: pa.array([[1]]) for name in ("id", "name", "kind", "language", "source")}
        pq.write_table(pa.table(columns), file)
    else:
        file.write_bytes(content)
    manifest = read_json(folder / "manifest.json")
    manifest["sha256"]["names.parquet"] = sha256(file)
    write_json(folder / "manifest.json", manifest)
    with pytest.raises(InputError, match=r"names"):
        KnowledgeGraph.load(folder)


@given(
    st.lists(st.text("ab病\u00e9 :", min_size=1, max_size=6), unique=True),
    st.lists(st.text("ab病\u00e9 :", max_size=9)),
)
def test_numbers_are_those_of_a_dictionary(ids, asked):
    known = {one: place for place, one in enumerate(ids)}
    found = Numbers(pa.array(ids, pa.string())).positions([*asked, *ids])
    assert found.dtype == np.int64 and found.tolist() == [
        known.get(one, -1) for one in [*asked, *ids]
    ]
