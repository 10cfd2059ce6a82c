"""What runs on a CUDA machine, and how fast: make gpu-check (kepl measure gpu)

    layers                 BERT-base's 12 layers over rows of several lengths: padded or packed, as
                           they are or compiled
    search                 nearest names among a million on the device
    decode                 GenBioEL's constrained search with a BART of base size
    tests-<room>-<file>    the tests marked gpu of one file
    speed-<name>           kepl measure speed on the device
    pretrain-<paper>       a rehearsal of the paper's profile (benchmarks.perf.rehearse):
                           throughput and peak memory
    pretrain-<paper>-packed, -compiled   the same with `attention: packed`, and with packed rows and
                           compiled layers

Each part is a process of its own that is stopped after LIMIT seconds, and leaves
runs/gpu-check/<part>.json. A part that succeeded at the same commit is skipped, so the same command
resumes. `jobs` parts run at once: what they prepare on the CPU takes the most time; what is
measured on the device waits until it has the device for itself (`experiments.meter.alone`). At the
end all parts are merged into runs/gpu-check.json and .md.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.perf.alone import call_alone
from core.choices import list_known
from core.commands import child_environment, python_command
from core.files import InputError, atomic_write
from core.json_files import read_json, write_json
from core.tracking import ROOT, commit, runs_folder
from core.values import split_commas
from experiments.meter import DEVICE_LOCK, alone

LIMIT = 480  #: seconds of a part; of parts at once as many times that, since they wait in turn
STEPS, SCALE = 6, 0.001  #: of a rehearsal
ACCUMULATED = {"sapbert": 1, "genbioel": 4}  #: micro-batches of a rehearsed step; of the others 16
#: ways of computing a BERT's layers -> arguments of a training
WAYS = {
    "": "--model.init_args.attention sdpa",
    "-packed": "--model.init_args.attention packed",
    "-compiled": "--model.init_args.attention packed"
    " --trainer.callbacks+ experiments.compilation.CompiledLayers",
}
#: further arguments where rows are packed: names of all lengths pass the layers at once
PACKED_ONLY = {"sapbert": "--data.init_args.groups 1"}
Part = Callable[[str], dict[str, Any]]


def tests(file: str) -> Part:
    """The tests marked gpu in a file."""

    def run(device: str) -> dict[str, Any]:
        words = python_command(
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "-o",
            "addopts=-q --strict-markers",
            "-m",
            "gpu",
            file,
        )
        with alone():
            done = subprocess.run(
                words, cwd=ROOT, env=child_environment(), capture_output=True, text=True
            )
        if done.returncode:
            raise RuntimeError(
                f"pytest, exit status {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-1000:]}"
            )
        return {"tests": done.stdout.strip().splitlines()[-1]}

    return run


def speed(name: str) -> Part:
    """A benchmark of benchmarks.perf.speed that supports devices."""

    def run(device: str) -> dict[str, Any]:
        with alone():
            result = call_alone(f"measure speed {name}", {"json": True, "device": device})
        return {
            key: result[key]
            for key in ("ours", "reference", "ratio", "time_ratio", "equal", "settings")
            if key in result
        }

    return run


def layers(
    device: str,
    sizes: tuple[int, int, int, int] = (12, 768, 12, 3072),
    rows: int = 64,
    length: int = 512,
) -> dict[str, Any]:
    """Training passes a second through a BERT's layers, and the most memory, each way of computing
    them.

    sizes  layers, hidden, heads, intermediate;  rows, length  of a batch; lengths are spread evenly
    from length / 4
    """
    import torch

    from experiments.compilation import compile_layers
    from models.encoders import last_states
    from models.mlm import new_bert
    from models.packing import Layout

    count, hidden, heads, inner = sizes
    lengths = torch.linspace(length // 4, length, rows).long()
    mask = (torch.arange(length) < lengths[:, None]).long()
    tokens = mask.flatten().nonzero()[:, 0].to(device)
    mask = mask.to(device)
    ids = torch.randint(5, 1000, (rows, length), device=device)
    measured: dict[str, Any] = {"tokens": int(lengths.sum()), "padded_tokens": rows * length}
    for way in ("sdpa", "packed", "sdpa-compiled", "packed-compiled"):
        attention, _, compiled = way.partition("-")
        torch.manual_seed(0)
        bert: Any = new_bert(1000, count, hidden, heads, inner, length)
        bert.to(device)
        bert.set_attn_implementation(attention)
        if compiled:
            compile_layers(bert)

        def step(bert: Any = bert) -> None:
            with torch.autocast(device, dtype=torch.bfloat16):
                states = last_states(bert, ids, Layout(mask, tokens, {}))
            states.flatten(0, 1)[tokens].float().square().mean().backward()
            bert.zero_grad()

        try:
            step()
            step()
        except Exception as error:  # why: a compiler that fails is a finding, recorded
            if not compiled:
                raise
            measured[f"{way}_failed"] = str(error).splitlines()[0][:200]
            continue
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        with alone():
            seconds = seconds_of(step, device)
        measured[way] = {"seconds": seconds, "tokens_per_second": measured["tokens"] / seconds}
        if device == "cuda":
            measured[way]["memory"] = torch.cuda.max_memory_allocated()
    return measured


def seconds_of(call: Callable[[], Any], device: str, times: int = 5) -> float:
    """Mean seconds of a call, until the device has done what it asks for."""
    import torch

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    wait()
    begun = time.perf_counter()
    for _ in range(times):
        call()
    wait()
    return (time.perf_counter() - begun) / times


def search(
    device: str, names: int = 1_000_000, size: int = 768, queries: int = 4096, k: int = 20
) -> dict[str, Any]:
    """Milliseconds a query of the exact search among `names` vectors of `size` numbers, float16, in
    a batch of `queries`, each a name's vector with noise; and whether the same names are found as
    on the CPU (of 64 queries; float16 ties may change places)."""
    import torch
    from torch.nn.functional import normalize

    from kg.search.index import Index

    random = torch.Generator().manual_seed(0)
    vectors = normalize(torch.randn(names, size, generator=random), dim=1)
    query_rows = normalize(
        vectors[:queries] + torch.randn(queries, size, generator=random) / size**0.5, dim=1
    )
    stored = vectors.half()
    index = Index(stored, device=device)
    ranking = index.search(query_rows, k)
    with alone():
        seconds = seconds_of(lambda: index.search(query_rows, k), device, 3)
    reference = Index(stored).search(query_rows[:64], k)
    shared = [
        len(set(row.tolist()) & set(wanted.tolist())) / k
        for row, wanted in zip(ranking.rows[:64], reference.rows, strict=True)
    ]
    return {
        "milliseconds_per_query": 1000 * seconds / queries,
        "names": names,
        "queries": queries,
        "first_equal": bool((ranking.rows[:64, 0] == reference.rows[:, 0]).all()),
        "same_names": sum(shared) / len(shared),
        "largest_difference": float(abs(ranking.scores[:64] - reference.scores).max()),
    }


def decode(
    device: str,
    sizes: tuple[int, int] = (768, 6),
    names: int = 100_000,
    mentions: int = 512,
    batches: Sequence[int] = (32, 64, 128, 256),
    compared: int = 16,
) -> dict[str, Any]:
    """Mentions a second of GenBioEL's search, 5 beams, contexts of 160 tokens, in batches of
    several sizes; and whether the first names are those of the CPU.

    sizes: hidden, and layers of the encoder and of the decoder; weights at random
    """
    import torch

    from benchmarks.perf.speed._names import VOCABULARY, synthetic
    from benchmarks.perf.speed.decode import bart, inputs, ours
    from inference.options import bfloat16
    from kg.search.trie import Ragged, Trie

    trie = Trie.build(Ragged(*synthetic(names)), vocabulary=VOCABULARY)
    model: Any = bart(*sizes)
    ids, prompts = inputs(mentions, 160)
    on_cpu = [ranking[0] for ranking in ours(model, trie, ids[:compared], prompts[:compared])]
    model, ids = model.to(device), ids.to(device)

    def rank(batch: int, half: bool, most: int = mentions) -> list[Any]:
        rankings: list[Any] = []
        with bfloat16(device, half):
            for start in range(0, most, batch):
                part = slice(start, min(start + batch, most))
                rankings += ours(model, trie, ids[part], prompts[part])
        return rankings

    on_device = [ranking[0] for ranking in rank(compared, False, compared)]
    rates = {}
    with alone():
        for batch in batches:
            rank(batch, True, batch)
            seconds = seconds_of(partial(rank, batch, True), device, 1)
            rates[str(batch)] = mentions / seconds
    best = max(rates, key=lambda batch: rates[batch])
    pairs = list(zip(on_device, on_cpu, strict=True))
    result = {
        "mentions_per_second": rates[best],
        "batch": int(best),
        "first_equal": all(our_best[0] == wanted[0] for our_best, wanted in pairs),
        "largest_difference": max(abs(our_best[1] - wanted[1]) for our_best, wanted in pairs),
        "batches": rates,
    }
    if device == "cuda":
        result["memory"] = torch.cuda.max_memory_allocated()
    return result


def pretrain(paper: str, way: str) -> Part:
    """A rehearsal of a paper's profile, its layers computed in one of WAYS."""

    def run(device: str) -> dict[str, Any]:
        from benchmarks.perf.rehearse import run_rehearsal
        from experiments.machine import Inputs, Machine
        from experiments.pretrain import pipeline_of

        variants = pipeline_of(paper).get("variants", {})
        first = [name for name, variant in variants.items() if not variant.get("extra")][:1]
        args = WAYS[way]
        if way:
            args += f" {PACKED_ONLY.get(paper, '')}"
        if device == "cuda":  # a rehearsal on a CPU has small batches
            args += f" --trainer.accumulate_grad_batches {ACCUMULATED.get(paper, 16)}"
        where = Machine(devices=1, workers=2)
        report = run_rehearsal(
            paper, "paper", STEPS, SCALE, Inputs(), where, variants=first, args=args
        )
        meter = read_json(runs_folder() / "rehearsals" / paper / "meter.json")
        speed = {
            "tokens_per_second": meter["tokens"] / meter["seconds"],
            "memory": meter["gpu_memory"],
        }
        return speed | {
            "share_of_peak": meter["flop"] / meter["seconds"] / meter["peak"],
            "meter": meter,
            "said": report,
        }

    return run


def parts() -> dict[str, Part]:
    """Every part by name."""
    by_name: dict[str, Part] = {"layers": layers, "search": search, "decode": decode}
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        if "\n@pytest.mark.gpu" in file.read_text():
            name = f"tests-{file.parent.name}-{file.stem.removeprefix('test_')}"
            by_name[name] = tests(str(file.relative_to(ROOT)))
    for file in sorted((ROOT / "benchmarks" / "perf" / "speed").glob("[a-z]*.py")):
        if re.search(r"def measure_speed\([^)]*\bdevice: str", file.read_text()):
            by_name[f"speed-{file.stem}"] = speed(file.stem)
    for file in sorted((ROOT / "experiments").glob("*/pipeline.yaml")):
        if "\n    rehearsal:" in file.read_text():
            paper = file.parent.name
            # a BART's layers are neither packed nor compiled
            for way in ("",) if paper == "genbioel" else WAYS:
                by_name[f"pretrain-{paper}{way}"] = pretrain(paper, way)
    return by_name


def device_name() -> str | None:
    """The CUDA device's name; None where there is none, or no torch."""
    try:
        import torch
    except ImportError:
        return None
    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def command(name: str, device: str) -> list[str]:
    """The process of a part."""
    words = ("benchmarks.perf.gpu:print_part", "--name", name, "--device", device)
    return python_command("-m", "core.call", *words)


def run_to_end(
    words: list[str], environment: Mapping[str, str], limit: float
) -> tuple[int, str, str]:
    """(exit status, standard output, standard error) of a command. Raises TimeoutExpired after
    `limit` seconds, when all its processes are ended."""
    with subprocess.Popen(
        words,
        cwd=ROOT,
        env=child_environment(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            printed, errors = process.communicate(timeout=limit)
        except BaseException:  # also Ctrl+C: a stage's processes must not hold the device
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return process.returncode, printed, errors


def done_part(name: str, device: str, where: Mapping[str, str], jobs: int = 1) -> dict[str, Any]:
    """Run a part: its record, with `ok`, `seconds`, and its result or why it failed."""
    begun = time.monotonic()
    record: dict[str, Any] = {"part": name, **where}
    folder = runs_folder() / "gpu-check"
    environment = {DEVICE_LOCK: str(folder / "device.lock"), "KEPL_RUNS": str(folder / name)}
    if jobs > 1:
        threads = str(max(1, (os.cpu_count() or 1) // jobs))
        environment |= {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    try:
        status, printed, errors = run_to_end(command(name, device), environment, LIMIT * jobs)
        result = json.loads(printed.splitlines()[-1]) if not status else None
        why = "" if result is not None else (errors or printed)[-4000:]
    except subprocess.TimeoutExpired:
        result, why = None, f"stopped after {LIMIT * jobs} s"
    except (ValueError, IndexError):
        result, why = None, f"no result: {printed[-1000:]}"
    record |= {"ok": result is not None, "seconds": round(time.monotonic() - begun, 1)}
    return record | ({"result": result} if result is not None else {"why": why})


def figures(result: Mapping[str, Any]) -> str:
    """The figures of a result that a table shows."""
    rows: list[str] = []
    for key, value in result.items():
        if isinstance(value, Mapping) and "tokens_per_second" in value:
            rows.append(f"{key}: {figures(value)}")
        elif key == "memory":
            rows.append(f"{value / 1e9:.1f} GB")
        elif isinstance(value, bool | int | float | str) and key not in ("said", "seconds"):
            text = str(value)
            if not isinstance(value, bool | str):
                text = f"{value:,.0f}" if value > 100 else f"{value:.3g}"
            rows.append(text if key == "tests" else f"{text} {key.replace('_', ' ')}")
    return ", ".join(rows)


def merge(folder: Path, names: list[str]) -> list[dict[str, Any]]:
    """Write the parts' records in `folder` as <folder>.json and, as a table, <folder>.md. Returns
    them."""
    records = [
        read_json(folder / f"{name}.json") for name in names if (folder / f"{name}.json").is_file()
    ]
    write_json(folder.with_suffix(".json"), records)
    failures = {
        record["part"]: record["why"].strip().splitlines()[-1:]
        for record in records
        if not record["ok"]
    }
    lines = ["| part | result | seconds | figures | device | commit |", "|---|---|---|---|---|---|"]
    for record in records:
        summary = figures(record["result"]) if record["ok"] else " ".join(failures[record["part"]])
        row = (
            record["part"],
            "ok" if record["ok"] else "failed",
            record["seconds"],
            summary,
            record["device"],
            record["commit"][:9],
        )
        lines.append("| " + " | ".join(str(cell).replace("|", "/") for cell in row) + " |")
    with atomic_write(folder.with_suffix(".md")) as handle:
        handle.write("\n".join(lines) + "\n")
    return records


def print_part(name: str, device: str) -> None:
    """Run a part in this process, and print its result as JSON."""
    print(json.dumps(parts()[name](device)))


def checked_jobs(jobs: int) -> int:
    """Raises InputError for a number of parts at once below 1."""
    if jobs < 1:
        raise InputError(f"JOBS={jobs}: expected a number of parts at once, 1 or more")
    return jobs


def check_gpu(
    only: Sequence[str] = (), fresh: bool = False, jobs: int = 1, device: str = "cuda"
) -> int:
    """Run the tests marked gpu, the speed benchmarks and short pre-training on a CUDA device.

    Args:
        only: Parts whose names begin with one of these words. Default: all.
        fresh: Run parts that are complete, too.
        jobs: Parts at once; one of them at a time measures the device.
        device: Device of torch; cpu tries the command out.
    """
    available = parts()
    beginnings = tuple(split_commas(only))
    chosen = [name for name in available if not beginnings or name.startswith(beginnings)]
    if not chosen:
        raise InputError(f"no part {beginnings[0]!r}; {list_known(beginnings[0], available)}")
    if device == "cuda" and device_name() is None:
        print("\n".join(chosen))
        raise InputError("no CUDA device here; the parts above are what a CUDA machine would run")
    folder = runs_folder() / "gpu-check"
    where = {"commit": commit(), "device": device_name() or device}
    folder.mkdir(parents=True, exist_ok=True)

    def run_part(name: str, number: int) -> None:
        file = folder / f"{name}.json"
        old = read_json(file) if file.is_file() else {}
        if not fresh and old.get("ok") and all(old.get(k) == v for k, v in where.items()):
            print(f"[{number}/{len(chosen)}] {name}: complete\n", end="", flush=True)
            return
        print(f"[{number}/{len(chosen)}] {name} ...\n", end="", flush=True)
        write_json(file, done_part(name, device, where, jobs))

    with ThreadPoolExecutor(checked_jobs(jobs)) as threads:
        list(threads.map(run_part, chosen, range(1, len(chosen) + 1)))
    merge(folder, list(available))
    failed = [name for name in chosen if not read_json(folder / f"{name}.json")["ok"]]
    print(
        f"{folder.with_suffix('.md')}: {len(chosen) - len(failed)} parts, {len(failed)} failed"
        f" {' '.join(failed)}".strip()
    )
    return 1 if failed else 0
