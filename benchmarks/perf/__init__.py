"""Measurements of machines, not of models: speed, scale, a GPU, rehearsals on synthetic data."""
