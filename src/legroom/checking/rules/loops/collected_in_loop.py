"""LR100: gc.collect() in every step."""

from __future__ import annotations

from collections.abc import Iterable

from legroom.checking.boundless import in_training_loop
from legroom.checking.rule_helpers import per_script
from legroom.checking.torch_sources import loops_of, runs_every_turn
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.script import Script


def look(script: Script) -> Iterable[Found]:
    for call in script.calls_of("gc.collect"):
        loops = loops_of(script, call)
        if loops and runs_every_turn(script, call, loops[0]) and in_training_loop(script, call):
            yield Found(
                "gc.collect() in every turn of the training loop walks all objects of the process each time; tensors "
                "are freed when their last name goes, without it",
                "leave it out, or look for what still holds the tensors",
                call.lineno,
            )


RULE = Rule(
    code="LR100",
    name="collected-in-loop",
    severity="info",
    what="gc.collect() is called in every turn of a training loop.",
    why="With torch loaded there are hundreds of thousands of objects to walk, and tensors are rarely among what only "
    "the collector can free.",
    example="for batch in data:\n    net(batch).mean().backward()\n    optimizer.step()\n    gc.collect()\n",
    remedy="Leave it out, or call it once per epoch.",
    look=per_script(look),
)
