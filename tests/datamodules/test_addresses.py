"""Addresses of sources.yaml: each names a file of its repository's tree at its commit.

The trees are asked for nightly, where there is a network.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections import defaultdict
from typing import NamedTuple
from urllib.parse import unquote

import pytest

from datamodules.sources.listing import sources

RAW = "https://raw.githubusercontent.com/"
TREES = "https://api.github.com/repos/{repository}/git/trees/{commit}?recursive=1"


class Address(NamedTuple):
    """A file of a repository at a commit."""

    repository: str
    commit: str
    path: str


def parse_address(url: str) -> Address:
    assert url.startswith(RAW), url
    owner, name, commit, path = unquote(url.removeprefix(RAW)).split("/", 3)
    return Address(f"{owner}/{name}", commit, path)


def list_addresses() -> list[Address]:
    files = (file for source in sources().values() for file in source.files)
    return sorted({parse_address(file.url) for file in files if file.url})


def missing_paths(tree: dict[str, object], wanted: list[str]) -> list[str]:
    """The wanted paths that a tree, as GitHub answers it, lacks. A tree that is cut has no say."""
    assert not tree.get("truncated"), "GitHub cut the tree"
    known = {entry["path"] for entry in tree["tree"] if entry["type"] == "blob"}  # type: ignore[attr-defined]
    return [path for path in wanted if path not in known]


def test_addresses_name_a_repository_a_commit_and_a_path() -> None:
    found = list_addresses()
    assert len(found) > 40 and all(len(one.commit) in (7, 40) for one in found)
    first = parse_address(f"{RAW}a/b/0123456/data/c%20d.txt")
    assert first == Address("a/b", "0123456", "data/c d.txt")


def test_a_path_that_a_tree_lacks_is_found() -> None:
    tree = {
        "truncated": False,
        "tree": [{"path": "data/a", "type": "blob"}, {"path": "data/b", "type": "tree"}],
    }
    assert missing_paths(tree, ["data/a", "data/b", "c"]) == ["data/b", "c"]
    with pytest.raises(AssertionError, match="cut"):
        missing_paths({"truncated": True, "tree": []}, [])


@pytest.mark.slow
def test_every_address_is_in_its_tree() -> None:
    wanted: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in list_addresses():
        wanted[one.repository, one.commit].append(one.path)
    missing = []
    for (repository, commit), paths in wanted.items():
        try:
            address = TREES.format(repository=repository, commit=commit)
            with urllib.request.urlopen(address, timeout=60) as answer:
                tree = json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code in (403, 429):
                pytest.skip("GitHub answers no more requests today")
            missing.append(f"{repository}@{commit}: {error}")
            continue
        except OSError:
            pytest.skip("no network")
        missing += [f"{repository}@{commit}: {path}" for path in missing_paths(tree, paths)]
    assert missing == []
