"""Sets constants of a program while it runs: `BATCH_SIZE = 32` is executed, and then holds another number.

The parent says which lines assign them, in which code. That code is traced, and the name is bound anew as soon as its
line has been executed, before the next one reads it. A trace sees `__main__` too, which no import hook does. Tracing
ends once every constant has been set; without constants nothing is traced.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict, List

VARIABLE = "LEGROOM_CONSTANTS"


def begin(journal: Any) -> None:
    """Set the constants of this process's environment as soon as they are assigned."""
    wanted = json.loads(os.environ.get(VARIABLE) or "[]")
    if wanted:
        sys.settrace(_Setting(wanted, journal).on_call)


class _Setting:
    def __init__(self, wanted: List[Dict[str, Any]], journal: Any) -> None:
        self._journal = journal
        self._left = {each["name"] for each in wanted}
        self._by_scope: Dict[str, List[Dict[str, Any]]] = {}
        for each in wanted:
            self._by_scope.setdefault(each["scope"], []).append(each)

    def on_call(self, frame: Any, event: str, argument: object) -> Any:
        """Trace the lines of code that assigns constants, and no other code."""
        code = frame.f_code
        wanted = self._by_scope.get(code.co_name)
        if wanted is None:
            return None
        file = os.path.realpath(code.co_filename)
        wanted = [each for each in wanted if each["file"] == file and code.co_firstlineno in each["begins"]]
        return _Lines(self, wanted).on_event if wanted else None

    def assigned(self, frame: Any, constant: Dict[str, Any]) -> None:
        name = constant["name"]
        frame.f_locals[name] = constant["value"]  # of a function too: a trace function's changes are taken over
        if name in self._left:
            self._left.discard(name)
            self._journal.json("constant", name=name, file=constant["file"], line=constant["first"])
        if not self._left and sys.gettrace() == self.on_call:
            sys.settrace(None)


class _Lines:
    """The lines of one frame."""

    def __init__(self, setting: _Setting, wanted: List[Dict[str, Any]]) -> None:
        self._setting, self._wanted = setting, wanted
        self._before = 0
        self._end = max(each["last"] for each in wanted)

    def on_event(self, frame: Any, event: str, argument: object) -> Any:
        now = frame.f_lineno if event == "line" else 0
        for each in self._wanted:
            if each["first"] <= self._before <= each["last"] and not each["first"] <= now <= each["last"]:
                self._setting.assigned(frame, each)
        self._before = now
        if now > self._end:
            frame.f_trace = None
            return None
        return self.on_event
