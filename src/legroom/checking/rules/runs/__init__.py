"""General rules about runs: what any run file, zoo entry, module of constants or script says about sizes and counts."""

from __future__ import annotations

from legroom.checking.rules.runs import (
    checkpoint_in_iterations,
    fork_workers,
    host_exceeded,
    invalid_value,
    no_effect,
    timesteps_not_multiple,
    vram_exceeded,
)

GENERAL_RUN_RULES = tuple(module.RULE for module in (
    invalid_value, no_effect, vram_exceeded, checkpoint_in_iterations, timesteps_not_multiple,
    fork_workers, host_exceeded,
))  # fmt: skip
