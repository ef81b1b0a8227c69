"""The totals of a run, as the summary of a check shows them: counts, stored bytes, predicted peaks."""

from __future__ import annotations

from legroom.backends.base import Backend, backend_of
from legroom.checking.counting import counts_known
from legroom.model.checked import Totals
from legroom.model.spaces import describe
from legroom.model.subject import Subject, SubjectRun


def totals(subject: Subject, one: SubjectRun) -> Totals:
    """Return what can be summed up of a run; None for whatever is not known."""
    run, footprint = one.run, one.footprint
    known_envs = run.env.n_envs if one.knows("env", "n_envs") else None
    found = counts_known(one)
    backend = backend_of(run)
    stored = backend.stored_data(run, footprint) if footprint is not None else None
    total = run.total_timesteps
    return Totals(
        name=run.name,
        title=_title(one, backend),
        n_envs=known_envs,
        samples=found.samples if found else None,
        iterations=found.iterations if found else None,
        steps=found.steps if found and found.steps is not None else total,
        updates=found.updates if found else None,
        stored=stored.nbytes or None if stored else None,
        flattened=stored.peak if stored else None,
        flattened_when=stored.peak_when if stored else "",
        host=footprint.host.nbytes if footprint else None,
        host_high=footprint.host.high if footprint else None,
        gpu=footprint.gpu.nbytes if footprint and footprint.gpu else None,
        gpu_high=footprint.gpu.high if footprint and footprint.gpu else None,
    )


def _title(one: SubjectRun, backend: Backend) -> str:
    run = one.run
    parts = [backend.label(run)]
    if one.knows("env", "n_envs"):
        parts.append(f"{run.env.n_envs:,} env{'' if run.env.n_envs == 1 else 's'}")
    if run.env.spaces is not None:
        parts.append(f"observation {describe(backend_of(run).stored_observation(run))}")
    elif run.env.id:
        parts.append(f"{run.env.id}, whose spaces are not known")
    return ", ".join(parts)
