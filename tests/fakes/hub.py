"""A hub on 127.0.0.1: models that are public, private, gated, slow or cut, and what was asked."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

TOKEN = "hf_right"


class Hub:
    """Models by name; `asked` lists the paths of all requests.

    folders  {owner/name: folder of its files}
    ways     {owner/name: "private", "gated", "cut" or "slow"}
    """

    def __init__(self) -> None:
        self.folders: dict[str, Path] = {}
        self.ways: dict[str, str] = {}
        self.asked: list[str] = []
        self.created: list[tuple[str, bool]] = []  # name, whether it is private
        self.uploaded: dict[str, dict[str, bytes]] = {}  # {name: {file: content}}
        self.address = ""

    def commit(self, name: str) -> str:
        """A commit that changes with the files."""
        files = sorted(p for p in self.folders[name].rglob("*") if p.is_file())
        return hashlib.sha1(b"".join(p.read_bytes() for p in files)).hexdigest()


@contextmanager
def serve_hub() -> Iterator[Hub]:
    """A hub that answers as long as the block runs."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *words: Any) -> None: ...

        def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                cut = hub.ways.get(self.name()) == "cut" and len(body) > 2000
                self.wfile.write(body[: len(body) // 2] if cut else body)
                if cut:
                    self.close_connection = True

        def name(self) -> str:
            parts = self.path.partition("?")[0].strip("/").split("/")
            parts = parts[2:] if parts[:2] == ["api", "models"] else parts
            return "/".join(parts[:2])

        def refuses(self) -> bool:
            """Whether the request was answered by a refusal."""
            way = hub.ways.get(self.name(), "public")
            right = self.headers.get("Authorization") == f"Bearer {TOKEN}"
            if self.name() not in hub.folders or (way == "private" and not right):
                self.answer(404 if right else 401, X_Error_Code="RepoNotFound")
                return True
            if way == "gated" and not right and "/resolve/" in self.path:
                self.answer(403, X_Error_Code="GatedRepo")
                return True
            if way == "slow":
                time.sleep(0.3)
            return False

        def do_POST(self) -> None:
            """What an upload asks: a repository, how its files are sent, and the commit."""
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                self.answer(401)
                return
            path = self.path.partition("?")[0]
            found: dict[str, Any] = {"warnings": [], "errors": []}
            if path == "/api/repos/create":
                asked = json.loads(content)
                own = "/".join(filter(None, (asked.get("organization"), asked["name"])))
                private = asked.get("private") or asked.get("visibility") == "private"
                hub.created.append((own, bool(private)))
                found = {"url": f"{hub.address}/{own}"}
            elif "/preupload/" in path:
                files = json.loads(content)["files"]
                ways = [{"path": f["path"], "uploadMode": "regular"} for f in files]
                found = {"files": [way | {"shouldIgnore": False} for way in ways]}
            elif "/commit/" in path:
                stored = hub.uploaded.setdefault(self.name(), {})
                for line in content.splitlines():
                    row = json.loads(line)
                    if row["key"] == "file":
                        stored[row["value"]["path"]] = base64.b64decode(row["value"]["content"])
                address = f"{hub.address}/{self.name()}/commit/{'0' * 40}"
                found = {"commitUrl": address, "commitOid": "0" * 40, "success": True}
            self.answer(200, json.dumps(found).encode(), Content_Type="application/json")

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            hub.asked.append(self.path)
            if self.refuses():
                return
            name, folder = self.name(), hub.folders[self.name()]
            commit = hub.commit(name)
            files = sorted(p for p in folder.rglob("*") if p.is_file())
            path = self.path.partition("?")[0]
            if "/resolve/" in path:
                file = folder / path.split("/resolve/", 1)[1].split("/", 1)[1]
                if not file.is_file():
                    self.answer(404, X_Error_Code="EntryNotFound", X_Repo_Commit=commit)
                    return
                content = file.read_bytes()
                tag = hashlib.sha1(content).hexdigest()
                self.answer(200, content, ETag=f'"{tag}"', X_Repo_Commit=commit)
                return
            if "/tree/" in path:
                rows = [
                    {
                        "type": "file",
                        "path": p.relative_to(folder).as_posix(),
                        "size": p.stat().st_size,
                        "oid": hashlib.sha1(p.read_bytes()).hexdigest(),
                    }
                    for p in files
                ]
                self.answer(200, json.dumps(rows).encode(), Content_Type="application/json")
                return
            siblings = [{"rfilename": p.relative_to(folder).as_posix()} for p in files]
            about = {"id": name, "modelId": name, "sha": commit, "siblings": siblings, "tags": []}
            about["private"] = hub.ways.get(name) == "private"
            about["gated"] = "manual" if hub.ways.get(name) == "gated" else False
            self.answer(200, json.dumps(about).encode(), Content_Type="application/json")

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.address = f"http://127.0.0.1:{server.server_port}"
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
