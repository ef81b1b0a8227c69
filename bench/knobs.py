"""The memory knobs of a run: what each one saves, and whether that was predicted.

On the CPU (`host`): every run is predicted (`legroom.predict`, tracing and a small measured update), then trained as a
process of its own by what `legroom train` trains with, and its peak (PSS, sampled from outside) is set beside the
prediction. Time is that of `train()`, relative to the run without knobs, the median of its rounds.

On a card (`gpu`): the traced requests of the update are replayed through the simulated caching allocator, with and
without each knob, beside what arithmetic says from shapes alone.

Fragmentation (`segments`): the recorded runs of `bench.vram` with ordinary and with expandable segments.

    python -m bench.knobs [host] [gpu] [segments]

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
from legroom.hollow.cuda_allocator import Settings
from legroom.hollow.replaying import replay
from legroom.machine.tree import TreeMemory
from legroom.model.machine import Machine

MB = 1e6
LARGE = 100_000_000
NO_MACHINE = Machine(ram=0, limit=None, available=0, swap=0, shm=0)
COMMAND = "python -m bench.knobs"
WORST_LIMIT = 0.08  # of a prediction's error, as for all runs
KNOBS: dict[str, dict[str, Any]] = {
    "none": {},
    "activation_checkpointing": {"activation_checkpointing": True},
    "bf16": {"bf16": True},
    "both": {"activation_checkpointing": True, "bf16": True},
}

# Processors without bfloat16 instructions take ten times as
# long with it, so few runs are tried.
ON_HOST = {
    "PPO, CNN 84×84×12": ("none", "activation_checkpointing", "bf16"),
    "SAC, MLP 2×1024": (),  # the environment of noise takes discrete actions only
}


def _with_net(run: dict[str, Any], policy: str, extractor: str, **kwargs: Any) -> dict[str, Any]:
    named = {"name": policy, "features_extractor": extractor, "features_extractor_kwargs": kwargs}
    return run | {"policy": named | ({"kwargs": {"normalize_images": False}} if "Cnn3d" in extractor else {})}


RUNS = {
    "PPO, CNN 84×84×12": spec(
        "PPO", box(84, 84, 12, dtype="uint8"), discrete(6), 1536, "CnnPolicy", n_steps=128, batch_size=256, n_epochs=1,
        env_n_envs=4,
    ),
    "PPO, MLP 3×1024": spec(
        "PPO", box(500), discrete(6), 12_288, n_steps=1024, batch_size=4096, n_epochs=1, net_arch=[1024] * 3,
        env_n_envs=4,
    ),
    "SAC, MLP 2×1024": spec(
        "SAC", box(100), box(6), 24, net_arch=[1024, 1024], batch_size=4096, learning_starts=8, train_freq=8,
        buffer_size=1000,
    ),
    "MaskablePPO, Cnn3d small": _with_net(
        spec("MaskablePPO", box(17, 24, 24, 20), discrete(6), 144, n_steps=48, batch_size=48, n_epochs=1),
        "CnnPolicy", "legroom_workloads.mine:Cnn3d", size="small",
    ),
    "DQN, FireNet basic": _with_net(
        spec("DQN", box(20, 50, 50), discrete(2500), 48, batch_size=48, learning_starts=16, train_freq=16,
             gradient_steps=1, buffer_size=200),
        "legroom_workloads.fire:CellPolicy", "legroom_workloads.fire:FireNet", residual=False, multi_scale=False,
        attention=False,
    ),
}  # fmt: skip


# -- the host --------------------------------------------------------------------------------------------------------


def train(run: dict[str, Any]) -> None:
    """Train it and print the seconds of each update: the body of the measured process."""
    from stable_baselines3.common.vec_env import DummyVecEnv

    from bench.microbatch_envs import Noisy
    from legroom.backends.sb3.making import make_model
    from legroom.model.run import Run

    spaces = run["env"]["spaces"]
    env = DummyVecEnv([lambda: Noisy(spaces["observation"], spaces["action"])] * run["env"].get("n_envs", 1))
    model: Any = make_model(Run.model_validate(run | {"seed": 1}), env, "cpu")
    seconds, update = [], model.train

    def timed(*args: Any, **kwargs: Any) -> None:
        began = time.perf_counter()
        update(*args, **kwargs)
        seconds.append(time.perf_counter() - began)

    model.train = timed
    model.learn(run["total_timesteps"])
    print(json.dumps(seconds))


def measure(run: dict[str, Any]) -> tuple[TreeMemory, float]:
    """Return the peak of a process that trains it, and the median seconds of an update."""
    command = [sys.executable, "-m", "bench.knobs", "--train", json.dumps(run)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_environment())
    with PeakSampler(child.pid) as sampler:
        output, _ = child.communicate()
    if child.returncode:
        raise RuntimeError(f"training failed with exit code {child.returncode}")
    return sampler.peak, statistics.median(json.loads(output.splitlines()[-1]))


def predict(run: dict[str, Any], mode: str = "auto") -> tuple[int, int, int]:
    """Return what is predicted for it, and the band."""
    ask = [sys.executable, "-m", "bench.accuracy", "--predict", json.dumps(run), "--mode", mode]
    asked = subprocess.run(ask, capture_output=True, text=True, check=True, env=_environment())
    predicted, low, high = json.loads(asked.stdout.splitlines()[-1])
    return predicted, low, high


def host(chosen: list[str]) -> bool:
    """Write the table of the CPU and return whether all predictions hold and no knob costs memory."""
    rows, good = [], True
    for name, plain in RUNS.items():
        whole_s, before = 0.0, 0
        for knob, memory in KNOBS.items():
            if knob not in ON_HOST.get(name, ("none", "activation_checkpointing")) or (chosen and name not in chosen):
                continue
            run = plain | {"memory": memory}
            predicted, low, high = predict(run)
            peak, seconds = measure(run)
            measured = peak.pss if alone(peak) - peak.pss < DISTURBED else alone(peak)
            whole_s, before = whole_s or seconds, before or measured
            error, inside = (predicted - measured) / measured, low <= measured <= high
            good &= inside and abs(error) <= WORST_LIMIT
            sizes = [f"{n / MB:,.0f}" for n in (predicted, low, high, measured, before - measured)]
            rows.append([name, knob, *sizes, f"{error:+.1%}", "yes" if inside else "NO", f"{seconds / whole_s:.2f}"])
            print(*rows[-1], sep="  ", flush=True)
    columns = ["run (MB)", "knob", "predicted", "low", "high", "measured", "saved", "error", "in band", "time"]
    if not chosen:
        write_section("Memory knobs on the CPU", columns, rows, f"{COMMAND} host")
    return good


# -- a card ----------------------------------------------------------------------------------------------------------


def gpu() -> bool:
    """Write the table of a card and return whether arithmetic is nowhere below a trace by more than its error."""
    from legroom.model.run import Run
    from legroom.predicting.predict import add_up, gather_all

    named = [(name, knob) for name in RUNS for knob in KNOBS]
    runs = [Run.model_validate(RUNS[name] | {"memory": KNOBS[knob], "device": "cuda"}) for name, knob in named]
    traced, estimated = (gather_all(runs, NO_MACHINE, mode=mode, device="cuda") for mode in ("trace", "arithmetic"))
    rows, good, before = [], True, 0
    for (name, knob), seen, guessed in zip(named, traced, estimated, strict=True):
        truth, estimate = add_up(*seen), add_up(*guessed)
        assert truth.allocator and estimate.allocator and truth.gpu and estimate.gpu
        before = truth.allocator.peak_reserved if knob == "none" else before
        error = estimate.allocator.peak_reserved / truth.allocator.peak_reserved - 1
        inside = truth.gpu.nbytes <= estimate.gpu.high
        good &= inside
        sizes = (truth.allocator.peak_allocated, truth.allocator.peak_reserved, before - truth.allocator.peak_reserved)
        figures = [f"{n / MB:,.0f}" for n in (*sizes, estimate.allocator.peak_reserved)]
        rows.append([name, knob, *figures, f"{error:+.0%}", "yes" if inside else "NO"])
    columns = ["run (MB)", "knob", "allocated", "reserved", "saved", "by arithmetic", "error", "below its upper bound"]
    write_section("Memory knobs on a card, traced", columns, rows, f"{COMMAND} gpu")
    return good


def segments() -> bool:
    """Write what expandable segments do to the recorded runs, of three rollouts each."""
    from bench.vram import FILES, run_of
    from legroom.backends.base import algorithm_of, hyper
    from legroom.predicting.predict import gather_all

    runs = [run_of(row) for path in FILES if path.exists() for row in json.loads(path.read_text())]
    on_policy = [algorithm_of(run).family == "on-policy" for run in runs]
    runs = [
        run.replace(total_timesteps=3 * int(hyper(run, "n_steps")) * run.env.n_envs) if on else run
        for run, on in zip(runs, on_policy, strict=True)
    ]
    nets = [evidence.net for _, evidence in gather_all(runs, NO_MACHINE, mode="trace", device="cuda")]
    found: dict[str, list[float]] = {}
    for net in nets:
        if net is None or not net.events:
            continue
        plain, grown = (
            replay(net.events, Settings(expandable_segments=expandable), net.rounds) for expandable in (False, True)
        )
        for name, figure in (
            ("reserved beyond allocated", plain.peak_reserved / plain.peak_allocated - 1),
            ("the same, expandable segments", grown.peak_reserved / grown.peak_allocated - 1),
            ("peak reserved, expandable against ordinary", grown.peak_reserved / plain.peak_reserved),
        ):
            found.setdefault(name, []).append(figure)
            if plain.peak_allocated > LARGE:
                found.setdefault(f"{name}; over 100 MB", []).append(figure)
    rows = [
        [name, len(figures), *(f"{_quantile(figures, q):.2f}" for q in (0, 0.05, 0.5, 0.95, 1))]
        for name, figures in found.items()
    ]
    columns = ["of traced runs", "runs", "least", "5 %", "median", "95 %", "most"]
    write_section("Expandable segments", columns, rows, f"{COMMAND} segments")
    return True


def _quantile(figures: list[float], q: float) -> float:
    return sorted(figures)[round(q * (len(figures) - 1))]


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}


def main() -> int:
    parser = argparse.ArgumentParser(description="memory knobs: saved, predicted, measured")
    parser.add_argument("tables", nargs="*", help="host, gpu, segments; all of them otherwise")
    parser.add_argument("--runs", nargs="*", default=[], help="of the CPU's; the table is then only printed")
    parser.add_argument("--train", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train(json.loads(options.train))
        return 0
    chosen, good = options.tables or ["segments", "gpu", "host"], True
    if "segments" in chosen:
        good &= segments()
    if "gpu" in chosen:
        good &= gpu()
    if "host" in chosen:
        good &= host(options.runs)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
