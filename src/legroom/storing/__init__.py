"""Lossless storage of observations in little memory: a C core, and SB3's buffers on it."""
