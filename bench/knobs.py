"""The memory knobs of a run on a card: what each one saves, and whether arithmetic knows.

The traced requests of the update are replayed through the simulated caching allocator, with and without each knob,
beside what arithmetic says from shapes alone.

    python -m bench.knobs
"""

from __future__ import annotations

import sys
from typing import Any

from bench.results import write_section
from legroom.model.machine import Machine

MB = 1e6
NO_MACHINE = Machine(ram=0, limit=None, available=0, swap=0, shm=0)
COMMAND = "python -m bench.knobs"
KNOBS: dict[str, dict[str, Any]] = {
    "none": {},
    "activation_checkpointing": {"activation_checkpointing": True},
    "bf16": {"bf16": True},
    "both": {"activation_checkpointing": True, "bf16": True},
}


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
    write_section("Memory knobs on a card, traced", columns, rows, COMMAND)
    return good


if __name__ == "__main__":
    sys.exit(0 if gpu() else 1)
