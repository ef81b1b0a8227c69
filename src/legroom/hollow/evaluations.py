"""Tells of an evaluation that a program has written down and not come to yet.

A rehearsal stops once training repeats. An evaluation after that may take more than the training, for example where it
takes a whole test set at once. Its mark is a line that calls `eval()` of a module, in a file whose code is under way
when the optimizer steps. The parent waits for it a while, and names the line if it does not come.
"""

from __future__ import annotations

import ast
import sys
from typing import Any

import torch

from . import sites

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
            files = {frame.f_code.co_filename for frame in sites.calls()}
            lines = {line for file in files if sites.kind_of(file) == sites.USER for line in _calls_of_eval(file)}
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
