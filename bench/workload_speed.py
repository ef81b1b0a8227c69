"""How fast the environments of the workloads are per core, and what one weighs.

    python -m bench.workload_speed mine|ninja|gameboy|fire|robot [--to FOLDER]

Play is at random among what is allowed, actions held for a while; episodes that end begin again, and that counts. Time
is the processor's, so that other work on the machine does not count; a figure is the median over turns. Memory is that
of a fresh process that imports the environment and nothing else: the bytes that it wrote itself (anonymous pages).

mine: full size, 49x71x58 blocks and 13.7 MB per observation; copies are timed against bare `np.copyto`, in turns.
ninja: a full level, 42x23 tiles with 128 mines and gold. gameboy: frames count as the console plays them; the opponent
must be one that is beaten by answering what it does, not by one button or by chance. fire: 25 ignitions over 24 hours
on 50x50 cells with 100 random breaks, and a step around it. robot: plain MuJoCo, and 256 robots at once in MJX.
"""

from __future__ import annotations

import argparse
import json
import math
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.results import RESULTS, write_section
from legroom.machine.tree import process_memory, tree_memory

MB = 1e6
TURNS = 7
COLUMNS = ["figure", "required", "measured", "verdict"]
Row = list[str]


def row(
    figure: str, measured: float, text: str = "{:,.0f}", least: float | None = None, most: float | None = None
) -> Row:
    """Return a row, with its verdict where something is required."""
    if least is None and most is None:
        return [figure, "", text.format(measured), ""]
    required = f"≥ {text.format(least)}" if most is None else f"≤ {text.format(most)}"
    good = measured >= least if most is None else measured <= most
    return [figure, required, text.format(measured), "yes" if good else "NO"]


def cpu_s(action: Callable[[], Any], clock: Callable[[], float] = time.thread_time) -> float:
    began = clock()
    action()
    return clock() - began


def in_turns(measured: dict[str, Callable[[], float]], turns: int = TURNS) -> dict[str, float]:
    """Return the median of each over turns in which all take part."""
    found: dict[str, list[float]] = {name: [] for name in measured}
    for _ in range(turns):
        for name, measure in measured.items():
            found[name].append(measure())
    return {name: statistics.median(each) for name, each in found.items()}


def steps_per_s(env: Any, count: int, held: int) -> float:
    """Return how many steps with six actions, each held, an environment makes per second."""
    actions = np.random.default_rng(0).integers(6, size=count // held + 1).repeat(held)[:count].tolist()

    def play() -> None:
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    return count / cpu_s(play)


# ---------------------------------------------------------------------------------------------------------- memory


def weights(workload: str, data: str = "") -> list[Row]:
    """Return what environments of a workload take in one process: the first, and each further one."""
    child = [sys.executable, "-m", "bench.workload_speed", workload, "--weigh", data or "-"]
    imported, first, further = json.loads(subprocess.run(child, capture_output=True, text=True, check=True).stdout)
    return [
        row("memory of a process that has imported the env", imported / MB, "{:.1f} MB"),
        row("the first env", first / MB, "{:+.2f} MB"),
        row("each further env in the same process", further / MB, "{:+.2f} MB"),
    ]


def weigh(make: Callable[[], Any], count: int) -> list[float]:
    """Return bytes before the first environment, for it, and for each further one; `make` returns a used one."""
    written, kept = [written_nbytes()], []
    for number in range(1, count + 1):
        kept.append(make())
        if number in (1, count):
            written.append(written_nbytes())
    before, one, all_of_them = written
    return [before, one - before, (all_of_them - one) / (count - 1)]


def written_nbytes() -> float:
    memory = process_memory("self")
    assert memory is not None
    return float(memory.anon)


# ------------------------------------------------------------------------------------------------------------ mine


class Digger:
    """Digs at random and adds up how long the environment takes, the mask included and the choice not."""

    def __init__(self, env: Any) -> None:
        self.env, self._rng = env, np.random.default_rng(0)
        env.reset()

    def steps_per_s(self, step: Callable[[Any], Any], count: int) -> float:
        spent, mask = 0.0, self.env.action_masks()
        for _ in range(count):
            action = int(self._rng.choice(np.flatnonzero(mask)))
            began = time.thread_time()
            step(action)
            mask = self.env.action_masks()
            spent += time.thread_time() - began
            if not mask.any():
                self.env.reset()
                mask = self.env.action_masks()
        return count / spent


def mine() -> tuple[str, list[Row]]:
    from legroom_workloads.mine import MineEnv

    live, copying = Digger(MineEnv(copy=False)), Digger(MineEnv())
    source = live.env.observe()
    target = np.zeros_like(source)  # pages that exist

    def share() -> float:
        bare = 100 / cpu_s(lambda: [np.copyto(target, source) for _ in range(100)])
        return copying.steps_per_s(copying.env.step, 100) / bare

    speed = in_turns({
        "dynamics": lambda: live.steps_per_s(live.env.mine, 5_000),
        "in place": lambda: live.steps_per_s(live.env.step, 5_000),
        "share": share,
        "copies": lambda: copying.steps_per_s(copying.env.step, 100),
        "reset": lambda: 1000 * cpu_s(live.env.reset),
    })  # fmt: skip
    return "Mine: speed and memory at 49x71x58", [
        row("dynamics with mask, steps/s", speed["dynamics"], least=5_000),
        row("observation in place (copy=False), steps/s", speed["in place"], least=2_000),
        row("with copies, share of what memcpy alone allows", speed["share"], "{:.2f}", least=0.8),
        row("with copies, steps/s", speed["copies"]),
        row("reset after some thousand blocks, observation in place", speed["reset"], "{:.2f} ms"),
        *weights("mine"),
    ]


def used_mine() -> Any:
    """Return a mine that was played with and its two slots, which are shared memory as in a worker, and not counted."""
    from legroom_workloads.mine import MineEnv

    env = MineEnv()
    shape = env.observation_space.shape
    slots = [np.frombuffer(mmap.mmap(-1, 4 * math.prod(shape)), np.float32).reshape(shape) for _ in range(2)]
    env.bind_observation(slots)
    Digger(env).steps_per_s(env.step, 2_000)
    return env, slots


# ----------------------------------------------------------------------------------------------------------- ninja

EVERYTHING: dict[str, Any] = {"entity_states": "full", "reachability": True}
NINJAS: tuple[tuple[str, dict[str, Any], int | None], ...] = (
    ("player_frame and game_state", {"global_view": False}, 5_000),
    ("everything: both frames, game_state, 769 entity states, reachability", EVERYTHING, 1_500),
    ("everything, in place (copy=False)", EVERYTHING | {"copy": False}, None),
    ("both frames and game_state", {}, None),
    ("vector", {"observation": "vector"}, None),
)


def ninja() -> tuple[str, list[Row]]:
    from legroom_workloads.ninja.env import NinjaEnv
    from legroom_workloads.ninja.map_file import write_map

    with tempfile.TemporaryDirectory(prefix="legroom-bench-") as folder:
        data, level = str(Path(folder, "full.map")), full_level()
        write_map(level, data)
        envs = {name: NinjaEnv(data=data, **kwargs) for name, kwargs, _ in NINJAS}
        for env in envs.values():
            env.reset(seed=0)
        speed = in_turns({name: partial(steps_per_s, env, 4_000, 8) for name, env in envs.items()})
        rows = [row(f"{name}, steps/s", speed[name], least=required) for name, _, required in NINJAS]
        rows.append(row("mines in the level", len(level.mines)))
        rows.append(row("gold in the level", len(level.gold)))
        return "Ninja: speed and memory", rows + weights("ninja", data)


def full_level() -> Any:
    """Return a large generated level with 128 mines, the missing ones anywhere in the air."""
    from dataclasses import replace

    from legroom_workloads.ninja.generator import generate
    from legroom_workloads.ninja.level import MOST_MINES, centre
    from legroom_workloads.ninja.tiles import EMPTY

    level = generate(0, "large", 1.0)
    rows, columns = np.nonzero(level.tiles == EMPTY)
    near = [level.start, level.switch, level.exit, *map(tuple, level.mines.tolist())]
    mines = level.mines.tolist()
    for pick in np.random.default_rng(0).permutation(len(rows)).tolist():
        x, y = centre(int(columns[pick]), int(rows[pick]))
        if len(mines) < MOST_MINES and min(abs(x - a) + abs(y - b) for a, b in near) > 48:
            mines.append([x, y])
    return replace(level, mines=np.array(mines, np.float32))


def used_ninja(data: str) -> Any:
    from legroom_workloads.ninja.env import NinjaEnv

    env = NinjaEnv(data=data, copy=False, **EVERYTHING)
    env.reset(seed=0)
    steps_per_s(env, 2_000, 8)
    return env


# --------------------------------------------------------------------------------------------------------- gameboy

ARENA: dict[str, Any] = {"grey": True, "crop": [72, 0, 72, 160], "downsample": 2}
GAMEBOYS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("colour 144×160×3, every frame seen", {"action_repeat": 1}),
    ("colour 144×160×3, one frame of 4 seen (gameboy:default)", {}),
    ("grey 36×80 of the arena, one frame of 4 seen (gameboy:learn)", ARENA),
)
FRAMES, ROUNDS = 2_400, 60


def gameboy() -> tuple[str, list[Row]]:
    envs = {name: new_gameboy(**kwargs) for name, kwargs in GAMEBOYS}
    speed = in_turns({name: partial(frames_per_s, env) for name, env in envs.items()})
    first = envs[GAMEBOYS[0][0]]
    return "Game Boy: speed and memory", [
        *(row(f"{name}, frames/s", speed[name], least=1_200) for name, _ in GAMEBOYS),
        row("beginning a round", 1e3 * cpu_s(lambda: [first.reset() for _ in range(50)]) / 50, "{:.1f} ms"),
        row("a state to continue from", first.get_state()["console"].nbytes / 1e3, "{:.1f} kB"),
        *weights("gameboy"),
    ]


def new_gameboy(**kwargs: Any) -> Any:
    from legroom_workloads.gameboy.env import GameBoyEnv

    env = GameBoyEnv(**kwargs)
    env.reset(seed=0)
    return env


def frames_per_s(env: Any) -> float:
    return steps_per_s(env, FRAMES // env.action_repeat, 4) * env.action_repeat


def used_gameboy() -> Any:
    env = new_gameboy()
    frames_per_s(env)
    return env


def opponent() -> tuple[str, list[Row]]:
    """Return what which way of playing wins."""
    from legroom_workloads.gameboy.players import answer, guess, mash

    env, rows = new_gameboy(grey=True, downsample=4), []
    for name, fighter in (
        *((f"only {name}", mash(number)) for number, name in enumerate(env.cartridge.actions)),
        ("at random", guess(0)),
        ("answering, from RAM", answer),
    ):
        won = steps = 0
        for number in range(ROUNDS):
            _, info = env.reset(seed=number)
            done = False
            while not done:
                _, _, terminated, truncated, info = env.step(fighter(info))
                done, steps = terminated or truncated, steps + 1
            won += info["is_success"]
        share = won / ROUNDS
        good = share > 0.7 if fighter is answer else share < 0.5
        told = f"{share:.0%}, {steps / ROUNDS:.0f} steps each"
        wanted = "> 70%" if fighter is answer else "< 50%"
        rows.append([f"{name}: rounds of {ROUNDS} won", wanted, told, "yes" if good else "NO"])
    return "Game Boy: the opponent", rows


# ------------------------------------------------------------------------------------------------------------ fire

LANDSCAPES, IGNITIONS, BREAKS, WORKERS, FEW, MANY = 40, 25, 100, 8, 4, 500


def fire() -> tuple[str, list[Row]]:
    rows = [spread(neighbours) for neighbours in (8, 16)]
    whole, alone, reset = stepped()
    rows.append(row("step, over the simulation alone", whole / alone - 1, "{:+.0%}", most=0.1))
    rows += [row("reset", reset, "{:.1f} ms"), *weights("fire")[:2]]
    once_mb = (MANY - FEW) * 8 * 50 * 50 * 2 / 1e6
    more_mb = shared_mb(MANY) - shared_mb(FEW)
    name = f"{MANY} landscapes instead of {FEW} in {WORKERS} workers, {once_mb:.0f} MB once: PSS of all processes"
    rows.append(row(name, more_mb, "{:+.0f} MB", most=1.5 * once_mb))  # one measurement differs from the next
    return "Wildfire: speed of the simulation", rows


def spread(neighbours: int) -> Row:
    """Return the row of one batch of ignitions."""
    from legroom_workloads.fire import FireEnv

    env, rng = FireEnv(rasters=LANDSCAPES, neighbours=neighbours), np.random.default_rng(0)
    spent, burned = [], []
    for index in range(LANDSCAPES):
        env.reset(seed=index, options={"raster": index})
        fuel = np.flatnonzero(env.landscape.burnable)
        breaks = np.zeros(env.shape, np.bool_)
        breaks.ravel()[rng.choice(fuel, BREAKS, replace=False)] = True
        ignitions = rng.choice(fuel, IGNITIONS)
        began = time.thread_time()
        fires = env.landscape.burned(ignitions, breaks=breaks)
        spent.append(time.thread_time() - began)
        burned.append(float(fires.mean()))
    share = statistics.mean(burned)
    name = f"25 ignitions x 24 h, 50x50, {neighbours} neighbours ({share:.0%} of the cells burn)"
    return row(name, 1e3 * statistics.median(spent), "{:.1f} ms", most=150)


def stepped() -> tuple[float, float, float]:
    """Return the median milliseconds of a step, of the simulation alone in the same state, and of a reset."""
    from legroom_workloads.fire import FireEnv

    env, rng = FireEnv(rasters=LANDSCAPES, sims=IGNITIONS), np.random.default_rng(0)
    whole, alone, resets = [], [], []
    for index in range(4):
        resets.append(cpu_s(partial(env.reset, seed=index)))
        terminated = False
        while not terminated:
            values = rng.random(env.breaks.size)
            began = time.thread_time()
            terminated = env.step(values)[2]
            between = time.thread_time()
            env.landscape.burned(np.asarray(env.get_state()["ignitions"]), breaks=env.breaks)
            alone.append(time.thread_time() - between)
            whole.append(between - began)
    return tuple(1e3 * statistics.median(each) for each in (whole, alone, resets))  # type: ignore[return-value]


def shared_mb(rasters: int) -> float:
    """Return what all processes together have (PSS) when workers play in so many landscapes."""
    child = [sys.executable, "-m", "bench.workload_speed", "fire", "--weigh", str(rasters)]
    return float(json.loads(subprocess.run(child, capture_output=True, text=True, check=True).stdout)) / MB


def weigh_fire(data: str) -> Any:
    from legroom_workloads.fire import FireEnv

    if data == "-":
        return weigh(used_fire, 2)
    import legroom

    workers = legroom.LeanVecEnv([partial(FireEnv, rasters=int(data), sims=1, hours=0.01) for _ in range(WORKERS)])
    workers.reset()
    workers.step(np.zeros((WORKERS, 10), np.int64))
    taken = tree_memory(os.getpid()).pss
    workers.close()
    return taken


def used_fire() -> Any:
    from legroom_workloads.fire import FireEnv

    env = FireEnv()
    env.reset(seed=0)
    env.step(np.random.default_rng(0).random(env.breaks.size))
    return env


# ----------------------------------------------------------------------------------------------------------- robot

ROBOTS, STEPS = 256, 20


def robot() -> tuple[str, list[Row]]:
    rows = []
    for terrain in ("flat", "rough"):
        steps, compile_s, nbytes = mjx_figures(terrain)
        rows += [
            row(f"plain MuJoCo, {terrain}: steps per second", plain_steps_per_s(terrain)),
            row(f"MJX, {terrain}, {ROBOTS} robots: steps per second of processor", steps),
            row(f"MJX, {terrain}: seconds of processor to trace and compile {STEPS} steps", compile_s),
            row(f"MJX, {terrain}: temporaries per robot", nbytes / 1e3, "{:.1f} KB"),
        ]
    return "Robot: speed per core", rows


def plain_steps_per_s(terrain: str) -> float:
    """Return control steps per second of one robot in plain MuJoCo, falls and new starts included."""
    from legroom_workloads.robot.gym_env import RobotGymEnv

    env, rng = RobotGymEnv(terrain), np.random.default_rng(0)
    env.reset(seed=0)

    def turn() -> None:
        for action in np.tanh(0.7 * rng.standard_normal((400, 11))):
            if env.step(action.astype(np.float32))[2]:
                env.reset()

    return 400 / in_turns({"turn": lambda: cpu_s(turn, time.process_time)})["turn"]


def mjx_figures(terrain: str) -> tuple[float, float, float]:
    """Return robot steps per second of processor, seconds to trace and compile, and bytes of temporaries per robot."""
    import jax
    import jax.numpy as jnp
    from brax.envs.wrappers.training import wrap

    from legroom_workloads.robot.env import RobotEnv

    env, key = wrap(RobotEnv(terrain), episode_length=500), jax.random.PRNGKey(0)
    state = jax.jit(env.reset)(jax.random.split(key, ROBOTS))

    def walk(state: Any, key: Any) -> Any:
        def step(state: Any, key: Any) -> tuple[Any, None]:
            return env.step(state, jnp.tanh(0.7 * jax.random.normal(key, (ROBOTS, 11)))), None

        return jax.lax.scan(step, state, jax.random.split(key, STEPS))[0]

    began = time.process_time()
    compiled = jax.jit(walk).lower(state, key).compile()
    compile_s = time.process_time() - began
    turn = {"turn": lambda: cpu_s(lambda: jax.block_until_ready(compiled(state, key)), time.process_time)}
    in_turns(turn, 1)
    return ROBOTS * STEPS / in_turns(turn, 5)["turn"], compile_s, compiled.memory_analysis().temp_size_in_bytes / ROBOTS


PARTS = {"mine": (mine,), "ninja": (ninja,), "gameboy": (gameboy, opponent), "fire": (fire,), "robot": (robot,)}
WEIGHED: dict[str, Callable[[str], Any]] = {
    "mine": lambda data: weigh(used_mine, 4),
    "ninja": lambda data: weigh(partial(used_ninja, data), 8),
    "gameboy": lambda data: weigh(used_gameboy, 8),
    "fire": weigh_fire,
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Speed and memory of the workloads' environments.")
    parser.add_argument("workload", choices=tuple(PARTS))
    parser.add_argument("--to", type=Path, default=RESULTS, help="the folder of results")
    parser.add_argument("--weigh", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.weigh:
        print(json.dumps(WEIGHED[options.workload](options.weigh)))
        return 0
    failed = False
    for part in PARTS[options.workload]:
        title, rows = part()
        write_section(title, COLUMNS, rows, f"python -m bench.workload_speed {options.workload}", folder=options.to)
        failed |= any(each[3] == "NO" for each in rows)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
