"""A log made readable: bytes of any encoding to lines without colours, carriage returns, prefixes and escapes.

Recognisers look for words and then read a window around them, so a message wrapped at 80 columns, with `[rank0]: ` or
`(RolloutWorker pid=1)` before every line, or with its newlines escaped as in JSON, reads the same as the plain one.
Windows are bounded, which bounds the work of every pattern whatever the input is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from html import unescape

WINDOW = 6000  # the longest message read as one: a CUDA text that names twenty processes
MOST_PLACES = 64  # the last so many occurrences of a word are looked at

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]{0,30}[ -/]?[@-~]|\][^\x07\x1b\n]{0,200}(?:\x07|\x1b\\)|[@-Z\\-_])")
_ESCAPED_NEWLINE = re.compile(r"(?<!\\)(?:\\r)?\\n")
_WINDOWS_PATH = re.compile(r"[A-Za-z]:\\(?!\\|n)|\\\\[\w.]+\\")
_PREFIX = re.compile(
    r"""[ \t]{0,8}(?:
      \[?rank[ ]?\d+\]?:[ ]?                                        # torchrun
    | \(\w[\w.:<>\[\]()=\-]{0,120}[ ]pid=\d+(?:,[ ]ip=[\w.:\-]+)?\)[ ]?   # Ray's drivers
    | \((?:raylet|autoscaler|gcs_server|pid=\d+)\)[ ]?
    | \[?\d{4}[-/]\d\d[-/]\d\d[T ,]{1,2}\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:[ ]?(?:Z|UTC|[+-]\d\d:?\d\d))?\]?:?(?=[ \t]|$)
    | \[?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]?(?=[ \t])
    | \[\d+,\d+\]<std(?:err|out)>:[ ]?                             # mpirun
    | \d{1,5}:[ ]                                                  # srun --label
    | [\w./\-]{1,80}[ ]{0,20}\|[ ]                                 # docker compose
    | wandb:[ ]
    | [│┃|>][ ]                                                    # rich's boxes, quotations
    | \[?(?:INFO|WARN(?:ING)?|ERROR|DEBUG|CRITICAL)\]?[ ]?[:|\-]?[ ]{1,3}(?=\S)
    )""",
    re.VERBOSE,
)
_ACTOR = re.compile(r"\((\w{1,80}) pid=\d+")
_MOST_PREFIXES = 5
_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")


def decode(raw: bytes) -> str:
    """Return the bytes as text; what cannot be decoded becomes replacement characters.

    PowerShell's `>` writes UTF-16.
    """
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return raw.decode("utf-16", errors="replace")
    return raw.decode("utf-8", errors="replace")


@dataclass(frozen=True)
class Log:
    """A cleaned log, searched by words."""

    text: str
    actors: str = ""  # whose lines they are, as Ray's drivers say before each

    @classmethod
    def of(cls, text: str) -> Log:
        """Return the log without colours, escapes and prefixes."""
        text = _ANSI.sub("", text) if "\x1b" in text else text
        text = unescape(text) if "&quot;" in text or "&gt;" in text or "&#" in text else text
        text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "").replace("\xa0", " ")
        actors = " ".join(sorted(set(_ACTOR.findall(text))))
        return cls("\n".join(_bare(line) for raw in text.split("\n") for line in _unescaped(raw)), actors)

    @cached_property
    def low(self) -> str:
        """The text in lower case on one line, every character where it was: messages are wrapped anywhere."""
        low = self.text.lower()
        low = low if len(low) == len(self.text) else self.text.translate(_LOWER)  # İ becomes two characters
        return low.replace("\n", " ")

    def places(self, word: str) -> Iterator[int]:
        """Yield where a lower-case word stands, the last first."""
        place = len(self.low)
        for _ in range(MOST_PLACES):
            place = self.low.rfind(word, 0, place)
            if place < 0:
                return
            yield place
            place += len(word) - 1

    def message(self, place: int, *, length: int = WINDOW, before: int = 0) -> str:
        """Return the text from a place on as one line, ending where the next traceback begins."""
        window = self.text[max(place - before, 0) : place + length]
        end = window.find("Traceback (most recent call last)", before + 20)
        return " ".join((window if end < 0 else window[:end]).split())

    def line(self, place: int) -> str:
        start = self.text.rfind("\n", max(place - WINDOW, 0), place) + 1
        start = max(start, place - WINDOW)
        end = self.text.find("\n", place, place + WINDOW)
        return self.text[start : end if end >= 0 else place + WINDOW]

    def around(self, place: int, *, before: int = 3000, after: int = 3000) -> str:
        return self.text[max(place - before, 0) : place + after]


def _unescaped(line: str) -> list[str]:
    """Return the lines of one in which newlines are escaped, as in JSON; a Windows path's `\\n` is none."""
    if line.startswith("{") and line.endswith("}"):
        values = _json_texts(line)
        if values:
            return [part for value in values for part in value.split("\n")]
    if "\\n" not in line or (_WINDOWS_PATH.search(line) and "\\n " not in line and "\\nT" not in line):
        return [line]
    return [part.replace('\\"', '"').replace("\\t", "\t") for part in _ESCAPED_NEWLINE.split(line)]


def _json_texts(line: str) -> list[str]:
    """Return the texts in a line of a JSON log (`{"log": "Killed\\n", "stream": …}`), none where it is no JSON."""
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return []
    return [value for value in document.values() if isinstance(value, str)]


def _bare(line: str) -> str:
    """Return the line without what launchers and loggers put before it."""
    for _ in range(_MOST_PREFIXES):
        match = _PREFIX.match(line)
        if match is None:
            break
        line = line[match.end() :]
    return line.rstrip()
