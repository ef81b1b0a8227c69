"""General rules about runs: what any run file, zoo entry, module of constants or script says about sizes and counts."""

from __future__ import annotations

from legroom.checking.rules.runs import (
    checkpoint_in_iterations,
    fork_workers,
    host_exceeded,
    invalid_value,
    no_effect,
    schedule_never_completes,
    timesteps_not_multiple,
    updates_per_iteration,
    vram_exceeded,
)

GENERAL_RUN_RULES = (
    invalid_value.RULE,
    no_effect.RULE,
    vram_exceeded.RULE,
    checkpoint_in_iterations.RULE,
    timesteps_not_multiple.RULE,
    updates_per_iteration.RULE,
    schedule_never_completes.RULE,
    fork_workers.RULE,
    host_exceeded.RULE,
)
