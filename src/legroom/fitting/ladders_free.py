"""Ladders of the free knobs: bit-equal results, and no slower.

A ladder is the settings a knob has for a run as it is, from the least turned to the most; it is empty where the knob
does nothing for the run.
"""

from __future__ import annotations

from collections.abc import Iterator

from legroom.backends.sb3.stored import is_sb3, may_store_leanly, storage_said, stores_leanly
from legroom.fitting.free import with_lean_storage
from legroom.fitting.settings import halves, with_settings
from legroom.model.evidence import Evidence
from legroom.model.run import EvalSpec, Run

BRAX_EVAL_ENVS = 128  # brax's own default


def lean_storage(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Observations stored losslessly without what repeats; the rollout is no longer copied to be flattened."""
    if may_store_leanly(run) and storage_said(run) is None and not stores_leanly(run):
        yield with_lean_storage(run)


def light_workers(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Worker processes that do not import torch."""
    if is_sb3(run) and run.env.workers == "subproc":
        yield with_settings(run, env={"workers": "light"})


def light_evaluation_workers(run: Run, evidence: Evidence) -> Iterator[Run]:
    """The same for the environments that evaluate."""
    if is_sb3(run) and run.eval is not None and run.eval.workers == "subproc":
        yield with_settings(run, eval={"workers": "light"})


def expandable_segments(run: Run, evidence: Evidence) -> Iterator[Run]:
    """CUDA segments that grow instead of new ones beside them."""
    if is_sb3(run) and evidence.device == "cuda" and run.memory.expandable_segments is None:
        yield with_settings(run, memory={"expandable_segments": True})


def no_preallocation(run: Run, evidence: Evidence) -> Iterator[Run]:
    """XLA takes memory as it needs it, instead of three quarters of the card at once."""
    if run.backend == "brax" and run.memory.xla_preallocate is None:
        yield with_settings(run, memory={"xla_preallocate": False})


def fewer_evaluation_envs(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Fewer environments that only evaluate: what is learned does not depend on them."""
    if run.backend != "brax":
        return
    envs = run.eval.n_envs if run.eval is not None else BRAX_EVAL_ENVS
    for fewer in halves(envs):
        if run.eval is None:
            yield run.replace(eval=EvalSpec(n_envs=fewer))
        else:
            yield with_settings(run, eval={"n_envs": fewer})


def shared_data(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Read-only data once for all workers: what happens anyway (`legroom.share`), unless the run says no."""
    if is_sb3(run) and run.env.workers != "dummy" and run.memory.shared_data is False:
        yield with_settings(run, memory={"shared_data": True})
