"""What N environments cost beside each other, each in a process of its own; runs in the child.

The processes are legroom's light workers, forked from one template as `LeanVecEnv` does it, but asked without SB3: the
figures are those of the environments alone, whatever trains beside them. Each number of them is started, stepped for a
while, so that buffers and caches exist, and measured: PSS of all workers and their template, where a page that several
map counts once, and USS, what a worker has for itself.

What one more costs is the slope of a line through the rows that are forked; a single worker is an interpreter of its
own and would bend it. Where there are no two such rows, it is what a worker has for itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from legroom.environments.env_make import build
from legroom.environments.env_steps import random_action
from legroom.errors import BadInput
from legroom.machine.limits import limit_reached
from legroom.machine.probing import probe
from legroom.machine.tree import tree_memory
from legroom.model.trace import ParallelRow, Scaling
from legroom.sharing.crew import LightEnvs
from legroom.sharing.shared import begin_sharing
from legroom.watching.measuring import SEED

STEPS, SECONDS = 200, 3.0  # per number of environments; the time alone where steps are slow
INTERPRETER = 32 << 20  # bytes resident before there is an environment (Python 3.11, numpy, gymnasium)
RESERVE = 0.1  # of the memory available, left alone
USED_SHARE = 0.7  # of what is available: more is not started just to measure it
QUANTILE = 3.0
LEAST_NOISE = 64 << 10  # bytes per environment: allocators and the kernel move in such amounts
ROW_NOISE = 256 << 10  # bytes by which a row differs from its repetition (CartPole, 2 to 8 workers, 2026-11)


def measure_scaling(
    env: None, built_from: dict[str, Any], folder: str, *, counts: Sequence[int], each: int = 0, seed: int = SEED
) -> dict[str, Any]:
    """Return `{"parallel", "scaling", "fits_envs"}` as plain data.

    Args:
        counts: of environments, rising.
        each: bytes that one is known to need in a process of its own; so many that do not fit are not started.
    """
    begin_sharing()
    budget = int(probe().available * (1 - RESERVE))
    rows: list[ParallelRow] = []
    why, refused = "", False
    for count in counts:
        if _expected(rows, count, each) > USED_SHARE * budget:
            why = f"{count:,} and more were not started: they would take most of this machine's memory"
            break
        try:
            rows.append(_measure(built_from, count, seed))
        except Exception as failed:  # whatever an environment or a dying worker raises is a reason, not our failure
            why, refused = f"could not start {count:,} in worker processes: {_one_line(failed)}", True
            break
    marginal, interval = _line(rows)
    return {
        "parallel": [asdict(row) for row in rows],
        "scaling": asdict(Scaling(marginal, interval, budget, why)),
        "fits_envs": (rows[-1].envs if rows else None) if refused else _fits(rows, marginal, budget),
    }


def _measure(built_from: dict[str, Any], count: int, seed: int) -> ParallelRow:
    """Return what `count` environments take once they were stepped for a while."""
    make = partial(build, built_from["id"], built_from["kwargs"], built_from["wrappers"])
    with closing(LightEnvs(make, count, _preload(built_from["id"]))) as envs:
        _step(envs, seed)
        processes = dict(tree_memory(os.getpid()).processes)
        processes.pop(os.getpid(), None)
        alone = sorted(processes[pid].uss for pid in envs.pids if pid in processes)
        pss, uss = (sum(getattr(one, name) for one in processes.values()) for name in ("pss", "uss"))
        return ParallelRow(count, pss, alone[len(alone) // 2], max(pss - uss, 0), envs.are_forked)


def _step(envs: LightEnvs, seed: int) -> None:
    """Step all of them for a while, at least once."""
    space = envs.action_space
    np.random.seed(seed % 2**32)
    space.seed(seed)
    envs.ask_each("reset", 0, each=lambda index: (seed + index, {}))
    masked = envs.offer("action_masks")

    def action(index: int) -> tuple[Any]:
        return (random_action(space, partial(envs.masks, index)) if masked else space.sample(),)

    deadline = time.monotonic() + SECONDS
    for number in range(STEPS):
        envs.ask_each("step", number % 2, each=action)
        if time.monotonic() > deadline:
            break


def _preload(env_id: str) -> list[str]:
    """Return what makes this environment, to be imported before workers are forked."""
    registered = import_module("gymnasium").registry.get(env_id)
    entry = env_id if registered is None else registered.entry_point
    return [entry] if isinstance(entry, str) and ":" in entry else []


def _expected(rows: Sequence[ParallelRow], count: int, each: int) -> float:
    """Return about what `count` of them will take, from those measured so far or from one alone."""
    if not rows:
        return max(each - INTERPRETER, 0) * count
    return rows[-1].pss + (count - rows[-1].envs) * rows[-1].uss_per_env


def _line(rows: Sequence[ParallelRow]) -> tuple[int | None, tuple[int, int] | None]:
    """Return the bytes of one more environment and between what they lie."""
    if not rows:
        return None, None
    chosen = [row for row in rows if row.forked == rows[-1].forked]
    if len(chosen) < 2:
        return rows[-1].uss_per_env, None
    counts, pss = (np.array([getattr(row, name) for row in chosen], float) for name in ("envs", "pss"))
    centred = counts - counts.mean()
    width = float(centred @ centred)
    slope = float(centred @ pss) / width
    off = pss - pss.mean() - slope * centred
    error = float(np.sqrt((off @ off / max(len(chosen) - 2, 1) + ROW_NOISE**2) / width))
    reach = QUANTILE * error + LEAST_NOISE
    slope = max(slope, 0.0)
    return round(slope), (round(max(slope - reach, 0.0)), round(slope + reach))


def _fits(rows: Sequence[ParallelRow], marginal: int | None, budget: int) -> int | None:
    """Return how many fit; None where nothing was measured. What each has alone is the least that one more takes."""
    if not rows:
        return None
    last = rows[-1]
    each = max(marginal or 0, last.uss_per_env, 1)
    return max(last.envs + int((budget - last.pss) // each), 0)


def _one_line(failed: BaseException) -> str:
    """Return an exception in one line: of a worker's death the sentence, not its last words."""
    if (reached := limit_reached(failed)) is not None:
        return reached
    text = failed.message if isinstance(failed, BadInput) else str(failed).partition("; its last output")[0]
    line = " ".join(text.split())
    name = "" if type(failed).__name__ in ("EnvError", "BadInput", "WorkerDied") else f"{type(failed).__name__}: "
    return f"{name}{line}"[:300]
