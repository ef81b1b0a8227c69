"""How fast the ninja is per core, with which observations on, and what an environment weighs.

The level is a full one: 42x23 tiles, 128 mines, gold. Play is at random with actions held for a while, as a policy in
training plays; episodes that end begin again, and that counts. Time is the processor's, so that other work on the
machine does not count, and the figure is the median over turns. Memory is measured in a fresh process that imports the
environment and nothing else: the bytes that it wrote itself.

    python -m bench.ninja_env [--to FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.results import RESULTS, write_section
from bench.weighing import weigh
from legroom_workloads.ninja.env import NinjaEnv
from legroom_workloads.ninja.generator import generate
from legroom_workloads.ninja.level import MOST_MINES, Level, centre
from legroom_workloads.ninja.map_file import write_map
from legroom_workloads.ninja.tiles import EMPTY

STEPS, TURNS, HELD_FRAMES = 4_000, 7, 8
COLUMNS = ["figure", "required", "measured", "verdict"]
FRAME: dict[str, Any] = {"global_view": False}
EVERYTHING: dict[str, Any] = {"entity_states": "full", "reachability": True}
CASES: tuple[tuple[str, dict[str, Any], int | None], ...] = (
    ("player_frame and game_state", FRAME, 5_000),
    ("everything: both frames, game_state, 769 entity states, reachability", EVERYTHING, 1_500),
    ("everything, in place (copy=False)", EVERYTHING | {"copy": False}, None),
    ("both frames and game_state", {}, None),
    ("vector", {"observation": "vector"}, None),
)
ENVS = 8
MB = 1e6


def full_level() -> Level:
    """Return a large generated level with 128 mines, the missing ones anywhere in the air."""
    level = generate(0, "large", 1.0)
    rows, columns = np.nonzero(level.tiles == EMPTY)
    rng = np.random.default_rng(0)
    near = [level.start, level.switch, level.exit, *map(tuple, level.mines.tolist())]
    mines = level.mines.tolist()
    for pick in rng.permutation(len(rows)).tolist():
        x, y = centre(int(columns[pick]), int(rows[pick]))
        if len(mines) < MOST_MINES and min(abs(x - a) + abs(y - b) for a, b in near) > 48:
            mines.append([x, y])
    return replace(level, mines=np.array(mines, np.float32))


class Player:
    """Plays at random and adds up how long the environment takes."""

    def __init__(self, env: NinjaEnv) -> None:
        self.env, self._rng = env, np.random.default_rng(0)
        env.reset(seed=0)

    def steps_per_second(self, count: int) -> float:
        """Return how many steps the environment makes per second, beginning again included."""
        actions = self._rng.integers(6, size=count // HELD_FRAMES + 1).repeat(HELD_FRAMES)[:count].tolist()
        env = self.env
        began = time.thread_time()
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return count / (time.thread_time() - began)

    def frames_per_second(self, count: int) -> float:
        """Return how many frames the physics alone makes per second."""
        actions = self._rng.integers(6, size=count // HELD_FRAMES + 1).repeat(HELD_FRAMES)[:count].tolist()
        game = self.env.game
        began = time.thread_time()
        for action in actions:
            game.step(action)
            if game.dead or game.won:
                game.restart()
        return count / (time.thread_time() - began)


def speeds(data: str) -> dict[str, float]:
    """Return the median over turns of steps per second, by case, and of the physics alone."""
    players = {name: Player(NinjaEnv(data=data, **kwargs)) for name, kwargs, _ in CASES}
    found: dict[str, list[float]] = {name: [] for name in (*players, "physics")}
    for _ in range(TURNS):
        for name, player in players.items():
            found[name].append(player.steps_per_second(STEPS))
        found["physics"].append(players["vector"].frames_per_second(STEPS))
    return {name: statistics.median(each) for name, each in found.items()}


def played(data: str) -> NinjaEnv:
    """Return an environment with everything on that was played with."""
    env = NinjaEnv(data=data, copy=False, **EVERYTHING)
    Player(env).steps_per_second(2_000)
    return env


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Speed and memory of the ninja.")
    parser.add_argument("--to", type=Path, default=RESULTS, help="the folder of results")
    parser.add_argument("--weigh", metavar="MAP", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.weigh:
        print(json.dumps(weigh(partial(played, options.weigh), ENVS)))
        return 0
    with tempfile.TemporaryDirectory(prefix="legroom-bench-") as folder:
        data = str(Path(folder, "full.map"))
        level = full_level()
        write_map(level, data)
        speed = speeds(data)
        child = [sys.executable, "-m", "bench.ninja_env", "--weigh", data]
        weight = json.loads(subprocess.run(child, capture_output=True, text=True, check=True).stdout)
    rows, failed = [], False
    for name, _, required in CASES:
        good = required is None or speed[name] >= required
        failed |= not good
        wanted, verdict = ("", "") if required is None else (f"{required:,}", "yes" if good else "NO")
        rows.append([f"{name}, steps/s", wanted, f"{speed[name]:,.0f}", verdict])
    for figure, text in (
        ("physics alone, frames/s", f"{speed['physics']:,.0f}"),
        ("mines and gold in the level", f"{len(level.mines)} and {len(level.gold)}"),
        ("memory of a process that has imported the env", f"{weight['import'] / MB:.1f} MB"),
        ("the first env, everything on", f"{weight['first'] / MB:+.2f} MB"),
        ("each further env in the same process", f"{weight['further'] / MB:+.2f} MB"),
    ):
        rows.append([figure, "", text, ""])
    write_section("Ninja: speed and memory", COLUMNS, rows, "python -m bench.ninja_env", folder=options.to)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
