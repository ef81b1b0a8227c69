"""The live display of a training on a terminal: bars that move, drawn by rich.

Imported where it is shown, since importing rich takes 60 ms. A memory bar ends at the limit where the
prediction comes anywhere near it; else at a little more than the prediction, because a bar that ends at 64 GiB shows
nothing of a run that takes one. A mark stands at the predicted peak, and lighter blocks up to the peak so far.
"""

from __future__ import annotations

from itertools import groupby
from typing import Self, TextIO

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from legroom.model.progress import MemorySample, Progress, finite
from legroom.rendering.printable import printable
from legroom.rendering.time_left import duration_text, number_text
from legroom.rendering.training_display import MemoryGauge, TrainingView
from legroom.units import format_size

LABEL = 7
NARROWEST_BAR, WIDEST = 10, 130
NEAR_ENOUGH = 0.25  # of the limit: a smaller prediction gets a bar of its own scale
HEADROOM = 1.25
FRAMES_PER_S = 4
_LEVELS = {"good": "green", "warning": "yellow", "danger": "bold red"}
_PHASES = {"start": "dim", "collect": "cyan", "update": "magenta", "checkpoint": "blue", "evaluate": "yellow"}
_EIGHTHS = ("", *"▏▎▍▌▋▊▉")
_HEIGHTS = "▁▂▃▄▅▆▇█"


class LiveDisplay:
    """Redraws itself a few times a second while it is entered; the last picture stays."""

    def __init__(self, view: TrainingView, stream: TextIO) -> None:
        self.view = view
        self._console = Console(file=stream, highlight=False)
        self._live = Live(_Picture(view), console=self._console, refresh_per_second=FRAMES_PER_S, redirect_stdout=False,
                          redirect_stderr=False)  # fmt: skip

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def progress(self, progress: Progress) -> None:
        self.view.progress(progress)

    def memory(self, sample: MemorySample) -> None:
        self.view.memory(sample)

    def say(self, line: str) -> None:
        self._console.print(Text(printable(line)), soft_wrap=True)


class _Picture:
    """What rich asks for a picture; made anew each time from the figures there are then."""

    def __init__(self, view: TrainingView) -> None:
        self.view = view

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from picture(self.view, options.max_width)


def picture(view: TrainingView, width: int) -> list[Text]:
    """Return the lines of the display, none wider than `width`."""
    width = min(width, WIDEST)
    gauges = [gauge for gauge in (view.host, view.gpu) if gauge is not None and gauge.nbytes is not None]
    rows = [("steps", _steps_text(view))] + [(gauge.name, _gauge_text(gauge, width)) for gauge in gauges]
    if view.reward is not None:
        rows.append(("reward", _reward_text(view)))
    room = width - LABEL - 2 - max(len(text) for _, text in rows)
    bar = max(room, NARROWEST_BAR)
    bars = [_share_bar(_share_done(view), bar), *(_gauge_bar(gauge, bar) for gauge in gauges)]
    if view.reward is not None:
        bars.append(_curve(view.rewards, bar))
    lines = [_headline(view, width)]
    for (label, text), drawn in zip(rows, bars, strict=True):
        lines.append(Text.assemble((label.ljust(LABEL), "bold"), drawn, "  ", text))
    for line in lines:
        line.no_wrap = True
        line.truncate(width, overflow="ellipsis")
    return lines


def _headline(view: TrainingView, width: int) -> Text:
    now = view.now
    if now is None:
        return Text.assemble((printable(view.run_name), "bold"), "  ", ("starting", "dim"))
    left = Text.assemble((printable(view.run_name), "bold"), "  ", (now.phase, _PHASES.get(now.phase, "")), "  ")
    if now.iteration:
        left.append(f"iteration {now.iteration:,}", style="dim")
    if view.waiting:
        left.append(f"  {printable(view.waiting)}", style=_LEVELS["warning"])
    gone = view.elapsed_s
    right = Text.assemble((f"{duration_text(gone)} gone" if gone >= 1 else "", "dim"))
    if view.time_left or now.timesteps < view.total:
        right.append(f"   ETA {view.time_left or '…'}", style="bold")
    left.append(" " * max(width - len(left) - len(right), 2))
    return left.append_text(right)


def _share_done(view: TrainingView) -> float:
    return min(view.now.timesteps / view.total, 1.0) if view.now and view.total > 0 else 0.0


def _steps_text(view: TrainingView) -> Text:
    steps = view.now.timesteps if view.now else 0
    text = Text(f"{steps:,} / {view.total:,}  {int(100 * _share_done(view))} %")
    return text.append(f"  {view.speed}" if view.speed else "", style="bold")


def _reward_text(view: TrainingView) -> Text:
    text = Text.assemble((number_text(view.reward), "bold"))
    if view.episode_length is not None:
        text.append(f"  episodes of {number_text(view.episode_length)} steps", style="dim")
    return text


def _gauge_text(gauge: MemoryGauge, width: int) -> Text:
    text = Text.assemble((format_size(gauge.nbytes or 0), _LEVELS[gauge.level]))
    against = [("peak", gauge.peak)] if width >= 100 else []
    against += [("predicted", gauge.predicted.nbytes)] if gauge.predicted is not None else []
    against += [("limit", gauge.limit)] if gauge.limit is not None and width >= 70 else []
    for name, nbytes in against:
        text.append(f", {name} {format_size(nbytes)}", style="dim")
    return text


def _share_bar(share: float, width: int) -> Text:
    done = int(share * width)
    text = Text.assemble(("━" * done, "cyan"))
    if done < width:
        text.append("╸" if share * width - done >= 0.5 else "─", style="cyan" if share > 0 else "dim")
    return text.append("─" * (width - done - 1), style="dim")


def scale_of(gauge: MemoryGauge) -> int:
    """Return the bytes at the end of a gauge's bar."""
    expected = max(gauge.predicted.high if gauge.predicted else 0, gauge.peak, 1)
    if gauge.limit is not None and (gauge.predicted is None or expected >= NEAR_ENOUGH * gauge.limit):
        return max(gauge.limit, gauge.peak)
    return int(expected * HEADROOM)


def _gauge_bar(gauge: MemoryGauge, width: int) -> Text:
    scale, colour = scale_of(gauge), _LEVELS[gauge.level]
    used = min((gauge.nbytes or 0) / scale, 1.0) * width
    peak = min(gauge.peak / scale, 1.0) * width
    cells = [
        ("█", colour) if i < int(used) else ("░", colour) if i < round(peak) else ("─", "dim") for i in range(width)
    ]
    if int(used) < width and (part := _EIGHTHS[int(8 * (used % 1))]):
        cells[int(used)] = (part, colour)
    if gauge.predicted is not None:
        cells[min(int(gauge.predicted.nbytes / scale * width), width - 1)] = ("┃", "bold")
    by_style = groupby(cells, key=lambda cell: cell[1])  # one escape code per stretch, not per character
    return Text.assemble(*(("".join(sign for sign, _ in stretch), style) for style, stretch in by_style))


def _curve(rewards: list[tuple[int, float]], width: int) -> Text:
    """Return the rewards as blocks of eight heights, the steps so far spread over the width."""
    begin, end = rewards[0][0], rewards[-1][0]
    if begin == end:
        return Text("▁".ljust(width), style="cyan")
    columns: list[list[float]] = [[] for _ in range(width)]
    for steps, reward in rewards:
        columns[min(int((steps - begin) / (end - begin) * width), width - 1)].append(reward)
    lowest, highest = min(r for _, r in rewards), max(r for _, r in rewards)
    heights, last = [], rewards[0][1]
    for column in columns:
        last = sum(column) / len(column) if column else last
        share = finite((last - lowest) / (highest - lowest)) or 0.0 if highest > lowest else 0.0
        heights.append(_HEIGHTS[min(int(share * len(_HEIGHTS)), len(_HEIGHTS) - 1)])
    return Text("".join(heights), style="cyan")
