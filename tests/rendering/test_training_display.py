"""What a user sees while a training runs: plain lines in a pipe, a picture that fits on a terminal."""

import io
import math
import re
import subprocess
import sys

import pytest

from legroom.model.footprint import Peak, Phase
from legroom.model.outcome import MemorySample, Progress
from legroom.rendering.training_display import (
    MemoryGauge,
    TerminalDisplay,
    TrainingView,
    can_be_live,
    gauge_bar,
    picture,
    progress_line,
    scale_of,
)

MIB, GIB = 1 << 20, 1 << 30
PREDICTED = Peak(700 * MIB, 650 * MIB, 750 * MIB, Phase.UPDATE)


def bare(line):
    return re.sub(r"\x1b\[[\d;]*m", "", line)


class Clock:
    seconds = 0.0

    def __call__(self):
        return self.seconds


def make_view(clock=None, limit=16 * GIB, gpu=False):
    gauge = MemoryGauge("GPU", Peak(5 * GIB, 4 * GIB, 6 * GIB, Phase.UPDATE), 8 * GIB)
    host = MemoryGauge("host", PREDICTED, limit)
    return TrainingView("mine:small", 100_000, host=host, gpu=gauge if gpu else None, clock=clock or Clock())


def message(timesteps, seconds, *, phase="collect", iteration=1, reward=None, speed=212.4):
    return Progress(timesteps, 100_000, iteration, phase, speed, reward, None, seconds)


def test_a_line_has_steps_speed_reward_time_left_and_memory():
    view = make_view()
    view.progress(message(0, 0.0))
    view.progress(message(4_000, 20.0, iteration=2, reward=1.234))  # 96,000 left at 200 a second: 480 s
    view.memory(MemorySample(20.0, 612 * MIB, None, "collect"))
    assert progress_line(view) == (
        "    4,000 / 100,000 steps   212 steps/s   reward 1.23   ETA 8 min   "
        "host 612.0 MiB (predicted 700.0 MiB, limit 16.0 GiB)"
    )


def test_a_line_leaves_out_what_is_not_known():
    view = make_view()
    view.progress(message(0, 0.0, speed=math.nan, reward=math.nan))
    assert progress_line(view) == "        0 / 100,000 steps"


def test_a_reward_stays_until_there_is_another():
    view = make_view()
    view.progress(message(10, 1.0, reward=2.5))
    view.progress(message(20, 2.0, reward=math.nan))
    assert "reward 2.50" in progress_line(view)


def test_plain_lines_come_soon_then_at_new_phases_then_every_ten_seconds():
    clock, stream = Clock(), io.StringIO()
    with TerminalDisplay(make_view(clock), stream) as display:
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
    with TerminalDisplay(make_view(clock), stream) as display:
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

    display = TerminalDisplay(make_view(), Closed())
    display.say("hello")
    display.progress(message(1, 1.0))


def test_a_stream_without_our_characters_gets_others():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", errors="strict")
    TerminalDisplay(make_view(), stream).say("ETA ≥ 7 min")
    assert raw.getvalue() == b"ETA ? 7 min\n"


class Terminal(io.TextIOWrapper):
    def __init__(self, encoding="utf-8"):
        self.raw_bytes = io.BytesIO()
        super().__init__(self.raw_bytes, encoding=encoding, write_through=True)

    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "environ", "live"),
    [
        (Terminal(), {"TERM": "xterm-256color"}, True),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (Terminal(), {"TERM": "dumb"}, False),
        (Terminal(), {}, False),
        (Terminal("latin-1"), {"TERM": "xterm"}, False),
        (io.StringIO(), {"TERM": "xterm"}, False),
    ],
)
def test_it_is_live_only_where_that_can_be_seen(stream, environ, live):
    assert can_be_live(stream, environ) is live


def test_the_live_display_draws_and_keeps_lines_that_are_said():
    stream = Terminal()
    with TerminalDisplay(make_view(), stream, live=True) as display:
        display.say("resuming from step 600 [exact]")
        display.progress(message(600, 1.0, reward=0.5))
        display.memory(MemorySample(1.0, 612 * MIB, None, "collect"))
    text = stream.raw_bytes.getvalue().decode()
    assert "resuming from step 600 [exact]" in text
    assert "612.0 MiB" in text
    assert text.endswith("\n") and text.count("\x1b[J") >= 1  # the last picture stays


@pytest.mark.parametrize("width", [40, 80, 120, 300])
def test_the_picture_fits_every_width_from_the_first_moment_on(width):
    view = make_view(gpu=True)
    assert all(len(bare(line)) <= width for line in picture(view, width))
    for i in range(50):
        view.progress(message(2000 * i, 5.0 * i, iteration=i // 3, reward=math.sin(i) * 10**i))
        view.memory(MemorySample(5.0 * i, (20 * i) * MIB, 7 * GIB, "update"))
        assert all(len(bare(line)) <= width for line in picture(view, width))
    text = "\n".join(map(bare, picture(view, width)))
    assert "GPU" in text
    if width >= 80:
        assert "ETA" in text
        assert "98,000 / 100,000  98 %" in text
        assert "(predicted 700.0 MiB" in text


def bar_of(gauge, width=80):
    return gauge_bar(gauge, width)


def test_a_memory_bar_ends_at_the_limit_when_that_is_near_and_marks_the_prediction():
    near = MemoryGauge("host", Peak(500, 500, 500, Phase.UPDATE), 1000).at(250)
    assert scale_of(near) == 1000
    bar = bar_of(near)
    assert bar.index("┃") == len(bar) // 2
    assert bar.count("█") == len(bar) // 4


def test_a_limit_far_away_does_not_flatten_the_bar():
    far = MemoryGauge("host", Peak(500, 400, 800, Phase.UPDATE), 64_000).at(250)
    assert scale_of(far) == 1000  # a quarter more than the upper end of the band
    assert scale_of(far.at(2000)) == 2500
    assert scale_of(far.at(20_000)) == 64_000


def test_the_peak_so_far_stays_visible():
    gauge = MemoryGauge("host", Peak(900, 900, 900, Phase.UPDATE), 1000).at(800).at(100)
    assert gauge.peak == 800
    assert "░" in bar_of(gauge)


def test_memory_is_coloured_by_how_close_it_is():
    gauge = MemoryGauge("host", Peak(500, 450, 550, Phase.UPDATE), 1000)
    assert [gauge.at(n).level for n in (540, 551, 860, 950)] == ["good", "warning", "warning", "danger"]
    assert MemoryGauge("host").at(10**12).level == "good"


def test_lines_in_a_pipe_cost_no_heavy_import():
    code = (
        "import sys, legroom.rendering.training_display as t, legroom.rendering.outcome_text\n"
        "t.TerminalDisplay(t.TrainingView('x', 1, host=t.MemoryGauge('host'), gpu=None), sys.stderr).say('hello')\n"
        "print(sorted({'rich', 'pydantic', 'numpy'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("[]\n", "hello\n")
