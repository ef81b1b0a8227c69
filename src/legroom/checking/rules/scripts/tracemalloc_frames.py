"""LR059: tracemalloc with deep tracebacks around a training."""

from __future__ import annotations

from collections.abc import Iterable

from legroom.checking.rule_helpers import per_script
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.asker import integer_of
from legroom.reading.interpreter.script import Script, argument

_TRAINING = ("torch", "stable_baselines3", "sb3_contrib", "gymnasium", "gym", "jax")


def look(script: Script) -> Iterable[Found]:
    if not any(script.imports(package) for package in _TRAINING):
        return
    for call in script.calls_of("tracemalloc.start"):
        frames = integer_of(script, argument(call, "nframe", 0))
        if frames is not None and frames > 1:
            yield Found(
                f"tracemalloc keeps {frames} frames per allocation and slows the whole training; it sees Python's "
                "allocations only, not torch's",
                "start it for a few hundred steps, after the memory is known to grow",
                call.lineno,
            )


RULE = Rule(
    code="LR059",
    name="tracemalloc-frames",
    severity="info",
    what="tracemalloc runs with several frames per allocation during a training.",
    why="Every allocation stores its traceback: the run is many times slower, and tensors are not seen at all.",
    example="tracemalloc.start(25)\nmodel.learn(1_000_000)\n",
    remedy="Measure first whether memory grows at all; trace only then, and briefly.",
    look=per_script(look),
)
