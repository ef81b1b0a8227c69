"""What a user sees while a training runs: plain lines in a pipe, a line that is redrawn on a terminal."""

import io
import math
import subprocess
import sys

import pytest

from legroom.model.footprint import Peak, Phase
from legroom.model.outcome import MemorySample, Progress
from legroom.rendering.training_display import MemoryGauge, TerminalDisplay, TimeLeft

MIB, GIB = 1 << 20, 1 << 30
PREDICTED = Peak(700 * MIB, 650 * MIB, 750 * MIB, Phase.UPDATE)


class Clock:
    seconds = 0.0

    def __call__(self):
        return self.seconds


def shown(stream=None, clock=None, *, live=False):
    host = MemoryGauge("host", PREDICTED, 16 * GIB)
    return TerminalDisplay(100_000, stream or io.StringIO(), host=host, gpu=None, live=live, clock=clock or Clock())


def message(timesteps, seconds, *, phase="collect", iteration=1, reward=None, speed=212.4):
    return Progress(timesteps, 100_000, iteration, phase, speed, reward, None, seconds)


def test_a_line_has_steps_speed_reward_time_left_and_memory():
    display = shown()
    display.progress(message(0, 0.0))
    display.progress(message(4_000, 20.0, iteration=2, reward=1.234))  # 96,000 left at 200 a second: 480 s
    display.memory(MemorySample(20.0, 612 * MIB, None, "collect"))
    assert display.line() == (
        "    4,000 / 100,000 steps   212 steps/s   reward 1.23   ETA 8 min   "
        "host 612.0 MiB (predicted 700.0 MiB, limit 16.0 GiB)"
    )
    display.progress(message(4_100, 21.0, iteration=2, reward=math.nan))  # a reward stays until there is another
    assert "reward 1.23" in display.line()
    empty = shown()
    empty.progress(message(0, 0.0, speed=math.nan, reward=math.nan))
    assert empty.line() == "        0 / 100,000 steps"


def test_plain_lines_come_soon_then_at_new_phases_then_every_ten_seconds():
    clock, stream = Clock(), io.StringIO()
    with shown(stream, clock) as display:
        for tenth in range(300):  # half a minute, ten messages a second; updates from 12 s to 15 s and 22 s to 25 s
            clock.seconds = tenth / 10
            phase = "update" if tenth // 10 in (12, 13, 14, 22, 23, 24) else "collect"
            display.progress(message(10 * tenth, clock.seconds, phase=phase))
    lines = stream.getvalue().splitlines()
    steps = [int(line.split("/")[0].replace(",", "")) for line in lines]
    assert steps == [10, 1010, 1200, 2200, 2990]  # first steps; 10 s later; the first update; 10 s later; the end
    assert lines[2].endswith("update")


def test_a_long_update_shows_that_it_is_alive_once_a_minute():
    clock, stream = Clock(), io.StringIO()
    with shown(stream, clock) as display:
        display.progress(message(0, 0.0))
        clock.seconds = 5.0
        display.progress(message(100, 5.0))
        for second in range(6, 200):
            clock.seconds = second
            display.memory(MemorySample(second, 500 * MIB, None, "update"))
    assert len(stream.getvalue().splitlines()) == 1 + 3


def test_a_reader_that_went_away_does_not_end_the_training():
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    display = shown(Closed())
    display.say("hello")
    display.progress(message(1, 1.0))


def test_a_stream_without_our_characters_gets_others():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", errors="strict")
    shown(stream).say("ETA ≥ 7 min")
    assert raw.getvalue() == b"ETA ? 7 min\n"


def test_the_live_line_is_redrawn_below_what_is_said_and_stays_at_the_end():
    stream = io.StringIO()
    with shown(stream, live=True) as display:
        display.progress(message(600, 1.0, reward=0.5))
        display.memory(MemorySample(1.0, 612 * MIB, None, "collect"))
        display.say("checkpoint at step 600")
    text = stream.getvalue()
    assert text.index("600 / 100,000") < text.index("checkpoint") and text.count("600 / 100,000") == 2
    assert text.endswith("\n") and "\x1b[J" in text


def test_lines_in_a_pipe_cost_no_heavy_import():
    code = (
        "import sys, legroom.rendering.training_display as t, legroom.rendering.outcome_text\n"
        "t.TerminalDisplay(1, sys.stderr, host=t.MemoryGauge('host'), gpu=None).say('hello')\n"
        "print(sorted({'rich', 'pydantic', 'numpy'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("[]\n", "hello\n")


@pytest.mark.parametrize(
    ("messages", "waited_s", "text"),
    [  # messages: seconds, steps of 1,000, round
        ([], 0, ""),
        ([(5, 0, 1)], 0, ""),
        ([(0, 0, 1), (10, 50, 1)], 0, "≥ 3 min"),  # 950 steps at 5 a second: only a lower bound before an update
        ([(0, 0, 1), (10, 100, 1)], 10, "≥ 3 min"),  # which grows while the first update says nothing
        # a round is 100 steps in 10 s and 30 s of update: at the beginning of round 3, 800 steps at 100 per 40 s
        ([(0, 0, 1), (10, 100, 1), (40, 100, 2), (50, 200, 2), (80, 200, 3)], 0, "5 min"),
        ([(0, 0, 1), (40, 500, 2), (60, 900, 2)], 0, "20 s"),  # collected: it counts down within a round
        ([(0, 0, 1), (40, 500, 2), (60, 900, 2)], 5, "15 s"),  # also in the middle of the update
        ([(0, 0, 1), (40, 100, 2), (80, 200, 3), (90, 300, 3)], 10_000, "5 min"),  # 700 at 2.5 a second are to come
        ([(5, 600, 7), (45, 700, 8)], 0, "2 min"),  # a resumed run counts what it made itself
        ([(0, 0, 1), (40, 100, 2), (80, 200, 3), (3, 100, 2), (13, 150, 2)], 0, "≥ 3 min"),  # another attempt
        ([(0, 0, 1), (40, 500, 2), (50, 1000, 2)], 0, ""),
        ([(0, 0, 1), (40, 100, 2), (math.nan, 150, 3)], 0, "6 min"),
        # off-policy: 500 steps in 5 s without learning, then 1 step a second
        ([(t, 100 * t, t) for t in range(6)] + [(5 + t, 500 + t, 5 + t) for t in range(1, 196)], 0, "5 min"),
    ],
)
def test_the_time_left(messages, waited_s, text):
    left = TimeLeft()
    for seconds, timesteps, iteration in messages:
        left.add(Progress(timesteps, 1000, iteration, "collect", math.nan, None, None, seconds))
    assert left.text(waited_s) == text
