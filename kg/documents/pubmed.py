"""PubMed's XML: the title and abstract of each citation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from core.files import InputError
from kg.documents.mentions import BY_LINE, Document, Layout
from kg.documents.xml import Events, read

LABELS = "labels of the sections of abstracts"
OTHER_ABSTRACTS = "other abstracts (OtherAbstract)"
DELETED = "citations to delete (DeleteCitation)"


#: elements that may hold what is not used
COUNTED = frozenset(("AbstractText", "OtherAbstract", "PMID"))


class _PubMed(Events[Document]):
    """Collects PubMed articles from expat's events: the first PMID, ArticleTitle, and AbstractText
    of Abstract."""

    def __init__(self, path: Path, left_out: Counter[str]) -> None:
        super().__init__(path)
        self.left_out = left_out
        self.open: list[str] = []
        self.begun, self.inside = 0, False
        self.fields: dict[str, list[str]] = {}
        self.field: list[str] | None = None
        self.depth = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self.open.append(name)
        if name in COUNTED:
            self.count(name, attributes)
        if name in ("PubmedArticle", "PubmedBookArticle"):
            if self.inside:
                raise InputError(
                    f"{self.where}: a {name} inside another article. The file may be cut; fetch it"
                    " again."
                )
            self.inside, self.fields, self.begun = True, {}, self.line
        elif self.inside and self.field is None:
            parent = self.open[-2]
            wanted = (
                (name == "PMID" and parent in ("MedlineCitation", "BookDocument"))
                or name == "ArticleTitle"
                or (name == "AbstractText" and parent == "Abstract")
            )
            if wanted:
                # Sections of an abstract are joined by a space, like the words within one.
                self.field, self.depth = self.fields.setdefault(name, []), len(self.open)
                self.field.append(" ")

    def count(self, name: str, attributes: dict[str, str]) -> None:
        """Count what is not used: labels of an abstract's sections, other abstracts, citations to
        delete."""
        parent = self.open[-2] if len(self.open) > 1 else ""
        self.left_out[LABELS] += (
            name == "AbstractText" and parent == "Abstract" and "Label" in attributes
        )
        self.left_out[OTHER_ABSTRACTS] += name == "OtherAbstract"
        self.left_out[DELETED] += name == "PMID" and parent == "DeleteCitation"

    def characters(self, text: str) -> None:
        if self.field is not None:
            self.field.append(text)

    def end(self, name: str) -> None:
        if self.field is not None and len(self.open) == self.depth:
            self.field = None
        self.open.pop()
        if self.inside and name in ("PubmedArticle", "PubmedBookArticle"):
            self.inside = False
            pmid, title, abstract = (
                " ".join("".join(self.fields.get(key, ())).split())
                for key in ("PMID", "ArticleTitle", "AbstractText")
            )
            where = f"{self.path}:{self.begun}"
            if not pmid:
                raise InputError(f"{where}: this {name} has no PMID. Fetch the file again.")
            text = "\n".join(filter(None, (title, abstract)))
            self.ready.append(Document(pmid, text, (), where))


def pubmed_documents(
    path: Path,
    encoding: str = "utf-8",
    left_out: Counter[str] | None = None,
    used: bool = True,
    layout: Layout = BY_LINE,
) -> Iterator[Document]:
    """PubMed's baseline and update files: title, line end, sections of the abstract joined; inner
    tags are flattened.

    Memory stays that of a few articles. Raises InputError as :func:`kg.documents.xml.read` does.
    """
    return read(_PubMed(path, Counter() if left_out is None else left_out), encoding)
