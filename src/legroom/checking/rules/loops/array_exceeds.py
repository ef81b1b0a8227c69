"""LR088: an array whose stated size is more than there is."""

from __future__ import annotations

from collections.abc import Iterable

from legroom.checking.array_sources import made_arrays
from legroom.checking.rule_helpers import of_ram, of_vram, ram_limit
from legroom.model.rule import Found, Rule
from legroom.model.subject import Subject
from legroom.units import format_size


def look(subject: Subject) -> Iterable[Found]:
    if subject.script is None or subject.budget is None:
        return
    ram = ram_limit(subject)
    vram = None if subject.budget.vram is None else subject.budget.usable(subject.budget.vram)
    for array in made_arrays(subject.script):
        card = array.on_card is True
        limit = vram if card else ram
        if array.on_card is None or limit is None or array.nbytes <= limit:
            continue
        sizes = " × ".join(f"{n:,}" for n in array.shape)
        filled = "" if card else "; the memory is taken as it fills, so the process is killed later"
        yield Found(
            f"{array.name or 'an array'} of {sizes} {array.dtype} is {format_size(array.nbytes)}, more than "
            f"{of_vram(subject) if card else of_ram(subject)}{filled}",
            "fewer rows, a smaller type (uint8 for pictures), or one frame per row instead of a stack",
            array.call.lineno,
        )


RULE = Rule(
    code="LR088",
    name="array-exceeds-memory",
    severity="warning",
    what="An array is made whose shape and type come to more bytes than the machine has.",
    why="np.zeros and torch.zeros promise memory that the system hands out page by page. A buffer that is too large "
    "starts well and kills the process when it is nearly full.",
    example="self.obs = np.zeros((1_000_000, 4, 84, 84), dtype=np.float32)   # 105 GiB\n",
    remedy="uint8 for pictures, fewer rows, or lean storage (legroom.lean).",
    look=look,
)
