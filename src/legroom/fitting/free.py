"""The run with every free saving: bit-equal results and no slower, so there is no reason not to take them."""

from __future__ import annotations

from legroom.model.run import Run


def with_free_savings(run: Run) -> Run:
    """Return the run with lean storage and light workers, where it says nothing else; brax runs have neither."""
    if run.backend == "brax":
        return run
    memory = run.memory.model_copy(
        update={"rollout": run.memory.rollout or "lean", "replay": run.memory.replay or "lean"}
    )
    workers = "light" if run.env.workers == "subproc" else run.env.workers
    return run.replace(memory=memory, env=run.env.model_copy(update={"workers": workers}))
