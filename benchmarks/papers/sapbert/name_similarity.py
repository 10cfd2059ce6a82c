"""Figures 1 and 2 of SapBERT: names in the plane, and similarities of right and wrong pairs, before
and after training.

    kepl figures sapbert [--model sapbert --base minilm --pairs FOLDER --out FOLDER --method
    tsne|umap ...]

    figure1.png, figure1.csv   t-SNE (Fig. 1) or UMAP of the names of some concepts: x, y, concept,
                               name, which encoder
    figure2.png, figure2.csv   histograms of cosine similarities of positive and negative pairs
                               (Fig. 2), all pairs of the batches ("natural") and those that Eq. (1)
                               keeps ("mined")
    figures.json               what they show in numbers: silhouette of the concepts, medians,
                               overlap of the histograms

Both show the same names to both encoders. PAIRS is a folder of `kepl data pairs`; without it, and
without BASE, those are taken that the run of MODEL was trained from. The overlap of two histograms
is the sum of the smaller of both shares in each bin: 0 when a threshold separates right from wrong
pairs, 1 when nothing does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import yaml

from benchmarks.papers.sapbert.similarity_options import Shown
from core.files import InputError, atomic_write
from core.json_files import write_json
from core.tracking import runs_folder
from datamodules.sapbert.name_pairs import Pairs
from experiments.names import encoder
from inference.encoders import Embedder, embedder
from inference.options import LinkerOptions
from models.sapbert import all_pairs, hard_pairs, similarities

FILES = ("figure1.png", "figure1.csv", "figure2.png", "figure2.csv", "figures.json")
BATCH = 240  # pairs, the paper's batch
NAMES = 12  # of a concept in Figure 1
BINS = np.linspace(-1, 1, 81)


def inputs(model: str, ckpt: str | None, base: str | None, pairs: Path | None) -> tuple[str, Path]:
    """(base, folder of pairs); those that are not given, from the run of `model`."""
    if base and pairs:
        return base, pairs
    config = Path(encoder(model, ckpt).folder).parent / "config.yaml"
    if not config.is_file():
        raise InputError(f"MODEL={model}: no config.yaml beside its export; give BASE= and PAIRS=")
    run = yaml.safe_load(config.read_text())
    pairs_folder = pairs or run["data"]["init_args"].get("pairs")
    if not pairs_folder:
        raise InputError(f"MODEL={model}: its run has no pairs of names; give PAIRS=")
    return base or run["model"]["init_args"]["encoder"], Path(pairs_folder)


def chosen_names(pairs: Pairs, concepts: int, seed: int) -> tuple[list[str], list[str]]:
    """(names, the concept of each): `concepts` concepts drawn by `seed` among those with the most
    names, at most NAMES of each."""
    members = np.asarray(pairs.members)
    owner, size = np.unique(members[:, 1], return_counts=True)
    rich = owner[np.argsort(-size, kind="stable")][: max(5 * concepts, concepts)]
    rng = np.random.default_rng(seed)
    drawn = rng.choice(rich, min(concepts, len(rich)), replace=False)
    names, ids = pairs.names, pairs.concepts
    result: list[str] = []
    owners: list[str] = []
    for concept in drawn:
        rows = members[members[:, 1] == concept, 0][:NAMES]
        result += [names[row] for row in rows]
        owners += [ids[concept]] * len(rows)
    return result, owners


def plane(vectors: np.ndarray, method: str, seed: int) -> np.ndarray:
    """(n, 2) of (n, d) vectors of unit length. Raises InputError when METHOD=umap is not
    installed."""
    if method == "umap":
        try:
            import umap
        except ImportError as error:
            raise InputError("METHOD=umap: install umap-learn, or take METHOD=tsne") from error
        return np.asarray(umap.UMAP(metric="cosine", random_state=seed).fit_transform(vectors))
    from sklearn.manifold import TSNE

    perplexity = min(30.0, (len(vectors) - 1) / 3)
    tsne = TSNE(metric="cosine", init="random", perplexity=perplexity, random_state=seed)
    return np.asarray(tsne.fit_transform(vectors))


def silhouette(vectors: np.ndarray, concept: Sequence[str]) -> float:
    """The silhouette by cosine: by how much a name is nearer to those of its own concept than to
    the next one's, from -1 to 1."""
    from sklearn.metrics import silhouette_score

    return float(silhouette_score(vectors, concept, metric="cosine"))


def pair_similarities(
    embed: Embedder, pairs: Pairs, batches: int, seed: int
) -> dict[str, np.ndarray]:
    """{"natural positive", "natural negative", "mined positive", "mined negative": cosine
    similarities}."""
    names = pairs.names
    order = np.random.default_rng(seed).permutation(len(pairs))
    size = min(BATCH, len(pairs))
    cosines: dict[str, list[np.ndarray]] = {
        f"{a} {b}": [] for a in ("natural", "mined") for b in ("positive", "negative")
    }
    for start in range(0, min(batches * size, len(pairs) - size + 1), size):
        first, second, concept = pairs[order[start : start + size]].T
        # a name that is in two pairs is one name: its similarity to itself says nothing
        rows = np.unique(
            np.stack([np.concatenate([first, second]), np.tile(concept, 2)], 1), axis=0
        )
        f = torch.nn.functional.normalize(embed([names[i] for i in rows[:, 0]]).float(), dim=1)
        owner = torch.from_numpy(rows[:, 1])
        similarity, distance = similarities(f)
        for kind, masks in (
            ("natural", all_pairs(owner, 0, len(f))),
            ("mined", hard_pairs(distance, owner)),
        ):
            for sign, mask in zip(("positive", "negative"), masks, strict=True):
                cosines[f"{kind} {sign}"].append(similarity[mask].numpy())
    return {key: np.concatenate(parts) for key, parts in cosines.items()}


def histogram(values: np.ndarray) -> np.ndarray:
    """Share of `values` in each of BINS; zeros where there are none."""
    counts = np.histogram(values.clip(-1, 1), BINS)[0]
    return counts / max(1, counts.sum())


def overlap(first: np.ndarray, two: np.ndarray) -> float:
    return float(np.minimum(histogram(first), histogram(two)).sum())


def draw(
    model: str,
    ckpt: str | None,
    base: str | None,
    pairs_folder: Path | None,
    out: Path | None,
    chosen: Shown,
    options: LinkerOptions,
) -> dict[str, Any]:
    """Draw both figures; returns what figures.json holds. Raises InputError."""
    base, folder = inputs(model, ckpt, base, pairs_folder)
    pairs = Pairs(str(folder))
    out = out or runs_folder() / "figures" / "sapbert"
    out.mkdir(parents=True, exist_ok=True)
    after = embedder(encoder(model, ckpt), options)
    # the one difference is the training
    before = embedder(encoder(base), replace(options, pooling=cast(Any, after.pooling)))
    names, owners = chosen_names(pairs, chosen.concepts, chosen.seed)
    result: dict[str, Any] = {
        "before": base,
        "after": model,
        "pooling": after.pooling,
        "pairs": str(folder),
        "names": len(names),
        "concepts": len(set(owners)),
        "method": chosen.method,
        "seed": chosen.seed,
    }
    encoders = {"before": before, "after": after}
    result |= draw_concepts(encoders, names, owners, chosen, out)
    result |= draw_similarities(encoders, pairs, chosen, out)
    write_json(out / "figures.json", result)
    print(
        f"{out}/figure1.png: silhouette of {result['concepts']} concepts"
        f" {result['silhouette before']:.3f} before, {result['silhouette after']:.3f}"
        f" after\n{out}/figure2.png: overlap of right and wrong pairs "
        + ", ".join(
            f"{kind} {result[f'before {kind} overlap']:.3f} before,"
            f" {result[f'after {kind} overlap']:.3f} after"
            for kind in ("natural", "mined")
        )
    )
    return result


def draw_concepts(
    encoders: Mapping[str, Embedder],
    names: Sequence[str],
    owners: Sequence[str],
    chosen: Shown,
    out: Path,
) -> dict[str, Any]:
    """Figure 1: the names of some concepts in the plane, before and after. Returns the
    silhouettes."""
    from matplotlib.figure import Figure

    result: dict[str, Any] = {}
    colours = {concept: i for i, concept in enumerate(dict.fromkeys(owners))}
    drawing = Figure(figsize=(12, 6))
    axes = drawing.subplots(1, 2)
    rows = []
    for axis, (title, embed) in zip(axes, encoders.items(), strict=True):
        vectors = embed(names).numpy()
        at = plane(vectors, chosen.method, chosen.seed)
        axis.scatter(at[:, 0], at[:, 1], c=[colours[c] for c in owners], cmap="tab20", s=18)
        apart = result[f"silhouette {title}"] = silhouette(vectors, owners)
        axis.set(title=f"{title}: silhouette {apart:.3f}", xticks=[], yticks=[])
        points = zip(at.tolist(), owners, names, strict=True)
        rows += [(title, x, y, concept, name) for (x, y), concept, name in points]
    drawing.tight_layout()
    drawing.savefig(out / "figure1.png", dpi=110)
    with atomic_write(out / "figure1.csv") as handle:
        handle.write("encoder\tx\ty\tconcept\tname\n")
        handle.writelines(f"{t}\t{x:.4f}\t{y:.4f}\t{c}\t{n}\n" for t, x, y, c, n in rows)
    return result


def draw_similarities(
    encoders: Mapping[str, Embedder], pairs: Pairs, chosen: Shown, out: Path
) -> dict[str, Any]:
    """Figure 2: cosines of right and wrong pairs, before and after. Returns how many there are,
    their medians and overlaps."""
    from matplotlib.figure import Figure

    result: dict[str, Any] = {}
    drawing = Figure(figsize=(12, 7))
    grid = drawing.subplots(2, 2, sharex=True)
    shares: dict[str, np.ndarray] = {}
    for line, (title, embed) in zip(grid, encoders.items(), strict=True):
        cosines = pair_similarities(embed, pairs, chosen.batches, chosen.seed)
        for axis, kind in zip(line, ("natural", "mined"), strict=True):
            both = {sign: cosines[f"{kind} {sign}"] for sign in ("positive", "negative")}
            for sign, values in both.items():
                name = f"{title} {kind} {sign}"
                shares[name] = histogram(values)
                label = f"{sign} ({len(values):,})"
                axis.stairs(shares[name], BINS, fill=True, alpha=0.5, label=label)
                median = float(np.median(values)) if len(values) else None
                result[name] = {"pairs": len(values), "median": median}
            common = overlap(both["positive"], both["negative"])
            result[f"{title} {kind} overlap"] = common
            axis.set(
                title=f"{title}, {kind} pairs: overlap {common:.3f}", xlabel="cosine similarity"
            )
            axis.legend()
    drawing.tight_layout()
    drawing.savefig(out / "figure2.png", dpi=110)
    with atomic_write(out / "figure2.csv") as handle:
        handle.write("\t".join(["from", "to", *shares]) + "\n")
        for i in range(len(BINS) - 1):
            cells = (BINS[i], BINS[i + 1], *(share[i] for share in shares.values()))
            handle.write("\t".join(f"{cell:.6f}" for cell in cells) + "\n")
    return result
