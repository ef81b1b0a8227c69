"""What the C library's heap adds to a run's peak, and what each way to have less of it saves and costs.

glibc keeps freed blocks for later, in one heap per thread that allocates (arenas, up to eight per core). Three
runs, each as a plain SB3 script in a process of its own: with glibc's defaults, with one arena
(MALLOC_ARENA_MAX=1), with the free pages of the heap given back after every update (`memory.malloc_trim`), with large
blocks mapped one by one (MALLOC_MMAP_THRESHOLD_), and with jemalloc in glibc's place, where one is found.

    python -m bench.malloc_knobs [--repeat 2]

Time is the processor's, from the first step to the last, so that other programs change little; ways take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from hashlib import sha256
from typing import Any

import numpy as np

from bench.peak_sampler import PeakSampler, alone
from bench.results import write_section
from legroom.sharing.heap import find_jemalloc, give_back

MB = 1e6
RUNS = {
    "QR-DQN, 32 × 200 × 200 differences": "quantiles",
    "PPO, NatureCNN on 12 frames of 96 × 96": "frames",
    "PPO, environment that decodes in 8 threads": "threads",
}
MAPPED_FROM = 1 << 20


def ways() -> dict[str, tuple[dict[str, str], bool]]:
    """Return what each way sets in the environment, and whether it gives the heap back after every update."""
    found: dict[str, tuple[dict[str, str], bool]] = {
        "as it is": ({}, False),
        "MALLOC_ARENA_MAX=1": ({"MALLOC_ARENA_MAX": "1"}, False),
        "memory.malloc_trim": ({}, True),
        f"MALLOC_MMAP_THRESHOLD_={MAPPED_FROM}": ({"MALLOC_MMAP_THRESHOLD_": str(MAPPED_FROM)}, False),
    }
    if library := find_jemalloc():
        found["jemalloc"] = ({"LD_PRELOAD": library}, False)
    return found


# -- the measured process --------------------------------------------------------------------------------------------


def train(kind: str, *, trims: bool) -> None:
    """Train one of the runs, and print the processor's seconds of it, and a hash of what it learned."""
    model, steps = _model(kind)
    if trims:
        collect = model.collect_rollouts

        def collect_rollouts(*args: Any, **kwargs: Any) -> Any:
            give_back()
            return collect(*args, **kwargs)

        model.collect_rollouts = collect_rollouts
    began = time.process_time()
    model.learn(steps)
    seconds, learned = time.process_time() - began, sha256()
    for tensor in model.policy.state_dict().values():
        learned.update(tensor.numpy().tobytes())
    print(json.dumps([seconds, learned.hexdigest()]))


def _model(kind: str) -> tuple[Any, int]:
    from sb3_contrib import QRDQN
    from stable_baselines3 import PPO

    from bench.accuracy_envs import SmallEnv

    if kind == "quantiles":
        env = SmallEnv({"type": "box", "shape": [8], "dtype": "float32"}, {"type": "discrete", "n": 4}, 100)
        return QRDQN("MlpPolicy", env, batch_size=32, learning_starts=40, buffer_size=5000, device="cpu", seed=1), 280
    if kind == "frames":
        env = SmallEnv({"type": "box", "shape": [96, 96, 12], "dtype": "uint8"}, {"type": "discrete", "n": 6}, 100)
        return PPO("CnnPolicy", env, n_steps=128, batch_size=64, n_epochs=1, device="cpu", seed=1), 512
    return PPO("MlpPolicy", _threaded(), n_steps=128, n_epochs=1, device="cpu", seed=1), 512


def _threaded() -> Any:
    """Return an environment whose steps unpack blocks of several sizes in threads, as readers of files do."""
    import zlib
    from concurrent.futures import ThreadPoolExecutor

    import gymnasium

    class Decoding(gymnasium.Env[Any, Any]):
        def __init__(self) -> None:
            self.observation_space = gymnasium.spaces.Box(-1, 1, (16,), np.float32)
            self.action_space = gymnasium.spaces.Discrete(2)
            random = np.random.default_rng(0)
            sizes = random.integers(20_000, 4_000_000, 64)
            self.packed = [zlib.compress(bytes(int(size)), 1) for size in sizes]
            self.pool, self.t = ThreadPoolExecutor(8), 0

        def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
            return np.zeros(16, np.float32), {}

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            self.t += 1
            if self.t % 8 == 0:
                chosen = [self.packed[(self.t + 7 * i) % 64] for i in range(8)]
                list(self.pool.map(lambda each: len(np.frombuffer(zlib.decompress(each), np.uint8).copy()), chosen))
            return np.zeros(16, np.float32), 0.0, False, self.t % 100 == 0, {}

    return Decoding()


# -- measuring it ----------------------------------------------------------------------------------------------------


def measure(kind: str, variables: dict[str, str], *, trims: bool) -> tuple[int, float, str]:
    """Return the peak, the processor's seconds and the hash of one run.

    Raises:
        RuntimeError: it failed.
    """
    command = [sys.executable, "-m", "bench.malloc_knobs", "--train", kind, *(["--trims"] if trims else [])]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"} | variables
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    with PeakSampler(child.pid) as sampler:
        output, _ = child.communicate()
    if child.returncode:
        raise RuntimeError(f"{kind} with {variables} ended with {child.returncode}")
    seconds, learned = json.loads(output.splitlines()[-1])
    return alone(sampler.peak), seconds, learned


def main() -> int:
    parser = argparse.ArgumentParser(description="what malloc's settings save and cost")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--train", help=argparse.SUPPRESS)
    parser.add_argument("--trims", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train(options.train, trims=options.trims)
        return 0
    rows = []
    for name, kind in RUNS.items():
        found: dict[str, list[tuple[int, float, str]]] = {way: [] for way in ways()}
        for _ in range(options.repeat):
            for way, (variables, trims) in ways().items():
                found[way].append(measure(kind, variables, trims=trims))
        plain, seconds = (statistics.median(each[i] for each in found["as it is"]) for i in (0, 1))
        hashes = {each[2] for each in found["as it is"]}
        for way, measured in found.items():
            peaks, times, learned = zip(*measured, strict=True)
            sizes = [f"{statistics.median(peaks) / MB:,.0f}", f"{min(peaks) / MB:,.0f}-{max(peaks) / MB:,.0f}"]
            saved = f"{(plain - statistics.median(peaks)) / MB:+,.0f}" if way != "as it is" else ""
            same = "yes" if {*learned} == hashes and len(hashes) == 1 else "NO"
            rows.append([name, way, *sizes, saved, f"{statistics.median(times) / seconds:.2f}", same])
            print("  ".join(rows[-1]), flush=True)
    columns = ["run (MB)", "way", "peak, median", "between", "saved", "processor time", "same weights"]
    write_section("malloc: what its settings save", columns, rows, "python -m bench.malloc_knobs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
