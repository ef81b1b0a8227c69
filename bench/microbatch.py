"""Exact micro-batching: how far parameters are from SB3's, what an update then takes, and whether that was predicted.

Memory: PPO with SB3's CNN on stacks of four colour frames, 256 samples per minibatch, as a process of its own; its peak
(PSS, sampled from outside) is set beside what `predict` said before. Time is that of `train()`, relative to SB3's own,
the median of its rounds. Parameters: one whole `train()` of ten epochs (DQN: ten gradient steps),
beside what SB3 itself differs by when its sums are split over two threads. A sum in another order is another number;
where it puts a unit of a ReLU network on the other side of zero, that sample's gradient through the unit changes as a
whole, and Adam follows: single precision does not always keep the limit, and the table says where. The larger network
is compared in double precision, too, where only the last digits may differ.

    python -m bench.microbatch

Other processes that have torch loaded take their share of the libraries' pages, as `bench.accuracy` says; where that
disturbed a measurement, what the process would have shown `alone` is compared instead.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

from bench.accuracy import DISTURBED, box, discrete, spec
from bench.peak_sampler import PeakSampler, alone
from bench.results import write_section
from legroom.machine.tree import TreeMemory

MB = 1e6
SIZES = (None, 64, 16, 4)
ROUNDS = 3
DIFFERENCE_LIMIT, DOUBLE_LIMIT, BAND_LIMIT = 1e-6, 1e-13, 0.08
COMMAND = "python -m bench.microbatch"


def pixels(micro_batch: int | None, storage: str) -> dict[str, Any]:
    """Return the run whose memory is looked at."""
    run = spec(
        "PPO", box(84, 84, 12, dtype="uint8"), discrete(6), ROUNDS * 512, "CnnPolicy", n_steps=128, batch_size=256,
        n_epochs=1, env_n_envs=4,
    )  # fmt: skip
    return run | {"memory": {"micro_batch": micro_batch, "rollout": storage}}


def train(run: dict[str, Any]) -> None:
    """Train it and print the seconds of each update: the body of the measured process."""
    import stable_baselines3
    from stable_baselines3.common.vec_env import DummyVecEnv

    import legroom
    from bench.envs import Noisy
    from legroom.backends.sb3.microbatch import with_micro_batch

    micro_batch, storage = run["memory"]["micro_batch"], run["memory"]["rollout"]
    seconds = []
    algorithm: Any = stable_baselines3.PPO if micro_batch is None else with_micro_batch(
        stable_baselines3.PPO, micro_batch
    )  # fmt: skip

    class Timed(algorithm):
        def train(self) -> None:
            began = time.perf_counter()
            super().train()
            seconds.append(time.perf_counter() - began)

    spaces = run["env"]["spaces"]
    env = DummyVecEnv([lambda: Noisy(spaces["observation"], spaces["action"])] * run["env"]["n_envs"])
    lean = {"rollout_buffer_class": legroom.LeanRolloutBuffer} if storage == "lean" else {}
    Timed(run["policy"]["name"], env, device="cpu", seed=1, **run["hyperparams"], **lean).learn(run["total_timesteps"])
    print(json.dumps(seconds))


def measure(run: dict[str, Any]) -> tuple[TreeMemory, float]:
    """Return the peak of a process that trains it, and the median seconds of an update."""
    child = subprocess.Popen(_command("--train", run), stdout=subprocess.PIPE, text=True, env=_environment())
    with PeakSampler(child.pid) as sampler:
        output, _ = child.communicate()
    if child.returncode:
        raise RuntimeError(f"training failed with exit code {child.returncode}")
    return sampler.peak, statistics.median(json.loads(output.splitlines()[-1]))


def predict(run: dict[str, Any]) -> tuple[int, int, int]:
    """Return what is predicted for it, and the band."""
    ask = [sys.executable, "-m", "bench.accuracy", "--predict", json.dumps(run)]
    asked = subprocess.run(ask, capture_output=True, text=True, check=True, env=_environment())
    predicted, low, high = json.loads(asked.stdout.splitlines()[-1])
    return predicted, low, high


def differ() -> None:
    """Print the norm-relative differences of parameters, case by case: a process of its own."""
    import torch
    from sb3_contrib import MaskablePPO
    from stable_baselines3 import DQN, PPO
    from stable_baselines3.common.torch_layers import NatureCNN
    from stable_baselines3.common.vec_env import DummyVecEnv

    import legroom
    from bench.envs import Noisy
    from legroom.backends.sb3.microbatch import with_micro_batch

    class DoubleCnn(NatureCNN):
        def forward(self, observations: torch.Tensor) -> torch.Tensor:
            return super().forward(observations.double())

    vector, small, large = box(20), box(36, 36, 4, dtype="uint8"), box(84, 84, 4, dtype="uint8")
    ppo = dict(n_steps=64, batch_size=64, n_epochs=10)
    lean = ppo | {"rollout_buffer_class": legroom.LeanRolloutBuffer}
    dqn = dict(buffer_size=200, learning_starts=128, batch_size=32, train_freq=64, gradient_steps=10)
    cases: list[tuple[str, Any, Any, dict[str, Any], bool]] = [
        ("PPO, MLP", PPO, vector, ppo, False),
        ("PPO, CNN 36×36", PPO, small, ppo, False),
        ("PPO, CNN 36×36, lean storage", PPO, small, lean, False),
        ("MaskablePPO, CNN 36×36", MaskablePPO, small, ppo, False),
        ("DQN, MLP", DQN, vector, dqn, False),
        ("DQN, CNN 36×36", DQN, small, dqn, False),
        ("DQN, CNN 36×36, 40 gradient steps", DQN, small, dqn | {"gradient_steps": 40}, False),
        ("PPO, CNN 84×84, double precision", PPO, large, ppo, True),
        ("MaskablePPO, CNN 84×84, double precision", MaskablePPO, large, ppo, True),
        ("DQN, CNN 84×84, double precision", DQN, large, dqn, True),
        ("PPO, CNN 84×84", PPO, large, ppo, False),
        ("DQN, CNN 84×84", DQN, large, dqn, False),
    ]

    def on_two_threads(algorithm: Any) -> Any:
        def train(self: Any, *args: Any, **kwargs: Any) -> None:
            torch.set_num_threads(2)
            algorithm.train(self, *args, **kwargs)
            torch.set_num_threads(1)

        return type(algorithm.__name__, (algorithm,), {"train": train})

    def parameters(algorithm: Any, space: Any, kwargs: dict[str, Any], double: bool) -> torch.Tensor:
        env = DummyVecEnv([lambda: Noisy(space, discrete(6))] * 2)
        net = dict(features_extractor_class=DoubleCnn) if double else {}
        policy = "MlpPolicy" if space is vector else "CnnPolicy"
        model = algorithm(policy, env, device="cpu", seed=3, policy_kwargs=net, **kwargs)
        if double:
            model.policy.double()
        model.learn(192 if issubclass(algorithm, DQN) else 128)
        return torch.cat([p.detach().double().flatten() for p in model.policy.parameters()])

    torch.set_num_threads(1)
    for name, algorithm, space, kwargs, double in cases:
        sb3 = parameters(algorithm, space, kwargs, double)
        others = (with_micro_batch(algorithm, 3), with_micro_batch(algorithm, 8), on_two_threads(algorithm))
        found = [parameters(other, space, kwargs, double) for other in others]
        print(json.dumps([name, *(float((each - sb3).norm() / sb3.norm()) for each in found)]), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="exact micro-batching: parameters, memory, prediction")
    parser.add_argument("--train", help=argparse.SUPPRESS)
    parser.add_argument("--differ", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train(json.loads(options.train))
        return 0
    if options.differ:
        differ()
        return 0
    return 0 if compare_parameters() & compare_memory() else 1


def compare_parameters() -> bool:
    """Write the first table and return whether all differences are within the limit."""
    asked = subprocess.run(
        [sys.executable, "-m", "bench.microbatch", "--differ"], stdout=subprocess.PIPE, text=True, check=True,
        env=_environment(),
    )  # fmt: skip
    rows, good = [], True
    for line in asked.stdout.splitlines():
        name, *pieces, control = json.loads(line)
        limit = DOUBLE_LIMIT if "double" in name else DIFFERENCE_LIMIT
        kept = max(pieces) <= limit
        good &= kept
        figures = [f"{by:.1e}" for by in pieces]
        rows.append([name, *figures, f"{limit:.0e}", "yes" if kept else "NO", f"{control:.1e}"])
    columns = ["‖θ−θ′‖/‖θ‖ of one train()", "micro_batch 3", "micro_batch 8", "required", "kept", "SB3 with 2 threads"]
    write_section("Micro-batches: parameters against SB3's", columns, rows, COMMAND)
    return good


def compare_memory() -> bool:
    """Write the second table and return whether memory falls with the size and was predicted."""
    rows, good = [], True
    for storage in ("plain", "lean"):
        peaks, whole_s = [], 0.0
        for size in SIZES:
            run = pixels(size, storage)
            predicted, low, high = predict(run)
            peak, seconds = measure(run)
            measured = peak.pss if alone(peak) - peak.pss < DISTURBED else alone(peak)
            whole_s = whole_s or seconds
            error, inside = (predicted - measured) / measured, low <= measured <= high
            good &= inside and abs(error) <= BAND_LIMIT and all(measured < before for before in peaks)
            peaks.append(measured)
            sizes = [f"{n / MB:,.0f}" for n in (predicted, low, high, peak.pss, alone(peak))]
            name = f"{storage}, {'256 (SB3)' if size is None else f'{size} of 256'}"
            rows.append([name, *sizes, f"{error:+.1%}", "yes" if inside else "NO", f"{seconds / whole_s:.2f}"])
            print(*rows[-1], sep="  ", flush=True)
    columns = ["samples at a time (MB)", "predicted", "low", "high", "measured", "alone", "error", "in band", "time"]
    write_section("Micro-batches: peak of a PPO process with a CNN", columns, rows, COMMAND)
    return good


def _command(option: str, run: dict[str, Any]) -> list[str]:
    return [sys.executable, "-m", "bench.microbatch", option, json.dumps(run)]


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}


if __name__ == "__main__":
    sys.exit(main())
