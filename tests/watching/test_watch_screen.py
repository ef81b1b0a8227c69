"""The live line on a terminal: the command's own output stays as it is, what is drawn is below it, and goes."""

import fcntl
import os
import pty
import re
import struct
import termios
from collections.abc import Iterator

from tests.watching.watch_helpers import ENVIRONMENT, LEGROOM, PYTHON

from legroom.model.trace import Forecast, MemoryLimit, Sample
from legroom.rendering.document import Document, Note
from legroom.rendering.watch_text import WatchDisplay, live_line

ROWS, COLUMNS = 20, 80
TOKEN = re.compile(rb"\x1b\[(\d*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")


class Terminal:
    """A terminal of 20 rows that knows the sequences that are used, and nothing else."""

    def __init__(self) -> None:
        self.rows = [""] * ROWS
        self.gone: list[str] = []
        self.row = self.column = 0

    def feed(self, data: bytes) -> None:
        place = 0
        while place < len(data):
            found = TOKEN.match(data, place)
            assert found is not None, data[place : place + 20]
            place = found.end()
            if found[4]:
                self._write(found[4].decode(errors="replace"))
            elif found[3] == b"\r":
                self.column = 0
            elif found[3] == b"\n":
                self._down()
            elif found[2] == b"K":
                self.rows[self.row] = self.rows[self.row][: self.column]
            else:
                assert found[2] == b"m", found[2]

    def _down(self) -> None:
        if self.row == ROWS - 1:
            self.gone.append(self.rows.pop(0))
            self.rows.append("")
        else:
            self.row += 1

    def _write(self, text: str) -> None:
        line = self.rows[self.row].ljust(self.column)
        assert self.column + len(text) <= COLUMNS, "a line that wraps"
        self.rows[self.row] = line[: self.column] + text + line[self.column + len(text) :]
        self.column += len(text)

    def lines(self) -> list[str]:
        return [line.rstrip() for line in (*self.gone, *self.rows)]


def sample(t: float, **roles: int) -> Sample:
    by_role = {"trainer": 0, "workers": 0, "others": 0} | {name: nbytes << 20 for name, nbytes in roles.items()}
    return Sample(t, sum(by_role.values()), gpu=3 << 30, by_role=by_role)


def test_what_is_drawn_stays_below_what_the_command_writes() -> None:
    terminal = Terminal()
    display = WatchDisplay(terminal.feed, live=True)
    limit = MemoryLimit(8 << 30, "given")
    for number in range(60):
        display.memory(sample(number, trainer=100 + number, workers=50), limit, None)
        display.pass_on(f"\r{number:>3}% done".encode())  # a bar that does not end its line
        display.memory(sample(number + 0.6, trainer=100, workers=50), limit, None)
        assert terminal.rows[terminal.row] == f"{number:>3}% done"
        if number % 2:
            display.pass_on(f"\r\nline {number}\r\n".encode())
    display.memory(sample(60, trainer=160, workers=50), limit, None)
    drawn = terminal.rows[terminal.row :]
    assert drawn[0].endswith("210.0 MiB of 8.0 GiB · GPU 3.0 GiB · workers 50.0 MiB · 1 min") and not any(drawn[1:])
    display.end(Document("", Note("the end"), ()))
    shown = [line for line in terminal.lines() if line]
    expected = [text for n in range(1, 60, 2) for text in (f"{n:>3}% done", f"line {n}")]
    assert shown == [*expected, "legroom watch: the end"]


def test_the_line_says_workers_gpu_limit_and_forecast() -> None:
    coming = Forecast(29.0, 629.0, 600.0, 700.0, certain=True)
    line = live_line(sample(29.0, trainer=256, workers=256), MemoryLimit(1 << 30, "given"), coming)
    assert line.startswith("████████░░░░░░░░ 512.0 MiB of 1.0 GiB · GPU 3.0 GiB · workers 256.0 MiB · 29 s · ")
    assert "memory runs out in about 10 min" in line


def read_all(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            chunk = os.read(terminal, 1 << 16)
        except OSError:  # the other end is closed
            return
        if not chunk:
            return
        yield chunk


def test_on_a_terminal_the_commands_output_is_whole() -> None:
    script = (
        "import sys, time\nfor i in range(12):\n"
        "    print(f'\\rbar {i}', end='', file=sys.stderr, flush=True)\n    time.sleep(0.15)\n"
        "print('\\nout', flush=True)\ntime.sleep(0.3)\n"
    )
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(LEGROOM[0], [*LEGROOM, "watch", "--", PYTHON, "-c", script], {**ENVIRONMENT, "TERM": "xterm"})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    screen, seen = Terminal(), False
    for chunk in read_all(terminal):
        screen.feed(chunk)
        seen = seen or any("█" in line or "░" in line for line in screen.rows)
    os.waitpid(pid, 0)
    os.close(terminal)
    lines = [line for line in screen.lines() if line]
    assert seen and lines[:2] == ["bar 11", "out"]
    assert lines[2].startswith("legroom watch: ") and not any("░" in line for line in lines)
