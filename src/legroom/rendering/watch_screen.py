"""The live screen of a watching: memory by role over the last minutes, the GPU's, the limit and the forecast.

It is drawn below whatever the command has written, and the cursor goes back to where the command left it: a progress
bar that has not ended its line stays as it is, and the next byte of the command arrives where it belongs. Before
anything of the command is passed on, the screen is wiped. `\\x1bD` moves down and scrolls at the bottom, and unlike a
line feed it never changes the column.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from legroom.model.trace import ROLES, Forecast, MemoryLimit, Role, Sample
from legroom.rendering.layout import paint
from legroom.rendering.time_left import duration_text, runs_out_text
from legroom.units import format_size

WINDOW_S, LEAST_WINDOW_S = 180.0, 15.0
SHOWN_FROM = 0.01  # of the host's memory: what is less is not worth a line
LEAST_ROWS, LEAST_COLUMNS = 12, 40  # below which there is a line instead
MOST_COLUMNS = 100
ROLE_NAMES: dict[Role, str] = {"trainer": "trainer", "workers": "env workers", "others": "others"}
WIPE = b"\x1b7\x1b[E\x1b[J\x1b8"  # what is below the cursor's line; the line itself is the command's
_STEPS = "▁▂▃▄▅▆▇█"
_NAME, _SIZE = 12, 10  # columns


@dataclass(frozen=True)
class _Moment:
    t: float
    values: tuple[tuple[str, int], ...]


class WatchScreen:
    """Remembers the last minutes and draws them."""

    def __init__(self) -> None:
        self._moments: deque[_Moment] = deque()

    def add(self, sample: Sample) -> None:
        """Remember a sample."""
        values = [(ROLE_NAMES[role], sample.by_role.get(role, 0)) for role in ROLES]
        values += [("GPU", sample.gpu)] if sample.gpu is not None else []
        self._moments.append(_Moment(sample.t, tuple((name, nbytes) for name, nbytes in values if nbytes)))
        while self._moments[0].t < sample.t - WINDOW_S:
            self._moments.popleft()

    def lines(
        self, title: str, sample: Sample, limit: MemoryLimit | None, coming: Forecast | None, columns: int
    ) -> list[str]:
        """Return the screen, none of its lines wider than `columns`."""
        width = min(columns, MOST_COLUMNS)
        head = f"── {title} · {duration_text(sample.t)} "
        lines = [head + "─" * max(width - len(head), 0)]
        room = width - _NAME - _SIZE - 4
        for name in dict.fromkeys(name for moment in self._moments for name, _ in moment.values):
            series = [(moment.t, dict(moment.values).get(name, 0)) for moment in self._moments]
            if max(nbytes for _, nbytes in series) < SHOWN_FROM * sample.host:
                continue
            lines.append(f"{name:<{_NAME}} {format_size(series[-1][1]):>{_SIZE}}  {sparkline(series, room)}")
        lines.append(f"{'host total':<{_NAME}} {format_size(sample.host):>{_SIZE}}  {_against(sample, limit, room)}")
        if coming is not None:
            told = runs_out_text(coming) if coming.certain else "growing; it may settle"
            lines.append(f"{'forecast':<{_NAME}} {told}")
        return [line[:width] for line in lines]


def sparkline(series: Sequence[tuple[float, int]], width: int) -> str:
    """Return the last minutes as a row of bars, the highest being the most of that time."""
    width, end, highest = min(width, 60), series[-1][0], max(value for _, value in series) or 1
    window = min(max(end - series[0][0], LEAST_WINDOW_S), WINDOW_S)
    cells: list[int | None] = [None] * width
    for t, value in series:
        place = width - 1 - int((end - t) / window * width)
        if 0 <= place < width:
            cells[place] = max(cells[place] or 0, value)
    shown, last = "", 0
    for cell in cells[next(i for i, cell in enumerate(cells) if cell is not None) :]:
        last = last if cell is None else cell
        shown += _STEPS[min(int(last / highest * len(_STEPS)), len(_STEPS) - 1)]
    return shown


def _against(sample: Sample, limit: MemoryLimit | None, room: int) -> str:
    if limit is None:
        return ""
    bar = max(min(room - 16, 24), 4)
    full = round(min(sample.host / limit.nbytes, 1.0) * bar)
    return f"{'█' * full}{'░' * (bar - full)} of {format_size(limit.nbytes)}"


def drawn(lines: Sequence[str], *, colour: bool) -> bytes:
    """Return what draws the lines below the cursor's line and leaves the cursor where it is."""
    painted = [paint(line, "dim") if colour else line for line in lines]
    room = "\x1bD" * len(lines) + f"\x1b[{len(lines)}A"
    below = "".join(f"\x1b[E\x1b[K{line}" for line in painted)
    return f"{room}\x1b7{below}\x1b[J\x1b8".encode()
