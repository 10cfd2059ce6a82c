"""GenBioEL's tables and figures (Yuan et al., NAACL 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from datamodules.options import Files


def figures(
    task: str = "COMETA:closed",
    of: str | None = None,
    split: Literal["dev", "test"] | None = None,
    folds: Sequence[int] = (),
    graph: Path | None = None,
    out: Path | None = None,
    fresh: bool = False,
    *,
    files: Files,
) -> None:
    """Figure 2: accuracy of a scored linker by the similarity of mention and target name.

    Args:
        task: Linking task. The paper's figure is of COMETA, whose whole dictionary needs a licence.
        of: Label or folder of a result. Default: the newest of the task.
        split: Split of the result: dev or test.
        folds: Folds of the result. Default: all.
        graph: Folder of a graph that was the dictionary.
        out: Folder for the figure. Default: that of the result.
        fresh: Replace existing files that this command did not write.
    """
    from benchmarks.linking.cases import scored_run
    from benchmarks.options import Folds
    from benchmarks.papers.genbioel.mention_similarity import FILES, draw
    from core.outputs import claimed_files

    with claimed_files(out, FILES, fresh):
        draw(scored_run(task, of, Folds(split=split, folds=folds, graph=graph), files), out)
