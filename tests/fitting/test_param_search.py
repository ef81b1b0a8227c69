"""The largest value of an argument that fits: found exactly, in few tries, and never a value that was not tried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legroom.fitting.param_search import MOST_TRIES, find_frontier, find_largest, spread
from legroom.model.footprint import AllocatorPeaks, Footprint, Item, Place
from legroom.model.program_plan import Number, Param, ParamTrial
from legroom.model.rehearsal import HostSeen, ProgramPrediction, Rehearsal
from legroom.model.verdict import Budget, fits

MIB = 1 << 20
HOST = HostSeen(peak=0, last=0, workers=0, processes=1)


def trial(params: dict[str, Number], nbytes: int, limit: int, *, refused: str = "", unknown: str = "") -> ParamTrial:
    """Return a try that takes so many bytes of a card; one that does not fit ran out of memory, as in a rehearsal."""
    footprint = Footprint(
        "train.py", (Item("gpu.batch", min(nbytes, limit + 1), Place.GPU, ""),), "cuda",
        unknown=(unknown,) if unknown else (),
    )  # fmt: skip
    budget = Budget(ram=1 << 40, vram=limit)
    rehearsal = Rehearsal(("python",), 0, "finished", updates=1, repeats=0, seconds=1.0, host=HOST)
    return ParamTrial(params, ProgramPrediction(rehearsal, footprint, budget, fits(footprint, budget)), refused)


def grows(slope: int, base: int, limit: int, accepts: Callable[[Number], bool] = lambda value: True) -> Any:
    def attempt(value: Number) -> ParamTrial:
        needed = -(-int(base + slope * value) // (2 * MIB)) * 2 * MIB  # as segments are
        return trial({"n": value}, needed, limit, refused="" if accepts(value) else "ValueError: not divisible")

    return attempt


@settings(max_examples=200, deadline=None)
@given(
    slope=st.integers(100, 50 * MIB), base=st.integers(0, 1 << 30), limit=st.integers(1 << 26, 1 << 35),
    low=st.integers(1, 100), width=st.integers(0, 20_000),
)  # fmt: skip
def test_the_value_found_fits_and_the_next_one_does_not(
    slope: int, base: int, limit: int, low: int, width: int
) -> None:
    attempt = grows(slope, base, limit)
    found = find_largest(Param("n", range(low, low + width + 1)), attempt, most=60)
    fitting = [value for value in (low, low + width) if attempt(value).fits]
    if found.best is None:
        assert not attempt(low).fits
        return
    best = found.best.params["n"]
    assert attempt(best).fits
    if low + width in fitting:
        assert best == low + width
    else:
        assert found.next is not None and found.next.params["n"] == best + 1
    assert not found.why


def test_it_takes_few_tries() -> None:
    tries = [
        len(find_largest(Param("n", range(16, 65_537)), grows(slope * 1024, 300 * MIB, 4096 * MIB)).trials)
        for slope in (60, 100, 250, 700, 1500, 4000)
    ]
    assert max(tries) <= 14 < MOST_TRIES


def test_the_largest_value_is_not_tried_where_it_cannot_fit() -> None:
    found = find_largest(Param("n", range(16, 65_537)), grows(1024 * 1024, 300 * MIB, 4096 * MIB))
    assert found.best is not None and found.best.params == {"n": 3796}
    assert max(one.params["n"] for one in found.trials) < 5000
    whole = find_largest(Param("n", range(16, 1025)), grows(1024, 300 * MIB, 4096 * MIB))
    assert whole.best is not None and whole.best.params == {"n": 1024}
    assert [one.params["n"] for one in whole.trials] == [16, 131, 1024]


def cached(value: Number) -> ParamTrial:
    """Take 1 MiB per sample of 1000, and a half more as cache where there is room for it."""
    in_use = int(value) * MIB
    one = trial({"n": value}, max(in_use, min(in_use * 3 // 2, 998 * MIB)), 1000 * MIB)
    gpu = one.prediction.footprint.gpu
    assert gpu is not None
    footprint = replace(one.prediction.footprint, allocator=AllocatorPeaks(min(in_use, gpu.high), gpu.high, 0))
    return replace(one, prediction=replace(one.prediction, footprint=footprint))


def test_a_cache_that_shrinks_close_to_the_limit_does_not_flatten_the_line() -> None:
    """600 samples reserve 900 MiB with their cache and 850 samples 998: that is no reason to stay, nor to try 1400."""
    found = find_largest(Param("n", (600, 800, 850, 1100, 1200, 1400), given=True), cached)
    assert [one.params["n"] for one in found.trials] == [600, 850, 1100]
    fine = find_largest(Param("n", range(8, 8001, 8), given=True), cached)
    assert fine.best is not None and fine.best.params == {"n": 1000}
    assert len(fine.trials) <= 11


def test_memory_that_grows_with_the_square_takes_few_tries() -> None:
    def attempt(value: Number) -> ParamTrial:
        return trial({"n": value}, int(64 * value**2), 6_500_000_000)

    found = find_largest(Param("n", range(64, 24_577, 576), given=True), attempt)
    assert found.best is not None and found.best.params == {"n": 9856}
    assert len(found.trials) <= 6


def test_values_that_the_program_refuses_are_skipped() -> None:
    attempt = grows(1 * MIB, 0, 1000 * MIB, accepts=lambda value: value % 64 == 0)
    found = find_largest(Param("n", range(64, 4097)), attempt)
    assert found.best is not None and found.best.params == {"n": 960}
    assert found.next is not None and found.next.params == {"n": 1024}


def test_divisors_are_found_by_doubling() -> None:
    attempt = grows(1 * MIB, 0, 1000 * MIB, accepts=lambda value: 4096 % value == 0)
    found = find_largest(Param("n", range(32, 4097)), attempt)
    assert found.best is not None and found.best.params == {"n": 512}
    assert found.next is not None and found.next.params == {"n": 1024}


def test_few_values_of_a_stepped_range_are_accepted() -> None:
    divisors = grows(8 * MIB, 0, 5000 * MIB, accepts=lambda value: 1024 % value == 0)
    found = find_largest(Param("n", range(64, 1025, 8), given=True), divisors)
    assert found.best is not None and found.best.params == {"n": 512}
    assert found.next is not None and found.next.params == {"n": 1024} and len(found.trials) <= 16
    fourths = grows(1 * MIB, 0, 9600 * MIB, accepts=lambda value: value % 4 == 0)
    found = find_largest(Param("n", range(16, 16_385, 253), given=True), fourths)
    assert found.best is not None and found.best.params == {"n": 16 + 36 * 253}
    assert found.next is not None and found.next.params == {"n": 16 + 40 * 253} and len(found.trials) <= 10
    assert found.why == "the program refuses many values: between 9124 and 10136 only some were tried"


def test_only_the_listed_values_are_tried() -> None:
    attempt = grows(1 * MIB, 0, 100 * MIB, accepts=lambda value: value != 64)
    found = find_largest(Param("n", (16, 32, 64, 96, 128), given=True), attempt)
    assert found.best is not None and found.best.params == {"n": 96}
    assert {one.params["n"] for one in found.trials} <= {16, 32, 64, 96, 128}


def test_nothing_fits() -> None:
    found = find_largest(Param("n", range(8, 100)), grows(MIB, 500 * MIB, 200 * MIB))
    assert found.best is None and found.fits is False
    assert len(found.trials) == 1


def test_an_open_verdict_ends_the_search_with_its_reason() -> None:
    found = find_largest(
        Param("n", range(8, 100)), lambda value: trial({"n": value}, 1, 100, unknown="stopped before it repeated")
    )
    assert found.best is None and found.fits is None
    assert found.why == "unknown whether n=8 fits: stopped before it repeated"


def test_the_gap_below_an_open_verdict_is_searched_and_named() -> None:
    """A larger value may take too long to be seen to the end; the largest below it that is known is the answer."""

    def attempt(value: Number) -> ParamTrial:
        return trial({"n": value}, int(value * MIB), 480 * MIB, unknown="stopped early" if 400 <= value <= 480 else "")

    found = find_largest(Param("n", range(64, 4097)), attempt)
    assert found.best is not None and found.best.params == {"n": 399}
    assert found.why == "unknown whether n=400 fits: stopped early"
    assert found.next is None or (found.next.fits is False and found.next.params["n"] > 480)


def test_a_program_that_refuses_everything_is_quoted() -> None:
    found = find_largest(Param("n", range(8, 100)), grows(MIB, 0, 100 * MIB, accepts=lambda value: False))
    assert found.best is None and "refuses n=8: ValueError: not divisible" in found.why
    assert found.refused and found.fits is None  # nothing ran, so nothing is too large


def test_two_arguments_give_a_frontier() -> None:
    def attempt(envs: Number, batch: Number) -> ParamTrial:
        return trial({"envs": envs, "batch": batch}, int((envs + batch) * MIB), 100 * MIB)

    found = find_frontier(Param("envs", (10, 50, 90, 200), given=True), Param("batch", range(1, 101)), attempt)
    assert [dict(one.params) for one in found.frontier] == [
        {"envs": 10, "batch": 90}, {"envs": 50, "batch": 50}, {"envs": 90, "batch": 10},
    ]  # fmt: skip
    assert found.best is not None and found.best.params == {"envs": 50, "batch": 50}


def test_a_frontier_begins_each_column_where_the_last_one_ended() -> None:
    def attempt(envs: Number, batch: Number) -> ParamTrial:
        refused = "ValueError: not divisible" if batch == 64 and envs == 1 else ""
        return trial({"envs": envs, "batch": batch}, int((envs + batch) * MIB), 100 * MIB, refused=refused)

    batches = Param("batch", (4, 8, 16, 32, 64, 128), given=True)
    found = find_frontier(Param("envs", (1, 2, 4, 60), given=True), batches, attempt)
    tried = [tuple(one.params.values()) for one in found.trials]
    assert [one.params["batch"] for one in found.frontier] == [32, 64, 64, 32]
    assert tried[-7:] == [(2, 32), (2, 64), (4, 64), (60, 64), (60, 4), (60, 16), (60, 32)]


@pytest.mark.parametrize(("values", "wanted"), [((1, 2, 3), [1, 2, 3]), (range(1, 1025), [1, 4, 16, 64, 256, 1024])])
def test_values_are_spread_by_ratio(values: Any, wanted: list[int]) -> None:
    assert spread(values, 6) == wanted
