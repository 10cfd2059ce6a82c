"""The rules of the house that no single room can check."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import tomllib
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest
import yaml

from core.settings import MAKE

ROOT = Path(__file__).parents[1]
ROOMS = ("core", "kg", "datamodules", "models", "experiments", "inference", "benchmarks", "app")
SOURCES = sorted(p for room in (*ROOMS, "tests") for p in (ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_are_this_checkouts(room: str) -> None:
    """scispaCy's pysbd installs a top-level `benchmarks`; ours must come first."""
    module = importlib.import_module(room)
    assert module.__file__ is not None and Path(module.__file__).is_relative_to(ROOT)


def test_nothing_that_executes_code_is_loaded() -> None:
    assert len(SOURCES) > 40
    bad = re.compile(
        r"pickle\.loads?\(|joblib\.load|yaml\.load\(|trust_remote_code=True|weights_only=False|(?<![\w.])(eval|exec)\("
    )
    found = [
        f"{p.relative_to(ROOT)}: {m.group()}"
        for p in SOURCES
        # which replaces the interpreter, and runs its -c
        if p not in (Path(__file__), ROOT / "tests" / "preload.py")
        for m in bad.finditer(p.read_text())
    ]
    assert found == []
    for path in SOURCES:
        for match in re.finditer(r"torch\.load\([^)]*\)", path.read_text()):
            assert "weights_only=True" in match.group() or path == Path(__file__), (
                f"{path}: {match.group()}"
            )


def test_every_test_folder_is_a_package() -> None:
    folders = {p.parent for p in (ROOT / "tests").rglob("test_*.py")}
    assert len(folders) > 4 and all((f / "__init__.py").is_file() for f in folders)


def test_no_two_files_of_a_room_have_one_name() -> None:
    """A file is found by its name; what a convention names (a package's own files, a paper's
    `released`) is in several places."""
    shared = ("__init__", "__main__", "released")
    for room in ROOMS:
        names = Counter(path.stem for path in (ROOT / room).rglob("*.py"))
        assert [n for n, count in names.items() if count > 1 and n not in shared] == [], room


def classes(folder: str) -> tuple[str, str]:
    """class_path of model and data in experiments/<folder>/pretrain.yaml."""
    config = yaml.safe_load((ROOT / "experiments" / folder / "pretrain.yaml").read_text())
    return config["model"]["class_path"], config["data"]["class_path"]


def pipelines() -> tuple[list[str], list[str]]:
    """(papers, initial checkpoints): what has a pipeline. An initial checkpoint trains nothing but
    the general masked LM."""
    every = [p.parent.name for p in (ROOT / "experiments").glob("*/pipeline.yaml")]
    start = [
        name for name in every if classes(name) == ("models.mlm.MLM", "datamodules.mlm.MLMData")
    ]
    return [name for name in every if name not in start], start


def test_a_initial_checkpoint_uses_tested_classes() -> None:
    assert pipelines()[1]
    for name in pipelines()[1]:
        for class_path in classes(name):
            module, _, leaf = class_path.rpartition(".")
            assert hasattr(importlib.import_module(module), leaf)
            room, file = module.split(".")
            assert (ROOT / "tests" / room / f"test_{file}.py").is_file()
        assert (ROOT / "experiments" / name / "small.yaml").is_file()


def test_a_paper_has_its_rooms() -> None:
    papers = pipelines()[0]
    assert papers
    for paper in papers:
        for place in (
            f"models/{paper}",
            f"datamodules/{paper}",
            f"tests/models/test_{paper}",
            f"tests/datamodules/test_{paper}",
        ):
            assert (ROOT / f"{place}.py").is_file() or (ROOT / place).is_dir(), place
        assert (ROOT / "experiments" / paper / "pretrain.yaml").is_file()
        contract = (ROOT / "pyproject.toml").read_text()
        assert re.search(rf'"[^"]*\b{paper}\b[^"]*"', contract), (
            f"{paper} is missing in the import contract"
        )


def test_a_sixth_paper_needs_no_edit_of_shared_code() -> None:
    """No shared file names a paper: only the paper's own files, the import contract and the README
    do."""
    papers = pipelines()[0]
    shared = [
        ROOT / "Makefile",
        *(ROOT / "kg").rglob("*.py"),
        *(ROOT / "experiments").glob("*.py"),
        *(ROOT / "core").rglob("*.py"),
        *(
            p
            for room in ("models", "datamodules")
            for p in (ROOT / room).glob("*.py")
            if p.stem not in papers
        ),
    ]
    for path in shared:
        code = re.sub(r'"""(?:.|\n)*?"""|#.*', "", path.read_text())
        assert not [p for p in papers if re.search(rf"\b{p}\b", code)], path


def test_every_config_says_where_its_numbers_come_from() -> None:
    configs = sorted((ROOT / "experiments").glob("*/pretrain*.yaml")) + sorted(
        (ROOT / "experiments" / "kg").glob("trans*.yaml")
    )
    assert configs
    for path in configs:
        text = path.read_text()
        assert text.startswith("#"), f"{path}: the first line says what runs it"
        assert yaml.safe_load(text).get("paper"), f"{path}: no paper section"


def test_make_lists_every_target_and_each_sets_up() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^([a-z][a-z%-]*):(.*)$", makefile, re.M)
    listed = subprocess.run(
        ["make", "-s", "-C", str(ROOT)], capture_output=True, text=True, check=True
    ).stdout
    assert len(targets) > 8
    for name, rest in targets:
        assert f"  {name} " in listed, name
        if name == "gpu-check":  # a bare machine has nothing to build .venv with
            assert "INSTALLED" not in rest
        elif name not in ("help", "check"):
            assert "$(INSTALLED)" in rest, f"{name} does not set up .venv"


def test_a_setting_of_the_set_up_is_none_of_a_command() -> None:
    """make pretrain-kebiolm SCISPACY=0 sets up, and does not hand the word on."""
    makefile = (ROOT / "Makefile").read_text()
    (about,) = re.findall(r"^setup:.*##.*\((.*)\)$", makefile, re.M)
    named = set(re.findall(r"([A-Z_]+)=", about))
    assert {"ACCEL", "SCISPACY", "PYTHON"} <= named <= set(MAKE)


def test_constraints_pin_what_is_required() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = {
        re.sub(r"[-_.]+", "-", line.split("==")[0]).lower()
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    wanted = project["dependencies"] + [
        r for extra in project["optional-dependencies"].values() for r in extra
    ]
    names = {re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~; ]", r)[0]).lower() for r in wanted}
    assert names <= pins, names - pins
    assert "lightning" not in pins and "hydra-core" not in pins


def test_ci_runs_the_commands_of_the_readme() -> None:
    assert (
        "make check" in (ROOT / ".ci" / "run").read_text()
        and "make check" in (ROOT / "README.md").read_text()
    )


def test_no_setting_of_a_command_is_a_variable_of_the_makefiles_own() -> None:
    """Else make would read it as its own: as make table got RUN= once."""
    from app.cli import load_verb
    from app.verbs import VERBS
    from core.settings import MAKE, options_of

    own = set(re.findall(r"^([A-Z_]+) *:=", (ROOT / "Makefile").read_text(), re.M))
    taken = {option.upper() for name in VERBS for option in options_of(load_verb(name))}
    assert {"VENV", "INSTALLED"} <= own and {"RUN", "MIRROR"} <= taken
    assert not taken & own and not taken & (set(MAKE) - {"PORT"})


DOTTED = re.compile(r"\b(" + "|".join(ROOMS) + r")\.[a-z_]+[\w.]*")


def test_what_a_yaml_names_is_of_its_own_room_or_a_lower_one() -> None:
    """A dotted name in a configuration is an import: it must follow the layers, too."""
    files = [p for room in ROOMS for p in (ROOT / room).rglob("*.yaml") if "/runs/" not in str(p)]
    assert len(files) > 90
    found = 0
    for file in files:
        room = file.relative_to(ROOT).parts[0]
        for line in file.read_text().splitlines():
            for match in DOTTED.finditer(re.sub(r"(^|\s)#.*", "", line)):
                found += 1
                assert ROOMS.index(match[1]) <= ROOMS.index(room), (
                    f"{file.relative_to(ROOT)}: {match[0]}"
                )
    assert found > 100


def test_what_a_room_starts_by_name_is_no_higher_room() -> None:
    """`python -m room.file` and "room.file" in code are imports, too."""
    named = re.compile(r'"-m", "(\w+)\.|"(\w+)\.[a-z_.]+", "--')
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            for match in named.finditer(path.read_text()):
                other = match[1] or match[2]
                assert other not in ROOMS or ROOMS.index(other) <= ROOMS.index(room), (
                    f"{path}: {match[0]}"
                )


def test_no_room_has_an_import_cycle() -> None:
    """Files import each other in one direction, lazy imports included: the graph that import-linter
    builds has no circle."""
    graph = grimp.build_graph(*ROOMS, cache_dir=None)
    arrows = {
        m: {o for o in graph.find_modules_directly_imported_by(m) if o in graph.modules}
        for m in graph.modules
    }
    order = TopologicalSorter(arrows)
    try:
        order.prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(error.args[1])}")
    assert len(arrows) > 180


def test_settings_are_typed_below_the_command_line() -> None:
    """Texts by name are what files and vocabularies hold; settings are typed parameters."""
    bad = re.compile(r"\b(given|settings|options|words)\w*: (Mapping|dict)\[str, str\]")
    files = [p for room in ROOMS for p in (ROOT / room).rglob("*.py")]
    assert [
        f"{p.relative_to(ROOT)}: {m[0]}" for p in files for m in bad.finditer(p.read_text())
    ] == []


def list_names(tree: ast.Module) -> set[str]:
    """What a module defines, imports or assigns, attributes of objects among it."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.ClassDef(name=name) | ast.alias(asname=None, name=name):
                found.add(name.split(".")[0])
            case ast.alias(asname=str(name)):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                found.add(name)
    return found


def test_what_docstrings_refer_to_exists() -> None:
    """:func:`…` names what the module has, or a module and what that has."""
    texts = {
        ".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p.read_text()
        for p in SOURCES
    }
    names = {module: list_names(ast.parse(text)) for module, text in texts.items()}
    inherited = {("models.crf", "decode")}  # of pytorch-crf
    missing, count = [], 0
    for module, text in texts.items():
        for target in re.findall(r":(?:func|meth|class):`~?([\w.]+)`", text):
            parts, count = target.split("."), count + 1
            places = [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
            place = next((name for name in places if name in names), "")
            rest = target.removeprefix(place).strip(".").split(".") if place else parts
            known = names[place or module]
            of_this_house = place or len(parts) == 1 or parts[0] in known
            if of_this_house and not known.issuperset(rest) and (module, target) not in inherited:
                missing.append(f"{module}: {target}")
    assert count > 200 and not missing
