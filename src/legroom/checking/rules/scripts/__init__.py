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

GENERAL_SCRIPT_RULES = tuple(module.RULE for module in (
    handwritten_minibatches, untrusted_load, oom_handler_misses, oom_handler_keeps, snapshots_kept, tracemalloc_frames,
    unused_key, interval_in_iterations, trains_nothing, loop_schedule, loop_sync_stride, alloc_conf_too_late,
))  # fmt: skip
