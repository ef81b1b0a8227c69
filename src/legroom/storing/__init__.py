"""Lossless storage of observations in little memory: a C core, its NumPy twin, and SB3's buffers on it."""
