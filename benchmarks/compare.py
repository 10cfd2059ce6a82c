"""Every system that was scored on a task, best first, with paired tests: kepl compare TASK|synonyms
[--base ENCODER]."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from benchmarks.results import Result, differing, grouped, stored, versus
from benchmarks.synonyms import DATASETS, samples_checksum
from core.files import InputError
from datamodules.tasks.linking import linking_tasks
from datamodules.tasks.prepare import find_task


def alike(results: list[Result]) -> list[Result]:
    """Those of the protocol of the newest."""
    return [r for r in results if not differing(r.protocol, results[-1].protocol)]


def compare(
    name: str,
    profile: Literal["small", "paper"] = "small",
    base: str | None = None,
    samples: Path | None = None,
    split: str | None = None,
) -> str:
    """Systems on the protocol of the newest result, and the best against each other, or each
    against `base`.

    Runs of one pre-training that CKPT= named are its seeds. Raises InputError when there is no
    result, or none of `base`.
    """
    if name == "synonyms":
        checksum = samples_checksum(samples)
        found = [r for r in stored("synonyms") if checksum in (None, r.protocol["samples"])]
        if not found:
            raise InputError("nothing was scored on these synonyms: `make synonyms` first")
        groups = list(grouped(alike(found)).values())
        blocks = []
        for part in DATASETS:
            own = [g for g in groups if g.tallies(f"{part}/acc@1")]
            if own:
                blocks.append(versus(f"{part}, Acc@1 among 20 names", own, f"{part}/acc@1", base))
        return "\n\n".join(blocks)
    if name in linking_tasks():
        found = [r for r in stored("linking", name) if split in (None, r.split)]
        if not found:
            raise InputError(f"no results of {name}: `make evaluate TASK={name}` first")
        title = f"{name}, {found[-1].split} {found[-1].metric}"
        return versus(title, list(grouped(alike(found)).values()), found[-1].metric, base)
    definition = find_task(name)
    found = [
        r
        for r in stored("finetune", definition.name)
        if r.protocol["profile"] == profile and "share" not in r.protocol
    ]
    if not found:
        raise InputError(
            f"no results of {definition.name} with PROFILE={profile}: `make finetune"
            f" TASK={definition.name}` first"
        )
    newest = found[-1]
    title = f"{definition.name}, {newest.split} {newest.metric}, PROFILE={profile}"
    return versus(title, list(grouped(alike(found)).values()), newest.metric, base)
