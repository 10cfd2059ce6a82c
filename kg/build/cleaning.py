"""Running text from the web -> clean segments, by the rules of SMedBERT (Zhang et al., ACL 2021,
appendix A.1.1).

    kepl graph clean --input FILE|FOLDER … --out FILE.jsonl [--encoding gb18030]
    [--columns title,ask,answer]

The paper removes URLs, HTML tags and e-mail addresses from the posts, drops segments of fewer than
256 characters and cuts longer ones to 512. Here the rules are, in this order, and each is counted:

    markup       comments, scripts, styles and tags are taken out; a tag that begins a line or
                 paragraph ends a sentence
    entities     &lt; and the like become the characters that they mean
    addresses    e-mail addresses and URLs are taken out
    white space  runs of it become one blank, line ends stay as ends of sentences; control
    characters are taken out
    too short    a text of fewer than `shortest` characters is dropped
    too long     one of more than `longest` is cut at ends of sentences into parts as even as they
                 allow; a sentence that is longer by itself at a clause mark, or else in the middle.
                 The paper keeps one part, or does not say; here all are kept that are not too short
    script       a part of which fewer than `chinese` of the letters are Chinese is dropped
    twice        a part that was there already is dropped (the paper does not say)

Input: whatever kg.linking reads (JSON lines, plain text with a document on each line; .gz too), CSV
with a header line, of which `columns` become the text, and folders of these. With `whole` a
plain-text file is one document. Output: JSON lines {"id", "text"}, the id being the document's and,
of a document that was cut, /0, /1, …

The input is read in parts (core.executor), whose segments are in the folder OUT.parts until all
exist; a run that was stopped resumes with the missing parts. What was there already is dropped when
they are put together, in their order.
"""

from __future__ import annotations

import csv
import hashlib
import html
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from core.artifact import check_files
from core.executor import Part, PartsFolder, parts_folder
from core.files import InputError, atomic_write, check_writable
from core.outputs import check_no_input
from core.reading import Span, lines
from core.values import split_commas
from kg.documents.formats import check_options, documents, files_in, format_of
from kg.documents.parts import InParts, make_plan
from kg.linking.tokens import IDEOGRAPHS

RULES = 1  # of this module: raise it when they change, so that no run mixes old parts with new ones
_COMMENT = re.compile(r"<!--.*?-->|<(script|style)\b.*?</\1\s*>", re.S | re.I)
_BREAK = re.compile(r"</?(?:p|div|br|li|tr|h[1-6]|ul|ol|table|blockquote|hr)\b[^<>]*>", re.I)
_TAG = re.compile(r"</?[A-Za-z][A-Za-z0-9]*(?:\s[^<>]*)?/?>|<![A-Za-z][^<>]*>")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#x[0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_MAIL = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+")
_URL = re.compile(
    r"(?:https?|ftp)://[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%|]+"
    r"|(?<![A-Za-z0-9])www\.[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%|]+",
    re.I,
)
_CONTROL = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\ufffd]"
)
_BLANKS = re.compile(r"[^\S\n]+")
_LINES = re.compile(r"\s*\n\s*")
_SENTENCE = re.compile(r".+?(?:[。！？!?；;…]+[”’」』）)\]\"']*|\n|$)", re.S)
_CLAUSE = re.compile("[，、,：:]")
_CHINESE = re.compile(f"[{IDEOGRAPHS}]")


def clean(text: str) -> tuple[str, Counter[str]]:
    """(text without markup, addresses and superfluous white space, how much of each was found)."""
    counts: Counter[str] = Counter()

    def without(pattern: re.Pattern[str], by: str, what: str, text: str) -> str:
        text, count = pattern.subn(by, text)
        counts[what] += count
        return text

    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "<" in text:
        text = without(_COMMENT, "\n", "comments, scripts and styles", text)
        text = without(_BREAK, "\n", "tags", text)
        text = without(_TAG, "", "tags", text)
    if "&" in text:
        counts["entities"] += len(_ENTITY.findall(text))
        text = _ENTITY.sub(lambda match: html.unescape(match.group()), text)
    text = without(_URL, " ", "URLs", text)
    text = without(_MAIL, " ", "e-mail addresses", text)
    text = without(_CONTROL, "", "control characters", text)
    return _LINES.sub("\n", _BLANKS.sub(" ", text)).strip(), counts


def is_chinese(text: str, share: float) -> bool:
    """Whether at least `share` of the letters are Chinese characters; never of a text without
    letters."""
    letters = sum(map(str.isalpha, text))
    return letters > 0 and len(_CHINESE.findall(text)) >= share * letters


def _pieces(text: str, longest: int) -> Iterator[str]:
    """`text` in sentences, longer ones cut at clause marks or, without one, after `longest`
    characters."""
    for sentence in _SENTENCE.findall(text):
        while len(sentence) > longest:
            marks = [clause.end() for clause in _CLAUSE.finditer(sentence, 0, longest)]
            at = marks[-1] if marks else longest
            yield sentence[:at]
            sentence = sentence[at:]
        yield sentence


def parts(text: str, longest: int) -> list[str]:
    """`text` in parts of at most `longest` characters, cut at ends of sentences, as even as those
    allow.

    Nothing but white space at the cuts is lost.
    """
    if len(text) <= longest:
        return [text]
    enough = -(-len(text) // -(-len(text) // longest))  # characters of a part if all were alike
    pieces, part = [], ""
    for piece in _pieces(text, longest):
        if part and (len(part) >= enough or len(part) + len(piece) > longest):
            pieces.append(part)
            part = ""
        part += piece
    pieces.append(part)
    stripped = (part.strip() for part in pieces)
    return [part for part in stripped if part]


@dataclass(frozen=True, kw_only=True)
class SegmentRules:
    """Which segments are kept.

    Args:
        shortest: Fewest characters of a segment (the paper's).
        longest: Most characters of a segment (the paper's).
        chinese: Share of letters that must be Chinese. 0 is any.

    Raises InputError for settings that leave nothing.
    """

    shortest: int = 256
    longest: int = 512
    chinese: float = 0.5

    def __post_init__(self) -> None:
        if not 1 <= self.shortest <= self.longest or not 0 <= self.chinese <= 1:
            raise InputError(
                f"expected 1 <= shortest <= longest and chinese in [0, 1], got {self.shortest},"
                f" {self.longest}, {self.chinese}"
            )


def segments(
    sentences: Iterable[tuple[str, str]], counts: Counter[str], rules: SegmentRules
) -> Iterator[tuple[str, str]]:
    """(id, segment) of the documents (id, text) by the rules of this module but the last; `counts`
    counts what was done."""
    for name, raw in sentences:
        counts["documents"] += 1
        text, problems = clean(raw)
        counts.update(problems)
        cut = parts(text, rules.longest)
        counts["documents cut"] += len(cut) > 1
        for number, part in enumerate(cut):
            part = part.replace("\n", " ")
            if len(part) < rules.shortest:
                what = "documents" if len(cut) == 1 else "parts of a document that was cut"
                counts[f"dropped: {what} of fewer than {rules.shortest} characters"] += 1
                counts["characters dropped as too short"] += len(part)
            elif rules.chinese and not is_chinese(part, rules.chinese):
                counts["dropped: segments of another script"] += 1
            else:
                yield (name if len(cut) == 1 else f"{name}/{number}"), part


def _is_table(path: Path) -> bool:
    return path.name.lower().removesuffix(".gz").endswith(".csv")


def _rows(path: Path, encoding: str, columns: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(file:line, the columns of a row, a line each) of a CSV with a header line."""
    number = 0

    def text() -> Iterator[str]:
        nonlocal number
        for number, line in lines(path, encoding):  # noqa: B007 - used in errors
            yield line + "\n"

    reader = csv.reader(text())
    stem = path.name.removesuffix(".gz").rpartition(".")[0]
    try:
        header = [column.strip() for column in next(reader, [])]
        if not columns or (missing := [column for column in columns if column not in header]):
            wanted = (
                f"the column {missing[0]}" if columns else "--columns, which of them are the text"
            )
            raise InputError(
                f"{path}:1: expected {wanted}; it has {', '.join(header)}. Give --columns A,B."
            )
        places = [header.index(column) for column in columns]
        for values in reader:
            if len(values) != len(header):
                raise InputError(
                    f"{path}:{number}: expected {len(header)} columns, got {len(values)}. Fix the"
                    " line."
                )
            fields = (values[place].strip() for place in places)
            yield f"{stem}:{number}", "\n".join(filter(None, fields))
    except csv.Error as error:
        raise InputError(f"{path}:{number}: not valid CSV ({error}). Fix the line.") from error


def _kind(path: Path, whole: bool) -> str:
    """The format of a file; of formats that only this module reads, no spans are read."""
    if _is_table(path):
        return "csv"
    kind = format_of(path)
    return "whole" if whole and kind == "text" else kind


def texts(
    paths: Sequence[Path | Span],
    encoding: str = "utf-8",
    columns: Sequence[str] = (),
    whole: bool = False,
    left_out: Counter[str] | None = None,
) -> Iterator[tuple[str, str]]:
    """(id, text) of the documents in `paths`, files or spans of them, in order; documents without
    text come too.

    left_out: counts what is read and not used, {what it is: how often}.
    Raises InputError for an encoding that does not fit, and every broken line.
    """
    check_options(None, "skip", encoding)
    for source in paths:
        path = Path(source)
        kind = _kind(path, whole)
        if kind == "csv":
            yield from _rows(path, encoding, columns)
        elif kind == "whole":
            text = "\n".join(line for _, line in lines(path, encoding))
            yield path.name.removesuffix(".gz").rpartition(".")[0], text
        else:
            for document in documents([source], None, "skip", encoding, left_out, False):
                yield document.id, document.text


def _key(text: str) -> bytes:
    """What a segment is known by: 24 characters."""
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest().encode()


def _write_part(
    reading: dict[str, Any], source: Sequence[Span], path: Path, *, rules: SegmentRules
) -> dict[str, Any]:
    """Write the segments of `source` to `path`, a line each: key, characters, the line of the
    output."""
    counts: Counter[str] = Counter()
    with atomic_write(path, "wb") as handle:
        for name, text in segments(texts(source, left_out=counts, **reading), counts, rules):
            line = json.dumps({"id": name, "text": text}, ensure_ascii=False).encode()
            handle.write(b"%b %d %b\n" % (_key(text), len(text), line))
    return dict(counts)


def _join_lines(paths: Iterable[Path], counts: Counter[str], twice: bool) -> Iterator[bytes]:
    """The lines of the output from those of parts, without segments that were there already."""
    seen: set[bytes] = set()
    for path in paths:
        with open(path, "rb") as handle:
            for row in handle:
                key, characters, line = row.split(b" ", 2)
                if key in seen and not twice:
                    counts["dropped: segments that were there already"] += 1
                    continue
                seen.add(key)
                counts["segments"] += 1
                counts["characters"] += int(characters)
                yield line


def clean_files(
    input: Sequence[Path],
    out: Path,
    *,
    encoding: str = "utf-8",
    columns: Sequence[str] = (),
    whole: bool = False,
    twice: bool = False,
    fresh: bool = False,
    rules: SegmentRules = SegmentRules(),
    work: InParts = InParts(),
) -> Counter[str]:
    """Clean text of the web, in segments, by the rules of SMedBERT.

    Args:
        input: Files (.jsonl .txt .csv, also .gz) or folders of them.
        out: File of JSON lines to write, one {id, text} per line.
        encoding: Encoding of the files, such as gb18030.
        columns: CSV columns that are the text, with commas.
        whole: Read a plain-text file as one document, not one a line.
        twice: Keep segments that were there already.
        fresh: Begin again where a run with other settings was stopped.

    Returns the counts. Raises InputError for an input that cannot be read, settings that leave
    nothing, and when no segment is left.
    """
    out, counts = Path(out), Counter[str]()
    reading = {"encoding": encoding, "columns": split_commas(columns), "whole": whole}
    check_options(None, "skip", encoding)
    check_writable(out)
    check_no_input(out, input)
    paths, place = files_in(input, counts), out.with_name(f"{out.name}.parts")
    plan = make_plan(place, paths, None, work.part_size, kind_of=partial(_kind, whole=whole))
    inputs = [[str(path) for path in paths], plan.checksums]
    made_by = {"rules": RULES, "inputs": inputs, "size": work.part_size}
    with parts_folder(
        place,
        reading | asdict(rules) | made_by,
        what="parts of an output",
        pattern="part-*",
        fresh=fresh,
    ) as folder:
        todo: list[Part] = plan.save(place)
        write: Callable[..., Any] = partial(_write_part, rules=rules)
        each = folder.map(write, todo, lambda: reading, workers=work.processes, engine=work.engine)
        for part in each:
            counts.update(part)
        _join_parts(folder, todo, out, counts, twice)
    shutil.rmtree(place)
    _check_segments(input, counts)
    _print_counts(out, counts)
    return counts


def _join_parts(
    folder: PartsFolder, todo: Sequence[Part], out: Path, counts: Counter[str], twice: bool
) -> None:
    """Check the files of all parts, and write the output where they have a segment."""
    sums = folder.finish(todo, {})["sha256"]
    check_files(folder.out, sums, f"Remove {folder.out} and run the command again.")
    paths = [folder.out / part.name for part in todo]
    if any(path.stat().st_size for path in paths):
        with atomic_write(out, "wb") as handle:
            handle.writelines(_join_lines(paths, counts, twice))


def _check_segments(inputs: Sequence[Path], counts: Counter[str]) -> None:
    """Raise InputError where no segment is left."""
    if not counts["segments"]:
        raise InputError(
            f"{inputs[0]}: no segment is left of {counts['documents']:,} documents: {dict(counts)}."
            " Loosen --shortest or --chinese."
        )


def _print_counts(out: Path, counts: Counter[str]) -> None:
    print(
        f"{out}: {counts['segments']:,} segments, {counts['characters']:,} characters of"
        f" {counts['documents']:,} documents"
    )
    for what, count in counts.items():
        if count and what not in ("segments", "characters", "documents"):
            print(f"  {count:,} {what}")
