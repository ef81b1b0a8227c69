"""How often things happen in a run, where everything that this depends on is known."""

from __future__ import annotations

from legroom.backends.base import backend_of
from legroom.model.counts import Counts
from legroom.model.subject import SubjectRun


def counts_known(one: SubjectRun) -> Counts | None:
    """Return the backend's counts; None where it has none, or a number that they depend on is not known."""
    found = backend_of(one.run).counts(one.run) if one.knows("env", "n_envs") else None
    return found if found and all(one.knows("hyperparams", name) for name in found.depends_on) else None
