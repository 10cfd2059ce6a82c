"""A process that runs tests on request: it has imported the large libraries once, and each request is a fork of it.

python worker.py LIBRARY...    reads one JSON object a line, {"arguments": [...], "seconds": ...}, and answers each with a line
{"code": pytest's exit status or null past the limit, "output": the end of what pytest printed}. The tree under test is
the current folder; nothing of it is imported before the fork, so that every request reads the files as they are then.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path


def run(arguments: list[str], seconds: float) -> tuple[int | None, str]:
    """(pytest's exit status in a fork, None past `seconds`; the end of its output)."""
    with tempfile.TemporaryFile("w+b") as output:
        child = os.fork()
        if not child:
            code = 3
            try:
                os.setsid()  # so that what the tests start ends with them
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
                os.close(0)
                os.open(os.devnull, os.O_RDONLY)
                import pytest

                code = int(pytest.main(arguments))
                sys.stdout.flush()
            finally:
                os._exit(code)
        status = waited(child, seconds)
        output.seek(0)
        return status, output.read()[-4000:].decode(errors="replace")


def waited(child: int, seconds: float) -> int | None:
    """The exit status of `child` (negative: a signal), None when it was ended past `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def main() -> None:
    own = Path(__file__).parent.resolve()
    sys.path[:] = [os.getcwd(), *(p for p in sys.path if Path(p or ".").resolve() != own)]  # as `python -m pytest` has it
    for name in sys.argv[1:]:
        importlib.import_module(name)
    if hypothesis := sys.modules.get("hypothesis"):  # the same examples in every run, however slow the machine is
        hypothesis.settings.register_profile(
            "mutants", derandomize=True, database=None, deadline=None, suppress_health_check=list(hypothesis.HealthCheck),
            phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),  # an example that fails is enough, however large
        )  # fmt: skip
        hypothesis.settings.load_profile("mutants")
    for line in sys.stdin:
        asked = json.loads(line)
        code, output = run(asked["arguments"], asked["seconds"])
        print(json.dumps({"code": code, "output": output}), flush=True)


if __name__ == "__main__":
    main()
