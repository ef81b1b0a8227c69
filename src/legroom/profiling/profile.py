"""Profile one environment: the entry for the command, for `legroom.profile` and for tests.

Each part is a function of its own that asks a fresh child process: `measure_leak` here; what an observation costs and
how many processes fit are parts that join as `profile(..., parts)` does with theirs: a function of the environment's
task that returns fields of the Profile to replace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from legroom.errors import BadInput
from legroom.model.profile import Curve, Leak, Profile
from legroom.probing.machine import probe
from legroom.profiling.asking import BUILD_TIMEOUT_S, ask_child
from legroom.profiling.attribution import attribute
from legroom.profiling.loading import env_task, find_run, name_env

FRAMES, SNAPSHOT_INTERVAL = 1_000, 100
TIME_LIMIT_S = 60.0
SLOWEST_STEP_S = 10.0
LONGEST_S = 24 * 3600.0
MOST_FRAMES = 1_000_000_000
SEED = 20_261

EnvTask = Mapping[str, Any]
Part = Callable[[EnvTask], Mapping[str, Any]]


def profile(
    env: Any,
    frames: int = FRAMES,
    snapshot_interval: int = SNAPSHOT_INTERVAL,
    *,
    time_limit_s: float = TIME_LIMIT_S,
    seed: int = SEED,
    find_lines: bool = True,
    parts: Sequence[Part] = (),
) -> Profile:
    """Return what `env` costs while it is stepped with random actions, in a fresh process.

    Args:
        env: a gymnasium id, `module:attr`, a workload or run name, or a class or function that can be imported.
        frames: steps to take; more are added where they do not decide whether it leaks.
        snapshot_interval: the most steps between two samples, where they are cheap enough.
        time_limit_s: no steps are added that would likely end later than this.
        find_lines: look for the lines of a leak, in a second process.
        parts: more to find out; each returns fields of the Profile by name.

    Raises:
        BadInput: there is no such environment, or it failed; in its own words.
        MissingExtra: gymnasium is not installed.
    """
    name = name_env(env)
    if name is None:
        hint = "move it to a module, or use legroom.testing.assert_no_leak, which takes live objects"
        raise BadInput(f"{env!r} cannot be found by a fresh process", hint=hint)
    _check(frames, "frames", MOST_FRAMES)
    _check(snapshot_interval, "snapshot_interval", MOST_FRAMES)
    task = env_task(find_run(name))
    found = measure_leak(task, frames, snapshot_interval, time_limit_s=time_limit_s, seed=seed, find_lines=find_lines)
    found = replace(found, env=name)
    for part in parts:
        found = replace(found, **part(task))
    return found


def measure_leak(
    task: EnvTask,
    frames: int = FRAMES,
    snapshot_interval: int = SNAPSHOT_INTERVAL,
    *,
    time_limit_s: float = TIME_LIMIT_S,
    seed: int = SEED,
    find_lines: bool = True,
) -> Profile:
    """Return the Profile with steps, pace and verdict on growth, and nothing else in it.

    Args:
        task: as `loading.env_task` makes it.
    """
    timeout_s = min(BUILD_TIMEOUT_S + max(2 * time_limit_s, SLOWEST_STEP_S * frames), LONGEST_S)
    measured = ask_child(
        "leak",
        task,
        timeout_s=timeout_s,
        frames=frames,
        snapshot_interval=snapshot_interval,
        time_limit_s=time_limit_s,
        seed=seed,
    )
    leak = as_leak(measured["verdict"])
    if find_lines and leak.verdict != "ok":
        lines, found_by, why = attribute(
            task,
            steps_per_s=measured["steps_per_s"],
            episode_steps=measured["steps"] / max(measured["episodes"], 1),
            malloc_per_step=measured["malloc_per_step"],
            frames=frames,
            seed=seed,
        )
        leak = replace(leak, lines=lines, found_by=found_by, why="; ".join(filter(None, (leak.why, why))))
    return Profile(
        env=task["id"],
        steps=measured["steps"],
        steps_per_s=measured["steps_per_s"],
        leak=leak,
        own_cpu_share=measured["own_cpu_s"] / max(measured["cpu_s"], 1e-9),
        level=measured["level"],
        curve=Curve(**{name: tuple(values) for name, values in measured["curve"].items()}),
    )


def as_leak(verdict: Mapping[str, Any]) -> Leak:
    """Return a verdict (as plain data) as a Leak, with the steps until this machine's memory is used up."""
    low, high = verdict["interval"]
    rate = verdict["bytes_per_step"]
    left = int(probe().available / rate) if verdict["verdict"] == "leak" and rate > 0 else None
    return Leak(verdict["verdict"], rate, (low, high), why=verdict["why"], steps_left=left)


def _check(value: Any, what: str, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise BadInput(f"{what}: {value!r} must be a whole number from 1 to {most:,}")
