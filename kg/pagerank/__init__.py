"""PEPR: the neighbours of an entity that matter most, as SMedBERT ranks them (Zhang et al., ACL
2021, Section 3.2).

    kepl graph neighbours --graph GRAPH --out FOLDER [--k 10 --alpha 0.15]

V_i = (1 - alpha) A V_{i-1} + alpha P, where P is 1 at the mention's entity and 1/Z at the others.
The K neighbours of the entity with the largest V make its row of a NeighbourTable.

Where the paper is silent or cannot be followed:
    alpha   is the probability of a jump, .15
    A       counts the distinct triples between two entities, either way round, each column divided
            by its sum. A triple from an entity to itself does not count. An entity without
            neighbours passes its score on to all alike.
    V_0     is t_e / T for an entity that the corpus mentions and 1/Z (the paper: 1/M, with M the
            number of samples) for any other, divided by its sum. Converged scores do not depend on
            it; it acts when `n_iter` cuts the iteration.

The iteration is linear in P, which is (1 - 1/Z) times a jump to the entity plus one uniform jump,
so V = (1 - 1/Z) PPR(entity) + PR with one PR for all entities (`pagerank`). Of PPR(entity) only the
values at the entity's neighbours are wanted: entries of the inverse of a sparse matrix at the
places where the matrix has entries. `personal` computes them by an elimination, exactly; on a graph
too large for that its error is bounded, and the bound is in the manifest.
"""

from kg.pagerank.ppr import Personal, personal, personal_steps
from kg.pagerank.scores import iterate, pagerank, pepr, start, weights
from kg.pagerank.table import NeighbourTable, best_relations, frequencies, rank, top

__all__ = [
    "NeighbourTable",
    "Personal",
    "best_relations",
    "frequencies",
    "iterate",
    "pagerank",
    "pepr",
    "personal",
    "personal_steps",
    "rank",
    "start",
    "top",
    "weights",
]
