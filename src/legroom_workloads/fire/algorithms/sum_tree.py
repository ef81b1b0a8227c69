"""A binary tree of sums over an array of weights: draws an index in proportion to its weight in log2(n) steps.

All operations are on whole batches of indices. A parent is always computed as the sum of its two children and never
corrected by a difference: so the tree is a function of its leaves, rounding errors do not pile up over millions of
updates, and a tree that is built anew from saved leaves has the same bits as the one that was saved.
"""

import numpy as np
from numpy.typing import NDArray


def leaves_of(capacity: int) -> int:
    """Return how many leaves a tree for so many weights has: the next power of two."""
    return 1 << max(capacity - 1, 0).bit_length()


class SumTree:
    """Weights by index, float64, at first all zero.

    `nodes` is the whole tree: the root at 1, the children of i at 2i and 2i + 1, the leaves in its second half.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._first_leaf = leaves_of(capacity)
        self.nodes = np.zeros(2 * self._first_leaf)

    @property
    def total(self) -> float:
        """The sum of all weights."""
        return float(self.nodes[1])

    @property
    def leaves(self) -> NDArray[np.float64]:
        """The weights [capacity], to be read."""
        return self.nodes[self._first_leaf : self._first_leaf + self.capacity]

    def __getitem__(self, indices: NDArray[np.int64]) -> NDArray[np.float64]:
        return self.nodes[self._first_leaf + indices]

    def update(self, indices: NDArray[np.int64], weights: NDArray[np.float64] | float) -> None:
        """Set the weights at `indices`; of an index that is there twice the last one counts."""
        nodes, at = self.nodes, self._first_leaf + indices
        nodes[at] = weights
        for _ in range(self._first_leaf.bit_length() - 1):
            at = at >> 1  # the same parent may be there twice, and gets the same sum twice
            nodes[at] = nodes[2 * at] + nodes[2 * at + 1]

    def rebuild(self, weights: NDArray[np.float64]) -> None:
        """Set all weights; those beyond the given ones become zero."""
        nodes, at = self.nodes, self._first_leaf
        nodes[at:] = 0.0
        nodes[at : at + len(weights)] = weights
        while at > 1:
            at //= 2
            nodes[at : 2 * at] = nodes[2 * at : 4 * at : 2] + nodes[2 * at + 1 : 4 * at : 2]

    def find(self, sums: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return for each of `sums`, in [0, total), the index at which the weights from the left come to exceed it.

        An index of weight zero is never returned, not even where rounding makes a sum as large as the total.
        """
        nodes, rest = self.nodes, np.array(sums, np.float64)
        at = np.ones(len(rest), np.int64)
        for _ in range(self._first_leaf.bit_length() - 1):
            at = 2 * at
            left = nodes[at]
            to_the_right = (rest >= left) & (nodes[at + 1] > 0)
            rest -= np.where(to_the_right, left, 0.0)
            at += to_the_right
        return at - self._first_leaf
