"""A rollout of `gameboy:default`, 8,192 steps of two environments, held in memory: real fights, not black screens.

Two environments are played, framed and stacked as a training does it (VecFrameStack, VecTransposeImage), by a player
that guesses and by one that answers what the opponent does. Every observation goes into a lean rollout buffer, and its
hash beside it; then one epoch of minibatches is taken out again, and each sample's hash must be that of the frames that
went in. Memory is what the process has (PSS, and USS) above what it had before the buffer was made, with nothing
else kept: the buffer alone once it is full, and at the most while its minibatches are out. Each case has a process of
its own.

    python -m bench.gameboy_rollout [--steps 8192] [--to FILE]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch as th
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecFrameStack, VecTransposeImage

from bench.results import RESULTS, write_section
from legroom.backends.sb3.lean_rollout import LeanRolloutBuffer
from legroom.machine.tree import process_memory
from legroom_workloads.gameboy.env import GameBoyEnv
from legroom_workloads.gameboy.players import Player, answer, guess

STEPS, ENVS, STACK, BATCH, PART = 8192, 2, 4, 2048, 64
REQUIRED_MB, MB, GIB = 300, 1e6, 2**30
DIGEST_NBYTES = 16
PLAYERS: dict[str, Callable[[], Player]] = {"at random": lambda: guess(0), "answering": lambda: answer}
COLUMNS = ["player", "figure", "required", "measured", "verdict"]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="A rollout of the Game Boy, held in memory.")
    parser.add_argument("--steps", type=int, default=STEPS, help="of each environment")
    parser.add_argument("--to", type=Path, default=RESULTS, help="the folder of results")
    parser.add_argument("--player", choices=PLAYERS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.player:
        print(json.dumps(measure(options.player, options.steps)))
        return 0
    rows, failed = [], False
    for player in PLAYERS:
        child = [sys.executable, "-m", "bench.gameboy_rollout", "--player", player, "--steps", str(options.steps)]
        found = json.loads(subprocess.run(child, capture_output=True, text=True, check=True).stdout)
        few = found["held_pss"] <= REQUIRED_MB * MB and found["held_peak"] <= REQUIRED_MB * MB
        failed |= not few or not found["exact"]
        exact = f"{found['samples']:,} samples, {found['different']:,} different frames"
        rows += [
            [player, "plain arrays: stored, and while SB3 flattens them (computed)", "",
             f"{found['plain'] / GIB:.2f} GiB, {2 * found['plain'] / GIB:.2f} GiB", ""],
            [player, f"the lean buffer, {options.steps:,} × {ENVS} observations, PSS (USS)", f"≤ {REQUIRED_MB} MB",
             f"{found['held_pss'] / MB:.0f} MB ({found['held_uss'] / MB:.0f} MB)", "yes" if few else "NO"],
            [player, "the most while it was filled, PSS", f"≤ {REQUIRED_MB} MB", f"{found['held_peak'] / MB:.0f} MB",
             "yes" if few else "NO"],
            [player, f"one epoch of minibatches of {BATCH:,} besides, in parts of {PART} (memory.micro_batch); PSS", "",
             f"{found['parts'] / MB:.0f} MB", ""],
            [player, f"the same, minibatches whole: {found['batch'] / MB:.0f} MB each (prefetch=False)", "",
             f"{found['batches'] / MB:.0f} MB", ""],
            [player, "the same, the next one decoded meanwhile", "", f"{found['batches_ahead'] / MB:.0f} MB", ""],
            [player, "every sample taken out has the hash of what went in", "all", exact if found["exact"] else "NO",
             "yes" if found["exact"] else "NO"],
            [player, "adding a step of both environments", "", f"{found['add_us']:.0f} µs", ""],
        ]  # fmt: skip
    write_section("Game Boy: a rollout in memory", COLUMNS, rows, "python -m bench.gameboy_rollout", folder=options.to)
    return 1 if failed else 0


def measure(player: str, steps: int) -> dict[str, Any]:
    """Fill a buffer, take an epoch out of it in three ways, and return bytes above those before it was made."""
    th.set_num_threads(1)
    env = VecTransposeImage(VecFrameStack(DummyVecEnv([GameBoyEnv] * ENVS), STACK))
    fighters = [PLAYERS[player]() for _ in range(ENVS)]
    _play(env, fighters, 64, lambda *_: None)  # so that what the first steps allocate is there before
    before = _memory()
    buffer = LeanRolloutBuffer(steps, env.observation_space, env.action_space, "cpu", n_envs=ENVS)
    hashes: list[bytes] = []
    most = took = 0.0
    zeros = th.zeros(ENVS)

    def keep(step: int, observations: np.ndarray, actions: np.ndarray, rewards: np.ndarray, dones: np.ndarray) -> None:
        nonlocal most, took
        hashes.extend(_hash(each) for each in observations)
        began = time.thread_time()
        buffer.add(observations, actions, rewards, dones, zeros, zeros)
        took += time.thread_time() - began
        if step % 256 == 0:
            most = max(most, _memory()[0] - before[0])

    _play(env, fighters, steps, keep)
    held = [now - then for now, then in zip(_memory(), before, strict=True)]
    by_sample = [hashes[step * ENVS + number] for number in range(ENVS) for step in range(steps)]  # as flattened
    exact, peaks = True, {}
    # the smallest first: arrays that were handed out and let go of are kept for the next
    for name, ahead, part in (("parts", False, PART), ("batches", False, BATCH), ("batches_ahead", True, BATCH)):
        buffer.prefetch = ahead
        peaks[name], alike = _epoch(buffer, by_sample, part, before[0])
        exact &= alike
    plain = steps * ENVS * int(np.prod(env.observation_space.shape or ()))
    return {
        "plain": plain, "held_pss": held[0], "held_uss": held[1], "held_peak": max(most, held[0]),
        "batch": plain // (steps * ENVS) * BATCH, "exact": exact, "samples": len(hashes), "different": len(set(hashes)),
        "add_us": took / steps * 1e6, **peaks,
    }  # fmt: skip


def _play(env: VecEnv, fighters: Sequence[Player], steps: int, keep: Callable[..., None]) -> None:
    """Play on, and hand every step's observations to `keep` with the actions that were taken on them."""
    observations, inner = env.reset(), env.unwrapped  # wrappers have no infos of a reset
    numbers: Sequence[dict[str, Any]] = list(inner.reset_infos)
    dones = np.ones(ENVS, bool)
    for step in range(steps):
        actions = np.array([fighter(each) for fighter, each in zip(fighters, numbers, strict=True)])
        following, rewards, ended, infos = env.step(actions)
        keep(step, observations, actions, rewards, dones)
        # a round that ended has begun again, and its first numbers are not in this step's infos
        numbers = [inner.reset_infos[i] if ended[i] else infos[i] for i in range(ENVS)]
        observations, dones = following, ended


def _epoch(buffer: LeanRolloutBuffer, hashes: Sequence[bytes], part: int, before: float) -> tuple[float, bool]:
    """Take every minibatch out, in parts; return the most memory above `before`, and whether all hashes are right."""
    most, seen, alike = 0.0, 0, True
    for whole, parts in buffer.minibatches(BATCH):
        at = 0
        for samples in parts(part):
            observations = samples.observations.numpy()
            most = max(most, _memory()[0] - before)
            expected = (hashes[index] for index in whole[at : at + len(observations)])
            alike &= all(_hash(each) == right for each, right in zip(observations, expected, strict=True))
            at += len(observations)
            most = max(most, _memory()[0] - before)  # by now the next may have been decoded
        seen += at
    return most, alike and seen == len(hashes)


def _hash(observation: np.ndarray) -> bytes:
    return blake2b(np.ascontiguousarray(observation).data, digest_size=DIGEST_NBYTES).digest()


def _memory() -> tuple[float, float]:
    """Return PSS and USS of this process, in bytes."""
    memory = process_memory("self")
    assert memory is not None
    return float(memory.pss), float(memory.uss)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
