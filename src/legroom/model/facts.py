"""What follows from a Run alone, whichever library trains it."""

from legroom.errors import BadInput
from legroom.model.run import Run
from legroom.model.spaces import Space

SCRIPTS = (".py", ".ipynb")


def spaces_of(run: Run) -> tuple[Space, Space]:
    """Return the declared observation and action spaces.

    Raises:
        BadInput: the run has none and its environment was not built.
    """
    if run.env.spaces is None:
        box, discrete = "{type: box, shape: [...], dtype: float32}", "{type: discrete, n: ...}"
        spaces = f"--set env.spaces='{{observation: {box}, action: {discrete}}}'"
        if run.env.id is None:
            hint = f"add --like RUN, whose environment is then used, or --set env.id=..., or {spaces}"
            raise BadInput("no environment and no spaces found in this file", path=run.source, hint=hint)
        raise BadInput(
            f"the spaces of env {run.env.id!r} are not known",
            path=run.source,
            hint=f"add {spaces}, or use --mode trace to build the env",
        )
    return run.env.spaces.observation, run.env.spaces.action


def trained_by_legroom(run: Run) -> bool:
    """Return whether `legroom train` trains it: run files, zoo entries and named runs. A script trains by itself."""
    file, _, entry = (run.source or "").rpartition(":")
    return run.source is not None and not (file.endswith(SCRIPTS) or entry.endswith(SCRIPTS))


def n_workers(run: Run) -> int:
    """Return how many environment processes there are; none when the environments live in the training process."""
    if run.env.workers == "dummy":
        return 0
    return -(-run.env.n_envs // run.env.envs_per_worker)


def episode_limit(run: Run) -> int | None:
    """Return the most steps an episode has: by a TimeLimit of the run, by the run, or by the known environment."""
    limits = [
        wrapper[name].get("max_episode_steps")
        for wrapper in run.env.wrappers
        if isinstance(wrapper, dict)
        for name in wrapper
        if str(name).rpartition(".")[2].rpartition(":")[2] == "TimeLimit" and isinstance(wrapper[name], dict)
    ]
    limits += [run.env.kwargs.get("max_episode_steps"), run.env.episode_steps]
    known = [limit for limit in limits if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0]
    return known[0] if known else None
