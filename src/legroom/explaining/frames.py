"""The frames of the traceback that ends at a place of a log: which library asked, for whom, and in which script."""

from __future__ import annotations

import itertools
import re
import shlex
from dataclasses import dataclass
from pathlib import PurePosixPath, PureWindowsPath

from legroom.explaining.log import Log

_FRAME = re.compile(r'File "([^"\n]{1,400})", line (\d{1,7})(?:, in ([^\n]{1,200}))?(?:(?=\n([^\n]{0,400})))?')
_RICH_FRAME = re.compile(r"^[ \t]*((?:[A-Za-z]:)?[^\s:]{1,300}\.py):(\d{1,7}) in (\w{1,100})[ ]*$()", re.MULTILINE)
_LIBRARY = re.compile(
    r"(?:site|dist)-packages|[/\\]lib[/\\]python\d|[/\\][Pp]ython\d+[/\\][Ll]ib[/\\]|^<|[/\\]multiprocessing[/\\]"
)
_STARTED = re.compile(
    r"(?P<by>\bpython[\d.]{0,5}(?:\.exe)?(?:[ ]+-[uOBX])*|(?:[\w./~-]{0,100}/)?isaaclab\.sh[ ]+(?:-p|--python)"
    r"|\b(?:torchrun|accelerate[ ]launch)(?:[ ]+[-\w=.:/]{1,100}){0,20}?)[ ]+"
    r"(?P<what>[\w./\\\-]{1,200}\.py\b|-m[ ]+[\w.]{1,200})(?P<rest>[^\n]{0,2000})"
)
# What stands before a command line in its line: a prompt, a shell's words about a job, variables; no prose.
_TYPED = re.compile(r"(?:^|[:$#%>❯»][ ]?|[ ]{2,}|\b(?:env|exec|nohup|time|(?:uv|poetry|pixi) run)[ ])(?:\w+=\S*[ ]+)*$")
_OPERATORS = ";&|<>()"
_NOT_WORDS = re.compile(r"(?<!\S)(?:[12](?=>)|#.*)")  # which stream is redirected; a remark
REACH = 12_000  # characters of traceback before the message


@dataclass(frozen=True)
class TracebackFrame:
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


def frames_before(log: Log, place: int) -> tuple[TracebackFrame, ...]:
    """Return the frames of the traceback whose message stands at `place`, outermost first."""
    window = log.text[max(place - REACH, 0) : place]
    begin = window.rfind("Traceback (most recent call last)")
    window = window[max(begin, 0) :]
    found = [(m.start(), m) for pattern in (_FRAME, _RICH_FRAME) for m in pattern.finditer(window)]
    return tuple(_frame(match) for _, match in sorted(found, key=lambda pair: pair[0]))


def innermost(log: Log, place: int, count: int) -> str:
    """Return the signatures of the innermost frames of the traceback whose message stands at `place`, a line each."""
    return "\n".join(frame.signature for frame in frames_before(log, place)[-count:])


def script_of(log: Log, place: int, frames: tuple[TracebackFrame, ...]) -> tuple[str | None, str]:
    """Return the script that was started, as it can be typed, and the command line; None, empty where it is not shown.

    Tracebacks print absolute paths whatever was typed; in the folder of the script its name is enough. Arguments are
    those of a command line in the log that started this script.
    """
    script = next(
        (frame.name for frame in frames if frame.function.startswith("<module>") and frame.path.endswith(".py")
         and not frame.library), None,
    )  # fmt: skip
    around = log.around(place, before=4000, after=400).replace("\\\n", " ")
    for found in reversed(list(_STARTED.finditer(around))):
        words, what = _words(around, found), found["what"].replace("\\", "/")
        named = PurePosixPath(what).name if what.endswith(".py") else f"{what.rpartition('.')[2]}.py"
        if script in (None, named):
            by = "python" if found["by"].startswith("python") else found["by"]
            alone = None if what.startswith("-m") else PurePosixPath(what).name
            return script or alone, " ".join([by, *shlex.split(what), shlex.join(words)]).rstrip()
    return script, f"python {shlex.quote(script)}" if script else ""


def _words(text: str, started: re.Match[str]) -> list[str]:
    """Return the arguments in a command line, up to where the shell does something else; none in a sentence."""
    if not _TYPED.search(text[text.rfind("\n", 0, started.start()) + 1 : started.start()]):
        return []
    reader = shlex.shlex(_NOT_WORDS.sub("", started["rest"]), posix=True, punctuation_chars=_OPERATORS)
    reader.whitespace_split, reader.commenters = True, ""
    try:
        words = list(reader)
    except ValueError:  # a quotation that does not end
        return []
    return list(itertools.takewhile(lambda word: not set(word) <= set(_OPERATORS), words))


def _frame(match: re.Match[str]) -> TracebackFrame:
    code = (match[4] or "").strip()
    return TracebackFrame(match[1], int(match[2]), (match[3] or "").strip(), "" if code.startswith('File "') else code)
