"""EMBERT's tables and figures (Cai et al., APWeb-WAIM 2021)."""

from __future__ import annotations

from pathlib import Path

#: of `make pretrain-embert`, in runs/data
FOLDERS = {
    "linked_text": "embert-small/linked",
    "graph": "embert-small/segments/vocabulary",
    "thesaurus": "embert-small/thesaurus",
    "segments": "embert-small/segments",
}
#: Section 4.5: attention at layer 11, and the caption of Figure 3: layer 10, of BERT-base's 12
DEPTH = {"figure2": (11, 12), "figure3": (10, 12)}


def figures(
    model: str = "embert",
    base: str = "zh",
    ckpt: str | None = None,
    linked_text: Path | None = None,
    graph: Path | None = None,
    thesaurus: Path | None = None,
    segments: Path | None = None,
    sentences: int = 500,
    window: int = 128,
    least: int = 10,
    layer2: int | None = None,
    layer3: int | None = None,
    pick2: int | None = None,
    pick3: int | None = None,
    seed: int = 0,
    out: Path | None = None,
    fresh: bool = False,
    device: str = "cpu",
) -> None:
    """Figures 2 and 3: what two encoders' attention does with synonyms of entities, and inside long
    entities.

    Args:
        model: Encoder, a BERT.
        base: Encoder that it is compared with; embert/pretrain_plain is the same training without
            its objectives.
        ckpt: One exact run of `model`.
        linked_text: Folder of linked text.
        graph: Folder of the graph.
        thesaurus: Folder of the graph's synonyms.
        segments: Folder of the graph's segmented names.
        sentences: Sentences, of an entity one at most.
        window: Characters of a sentence.
        least: Least characters of a sentence's context.
        layer2: Layer of Figure 2, from 1. Default: at the paper's share of the depth.
        layer3: Layer of Figure 3, from 1. Default: at the paper's share of the depth.
        pick2: Row of the sentence drawn in Figure 2. Default: the median.
        pick3: Row of the sentence drawn in Figure 3. Default: the median.
        seed: Seed of what is drawn.
        out: Folder for the figures.
        fresh: Replace existing files that this command did not write.
        device: cpu or cuda.
    """
    from benchmarks.papers.embert.attention import FILES, draw
    from core.outputs import claimed_files
    from core.tracking import runs_folder

    given = {
        "linked_text": linked_text,
        "graph": graph,
        "thesaurus": thesaurus,
        "segments": segments,
    }
    places = {name: own or runs_folder() / "data" / FOLDERS[name] for name, own in given.items()}
    with claimed_files(out, FILES, fresh):
        draw(
            model,
            base,
            ckpt,
            places,
            DEPTH,
            out or runs_folder() / "figures" / "embert",
            sentences,
            window,
            least,
            {"figure2": layer2, "figure3": layer3},
            {"figure2": pick2, "figure3": pick3},
            seed,
            device,
        )
