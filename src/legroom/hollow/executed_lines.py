"""Tells which lines of the program's own files run while it trains, and where in them the optimizer steps.

The parent compares them with the source: what a training has not reached yet may take more than what it has. Lines are
of interest from the first optimizer step on; what ran before is over. Python 3.12 and newer say each line once, at no
cost after that. Older ones trace, which slows Python code down: so tracing ends once no new line came for a while, and
begins again when memory is requested at a place for the first time since then.

An evaluation that is written down and not come to yet is told of, too: it may take more than the training, for example
where it takes a whole test set at once. Its mark is a line that calls `eval()` of a module, in a file
whose code is under way when the optimizer steps. The parent waits for it a while, and names the line otherwise.
"""

from __future__ import annotations

import ast
import atexit
import os
import sys
import time
from typing import Any

import torch

from . import source_lines

QUIET_S, QUIET_STEPS = 0.5, 8  # without a new line, until tracing ends
_MONITORING: Any = getattr(sys, "monitoring", None)
_TOOL = 4  # of sys.monitoring: neither debuggers, coverage, profilers nor optimizers


class ExecutedLines:
    """The lines that were executed since the first optimizer step."""

    def __init__(self, follower: Any) -> None:
        self._follower = follower
        self._seen: dict[str, set[int]] = {}
        self._new: dict[str, list[int]] = {}
        self._users: dict[Any, bool] = {}  # code objects of the program's own
        self._stack: Any = None
        self._begun = self._tracing = False
        self._last_new = (0.0, 0)  # seconds, steps
        self._steps = 0

    def look(self, steps: int) -> dict[str, Any]:
        """Return what to tell of an optimizer step: the calls under way, where they changed; tell of new lines."""
        # the program's functions that are being executed, the innermost first
        frames = [frame for frame in source_lines.calls() if self._is_user(frame.f_code)]
        stack = [(each.f_code.co_filename, each.f_lineno, each.f_code.co_firstlineno) for each in frames]
        for frame in frames:
            self._add(frame.f_code, frame.f_lineno)
        if not self._begun:
            self._begun = True
            self._begin()
        elif _MONITORING is None:
            self._steps = steps
            quiet_s, quiet_steps = time.monotonic() - self._last_new[0], steps - self._last_new[1]
            if self._tracing and quiet_s > QUIET_S and quiet_steps > QUIET_STEPS:
                self._end()
        if self._new:
            new, self._new = self._new, {}
            self._last_new = (time.monotonic(), steps)
            self._follower.journal.json("lines", lines=new)
        if stack == self._stack:
            return {}
        self._stack = stack
        return {"stack": stack}

    def _is_user(self, code: Any) -> bool:
        found = self._users.get(code)
        if found is None:
            found = self._users[code] = source_lines.kind_of(code.co_filename) == source_lines.USER
        return found

    def _add(self, code: Any, line: int) -> None:
        seen = self._seen.setdefault(code.co_filename, set())
        if line not in seen:
            seen.add(line)
            self._new.setdefault(code.co_filename, []).append(line)

    def _begin(self) -> None:
        modules = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        for file in modules:  # functions of these may be called later
            if isinstance(file, str) and os.path.isabs(file) and source_lines.kind_of(file) == source_lines.USER:
                self._new.setdefault(file, [])
        if _MONITORING is None:
            atexit.register(self._end)  # a trace function may not outlive our modules
            self._follower.sites.first_asked = self._trace
            self._trace()
        elif _MONITORING.get_tool(_TOOL) is None:
            _MONITORING.use_tool_id(_TOOL, "legroom")
            _MONITORING.register_callback(_TOOL, _MONITORING.events.LINE, self._monitored)
            _MONITORING.set_events(_TOOL, _MONITORING.events.LINE)

    def _monitored(self, code: Any, line: int) -> Any:
        if self._is_user(code):
            self._add(code, line)
        return _MONITORING.DISABLE

    def _end(self) -> None:
        self._tracing = False
        if sys.gettrace() == self._called:
            sys.settrace(None)

    def _trace(self) -> None:
        if sys.gettrace() is not None:  # ours already, or a debugger's
            return
        self._tracing, self._last_new = True, (time.monotonic(), self._steps)
        for frame in source_lines.calls():
            if self._is_user(frame.f_code):
                frame.f_trace = self._line
        sys.settrace(self._called)

    def _called(self, frame: Any, event: str, argument: Any) -> Any:
        if not self._is_user(frame.f_code):
            return None
        self._add(frame.f_code, frame.f_lineno)
        return self._line

    def _line(self, frame: Any, event: str, argument: Any) -> Any:
        if event == "line":
            self._add(frame.f_code, frame.f_lineno)
        return self._line


LOOKED_AT_STEP = 2  # by then, what is set up once has been set up


class Evaluations:
    """Which lines call `eval()`, and which of them have been reached."""

    def __init__(self, follower: Any) -> None:
        self._follower = follower
        self._reached: set[tuple[str, int]] = set()
        self._awaited: set[tuple[str, int]] = set()
        self._ended = False
        plain = torch.nn.Module.eval

        def evaluated(module: Any) -> Any:
            frame = sys._getframe(1)
            self._reached.add((frame.f_code.co_filename, frame.f_lineno))
            return plain(module)

        module_type: Any = torch.nn.Module
        module_type.eval = evaluated

    def look(self, steps: int) -> None:
        """Look at the program when the optimizer has made a step."""
        if steps == LOOKED_AT_STEP:
            files = {frame.f_code.co_filename for frame in source_lines.calls()}
            lines = {
                line
                for file in files
                if source_lines.kind_of(file) == source_lines.USER
                for line in _calls_of_eval(file)
            }
            self._awaited = lines - self._reached
            if self._awaited:
                file, line = min(self._awaited)
                self._follower.journal.json("evaluation awaited", file=file, line=line)
        elif self._awaited and not self._ended and self._awaited & self._reached:
            self._ended = True  # training goes on
            self._follower.journal.json("evaluation ended")


def _calls_of_eval(file: str) -> list[tuple[str, int]]:
    """Return the lines of a file that call a method `eval` without arguments; none of a file that cannot be read."""
    try:
        with open(file, "rb") as opened:
            tree = ast.parse(opened.read())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and not node.args and not node.keywords]
    return [(file, call.lineno) for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "eval"]
