"""Verdicts and forecasts on curves of memory that are known, since they are made here."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from legroom.model.trace import MemoryLimit, Sample
from legroom.units import MIB
from legroom.watching.judging import forecast, judge, phases

Curve = Callable[[float], float]  # seconds -> MiB


def curve(
    shape: Curve, seconds: float, *, every: float = 0.5, noise: float = 0.5, seed: int = 1, asked: bool = True
) -> list[Sample]:
    """Return samples of a shape with noise in MiB; `asked`: whether memory is asked for only when it grows."""
    chance = random.Random(seed)
    found = []
    for i in range(int(seconds / every)):
        t = i * every
        host = int((shape(t) + abs(chance.gauss(0, noise))) * MIB)
        found.append(Sample(t, host, None, {"trainer": host}, 0 if asked else int(4000 * MIB) - host))
    return found


def imports(t: float) -> float:
    return 300 * min(t / 8, 1)


def saw(t: float) -> float:
    return 150 * ((t % 7) / 7)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("flat", lambda t: 300),
        ("imports, then flat", imports),
        ("rollouts come and go", lambda t: imports(t) + saw(t)),
        ("slow rollouts", lambda t: 300 + 400 * ((t % 61) / 61)),
        ("a buffer that filled", lambda t: imports(t) + min(t, 70) * 5),
        ("a cache that warmed up", lambda t: imports(t) + 200 * (1 - 2.718 ** (-t / 20))),
        ("loaded once, late", lambda t: imports(t) + (150 if t > 120 else 0)),
    ],
)
def test_what_does_not_grow_any_more_is_ok(name: str, shape: Curve, seed: int) -> None:
    assert judge(curve(shape, 200, noise=2, seed=seed))[0] == "ok"


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("mib_per_s", "shape"),
    [
        (0.5, lambda t: imports(t) + 0.5 * t),
        (1.0, lambda t: imports(t) + saw(t) + 1.0 * t),
        (1.0, lambda t: imports(t) + 12 * (t // 12)),
        (1.5, lambda t: imports(t) + max(t - 60, 0) * 1.5),
        (1.0, lambda t: imports(t) + min(t, 60) * 4 + t),
    ],
    ids=["steady", "under rollouts", "in steps", "after a while", "beside a buffer that filled"],
)
def test_steady_growth_to_the_end_is_a_leak(mib_per_s: float, shape: Curve, seed: int) -> None:
    verdict, why, growth_per_s = judge(curve(shape, 200, noise=2, seed=seed))
    assert verdict == "leak", why
    assert growth_per_s / MIB == pytest.approx(mib_per_s, rel=0.2)


def test_memory_reserved_before_is_a_fill_not_a_leak() -> None:
    samples = curve(lambda t: imports(t) + 2 * t, 200, asked=False)
    assert judge(samples)[0] == "growing"
    # 4,000 MiB were reserved: all of it fits into 5,000, and not into 3,000
    assert forecast(samples, MemoryLimit(5000 * MIB, "given")) is None
    coming = forecast(samples, MemoryLimit(3000 * MIB, "given"))
    assert coming is not None and coming.reaches == pytest.approx((3000 - 300) / 2, rel=0.02)


def test_a_buffer_fills_although_another_one_is_asked_for_meanwhile() -> None:
    """If this fails, a replay buffer is called a leak, and a date is told at which memory runs out."""
    samples = curve(lambda t: imports(t) + 2 * t, 240)
    asked = [int((1000 + (500 if sample.t > 120 else 0)) * MIB) for sample in samples]
    filling = [replace(each, untouched=total - each.host) for each, total in zip(samples, asked, strict=True)]
    verdict, why, _ = judge(filling)
    assert verdict == "growing" and "reserved" in why
    assert forecast(filling, MemoryLimit(2000 * MIB, "given")) is None
    leaking = [replace(each, untouched=each.untouched + int(each.t * MIB)) for each in filling]
    assert forecast(leaking, MemoryLimit(2000 * MIB, "given")) is not None


def test_nothing_is_foretold_while_workers_start() -> None:
    """If this fails, memory is said to run out in seconds while workers are started one after the other."""
    starting = curve(lambda t: 200 + 100 * min(t // 1.5, 12), 17, every=0.25)
    limit = MemoryLimit(2000 * MIB, "given")
    assert forecast(starting, limit) is not None  # a root that grows so, alone
    assert forecast(starting, limit, started=16.5) is None


def test_what_still_loads_libraries_is_no_leak() -> None:
    growing = curve(lambda t: 20 + 40 * t, 6, every=0.05)
    loading = [replace(sample, files=sample.host // 3) for sample in growing]
    assert judge(growing)[0] == "leak" and judge(loading)[0] == "growing"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("linear", lambda t: imports(t) + 2 * t),
        ("linear under rollouts", lambda t: imports(t) + saw(t) + 2 * t),
        ("in steps", lambda t: imports(t) + 20 * (t // 10)),
        ("after a while", lambda t: imports(t) + max(t - 100, 0) * 3),
        ("beside a cache", lambda t: imports(t) + 2 * t + 100 * (1 - 2.718 ** (-t / 15))),
    ],
)
def test_end_is_foretold_when_half_of_the_memory_is_used(name: str, shape: Curve, seed: int) -> None:
    limit = 1600
    whole = curve(shape, 1500, noise=6, seed=seed)
    death = next(sample.t for sample in whole if sample.host >= limit * MIB)
    half = next(i for i, sample in enumerate(whole) if sample.host >= limit * MIB / 2)
    coming = forecast(whole[: half + 1], MemoryLimit(limit * MIB, "given"))
    assert coming is not None and coming.certain
    assert abs(coming.reaches - death) <= 0.15 * (death - coming.made)  # of the time left, which is harder
    assert coming.earliest <= coming.reaches and (coming.latest or 1e9) >= coming.reaches


def test_nothing_is_foretold_of_what_is_steady() -> None:
    samples = curve(lambda t: imports(t) + saw(t), 300, noise=5)
    assert forecast(samples, MemoryLimit(500 * MIB, "given")) is None


def test_phases_are_start_fill_and_steady() -> None:
    found = phases(curve(lambda t: imports(t) if t < 10 else 300 + min(t - 10, 90) * 10, 300, noise=0.1))
    assert [phase.name for phase in found] == ["start", "fill", "steady"]
    assert found[1].end == pytest.approx(100, abs=3) and found[2].peak == pytest.approx(1200 * MIB, rel=0.01)


@pytest.mark.parametrize("last", [(175, 118, 118, 66, 17), (184, 106), (190, 170, 150, 130, 110, 90)])
def test_an_ending_that_takes_several_samples_is_no_trend(last: tuple[int, ...]) -> None:
    # as sampled on a busy machine: the kernel takes 200 MiB back in pieces
    samples = curve(lambda t: 33 * t, 6.2, every=0.06, noise=0.2)
    samples += [Sample(6.2 + 0.06 * i, mib * MIB, None, {}) for i, mib in enumerate(last)]
    verdict, why, growth_per_s = judge(samples)
    assert verdict == "leak", why
    assert growth_per_s / MIB == pytest.approx(33, rel=0.05)
