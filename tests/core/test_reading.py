"""What every reader of files shares: limits, encodings, line ends, JSON, and one clear error for
each broken input."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from core import json_files, reading
from core.arrays import read_table
from core.files import InputError
from core.json_files import json_lines, json_records, read_json
from core.reading import check_encoding, excerpt, lines, lines_of, read_text, spans, whole_number


@pytest.fixture
def small() -> Iterator[None]:
    """A limit of 1 MiB for a line, a record and a document."""
    reading.limit_documents(1)
    yield
    reading.limit_documents(16)


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_lines_of_every_line_end_and_without_a_byte_order_mark(tmp_path: Path, ends: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(f"\ufeffone{ends}two{ends}three".encode())
    assert list(lines(path)) == [(1, "one"), (2, "two"), (3, "three")]
    assert next(lines(path, mark=True))[1] == "\ufeffone"


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("blank", [False, True])
@pytest.mark.parametrize("last", [False, True], ids=["open end", "ended"])
def test_spans_hold_every_line_once(tmp_path: Path, ends: str, blank: bool, last: bool) -> None:
    path = tmp_path / "a.txt"
    content = ends.join("" if number % 5 == 4 else f"{number} 糖尿病" for number in range(101)) + (
        ends if last else ""
    )
    path.write_bytes(f"\ufeff{content}".encode())
    whole = list(lines(path))
    for size in (1, 7, 60, 400, 10_000):
        cut = spans(path, size, blank)
        assert [line for span in cut for line in lines(span)] == whole
        assert cut[0].line == 1 and (
            len(cut) == 1 or all(span.end - span.begin >= size for span in cut[:-1])
        )  # type: ignore[operator]
        assert len(cut) == 1 if size == 10_000 else len(cut) > 2
        if blank:
            assert all(list(lines(span))[-1][1] == "" for span in cut[:-1])


def test_what_cannot_be_cut_is_one_span(tmp_path: Path, small: None) -> None:
    text = b"one\ntwo\n" * 100
    for name, content in {
        "a.txt.gz": gzip.compress(text),
        "b.txt": text.replace(b"\n", b"\r"),
        "c.txt": b"",
    }.items():
        (tmp_path / name).write_bytes(content)
        (span,) = spans(tmp_path / name, 4)
        assert span == reading.Span(tmp_path / name) and list(lines(span)) == list(
            lines(tmp_path / name)
        )
    (tmp_path / "d.txt").write_bytes(b"x" * (3 << 20) + b"\ny\n")
    with pytest.raises(InputError, match=r"d\.txt:1: a line of more than 1 MiB"):
        list(lines(spans(tmp_path / "d.txt", 4)[0]))
    assert [list(lines(span)) for span in spans(tmp_path / "d.txt", 4)[1:]] == [[(2, "y")]]


@pytest.mark.parametrize(
    ("ending", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".XZ", lzma.compress)]
)
def test_compressed_files_are_read_and_cut_ones_refused(tmp_path: Path, ending: str, pack) -> None:
    path = tmp_path / f"a.txt{ending}"
    packed = pack(b"one\ntwo\n" + bytes(range(1, 256)) * 40)
    path.write_bytes(packed)
    assert [line for _, line in lines(path, "latin-1")][:2] == ["one", "two"]
    for broken in (packed[:-9], packed[:20] + bytes(20) + packed[40:]):
        path.write_bytes(broken)
        with pytest.raises(InputError, match=r":[13]: the compressed file is cut or broken"):
            list(lines(path, "latin-1"))
        with pytest.raises(InputError, match=r"the compressed file is cut or broken"):
            read_text(path, "latin-1")


def test_a_compressed_line_above_the_limit_is_refused_in_bounded_memory(
    tmp_path: Path, small: None
) -> None:
    path = tmp_path / "a.jsonl.gz"
    with gzip.open(path, "wb") as handle:
        handle.write(b"{}\n")
        for _ in range(64):
            handle.write(b"x" * (1 << 20))
    tracemalloc.start()
    with pytest.raises(
        InputError, match=r"a\.jsonl\.gz:2: a line of more than 1 MiB.*--max-document"
    ):
        list(lines(path))
    assert tracemalloc.get_traced_memory()[1] < 12 << 20
    tracemalloc.stop()
    with pytest.raises(InputError, match="expected 1 to 1024 MiB"):
        reading.limit_documents(0)


def test_encodings_are_checked_before_anything_is_read(tmp_path: Path) -> None:
    for name in ("utf-9", "rot13", "undefined", "\0"):
        with pytest.raises(InputError, match="no such encoding"):
            check_encoding(name)
    for name in ("utf-16", "cp037"):
        with pytest.raises(InputError, match="line ends are not those of ASCII"):
            check_encoding(name)
    with pytest.raises(InputError, match=r"standard input:2: not utf-8 text"):
        list(lines_of(io.BytesIO(b"a\n\xff\n"), "standard input"))


BROKEN = {
    "deep": ("[" * 100_000, "nested too deeply"),
    "digits": ('{"a": ' + "9" * 5000 + "}", "too many digits"),
    "half": ('{"a": "\\ud800"}', "half a surrogate pair"),
    "cut": ('{"a": ', "not valid JSON"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_json_is_one_error_for_every_reader(tmp_path: Path, case: str) -> None:
    path, (content, message) = tmp_path / "a.json", BROKEN[case]
    path.write_text(content)
    for read in (read_json, lambda p: list(json_lines(p)), lambda p: list(json_records(p))):
        with pytest.raises(InputError, match=rf"a\.json.*{message}"):
            read(path)


def test_records_of_a_list_are_read_in_the_memory_of_one(tmp_path: Path) -> None:
    def peak(count: int) -> int:
        path = tmp_path / "a.json"
        rows = [{"n": i, "t": "x" * 1000} for i in range(count)]
        path.write_text(json.dumps({"source": {"of": [1]}, "documents": rows}, indent=1))
        del rows
        tracemalloc.start()
        assert [r["n"] for _, r in json_records(path, keys=("documents",))] == list(range(count))
        high = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return high

    assert peak(4000) < peak(500) + 200_000


def test_records_of_lists_and_of_objects_one_after_the_other(tmp_path: Path, small: None) -> None:
    path = tmp_path / "a.json"
    for content in ('\ufeff[{"a": 1},\n {"a": 2}]\n', '{"a": 1}\n{"a": 2}'):
        path.write_text(content)
        assert list(json_records(path)) == [(f"{path}:1", {"a": 1}), (f"{path}:2", {"a": 2})]
    for content, message in (
        ('{"documents": [{}], "b": 1', "the object does not end"),
        ('{"documents": [{}]', "the object does not end"),
        ('{"b": 1}', "under documents"),
        ("", "under documents"),
        ('{"b": 1, 2', "expected a key"),
        ("[1]", "JSON object, got int"),
    ):
        path.write_text(content)
        with pytest.raises(InputError, match=message):
            list(json_records(path, keys=("documents",)))
    path.write_text('[{"a": "' + "x" * (3 << 20) + '"}]')
    with pytest.raises(InputError, match="a record of more than 1 MiB"):
        list(json_records(path))


def test_whole_numbers() -> None:
    assert whole_number("x:1", "start", " 12 ") == whole_number("x:1", "start", 12) == 12
    for value in (-1, "-1", "1.0", 1.0, True, None, "9" * 5000, 10**5000, "\u0663"):
        with pytest.raises(InputError, match="x:1: expected a number under start"):
            whole_number("x:1", "start", value)


def test_a_file_that_is_no_parquet_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1" + b"junk" * 40 + b"PAR1")
    with pytest.raises(
        InputError, match=r"a\.parquet: not a readable Parquet file .* Build it again"
    ):
        read_table(tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"no such file"):
        read_table(tmp_path / "none.parquet")


@pytest.mark.parametrize("size", [2 * reading.MEBIBYTE, 2 * reading.MEBIBYTE + 1])
def test_the_largest_file_that_is_read_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(reading, "WHOLE", 2 * reading.MEBIBYTE)
    path = tmp_path / "a.bin"
    path.write_bytes(b"x" * size)
    if size == reading.WHOLE:
        assert len(reading.read_bytes(path)) == size
    else:
        with pytest.raises(InputError, match=r"a\.bin: more than 2 MiB"):
            reading.read_bytes(path)


def test_numbers_of_more_than_twelve_digits() -> None:
    assert whole_number("x:1", "count", 10**12 - 1) == whole_number("x:1", "count", "9" * 12)
    for value in (10**12, 10**4300):  # which Python would not write
        with pytest.raises(InputError, match="count, 0 or more, got a number of many digits"):
            whole_number("x:1", "count", value)
    with pytest.raises(InputError, match="got -1"):
        whole_number("x:1", "count", -1)


class Slow(io.BytesIO):
    """A file that gives a byte at a time."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(1, size or 1))


def test_a_number_that_a_block_cuts_in_two_is_one() -> None:
    values = json_files._Values(Slow(b"12 345\n6"), "a.json", "utf-8")
    assert [values.value() for _ in range(3)] == [12, 345, 6]
    assert values.where == "a.json:2"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("it's", '"it\'s"'),
        (["a", 1], "['a', 1]"),
        ("x" * 58, f"'{'x' * 58}'"),  # sixty characters, quotes included
        ("x" * 59, f"'{'x' * 59}…"),
        ("a\tb\n", r"'a\tb\n'"),
    ],
)
def test_what_a_message_repeats_of_a_wrong_value(value: object, shown: str) -> None:
    assert excerpt(value) == shown
