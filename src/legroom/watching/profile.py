"""Profile one environment: the entry for the command, for `legroom.profile` and for tests.

Each part asks a fresh child process of its own (`environments.env_child`): whether memory grows, what an observation
costs (`observe`), what copies of it side by side cost (`measure_parallel`). Somebody else's environment may
print, crash, hang, leak threads or take gigabytes: a process of its own keeps all that away from the caller and from
the other parts, and what fails in one is said there.

ENV is the name of a workload or of one of its runs (`mine`, `mine:small`), a run file, `module:attr` (a class or a
function that makes an environment; the working directory is importable), or a gymnasium id. Everything becomes a Run,
since that is what the rest of legroom builds environments from.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from legroom.backends.base import backend_of
from legroom.environments.objects import LIVE, name_object
from legroom.errors import BadInput, LegroomError, MissingExtra
from legroom.machine.child_process import ask_child, import_path
from legroom.machine.probing import probe
from legroom.model.run import EnvSpec, Run
from legroom.model.trace import Curve, EnvLeak, KeyCost, LeakLine, ObservationCost, ParallelRow, Profile, Scaling
from legroom.named_runs import find_workload, run_files
from legroom.reading import read, run_from_dict
from legroom.reading.user_files import is_file
from legroom.reading.workload_options import split_overrides, with_options

CHILD = "legroom.environments.env_child"
TASKS = {
    "leak": "legroom.watching.measuring:measure_leak",
    "cprofile": "legroom.watching.measuring:write_cprofile",
    "lines": "legroom.watching.leak_lines:find_lines",
    "c_lines": "legroom.watching.leak_lines:find_c_lines",
    "observation": "legroom.watching.observation:observe",
    "parallel": "legroom.watching.side_by_side:measure_scaling",  # which makes its environments in further processes
}
RUN_FILE_SUFFIXES = (".yaml", ".yml")
FRAMES, SNAPSHOT_INTERVAL = 1_000, 100
BUILD_TIMEOUT_S, TIME_LIMIT_S = 60.0, 60.0
SLOWEST_STEP_S = 10.0
OBSERVING_S, SIDE_BY_SIDE_S = 60.0, 60.0  # the second per number of environments
ENVS, MOST_ENVS = (1, 2, 4, 8), 512
LONGEST_S = 24 * 3600.0
MOST_FRAMES = 1_000_000_000
SEED = 20_261

# Following every allocation slows an environment down several times over, so lines are looked for only once a leak was
# found, and for few steps: as many as the verdict needed are not necessary to see where it comes from.
TRACKED_STEPS, MOST_TRACKED_STEPS = 2_000, 20_000
EPISODES = 6  # that many should be among the tracked steps, if that is affordable: some leak only as an episode ends
WARM_UP_STEPS = 1_000
TRACKING_S = 120.0
STEPPING_S = 30.0  # what the steps may take, by the pace of the first pass
SLOWDOWN = 6.0  # of tracked steps, at a guess
SEEN_SHARE = 0.5  # of the growing C memory: below that the tracker has missed what leaks

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
    counts = [count for count in ENVS if count <= 4 * probe().cores] if envs is None else sorted(set(envs))
    for count in counts:
        _check(count, "envs", MOST_ENVS)
    task = env_task(find_run(name, overrides))
    tell(f"stepping {name}")
    measured = ask_profile(
        "leak",
        task,
        timeout_s=min(BUILD_TIMEOUT_S + max(2 * time_limit_s, SLOWEST_STEP_S * frames), LONGEST_S),
        frames=frames,
        snapshot_interval=snapshot_interval,
        time_limit_s=time_limit_s,
        seed=seed,
    )
    leak = as_leak(measured)
    if find_lines and leak.verdict != "ok":
        tell(f"looking for the lines that leak in {task['id']}")
        leak = _with_lines(leak, task, measured, frames=frames, seed=seed)
    found = Profile(
        env=name,
        steps=measured["steps"],
        steps_per_s=measured["steps_per_s"],
        leak=leak,
        own_cpu_share=measured["own_cpu_s"] / max(measured["cpu_s"], 1e-9),
        level=measured["level"],
        level_interval=_pair(measured["level_interval"]),
        curve=Curve(**{name: tuple(values) for name, values in measured["curve"].items()}),
    )
    if observation:
        tell(f"checking observations of {name}")
        found = replace(found, observation=observe(task, seed=seed))
    if counts:
        tell(f"running up to {counts[-1]:,} × {name} side by side")
        resident = max(found.curve.resident, default=0)
        found = replace(found, **measure_parallel(task, counts, each=resident, seed=seed))
    return found


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
    module = name.partition(":")[0]
    if name.startswith(LIVE):
        return None
    try:
        spec = find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return None
    # pytest and notebooks load modules that nobody else could import, or whose name is another module's elsewhere
    loaded = getattr(sys.modules.get(module), "__file__", None)
    if spec is None or loaded is None:
        return None
    elsewhere = "." not in module and spec.origin is not None and Path(spec.origin) != Path(loaded)
    return None if elsewhere else name


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
    if not is_workload and not (head.lower().endswith(RUN_FILE_SUFFIXES) and is_file(head)):
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


def ask_profile(what: str, env: EnvTask, *, timeout_s: float, **arguments: Any) -> dict[str, Any]:
    """Return the answer of a fresh process to the task `what` (a name in `TASKS`).

    Args:
        env: as `env_task` makes it.
        timeout_s: for all of it; the child is ended then.
        arguments: for the task, as plain data.

    Raises:
        BadInput: the environment cannot be built, raised, ended its process or took too long.
        MissingExtra: the child lacks a package.
    """
    task = {"perform": TASKS[what], "build": what != "parallel", "env": {**env}, "arguments": arguments}
    try:
        child = ask_child(CHILD, task, kind="profile", timeout_s=timeout_s, path=env["path"])
    except (TypeError, ValueError) as wrong:
        raise BadInput(f"the arguments of env {env['id']!r} are not plain data: {wrong}") from wrong
    answer = child.data
    if answer is None and child.how.endswith("No module named 'gymnasium'"):
        raise MissingExtra("profile", "gymnasium", what="legroom profile")
    if answer is None:
        fate = "was not done" if child.timed_out else "ended its process"
        raise BadInput(f"env {env['id']!r} {fate} {child.how}")
    if "error" in answer:
        text, name = answer["error"], repr(env["id"])
        raise BadInput(
            text if name in text or text.startswith("env ") else f"env {name}: {text}", hint=answer.get("hint", "")
        )
    return answer


def observe(task: EnvTask, *, seed: int = SEED) -> ObservationCost:
    """Return what an observation costs, and whether it is safe to keep."""
    answer = ask_profile("observation", task, timeout_s=BUILD_TIMEOUT_S + OBSERVING_S, seed=seed)
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
        answer = ask_profile("parallel", task, timeout_s=timeout_s, counts=list(counts), each=each, seed=seed)
    except BadInput as failed:
        return {"scaling": Scaling(why=failed.message)}
    said = answer["scaling"]
    return {
        "parallel": tuple(ParallelRow(**row) for row in answer["parallel"]),
        "scaling": Scaling(**{**said, "interval": _pair(said["interval"])}),
        "fits_envs": answer["fits_envs"],
    }


def write_cprofile(
    env: str, file: Path, frames: int = FRAMES, *, seed: int = SEED, overrides: Sequence[tuple[str, str]] = ()
) -> None:
    """Step the environment under Python's own profiler, in a pass of its own, and write what `pstats` reads."""
    timeout_s = min(BUILD_TIMEOUT_S + SLOWEST_STEP_S * frames, LONGEST_S)
    task = env_task(find_run(env, overrides))
    ask_profile("cprofile", task, timeout_s=timeout_s, file=str(file.absolute()), steps=frames, seed=seed)


def as_leak(measured: Mapping[str, Any]) -> EnvLeak:
    """Return what `measuring.measure` found as an EnvLeak, with the steps until this machine's memory is used up."""
    verdict, rate = measured["verdict"], measured["rate"]
    left = int(probe().available / rate) if verdict == "leak" and rate > 0 else None
    return EnvLeak(verdict, rate, _pair(measured["interval"]), why=measured["why"], steps_left=left)


def _with_lines(leak: EnvLeak, env: EnvTask, measured: Mapping[str, Any], *, frames: int, seed: int) -> EnvLeak:
    """Return the leak with its lines, largest first, what keeps it, what found them, and why where none was.

    What the tracker does not see of growing C memory is looked for line by line.
    """
    affordable = int(STEPPING_S * measured["steps_per_s"] / SLOWDOWN)
    wanted = max(TRACKED_STEPS, int(EPISODES * measured["steps"] / max(measured["episodes"], 1)))
    steps = max(20, min(wanted, MOST_TRACKED_STEPS, affordable))
    warm_up = min(WARM_UP_STEPS, max(frames // 4, 1), max(affordable, 20))
    growing = measured["malloc_per_step"]
    lines: list[LeakLine] = []
    tools, kept_in, why = [], tuple[str, ...](), ""
    searches: list[tuple[str, dict[str, float]]] = [("lines", {}), ("c_lines", {"expected": growing})]
    for what, more in searches:
        if what == "c_lines" and sum(line.bytes_per_step for line in lines) >= SEEN_SHARE * growing:
            break
        how: dict[str, Any] = {"warm_up": warm_up, "steps": steps, "seed": seed, **more}
        try:
            answer = ask_profile(what, env, timeout_s=BUILD_TIMEOUT_S + TRACKING_S, **how)
        except LegroomError as failed:
            why = f"the lines could not be found: {failed}"
            continue
        kept_in = kept_in or tuple(answer.get("kept_in", ()))
        known = {(line.file, line.line) for line in lines}
        found = [LeakLine(**line) for line in answer["lines"] if (line["file"], line["line"]) not in known]
        lines += found
        tools += [answer["found_by"]] if found else []
    lines.sort(key=lambda line: -line.bytes_per_step)
    if not lines and not why:
        why = f"no line was seen to leak in {steps:,} steps"
    said = "; ".join(filter(None, (leak.why, why)))
    return replace(leak, lines=tuple(lines), kept_in=kept_in, found_by=" and ".join(tools), why=said)


def _pair(values: Sequence[Any] | None) -> Any:
    return None if values is None else (values[0], values[1])


def _check(value: Any, what: str, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise BadInput(f"{what}: {value!r} must be a whole number from 1 to {most:,}")
