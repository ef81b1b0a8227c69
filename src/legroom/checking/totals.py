"""The totals of a run, as the summary of a check shows them: counts, stored bytes, predicted peaks."""

from __future__ import annotations

from legroom.backends.base import algorithm_of
from legroom.checking.counting import counts_known
from legroom.checking.shares import shares
from legroom.model.checked import Totals
from legroom.model.facts import stored_observation
from legroom.model.spaces import describe
from legroom.model.subject import Subject, SubjectRun


def totals(subject: Subject, one: SubjectRun) -> Totals:
    """Return what can be summed up of a run; None for whatever is not known."""
    run, footprint = one.run, one.footprint
    known_envs = run.env.n_envs if one.knows("env", "n_envs") else None
    found = counts_known(one)
    parts = None
    if footprint is not None and run.backend == "sb3":
        parts = shares(footprint, "rollout." if algorithm_of(run).family == "on-policy" else "replay.")
    total = run.total_timesteps
    return Totals(
        name=run.name,
        title=_title(one),
        n_envs=known_envs,
        samples=found.samples if found else None,
        iterations=found.iterations if found else None,
        steps=found.steps if found and found.steps is not None else total,
        updates=found.updates if found else None,
        stored=parts.buffer if parts and parts.buffer else None,
        flattened=parts.buffer + parts.flatten if parts and parts.flatten else None,
        host=footprint.host.nbytes if footprint else None,
        host_high=footprint.host.high if footprint else None,
        gpu=footprint.gpu.nbytes if footprint and footprint.gpu else None,
        gpu_high=footprint.gpu.high if footprint and footprint.gpu else None,
    )


def _title(one: SubjectRun) -> str:
    run = one.run
    parts = [f"{run.algo} on brax" if run.backend == "brax" else run.algo]
    if one.knows("env", "n_envs"):
        parts.append(f"{run.env.n_envs:,} env{'' if run.env.n_envs == 1 else 's'}")
    if run.env.spaces is not None:
        parts.append(f"observation {describe(stored_observation(run))}")
    elif run.env.id:
        parts.append(f"{run.env.id}, whose spaces are not known")
    return ", ".join(parts)
