"""kepl data link: parts, workers, resuming; the linkers for given mentions and for
scispaCy."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from core.files import InputError, lock_file
from kg.documents.parts import InParts, part_name
from kg.ids import Ids
from kg.linking import Document, GivenLinker, Mention, linked_documents
from kg.linking import run as runs
from kg.linking.run import ChosenLinker
from tests.commands import command
from tests.fakes import documents as fakes
from tests.fakes.leftovers import left_by

pytestmark = pytest.mark.usefixtures("preloaded")
main = command("data link")

TEXTS = [
    (f"d{i}", f"Text {i}: seizure and type 2 diabetes mellitus (TD{i % 3}); TD{i % 3} 糖尿病.")
    for i in range(23)
]


def link_corpus(graph, inputs, out, workers=1, part_size=InParts.part_size, **options):
    work = InParts(workers=workers, part_size=part_size)
    return runs.link_corpus(graph, inputs, out, work=work, **options)


@pytest.fixture
def graph(tmp_path) -> Path:
    return fakes.graph().save(tmp_path / "graph")


def contents(folder: Path) -> dict[str, bytes]:
    """Files of a linked corpus; but that of its inputs, which holds their times."""
    return {
        p.relative_to(folder).as_posix(): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and p.name != "inputs.json"
    }


def test_parts_manifest_and_reading_back(graph, tmp_path):
    made = link_corpus(
        graph, [fakes.pubmedds(tmp_path / "a.json")], tmp_path / "out", part_size=800
    )
    names = ["part-00000.jsonl", "part-00001.jsonl"]
    assert sorted(contents(tmp_path / "out")) == [
        ".lock",
        "manifest.json",
        *(f"markers/{name}.json" for name in names),
        *names,
    ]
    record = json.loads((tmp_path / "out/part-00000.jsonl").read_text().splitlines()[0])
    assert record["mentions"][0] == {"start": 0, "end": 7, "entity": "C01", "score": 1.0}
    read = list(linked_documents(tmp_path / "out"))
    assert [d.id for d in read] == ["101", "102", "103"]
    assert [(d.text[m.start : m.end], m.entity) for m in read[0].mentions for d in read[:1]] == [
        ("Seizure", "C01"),
        ("diabetes mellitus", "C02"),
        ("type 2 diabetes mellitus", "C03"),
        ("T2DM", "C03"),
        ("seizure", "C01"),
        ("T2DM", "C03"),
    ]
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert manifest == made
    assert manifest["parts"] == [2, 1] and manifest["documents"] == 3 and manifest["entities"] == 5
    assert manifest["mentions"] == sum(len(d.mentions) for d in read)
    assert manifest["settings"]["inputs"][0]["name"] == "a.json"


def test_one_and_two_workers_and_an_interruption_give_the_same_bytes(
    graph, tmp_path, monkeypatch, capsys
):
    texts = [fakes.write_documents(tmp_path / "texts.jsonl", TEXTS)]
    for workers in (1, 2):
        link_corpus(graph, texts, tmp_path / f"w{workers}/out", part_size=300, workers=workers)
    expected = contents(tmp_path / "w1/out")
    assert contents(tmp_path / "w2/out") == expected and len(expected) == 14

    class Stopped(Exception):
        pass

    def stopping(linker, source, path, *, real=runs.write_part, **more):
        if path.name == "part-00004.jsonl":
            raise Stopped
        return real(linker, source, path, **more)

    (tmp_path / "w3").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(runs, "write_part", stopping)
        with pytest.raises(Stopped):
            link_corpus(graph, texts, tmp_path / "w3/out", part_size=300)
    kept = contents(tmp_path / "w3/out")
    done = [part_name(number) for number in range(4)]
    assert sorted(kept) == [
        ".lock",
        *(f"markers/{name}.json" for name in done),
        *done,
        "state.json",
    ]
    times = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "w3/out").glob("part-*")}
    link_corpus(graph, texts, tmp_path / "w3/out", part_size=300, workers=2)
    assert contents(tmp_path / "w3/out") == expected
    assert all((tmp_path / "w3/out" / name).stat().st_mtime_ns == t for name, t in times.items())
    assert "kept: " not in capsys.readouterr().err
    link_corpus(graph, texts, tmp_path / "w3/out", part_size=300)
    assert "kept: finished linked text" in capsys.readouterr().err


def test_killed_run_resumes(graph, tmp_path):
    many = [(f"d{i}", TEXTS[i % len(TEXTS)][1] * 4) for i in range(12_000)]
    source = fakes.write_documents(tmp_path / "texts.jsonl", many)
    link_corpus(graph, [source], tmp_path / "whole", part_size=20_000)
    command = [
        sys.executable,
        "-m",
        "core.call",
        "data",
        "link",
        "--graph",
        str(graph),
        "--input",
        str(source),
        "--out",
        str(tmp_path / "out"),
        "--part-size",
        "20000",
        "--workers",
        "2",
    ]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    while not (tmp_path / "out" / part_name(2)).exists():
        assert process.poll() is None
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    left_by(tmp_path / "out" / "part-00007.jsonl").write_text("half")
    assert not (tmp_path / "out" / "manifest.json").exists()
    with pytest.raises(InputError, match="no finished linked text"):
        next(linked_documents(tmp_path / "out"))
    assert (
        subprocess.run(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL).returncode
        == 0
    )
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    deadline = time.monotonic() + 20
    while True:  # the killed run's workers end by themselves
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            break
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_other_settings_need_fresh(graph, tmp_path):
    source, out = fakes.jsonl(tmp_path / "a.jsonl"), tmp_path / "out"
    link_corpus(graph, [source], out)
    with pytest.raises(
        InputError, match=r"out: was begun with other settings \(part_size\)\. Add --fresh"
    ):
        link_corpus(graph, [source], out, part_size=1)
    fakes.jsonl(source, fakes.ARTICLES[:1])
    with pytest.raises(InputError, match=r"other settings \(inputs\)"):
        link_corpus(graph, [source], out)
    assert link_corpus(graph, [source], out, part_size=1, fresh=True)["documents"] == 1
    assert [d.id for d in linked_documents(out)] == ["101"]
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match=r"holds 'thesis.txt' and no linked corpus"):
        link_corpus(graph, [source], other, fresh=True)
    assert (other / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_bad_line_is_one_error_and_leaves_finished_parts(graph, tmp_path, capsys, workers):
    source = fakes.write_documents(tmp_path / "a.jsonl", TEXTS)
    good = source.read_text()
    source.write_text(good + '{"id": "x", "text"\n')
    words = [
        "--graph",
        str(graph),
        "--input",
        str(source),
        "--out",
        str(tmp_path / "out"),
        "--part-size",
        "500",
        "--workers",
        workers,
    ]
    assert main(words) == 2
    errors = capsys.readouterr().err.strip().splitlines()
    assert errors[-1].startswith(
        f"error: {source}:24: not valid JSON"
    ) and "Traceback" not in "".join(errors)
    assert len(list((tmp_path / "out").glob("part-*.jsonl"))) == 3
    source.write_text(good)
    assert main([*words, "--fresh"]) == 0 and main(words) == 0
    assert "kept: finished linked text" in capsys.readouterr().err


def test_parts_are_of_about_the_same_size(graph, tmp_path):
    """Of small files several make a part, a large one makes several; ids and places in errors are
    those of the whole file."""
    for number in range(6):
        (tmp_path / f"small{number}.txt").write_text("a seizure\n")
    large = tmp_path / "large.txt"
    large.write_text("".join(f"seizure {number:03d}\n" for number in range(100)))  # 12 bytes a line
    paths = [*sorted(tmp_path.glob("small*.txt")), large]
    made = link_corpus(graph, paths, tmp_path / "out", part_size=30)
    assert made["parts"] == [3, 3] + [3] * 33 + [1]
    whole = link_corpus(graph, paths, tmp_path / "whole")
    assert whole["parts"] == [106] and [
        d._replace(where="") for d in linked_documents(tmp_path / "out")
    ] == [d._replace(where="") for d in linked_documents(tmp_path / "whole")]
    assert [d.id for d in linked_documents(tmp_path / "out")][-1] == "large:100"
    large.write_text(large.read_text()[:-4] + "\r00\n")
    with pytest.raises(InputError, match=r"large\.txt:100: a carriage return"):
        link_corpus(graph, paths, tmp_path / "out", part_size=30, fresh=True)


def test_a_resumed_run_reads_only_what_is_missing(graph, tmp_path, monkeypatch):
    """39 of 40 files are done: the documents of one are read again."""
    inputs = [
        fakes.write_documents(tmp_path / "in" / f"{n:02d}.jsonl", [(f"d{n}", TEXTS[n % 23][1])])
        for n in range(40)
    ]
    link_corpus(graph, inputs, tmp_path / "out", part_size=1)
    expected = contents(tmp_path / "out")
    (tmp_path / "out" / part_name(17)).unlink()
    read, real = [], runs.documents
    monkeypatch.setattr(
        runs, "documents", lambda spans, *rest: read.extend(spans) or real(spans, *rest)
    )
    link_corpus(graph, inputs, tmp_path / "out", part_size=1)
    assert [span.path for span in read] == [inputs[17]] and contents(tmp_path / "out") == expected


def test_command_line_errors(graph, tmp_path, capsys):
    source = fakes.jsonl(tmp_path / "a.jsonl")
    basis = [
        "--graph",
        str(graph),
        "--input",
        str(source),
        "--out",
        str(tmp_path / "out"),
        "--workers",
        "1",
    ]
    for more, message in [
        (["--linker", "magic"], "no linker 'magic'; choose from: dictionary, scispacy, given"),
        (["--part-size", "0"], "expected at least one"),
        (["--input", "no.txt"], "no.txt: no such file"),
        (["--graph", str(tmp_path)], "no knowledge graph here"),
        (["--linker", "scispacy"], "Give --pipeline"),
        (["--format", "csv"], "no format 'csv'"),
        (["--empty", "x"], "choose from: error, skip"),
        (["--linker", "given", "--unknown", "x"], "choose from: error, drop"),
    ]:
        assert main(basis + more) == 2
        assert message in capsys.readouterr().err


def test_two_runs_in_one_folder_are_refused(graph, tmp_path):
    source = fakes.jsonl(tmp_path / "a.jsonl")
    with (
        lock_file(tmp_path / "out" / ".lock", "w", "taken"),
        pytest.raises(InputError, match="another process is writing it"),
    ):
        link_corpus(graph, [source], tmp_path / "out")


def test_damaged_parts_are_found(graph, tmp_path):
    source, out = fakes.jsonl(tmp_path / "a.jsonl"), tmp_path / "out"
    link_corpus(graph, [source], out)
    part = out / "part-00000.jsonl"
    whole = part.read_text()
    for content in (
        whole[:-40],
        whole.splitlines()[0] + "\n",
        whole.replace('"end": 7', '"end": 8'),
    ):
        part.write_text(content)
        with pytest.raises(
            InputError,
            match=r"part-00000\.jsonl: missing, or not the file its .*\. Delete this part",
        ):
            list(linked_documents(out))
    part.unlink()
    with pytest.raises(InputError, match="missing, or not the file"):
        list(linked_documents(out))
    link_corpus(graph, [source], out)  # makes the missing part again
    assert part.read_text() == whole


def test_given_linker(graph, tmp_path):
    source = fakes.pubtator(tmp_path / "a.pubtator")
    made = link_corpus(graph, [source], tmp_path / "out", chosen=ChosenLinker(linker="given"))
    assert [len(d.mentions) for d in linked_documents(tmp_path / "out")] == [4, 3, 1] and made[
        "left_out"
    ] == 0
    where = Document(
        "7",
        "a cat sat",
        (Mention(2, 5, "C04"), Mention(2, 9, "C01"), Mention(0, 1, "X9")),
        "f.jsonl:7",
    )
    with pytest.raises(
        InputError, match=r"f\.jsonl:7: document '7', mention \[0, 1\): entity id 'X9' is not in"
    ):
        GivenLinker(Ids(["C01", "C04"])).link_document(where)
    dropping = GivenLinker(Ids(["C01", "C04"]), unknown="drop")
    assert dropping.link_document(where) == [Mention(2, 9, "C01")]
    assert dropping.left_out == {"of an unknown id": 1, "inside or across another": 1}
    with pytest.raises(InputError, match=r"\[2, 50\) is outside its text"):
        GivenLinker(Ids(["C01"])).link_document(Document("7", "a cat", (Mention(2, 50, "C01"),)))


scispacy = pytest.mark.skipif(
    any(find_spec(m) is None for m in ("spacy", "scispacy", "nmslib")),
    reason="the extra `scispacy` is not installed",
)


@pytest.fixture
def pipeline(tmp_path) -> Path:
    import spacy

    nlp = spacy.blank("en")
    patterns = ["seizures", "epileptic seizures", "insulin", "bicycle", "x"]
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "E", "pattern": p} for p in patterns])
    nlp.to_disk(tmp_path / "pipeline")
    return tmp_path / "pipeline"


@scispacy
def test_scispacy_linker(pipeline, graph, tmp_path):
    from kg.linking.scispacy import ScispacyLinker

    text = "Two epileptic seizures after insulin on a bicycle x."
    link = ScispacyLinker.from_graph(fakes.graph(), pipeline, threshold=0.7)
    found = [(text[m.start : m.end], m.entity) for m in link.link(text)]
    assert found == [("epileptic seizures", "C01"), ("insulin", "C04")]
    assert [m.score for m in link.link(text)][1] == pytest.approx(1.0, abs=1e-4)
    assert (
        ScispacyLinker.from_graph(fakes.graph(), pipeline, threshold=0.999).link(text)
        == link.link(text)[1:]
    )
    same = fakes.graph(
        [("b", "insulin", "synonym"), ("a", "insulin", "synonym"), ("c", "insulin", "related")]
    )
    assert [m.entity for m in ScispacyLinker.from_graph(same, pipeline).link("insulin")] == ["a"]
    made = link_corpus(
        graph,
        [fakes.plain(tmp_path / "a.txt")],
        tmp_path / "out",
        chosen=ChosenLinker(linker="scispacy", pipeline=pipeline),
        workers=2,
        part_size=1,
    )
    assert made["mentions"] == sum(len(d.mentions) for d in linked_documents(tmp_path / "out"))


@scispacy
def test_scispacy_pipeline_errors(tmp_path):
    import spacy

    from kg.linking.scispacy import ScispacyLinker

    with pytest.raises(InputError, match="no spaCy pipeline 'en_core_sci_xx'"):
        ScispacyLinker.from_graph(fakes.graph(), "en_core_sci_xx")
    with pytest.raises(InputError, match=r"config\.cfg is missing"):
        ScispacyLinker.from_graph(fakes.graph(), tmp_path)
    spacy.blank("en").to_disk(tmp_path / "blank")
    with pytest.raises(InputError, match="has no component"):
        ScispacyLinker.from_graph(fakes.graph(), tmp_path / "blank")


def test_scispacy_extra_missing(monkeypatch):
    from kg.linking import scispacy as adapter

    monkeypatch.setattr(adapter, "EXTRA", ("no_such_module",))
    with pytest.raises(InputError, match=r"no_such_module, not installed here.*SCISPACY=0"):
        adapter.ScispacyLinker.from_graph(fakes.graph(), "en")


def test_what_is_not_used_is_counted_in_the_manifest(graph, tmp_path, capsys):
    fakes.pubtator(tmp_path / "in.pubtator")
    words = [
        "--graph",
        str(graph),
        "--input",
        str(tmp_path / "in.pubtator"),
        "--out",
        str(tmp_path / "out"),
        "--workers",
        "1",
    ]
    assert main(words) == 0
    assert "left out: 3 relation lines" in capsys.readouterr().out
    assert main(words) == 0  # the same when everything is there already
    assert "left out: 3 annotations without an entity" in capsys.readouterr().out
