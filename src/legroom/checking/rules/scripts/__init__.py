"""General rules about scripts: what only source code can show, whichever library it trains with."""

from __future__ import annotations

from legroom.checking.rules.scripts import (
    alloc_conf_too_late,
    handwritten_minibatches,
    interval_in_iterations,
    loop_schedule,
    loop_sync_stride,
    oom_handler_keeps,
    oom_handler_misses,
    snapshots_kept,
    tracemalloc_frames,
    trains_nothing,
    untrusted_load,
    unused_key,
)

GENERAL_SCRIPT_RULES = (
    handwritten_minibatches.RULE,  # LR007, as of runs
    untrusted_load.RULE,  # LR053
    oom_handler_misses.RULE,
    oom_handler_keeps.RULE,
    snapshots_kept.RULE,
    tracemalloc_frames.RULE,
    unused_key.RULE,  # LR063
    interval_in_iterations.RULE,
    trains_nothing.RULE,
    loop_schedule.RULE,  # LR070
    loop_sync_stride.RULE,
    alloc_conf_too_late.RULE,
)
