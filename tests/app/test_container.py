"""The Dockerfile and the compose file: their commands exist and run; docker builds the image."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import yaml

from app.cli import VERBS, arguments
from core.commands import child_environment
from tests.fakes import graphs

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
SERVICE = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["kepl"]


def words_of(instruction: str) -> list[str]:
    found = re.search(rf"^{instruction} (\[.*\])$", DOCKERFILE, re.M)
    assert found
    words: list[str] = json.loads(found[1])
    return words


def test_the_commands_are_commands_of_this_checkout() -> None:
    assert words_of("ENTRYPOINT") == ["bin/kepl"] and (ROOT / "bin/kepl").is_file()
    for verb, *words in (words_of("CMD"), SERVICE["command"]):
        assert verb in VERBS
        arguments(verb, words)
    built = re.findall(r"^RUN bin/kepl (.*)$", DOCKERFILE, re.M)
    assert built == ["graph build hpo --out runs/data/demo-hpo"]
    assert re.findall(r"^RUN make (\w+)", DOCKERFILE, re.M) == ["setup"]
    assert "\nUSER kepl\n" in DOCKERFILE  # and not root
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".venv", "runs", ".git"} <= set(ignored)
    assert all(port.startswith("127.0.0.1:") for port in SERVICE["ports"])


def test_the_service_answers_as_its_command_starts_it(tmp_path: Path) -> None:
    graph = graphs.write(tmp_path / "graph", {"G:1": ["gout"]})
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    own = {"/graph": str(graph), "0.0.0.0": "127.0.0.1", "8000": str(port)}
    words = [own.get(word, word) for word in SERVICE["command"]]
    command = [sys.executable, "-P", "-m", "app.cli", *words]
    server = subprocess.Popen(command, cwd=ROOT, env=child_environment())
    check = re.search(r"r\.urlopen\('(\S+?)'", DOCKERFILE)
    assert check
    try:
        address = check[1].replace(":8000", f":{port}")
        until = time.monotonic() + 90  # its libraries are read first, beside other tests
        while True:
            try:
                answer = json.load(urllib.request.urlopen(address, timeout=4))
                break
            except OSError:
                assert server.poll() is None and time.monotonic() < until
                time.sleep(0.1)
        assert answer["status"] == "ok" and answer["entities"] == 1
    finally:
        server.terminate()
        server.wait(20)


def has_docker() -> bool:
    """Whether images can be built: the client alone builds none."""
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not has_docker(), reason="no docker daemon answers here")
def test_the_image_is_built_and_answers() -> None:
    subprocess.run(["docker", "build", "-t", "kepl-test", "."], cwd=ROOT, check=True)
    words = ["docker", "run", "--rm", "kepl-test", "tasks"]
    assert "NCBI" in subprocess.run(words, capture_output=True, text=True, check=True).stdout
