"""XLA is asked about a few sizes as they are; what it needs for others is the largest of three sums."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from legroom.backends.brax.plans import Asked, Plan, Sizes, Step, moments_of, solved
from legroom.xla.buffers import read_allocations

# shortened from what jaxlib 0.9 writes
TEXT = """BufferAssignment:
allocation 0: size 244, parameter 0, shape |f32[61]| at ShapeIndex {}, maybe-live-out:
 value: <1 x.1 @0> (size=244,offset=0): f32[61]{0}
allocation 1: size 4, constant:
 value: <2 constant.6 @0> (size=4,offset=0): s32[]
allocation 2: size 18300, preallocated-temp:
 value: <3 physics @0> (size=732,offset=0): f32[61,3]{1,0}
"""
COLLECTING, UPDATING = {"1": 800.0, "N": 9000.0, "S": 612.0}, {"1": 28_000.0, "BU": 7500.0, "W": 300.0, "BMU": 1224.0}
# of 8 updates with 256 transitions each, all are sampled at once; activations are of one of them
UPDATING_SAC = {"1": 500.0, "B": 3000.0, "BU": 100.0, "R": 40.0}
UPDATING_ONCE_SAC = {"1": 500.0, "P": 3500.0, "Q": 32.0}
COLLECTING_SAC = {"1": 0.0, "N": 5000.0, "M": 32.0}


def planned(step: Step, *, replay: bool = False) -> dict[Sizes, int]:
    """Return what XLA says where it plans as the step does."""
    return {sizes: step.nbytes(sizes) for moment in moments_of(replay=replay) for sizes in moment.asked}


def test_only_temporaries_are_counted() -> None:
    assert read_allocations(TEXT)["temporaries"] == 18_300


def test_a_few_sizes_tell_what_all_others_need() -> None:
    real = Step((UPDATING, COLLECTING))
    found = solved(planned(real), replay=False)
    for sizes in (Sizes(1024, 256, 4, 10), Sizes(16_384, 2048, 8, 20), Sizes(4096, 128, 32, 1), Sizes(128, 64, 16, 48)):
        assert abs(found.nbytes(sizes) / real.nbytes(sizes) - 1) < 0.01
    assert set(found.fullest(Sizes(4096, 128, 32, 1))) == {"1", "N", "S"}  # the physics of 4,096 environments


def test_what_every_size_takes_is_never_left_out() -> None:
    real = Step((UPDATING, COLLECTING, {"1": 6_000_000.0}))
    assert solved(planned(real), replay=False).nbytes(Sizes(8, 8, 1, 2)) == 6_000_000


def test_an_environment_without_physics_is_fullest_while_it_updates() -> None:
    real = Step(({"1": 0.0, "BU": 7500.0, "W": 0.0, "BMU": 1224.0},))
    assert len(solved(planned(real), replay=False).moments) == 1


def test_sac_keeps_a_copy_of_its_replay_and_samples_all_updates_at_once() -> None:
    real = Step((UPDATING_SAC, UPDATING_ONCE_SAC, COLLECTING_SAC))
    found = solved(planned(real, replay=True), replay=True)
    sizes = Sizes(128, 256, 10**6, 8, replay=True)
    assert abs(found.nbytes(sizes) / real.nbytes(sizes) - 1) < 0.01
    assert real.nbytes(sizes) == 500 + 2048 * 100 + 256 * 3000 + 40 * 10**6
    one = Sizes(128, 256, 10**6, replay=True)  # without a loop around its updates
    assert abs(found.nbytes(one) / (500 + 256 * 3500 + 32 * 10**6) - 1) < 0.01


def test_the_sizes_that_are_asked_are_what_brax_accepts() -> None:
    for moment in moments_of(replay=False):
        assert len(moment.asked) == len(moment.terms)
        assert all(sizes.batch * sizes.minibatches % sizes.envs == 0 for sizes in moment.asked)


def test_nothing_is_said_where_not_all_was_asked_that_tells() -> None:
    known = [Asked(sizes, nbytes) for sizes, nbytes in planned(Step((UPDATING, COLLECTING))).items()]
    assert Plan({}, "", None, {"": known}).step is not None
    assert Plan({}, "", None, {"": known[1:]}).step is None


def test_the_fullest_moment_decides() -> None:
    # 1,000 B per environment while it collects; 100 B per sample of a minibatch while it learns
    step = Step(({"N": 1000.0, "1": 24.0}, {"BU": 100.0}))
    assert step.nbytes(Sizes(envs=8, batch=2, minibatches=4, unroll=5)) == 8024
    assert step.nbytes(Sizes(envs=8, batch=64, minibatches=4, unroll=5)) == 32_000
    assert step.fullest(Sizes(8, 64, 4, 5), {"BU": 0.1}) == {"N": 8000, "1": 24}


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 16), st.integers(1, 32))
def test_more_of_anything_never_needs_less(k: int, batch: int, minibatches: int, unroll: int) -> None:
    step = Step((UPDATING, COLLECTING))
    envs = batch * minibatches
    small = step.nbytes(Sizes(envs, batch * k, minibatches, unroll))
    assert step.nbytes(Sizes(envs, batch * k, minibatches, unroll + 1)) >= small
    assert step.nbytes(Sizes(envs, 2 * batch * k, minibatches, unroll)) >= small
