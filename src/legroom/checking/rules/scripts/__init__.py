"""General rules about scripts: what only source code can show, whichever library it trains with."""

from __future__ import annotations

from legroom.checking.rules.scripts import (
    alloc_conf_too_late,
    handwritten_minibatches,
    oom_handler_keeps,
    oom_handler_misses,
    snapshots_kept,
)

GENERAL_SCRIPT_RULES = tuple(module.RULE for module in (
    handwritten_minibatches, oom_handler_misses, oom_handler_keeps, snapshots_kept,
    alloc_conf_too_late,
))  # fmt: skip
