"""The NumPy twin of the C core: its oracle in the tests."""

from .store import Store, block_sums, gather, gather_pairs, gather_ring

__all__ = ["Store", "block_sums", "gather", "gather_pairs", "gather_ring"]
