"""Failures of files and of the machine are one line for every command, and no file of somebody else
is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from app.cli import main
from core.tracking import ROOT
from inference.detectors import BATCH
from tests.fakes.graphs import graph

Run = Callable[..., subprocess.CompletedProcess[str]]
LINE = '{"id": "a", "text": "renal failure and foozin"}\n'


@pytest.fixture
def place(tmp_path: Path) -> Path:
    names = [("D1", "renal failure", "exact", "en")]
    graph({"D1": "disease", "foozin": "drug"}, [("D1", "near", "foozin")], names).save(
        tmp_path / "graph"
    )
    (tmp_path / "t.jsonl").write_text(LINE)
    (tmp_path / "big.jsonl").write_text(LINE * 3000)
    return tmp_path


@pytest.fixture
def run(place: Path) -> Run:
    """`kepl link --graph graph WORDS` in a shell, with words before and behind it."""

    def ran(words: str, before: str = "", behind: str = "") -> subprocess.CompletedProcess[str]:
        command = f"{before} {sys.executable} -m app.cli link --graph graph {words} {behind}"
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            ["bash", "-c", command],
            cwd=place,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )

    return ran


@pytest.mark.parametrize(
    ("words", "before", "behind", "said"),
    [
        ("", "", "<&-", "standard input is closed"),
        ("", "", "</dev/null", "no text"),
        ("--text foozin", "", ">&-", "Bad file descriptor"),
        ("--text foozin", "", "> /dev/full", "disk is full"),
        ("--input t.jsonl --output /dev/full", "", "", "/dev/full: the disk is full"),
        (
            "--input big.jsonl --output o.jsonl",
            "ulimit -f 300;",
            "",
            "o.jsonl.parts/part-00000.jsonl: not written",
        ),
        (
            "--input t.jsonl --output o.docx",
            "",
            "",
            "ends in .jsonl, .ndjson, .json, .pubtator, .xml",
        ),
        ("--input t.jsonl --output graph/x.jsonl", "", "", "inside the folder graph"),
        ("--input t.jsonl --output t.jsonl --fresh", "", "", "an input of the command"),
        ("--input - --output o.jsonl", "cat t.jsonl |", "", "stdin: cannot tell the format"),
        ("--input $'\\xff.jsonl' --output o.jsonl", "", "", "not UTF-8"),
        ("--input $(printf 'a%.0s' {1..300}) --output o.jsonl", "", "", "ame too long"),
    ],
)
def test_a_failure_is_one_line(run: Run, words: str, before: str, behind: str, said: str) -> None:
    ended = run(words, before, behind)
    errors = [line for line in ended.stderr.splitlines() if not line.startswith("linking:")]
    assert (
        ended.returncode == 2
        and len(errors) == 1
        and errors[0].startswith("error: ")
        and said in errors[0]
    ), ended.stderr
    assert "Exception ignored" not in ended.stderr


def test_streams_are_inputs_and_outputs(run: Run, place: Path) -> None:
    whole = run("--input t.jsonl --output o.jsonl")
    assert whole.returncode == 0
    expected = (place / "o.jsonl").read_text()
    for words, before in (
        ("--input t.jsonl --output -", ""),
        ("--input t.jsonl --output /dev/stdout", ""),
        ("--input - --format jsonl --output -", "cat t.jsonl |"),
        ("--input /dev/stdin --format jsonl --output -", "cat t.jsonl |"),
        ("--input <(cat t.jsonl) --format jsonl --output -", ""),
    ):
        assert run(words, before).stdout == expected
    assert (
        run("--input t.jsonl --output - > p.jsonl").returncode == 0
        and (place / "p.jsonl").read_text() == expected
    )
    assert not list(place.glob("*.parts"))


def test_a_complete_output_is_left_and_another_is_not_replaced(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    words = ["link", "--graph", "graph", "--input", "t.jsonl", "--output", "o.jsonl"]
    assert main(words) == 0
    first, before = capsys.readouterr(), os.stat("o.jsonl").st_mtime_ns
    assert main(words) == 0
    again = capsys.readouterr()
    assert (
        again.out == first.out
        and "already complete" in again.err
        and os.stat("o.jsonl").st_mtime_ns == before
    )
    assert main([*words, "--top", "3"]) == 2 and "top (5 before, 3 now)" in capsys.readouterr().err
    assert main([*words, "--to", "pubtator"]) == 2 and "output_format" in capsys.readouterr().err
    assert main([*words, "--top", "3", "--fresh"]) == 0
    Path("t.jsonl").write_text(LINE.replace("and", "or"))
    assert main([*words, "--top", "3"]) == 2 and "t.jsonl (changed)" in capsys.readouterr().err
    Path("notes.txt").write_text("mine")
    assert (
        main([*words[:-1], "notes.txt", "--to", "jsonl"]) == 2
        and Path("notes.txt").read_text() == "mine"
    )


def test_an_input_that_changes_at_equal_size_and_time_is_noticed(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from core.files import InputError
    from inference.chain import Pipeline
    from inference.stream import link_files

    pipeline, file, out = Pipeline(place / "graph"), place / "t.jsonl", place / "o.jsonl"
    link = pipeline.link

    def rewritten() -> None:
        times = os.stat(file)
        file.write_text(LINE.replace("renal failure", "FOOZIN foozin"))
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))

    def changing(texts: list[str]) -> object:
        rewritten()
        return link(texts)

    monkeypatch.setattr(pipeline, "link", changing)
    with pytest.raises(InputError, match="changed while it was read"):
        link_files(pipeline, [file], out)
    assert not out.exists() and not (place / "o.jsonl.parts").exists()
    file.write_text(LINE)

    def stops(texts: list[str]) -> object:
        raise KeyboardInterrupt

    more = place / "more.jsonl"
    more.write_text(LINE * 600)
    monkeypatch.setattr(
        pipeline,
        "link",
        lambda texts, calls=[]: stops(texts) if calls else calls.append(1) or link(texts),
    )
    with pytest.raises(KeyboardInterrupt):
        link_files(pipeline, [file, more], out)
    rewritten()
    monkeypatch.setattr(pipeline, "link", link)
    with pytest.raises(InputError, match=r"other settings \(inputs\)"):
        link_files(pipeline, [file, more], out)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (
            "a.jsonl",
            (
                '{"id": 1, "text": "foozin", "mentions": [{"start": 3, "end": 99, "entity": "D1"},'
                " 3]}\n"
            ),
        ),
        ("b.jsonl", '{"id": 1, "text": "foozin", "mentions": {"start": 0}}\n'),
        (
            "a.pubtator",
            "1|t|foozin\n1|a|\n1\t0\t5\tother\tDrug\tD1\n1\t2\n2\t0\t3\tfoo\tDrug\tD1\n1\tx\ty\tz\tDrug\n",
        ),
        (
            "a.bioc.json",
            json.dumps(
                [
                    {
                        "id": "1",
                        "passages": [
                            {
                                "offset": 0,
                                "text": "foozin",
                                "annotations": [
                                    {"text": "x", "locations": [{"offset": 9, "length": 3}]}
                                ],
                            },
                            {"offset": 10, "text": "", "annotations": [3]},
                        ],
                    }
                ]
            ),
        ),
        (
            "a.bioc.xml",
            (
                "<collection><document><id>1</id><passage><offset>0</offset><text>foozin</text><annotation><text>x</text></annotation><annotation><location"
                " offset='-1' length='x'/></annotation></passage></document></collection>"
            ),
        ),
    ],
)
def test_annotations_that_nobody_uses_are_counted(
    place: Path, capsys: pytest.CaptureFixture[str], name: str, content: str
) -> None:
    from core.files import InputError
    from kg.documents.formats import documents

    (place / name).write_text(content)
    words = [
        "link",
        "--graph",
        str(place / "graph"),
        "--input",
        str(place / name),
        "--output",
        str(place / "o.jsonl"),
    ]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "1 documents, 1 mentions" in said and "annotations that do not fit the text" in said
    with pytest.raises(InputError):
        list(documents([place / name]))


def test_hidden_files_are_passed_over_and_counted(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = place / "notes"
    (notes / ".git" / "deep").mkdir(parents=True)
    for name, content in (
        ("a.txt", b"foozin"),
        ("._a.txt", b"\0\xff"),
        (".b.txt", b"x"),
        (".git/deep/c.txt", b"x"),
    ):
        (notes / name).write_bytes(content)
    (notes / "again").symlink_to(notes)
    (notes / "x.jsonl.manifest.json").write_text("{}")
    words = [
        "link",
        "--graph",
        str(place / "graph"),
        "--input",
        str(notes),
        "--output",
        str(place / "o.jsonl"),
    ]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert (
        "1 documents" in said
        and "3 hidden files" in said
        and "1 links to folders" in said
        and "1 manifests" in said
    )


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("e.txt", ""),
        ("e.jsonl", ""),
        ("e.xml", "<a/>"),
        ("e.bioc.json", "[]"),
        ("e.bioc.xml", "<collection/>"),
        ("e.pubtator", "\n\n"),
        ("p.xml", "<n:PubmedArticleSet xmlns:n='u'/>"),
    ],
)
def test_an_input_without_a_document_is_an_error(
    place: Path, capsys: pytest.CaptureFixture[str], name: str, content: str
) -> None:
    (place / name).write_text(content)
    words = [
        "link",
        "--graph",
        str(place / "graph"),
        "--input",
        str(place / name),
        "--output",
        str(place / "o.jsonl"),
    ]
    for more in ([], ["--empty", "skip"]):
        assert main([*words, *more]) == 2 and "no document in" in capsys.readouterr().err
    assert not (place / "o.jsonl").exists()


@pytest.mark.parametrize("prefix", ["", "b:", "some-prefix:"])
def test_prefixes_of_namespaces_are_left_out(place: Path, prefix: str) -> None:
    from kg.documents.formats import documents

    b = prefix
    bioc = (
        f"<{b}collection><{b}document><{b}id>7</{b}id><{b}passage><{b}offset>0</{b}offset><{b}text>foozin</{b}text>"
        f"</{b}passage></{b}document></{b}collection>"
    )
    article = (
        f"<{b}PubmedArticleSet><{b}PubmedArticle><{b}MedlineCitation><{b}PMID>7</{b}PMID><{b}Article>"
        f"<{b}ArticleTitle>foozin</{b}ArticleTitle></{b}Article></{b}MedlineCitation></{b}PubmedArticle></{b}PubmedArticleSet>"
    )
    for text, encoding in (
        (bioc, "utf-8"),
        (article, "utf-8"),
        (bioc, "utf-16"),
        (article, "utf-16-le"),
    ):
        (place / "x.xml").write_text(text, encoding)
        assert [(d.id, d.text) for d in documents([place / "x.xml"])] == [("7", "foozin")]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32-le"])
@pytest.mark.parametrize("name", ["x.txt", "x.jsonl", "x.bioc.json", "x.pubtator", "x.txt.gz"])
def test_utf_16_is_one_clear_error(place: Path, encoding: str, name: str) -> None:
    import gzip

    from core.files import InputError
    from kg.documents.formats import documents

    raw = '[{"id": "1", "text": "foozin", "passages": []}]\n'.encode(encoding)
    (place / name).write_bytes(gzip.compress(raw) if name.endswith("gz") else raw)
    with pytest.raises(InputError, match="UTF-16.*iconv.*--encoding"):
        list(documents([place / name]))


def _link(place: Path, *words: str) -> list[str]:
    return ["link", "--graph", str(place / "graph"), *map(str, words)]


def test_repeated_ids_and_files_are_counted_and_said(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    Path("more").mkdir()
    Path("more/n.txt").write_text("foozin\n")
    Path("ids.jsonl").write_text(LINE * 2 + LINE.replace('"a"', '"b"') + LINE)
    words = _link(
        place, "--input", "ids.jsonl", "more", "more/../more/n.txt", "--output", "o.jsonl"
    )
    for _ in range(2):  # made, and complete already
        assert main([*words, "--json"]) == 0
        said = capsys.readouterr()
        lines = [line for line in said.err.splitlines() if "already complete" not in line]
        assert [line.rpartition(": ")[2] for line in lines if "id of" in line] == [
            "2 documents have the id of an earlier document"
        ]
        assert sum("given more than once; it is used once" in line for line in lines) == 1
        assert json.loads(said.out)["left_out"] == {"files given more than once": 1}
        assert json.loads(said.out)["documents"] == 5


def test_ids_that_pubtator_cannot_keep_apart_are_refused(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    lines = [LINE.replace('"a"', f'"{name}"') for name in ("x", "p 7", "p 7", "y", "p|7")]
    Path("ids.jsonl").write_text("".join(lines))
    words = _link(place, "--input", "ids.jsonl", "--output", "o.pubtator")
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "ids.jsonl:5: the id 'p|7'" in said and "ids.jsonl:2, 'p 7'" in said
    assert not Path("o.pubtator").exists()
    assert main([*words, "--to", "jsonl"]) == 0 and "resuming after 5" in capsys.readouterr().err
    Path("ids.jsonl").write_text("".join(lines[:3]))
    assert main([*words, "--fresh"]) == 0
    assert "1 documents have the id" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--input", "-", "--format", "jsonl", "--output", "-"], LINE),
        (["--input", "-", "--format", "text", "--to", "bioc", "--output", "/dev/stdout"], None),
        (["--json"], None),
        ([], None),
    ],
)
def test_what_comes_is_answered_before_the_input_ends(
    place: Path, words: list[str], line: str | None
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "app.cli", *_link(place, *words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdin and process.stdout
    watch = threading.Timer(60, process.kill)
    watch.start()
    try:
        process.stdin.write((line or "renal failure\n").encode() * BATCH)
        process.stdin.flush()
        first = b""
        while first.count(b"renal failure") < BATCH:
            came = process.stdout.readline()
            assert came, first[-300:]
            first += came
        assert process.poll() is None
        process.stdin.write((line or "one foozin\n").encode())
        process.stdin.close()
        assert b"foozin" in process.stdout.read() and process.wait() == 0
    finally:
        watch.cancel()
        process.kill()


def test_a_stream_into_a_stream_is_checked_and_counted(run: Run, place: Path) -> None:
    whole = run("--input - --format jsonl --output -", "cat t.jsonl t.jsonl |")
    assert whole.returncode == 0 and len(whole.stdout.splitlines()) == 2
    assert "1 documents have the id of an earlier document" in whole.stderr
    (place / "x.jsonl").write_text("".join(LINE.replace('"a"', f'"{i}"') for i in ("b|c", "b c")))
    alike = run("--input - --format jsonl --to pubtator --output -", "cat x.jsonl |")
    assert alike.returncode == 2 and "/dev/stdin:2: the id 'b c'" in alike.stderr
    broken = run("--input - --format jsonl --output -", "echo '{}' |")
    assert broken.returncode == 2 and "/dev/stdin:1: expected an id" in broken.stderr
    empty = run("--input - --format jsonl --output -", "printf '' |")
    assert empty.returncode == 2 and "no document in this file" in empty.stderr
