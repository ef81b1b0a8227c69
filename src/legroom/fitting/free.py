"""The run with every free saving: bit-equal results and no slower, so there is no reason not to take them.

Lean storage always gives the same bits; whether it is no slower depends on the observations, and so it is free only
where a probe of the environment measured that. Elsewhere it is a saving of its own, at the price `slower`.
"""

from __future__ import annotations

from typing import Literal

from legroom.backends.base import algorithm_of
from legroom.backends.sb3.bill.lean import slowdown
from legroom.backends.sb3.stored import may_store_leanly, storage_said, stores_leanly
from legroom.fitting.settings import with_settings
from legroom.model.evidence import Evidence
from legroom.model.run import Run

Price = Literal["free", "slower"]


def with_free_savings(run: Run, evidence: Evidence) -> Run:
    """Return the run with light workers and, where it is free, lean storage; what it says itself stays as it is."""
    if run.backend == "brax":
        # what XLA takes in advance serves nobody, and hides what is needed; the host knows no such thing
        preallocates = evidence.device == "cuda" and run.memory.xla_preallocate is None
        return with_settings(run, memory={"xla_preallocate": False}) if preallocates else run
    workers = "light" if run.env.workers == "subproc" else run.env.workers
    lighter = run.replace(env=run.env.model_copy(update={"workers": workers}))
    return with_lean_storage(lighter) if lean_price(run, evidence) == "free" else lighter


def with_lean_storage(run: Run) -> Run:
    """Return the run with lean storage, unless it says otherwise."""
    kind = "rollout" if algorithm_of(run).family == "on-policy" else "replay"
    return run.replace(memory=run.memory.model_copy(update={kind: getattr(run.memory, kind) or "lean"}))


def lean_price(run: Run, evidence: Evidence) -> Price | None:
    """Return what lean storage would cost the run; None where it has it already, or cannot have it."""
    if run.backend == "brax" or storage_said(run) == "plain" or stores_leanly(run) or not may_store_leanly(run):
        return None
    measured = slowdown(run, evidence)
    return "free" if measured is not None and measured <= 1.0 else "slower"
