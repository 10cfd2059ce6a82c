"""A picture of what benchmarks.perf.scale measured: a panel for each stage, peak memory over the
number of items."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from core.files import atomic_write

ACROSS = 3  # panels side by side


def draw(results: list[dict[str, Any]], path: Path) -> None:
    """Write a PNG of rows {stage, unit, items, seconds, memory} to `path`; each point has its CPU
    seconds for 1,000 items."""
    from matplotlib.figure import Figure

    stages = list(dict.fromkeys(row["stage"] for row in results))
    down = -(-len(stages) // ACROSS)
    figure = Figure(figsize=(4 * ACROSS, 2.6 * down), layout="constrained")
    panels = figure.subplots(down, ACROSS, squeeze=False).ravel()
    for panel in panels[len(stages) :]:
        panel.axis("off")
    for panel, stage in zip(panels, stages, strict=False):
        rows = sorted(
            (row for row in results if row["stage"] == stage), key=lambda row: row["items"]
        )
        items, memory = [row["items"] for row in rows], [row["memory"] for row in rows]
        panel.plot(items, memory, marker="o", color="#2a6f97", linewidth=1.5)
        for row in rows:
            text = f"{row['seconds'] / row['items'] * 1000:.2g} s"
            panel.annotate(
                text,
                (row["items"], row["memory"]),
                (0, 7),
                textcoords="offset points",
                ha="center",
                fontsize=8,
            )
        panel.set_xscale("log")
        panel.set_xlim(min(items) / 2.5, max(items) * 2.5)
        panel.set_ylim(0, max(memory) * 1.3)
        panel.set_title(stage, fontsize=10, loc="left")
        panel.set_xlabel(rows[0]["unit"], fontsize=9)
        panel.tick_params(labelsize=8)
        panel.grid(alpha=0.3)
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    figure.suptitle(
        "Peak memory, MB (at each point: CPU seconds for 1,000 items)",
        fontsize=11,
        x=0.01,
        ha="left",
    )
    with atomic_write(path, "wb") as handle:
        figure.savefig(handle, format="png", dpi=90)
