"""SIGINT and SIGTERM: one line says what is kept, and the same command continues."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.cli import KEPT, main
from core.commands import SAFE_PATH
from core.stopping import Stopped, format_stop, report_interrupt, stoppable
from core.tracking import ROOT
from tests.fakes import bert
from tests.fakes.graphs import graph

SIGNALS = [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stopping")
    names = [("D1", "renal failure", "exact", "en")]
    graph({"D1": "disease"}, [("D1", "near", "D1")], names).save(folder / "graph")
    bert.write(folder / "encoder", ["renal", "failure"], layers=4, hidden=128, length=512)
    lines = (json.dumps({"id": str(n), "text": f"renal failure {n}. " * 9}) for n in range(60_000))
    (folder / "t.jsonl").write_text("\n".join(lines))
    (folder / "n.txt").write_text("".join(f"renal failure {n}\n" for n in range(200_000)))
    return folder


def begin(place: Path, *words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment |= {"KEPL_RUNS": str(place / "runs"), "HF_HUB_OFFLINE": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "app.cli", *words],
        cwd=place,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def stop(process: subprocess.Popen[str], number: int) -> tuple[int, list[str]]:
    """(exit code, lines on standard error without bars of progress)."""
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    return process.returncode, [line for line in said.splitlines() if "it/s" not in line]


def wait_for(what: Iterator[bool]) -> None:
    until = time.monotonic() + 90
    while not next(what):
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("workers", "number", "code", "word"),
    [
        ("1", *SIGNALS[0]),
        pytest.param("2", *SIGNALS[1], marks=pytest.mark.slow),
        pytest.param("1", *SIGNALS[1], marks=pytest.mark.slow),
        pytest.param("2", *SIGNALS[0], marks=pytest.mark.slow),
    ],
)
def test_files_resume(place: Path, number: int, code: int, word: str, workers: str) -> None:
    output = place / f"{word}{workers}.jsonl"
    words = ["link", "--graph", "graph", "--input", "t.jsonl", "--output", output.name]
    process = begin(place, *words, "--workers", workers)
    parts = place / f"{output.name}.parts"
    wait_for(iter(lambda: sum(p.stat().st_size for p in parts.glob("part-*")) > 200_000, None))
    ended, lines = stop(process, number)
    assert ended == code and len(lines) == 1, lines
    assert lines[0].startswith(f"{word}: ")
    assert f"documents are kept beside {output.name};" in lines[0]
    assert "the same command resumes" in lines[0] and not output.exists()
    again = begin(place, *words)
    _, said = again.communicate(timeout=200)
    assert again.returncode == 0 and "resuming after" in said
    assert len(output.read_text().splitlines()) == 60_000


@pytest.mark.parametrize(("number", "code", "word"), SIGNALS)
def test_lines_of_standard_input(place: Path, number: int, code: int, word: str) -> None:
    for words in ([], ["--input", "-", "--format", "text", "--output", "-"]):
        process = begin(place, "link", "--graph", "graph", *words)
        assert process.stdin and process.stdout
        process.stdin.write("renal failure\n" * 64)
        process.stdin.flush()
        assert process.stdout.readline()  # it waits for the next line
        ended, lines = stop(process, number)
        assert ended == code and len(lines) == 1, lines
        assert lines[0].startswith(f"{word}: what is ") and "rest of the input" in lines[0]


@pytest.mark.parametrize(("number", "code", "word"), SIGNALS)
def test_vectors_and_scores(place: Path, number: int, code: int, word: str) -> None:
    embed = ["embed", "--model", "./encoder", "--input", "n.txt", "--output", "v.safetensors"]
    process = begin(place, *embed)
    time.sleep(8)
    assert process.poll() is None
    ended, lines = stop(process, number)
    # a library that runs Python from C when it is interrupted makes the interpreter end by the
    # signal, which a shell reports as the same code
    assert ended in (code, -number), lines
    assert lines[-1].startswith(f"{word}: nothing is written"), lines
    assert not (place / "v.safetensors").exists() and "Traceback" not in "".join(lines)


@pytest.mark.parametrize(("number", "code", "word"), SIGNALS)
@pytest.mark.parametrize("verb", ["evaluate", "predict"])
def test_what_nothing_else_is_said_of(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    verb: str,
    number: int,
    code: int,
    word: str,
) -> None:
    def stopped(*_: object, **__: object) -> None:
        os.kill(os.getpid(), number)
        time.sleep(5)

    monkeypatch.setattr("benchmarks.linking.evaluate.score_linker", stopped)
    monkeypatch.setattr("experiments.finetuned_names.find_finetuned", stopped)
    words = {"evaluate": ["NCBI-EL"], "predict": ["--model", "NCBI/minilm", "--text", "a"]}[verb]
    monkeypatch.setattr("core.call.drop_output", lambda: None)
    assert main([verb, *words]) == code
    assert capsys.readouterr().err == f"{word}: {KEPT[verb]}\n"


def test_what_is_said_and_what_is_not_changed() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with (
        pytest.raises(Stopped) as caught,
        report_interrupt(lambda: "outer"),
        stoppable(),
        report_interrupt(lambda: "inner"),
    ):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)
    assert format_stop(caught.value) == ("terminated: inner", 143)
    assert format_stop(KeyboardInterrupt()) == ("interrupted: the same command resumes", 130)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("failure", ["KeyboardInterrupt", "BrokenPipeError"])
def test_output_that_nobody_reads_is_not_complained_of_at_the_end(failure: str) -> None:
    """What is still in the buffer of standard output cannot be written once the reader has
    gone."""
    program = (
        "import sys\nfrom core.call import run_guarded\ndef run(words):\n    print('x', end='')\n"
        f"    raise {failure}\nsys.exit(run_guarded(run, []))"
    )
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, "-c", program],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | SAFE_PATH | {"PYTHONUNBUFFERED": ""},
    )
    os.close(writer)
    said = "interrupted: the same command resumes\n" if failure == "KeyboardInterrupt" else ""
    assert (ended.returncode, ended.stderr) == (130 if said else 1, said)


def test_a_child_of_a_stoppable_block_is_ended_by_the_signal() -> None:
    reader, writer = os.pipe()
    with stoppable():
        child = os.fork()
        if not child:
            os.write(writer, b"ready")  # Python drops a signal that comes before
            time.sleep(20)
            os._exit(7)
        os.read(reader, 5)
        os.kill(child, signal.SIGTERM)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM
