"""Replay of `fire:medium`, 100,000 transitions of sixteen environments, held in memory: real episodes of FireEnv.

Random allowed breaks are cut, ten per step, in 500 landscapes under another wind in every episode. How far fires run is
not in an observation, so they are short here, which makes filling quick; rewards are what they then are. A hash of each
transition (observation, next one, action, reward, end) is kept beside the buffer. Once it is full, *every* transition
is read again and hashed. Memory is what the process has (PSS, and USS) above what it had before the buffer was made;
batches taken out are SB3's affair too, and apart. The time of a sampled batch is compared, in turns, with SB3's own
buffer, a small one, since all of it would be 16 GB.

    nice python -m bench.fire_replay [--transitions 100000] [--to FILE]
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from stable_baselines3.common.buffers import ReplayBuffer

from bench.results import RESULTS, write_section
from legroom.backends.sb3.lean_replay import LeanReplayBuffer
from legroom.machine.tree import ProcessMemory, process_memory
from legroom_workloads.fire import FireEnv

TRANSITIONS, ENVS, BATCH, TURNS = 100_000, 16, 32, 60
SB3_TRANSITIONS = 3_200  # half a gigabyte
AT_ONCE = 160  # transitions read at a time while all are compared
REQUIRED_MB, MB, GB = 400, 1e6, 1e9
DIGEST_NBYTES = 16
COLUMNS = ["figure", "required", "measured", "verdict"]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Replay of the wildfire agent, held in memory.")
    parser.add_argument("--transitions", type=int, default=TRANSITIONS)
    parser.add_argument("--to", type=Path, default=RESULTS, help="the folder of results")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        print(json.dumps(measure(options.transitions)))
        return 0
    child = [sys.executable, "-m", "bench.fire_replay", "--child", "--transitions", str(options.transitions)]
    found = json.loads(subprocess.run(child, stdout=subprocess.PIPE, text=True, check=True).stdout)
    count = f"{found['transitions']:,}"
    few, exact = max(found["pss"], found["uss"]) <= REQUIRED_MB * MB, not found["wrong"]
    rows = [
        [f"{count} transitions in plain arrays (computed)", "", f"{found['plain'] / GB:.2f} GB", ""],
        [f"{count} transitions, lean", f"<= {REQUIRED_MB} MB",
         f"{found['pss'] / MB:.0f} MB PSS, {found['uss'] / MB:.0f} MB USS", "ok" if few else "MISSED"],
        ["by the buffer's own count", "", f"{found['counted'] / MB:.0f} MB", ""],
        ["transitions that came back other than they were", "0", f"{found['wrong']} of {found['compared']:,}",
         "ok" if exact else "MISSED"],
        ["adding a row of 16, of SB3's time", "", f"{found['add']:.2f}x", ""],
        [f"sampling a batch of {BATCH}, of SB3's time", "",
         f"{found['sample']:.1f}x ({found['sample_ms']:.1f} ms)", ""],
        ["whole process with PyTorch, environments and hashes", "", f"{found['process'] / MB:.0f} MB PSS", ""],
    ]  # fmt: skip
    write_section("Wildfire: replay in memory", COLUMNS, rows, "python -m bench.fire_replay", folder=options.to)
    return int(not (few and exact))


def measure(transitions: int) -> dict[str, Any]:
    """Fill a lean buffer, compare everything in it, race it against SB3's."""
    envs = [FireEnv(sims=1, hours=0.01, neighbours=8, seed=number) for number in range(ENVS)]
    spaces = (envs[0].observation_space, envs[0].action_space)
    rows = transitions // ENVS
    digests = np.zeros((rows, ENVS, DIGEST_NBYTES), np.uint8)
    small = ReplayBuffer(SB3_TRANSITIONS, *spaces, "cpu", n_envs=ENVS, handle_timeout_termination=False)
    rng = np.random.default_rng(0)
    shown = np.stack([env.reset()[0] for env in envs])
    LeanReplayBuffer(ENVS, *spaces, "cpu", ENVS).add(shown, shown, np.zeros((ENVS, 10)), np.zeros(ENVS), *_ends(ENVS))
    for side in (small.observations, small.next_observations):
        side[:] = 1  # its pages are there before anything is weighed
    before = _memory()
    buffer = LeanReplayBuffer(transitions, *spaces, "cpu", ENVS)
    adds: tuple[list[float], list[float]] = ([], [])
    for row in range(rows):
        allowed = [np.flatnonzero(env.action_masks()) for env in envs]
        actions = np.stack([rng.choice(cells, 10, replace=False) for cells in allowed])
        steps = [env.step(action) for env, action in zip(envs, actions, strict=True)]
        after, rewards = np.stack([step[0] for step in steps]), np.array([step[1] for step in steps], np.float32)
        dones = np.array([step[2] for step in steps])
        digests[row] = _digests(shown, after, actions, rewards, dones)
        for target, times in zip((buffer, small), adds, strict=True):
            if target is buffer or row < small.buffer_size:
                began = time.thread_time()
                target.add(shown, after, actions, rewards, dones, [{} for _ in envs])
                times.append(time.thread_time() - began)
        shown = np.stack([env.reset()[0] if step[2] else step[0] for env, step in zip(envs, steps, strict=True)])
    del steps, after, allowed
    held = _memory()
    sampled = [[_sample_s(each) for each in (buffer, small)] for _ in range(TURNS)]
    lean_s, sb3_s = (median(times) for times in zip(*sampled, strict=True))
    wrong = sum(_wrong(buffer, digests, first) for first in range(0, rows * ENVS, AT_ONCE))
    each = 2 * spaces[0].shape[0] * 2500 * 4 + 10 * 8 + 3 * 4  # type: ignore[index]
    return {
        "transitions": transitions,
        "plain": transitions * each,
        "pss": held.pss - before.pss,
        "uss": held.uss - before.uss,
        "counted": buffer.nbytes,
        "process": held.pss - small.observations.nbytes - small.next_observations.nbytes,
        "wrong": int(wrong),
        "compared": rows * ENVS,
        "add": median(adds[0]) / median(adds[1]),
        "sample": lean_s / sb3_s,
        "sample_ms": 1e3 * lean_s,
    }


def _wrong(buffer: LeanReplayBuffer, digests: np.ndarray, first: int) -> int:
    """Return how many of the transitions from `first` on have another hash than when they were added."""
    rows, envs = np.divmod(np.arange(first, min(first + AT_ONCE, digests.shape[0] * ENVS)), ENVS)
    found = buffer.transitions(rows, envs)
    parts = (found.observations, found.next_observations, found.actions, found.rewards, found.dones)
    arrays = [part.numpy() for part in parts]
    again = _digests(arrays[0], arrays[1], arrays[2], arrays[3].ravel(), arrays[4].ravel() != 0)
    return int((again != digests[rows, envs]).any(axis=1).sum())


def _digests(before: Any, after: Any, actions: Any, rewards: Any, dones: Any) -> np.ndarray:
    found = np.empty((len(before), DIGEST_NBYTES), np.uint8)
    for number, parts in enumerate(zip(before, after, actions.astype(np.int64), rewards, dones, strict=True)):
        digest = blake2b(digest_size=DIGEST_NBYTES)
        for part in parts:
            digest.update(np.ascontiguousarray(part).tobytes())
        found[number] = np.frombuffer(digest.digest(), np.uint8)
    return found


def _sample_s(buffer: ReplayBuffer) -> float:
    began = time.thread_time()
    buffer.sample(BATCH)
    return time.thread_time() - began


def _ends(count: int) -> tuple[np.ndarray, list[dict[str, Any]]]:
    return np.zeros(count, bool), [{} for _ in range(count)]


def _memory() -> ProcessMemory:
    gc.collect()
    memory = process_memory("self")
    assert memory is not None
    return memory


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
