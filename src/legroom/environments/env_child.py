"""The process that builds an environment, to look at it or for another task: reads a task, writes an answer, both JSON.

Everything an environment can do wrong becomes one line in the answer. Imports here are what every training process has
anyway (numpy, gymnasium): they must not be counted as the environment's. Stepping it comes last, after a first answer:
whatever goes wrong there, its spaces and its memory are known.
"""

import gc
import json
import os
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from legroom.environments.env_make import EnvError, build, import_makers, stage
from legroom.environments.env_steps import mask_function, random_action
from legroom.environments.gym_spaces import from_gymnasium
from legroom.environments.script_classes import lift
from legroom.errors import BadInput
from legroom.machine.child_process import call_after, close_and_leave, queued_s, write_answer
from legroom.machine.tree import process_memory
from legroom.model.spaces import leaves as model_leaves
from legroom.sharing.shared_folder import VARIABLE
from legroom.sharing.worker import put_off_packages

STEPS, STEPPING_S = 128, 0.25  # of each half
SECOND_INSTANCE_BELOW = 1 << 30  # a second one of a giant would be the out-of-memory we are asked to foresee


def main() -> None:
    """Carry out the task file named on the command line."""
    task = json.loads(Path(sys.argv[-1]).read_bytes())
    answer_file = Path(task["answer"])
    os.environ.setdefault(VARIABLE, str(Path(task["folder"], "shared")))  # what it shares goes with this folder
    envs: list[Any] = []
    try:
        answer = perform(task, envs) if "perform" in task else describe(task, envs)
    except EnvError as failed:
        answer = {"error": str(failed)}
    except BadInput as refused:
        answer = {"error": f"env {refused.message}", "hint": refused.hint}
    write_answer(answer_file, answer)
    if envs and "error" not in answer and "perform" not in task:

        def too_long() -> None:
            write_answer(answer_file, answer | {"slow": True})
            os._exit(0)

        cancel = call_after(task["timeout_s"], too_long)
        answer["stepped"], answer["time_limit"], answer["step_s"], answer["episode_mean"] = step_envs(envs)
        write_answer(answer_file, answer)
        if task.get("probe"):
            answer["probe"] = probe_envs(task, envs)
            write_answer(answer_file, answer)
        cancel()
    close_and_leave(envs)


def perform(task: dict[str, Any], envs: list[Any]) -> dict[str, Any]:
    """Build the environment, unless the function builds its own, and return what the function named in the task does.

    It is called with the environment, what that was built from, a folder for files of its own and its arguments.
    """
    env = task["env"]
    if task["build"]:
        envs.append(build(env["id"], env["kwargs"], env["wrappers"]))
    module, _, function = task["perform"].partition(":")
    found = getattr(import_module(module), function)
    answer: dict[str, Any] = found(envs[0] if envs else None, env, task["folder"], **task["arguments"])
    return answer


def step_envs(
    envs: list[Any],
) -> tuple[list[dict[str, int]] | None, int | None, float | None, float | None]:
    """Step the environments; return what they took more, by halves, after how many steps episodes are cut off, the
    seconds of a step, in the median, and the steps of the episodes that ended, in the mean.

    None where they raised, where no episode ended, and where none was cut off or not all after as many steps.
    """
    meter, halves, took = MemoryMeter(), [], list[int]()
    steps_of, limits, lengths = [0] * len(envs), set[int | None](), list[int]()
    for _ in range(2):
        began, steps = time.monotonic() - queued_s(), 0
        while steps < STEPS and time.monotonic() - queued_s() - began < STEPPING_S:
            steps += 1
            try:
                for number, env in enumerate(envs):
                    action, before = random_action(env.action_space, mask_function(env)), time.perf_counter_ns()
                    _, _, terminated, truncated, _ = env.step(action)
                    took.append(time.perf_counter_ns() - before)
                    steps_of[number] += 1
                    if terminated or truncated:
                        limits.add(steps_of[number] if truncated and not terminated else None)
                        lengths.append(steps_of[number])
                        steps_of[number] = 0
                        env.reset()
            except BaseException:  # the probe says it, where there is one; what it holds is known all the same
                return None, None, None, None
        halves.append(meter.grown())
    limit = limits.pop() if len(limits) == 1 else None
    step_s = sorted(took)[len(took) // 2] / 1e9
    mean = sum(lengths) / len(lengths) if lengths else None
    return None if None in halves else halves, limit, step_s, mean  # type: ignore[return-value]


def probe_envs(task: dict[str, Any], envs: list[Any]) -> dict[str, Any]:
    """Step the environments and return what lean storage makes of them, or `{"error": …}`."""
    from legroom.environments import lean_probe as prober  # only now: it must not count as the environment's memory

    leaves = model_leaves(from_gymnasium(envs[0].observation_space))
    try:
        with stage("stepping it raised", but=prober.TooSlowError):
            return prober.probe(envs, leaves, task["probe"])
    except EnvError as failed:
        return {"error": str(failed)}
    except prober.TooSlowError as slow:
        return {"error": f"it is too slow: {slow}"}


def describe(task: dict[str, Any], envs: list[Any]) -> dict[str, Any]:
    """Build the environments into `envs` and return the answer: spaces, and the memory each has added."""
    if task["light"]:
        put_off_packages()  # as light workers do
    for module in task["preload"]:
        with suppress(ImportError):
            import_module(module)
    meter, script, memory = MemoryMeter(), None, []
    if task.get("script"):
        with suppress(Exception):  # an error in it is reported where something of it is used
            lift(task["script"])
        script = meter.grown()
    import_makers(task["id"], task["wrappers"])
    imports = meter.grown()
    for _ in range(task["instances"]):
        try:
            env = build(task["id"], task["kwargs"], task["wrappers"], trust=task["trust"])
            with stage(f"env {task['id']!r} raised in reset()"):
                env.reset()
        except EnvError:
            if not envs:
                raise
            break  # it can only be built once per process
        envs.append(env)
        grown = meter.grown()
        if grown is None:
            break
        memory.append(grown)
        if sum(grown.values()) > SECOND_INSTANCE_BELOW:
            break
    return {
        "script": script,
        "imports": imports,
        "spaces": {kind: _space(task["id"], envs[0], kind) for kind in ("observation", "action")},
        "memory": memory,
        "loads": [] if task["preload"] else sorted({name.partition(".")[0] for name in list(sys.modules)}),
    }


def _space(env_id: str, env: Any, kind: str) -> dict[str, Any]:
    try:
        return from_gymnasium(getattr(env, f"{kind}_space")).model_dump()
    except BadInput as unsupported:
        raise EnvError(f"env {env_id!r}, {kind} space: {unsupported}") from unsupported


class MemoryMeter:
    """What this process has grown by since it was last asked: bytes of its own, and of mapped files."""

    def __init__(self) -> None:
        self._before = self._measure()

    def grown(self) -> dict[str, int] | None:
        """Return the growth; None where the kernel does not tell."""
        before, self._before = self._before, self._measure()
        if before is None or self._before is None:
            return None
        return {key: max(0, self._before[key] - before[key]) for key in before}

    def _measure(self) -> dict[str, int] | None:
        gc.collect()
        memory = process_memory("self")
        return None if memory is None else {"anon": memory.anon, "file": memory.rss_file}
