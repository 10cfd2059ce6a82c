"""The words that the code and the documents do not use: readers of the field know the others.

Identifiers, comments, docstrings, messages, settings and documents are read; an identifier's
underscores are blanks.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = (
    "app",
    "bin",
    "benchmarks",
    "core",
    "datamodules",
    "docs",
    "experiments",
    "inference",
    "kg",
    "models",
    "tests",
)
ENDINGS = (".py", ".yaml", ".md", ".js", ".html", ".css", ".toml")

#: {what is not written: (what is written instead)}
TERMS = {
    r"(?<!math\.)(?<!torch\.)(?<!np\.)\bfloors?\b": "baseline",
    r"\bcommonest answers?\b": "majority-class baseline",
    r"\bstart encoders?\b|\bcarr(y|ied|ies) on\b": "initial checkpoint; continued pre-training",
    r"\barms?\b": "variant; ablation",
    r"\bstamp(s|ed)?\b": "evaluation protocol",
    r"\bheld to (it|its|the)\b|\b(files'|file's) sums?\b|\bits sum (is|was|not)\b": (
        "checksum; verified against it"
    ),
    r"\bat hand\b|\bthat (is|are) there\b": "available; existing",
    r"\bthe (long |same )?road\b": "the pipeline",
    r"\bgo(es)? on\b|\btaken up again\b": "resumes; continues",
    r"\btold (apart|from)\b|\bnot told\b": "significant difference; distinguished",
    r"\bahead of\b|\blevel with\b": "higher, lower, no significant difference",
    r"\bheld still\b": "frozen",
    r"\bread once\b|\btouched once\b": "evaluated once",
    r"\bshares? the hit\b": "ties are split",
    r"\bmade[- ]up\b": "synthetic",
    r"\bseconds of the processor\b|\bbusy core\b": "CPU seconds",
    r"[:;,.] wanted (a|an|one|the|at)\b|\bmend\b": "expected X, got Y; Fix",
    r"\b(blanks|spaces) (are )?evened out\b": "whitespace normalised",
    r"\bno fault of\b": "internal error",
    # "stands for" and "stands in for" are ordinary words for what represents or replaces something
    r"\bstands? (in(?! for\b)|on|at|beside|under|before|behind|between|around|among|inside|within|alone|apart|near|with)\b": (  # noqa: E501
        "is in, is at, is beside"
    ),
    r"\b(lie|lies) (in|on|at|under|below|beside|between|behind|outside|within|among)\b": (
        "is in, is below"
    ),
}
#: names of functions that say nothing about what they do
BARE = {
    "told",
    "asked",
    "found",
    "made",
    "shown",
    "said",
    "kept",
    "known",
    "given",
    "held",
    "beside",
    "of",
}
UNCLEAR = re.compile(r"_*(of|told|asked|beside)_\w+|\w+_(told|asked|beside)")
#: {file: {word: why it stays}}
EXCEPTIONS = {
    "core/settings.py": {"arms": "the old name of a setting, which the error about it has to know"},
    "tests/app/test_cli.py": {"arms": "the same"},
    "benchmarks/papers/embert/sentences.py": {"stands in": "a key in stored results"},
    "datamodules/tasks/__init__.py": {"stand in": "a key in the manifests of prepared tasks"},
    "tests/datamodules/test_tasks.py": {"stand in": "the same"},
    "tests/preload.py": {"stand in": "the verb: a function that substitutes the interpreter"},
    "experiments/smedbert/pretrain_every.yaml": {
        "stands apart": "a value in the configs of stored runs"
    },
    "experiments/smedbert/pretrain_infused.yaml": {"stands apart": "the same"},
    "experiments/smedbert/small.yaml": {"stand apart": "the same"},
}
PLACES = (r"\bstands? ", r"\b(lie|lies) ")


def files() -> list[Path]:
    found = [
        ROOT / name
        for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml")
    ]
    for room in ROOMS:
        found += [
            p
            for p in sorted((ROOT / room).rglob("*"))
            if p.suffix in ENDINGS and "_build" not in p.parts
        ]
    return [p for p in found if p != Path(__file__)]


def uses(text: str, term: str) -> list[tuple[int, str]]:
    """(line, the word) of every use of a term."""
    text = re.sub(r"(?<=[A-Za-z])_(?=[A-Za-z])", " ", text)
    return [
        (text.count("\n", 0, m.start()) + 1, m[0].lower()) for m in re.finditer(term, text, re.I)
    ]


@pytest.mark.parametrize("term", TERMS)
def test_a_term_is_not_used(term: str) -> None:
    found = []
    for file in files():
        name = str(file.relative_to(ROOT))
        allowed = EXCEPTIONS.get(name, {})
        found += [
            f"{name}:{line}: {word!r}"
            for line, word in uses(file.read_text(), term)
            if word not in allowed
        ]
    assert not found, f"write {TERMS[term]!r}:\n" + "\n".join(found)


def test_every_exception_is_needed() -> None:
    for name, words in EXCEPTIONS.items():
        text = (ROOT / name).read_text()
        for word in words:
            assert any(word == used for term in TERMS for _, used in uses(text, term)), (
                f"{name}: {word}"
            )


def unclear(text: str) -> list[tuple[int, str]]:
    """(line, name) of every function or method that is not named by a verb and its object."""
    return [
        (node.lineno, node.name)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if node.name.strip("_") in BARE or UNCLEAR.fullmatch(node.name)
    ]


def test_functions_are_named_by_a_verb_and_its_object() -> None:
    found = []
    for file in files():
        if file.suffix == ".py":
            name = str(file.relative_to(ROOT))
            found += [f"{name}:{line}: {word}" for line, word in unclear(file.read_text())]
    assert not found, (
        "write a verb and its object, format_report() or select_pairs():\n" + "\n".join(found)
    )


#: names that say nothing about what a variable holds
EMPTY = BARE | {"own", "one", "there", "every", "alone"}
#: files whose variables are not checked: tests, and the equations of losses as they were reviewed
UNCHECKED = ("docs/", "tests/", "models/embert.py", "models/losses.py")
#: {file: parameters that are settings of a command, OF=diagnosis}
SETTINGS = {
    "benchmarks/papers/genbioel/__init__.py": {"of"},
    "benchmarks/papers/smedbert/__init__.py": {"of"},
}


def empty_variables(text: str) -> list[tuple[int, str]]:
    """(line, name) of every variable and parameter of a function that is named by no noun."""
    lines = set()
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.arg) and node.arg in EMPTY:
                    lines.add((node.lineno, node.arg))
                elif (
                    isinstance(node, ast.Name)
                    and isinstance(node.ctx, ast.Store)
                    and node.id in EMPTY
                ):
                    lines.add((node.lineno, node.id))
    return sorted(lines)


def test_variables_are_nouns() -> None:
    found = []
    for file in files():
        name = str(file.relative_to(ROOT))
        if file.suffix == ".py" and not name.startswith(UNCHECKED):
            settings = SETTINGS.get(name, set())
            found += [
                f"{name}:{line}: {word}"
                for line, word in empty_variables(file.read_text())
                if word not in settings
            ]
    assert not found, "name what the variable holds:\n" + "\n".join(found)


def test_empty_variables_are_found() -> None:
    text = "def f(given):\n    own = 1\n    return [one for one in given]\nknown = 2\n"
    assert empty_variables(text) == [(1, "given"), (2, "own"), (3, "one")]


#: single words that end in -ed and are verbs or nouns
VERBS_IN_ED = frozenset({"embed", "feed", "pubmed", "seed", "speed"})


def participles(text: str) -> list[tuple[int, str]]:
    """(line, name) of every function or method that is named by a bare participle, `linked` for
    `link`; properties are values, and may be."""
    return [
        (node.lineno, node.name)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if re.fullmatch(r"_*([a-z]+ed|written|drawn|chosen)", node.name)
        if node.name.strip("_") not in VERBS_IN_ED
        if not any(ast.unparse(d) == "property" for d in node.decorator_list)
    ]


def test_functions_are_not_named_by_participles() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}: {name}"
        for file in files()
        if file.suffix == ".py" and file.relative_to(ROOT).parts[0] != "tests"
        for line, name in participles(file.read_text())
    ]
    assert not found, "a function that does something begins with a verb:\n" + "\n".join(found)


def test_participles_are_found() -> None:
    text = (
        "def linked(): ...\ndef _drawn(): ...\ndef embed(): ...\ndef link_all(): ...\n"
        "class A:\n    @property\n    def shared(self): ...\n    def named(self): ...\n"
    )
    assert [name for _, name in participles(text)] == ["linked", "_drawn", "named"]


def test_unclear_names_are_found() -> None:
    names = (
        "told",
        "_kept",
        "of",
        "of_graph",
        "is_told",
        "beside_similar",
        "format_told_rows",
        "host_of",
        "known_forms",
    )
    text = (
        "\n".join(f"def {name}(): ..." for name in names)
        + "\nclass A:\n    async def asked(self): ...\nmade = 1\n"
    )
    assert [word for _, word in unclear(text)] == [
        "told",
        "_kept",
        "of",
        "of_graph",
        "is_told",
        "beside_similar",
        "asked",
    ]


def test_uses_are_found_in_identifiers_and_prose() -> None:
    assert len(files()) > 500
    assert uses("def made_up(x):\n    pass\n# Made-up names", r"\bmade[- ]up\b") == [
        (1, "made up"),
        (3, "made-up"),
    ]
    places = [t for t in TERMS if t.startswith(PLACES)]
    text = "It stands in A, lies below B, stands in for C and for D: stand-ins."
    assert [[word for _, word in uses(text, t)] for t in places] == [["stands in"], ["lies below"]]
    assert [t for t in TERMS if uses("a float, armed, math.floor(x), stamped", t)] == [
        r"\bstamp(s|ed)?\b"
    ]


def test_documents_do_not_compare_with_behind() -> None:
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        if page.name != "entities.md":  # a value in a table of cut points
            assert not uses(page.read_text(), r"\bbehind\b"), page.name
