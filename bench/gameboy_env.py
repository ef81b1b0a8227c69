"""How fast the Game Boy environment is per core, what an environment weighs, and how hard the opponent is.

Frames count as the console plays them; a step plays `action_repeat` of them and draws the last. The case that is
required draws and hands out every single one, in colour. Play is at random with actions held for a while; rounds that
end begin again, and that counts. Time is the processor's, the figure the median over turns. Memory is measured in a
fresh process that imports the environment and nothing else: the bytes that it wrote itself.

The opponent must be one that can be beaten by answering what it does, and not by one button or by chance.

    python -m bench.gameboy_env [--to FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.results import RESULTS, write_section
from bench.weighing import weigh
from legroom_workloads.gameboy.env import GameBoyEnv
from legroom_workloads.gameboy.players import Player as Fighter
from legroom_workloads.gameboy.players import answer, guess, mash

FRAMES, TURNS, HELD_STEPS = 2_400, 7, 4
REQUIRED_FRAMES_PER_S = 1_200
COLUMNS = ["figure", "required", "measured", "verdict"]
SMALL: dict[str, Any] = {"grey": True, "downsample": 4}
ARENA: dict[str, Any] = {"grey": True, "crop": [72, 0, 72, 160], "downsample": 2}
CASES: tuple[tuple[str, dict[str, Any], int | None], ...] = (
    ("colour 144×160×3, every frame seen", {"action_repeat": 1}, REQUIRED_FRAMES_PER_S),
    ("colour 144×160×3, one frame of 4 seen (gameboy:default)", {}, REQUIRED_FRAMES_PER_S),
    ("grey 36×80 of the arena, one frame of 4 seen (gameboy:learn)", ARENA, REQUIRED_FRAMES_PER_S),
)
ENVS = 8
MB = 1e6
ROUNDS = 60
MOST_WON_BY_MASHING, LEAST_WON_BY_ANSWERING = 0.5, 0.7


class Player:
    """Plays at random and says how long the environment takes."""

    def __init__(self, env: GameBoyEnv) -> None:
        self.env, self._rng = env, np.random.default_rng(0)
        env.reset(seed=0)

    def frames_per_second(self, frames: int) -> float:
        """Return how many of the console's frames are played per second, beginning again included."""
        env = self.env
        steps = frames // env.action_repeat
        actions = self._rng.integers(6, size=steps // HELD_STEPS + 1).repeat(HELD_STEPS)[:steps].tolist()
        began = time.thread_time()
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return steps * env.action_repeat / (time.thread_time() - began)


def reset_ms(env: GameBoyEnv, times: int = 50) -> float:
    """Return what beginning a round costs."""
    began = time.thread_time()
    for _ in range(times):
        env.reset()
    return (time.thread_time() - began) / times * 1e3


def played() -> GameBoyEnv:
    """Return an environment that was played with."""
    env = GameBoyEnv()
    Player(env).frames_per_second(FRAMES)
    return env


def won_by(fighter: Fighter, env: GameBoyEnv) -> tuple[float, float]:
    """Return the share of rounds that are won, and the steps of a round."""
    won = steps = 0
    for number in range(ROUNDS):
        _, info = env.reset(seed=number)
        done = False
        while not done:
            _, _, terminated, truncated, info = env.step(fighter(info))
            done, steps = terminated or truncated, steps + 1
        won += info["is_success"]
    return won / ROUNDS, steps / ROUNDS


def opponent() -> tuple[list[list[str]], bool]:
    """Return the rows of what which way of playing wins, and whether one is not as it must be."""
    env = GameBoyEnv(**SMALL)
    rows, failed = [], False
    for name, fighter in (
        *((f"only {name}", mash(number)) for number, name in enumerate(env.cartridge.actions)),
        ("at random", guess(0)),
        ("answering, from RAM", answer),
    ):
        share, steps = won_by(fighter, env)
        good = share > LEAST_WON_BY_ANSWERING if fighter is answer else share < MOST_WON_BY_MASHING
        wanted = f"> {LEAST_WON_BY_ANSWERING:.0%}" if fighter is answer else f"< {MOST_WON_BY_MASHING:.0%}"
        failed |= not good
        rows.append(
            [f"{name}: rounds of {ROUNDS} won", wanted, f"{share:.0%}, {steps:.0f} steps each", "yes" if good else "NO"]
        )
    return rows, failed


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Speed and memory of the Game Boy environment.")
    parser.add_argument("--to", type=Path, default=RESULTS, help="the folder of results")
    parser.add_argument("--weigh", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.weigh:
        print(json.dumps(weigh(played, ENVS)))
        return 0
    players = {name: Player(GameBoyEnv(**kwargs)) for name, kwargs, _ in CASES}
    found: dict[str, list[float]] = {name: [] for name in players}
    for _ in range(TURNS):
        for name, player in players.items():
            found[name].append(player.frames_per_second(FRAMES))
    child = [sys.executable, "-m", "bench.gameboy_env", "--weigh"]
    weight = json.loads(subprocess.run(child, capture_output=True, text=True, check=True).stdout)
    rows, failed = [], False
    for name, _, required in CASES:
        speed = statistics.median(found[name])
        good = required is None or speed >= required
        failed |= not good
        wanted, verdict = ("", "") if required is None else (f"≥ {required:,}", "yes" if good else "NO")
        rows.append([f"{name}, frames/s", wanted, f"{speed:,.0f}", verdict])
    state = next(iter(players.values())).env.get_state()["console"].nbytes
    for figure, text in (
        ("beginning a round", f"{reset_ms(players[CASES[0][0]].env):.1f} ms"),
        ("a state to continue from", f"{state / 1e3:.1f} kB"),
        ("memory of a process that has imported the env", f"{weight['import'] / MB:.1f} MB"),
        ("the first env, PyBoy's import included", f"{weight['first'] / MB:+.2f} MB"),
        ("each further env in the same process", f"{weight['further'] / MB:+.2f} MB"),
    ):
        rows.append([figure, "", text, ""])
    command = "python -m bench.gameboy_env"
    write_section("Game Boy: speed and memory", COLUMNS, rows, command, folder=options.to)
    print()
    rows, unfair = opponent()
    write_section("Game Boy: the opponent", COLUMNS, rows, command, folder=options.to)
    return 1 if failed or unfair else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
