"""How fast the robot is per core, in plain MuJoCo and in MJX.

Time is the processor's, so that other work on the machine does not count, and the figure is the median over turns. MJX
steps 256 robots at once, as `robot:quick` does; compiling is measured apart.

    python -m bench.robot_env [--to FILE]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from brax.envs.wrappers.training import wrap

from bench.results import RESULTS, write_section
from legroom_workloads.robot.env import RobotEnv
from legroom_workloads.robot.gym_env import RobotGymEnv

ROBOTS, STEPS, TURNS = 256, 20, 5
COLUMNS = ["figure", "measured"]


def plain_steps_per_s(terrain: str) -> float:
    """Return control steps per second of one robot in plain MuJoCo, falls and new starts included."""
    env, rng = RobotGymEnv(terrain), np.random.default_rng(0)
    env.reset(seed=0)

    def turn() -> None:
        for action in np.tanh(0.7 * rng.standard_normal((400, 11))):
            if env.step(action.astype(np.float32))[2]:
                env.reset()

    return 400 / _median_cpu_s(turn)


def mjx_figures(terrain: str) -> tuple[float, float, float]:
    """Return robot steps per second of processor, seconds to trace and compile, and bytes of temporaries per robot."""
    env = wrap(RobotEnv(terrain), episode_length=500)
    key = jax.random.PRNGKey(0)
    state = jax.jit(env.reset)(jax.random.split(key, ROBOTS))

    def walk(state: Any, key: jax.Array) -> Any:
        def step(state: Any, key: jax.Array) -> tuple[Any, None]:
            return env.step(state, jnp.tanh(0.7 * jax.random.normal(key, (ROBOTS, 11)))), None

        return jax.lax.scan(step, state, jax.random.split(key, STEPS))[0]

    began = time.process_time()
    compiled = jax.jit(walk).lower(state, key).compile()
    compile_s = time.process_time() - began
    seconds = _median_cpu_s(lambda: jax.block_until_ready(compiled(state, key)))
    return ROBOTS * STEPS / seconds, compile_s, compiled.memory_analysis().temp_size_in_bytes / ROBOTS


def _median_cpu_s(turn: Callable[[], Any]) -> float:
    turn()
    spent = []
    for _ in range(TURNS):
        began = time.process_time()
        turn()
        spent.append(time.process_time() - began)
    return statistics.median(spent)


def main(arguments: Sequence[str]) -> int:
    """Measure everything, write the table, and return the exit code."""
    parser = argparse.ArgumentParser(description="How fast the robot is.")
    parser.add_argument("--to", type=Path, default=RESULTS, help="the folder of results")
    options = parser.parse_args(arguments)
    rows: list[list[str]] = []
    for terrain in ("flat", "rough"):
        steps, compile_s, nbytes = mjx_figures(terrain)
        rows += [
            [f"plain MuJoCo, {terrain}: steps per second", f"{plain_steps_per_s(terrain):,.0f}"],
            [f"MJX, {terrain}, {ROBOTS} robots: steps per second of processor", f"{steps:,.0f}"],
            [f"MJX, {terrain}: seconds of processor to trace and compile {STEPS} steps", f"{compile_s:.0f}"],
            [f"MJX, {terrain}: temporaries per robot", f"{nbytes / 1e3:.1f} KB"],
        ]
        for row in rows[-4:]:
            print(*row, sep="  ", flush=True)
    write_section("Robot: speed per core", COLUMNS, rows, "python -m bench.robot_env", folder=options.to)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
