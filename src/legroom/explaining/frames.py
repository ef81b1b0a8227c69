"""The frames of the traceback that ends at a place of a log: which library asked, for whom, and in which script."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath, PureWindowsPath

from legroom.explaining.log import Log

_FRAME = re.compile(r'File "([^"\n]{1,400})", line (\d{1,7})(?:, in ([^\n]{1,200}))?(?:(?=\n([^\n]{0,400})))?')
_RICH_FRAME = re.compile(r"^[ \t]*((?:[A-Za-z]:)?[^\s:]{1,300}\.py):(\d{1,7}) in (\w{1,100})[ ]*$()", re.MULTILINE)
_LIBRARY = re.compile(
    r"(?:site|dist)-packages|[/\\]lib[/\\]python\d|[/\\][Pp]ython\d+[/\\][Ll]ib[/\\]|^<|[/\\]multiprocessing[/\\]"
)
_STARTED = re.compile(r"\bpython[\d.]{0,5}(?:\.exe)?[ ]+(?:-[uOBX][ ]+)*([\w./\\\-]{1,200}\.py)\b")
REACH = 12_000  # characters of traceback before the message


@dataclass(frozen=True)
class Frame:
    path: str
    line: int
    function: str
    code: str

    @property
    def library(self) -> bool:
        """Whether it is code of an installed package or of Python itself."""
        return bool(_LIBRARY.search(self.path))

    @property
    def name(self) -> str:
        """The file's name without its folders, written on whichever system."""
        pure = PureWindowsPath if "\\" in self.path else PurePosixPath
        return pure(self.path).name

    @property
    def signature(self) -> str:
        """Path, function and code in one text with forward slashes, for patterns."""
        return f"{self.path} | {self.function} | {self.code}".replace("\\", "/")


def frames_before(log: Log, place: int) -> tuple[Frame, ...]:
    """Return the frames of the traceback whose message stands at `place`, outermost first."""
    window = log.text[max(place - REACH, 0) : place]
    begin = window.rfind("Traceback (most recent call last)")
    window = window[max(begin, 0) :]
    found = [(m.start(), m) for pattern in (_FRAME, _RICH_FRAME) for m in pattern.finditer(window)]
    return tuple(_frame(match) for _, match in sorted(found, key=lambda pair: pair[0]))


def innermost(log: Log, place: int, count: int) -> str:
    """Return the signatures of the innermost frames of the traceback whose message stands at `place`, a line each."""
    return "\n".join(frame.signature for frame in frames_before(log, place)[-count:])


def script_of(log: Log, place: int, frames: tuple[Frame, ...]) -> str | None:
    """Return the script that was started, as it can be typed; None where the log does not show it.

    Tracebacks print absolute paths whatever was typed; in the folder of the script its name is enough.
    """
    for frame in frames:
        if frame.function.startswith("<module>") and frame.path.endswith(".py") and not frame.library:
            return frame.name
    around = log.around(place, before=4000, after=400)
    started = list(_STARTED.finditer(around))
    return PurePosixPath(started[-1][1].replace("\\", "/")).name if started else None


def _frame(match: re.Match[str]) -> Frame:
    code = (match[4] or "").strip()
    return Frame(match[1], int(match[2]), (match[3] or "").strip(), "" if code.startswith('File "') else code)
