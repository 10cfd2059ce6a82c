"""Print the requirements of pyproject.toml and of the extras given as arguments, one per line,
ready for pip."""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
wanted = list(project["dependencies"])
for extra in sys.argv[1:]:
    wanted += project["optional-dependencies"][extra]
print("\n".join(r.replace(" ", "") for r in wanted))
