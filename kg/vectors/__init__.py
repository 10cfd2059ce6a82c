"""Vectors of the entities of a graph: TransE, TransR."""
