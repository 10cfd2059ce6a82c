"""XML read event by event, in bounded memory, with what is dangerous in it refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar
from xml.parsers import expat

from core.files import InputError
from core.reading import largest_document, open_input, too_large

Made = TypeVar("Made")
BLOCK = 1 << 16
_PREFIX = re.compile(rb"<\x00?[^\s<>:/!?]{1,200}:")  # of an element; UTF-16 has zero bytes between


def local_name(name: str) -> str:
    """A name of XML without the prefix of its namespace."""
    return name.rpartition(":")[2]


class Events(Generic[Made]):
    """What is made of a file's elements; a format overrides `start`, `end` and `characters` and
    appends to `ready`.

    Names of elements and attributes come without the prefix of a namespace.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ready: list[Made] = []
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.characters
        self.parser.EntityDeclHandler = self._entity
        self.parser.SkippedEntityHandler = self._skip

    @property
    def line(self) -> int:
        return self.parser.CurrentLineNumber

    @property
    def where(self) -> str:
        return f"{self.path}:{self.line}"

    def _entity(self, name: str, *_: Any) -> None:
        # Nested entities grow a few lines into gigabytes, external ones read other files: no corpus
        # needs either.
        raise InputError(
            f"{self.where}: the file declares the XML entity {name!r}. Remove such declarations."
        )

    def _skip(self, name: str, _: bool) -> None:
        raise InputError(
            f"{self.where}: the XML entity &{name}; is not defined. Write the character itself."
        )

    def drop_prefixes(self) -> None:
        """Leave out the prefixes of namespaces from now on: few files have any, and asking each
        element takes long."""
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if attributes and any(":" in key for key in attributes):
            attributes = {local_name(key): value for key, value in attributes.items()}
        self.start(local_name(name), attributes)

    def _end(self, name: str) -> None:
        self.end(local_name(name))

    def start(self, name: str, attributes: dict[str, str]) -> None:
        raise NotImplementedError

    def end(self, name: str) -> None:
        raise NotImplementedError

    def characters(self, text: str) -> None:
        raise NotImplementedError


def read(events: Events[Made], encoding: str = "utf-8") -> Iterator[Made]:
    """What `events` makes of its file, as soon as it is made.

    A DOCTYPE is allowed; nothing is fetched. XML says its encoding itself: another `encoding` than
    utf-8 raises InputError, as do broken XML, a compressed file that is cut, entities that are
    declared or not defined, and more bytes for one of what is made than a document may have.
    """
    path = events.path
    if encoding.lower() not in ("utf-8", "utf8"):
        raise InputError(f"{path}: XML names its own encoding. Leave --encoding {encoding} out.")
    size = 0
    with open_input(path, lambda: events.where) as handle:
        try:
            first = True
            while block := handle.read(BLOCK):
                if first and _PREFIX.search(block):  # what has a prefix has it from the beginning
                    events.drop_prefixes()
                first = False
                events.parser.Parse(block, False)
                size = 0 if events.ready else size + len(block)
                if size > largest_document():
                    raise too_large(events.where, "a document")
                yield from events.ready
                events.ready.clear()
            events.parser.Parse(b"", True)
        except expat.ExpatError as error:
            raise InputError(
                f"{path}:{error.lineno}: broken XML ({expat.ErrorString(error.code)}). "
                "The file may be cut; fetch it again."
            ) from error
        except InputError:
            raise
        # of the encoding that the file names, or of its bytes in it
        except (LookupError, ValueError) as error:
            raise InputError(
                f"{events.where}: the XML's encoding cannot be read ({error}). Convert the file to"
                " UTF-8."
            ) from error


class _Root(Events[str]):
    def start(self, name: str, attributes: dict[str, str]) -> None:
        self.ready.append(name)

    def end(self, name: str) -> None:
        pass

    def characters(self, text: str) -> None:
        pass


def root_of(path: Path, encoding: str = "utf-8") -> str:
    """The name of a file's outermost element. Raises InputError as :func:`read` does."""
    root = next(read(_Root(path), encoding), None)
    if root is None:
        raise InputError(f"{path}: no XML element in it. The file may be cut; fetch it again.")
    return root
