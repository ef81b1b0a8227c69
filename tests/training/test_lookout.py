"""When a training is told to write a checkpoint before its memory runs out, and when it is left alone."""

from legroom.model.outcome import MemorySample
from legroom.training.lookout import Lookout

GIB = 1 << 30


def alarm(samples, limit=10 * GIB, expected=None):
    """Return the second at which it speaks, None where it does not."""
    lookout = Lookout(limit, expected)
    return next((each.seconds for each in samples if lookout.sees(each)), None)


def rising(from_gib, per_s, seconds, **around):
    return [
        MemorySample(t / 2, int((from_gib + per_s * t / 2) * GIB), None, "collect", **around)
        for t in range(2 * seconds)
    ]


def test_a_leak_is_seen_in_time_for_a_checkpoint():
    assert alarm(rising(2, 0.05, 200)) == 150  # at 9.5 of 10 GiB, 10 s before the end


def test_breathing_below_the_limit_is_left_alone():
    samples = [MemorySample(t, int((6 + 3 * (t % 20) / 20) * GIB), None, "collect") for t in range(1000)]
    assert alarm(samples) is None


def test_being_where_the_prediction_said_is_no_reason():
    assert alarm(rising(9.8, 0, 60), expected=int(9.9 * GIB)) is None
    assert alarm(rising(9.8, 0, 60)) == 0


def test_what_others_in_the_container_take_counts():
    assert alarm(rising(6, 0, 60, left_nbytes=3 * GIB)) is None
    assert alarm(rising(6, 0, 60, left_nbytes=GIB // 10)) == 0


def test_standing_still_for_memory_near_the_limit_is_enough():
    assert alarm(rising(8.5, 0, 60, pressure=0.1)) is None
    assert alarm(rising(8.5, 0, 60, pressure=0.6)) == 0
    assert alarm(rising(3, 0, 60, pressure=0.6)) is None  # somebody else's trouble


def test_without_a_limit_there_is_nothing_to_look_out_for():
    assert alarm(rising(2, 1, 200), limit=None) is None
