"""Commands in processes of their own, which nothing that ran before disturbs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from typing import Any

from core.commands import child_environment, python_command


def call_alone(
    name: str, arguments: Mapping[str, object], environment: Mapping[str, str] | None = None
) -> Any:
    """The JSON in the last line that a command prints, called in a new process.

    name: the command, or package.module:function.  environment: changes of it.
    Raises RuntimeError when it fails.
    """
    words = name.split()
    for option, value in arguments.items():
        words += [f"--{option}", str(value)]
    done = subprocess.run(
        python_command("-m", "core.call", *words),
        env=child_environment(environment),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(words)}: exit status {done.returncode}\n{done.stdout[-2000:]}"
            f"{done.stderr[-2000:]}"
        )
    return json.loads(done.stdout.splitlines()[-1])
