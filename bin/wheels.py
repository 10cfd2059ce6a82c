"""Print the pinned requirements of make gpu-check that this interpreter lacks, name==version, and
how to fetch their wheels.

Needs nothing but Python: it runs on the bare machine that is to be checked. Exits 0.
"""

import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: of the extra `dev`, what the tests marked gpu import
TOOLS = ("pytest", "pytest-xdist", "hypothesis", "httpx")


def name_of(requirement: str) -> str:
    """A requirement's distribution, as pip compares names: "PyYAML>=6" -> "pyyaml"."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def missing(installed: set[str]) -> list[str]:
    """name==version of each requirement whose distribution is not `installed`, in the order of
    pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = (
        line.split("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()
    )
    pins = {name_of(line): line for line in lines if "==" in line}
    wanted = [name_of(requirement) for requirement in (*project["dependencies"], *TOOLS)]
    return [pins.get(name, name) for name in wanted if name not in installed]


def main() -> None:
    lacking = missing(
        {
            name_of(found.metadata["Name"])
            for found in importlib.metadata.distributions()
            if found.metadata["Name"]
        }
    )
    print("\n".join(lacking) if lacking else "nothing is missing")
    if lacking:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        print(
            "\n# where there is a network, with the lines above in gpu-wheels.txt:\n# pip download"
            f" -r gpu-wheels.txt -c constraints.txt --only-binary=:all: --python-version {version}"
            " -d wheels\n# here: pip install --no-index --find-links wheels -r gpu-wheels.txt"
        )


if __name__ == "__main__":
    main()
