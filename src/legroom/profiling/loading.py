"""From the ENV that a user names to what a child process needs to build it.

ENV is the name of a workload or of one of its runs (`mine`, `mine:small`), a run file, `module:attr` (a class or a
function that makes an environment; the working directory is importable), or a gymnasium id. Everything becomes a Run,
since that is what the rest of legroom builds environments from: `env_make.build` in the child is the same as a
training's.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from legroom.backends.base import backend_of
from legroom.environments.objects import LIVE, name_object
from legroom.errors import BadInput
from legroom.machine.child_process import import_path
from legroom.model.run import EnvSpec, Run
from legroom.named_runs import find_workload, run_files
from legroom.reading import read, run_from_dict
from legroom.reading.user_files import is_file
from legroom.reading.workload_options import split_overrides, with_options

RUN_FILE_SUFFIXES = (".yaml", ".yml")


def find_run(env: str, overrides: Sequence[tuple[str, str]] = ()) -> Run:
    """Return a Run with the environment that `env` names.

    Args:
        overrides: of its environment, and options of its workload, as `read` takes them.

    Raises:
        BadInput: it is a workload without that run, a run without an environment, or no name at all; or an override of
            something else than the environment.
    """
    for name, _ in overrides:
        if not name.startswith(("env.", "--")):
            raise BadInput(f"{name} is not a setting of the environment", hint="--set env.kwargs.KEY=VALUE")
    if not env.strip():
        raise BadInput("no environment was named", hint="give a gymnasium id, module:attr or a workload")
    head, _, entry = env.partition(":")
    is_workload = find_workload(head) is not None and (not entry or entry in run_files(head))
    is_run_file = head.lower().endswith(RUN_FILE_SUFFIXES) and is_file(head)
    if not is_workload and not is_run_file:
        # A Run needs an algorithm; which one does not matter to its environment.
        bare = Run(algo="PPO", name=env, env=EnvSpec(id=env))
        keys, options = split_overrides(overrides)
        return with_options(run_from_dict(bare.model_dump(), overrides=keys) if keys else bare, options)
    run = read(env, overrides=overrides)
    if run.env.id is None:
        raise BadInput(f"{env} names no environment", path=run.source, hint="set env.id")
    return run


def env_task(run: Run) -> dict[str, Any]:
    """Return what a child needs to build the run's environment, as plain data."""
    storage = backend_of(run).predictor.storage(run)
    collects = run.source is not None and storage.kind == "rollout"  # a bare environment has no training to it
    return {
        "id": run.env.id,
        "kwargs": run.env.arguments,
        "wrappers": list(run.env.wrappers),
        "path": import_path(run, own=True),
        "frame_stack": run.env.frame_stack or 1,
        "rollout_steps": storage.steps * run.env.n_envs if collects else 0,
    }


def name_env(env: Any) -> str | None:
    """Return a name under which a fresh process finds `env` again; None where only this process has it.

    A text is a name already. A class or function has one if a fresh process can import it from the same file; an
    instance, a lambda, a closure and whatever a script defines in `__main__` have none.
    """
    if isinstance(env, str):
        return env
    if not callable(env) or not hasattr(env, "__qualname__"):
        return None
    name = name_object(env)
    if name.startswith(LIVE):
        return None
    module = name.partition(":")[0]
    try:
        spec = find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return None
    # pytest and notebooks load modules that nobody else could import, or whose name is another module's elsewhere
    loaded = getattr(sys.modules.get(module), "__file__", None)
    if spec is None or loaded is None:
        return None
    if "." not in module and spec.origin is not None and Path(spec.origin) != Path(loaded):
        return None
    return name
