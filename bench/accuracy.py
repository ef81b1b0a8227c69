"""Predicted against measured host memory of real SB3 runs.

Each run is predicted first, by a process of its own (`legroom.predict`, as a user would), and then trained by a plain
SB3 script in a fresh process tree, while this process, which has no heavy library loaded, samples the sum of PSS.

    python -m bench.accuracy [NAME...] [--mode arithmetic] [--repeat N]

Other processes that have torch loaded at the same time take their share of the libraries' pages and make the sum of
PSS smaller by up to 90 MB. The column `alone` is what the tree would have shown without them. Where the two differ by
more than the interpreter's own pages a run was disturbed, whatever its error, and `alone` is what is compared, as in
`bench.accuracy_heldout`; elsewhere it enters no figure.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peak_sampler import PeakSampler, alone
from bench.results import write_section
from legroom.machine.tree import TreeMemory

RUN_SCRIPT = Path(__file__).with_name("accuracy_run.py")
MEDIAN_LIMIT, WORST_LIMIT = 0.03, 0.08
BAND_LIMIT, SMALL_BAND = 0.10, 60_000_000
DISTURBED = 20_000_000  # libpython, libc and the like, shared with this process, are about 5 MB
MB = 1e6


def box(*shape: int, dtype: str = "float32") -> dict[str, Any]:
    return {"type": "box", "shape": list(shape), "dtype": dtype}


def discrete(n: int) -> dict[str, Any]:
    return {"type": "discrete", "n": n}


def spec(
    algo: str, observation: dict[str, Any], action: dict[str, Any], steps: int, policy: str = "MlpPolicy", **rest: Any
) -> dict[str, Any]:
    """Return a run in the words of a run file; `env_*` keywords go to the environment, others are hyperparameters."""
    env = {key.removeprefix("env_"): value for key, value in rest.items() if key.startswith("env_")}
    net = rest.pop("net_arch", None)
    hyperparams = {key: value for key, value in rest.items() if not key.startswith("env_")}
    return {
        "algo": algo,
        "env": {"spaces": {"observation": observation, "action": action}, **env},
        "policy": {"name": policy, "kwargs": {"net_arch": net} if net else {}},
        "hyperparams": hyperparams,
        "total_timesteps": steps,
        "device": "cpu",
    }


PIXELS = box(84, 84, 4, dtype="uint8")
COLOUR = box(96, 96, 3, dtype="uint8")
MIXED = {"type": "dict", "spaces": {"image": box(64, 64, 3, dtype="uint8"), "vector": box(20)}}

RUNS = {
    "ppo-vector": spec("PPO", box(4), discrete(2), 512, n_steps=128, n_epochs=2),
    "ppo-vector-x4": spec("PPO", box(500), box(6), 8192, n_steps=512, n_epochs=2, batch_size=128, env_n_envs=4),
    "ppo-long-vector": spec("PPO", box(10_000), discrete(6), 4096, n_steps=2048, n_epochs=1),
    "ppo-large-x4": spec("PPO", box(8_000), discrete(6), 24_000, n_steps=6_000, n_epochs=1, batch_size=240,
                         env_n_envs=4),
    "ppo-wide-net": spec("PPO", box(64), discrete(6), 1024, n_steps=256, batch_size=256, n_epochs=2,
                         net_arch=[1024, 1024]),
    "ppo-pixels-x4": spec("PPO", PIXELS, discrete(6), 1024, "CnnPolicy", n_steps=128, batch_size=256, n_epochs=1,
                          env_n_envs=4),
    "ppo-pixels-large": spec("PPO", PIXELS, discrete(6), 16_384, n_steps=8192, batch_size=64, n_epochs=1, env_n_envs=2,
                             net_arch=[16]),
    "ppo-stack-x2": spec("PPO", COLOUR, discrete(6), 1536, "CnnPolicy", n_steps=384, batch_size=64, n_epochs=1,
                         env_n_envs=2, env_frame_stack=4),
    "ppo-normalized": spec("PPO", box(300), box(6), 4096, n_steps=512, n_epochs=2, env_n_envs=2, env_normalize=True),
    "ppo-subproc-x1": spec("PPO", box(4), discrete(2), 256, n_steps=64, n_epochs=1, env_workers="subproc"),
    "ppo-subproc-x4": spec("PPO", box(40), discrete(2), 512, n_steps=64, n_epochs=1, env_n_envs=4,
                           env_workers="subproc"),
    "ppo-dict-subproc-x2": spec("PPO", MIXED, discrete(3), 2048, "MultiInputPolicy", n_steps=512, batch_size=128,
                                n_epochs=1, env_n_envs=2, env_workers="subproc"),
    "a2c-x4": spec("A2C", box(8), discrete(2), 400, env_n_envs=4),
    "a2c-pixels-x2": spec("A2C", PIXELS, discrete(6), 512, "CnnPolicy", n_steps=32, env_n_envs=2),
    "dqn-vector": spec("DQN", box(8), discrete(4), 2000, buffer_size=50_000),
    "dqn-pixels": spec("DQN", PIXELS, discrete(6), 7000, "CnnPolicy", buffer_size=6000, learning_starts=6500,
                       train_freq=64),
    "dqn-unfilled-x2": spec("DQN", PIXELS, discrete(6), 4000, "CnnPolicy", buffer_size=100_000, learning_starts=3500,
                            train_freq=64, env_n_envs=2),
    "dqn-subproc-x2": spec("DQN", PIXELS, discrete(6), 2000, "CnnPolicy", buffer_size=4000, learning_starts=1500,
                           train_freq=32, env_n_envs=2, env_workers="subproc"),
    "sac-vector": spec("SAC", box(17), box(6), 300, buffer_size=100_000),
    "sac-large": spec("SAC", box(3000), box(6), 60_000, buffer_size=60_000, learning_starts=59_500, train_freq=64),
    "sac-dict-x2": spec("SAC", MIXED, box(3), 400, "MultiInputPolicy", buffer_size=20_000, learning_starts=200,
                        batch_size=64, train_freq=8, env_n_envs=2),
    "td3-vector": spec("TD3", box(200), box(6), 300, buffer_size=20_000),
}  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """One run: what was said, and what was."""

    name: str
    predicted: int
    low: int
    high: int
    measured: int
    alone: int

    @property
    def error(self) -> float:
        return (self.predicted - self.measured) / self.measured

    @property
    def inside(self) -> bool:
        return self.low <= self.measured <= self.high

    @property
    def narrow(self) -> bool:
        return self.high - self.predicted <= max(BAND_LIMIT * self.predicted, SMALL_BAND)

    def row(self) -> list[str]:
        sizes = [f"{n / MB:,.0f}" for n in (self.predicted, self.low, self.high, self.measured, self.alone)]
        return [self.name, *sizes, f"{100 * self.error:+.1f} %", "yes" if self.inside else "NO"]


def predict_here(run: dict[str, Any], mode: str) -> None:
    """Print the band of one run: the body of the predicting process."""
    from legroom.model.run import Run
    from legroom.predicting.predict import predict

    host = predict(Run.model_validate(run), mode=mode, device="cpu").host  # type: ignore[arg-type]
    print(json.dumps([host.nbytes, host.low, host.high]))


def compare(name: str, run: dict[str, Any], mode: str) -> Comparison:
    """Predict a run, then train it and watch.

    Raises:
        RuntimeError: either failed.
    """
    ask = [sys.executable, "-m", "bench.accuracy", "--predict", json.dumps(run), "--mode", mode]
    asked = subprocess.run(ask, capture_output=True, text=True, check=False, env=_environment())
    if asked.returncode:
        raise RuntimeError(f"{name}: no prediction: {asked.stderr.strip()[-400:]}")
    predicted, low, high = json.loads(asked.stdout.splitlines()[-1])
    peak = _measure(name, run)
    disturbed = alone(peak) - peak.pss >= DISTURBED
    return Comparison(name, predicted, low, high, alone(peak) if disturbed else peak.pss, alone(peak))


def _measure(name: str, run: dict[str, Any]) -> TreeMemory:
    child = subprocess.Popen(
        [sys.executable, str(RUN_SCRIPT), json.dumps(run)], stdout=subprocess.DEVNULL, env=_environment()
    )
    with PeakSampler(child.pid) as sampler:
        failed = child.wait()
    if failed:
        raise RuntimeError(f"{name}: the run itself failed with exit code {failed}")
    return sampler.peak


def _environment() -> dict[str, str]:
    # One thread, as legroom's make targets set it: on few cores more threads make small networks ten times slower.
    return {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}


def main() -> int:
    parser = argparse.ArgumentParser(description="predicted against measured host memory of real SB3 runs")
    parser.add_argument("names", nargs="*", help=f"runs to compare; all of them otherwise: {', '.join(RUNS)}")
    parser.add_argument("--mode", default="auto", choices=("auto", "trace", "arithmetic"))
    parser.add_argument("--repeat", type=int, default=1, help="compare each run this often")
    parser.add_argument("--predict", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.predict:
        predict_here(json.loads(options.predict), options.mode)
        return 0
    chosen = options.names or list(RUNS)
    compared = []
    for name in [name for name in chosen for _ in range(options.repeat)]:
        compared.append(compare(name, RUNS[name], options.mode))
        print("  ".join(compared[-1].row()), flush=True)
    errors = [abs(each.error) for each in compared]
    good = (
        statistics.median(errors) <= MEDIAN_LIMIT
        and max(errors) <= WORST_LIMIT
        and all(each.inside and each.narrow for each in compared)
    )
    summary = f"median error {100 * statistics.median(errors):.1f} %, worst {100 * max(errors):.1f} %"
    summary += f", {sum(each.inside for each in compared)} of {len(compared)} inside their band"
    if not options.names:
        columns = ["run (MB)", "predicted", "low", "high", "measured", "alone", "error", "in band"]
        name = "Host memory of real SB3 runs" + ("" if options.mode == "auto" else f", {options.mode}")
        rows = [each.row() for each in compared]
        write_section(name, columns, [*rows, [summary, *[""] * 7]], "make bench-accuracy")
    print(summary)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
