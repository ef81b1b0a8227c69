"""The verdict on series whose truth is known: what leaks is called so, what settles or saws is not."""

import numpy as np
import pytest

from legroom.watching.measuring import DROPPED_SHARE, FLOOR
from legroom.watching.trend import Verdict, combine
from legroom.watching.trend import judge as judge_from

STEPS = np.arange(0, 5_000, 50)  # 100 samples
LEVEL = 50_000_000.0


def series(rate: float = 0.0, *, noise: float = 0.0, seed: int = 0) -> np.ndarray:
    scatter = np.random.default_rng(seed).normal(0, noise, len(STEPS)) if noise else 0.0
    return LEVEL + rate * STEPS + scatter


def judge(steps, values) -> Verdict:
    """As `legroom profile` judges bytes over steps."""
    begin = steps[0] + DROPPED_SHARE * (steps[-1] - steps[0]) if len(steps) else 0
    return judge_from(steps, values, FLOOR, begin=begin)


def random_keys(size: int, nbytes: float, seed: int, steps: np.ndarray = STEPS) -> np.ndarray:
    """Bytes of a cache filled by random keys, drawn one per step."""
    keys = np.random.default_rng(seed).integers(0, size, steps[-1] + 1)
    is_new = np.zeros(len(keys))
    is_new[np.unique(keys, return_index=True)[1]] = 1
    return LEVEL + nbytes * np.cumsum(is_new)[steps]


@pytest.mark.parametrize("rate", [2.0, 64.0, 5_000.0])
def test_an_exact_leak_is_told_with_its_rate(rate):
    verdict = judge(STEPS, series(rate))
    assert verdict.verdict == "leak"
    assert verdict.rate == pytest.approx(rate, rel=0.01)
    assert verdict.interval[0] <= rate <= verdict.interval[1]


def test_a_tenth_of_a_byte_per_step_is_no_finding():
    assert judge(STEPS, series(0.1)).verdict == "ok"


def test_a_leak_under_noise_is_found_and_its_interval_holds_the_truth():
    verdicts = [judge(STEPS, series(64, noise=8_000, seed=seed)) for seed in range(40)]
    assert sum(verdict.verdict == "leak" for verdict in verdicts) >= 39
    assert sum(verdict.interval[0] <= 64 <= verdict.interval[1] for verdict in verdicts) >= 39


def test_noise_alone_is_no_leak():
    for noise in (1_000, 20_000, 1_000_000):
        assert not any(judge(STEPS, series(noise=noise, seed=seed)).verdict == "leak" for seed in range(100))


def test_noise_that_resembles_its_neighbours_is_no_leak():
    told = []
    for seed in range(100):
        shocks = np.random.default_rng(seed).normal(0, 20_000, len(STEPS))
        values = np.zeros(len(STEPS))
        for i in range(1, len(STEPS)):
            values[i] = 0.8 * values[i - 1] + shocks[i]
        told.append(judge(STEPS, LEVEL + values).verdict)
    assert told.count("leak") == 0


@pytest.mark.parametrize("size", [300, 1_000, 2_500, 6_000])
def test_a_cache_of_random_keys_is_no_leak_however_full(size):
    told = [judge(STEPS, random_keys(size, 200, seed)).verdict for seed in range(20)]
    assert "leak" not in told
    if size == 300:
        assert set(told) == {"ok"}
    if size == 6_000:
        assert set(told) == {"growing"}  # more than half empty: it does grow


def test_a_cache_with_a_limit_is_ok_once_full_and_no_leak_shortly_after():
    early, late = (LEVEL + 100.0 * np.minimum(STEPS, limit) for limit in (2_000, 4_500))
    assert judge(STEPS, early).verdict == "ok"
    assert judge(STEPS, late).verdict != "leak"


@pytest.mark.parametrize("period", [120, 430, 700, 1_300, 2_600])
def test_a_buffer_that_fills_and_is_dropped_is_no_leak(period):
    for offset in range(0, period, 97):
        assert judge(STEPS, LEVEL + 300.0 * ((STEPS + offset) % period)).verdict != "leak"


def test_something_loaded_once_is_no_leak():
    for at in range(200, 5_000, 300):
        assert judge(STEPS, LEVEL + 3_000_000.0 * (at <= STEPS)).verdict != "leak"


def test_a_leak_beside_a_buffer_that_fills_and_is_dropped_is_found_in_enough_steps():
    steps = np.arange(0, 40_000, 100)
    verdict = judge(steps, LEVEL + 64.0 * steps + 300.0 * (steps % 700))
    assert verdict.verdict == "leak"
    assert verdict.rate == pytest.approx(64, rel=0.1)


def test_a_leak_beside_a_cache_that_is_full_is_found():
    values = random_keys(500, 200, seed=1) + 64.0 * STEPS
    verdict = judge(STEPS, values)
    assert verdict.verdict == "leak"
    assert verdict.rate == pytest.approx(64, rel=0.1)


def test_samples_that_lie_closer_early_on_do_not_look_like_growth():
    # the lowest of many is lower than the lowest of few
    steps = np.concatenate([np.arange(0, 5_000, 25), np.arange(5_000, 20_000, 300)])
    for seed in range(60):
        scatter = np.random.default_rng(seed).exponential(30_000, len(steps))
        assert judge(steps, LEVEL + scatter).verdict != "leak"


@pytest.mark.parametrize("count", range(9))
def test_too_few_samples_never_say_leak(count):
    steps = list(range(0, 100 * count, 100))
    assert judge(steps, [LEVEL + 1_000.0 * step for step in steps]).verdict in ("growing", "ok")


def test_the_worst_part_decides_and_equal_parts_add_up():
    leak, other = Verdict("leak", 64.0, (60.0, 70.0)), Verdict("leak", 8.0, (5.0, 9.0))
    growing, calm = Verdict("growing", 30.0, (-5.0, 90.0)), Verdict("ok", 0.1, (-1.0, 1.0))
    assert combine([calm, leak, growing]) == leak
    together = combine([leak, calm, other])
    assert (together.verdict, together.rate, together.interval) == ("leak", 72.0, (65.0, 79.0))
    assert combine([calm, growing]).verdict == "growing"
    assert combine([calm, calm]).verdict == "ok"
