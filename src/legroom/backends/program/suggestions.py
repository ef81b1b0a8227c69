"""What would make a program fit: the memory that follows the batch, the allocator's setting, a larger card."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Sequence

from legroom.backends.program.program_constants import offered
from legroom.machine.gpu_table import GPUS
from legroom.model.footprint import Footprint
from legroom.model.rehearsal import Rehearsal
from legroom.model.verdict import Budget
from legroom.units import format_size, typed_size

WITH_BATCH = ("gpu.activations", "gpu.batch", "gpu.temporaries", "gpu.scratch", "gpu.failed request")
FRAGMENTED = 0.12  # of reserved bytes
# arguments of people's programs that the memory of an update follows, the most direct first
BATCH_ARGUMENT = re.compile(r"--?[\w.-]*(mini[_-]?batch[_-]?size|batch[_-]?size|num[_-]?envs|n[_-]?envs|num[_-]?steps)")


def ways_to_fit(rehearsal: Rehearsal, footprint: Footprint, budget: Budget) -> Iterator[str]:
    """Yield what to try, the cheapest first."""
    gpu = footprint.gpu
    if gpu is not None and budget.vram is not None and gpu.high > budget.usable(budget.vram):
        yield from _for_card(rehearsal, footprint, gpu.high, budget)
    if budget.ram is not None and footprint.host.high > budget.usable(budget.ram):
        largest = max(rehearsal.host.filling, key=lambda filling: filling.nbytes, default=None)
        if largest is not None:
            where = f" ({largest.file}:{largest.line})" if largest.file else ""
            yield f"a smaller buffer: the largest takes {format_size(largest.nbytes)} when full{where}"


def _for_card(rehearsal: Rehearsal, footprint: Footprint, high: int, budget: Budget) -> Iterator[str]:
    vram = budget.vram or 0
    usable = budget.usable(vram)
    sizes = {item.name: item.total for item in footprint.items}
    following = sum(sizes.get(name, 0) for name in WITH_BATCH)
    fragmentation = sizes.get("gpu.fragmentation", 0)
    if fragmentation > FRAGMENTED * high:
        yield (
            f"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in front of the command: {format_size(fragmentation)} "
            "are reserved but not allocated"
        )
    share = (usable - (high - following)) / following if following else 0.0
    if 0 < share < 1:
        yield from _smaller_batch(rehearsal, share, following, vram)
    elif following:
        yield f"a smaller batch alone does not help: {format_size(high - following)} do not depend on it"
    if rehearsal.out_of_memory:
        return  # what it would have needed is not known
    larger = [card for card in GPUS if card.total >= high and "Laptop" not in card.name]
    if larger:
        card = min(larger, key=lambda card: card.total)
        yield f"a GPU with {format_size(card.total)} or more, such as {card.name}"


def _smaller_batch(rehearsal: Rehearsal, share: float, following: int, vram: int) -> Iterator[str]:
    """Yield batches in pieces and smaller ones, each with its price; how to find the largest where it is a constant."""
    left = format_size(int(share * following))
    about = f"activations, batch and scratch need {format_size(following)}; {left} is left for them"
    changed = _with_smaller_argument(rehearsal.command, share)
    if changed is not None:
        yield f"a smaller batch ({about}): legroom predict --vram {typed_size(vram)} -- {shlex.join(changed)}"
        return
    searches = list(offered(rehearsal.command, f"--vram {typed_size(vram)}"))
    if not searches:
        yield f"a smaller batch, or activation checkpointing: {about}"
        return
    pieces = math.ceil(1 / share)
    more = "at least " if rehearsal.out_of_memory else ""  # later requests are unknown
    yield (
        f"gradient accumulation (slower; same results except with BatchNorm): {about}: {more}{pieces} backward passes, "
        f"each on 1/{pieces} of the batch, per optimizer step"
    )
    for search in searches:
        yield f"a smaller size (changes learning): {search}"


def _with_smaller_argument(command: Sequence[str], share: float) -> list[str] | None:
    """Return the command with its batch argument at the largest power of two that is allowed; None without one."""
    for at, word in enumerate(command):
        name, equals, value = word.partition("=")
        if not BATCH_ARGUMENT.fullmatch(name):
            continue
        text = value if equals else command[at + 1] if at + 1 < len(command) else ""
        if text.isdecimal() and int(int(text) * share) >= 1:
            smaller = str(1 << (int(int(text) * share).bit_length() - 1))
            changed = list(command)
            changed[at if equals else at + 1] = f"{name}={smaller}" if equals else smaller
            return changed
    return None
