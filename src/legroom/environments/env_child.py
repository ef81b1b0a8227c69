"""The process that builds an environment for `sb3_env`: reads a task, writes an answer, both JSON.

Everything an environment can do wrong becomes one line in the answer. Imports here are what every training process has
anyway (numpy, gymnasium): they must not be counted as the environment's. Stepping it comes last, after a first answer:
whatever goes wrong there, its spaces and its memory are known.
"""

import gc
import json
import os
import sys
import threading
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from legroom.environments.env_make import EnvError, build, stage
from legroom.environments.gym_spaces import from_gymnasium
from legroom.errors import BadInput
from legroom.machine.child_process import close_and_leave, write_answer
from legroom.machine.tree import process_memory
from legroom.model.spaces import leaves as model_leaves

PROBE_TIMED_OUT = 75  # exit code; sb3_env knows it too
SECOND_INSTANCE_BELOW = 1 << 30  # a second one of a giant would be the out-of-memory we are asked to foresee


def main() -> None:
    """Carry out the task file named on the command line (after the path the bootstrap took)."""
    task = json.loads(Path(sys.argv[2]).read_text())
    answer_file = Path(task["answer"])
    envs: list[Any] = []
    try:
        answer = describe(task, envs)
    except EnvError as failed:
        answer = {"error": str(failed)}
    except BadInput as refused:
        answer = {"error": f"env {refused.message}", "hint": refused.hint}
    write_answer(answer_file, answer)
    if task.get("probe") and envs and "error" not in answer:
        timer = threading.Timer(task["probe"]["timeout_s"], os._exit, (PROBE_TIMED_OUT,))
        timer.daemon = True
        timer.start()
        answer["probe"] = probe_envs(task, envs)
        timer.cancel()
        write_answer(answer_file, answer)
    close_and_leave(envs)


def probe_envs(task: dict[str, Any], envs: list[Any]) -> dict[str, Any]:
    """Step the environments and return what lean storage makes of them, or `{"error": …}`."""
    from legroom.environments import env_probe as prober  # only now: it must not count as the environment's memory

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
    for module in task["preload"]:
        with suppress(ImportError):
            import_module(module)
    before = _measure()
    memory = []
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
        after = _measure()
        if before is None or after is None:
            break
        memory.append({key: max(0, after[key] - before[key]) for key in after})
        if sum(memory[-1].values()) > SECOND_INSTANCE_BELOW:
            break
        before = after
    return {
        "spaces": {kind: _space(task["id"], envs[0], kind) for kind in ("observation", "action")},
        "memory": memory,
        "imported_torch": "torch" in sys.modules and not task["preload"],
    }


def _space(env_id: str, env: Any, kind: str) -> dict[str, Any]:
    try:
        return from_gymnasium(getattr(env, f"{kind}_space")).model_dump()
    except BadInput as unsupported:
        raise EnvError(f"env {env_id!r}, {kind} space: {unsupported}") from unsupported


def _measure() -> dict[str, int] | None:
    """Return this process' own and file-backed resident bytes; None where the kernel does not tell."""
    gc.collect()
    memory = process_memory("self")
    return None if memory is None else {"anon": memory.anon, "file": memory.rss_file}
