"""Programs compiled once answer for every setting: which axis grows with what, and the largest of the sums."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legroom.backends.brax.pieces import (
    FEW,
    Program,
    Sizes,
    card_marks,
    card_replay_marks,
    evenness,
    marked_replay,
    marked_sizes,
    term_of,
    undominated,
)

N, B, M, U = 61, 61 * 67, 71, 73


@pytest.mark.parametrize(
    ("dimensions", "term"),
    [
        ([], "1"), ([3, 3], "1"), ([N, 18], "N"), ([U, N, 58], "NU"), ([B, U, 58], "BU"), ([U - 1, B], "BW"),
        ([U + 1, B], "BV"), ([(U + 1) * B, 256], "BV"),
        ([M, B, U], "BMU"), ([B * M, U, 58], "BMU"), ([67 * M, U, N, 58], "BMU"), ([B * M], "BM"),
        ([M], "M"), ([67 * M], "k"), ([B * U, 256], "BU"), ([4, M], "M"),
    ],
)  # fmt: skip
def test_an_array_says_by_its_dimensions_what_it_grows_with(dimensions: list[int], term: str) -> None:
    assert term_of(dimensions, marked_sizes(one_unroll=False)) == term


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("even", [64, 16, 2, 1])
def test_marks_for_a_card_are_as_people_train_and_no_axis_of_the_model(few: bool, even: int) -> None:
    taken = {12, 13, 18, 40, 320, 336, 7, 46, 256}
    for one_unroll in (True, False):
        marked = card_marks(taken, one_unroll=one_unroll, few=few, even=even)
        assert (marked.unrolls == 1) is one_unroll and evenness(marked.batch) == even
        assert (marked.minibatches <= FEW) is few
        n, b, m, u = marked.envs, marked.batch, marked.minibatches, marked.unroll
        assert not {b, m, u - 1, u, u + 1, round(marked.unrolls)} & taken
        arrays = {
            "NU": [u, n, 58],
            "BU": [b * u, 256],
            "BV": [(u + 1) * b, 256],
            "BMU": [m, b, u],
            "M": [m],
            "1": [256],
        }
        whole = "BMU" if one_unroll else "NU"  # the environments are the segments
        assert {term: term_of(axes, marked) for term, axes in arrays.items()} == {**{t: t for t in arrays}, "NU": whole}
    assert term_of([round(marked.unrolls), 1, u, n, 4], marked) == "BMU"


def test_marked_sizes_are_what_brax_accepts() -> None:
    many, one = marked_sizes(one_unroll=False), marked_sizes(one_unroll=True)
    assert (many.unrolls, one.unrolls) == (67 * 71, 1)
    assert many.value("BMU") * 58 < 2**31  # arrays beyond that would be compiled otherwise


@pytest.mark.parametrize(
    "marked", [marked_replay(one_update=False), card_replay_marks({14, 256, 448 * 3}, one_update=False)]
)
def test_the_updates_of_a_sac_step_are_told_from_the_batch_of_one(marked: Sizes) -> None:
    n, b, m, u = marked.envs, marked.batch, marked.minibatches, marked.unroll
    assert u != 14  # an axis of the model
    arrays = {"M": [m, 130], "BU": [u * b, 130], "B": [b, 256], "N": [n, 58], "U": [u], "1": [256]}
    assert {term: term_of(axes, marked) for term, axes in arrays.items()} == {term: term for term in arrays}
    assert term_of([u, b, 8], marked) == "BU"
    # of 8 updates with 256 transitions each, all are sampled at once; activations are of one of them
    program, sizes = Program(({"BU": 100.0, "B": 3000.0},)), Sizes(128, 256, 10**6, 8, replay=True)
    assert program.nbytes(sizes) == 2048 * 100 + 256 * 3000


def test_the_fullest_moment_decides() -> None:
    # 1,000 B per environment while it collects; 100 B per sample of a minibatch while it learns
    program = Program(({"N": 1000.0, "1": 24.0}, {"BU": 100.0}))
    assert program.nbytes(Sizes(envs=8, batch=2, minibatches=4, unroll=5)) == 8024
    assert program.nbytes(Sizes(envs=8, batch=64, minibatches=4, unroll=5)) == 32_000
    assert program.fullest(Sizes(8, 64, 4, 5), {"BU": 0.1}) == {"N": 8000, "1": 24}


@given(st.lists(st.fixed_dictionaries({"N": st.integers(0, 50), "BU": st.integers(0, 50)}), min_size=1, max_size=12))
def test_leaving_out_what_is_never_the_largest_changes_no_answer(pieces: list[dict[str, float]]) -> None:
    kept = Program(undominated(pieces))
    for sizes in (Sizes(1, 1, 1, 1), Sizes(100, 2, 50, 3), Sizes(4, 512, 1, 20)):
        assert kept.nbytes(sizes) == Program(tuple(pieces)).nbytes(sizes)


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 16), st.integers(1, 32))
def test_more_of_anything_never_needs_less(k: int, batch: int, minibatches: int, unroll: int) -> None:
    program = Program(({"N": 3.0, "BMU": 2.0, "k": 1.0}, {"BU": 7.0, "NU": 1.0}))
    envs = batch * minibatches
    small = program.nbytes(Sizes(envs, batch * k, minibatches, unroll))
    assert program.nbytes(Sizes(envs, batch * k, minibatches, unroll + 1)) >= small
    assert program.nbytes(Sizes(envs, 2 * batch * k, minibatches, unroll)) >= small
