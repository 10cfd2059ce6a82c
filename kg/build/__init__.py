"""Graphs from their sources, merged, refined and cleaned; thesauri and segmenters of them."""
