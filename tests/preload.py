"""Processes that start at once: a server has imported the large libraries, and every process is a
fork of it.

A cold start of a training imports for some eight CPU seconds, most of what a test of one takes. The
server imports nothing of this repository, so that every process reads its files as they are when it
starts.

    address = serve()                          a server, which ends when this process does
    start(address, [sys.executable, "-m", "experiments.run", ...])        much like subprocess.Popen
    executable(folder, address)                a file to take for sys.executable: what it is given,
                                               the server runs. It dies when it is killed, and so do
                                               they, and ends with their exit status

The fixture `preloaded` (tests/conftest.py) puts such a file into sys.executable.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[1]
INTERPRETER = sys.executable  # where the fixture has put another
#: what a server imports: large, and of no file of the tree
LIBRARIES = (
    "attr",
    "faiss",
    "hypothesis",
    "jsonargparse",
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
    "mlflow",
    "mlflow.store.tracking.sqlalchemy_workspace_store",
    "mlflow.tracing.processor.otel",
    "numpy",
    "omegaconf",
    "pandas",
    "pyarrow.parquet",
    "pykeen.training",
    "pytest",
    "pytorch_lightning.cli",
    "safetensors.torch",
    "scipy.sparse",
    "sklearn",
    "sqlalchemy.dialects.sqlite",
    "tokenizers",
    "torch",
    "torchcrf",
    "torchmetrics",
    "transformers.models.bart.modeling_bart",
    "transformers.models.bert.modeling_bert",
    "yaml",
)


class Process:
    """A process of a server, with what subprocess.Popen has of the same names; it leads a session
    of its own."""

    returncode: int | None = None

    def __init__(self, words: Sequence[str], connection: socket.socket, pid: int) -> None:
        self.args, self.pid, self._connection = list(words), pid, connection

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, negative for a signal. Raises subprocess.TimeoutExpired; the process
        continues."""
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(_line(self._connection))
            self._connection.close()
        return self.returncode

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def end_session(self) -> None:
        """kill -9 to the process and to what it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


def _line(connection: socket.socket) -> bytes:
    """The next line, byte by byte: another may follow at once."""
    found = b""
    while not found.endswith(b"\n"):
        if not (byte := connection.recv(1)):
            raise ConnectionError("the server of test processes has ended")
        found += byte
    return found


def serve(
    libraries: Sequence[str] = LIBRARIES, address: str | None = None, owner: int | None = None
) -> str:
    """The address of a server, started unless one listens there. It ends when the process `owner`
    does (default: this one)."""
    address = address or f"{tempfile.mkdtemp(prefix='kepl-server-')}/socket"
    # of several that ask at the same time, one starts it
    with open(f"{address}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(address):
            words = [sys.executable, __file__, address, str(owner or os.getpid()), *libraries]
            environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {
                # its own reserves a GiB, which a process with little memory cannot
                "ARROW_DEFAULT_MEMORY_POOL": "system"
            }
            process = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL)
            while not os.path.exists(address):  # it listens before it imports
                if process.poll() is not None:
                    raise RuntimeError(
                        f"the server of test processes ended with status {process.returncode}"
                    )
                time.sleep(0.01)
    return address


def start(
    address: str,
    words: Sequence[str],
    cwd: str | Path = ROOT,
    env: Mapping[str, str] | None = None,
    stdout: IO[Any] | None = None,
    stderr: IO[Any] | None = None,
    ends_with_asker: bool = False,
) -> Process:
    """A process of the server at `address`. Raises OSError when none listens there, ValueError for
    words it cannot run."""
    words = [str(word) for word in words]
    # -u: torchrun's, for its output; -P: its environment says so, too
    while words[1] in ("-u", "-P"):
        del words[1]
    if words[1] not in ("-m", "-c"):
        raise ValueError(f"{words}: expected -m or -c")
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    files = [0, stdout.fileno() if stdout else 1, stderr.fileno() if stderr else 2]
    socket.send_fds(connection, [b" "], files)
    asked = {
        "words": words,
        "cwd": str(cwd),
        "env": dict(os.environ if env is None else env),
        "ends_with_asker": ends_with_asker,
    }
    connection.sendall(json.dumps(asked).encode() + b"\n")
    return Process(words, connection, int(_line(connection)))


def executable(folder: Path, address: str, known_as: str | None = None) -> str:
    """A file that runs what it is given as the interpreter would, by the server; words it cannot
    run, the interpreter.

    known_as: what is sys.executable to those processes, and so what they start others with; else
        the file itself
    """
    file = folder / "python"
    file.write_text(
        f"#!{sys.executable} -IS\nimport sys\nsys.path.insert(0,"
        f" {str(Path(__file__).parent)!r})\nimport"
        f" preload\npreload.stand_in({known_as or str(file)!r}, {sys.executable!r}, {address!r})\n"
    )
    file.chmod(0o755)
    return str(file)


def stand_in(own: str, interpreter: str, address: str) -> None:
    """Be a process of the server: its streams, its signals, its end."""
    words = sys.argv[1:]
    try:
        process = start(address, [own, *words], cwd=os.getcwd(), ends_with_asker=True)
    except (OSError, ValueError, IndexError):
        os.execv(interpreter, [interpreter, *words])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, lambda number, _: os.kill(process.pid, number))
    code = process.wait()
    if code < 0:
        (
            signal.signal(-code, signal.SIG_DFL)
            if -code
            not in (
                signal.SIGKILL,
                signal.SIGSTOP,
            )
            else None
        )
        os.kill(os.getpid(), -code)
    sys.exit(code)


def main() -> None:
    """The server: answer while the owner lives. A fork of it returns from `_receive_request`, and
    becomes what was asked."""
    address, owner, *libraries = sys.argv[1:]
    own = str(Path(__file__).parent.resolve())
    sys.path[:] = [p for p in sys.path if str(Path(p or ".").resolve()) != own]
    listener = socket.socket(socket.AF_UNIX)
    # who sees the address can connect: it listens before the address exists
    listener.bind(f"{address}.new")
    listener.listen(64)
    os.rename(f"{address}.new", address)
    for name in libraries:
        importlib.import_module(name)
    # what the first use of MLflow's store does once in every process
    if "sqlalchemy" in sys.modules:
        importlib.import_module("sqlalchemy.orm").configure_mappers()
    gc.collect()
    gc.freeze()  # a fork need not copy what its collector would touch
    if asked := _receive_request(listener, int(owner)):
        _end(_status(asked))


def _receive_request(listener: socket.socket, owner: int) -> dict[str, Any] | None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # those that watch are nobody's to wait for
    while os.path.exists(f"/proc/{owner}") if os.path.exists("/proc/self") else os.getppid() != 1:
        if not select.select([listener], [], [], 1)[0]:
            continue
        connection, _ = listener.accept()
        if os.fork():
            connection.close()
            continue
        listener.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _, files, _, _ = socket.recv_fds(connection, 1, 3)
        asked: dict[str, Any] = json.loads(connection.makefile().readline())
        if child := os.fork():
            for file in files:
                os.close(file)
            _watch(child, connection, asked["ends_with_asker"])
        connection.close()
        os.setsid()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        return asked
    return None


def _watch(child: int, connection: socket.socket, ends_with_asker: bool) -> None:
    """Tell the asker of the child's start and end, and kill it when the asker is gone; does not
    return."""
    with contextlib.suppress(OSError):
        connection.sendall(f"{child}\n".encode())
    ends: list[Any] = [os.pidfd_open(child), connection]
    if ends_with_asker and connection in select.select(ends, [], [])[0]:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(OSError):
        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _status(asked: dict[str, Any]) -> int:
    """The exit status of what was asked."""
    try:
        _become(asked)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  reported as the interpreter reports it
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _end(status: int) -> None:
    """End as the interpreter does, but for taking down its 5,000 modules one by one: half a
    second."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def _become(asked: dict[str, Any]) -> None:
    """Run what `asked` says as `python -m` or `python -c` would, and end as it ends."""
    import runpy
    import types

    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    sys.executable, kind, what, *arguments = asked["words"]
    places = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    if not os.environ.get("PYTHONSAFEPATH"):
        places.insert(0, os.getcwd() if kind == "-m" else "")
    sys.path[:0] = places
    sys.argv[:] = [kind, *arguments]
    # as the interpreter has it
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    tempfile.tempdir = None  # TMPDIR may be another
    if "lightning_utilities" in sys.modules:  # read from the environment at import
        from lightning_utilities.core.rank_zero import rank_zero_only

        rank_zero_only.rank = int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", 0)))  # type: ignore[attr-defined]
    if first := os.environ.get("KEPL_TESTS_FIRST"):  # what every process of a run imports first
        importlib.import_module(first)
    if kind == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        program = types.ModuleType("__main__")
        sys.modules["__main__"] = program
        exec(compile(what, "<string>", "exec"), program.__dict__)


if __name__ == "__main__":
    main()
