"""Sweeps: a grid of settings, a trial for each of its points, and what is kept of them on disk. Knows no Ray."""
