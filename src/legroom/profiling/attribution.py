"""Ask for the lines that leave memory behind, after a verdict; the pass itself is `tracking`, in a fresh child.

Following every allocation slows an environment down several times over, so it is done only once something was found,
and for few steps: as many as the verdict needed are not necessary to see where it comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from legroom.errors import LegroomError
from legroom.model.trace import LeakLine
from legroom.profiling.ask_child import BUILD_TIMEOUT_S, ask_child

TRACKED_STEPS, MOST_TRACKED_STEPS = 2_000, 20_000
EPISODES = 6  # that many should be among the tracked steps, if that is affordable: some leak only as an episode ends
WARM_UP_STEPS = 1_000
TIMEOUT_S = 120.0
STEPPING_S = 30.0  # what the steps may take, by the pace of the first pass
SLOWDOWN = 6.0  # of tracked steps, at a guess
SEEN_SHARE = 0.5  # of the growing C memory: below that the tracker has missed what leaks


def attribute(
    env: Mapping[str, Any], *, steps_per_s: float, episode_steps: float, malloc_per_step: float, frames: int, seed: int
) -> tuple[tuple[LeakLine, ...], tuple[str, ...], str, str]:
    """Return the lines, largest first, what keeps it, what found them, and why there are none where that went wrong.

    Args:
        env: as `loading.env_task` makes it.
        steps_per_s: of the first pass; slow environments are tracked for fewer steps.
        episode_steps: mean length of an episode.
        malloc_per_step: bytes per step that the first pass saw growing in C memory. What the tracker does not see of
            them (it follows calls that go through a library's import table, not those by address, as of ctypes) is
            looked for line by line.
        frames: that the first pass was asked for.
    """
    affordable = int(STEPPING_S * steps_per_s / SLOWDOWN)
    wanted = min(max(TRACKED_STEPS, int(EPISODES * episode_steps)), MOST_TRACKED_STEPS)
    tracked = max(20, min(wanted, affordable))
    warm_up = min(WARM_UP_STEPS, max(frames // 4, 1), max(affordable, 20))
    lines: list[LeakLine] = []
    tools, kept_in, why = [], tuple[str, ...](), ""
    searches = [("lines", {"PYTHONMALLOC": "malloc"}, {}), ("c_lines", {}, {"expected": malloc_per_step})]
    for what, variables, more in searches:
        if what == "c_lines" and sum(line.bytes_per_step for line in lines) >= SEEN_SHARE * malloc_per_step:
            break
        try:
            answer = ask_child(
                what,
                env,
                timeout_s=BUILD_TIMEOUT_S + TIMEOUT_S,
                extra=variables,
                warm_up=warm_up,
                steps=tracked,
                seed=seed,
                **more,
            )
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
        why = f"no line was seen to leak in {tracked:,} steps"
    return tuple(lines), kept_in, " and ".join(tools), why
