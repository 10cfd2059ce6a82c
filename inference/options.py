"""Options of everything that links: one typed record for commands and for Python. Importing it
loads no model library."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypedDict

from core.choices import list_known
from core.executor import engine_of
from core.files import InputError
from core.reading import excerpt
from core.typed import check_fields
from kg.documents.formats import default_document
from kg.documents.mentions import Layout
from kg.graph import check_kinds
from kg.linking.normal import BEST, Level

LOG = logging.getLogger(__name__)
Backend = Literal["torch", "flat", "ivf", "ivf-sq8", "ivf-pq", "hnsw", "auto"]
#: the first token, the mean of all tokens, of all but the special ones; inference.sentence.pool
Pooling = Literal["cls", "mean", "text", "max", "last", "weighted", "sqrt"]


@dataclass(frozen=True, kw_only=True)
class LinkerOptions:
    """How the models of a chain find and rank candidates. An option that the model has no use
    for is refused (check_uses).

    Args:
        pooling: Vector of a name: of its first or last token, or a mean (max, weighted, sqrt) of
            all, or the mean of the text's tokens. Default: as the model's files say, else cls.
        similarity: Similarity of two vectors.
        max_length: Tokens of a name (default 25, or as the model's files say), or of a text around
            a mention (default 128).
        precision: Arithmetic of the model.
        backend: Search of the nearest names: exact (torch, flat), approximate, or auto, by their
            number. Default: torch.
        index: Folder that keeps the vectors of the dictionary's names. Default: one for each
            encoder and dictionary.
        knowledge: Whether an encoder that reads linked mentions gets them.
        beams: Names that a generator's search ranks (the paper: 5).
        finish: When a generator's search ends: best, or the rule of the released code.
        score: Score of a generated name. Default: name; with finish fairseq: mean.
        candidates: Names that a generator is restricted to: all, tfidf:50, or an encoder and how
            many, as sapbert:50.
        tokens: Padded tokens of text in a batch.
        by: A KeBioLM links by its entities, or by the nearest names.
        device: cpu or cuda.
    """

    pooling: Pooling | None = None
    similarity: Literal["cosine", "dot"] = "cosine"
    max_length: int | None = None
    precision: Literal["fp32", "bf16"] = "fp32"
    backend: Backend | None = None
    index: Path | None = None
    knowledge: bool = True
    beams: int = 5
    finish: Literal["best", "fairseq"] = "best"
    score: Literal["name", "mean", "sum"] | None = None
    candidates: str = "all"
    tokens: int = 8192
    by: Literal["entities", "names"] = "entities"
    device: str = "cpu"

    def __post_init__(self) -> None:
        check_fields(self)
        for name, least in (("max_length", 3), ("beams", 1), ("tokens", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise InputError(f"{name} {value}: expected a number of at least {least}")
        check_device(self.device)
        restricted_to(self.candidates)


#: {option: the models that use it}, for the error where none does
USERS = {
    "pooling": "an encoder of names (sapbert, minilm)",
    "similarity": "an encoder of names (sapbert, minilm)",
    "backend": "an encoder of names (sapbert, minilm)",
    "index": "an encoder of names (sapbert, minilm)",
    "max_length": "an encoder of names (sapbert, minilm) or of entities (kebiolm)",
    "knowledge": "an encoder that reads linked mentions (smedbert)",
    "beams": "a generator of names (genbioel)",
    "finish": "a generator of names (genbioel)",
    "score": "a generator of names (genbioel)",
    "candidates": "a generator of names (genbioel)",
    "tokens": "a generator of names (genbioel) or an encoder of entities (kebiolm)",
    "by": "an encoder of entities (kebiolm)",
    "precision": "a model",
    "device": "a model",
    "kinds": "a dictionary as detector",
}


class UnusedOptions(InputError):
    """Options were given that nothing has a use for. options: their names."""

    def __init__(self, options: Collection[str], what: str) -> None:
        self.options = frozenset(options)
        first = min(options)
        super().__init__(
            f"--{first.replace('_', '-')}: {what} has no use for it; it belongs to {USERS[first]}."
            " Leave it out, or choose another model."
        )


def check_uses(typed: Iterable[str], uses: frozenset[str], what: str) -> None:
    """Raise UnusedOptions for options that are given and that `what` has no use for."""
    unused = set(typed) - uses
    if unused:
        raise UnusedOptions(unused, what)


@dataclass(frozen=True, kw_only=True)
class Work:
    """Who does the work: names of a dictionary into vectors, files into records, in parts
    (core.executor).

    Args:
        workers: Processes, or Ray actors, that make parts; each uses one core.
        engine: Processes of this machine, or Ray. Default: ENGINE in the environment, or ray where
            it has RAY_ADDRESS.
    """

    workers: int = 1
    engine: Literal["processes", "ray"] | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.workers < 1:
            raise InputError(f"workers {self.workers}: expected at least 1")

    def settings(self, device: str) -> dict[str, Any]:
        """The executor's settings for work on `device`. Raises InputError for several processes on
        a GPU, which one must hold."""
        gpu = device.startswith("cuda")
        if gpu and self.workers > 1 and engine_of(self.engine) == "processes":
            raise InputError(
                f"--workers {self.workers}: a GPU is used by one process. Leave --workers out, or"
                " use --engine ray."
            )
        return {"workers": self.workers, "engine": self.engine, "gpus": 1 if gpu else 0}


InputFormat = Literal[
    "jsonl",
    "json",
    "text",
    "pubtator",
    "pubmed",
    "bioc",
    "biocjson",
    "xml",
    "table",
    "brat",
    "conll",
    "docbin",
    "pubannotation",
    "xmi",
]
OutputFormat = Literal["jsonl", "pubtator", "bioc", "biocjson", "csv", "tsv"]


@dataclass(frozen=True, kw_only=True)
class TextFiles:
    """How files of texts are read, and the file of results is written.

    Args:
        format: Format of --input. Default: by the file's name.
        to: Format of --output. Default: by the file's name.
        encoding: Encoding of text files.
        empty: What happens with documents that have no text.
        fresh: Start again instead of resuming.
        max_document: MiB that one document or line of --input has at most, decompressed.
        document: What a document of plain text is. Default: of a folder a file, of a single file a
            line; of a single file with blank lines it has to be said.
        id_field: Key of JSON, or column of a table, with ids. Default: id, _id or pmid.
        text_field: Key of JSON, or column of a table, with texts. Default: text (of a table also
            note, note_text).
    """

    format: InputFormat | None = None
    to: OutputFormat | None = None
    encoding: str = "utf-8"
    empty: Literal["error", "skip"] = "error"
    fresh: bool = False
    max_document: int = 16
    document: Literal["file", "paragraph", "line"] | None = None
    id_field: str | None = None
    text_field: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def settings(self, inputs: Sequence[str | Path] = ()) -> dict[str, Any]:
        """What decides which documents are read of `inputs`, as :func:`kg.documents.formats
        .documents` is given it. Raises InputError for a file that may hold one document or
        several."""
        roots = tuple(str(Path(path).resolve()) for path in inputs if Path(path).is_dir())
        document = self.document or default_document(inputs, self.format, self.empty, self.encoding)
        layout = Layout(document, self.id_field, self.text_field, roots)
        values = {"format": self.format, "encoding": self.encoding, "empty": self.empty}
        return values | {"layout": layout}


@dataclass(frozen=True, kw_only=True)
class Matching:
    """How names and texts are compared.

    Args:
        forms: How a text may differ from a name: exact, normal (characters, accents, punctuation)
            or inflected (plurals, too).
        kinds: Kinds of names that a dictionary detects (preferred, exact, synonym …). Default: all,
            but no related or broad name of one ordinary word.
    """

    forms: Level = BEST
    kinds: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        check_kinds(self.kinds)

    def settings(self) -> dict[str, Any]:
        """What decides which names are found."""
        return {
            "forms": self.forms,
            **({"kinds": sorted(check_kinds(self.kinds))} if self.kinds else {}),
        }


class Options(TypedDict, total=False):
    """:class:`LinkerOptions` as keyword arguments."""

    pooling: Literal["cls", "mean", "text"] | None
    similarity: Literal["cosine", "dot"]
    max_length: int | None
    precision: Literal["fp32", "bf16"]
    backend: Backend | None
    index: Path | None
    knowledge: bool
    beams: int
    finish: Literal["best", "fairseq"]
    score: Literal["name", "mean", "sum"] | None
    candidates: str
    tokens: int
    by: Literal["entities", "names"]
    device: str


def check_names(options: Mapping[str, Any]) -> None:
    """Raise TypeError for a keyword that is no option of :class:`LinkerOptions`."""
    names = [field.name for field in fields(LinkerOptions)]
    for name in options:
        if name not in names:
            raise TypeError(f"no option {name!r}; {list_known(name, names)}")


def restricted_to(candidates: str) -> tuple[str, int] | None:
    """(by, how many) of `candidates`: tfidf:50, sapbert:50; None of all. Raises InputError for
    others."""
    by, _, most = candidates.rpartition(":")
    if candidates == "all":
        return None
    if not by or re.fullmatch("[0-9]{1,9}", most) is None or not int(most):
        raise InputError(
            f"candidates {candidates!r}: expected all, tfidf:50, or an encoder and how many names,"
            " as sapbert:50"
        )
    return by, int(most)


def check_nil(nil: float | None) -> None:
    """Raise InputError for a least score that no score can be compared with."""
    if nil is not None and not math.isfinite(nil):
        raise InputError(f"nil {nil}: expected a number")


def checked_texts(texts: str | Iterable[str]) -> list[str]:
    """One text, or any iterable of texts (a generator, a pandas Series, a NumPy array), as a list.

    Raises TypeError, with the position, for what is no text.
    """
    if isinstance(texts, str):
        return [texts]
    if (
        isinstance(texts, (bytes, bytearray, Mapping))
        or hasattr(texts, "columns")
        or not isinstance(texts, Iterable)
    ):
        raise TypeError(
            f"texts: expected a string or an iterable of strings, got {type(texts).__name__}"
        )
    checked = []
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(
                f"texts: expected a string at position {number}, got {type(text).__name__}"
                f" ({excerpt(text)})"
            )
        checked.append(str(text))
    return checked


def check_device(device: str) -> None:
    """Raise InputError for what is no name of a device."""
    if re.fullmatch(r"cpu|cuda(:[0-9]{1,3})?", device) is None:
        raise InputError(f"device {device}: expected cpu, cuda, or cuda and a number, as cuda:1")


@lru_cache
def uses_bf16(precision: str, device: str) -> bool:
    """Whether a model computes in bfloat16. Warns, once, on a processor without instructions for
    it, where that is some six times slower than fp32."""
    if precision != "bf16":
        return False
    if device == "cpu":
        import torch

        if not torch.cpu._is_avx512_bf16_supported():
            LOG.warning(
                "--precision bf16: this processor has no bfloat16 instructions, so it is several"
                " times slower than fp32"
            )
    return True


def bfloat16(device: str, enabled: bool) -> AbstractContextManager[Any]:
    """Arithmetic of models in bfloat16 for a block, where it is `enabled`."""
    import torch

    return torch.autocast(device.partition(":")[0], torch.bfloat16, enabled=enabled)


def checked_device(device: str) -> str:
    """`device` as it is. Raises InputError for what is no device, and for a GPU that is not
    available."""
    check_device(device)
    if device.startswith("cuda"):
        import torch

        if not torch.cuda.is_available():
            raise InputError(f"device {device}: this machine has no GPU; use cpu")
    return device
