"""For tests of environments: `assert_no_leak`.

>>> def test_my_env_does_not_leak():
...     assert_no_leak("my_package.envs:MyEnv")
...     assert_no_leak(MyEnv)  # a class or function that can be imported: in a fresh process too
...     assert_no_leak(lambda: MyEnv(size=9))  # a closure or an instance: in this process
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

from legroom.model.trace import EnvLeak, LeakLine
from legroom.units import format_size
from legroom.watching.profile import SEED, as_leak, name_env, profile

FRAMES = 5_000
TRACKED_STEPS, WARM_UP_STEPS = 2_000, 500


def assert_no_leak(env: Any, frames: int = FRAMES, *, time_limit_s: float = 60.0, seed: int = SEED) -> None:
    """Step `env` with random actions and fail if its memory keeps growing steadily.

    What a fresh process can build (a gymnasium id, `module:attr`, a run's name, a class or function that can be
    imported) is built and stepped there: nothing else is in that process' memory. An instance, a lambda or anything
    else that only this process has is stepped here. What the test has done before does not count, but what other
    threads allocate meanwhile does. An environment made here by calling `env` is closed again.

    Args:
        frames: steps to take; more are added where they do not decide.
        time_limit_s: no steps are added that would likely end later than this.

    Raises:
        AssertionError: it leaks; with the bytes per step and the lines.
        BadInput: it could not be built or stepped.
    """
    __tracebackhide__ = True
    name = name_env(env)
    if name is not None:
        found = profile(name, frames, observation=False, time_limit_s=time_limit_s, seed=seed)
        steps, leak = found.steps, found.leak
    else:
        steps, leak = _measure_here(env, frames, time_limit_s, seed)
    if leak.verdict == "leak":
        raise AssertionError(_message(name or _describe(env), steps, leak))


def _measure_here(env: Any, frames: int, time_limit_s: float, seed: int) -> tuple[int, EnvLeak]:
    """Return steps taken and verdict for an environment that lives in this process."""
    measuring = import_module("legroom.watching.measuring")
    leak_lines = import_module("legroom.watching.leak_lines")
    made = not hasattr(env, "step") or isinstance(env, type)
    live = env() if made else env
    try:
        measured = measuring.measure(live, frames, time_limit_s=time_limit_s, seed=seed)
        leak = as_leak(measured)
        if leak.verdict == "leak":
            warm_up, steps = min(WARM_UP_STEPS, frames), min(TRACKED_STEPS, frames)
            lines = leak_lines.find_lines(live, {}, "", warm_up=warm_up, steps=steps, seed=seed)
            leak = replace(leak, lines=tuple(LeakLine(**line) for line in lines["lines"]), found_by=lines["found_by"])
    finally:
        if made:
            live.close()
    return measured["steps"], leak


def _message(name: str, steps: int, leak: EnvLeak) -> str:
    low, high = leak.interval
    text = f"{name} leaks {leak.bytes_per_step:,.1f} bytes per step ({low:,.1f} to {high:,.1f}; {steps:,} steps taken)"
    if leak.steps_left is not None:
        text += f", out of memory in about {leak.steps_left:,} steps"
    for line in leak.lines:
        where = f" in {line.function}" if line.function else ""
        text += f"\n  {line.file}:{line.line}{where}: {format_size(line.bytes_per_step)} per step"
    return text


def _describe(env: Any) -> str:
    kind = env if isinstance(env, type) or hasattr(env, "__qualname__") else type(env)
    return f"{kind.__module__}.{kind.__qualname__}"
