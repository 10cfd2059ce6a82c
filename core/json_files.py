"""JSON: files of one value, lines, and lists of objects that are read one at a time.

:func:`json_lines` reads a value a line, :func:`json_records` a list of objects in a file of any
size, :func:`read_json` a whole file. What is no JSON is an InputError with its place.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from core.files import InputError, atomic_write
from core.reading import (
    UTF_16_MARKS,
    Span,
    check_encoding,
    excerpt,
    largest_document,
    lines,
    no_text,
    open_input,
    read_text,
    too_large,
)


def write_json(path: str | Path, value: Any) -> None:
    with atomic_write(path) as handle:
        json.dump(value, handle, indent=1, ensure_ascii=False, sort_keys=True)
        handle.write("\n")


def read_json(path: str | Path) -> Any:
    """The JSON value in `path`. Raises InputError when it is missing or broken."""
    return parse_json(read_text(path), str(path), "Delete the file and build it again.")


def read_object(path: str | Path) -> dict[str, Any]:
    """The JSON object in `path`. Raises InputError when it is missing, broken or no object."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise InputError(
            f"{path}: expected a JSON object, got {type(value).__name__}. Delete the file and build"
            " it again."
        )
    return value


# JSON

_HALF = re.compile(r"\\u[dD][89a-fA-F]")  # of a surrogate pair: JSON, but no text when it is alone
_BLANK = re.compile(r"[ \t\r\n]*")


def _check_text(value: Any, text: str, where: str) -> None:
    if _HALF.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"{where}: half a surrogate pair in the text ({error.reason}). Remove it."
            ) from error


def _json_error(error: Exception, where: str, place: str, advice: str) -> InputError:
    """The one error for JSON that Python cannot read: of its grammar, its depth, or the digits of a
    number."""
    if isinstance(error, json.JSONDecodeError):
        why = f"{error.msg.removesuffix(' at')} at {place}"
    else:
        why = (
            "nested too deeply"
            if isinstance(error, RecursionError)
            else "a number of too many digits"
        )
    return InputError(f"{where}: not valid JSON ({why}). {advice}")


def parse_json(text: str, where: str, advice: str = "The file may be cut; fetch it again.") -> Any:
    """The JSON value of `text`; `where` and `advice` begin and end the message of an InputError."""
    try:
        value = json.loads(text)
        _check_text(value, text, where)
    except (RecursionError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        line = getattr(error, "lineno", 1)
        at = f"{where}:{line}" if line > 1 else where
        raise _json_error(error, at, f"column {getattr(error, 'colno', 1)}", advice) from error
    return value


def json_lines(
    path: str | Path | Span,
    encoding: str = "utf-8",
    advice: str = "Write one object on each line; the file may be cut.",
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file and line, object) of JSON lines; blank ones hold none. Raises InputError for a line
    that is no object, or has no text that UTF-8 can hold."""
    for number, line in lines(path, encoding):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        record = parse_json(line, where, advice)
        if not isinstance(record, dict):
            raise InputError(
                f"{where}: expected a JSON object, got {type(record).__name__}. {advice}"
            )
        yield where, record


class _Values:
    """JSON values of a file, one after the other: as much of the text is in memory as the one that
    is read needs."""

    def __init__(self, handle: IO[bytes], path: str | Path, encoding: str) -> None:
        self.handle, self.path, self.encoding = handle, path, encoding
        self.decoder = codecs.getincrementaldecoder(encoding)()
        self.text, self.at, self.line, self.ended = "", 0, 1, False

    @property
    def where(self) -> str:
        return f"{self.path}:{self.line}"

    def _more(self) -> bool:
        """Read further, twice as much as is in memory. Whether there was anything."""
        if self.ended:
            return False
        self.text, self.at = self.text[self.at :], 0
        raw = self.handle.read(max(1 << 16, len(self.text)))
        self.ended = not raw
        if b"\0" in raw or (not self.text and raw.startswith(UTF_16_MARKS)):
            raise no_text(self.where, raw)
        try:
            self.text += self.decoder.decode(raw, final=self.ended)
        except UnicodeError as error:
            line = (
                self.line + self.text.count("\n") + raw[: getattr(error, "start", 0)].count(b"\n")
            )
            reason = getattr(error, "reason", error)
            raise InputError(
                f"{self.path}:{line}: not {self.encoding} text ({reason}). Convert the file to"
                " UTF-8."
            ) from error
        return True

    def move(self, to: int) -> None:
        self.line += self.text.count("\n", self.at, to)
        self.at = to

    def next(self) -> str:
        """The next character that is not blank, "" at the end of the file."""
        while True:
            self.move(_BLANK.match(self.text, self.at).end())  # type: ignore[union-attr]
            if self.at < len(self.text):
                return self.text[self.at]
            if not self._more():
                return ""

    def take(self, marks: str) -> str:
        """The next character, if it is one of `marks`; "" otherwise."""
        mark = self.next()
        if mark and mark in marks:
            self.at += 1
            return mark
        return ""

    def value(self) -> Any:
        """The next value. Raises InputError for broken JSON and for a value above the limit."""
        self.next()
        while True:
            try:
                value, end = json.JSONDecoder().raw_decode(self.text, self.at)
                if end - self.at > largest_document():
                    raise too_large(self.where, "a record")
                if end < len(self.text) or not self._more():  # a number may continue
                    _check_text(value, self.text[self.at : end], self.where)
                    self.move(end)
                    return value
            except (RecursionError, ValueError) as error:
                if isinstance(error, InputError):
                    raise
                unsure = isinstance(error, json.JSONDecodeError) and (
                    error.pos + 16 > len(self.text) or error.msg.startswith("Unterminated")
                )
                if unsure and len(self.text) - self.at > largest_document():
                    raise too_large(self.where, "a record") from error
                if not unsure or not self._more():
                    line = self.line + self.text.count(
                        "\n", self.at, getattr(error, "pos", self.at)
                    )
                    place = f"column {getattr(error, 'colno', 1)}"
                    raise _json_error(
                        error, f"{self.path}:{line}", place, "The file may be cut; fetch it again."
                    ) from error
            if len(self.text) - self.at > 2 * largest_document():
                raise too_large(self.where, "a record")


def json_records(
    path: str | Path, encoding: str = "utf-8", keys: Sequence[str] = ()
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(path:line it begins at, object) of a file that is a JSON list of objects or has one object
    after the other.

    keys: the file may also be an object that has the list under one of these keys; objects one
        after the other are refused.
    The file is read in the memory of its largest object. Raises InputError for anything else.
    """
    check_encoding(encoding)
    cut = "The file may be cut; fetch it again."
    with open_input(path) as handle:
        values = _Values(handle, path, encoding)
        if values.next() == "\ufeff":
            values.move(values.at + 1)
        inside = bool(keys) and values.take("{") != ""
        if inside and not _list_under(values, keys):
            raise InputError(
                f"{path}: expected a list of objects, or an object with one under"
                f" {' or '.join(keys)}."
            )
        listed = values.take("[") != ""
        if keys and not listed:
            raise InputError(
                f"{path}: expected a list of objects, or an object with one under"
                f" {' or '.join(keys)}."
            )
        done = False
        while mark := values.next():
            if listed and mark == "]":
                values.take("]")
                done = True
                break
            where = values.where
            value = values.value()
            if not isinstance(value, dict):
                raise InputError(f"{where}: expected a JSON object, got {type(value).__name__}.")
            yield where, value
            if listed:
                values.next()
                if values.take("]"):
                    done = True
                    break
                if not values.take(","):
                    raise InputError(f"{values.where}: expected a comma or the list's end. {cut}")
        if listed and not done:
            raise InputError(f"{values.where}: the list does not end. {cut}")
        if inside and values.take(","):
            _list_under(values, ())
        elif inside and not values.take("}"):
            raise InputError(f"{values.where}: the object does not end. {cut}")
        if listed and values.next():
            raise InputError(f"{values.where}: text after the end of the list. {cut}")


def _list_under(values: _Values, keys: Sequence[str]) -> bool:
    """Go to the value of the first key in `keys` of an object; False when the object has ended
    without one."""
    if values.take("}"):
        return False
    while True:
        where = values.where
        key = values.value()
        if not isinstance(key, str) or not values.take(":"):
            raise InputError(
                f"{where}: expected a key and a colon, got {excerpt(key)}. The file may be cut;"
                " fetch it again."
            )
        if key in keys:
            return True
        values.value()
        mark = values.take(",}")
        if not mark:
            raise InputError(
                f"{values.where}: the object does not end. The file may be cut; fetch it again."
            )
        if mark == "}":
            return False


def digest(value: Any) -> str:
    """Hex digest of a JSON value, whatever the order of its keys."""
    return hashlib.sha256(
        json.dumps(value, sort_keys=True, ensure_ascii=False).encode()
    ).hexdigest()
