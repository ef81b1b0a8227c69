"""LR083: torch.cuda.empty_cache() in every step."""

from __future__ import annotations

from collections.abc import Iterable

from legroom.checking.boundless import in_training_loop
from legroom.checking.rule_helpers import per_script
from legroom.checking.torch_sources import loops_of, runs_every_turn
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.script import Script


def look(script: Script) -> Iterable[Found]:
    for call in script.calls_of("torch.cuda.empty_cache"):
        loops = loops_of(script, call)
        if loops and runs_every_turn(script, call, loops[0]) and in_training_loop(script, call):
            yield Found(
                "torch.cuda.empty_cache() in every turn of the training loop: what is in use stays, and the next step "
                "asks the driver for the same memory again",
                "leave it out, or call it once after a phase that needed more (an evaluation)",
                call.lineno,
            )


RULE = Rule(
    code="LR083",
    name="cache-emptied-in-loop",
    severity="info",
    what="The CUDA cache is emptied in every turn of a training loop.",
    why="PyTorch reuses its cache for the next step. Emptying it frees no tensor, waits for the GPU and makes each "
    "allocation a slow one. It helps only where another program shares the GPU.",
    example="for x in data:\n    net(x).mean().backward()\n    optimizer.step()\n    torch.cuda.empty_cache()\n",
    remedy="Leave it out; against fragmentation, PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
    look=per_script(look),
)
