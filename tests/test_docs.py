"""The pages: they build without a warning, and the commands in them work.

Blocks that begin with ```sh are run, a page's in order, in a checkout of their own (```sh nightly
ones by `make test-slow`); so are the README's. In all other blocks every `make` command must name a
target and settings that its command has, every `python -m` an existing module, and every `kepl
graph` and `kepl data` a command and its options.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli import resolve
from app.verbs import VERBS
from core.call import COMMANDS, find_command, load_function, names_in
from core.settings import MAKE, options_of
from datamodules.tasks.linking import linking_tasks
from datamodules.tasks.prepare import all_tasks

ROOT = Path(__file__).parents[1]
MIRROR = ROOT.parent / "shared" / "data"
PAGES = sorted((ROOT / "docs").glob("*.md"))
README = ROOT / "README.md"
DOCUMENTS = [
    README,
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
MAKEFILE = (ROOT / "Makefile").read_text()
BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```", re.M | re.S)
NO_CODE = ("", "sh", "sh nightly")


def blocks(page: Path, kinds: tuple[str, ...]) -> list[str]:
    return [text for kind, text in BLOCK.findall(page.read_text()) if kind.strip() in kinds]


def commands() -> list[tuple[str, list[str]]]:
    """(page, words) of every command line in a page's blocks, comments cut off, lines that end in a
    backslash joined."""
    found = []
    for page in [*PAGES, README, ROOT / "CONTRIBUTING.md"]:
        for block in blocks(page, NO_CODE):
            for line in block.replace("\\\n", " ").splitlines():
                try:
                    words = shlex.split(re.sub("<[^<>]*>", "X", line), comments=True)
                except ValueError:
                    continue  # prose or a table in a block
                if (
                    words[:1] == ["make"]
                    or words[:2] == ["python", "-m"]
                    or words[:1] == ["bin/kepl"]
                ):
                    found.append((page.name, words))
    return found


def settings(verb: str, words: list[str]) -> set[str]:
    """The settings NAME= that a command accepts with these words."""
    command, _, extra = resolve(verb, words)
    return {
        "CONFIG",
        *(name.upper() for name in (*VERBS[verb].positions, *options_of(command.function, extra))),
    }


@pytest.mark.slow
def test_the_pages_build_without_a_warning(tmp_path: Path) -> None:
    """Links that lead nowhere, pages that no other leads to, and headings out of order are
    warnings."""
    words = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-b",
        "html",
        str(ROOT / "docs"),
        str(tmp_path),
    ]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(tmp_path.glob("*.html"))) >= len(PAGES)


def test_no_page_has_a_name_that_sphinx_uses_itself() -> None:
    """Sphinx would write its own page over it without a warning."""
    assert not {page.stem for page in PAGES} & {"search", "genindex", "modindex", "py-modindex"}


def test_the_readme_is_short_and_shows_a_picture() -> None:
    text = re.sub(r"<!--.*?-->", "", BLOCK.sub("", README.read_text()))
    assert len([word for word in text.split() if re.search(r"\w", word)]) <= 600
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    assert pictures and all((ROOT / picture).is_file() for picture in pictures)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and Sphinx make them."""
    titles = re.findall(r"^#+ (.+)$", BLOCK.sub("", page.read_text()), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    """Files and headings in this checkout; addresses elsewhere are not asked."""
    for target in re.findall(r"\]\(([^)\s]+)\)", BLOCK.sub("", page.read_text())):
        if re.match(r"[a-z]+:", target):
            assert target.startswith("https://"), target
            continue
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        assert file.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(file), f"{page.name}: {target}"


def test_every_target_has_its_line_among_the_commands() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*)%?(?:-[a-z]+)?:.*## ", MAKEFILE, re.M)) - {"help"}
    told = set(re.findall(r"`make ([a-z][a-z-]*)", (ROOT / "docs" / "commands.md").read_text()))
    assert targets == told


def test_every_make_command_names_what_the_makefile_has() -> None:
    found = [(page, words[1:]) for page, words in commands() if words[0] == "make"]
    assert len(found) > 60
    for page, words in found:
        targets = [w for w in words if "=" not in w and w != "..."]
        for target in targets:
            fits = re.search(rf"^{re.escape(target)}:", MAKEFILE, re.M) or re.match(
                "(pretrain|kg)-", target
            )
            assert fits, f"{page}: make {target}"
        for target in targets:
            verb = "pretrain" if target.startswith(("pretrain-", "kg-")) else target
            known = set(MAKE) | (
                settings(verb, words)
                if verb in VERBS
                else set(re.findall(r"[A-Z][A-Z0-9_]*", MAKEFILE))
            )
            for name in (w.partition("=")[0] for w in words if "=" in w):
                assert name in known, f"{page}: {name}= of make {' '.join(targets)}"
    papers = {p.parent.name for p in (ROOT / "experiments").glob("*/pipeline.yaml")}
    named = {
        w.removeprefix("pretrain-")
        for _, words in found
        for w in words
        if w.startswith("pretrain-")
    }
    assert named <= papers and len(named) >= 5


def test_every_module_that_is_named_exists() -> None:
    named = {(page, words[2]) for page, words in commands() if words[0] == "python"}
    prose = re.compile(r"`python -m ([a-z][\w.]*)")
    named |= {
        (page.name, m)
        for page in [*PAGES, README, ROOT / "CONTRIBUTING.md"]
        for m in prose.findall(page.read_text())
    }
    assert len(named) >= 2
    for page, module in sorted(named):
        assert importlib.util.find_spec(module) is not None, f"{page}: python -m {module}"


def test_every_command_of_a_group_that_is_named_exists() -> None:
    """`kepl graph merge`: its words are a command, and its options are the command's."""
    groups = {name.split()[0] for name in COMMANDS}
    named = {(page, tuple(words[1:])) for page, words in commands() if words[0] == "bin/kepl"}
    prose = re.compile(rf"`(?:bin/)?kepl ((?:{'|'.join(groups)}) [^`]+)`")
    for page in [*PAGES, README, ROOT / "CONTRIBUTING.md"]:
        named |= {(page.name, tuple(text.split())) for text in prose.findall(page.read_text())}
    named = {(page, words) for page, words in named if words[0] in groups}
    assert len(named) > 20
    tasks = {*all_tasks(), *linking_tasks(), "TASK"}
    for page, words in sorted(named):
        words = words[: words.index("&&")] if "&&" in words else words
        match = find_command(words)
        own_verb = words[1] in ("info", "TASK=...") or words[1] in tasks
        assert match or names_in(" ".join(words[:2])) or own_verb, f"{page}: kepl {words}"
        if match and not match[1].choices:
            options = options_of(load_function(match[1].function))
            for word in match[2]:
                option = word.removeprefix("--").partition("=")[0].replace("-", "_")
                known = option in (*options, "config", "help")
                assert known or not word.startswith("--"), f"{page}: kepl {' '.join(words)}: {word}"


def run_page(
    page: Path,
    kinds: tuple[str, ...],
    folder: Path,
    python: str = sys.executable,
    preparation: tuple[str, ...] = (),
) -> None:
    """The page's blocks of these kinds, in order, in a folder that looks like the checkout; stops
    at the first failure.

    preparation: commands that come before the page's own.
    """
    place = folder / "checkout"
    place.mkdir()
    for path in ROOT.iterdir():
        if path.name not in ("runs", ".git", ".venv", "bin") and not path.name.startswith("my_"):
            (place / path.name).symlink_to(path)
    shutil.copytree(ROOT / "bin", place / "bin")  # kepl finds its checkout behind links
    if python == sys.executable:  # a link to it alone would find none of its packages
        (place / ".venv").symlink_to(sys.prefix)
    else:
        (place / ".venv" / "bin").mkdir(parents=True)
        (place / ".venv" / "bin" / "python").symlink_to(python)  # what bin/kepl uses
        (place / ".venv" / ".installed-cpu").touch()  # else make installs everything there
    environment = os.environ | {
        "PATH": os.pathsep.join(
            [str(Path(python).parent), str(Path(sys.executable).parent), os.environ["PATH"]]
        ),
        "PYTHONPATH": str(place),
        "KEPL_RUNS": str(folder / "runs"),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }
    environment.pop("MLFLOW_TRACKING_URI", None)
    for block in (*preparation, *blocks(page, kinds)):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            cwd=place,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, (
            f"{page.name}:\n{block}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        )


def pages_with(kind: str) -> list[Path]:
    return [page for page in [README, *PAGES] if blocks(page, (kind,))]


def test_there_are_blocks_of_both_kinds() -> None:
    assert len(pages_with("sh")) >= 4 and pages_with("sh nightly")


@pytest.mark.parametrize("page", pages_with("sh"), ids=lambda page: page.stem)
def test_what_a_page_tells_to_type_works(page: Path, tmp_path: Path, fast_python: str) -> None:
    run_page(page, ("sh",), tmp_path, fast_python)


@pytest.mark.slow
@pytest.mark.parametrize("page", pages_with("sh nightly"), ids=lambda page: page.stem)
def test_the_long_commands_work(page: Path, tmp_path: Path) -> None:
    """After the others of the page, whose files they use. A task's files that are on disk are put
    where fetching would put them, so that the page works without a network, too."""
    tasks = re.findall(r"^make \w+ TASK=(\w+)", "\n".join(blocks(page, ("sh", "sh nightly"))), re.M)
    preparation = [
        f"make data TASK={task} MIRROR={shlex.quote(str(MIRROR))}"
        for task in sorted(set(tasks))
        if MIRROR.is_dir()
    ]
    run_page(page, ("sh", "sh nightly"), tmp_path, preparation=tuple(preparation))
