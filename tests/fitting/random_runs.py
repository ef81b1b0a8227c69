"""Random runs and budgets: what people might have, from a CartPole on a laptop to a mine on a cluster node."""

from __future__ import annotations

import random
from typing import Any

from legroom.model.run import Run
from legroom.model.verdict import Budget
from legroom.reading import run_from_dict
from legroom.units import GIB, MIB

ON_POLICY = ("PPO", "A2C", "MaskablePPO", "TRPO", "RecurrentPPO")
CONTINUOUS = ("SAC", "TD3", "DDPG", "TQC", "CrossQ")


def random_run(rng: random.Random) -> Run:
    """Return a valid run of any backend that can be predicted; its minibatches may not divide its rollout."""
    if rng.random() < 0.15:
        return _brax(rng)
    algo = rng.choice((*ON_POLICY, *ON_POLICY, "DQN", "QRDQN", *CONTINUOUS))
    spaces, policy = _spaces(rng, algo)
    env: dict[str, Any] = {
        "id": "Anything-v0",
        "n_envs": rng.choice((1, 2, 3, 4, 6, 8, 12, 16, 32, 100)),
        "workers": rng.choice(("dummy", "subproc", "light")),
        "spaces": spaces,
    }
    if policy["name"] == "CnnPolicy" and rng.random() < 0.5:
        env["frame_stack"] = rng.choice((2, 4))
    if rng.random() < 0.3:
        env["nbytes"] = rng.choice((1, 20, 200)) * MIB
    if algo in ("RecurrentPPO",):
        policy["name"] = policy["name"].replace("Policy", "LstmPolicy")
    return run_from_dict(
        {
            "algo": algo,
            "env": env,
            "policy": policy,
            "hyperparams": _hyperparams(rng, algo),
            "total_timesteps": rng.choice((10_000, 1_000_000, 50_000_000)),
        }
    )


def random_budget(rng: random.Random) -> Budget:
    """Return a budget between a small container and a large machine, with a GPU or without."""
    ram = int(2 ** rng.uniform(28, 37))
    vram = int(rng.choice((1, 2, 4, 8, 24)) * GIB) if rng.random() < 0.4 else None
    return Budget(ram, vram, rng.choice((0.0, 0.0, 0.1)))


def _spaces(rng: random.Random, algo: str) -> tuple[dict[str, Any], dict[str, Any]]:
    action: dict[str, Any] = {"type": "discrete", "n": rng.randint(2, 3000)}
    if algo in CONTINUOUS:
        action = {"type": "box", "shape": [rng.randint(1, 20)]}
    kind = rng.choice(("vector", "image", "dict"))
    if kind == "vector":
        shape = [rng.choice((4, 58, 376, 5000, 100_000))]
        return {"observation": {"type": "box", "shape": shape}, "action": action}, {"name": "MlpPolicy"}
    side = rng.choice((48, 84, 128))
    image = {"type": "box", "shape": [side, side, rng.choice((1, 3))], "dtype": "uint8"}
    if kind == "image":
        return {"observation": image, "action": action}, {"name": "CnnPolicy"}
    both = {"type": "dict", "spaces": {"image": image, "state": {"type": "box", "shape": [30]}}}
    return {"observation": both, "action": action}, {"name": "MultiInputPolicy"}


def _hyperparams(rng: random.Random, algo: str) -> dict[str, Any]:
    if algo == "A2C":
        return {"n_steps": rng.choice((5, 20, 128))}
    if algo in ON_POLICY:
        return {
            "n_steps": rng.choice((16, 100, 128, 1000, 2048, 8192)),
            "batch_size": rng.choice((32, 60, 64, 128, 512, 2048, 30_000)),
        }
    return {
        "buffer_size": rng.choice((1_000, 50_000, 100_000, 1_000_000)),
        "batch_size": rng.choice((32, 100, 256, 1024)),
        "learning_starts": 100,
    }


def _brax(rng: random.Random) -> Run:
    return run_from_dict(
        {
            "backend": "brax",
            "algo": "PPO",
            "env": {
                "id": "ant",
                "n_envs": rng.choice((128, 384, 512, 1000, 1024, 2048, 8192)),
                "spaces": {
                    "observation": {"type": "box", "shape": [rng.choice((58, 400))]},
                    "action": {"type": "box", "shape": [11]},
                },
            },
            "hyperparams": {
                "batch_size": rng.choice((100, 128, 256, 384, 1024)),
                "num_minibatches": rng.choice((2, 4, 6, 8, 32)),
                "unroll_length": rng.choice((5, 10, 20)),
                "episode_length": 1000,
            },
            "total_timesteps": 30_000_000,
        }
    )
