"""Profile one environment: the entry for the command, for `legroom.profile` and for tests.

Each part asks a fresh child process of its own: whether memory grows (`measure_leak`), what an observation costs
(`observe`), what copies of it side by side cost (`measure_parallel`). None gets in another's way, and what fails in one
is said there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from legroom.errors import BadInput
from legroom.machine.probing import probe
from legroom.model.trace import Curve, KeyCost, Leak, ObservationCost, ParallelRow, Profile, Scaling
from legroom.profiling.ask_child import BUILD_TIMEOUT_S, ask_child
from legroom.profiling.attribution import attribute
from legroom.profiling.loading import env_task, find_run, name_env

FRAMES, SNAPSHOT_INTERVAL = 1_000, 100
TIME_LIMIT_S = 60.0
SLOWEST_STEP_S = 10.0
OBSERVING_S, SIDE_BY_SIDE_S = 60.0, 60.0  # the second per number of environments
ENVS, MOST_ENVS = (1, 2, 4, 8), 512
LONGEST_S = 24 * 3600.0
MOST_FRAMES = 1_000_000_000
SEED = 20_261

EnvTask = Mapping[str, Any]
Tell = Callable[[str], None]


def profile(
    env: Any,
    frames: int = FRAMES,
    snapshot_interval: int = SNAPSHOT_INTERVAL,
    *,
    observation: bool = True,
    envs: Sequence[int] | None = (),
    time_limit_s: float = TIME_LIMIT_S,
    seed: int = SEED,
    find_lines: bool = True,
    overrides: Sequence[tuple[str, str]] = (),
    tell: Tell = lambda doing: None,
) -> Profile:
    """Return what `env` costs while it is stepped with random actions, in a fresh process.

    Args:
        env: a gymnasium id, `module:attr`, a workload or run name, or a class or function that can be imported.
        frames: steps to take; more are added where they do not decide whether it leaks.
        snapshot_interval: the most steps between two samples, where they are cheap enough.
        observation: find out what an observation costs, and whether it is safe to keep.
        envs: numbers of environments to run side by side, such as (1, 2, 4, 8); None: what this machine is good for.
        time_limit_s: no steps are added that would likely end later than this.
        find_lines: look for the lines of a leak, in a second process.
        overrides: changes of the environment of a run, as `legroom.read` takes them.
        tell: called with what is done next, in a few words.

    Raises:
        BadInput: there is no such environment, or it failed; in its own words.
        MissingExtra: gymnasium is not installed.

    Example:
        >>> import legroom
        >>> found = legroom.profile("CartPole-v1", 300, observation=False)
        >>> found.leak.verdict, found.steps >= 300
        ('ok', True)
    """
    name = name_env(env)
    if name is None:
        hint = "move it to a module, or use legroom.testing.assert_no_leak, which takes live objects"
        raise BadInput(f"{env!r} cannot be imported by a new process", hint=hint)
    _check(frames, "frames", MOST_FRAMES)
    _check(snapshot_interval, "snapshot_interval", MOST_FRAMES)
    counts = _default_counts() if envs is None else sorted(set(envs))
    for count in counts:
        _check(count, "envs", MOST_ENVS)
    task = env_task(find_run(name, overrides))
    tell(f"stepping {name}")
    found = measure_leak(
        task, frames, snapshot_interval, time_limit_s=time_limit_s, seed=seed, find_lines=find_lines, tell=tell
    )
    found = replace(found, env=name)
    if observation:
        tell(f"checking observations of {name}")
        found = replace(found, observation=observe(task, seed=seed))
    if counts:
        tell(f"running up to {counts[-1]:,} × {name} side by side")
        resident = max(found.curve.resident, default=0)
        found = replace(found, **measure_parallel(task, counts, each=resident, seed=seed))
    return found


def observe(task: EnvTask, *, seed: int = SEED) -> ObservationCost:
    """Return what an observation costs, and whether it is safe to keep."""
    answer = ask_child("observation", task, timeout_s=BUILD_TIMEOUT_S + OBSERVING_S, seed=seed)
    keys = [KeyCost(**{**key, "shape": tuple(key["shape"])}) for key in answer["keys"]]
    return ObservationCost(**{**answer, "keys": tuple(keys)})


def measure_parallel(task: EnvTask, counts: Sequence[int], *, each: int = 0, seed: int = SEED) -> dict[str, Any]:
    """Return the Profile's fields about environments side by side; what fails there is said in `scaling.why`.

    Args:
        counts: of environments, rising.
        each: bytes that one is known to need, so that a machine is not filled up to measure it; 0 where not known.
    """
    timeout_s = BUILD_TIMEOUT_S + SIDE_BY_SIDE_S * len(counts)
    try:
        answer = ask_child("parallel", task, timeout_s=timeout_s, counts=list(counts), each=each, seed=seed)
    except BadInput as failed:
        return {"scaling": Scaling(why=failed.message)}
    said = answer["scaling"]
    interval = None if said["interval"] is None else (said["interval"][0], said["interval"][1])
    return {
        "parallel": tuple(ParallelRow(**row) for row in answer["parallel"]),
        "scaling": Scaling(**{**said, "interval": interval}),
        "fits_envs": answer["fits_envs"],
    }


def write_cprofile(
    env: str, file: Path, frames: int = FRAMES, *, seed: int = SEED, overrides: Sequence[tuple[str, str]] = ()
) -> None:
    """Step the environment under Python's own profiler, in a pass of its own, and write what `pstats` reads.

    Raises:
        BadInput: as `profile`.
    """
    timeout_s = min(BUILD_TIMEOUT_S + SLOWEST_STEP_S * frames, LONGEST_S)
    task = env_task(find_run(env, overrides))
    ask_child("cprofile", task, timeout_s=timeout_s, file=str(file.absolute()), steps=frames, seed=seed)


def _default_counts() -> list[int]:
    """Return the numbers of environments that this machine's cores are good for; memory is looked at on the way."""
    return [count for count in ENVS if count <= 4 * probe().cores]


def measure_leak(
    task: EnvTask,
    frames: int = FRAMES,
    snapshot_interval: int = SNAPSHOT_INTERVAL,
    *,
    time_limit_s: float = TIME_LIMIT_S,
    seed: int = SEED,
    find_lines: bool = True,
    tell: Tell = lambda doing: None,
) -> Profile:
    """Return the Profile with steps and verdict on growth, and nothing else in it.

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
    leak = as_leak(measured["verdict"], measured["why"])
    if find_lines and leak.verdict != "ok":
        tell(f"looking for the lines that leak in {task['id']}")
        lines, kept_in, found_by, why = attribute(
            task,
            steps_per_s=measured["steps_per_s"],
            episode_steps=measured["steps"] / max(measured["episodes"], 1),
            malloc_per_step=measured["malloc_per_step"],
            frames=frames,
            seed=seed,
        )
        leak = replace(
            leak, lines=lines, kept_in=kept_in, found_by=found_by, why="; ".join(filter(None, (leak.why, why)))
        )
    return Profile(
        env=task["id"],
        steps=measured["steps"],
        steps_per_s=measured["steps_per_s"],
        leak=leak,
        own_cpu_share=measured["own_cpu_s"] / max(measured["cpu_s"], 1e-9),
        level=measured["level"],
        level_interval=_pair(measured["level_interval"]),
        curve=Curve(**{name: tuple(values) for name, values in measured["curve"].items()}),
    )


def as_leak(verdict: Mapping[str, Any], why: str) -> Leak:
    """Return a verdict (as plain data) as a Leak, with the steps until this machine's memory is used up."""
    low, high = verdict["interval"]
    rate = verdict["rate"]
    left = int(probe().available / rate) if verdict["verdict"] == "leak" and rate > 0 else None
    return Leak(verdict["verdict"], rate, (low, high), why=why, steps_left=left)


def _pair(values: list[Any] | None) -> Any:
    return None if values is None else (values[0], values[1])


def _check(value: Any, what: str, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise BadInput(f"{what}: {value!r} must be a whole number from 1 to {most:,}")
