"""Graph embeddings with PyKEEN: TransE as KeBioLM trains it, TransR as SMedBERT uses it.

    kepl graph embed experiments/kg/transe.yaml --graph GRAPH --out FOLDER

TransE (Yuan et al., BioNLP 2021, Section 4.1): the paper states the L2 norm, d = 100, Adam at 1e-3,
batches of 2,048 and 30 epochs. It does not state margin, negative sampling or normalisation: a
margin of 1, one uniformly corrupted head or tail per triple that is no known triple, and PyKEEN's
unit-length entities are used here.

TransR (Lin et al., AAAI 2015; in Zhang et al., ACL 2021, Section 3.1): -||c(h M_r) + r - c(t
M_r)||, where c shortens to length 1 what is longer. Entities and relations are not longer than 1
either. SMedBERT states d = 200 and nothing else: margin and negatives are TransE's. As in Lin et
al., entities and relations start from TransE, M_r from the identity.

A few passes at length 1 with a margin learn almost nothing of a graph as large as CMeKG. The small
profiles therefore train both by the self-adversarial loss and at free length (`unit: false`): c is
left out.

Held-out triples are drawn by unordered entity pair: a graph that lists a relation and its inverse
(UMLS lists every relation twice) would otherwise be tested on what it was trained on.
"""

from __future__ import annotations

import gc
import logging
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from pykeen.losses import MarginRankingLoss, NSSALoss
from pykeen.models import ERModel
from pykeen.training import SLCWATrainingLoop
from pykeen.training.callbacks import TrainingCallback
from pykeen.triples import CoreTriplesFactory
from torch import Tensor
from tqdm import tqdm

from core.artifact import manifest_path
from core.choices import list_known
from core.files import InputError, lock_file
from core.journal import JOURNAL, Journal
from core.logs import quiet_libraries
from core.tracking import commit, environment
from kg.graph import KnowledgeGraph, fingerprint
from kg.vectors.checkpoint import STATE, Checkpoint
from kg.vectors.embeddings import TABLE, EmbeddingTable
from kg.vectors.link_prediction import link_prediction, split
from kg.vectors.networks import MODELS, TransE, network, started_from, table_of

LOG = logging.getLogger(__name__)
LOSSES = ("margin", "self-adversarial")
#: settings that decide the vectors of every model
ALWAYS = tuple(
    "model dim norm margin lr batch_size epochs negatives filtered held_out seed".split()
)


class _Loop(SLCWATrainingLoop):
    """PyKEEN's loop, whose first epoch after a resume begins with the random numbers of the
    state."""

    random: dict[str, Tensor] | None = None

    def _train_epoch(self, *args: Any, **kwargs: Any) -> Any:
        if self.random:
            torch.set_rng_state(self.random["random.cpu"])
            if "random.cuda" in self.random and torch.cuda.is_available():
                torch.cuda.set_rng_state(self.random["random.cuda"])
            self.random = None
        return super()._train_epoch(*args, **kwargs)


class _Record(NamedTuple):
    """Where a training is recorded.

    first_step: the steps before it.  more: what else the rest of the command needs to know after a
    resume.
    """

    journal: Journal
    checkpoint: Checkpoint
    first_step: int = 0
    more: Mapping[str, Any] = {}


class _Epochs(TrainingCallback):
    """Records the loss of every epoch, and the state at intervals. Raises InputError for a loss
    that is no longer finite."""

    def __init__(self, name: str, bar: tqdm[Any], record: _Record) -> None:
        super().__init__()
        self.name, self.bar, self.record = name, bar, record

    def post_epoch(self, epoch: int, epoch_loss: float, **kwargs: Any) -> None:
        if not np.isfinite(epoch_loss):
            raise InputError(
                f"{self.name}: the loss became {epoch_loss} in epoch {epoch}; lower --lr"
            )
        record = self.record
        record.journal.metric("train/loss", epoch_loss, record.first_step + epoch)
        self.bar.set_postfix(loss=f"{epoch_loss:.4f}")
        self.bar.update()
        record.checkpoint.save(self.name, epoch, self.training_loop, record.more)


class Passes(NamedTuple):
    """How often, how fast and on what a model is trained."""

    lr: float
    epochs: int
    batch_size: int
    negatives: int
    filtered: bool


def fit_model(
    model: ERModel, factory: CoreTriplesFactory, name: str, passes: Passes, record: _Record
) -> None:
    """Train `model` with Adam, from the checkpoint's state if it is of this model; the loss of
    every epoch is recorded as train/loss from the record's first step + 1 on. Adam is torch's
    sparse one where a step changes the rows of its batch alone.

    Raises InputError for a loss that is no longer finite.
    """
    sparse = isinstance(model, TransE) and model.sparse
    optimizer: torch.optim.Optimizer = (
        torch.optim.SparseAdam(model.parameters(), lr=passes.lr)
        if sparse
        else torch.optim.Adam(model.parameters(), lr=passes.lr, fused=True)
    )
    loop = _Loop(
        model=model,
        triples_factory=factory,
        optimizer=optimizer,
        negative_sampler="basic",
        negative_sampler_kwargs={
            "num_negs_per_pos": passes.negatives,
            "filtered": passes.filtered,
        },
    )
    done, epochs = 0, passes.epochs
    if record.checkpoint.stage() == name:
        done, loop.random = record.checkpoint.load(loop)
        loop._epoch, loop.losses_per_epochs = done, [0.0] * done
        LOG.info(f"{name}: resuming after epoch {done} of {epochs}")
    if done == epochs:
        return
    # PyKEEN collects garbage after every epoch, and would look through all that the libraries hold
    gc.freeze()
    try:
        with tqdm(total=epochs, initial=done, desc=f"{name}, epochs", dynamic_ncols=True) as bar:
            loop.train(
                factory,
                num_epochs=epochs,
                batch_size=min(passes.batch_size, factory.num_triples),
                callbacks=_Epochs(name, bar, record),
                continue_training=done > 0,
                use_tqdm=False,
                use_tqdm_batch=False,
                num_workers=0,
                pin_memory=False,
            )
    finally:
        gc.unfreeze()


class _Data(NamedTuple):
    """A graph, and its triples as training and test rows."""

    graph: KnowledgeGraph
    training: np.ndarray
    test: np.ndarray
    factory: CoreTriplesFactory
    device: torch.device

    def score(self, model: ERModel) -> dict[str, float]:
        """Link prediction of the test rows; nothing where there are none."""
        return link_prediction(model, self.test, self.training) if len(self.test) else {}


@dataclass(frozen=True, kw_only=True)
class Training:
    """Train a graph embedding, score it on held-out triples, save it.

    TransR starts from the TransE table in folder `warm`, or from one trained first for
    `warm_epochs` at `warm_lr` on the same triples, or from random vectors. A table in `warm` must
    be of the same graph and have held out the same triples. A killed training resumes, to the same
    vectors, from the state that it saved in OUT.training; losses and scores are recorded there for
    the MLflow experiment kg.

    Args:
        graph: Folder of a knowledge graph.
        out: Folder for the table; a complete one with the same settings is kept.
        model: TransE or TransR.
        dim: Numbers of an entity's vector.
        relation_dim: Numbers of a relation's vector (TransR). Default: as many.
        norm: Norm of the distance.
        margin: Margin of the loss; above 2 it needs vectors longer than 1.
        lr: Learning rate.
        batch_size: Triples of a batch.
        epochs: Passes over the triples.
        negatives: Corrupted triples of each one.
        filtered: Draw no known triple as a negative.
        sparse: Change the vectors of a batch's entities and relations alone, not all that still
            have momentum (TransE's Adam, also where TransR starts from one); needed with millions
            of entities.
        loss: margin, or self-adversarial (Sun et al., ICLR 2019, Eq. (5), at temperature 1).
        unit: Keep entities at length 1 (TransE), or at most at 1 (TransR, also after projection).
        warm_epochs: Passes of a TransE that TransR starts from.
        warm_lr: Its learning rate. Default: lr.
        warm: Folder of a TransE table that TransR starts from.
        held_out: Triples to score it on.
        seed: Seed of training, and of the triples that are held out.
        device: Device of torch. Default: a GPU where one is.
        paper: Where each number of a config comes from; not used.
        fresh: Train again what is finished.
        checkpoint_seconds: Seconds between saved states.

    Raises InputError for a graph without triples, an unknown model, a start that does not fit, or a
    loss that is no longer finite.
    """

    graph: str
    out: str
    model: str = "TransE"
    dim: int = 100
    relation_dim: int | None = None
    norm: int = 2
    margin: float = 1.0
    lr: float = 1e-3
    batch_size: int = 2048
    epochs: int = 30
    negatives: int = 1
    filtered: bool = True
    sparse: bool = False
    loss: str = "margin"
    unit: bool = True
    warm_epochs: int = 0
    warm_lr: float | None = None
    warm: str | None = None
    held_out: int = 2000
    seed: int = 0
    device: str | None = None
    paper: dict[str, str] | None = None
    fresh: bool = False
    checkpoint_seconds: float = 60.0

    def run(self) -> EmbeddingTable:
        """Train, score and save the embedding, or load the one that is kept."""
        quiet_libraries()
        settings = self.settings()
        work = Path(f"{self.out}.training")
        name = f"{self.model}-{Path(self.graph).name}-seed{self.seed}"
        if TABLE.is_kept(self.out, {"settings": settings}, self.fresh):
            if (work / JOURNAL).is_file():  # of then, when MLflow did not answer
                _leave(work, Journal(work, "kg", name))
            table = EmbeddingTable.load(self.out)
        else:
            table = self._make(work, name, settings)
        _print_scores(self.out, table)
        return table

    def _make(self, work: Path, name: str, settings: dict[str, Any]) -> EmbeddingTable:
        """Train, score and save the embedding; `work` is removed once all of its records have
        arrived."""
        data = self._load_data()
        start = self._load_start(data.graph)
        started = time.perf_counter()
        busy = f"{work}: another process is training this table. Wait for it, or stop it first."
        with lock_file(work / "lock", "w", busy):
            checkpoint = self._open_checkpoint(work, settings)
            with Journal(work, "kg", name) as journal:
                self._begin(journal, settings)
                record = _Record(journal, checkpoint)
                table = self._train(data, start, settings, record, started)
                table.save(self.out)
                journal.artifact(manifest_path(self.out))
                journal.end()
                for left in STATE:
                    (work / left).unlink(missing_ok=True)
                _leave(work, journal)
        return table

    def settings(self) -> dict[str, Any]:
        """What decides the vectors. Raises InputError for settings that do not fit each other."""
        if self.model not in MODELS:
            raise InputError(
                f"model: no graph embedding {self.model!r}; {list_known(self.model, MODELS)}"
            )
        settings: dict[str, Any] = {"graph": fingerprint(self.graph)}
        settings |= {name: getattr(self, name) for name in ALWAYS}
        if self.loss not in LOSSES:
            raise InputError(f"loss: no loss {self.loss!r}; {list_known(self.loss, LOSSES)}")
        settings |= self._options_of("TransE")
        settings |= {} if self.loss == "margin" else {"loss": self.loss}
        warms, relation_dim = bool(self.warm or self.warm_epochs), self._relation_dim
        if self.model == "TransR":
            settings |= self._settings_of_transr()
        elif warms or relation_dim != self.dim:
            raise InputError(
                f"model {self.model}: warm, warm_epochs and relation_dim are TransR's; drop them"
            )
        if warms and relation_dim != self.dim:
            raise InputError(
                f"relation_dim {relation_dim}: a TransE has relations of dim, {self.dim}; start"
                f" without it or take {self.dim}"
            )
        return settings

    def _settings_of_transr(self) -> dict[str, Any]:
        start = TABLE.manifest(self.warm)["sha256"] if self.warm else None
        warm_epochs = 0 if self.warm else self.warm_epochs
        if self.sparse and not warm_epochs:
            raise InputError("sparse: of the TransE that TransR starts from; give warm_epochs, too")
        return {
            "relation_dim": self._relation_dim,
            "warm": start,
            "warm_epochs": warm_epochs,
            "warm_lr": self.warm_lr or self.lr,
        }

    @property
    def _relation_dim(self) -> int:
        return self.relation_dim or self.dim

    def _options_of(self, model: str) -> dict[str, Any]:
        """Arguments of a model that are not the default's."""
        sparse = {"sparse": True} if self.sparse and model == "TransE" else {}
        return ({} if self.unit else {"unit": False}) | sparse

    def _load_data(self) -> _Data:
        """The graph and its split. Raises InputError for one of too few triples."""
        graph = KnowledgeGraph.load(self.graph)
        if len(graph.triples) < 10:
            raise InputError(
                f"{self.graph}: {len(graph.triples)} triples; an embedding needs at least 10"
            )
        training, test = split(graph.triple_indices(), self.held_out, self.seed)
        factory = CoreTriplesFactory(
            training, num_entities=len(graph.entities), num_relations=len(graph.relations)
        )
        device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
        return _Data(graph, training, test, factory, torch.device(device))

    def _load_start(self, graph: KnowledgeGraph) -> dict[str, Any]:
        """Arguments of a model that starts from the table in `warm`; none without one."""
        if not self.warm:
            return {}
        table = start_table(self.warm, graph, self.graph, self.dim, self.held_out, self.seed)
        return started_from(*table)

    def _open_checkpoint(self, work: Path, settings: dict[str, Any]) -> Checkpoint:
        """The checkpoint in `work`; without a state to resume from, what is left there is
        removed."""
        checkpoint = Checkpoint(work / STATE[0], settings, self.checkpoint_seconds)
        if self.fresh or not checkpoint.stage():
            for left in (*STATE, JOURNAL, "mlflow.json"):
                (work / left).unlink(missing_ok=True)
            checkpoint.facts = {}
        return checkpoint

    def _begin(self, journal: Journal, settings: dict[str, Any]) -> None:
        journal.deliver()
        journal.start()
        journal.params(settings | {"graph_folder": self.graph})
        journal.tags({"commit": commit(), "graph": settings["graph"], **environment()})

    def _train(
        self,
        data: _Data,
        start: dict[str, Any],
        settings: dict[str, Any],
        record: _Record,
        started: float,
    ) -> EmbeddingTable:
        """The trained table with its scores, not saved yet."""
        warm_epochs = settings.get("warm_epochs", 0)
        before: dict[str, float] = {}
        if record.checkpoint.stage() == "TransR":
            before = record.checkpoint.facts["more"]["before"]
        elif warm_epochs:
            start, before = self._train_start(data, record)
        model = self._build_model(self.model, data, **start)
        record = record._replace(first_step=warm_epochs, more={"before": before})
        fit_model(model, data.factory, self.model, self._passes(self.lr, self.epochs), record)
        seconds = time.perf_counter() - started
        scores = data.score(model)
        metrics = {f"test/{name}": value for name, value in scores.items()}
        record.journal.metrics(metrics | {"train/seconds": seconds})
        manifest = {
            "settings": settings,
            "scores": scores,
            "seconds": seconds,
            "test_triples": len(data.test),
            "train_triples": len(data.training),
            "graph": settings["graph"],
            "mlflow_run": record.journal.run_id,
            "commit": commit(),
        }
        return table_of(model, data.graph, manifest | ({"warm_scores": before} if before else {}))

    def _train_start(self, data: _Data, record: _Record) -> tuple[dict[str, Any], dict[str, float]]:
        """(arguments of a TransR that starts from a TransE trained here, that one's scores)."""
        first = self._build_model("TransE", data)
        passes = self._passes(self.warm_lr or self.lr, self.warm_epochs)
        fit_model(first, data.factory, "TransE", passes, record)
        scores = data.score(first)
        record.journal.metrics({f"test/warm_{name}": value for name, value in scores.items()})
        vectors = (first.entity_representations[0](), first.relation_representations[0]())
        return started_from(*vectors), scores

    def _passes(self, lr: float, epochs: int) -> Passes:
        return Passes(lr, epochs, self.batch_size, self.negatives, self.filtered)

    def _build_model(self, name: str, data: _Data, **start: Any) -> ERModel:
        """The untrained model on the device."""
        loss = MarginRankingLoss if self.loss == "margin" else NSSALoss
        kwargs = start | self._options_of(name)
        dims, lost = (self.dim, self._relation_dim), loss(margin=self.margin)
        return network(
            name, data.factory, *dims, self.norm, loss=lost, random_seed=self.seed, **kwargs
        ).to(data.device)


def _leave(work: Path, journal: Journal) -> None:
    """Deliver the journal, and remove its folder when all of it has arrived."""
    if journal.close():
        shutil.rmtree(work)


def start_table(
    folder: str, graph: KnowledgeGraph, name: str, dim: int, held_out: int, seed: int
) -> tuple[Tensor, Tensor]:
    """(entity, relation) vectors of the TransE table in `folder`, which must fit. Raises InputError
    that says what does not."""
    table = EmbeddingTable.load(folder)
    table.check_graph(graph.ids, name)
    if (
        table.relation is None
        or table.projection is not None
        or table.relation_ids != graph.relations
    ):
        raise InputError(
            f"{folder}: expected a TransE table with the relations of {name}; train one: kepl"
            " graph embed --help"
        )
    if table.entity.shape[1] != dim:
        raise InputError(
            f"{folder}: vectors of {table.entity.shape[1]}, expected dim {dim}; give --dim or"
            " another table"
        )
    settings = table.manifest.get("settings", {})
    if (settings.get("held_out"), settings.get("seed")) != (held_out, seed):
        raise InputError(
            f"{folder}: trained with held_out {settings.get('held_out')} and seed"
            f" {settings.get('seed')}, here {held_out} and {seed}: it has seen triples"
            " that TransR is scored on. Give the same ones."
        )
    return table.entity, table.relation


def _print_scores(out: str, table: EmbeddingTable) -> None:
    scores = "  ".join(f"{k} {v:.4f}" for k, v in table.manifest["scores"].items())
    print(
        f"{out}: {len(table.entity_ids):,} entities, {len(table.relation_ids)} relations; "
        f"{table.manifest['test_triples']:,} held-out triples (filtered): {scores}"
    )
