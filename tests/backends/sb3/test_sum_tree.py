"""If these fail, prioritized replay draws something else than its priorities say, or not the same after a resume."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legroom_workloads.fire.algorithms.sum_tree import SumTree, leaves_of

WEIGHTS = [1.0, 2.0, 0.0, 3.0, 4.0]


def tree_of(weights):
    tree = SumTree(len(weights))
    tree.update(np.arange(len(weights)), np.array(weights))
    return tree


def test_a_sum_is_found_where_the_weights_exceed_it():
    tree = tree_of(WEIGHTS)
    assert tree.total == 10.0
    assert tree.find(np.array([0.0, 0.99, 1.0, 2.99, 3.0, 5.99, 6.0, 9.99])).tolist() == [0, 0, 1, 1, 3, 3, 4, 4]


def test_a_sum_as_large_as_the_total_ends_at_the_last_weight_there_is():
    assert tree_of([1.0, 2.0, 0.0, 0.0, 0.0]).find(np.array([3.0, 7.0])).tolist() == [1, 1]


def test_of_an_index_that_comes_twice_the_last_weight_counts():
    tree = tree_of(WEIGHTS)
    tree.update(np.array([1, 3, 1]), np.array([9.0, 1.0, 5.0]))
    assert tree.leaves.tolist() == [1.0, 5.0, 0.0, 1.0, 4.0]
    assert tree.total == 11.0


@pytest.mark.parametrize(("capacity", "leaves"), [(1, 1), (2, 2), (3, 4), (64, 64), (65, 128), (100_000, 131_072)])
def test_its_memory_is_two_numbers_per_leaf(capacity, leaves):
    assert leaves_of(capacity) == leaves
    assert SumTree(capacity).nodes.nbytes == 2 * 8 * leaves


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.lists(st.tuples(st.integers(0, 39), st.floats(0, 1e6)), max_size=60), st.randoms())
def test_a_tree_of_the_same_leaves_has_the_same_bits(capacity, changes, random):
    tree, again = SumTree(capacity), SumTree(capacity)
    for index, weight in changes:
        tree.update(np.array([index % capacity]), weight)
    again.rebuild(tree.leaves.copy())
    assert tree.nodes.tobytes() == again.nodes.tobytes()
    if tree.total > 0:
        found = tree.find(np.array([random.random() * tree.total for _ in range(20)]))
        assert (tree[found] > 0).all()
