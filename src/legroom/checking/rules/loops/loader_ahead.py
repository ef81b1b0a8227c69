"""LR092: a DataLoader that holds very many samples ahead in pinned memory."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from legroom.checking.rule_helpers import per_script
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.asker import integer_of
from legroom.reading.interpreter.script import Script, argument

MANY = 100_000  # samples that wait: 19 GB of pictures of 224×224×3 as bytes are 124,000
_PREFETCH = 2  # torch's default, for each worker


def look(script: Script) -> Iterable[Found]:
    for call in script.calls_of("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader"):
        pinned = argument(call, "pin_memory")
        batch, workers = (
            integer_of(script, argument(call, "batch_size", 1)),
            integer_of(script, argument(call, "num_workers")),
        )
        factor = argument(call, "prefetch_factor")
        ahead = _PREFETCH if factor is None else integer_of(script, factor)
        if not (isinstance(pinned, ast.Constant) and pinned.value is True and batch and workers and ahead):
            continue
        waiting = batch * workers * ahead
        if waiting >= MANY:
            yield Found(
                f"{workers} workers × {ahead} batches × {batch:,} samples = {waiting:,} samples wait in memory, and "
                "pin_memory locks each batch a second time",
                "smaller prefetch_factor or fewer workers",
                call.lineno,
            )


RULE = Rule(
    code="LR092",
    name="loader-far-ahead",
    severity="info",
    what="A DataLoader with pin_memory keeps very many samples ready.",
    why="Every worker holds prefetch_factor batches in shared memory, and the pinned copies of those that are next "
    "cannot be swapped out. /dev/shm of a container is 64 MB.",
    example="DataLoader(data, batch_size=8192, num_workers=16, pin_memory=True)   # 262,144 samples wait\n",
    remedy="Fewer workers, or prefetch_factor=1.",
    look=per_script(look),
)
