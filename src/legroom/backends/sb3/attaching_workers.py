"""Light workers in place of `SubprocVecEnv`'s, attached to a program from inside its own interpreter.

`SubprocVecEnv(...)` makes a subclass of it that behaves the same: what environments return is stacked as it is, infos
are a tuple, closing waits. What cannot be done is left to the library's own class.
"""

from __future__ import annotations

from typing import Any

from legroom.backends.sb3.attaching_notes import program_line, tell_once
from legroom.hollow.attaching import substitute

CLOSE_WITHIN_S = 3600.0  # SB3 waits for ever; who cannot wait presses Ctrl-C


def on_subproc_vec_env(module: Any) -> None:
    """Worker processes of SubprocVecEnv."""
    substitute(module.SubprocVecEnv, _LightWorkers(module.SubprocVecEnv))


class _LightWorkers:
    """Makes a vector environment with light workers where `SubprocVecEnv` is asked for."""

    def __init__(self, owner: type) -> None:
        self._owner = owner
        self._form: Any = None

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        where = program_line()
        env_fns, start_method = _worker_arguments(*args, **kwargs)
        why = "start_method='fork' shares the program's memory with its workers" if start_method == "fork" else ""
        if not why:
            try:
                self._form = self._form or _light_form(self._owner)
                made = self._form.__new__(self._form)
                made.begin(env_fns)
            except Exception as error:
                why = str(error) or type(error).__name__
            else:
                text = f"{made.num_envs} environments in {made.workers_text} in place of SubprocVecEnv's"
                tell_once("workers", True, text, where)
                return made
        tell_once("workers", False, why, where)
        return None


def _worker_arguments(env_fns: Any, start_method: str | None = None) -> tuple[Any, str | None]:
    return env_fns, start_method


def _note_of_worker(text: str) -> None:
    tell_once("workers", True, text.replace("a worker of LeanVecEnv is", "they are"))


def _light_form(owner: Any) -> type:
    from legroom.backends.sb3.lean_vec_env import LeanVecEnv

    class Light(LeanVecEnv, owner):
        note = staticmethod(_note_of_worker)

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            """Nothing: `begin` has done it."""

        def begin(self, env_fns: Any) -> None:
            LeanVecEnv.__init__(self, env_fns, monitor=False, as_returned=True)
            self._crew.close_within_s = CLOSE_WITHIN_S

        @property
        def workers_text(self) -> str:
            return "forked workers" if not self._crew.why_fresh else f"light workers ({self._crew.why_fresh})"

        @property
        def closed(self) -> bool:
            return self._crew.closed

        def step_wait(self) -> Any:
            observations, rewards, dones, infos = super().step_wait()
            return observations, rewards, dones, tuple(infos)

    Light.__name__ = Light.__qualname__ = owner.__name__
    return Light
