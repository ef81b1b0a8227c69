"""Ends rollouts of SB3's on-policy algorithms early: what they are trained on afterwards is as large as a whole one.

A rollout of an expensive environment takes minutes to days, and a rehearsal has one minute. After a share of its time
the rest of the rollout is left out, and the buffer is called full; the parent is told how much was never written.
Buffers of ours are left alone: what they take depends on what is in them. Other programs step Gymnasium's workers in
loops of their own: once waiting for these has taken its share, their last step is repeated, of the same size as any.
"""

from __future__ import annotations

import copy
import functools
import json
import os
import time
from typing import Any

LEAST = 4 << 20  # bytes of zeros that `_reserve.c` maps
SHARE = 3  # of the time that is left, for the first rollout


class _Until(int):
    """A number of steps to collect, until time is up: `while n_steps < n_rollout_steps` asks it."""

    end = float("inf")

    def __gt__(self, other: Any) -> Any:
        return int(self) > other and (other < 1 or time.monotonic() < self.end)


def _unwritten(buffer: Any, taken: int) -> int:
    """Return the bytes of large arrays, which come as zeros that take nothing, of the rows that were not collected."""
    rows = buffer.buffer_size
    kept = [
        each for value in vars(buffer).values() for each in (value.values() if isinstance(value, dict) else [value])
    ]
    sizes = [int(array.nbytes) for array in kept if getattr(array, "shape", ())[:1] == (rows,)]
    return sum(nbytes - nbytes * taken // rows for nbytes in sizes if nbytes >= LEAST)


def _plan() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(os.environ.get("LEGROOM_REHEARSAL_PLAN") or "{}")
    return found


def on_async_vector_env(journal: Any, module: Any) -> None:
    """Repeat the last step of environments in worker processes, once they have been waited for too long."""
    kind, share = module.AsyncVectorEnv, float(_plan().get("seconds") or 0) / SHARE
    send, wait = kind.step_async, kind.step_wait

    @functools.wraps(send)
    def step_async(self: Any, actions: Any) -> None:
        if "_legroom_last" not in vars(self):
            send(self, actions)

    @functools.wraps(wait)
    def step_wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        own = vars(self)
        if "_legroom_last" not in own:
            began = time.monotonic()
            found = wait(self, *args, **kwargs)
            steps, waited = own.get("_legroom_waited", (0, 0.0))
            steps, waited = own["_legroom_waited"] = steps + 1, waited + time.monotonic() - began
            if not 0 < share <= waited:
                return found
            own["_legroom_last"] = found
            text = f"not seen: what environments do after their first {steps:,} steps, which take long"
            journal.json("note", text=f"{text} (more time: --seconds)")
        return copy.deepcopy(own["_legroom_last"])

    kind.step_async, kind.step_wait = step_async, step_wait


def on_base_class(journal: Any, module: Any) -> None:
    """Shorten the rollouts of every model that learns from rollouts."""
    plan = _plan()
    if not plan.get("seconds"):
        return  # there is time for all of it
    looking_s = float(plan.get("looking_s") or 0)
    ends = time.monotonic() + float(plan["seconds"])
    set_up = module.BaseAlgorithm._setup_learn
    told: list[int] = []

    def shortened(collect: Any) -> Any:
        @functools.wraps(collect)
        def collected(
            self: Any, env: Any, callback: Any, rollout_buffer: Any, n_rollout_steps: int, *args: Any, **kwargs: Any
        ) -> Any:
            ours = type(rollout_buffer).__module__.startswith("legroom.")
            steps, now = _Until(n_rollout_steps), time.monotonic()
            steps.end = steps.end if ours else now + min(looking_s, max((ends - now) / SHARE, 1.0))
            found = collect(self, env, callback, rollout_buffer, steps, *args, **kwargs)
            if found and not ours and not rollout_buffer.full:
                taken, rollout_buffer.pos, rollout_buffer.full = rollout_buffer.pos, rollout_buffer.buffer_size, True
                journal.json("rollout cut", unwritten=_unwritten(rollout_buffer, taken))
                if not told:
                    text = f"not seen: what follows the first {taken:,} of {n_rollout_steps:,} steps of a rollout"
                    journal.json("note", text=f"{text}, which take long (more time: --seconds)")
                told.append(taken)
            return found

        return collected

    def learns(self: Any, *args: Any, **kwargs: Any) -> Any:
        kinds: list[Any] = [kind for kind in type(self).__mro__ if "collect_rollouts" in vars(kind)]
        if kinds and hasattr(self, "rollout_buffer") and not hasattr(kinds[0].collect_rollouts, "__wrapped__"):
            kinds[0].collect_rollouts = shortened(kinds[0].collect_rollouts)
        return set_up(self, *args, **kwargs)

    module.BaseAlgorithm._setup_learn = learns
