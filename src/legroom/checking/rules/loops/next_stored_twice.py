"""LR091: observations stored a second time as next observations."""

from __future__ import annotations

import re
from collections.abc import Iterable

from legroom.checking.array_sources import made_arrays
from legroom.checking.rule_helpers import per_script
from legroom.checking.rules.loops.float_frames import LEAST, has_frames
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.script import Script
from legroom.units import format_size

_NEXT = re.compile(
    r"^(?P<owner>.*\.)?_?(?:next|new)_?(?P<rest>obs\w*|observations?|states?|frames?)(_buf\w*|_mem\w*)?$", re.I
)
_SEEN = re.compile(r"^(?P<owner>.*\.)?_?(?P<rest>obs\w*|observations?|states?|frames?)(_buf\w*|_mem\w*)?$", re.I)


def look(script: Script) -> Iterable[Found]:
    arrays = [array for array in made_arrays(script) if array.name and array.nbytes >= LEAST and has_frames(array)]
    for second in arrays:
        match = _NEXT.match(second.name)
        if match is None:
            continue
        for first in arrays:
            seen = _SEEN.match(first.name)
            same = seen is not None and seen["owner"] == match["owner"] and not _NEXT.match(first.name)
            if same and first.shape == second.shape and first.dtype == second.dtype:
                yield Found(
                    f"{second.name} holds what {first.name} has one row later: {format_size(second.nbytes)} for the "
                    "same pictures",
                    "read row i + 1 of the observations, and keep only those that end an episode",
                    second.call.lineno,
                )
                break


RULE = Rule(
    code="LR091",
    name="next-observations-stored",
    severity="info",
    what="A replay of pictures keeps observations and next observations in two arrays of the same size.",
    why="The next observation of a step is the observation of the following one, except at the end of an episode. "
    "Keeping both doubles the buffer.",
    example="self.obs = np.zeros((N, 84, 84, 4), np.uint8)\nself.next_obs = np.zeros((N, 84, 84, 4), np.uint8)\n",
    remedy="One array and an index; SB3's optimize_memory_usage does that.",
    look=per_script(look),
)
