"""EMBERT's tables and figures (Cai et al., APWeb-WAIM 2021)."""

from __future__ import annotations

from pathlib import Path

from benchmarks.papers.embert.attention_options import Inputs, Panels, Sample


def figures(
    model: str = "embert",
    base: str = "zh",
    ckpt: str | None = None,
    out: Path | None = None,
    fresh: bool = False,
    device: str = "cpu",
    *,
    inputs: Inputs,
    sample: Sample,
    panels: Panels,
) -> None:
    """Figures 2 and 3: what two encoders' attention does with synonyms of entities, and inside long
    entities.

    Args:
        model: Encoder, a BERT.
        base: Encoder that it is compared with; embert/pretrain_plain is the same training without
            its objectives.
        ckpt: One exact run of `model`.
        out: Folder for the figures.
        fresh: Replace existing files that this command did not write.
        device: cpu or cuda.
    """
    from benchmarks.papers.embert.attention import FILES, draw, load_readers
    from core.outputs import claimed_files
    from core.tracking import runs_folder

    with claimed_files(out, FILES, fresh):
        readers = load_readers(model, base, ckpt, device)
        target = out or runs_folder() / "figures" / "embert"
        draw(readers, inputs.folders(), sample, panels, target)
