"""Sixty GPU runs of our own, drawn by a seed and recorded on a card that executes no kernels.

Needs an interpreter with a CUDA build of torch, SB3 and sb3-contrib that sees such a card; nothing of legroom. Every
run has a process of its own, forked after the imports and before the card is first used. Argument checks of
torch.distributions run as in users' runs; as whatever is read from that card is zero ("not valid"), their answer is
given instead. Half of the rows, drawn by the same seed, are set aside.

    PHANTOM -m bench.make_truth            writes data/vram_own.json and data/vram_own_heldout.json
    PHANTOM -m bench.make_truth NAME...    records these rows only and prints them
"""

from __future__ import annotations

import importlib
import json
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import sb3_contrib
import stable_baselines3 as sb3
import torch
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import nn

DATA = Path(__file__).parent / "data"
SEED = 20261117
Row = dict[str, Any]
NETS = "bench.own_nets"


# ------------------------------------------------------------------------------------------------ the rows


def box(*shape: int, dtype: str = "float32") -> Row:
    return {"type": "box", "shape": list(shape), "dtype": dtype}


def image(draw: random.Random) -> Row:
    size = draw.choice([48, 64, 72, 96])
    return box(draw.choice([1, 3, 4]), size, size, dtype="uint8")


def rows_of_vectors(draw: random.Random) -> Row:
    return box(draw.choice([12, 20, 33, 48]), draw.choice([8, 17, 24]))


def vector(draw: random.Random) -> Row:
    return box(draw.choice([9, 28, 67, 150, 301]))


def discrete(draw: random.Random) -> Row:
    return {"type": "discrete", "n": draw.choice([3, 7, 18])}


def continuous(draw: random.Random) -> Row:
    return box(draw.choice([1, 3, 7, 21]))


def on_policy(draw: random.Random, obs: Row, action: Row, algo: str = "PPO") -> Row:
    policy = (
        "CnnPolicy" if obs.get("dtype") == "uint8" else "MultiInputPolicy" if obs["type"] == "dict" else "MlpPolicy"
    )
    n_envs, n_steps = draw.choice([1, 3, 4, 8]), draw.choice([32, 48, 64, 100])
    kwargs: Row = {"n_steps": n_steps}
    if algo == "PPO":
        kwargs |= {"batch_size": draw.choice([32, 64, 96, 192]), "n_epochs": draw.choice([1, 2, 3])}
    return {"algo": algo, "policy": policy, "obs": obs, "action": action, "n_envs": n_envs, "kwargs": kwargs}


def off_policy(draw: random.Random, obs: Row, action: Row, algo: str) -> Row:
    row = on_policy(draw, obs, action, algo)
    batch, starts = draw.choice([64, 100, 256, 400]), draw.choice([60, 100])
    row["kwargs"] = {"buffer_size": 400, "learning_starts": starts, "batch_size": batch, "train_freq": 4}
    row["n_envs"] = draw.choice([1, 1, 2])
    return row | {"total_timesteps": starts + 48}


def with_net(row: Row, net: str, **arguments: Any) -> Row:
    return row | {"features_extractor": f"{NETS}:{net}", "features_extractor_kwargs": arguments}


def with_arch(draw: random.Random, row: Row) -> Row:
    arch = [draw.choice([96, 256, 400, 640]) for _ in range(draw.choice([1, 2, 3]))]
    return row | {"policy_kwargs": {"net_arch": arch, "activation_fn": draw.choice(["nn.ReLU", "nn.SiLU", "nn.Tanh"])}}


def ppo_plain(draw: random.Random) -> Row:
    action = draw.choice([
        discrete(draw), continuous(draw), {"type": "multidiscrete", "nvec": [3, 5, 2]}, {"type": "multibinary", "n": 6},
    ])  # fmt: skip
    return with_arch(draw, on_policy(draw, vector(draw), action))


def ppo_image(draw: random.Random) -> Row:
    return on_policy(draw, image(draw), draw.choice([discrete(draw), continuous(draw)]))


def ppo_dict(draw: random.Random) -> Row:
    inner = {"camera": image(draw), "state": vector(draw), "task": {"type": "discrete", "n": 5}}
    return on_policy(draw, {"type": "dict", "spaces": inner}, continuous(draw))


def a2c(draw: random.Random) -> Row:
    obs = draw.choice([vector(draw), image(draw)])
    row = on_policy(draw, obs, draw.choice([discrete(draw), continuous(draw)]), "A2C")
    return row if obs["dtype"] == "uint8" else with_arch(draw, row)


def dqn(draw: random.Random) -> Row:
    return off_policy(draw, draw.choice([vector(draw), image(draw)]), discrete(draw), "DQN")


def actor_critic(draw: random.Random) -> Row:
    row = off_policy(draw, vector(draw), continuous(draw), draw.choice(["SAC", "TD3", "DDPG"]))
    return with_arch(draw, row)


def actor_critic_image(draw: random.Random) -> Row:
    row = off_policy(draw, image(draw), continuous(draw), draw.choice(["SAC", "TD3"]))
    return row | {"policy_kwargs": {"share_features_extractor": draw.choice([True, False]), "net_arch": [128]}}


def quantiles(draw: random.Random) -> Row:
    return off_policy(draw, draw.choice([vector(draw), image(draw)]), discrete(draw), "QRDQN")


def tqc(draw: random.Random) -> Row:
    return with_arch(draw, off_policy(draw, vector(draw), continuous(draw), "TQC"))


def crossq(draw: random.Random) -> Row:
    return off_policy(draw, vector(draw), continuous(draw), "CrossQ")


def maskable(draw: random.Random) -> Row:
    action = draw.choice([discrete(draw), {"type": "multidiscrete", "nvec": [4, 9]}])
    return on_policy(draw, draw.choice([vector(draw), image(draw)]), action) | {"algo": "MaskablePPO"}


def trpo(draw: random.Random) -> Row:
    row = with_arch(draw, on_policy(draw, vector(draw), continuous(draw)))
    row["kwargs"].pop("n_epochs")
    return row | {"algo": "TRPO", "truth_note": "Tensor.__float__ answered 1.0: zeros end TRPO in a division by zero"}


def recurrent(draw: random.Random) -> Row:
    row = on_policy(draw, vector(draw), discrete(draw)) | {"algo": "RecurrentPPO", "policy": "MlpLstmPolicy"}
    return row | {"policy_kwargs": {"lstm_hidden_size": draw.choice([64, 256])}, "truth_note": RESERVE}


RESERVE = "the recurrent layers' reserve space is 0 on this card: a lower bound"


def patches(draw: random.Random) -> Row:
    net = {"patch": draw.choice([6, 8, 12]), "width": draw.choice([64, 128, 192]), "depth": draw.choice([1, 2, 3])}
    return with_net(on_policy(draw, image(draw), discrete(draw)), "Patches", **net, dropout=draw.choice([0.0, 0.1]))


def history(draw: random.Random) -> Row:
    net = {"width": draw.choice([64, 128, 256]), "masked": draw.choice([True, False]), "depth": draw.choice([1, 2])}
    return with_net(any_algorithm(draw, rows_of_vectors(draw)), "History", **net)


def readers(draw: random.Random) -> Row:
    return with_net(any_algorithm(draw, rows_of_vectors(draw)), "Readers", dropout=draw.choice([0.0, 0.1]))


def any_algorithm(draw: random.Random, obs: Row) -> Row:
    kind = draw.choice(["PPO", "PPO", "DQN", "SAC"])
    if kind == "PPO":
        return on_policy(draw, obs, draw.choice([discrete(draw), continuous(draw)]))
    return off_policy(draw, obs, discrete(draw) if kind == "DQN" else continuous(draw), kind)


def cells(draw: random.Random) -> Row:
    net = {"kind": draw.choice(["LSTM", "GRU"]), "hidden": draw.choice([64, 160]), "depth": draw.choice([1, 2])}
    return with_net(any_algorithm(draw, rows_of_vectors(draw)), "Cells", **net)


def layers(draw: random.Random) -> Row:
    net = {"kind": draw.choice(["LSTM", "GRU"]), "depth": draw.choice([1, 2])}
    return with_net(on_policy(draw, rows_of_vectors(draw), discrete(draw)), "Layers", **net) | {"truth_note": RESERVE}


def dropped(draw: random.Random) -> Row:
    net = {"width": draw.choice([200, 512, 1024]), "depth": draw.choice([2, 4])}
    return with_net(any_algorithm(draw, vector(draw)), "Dropped", **net)


def separable(draw: random.Random) -> Row:
    net = {"kernel": draw.choice([3, 5, 7]), "stages": draw.choice([2, 3]), "last": draw.choice([True, False])}
    return with_net(on_policy(draw, image(draw), discrete(draw)), "Separable", **net)


def tiles(draw: random.Random) -> Row:
    side = draw.choice([9, 16, 23])
    row = any_algorithm(draw, box(side, side, dtype="int32"))
    return with_net(row, "Tiles", kinds=draw.choice([40, 3000]), width=draw.choice([16, 48]))


def half_image(draw: random.Random) -> Row:
    net = {"dtype": draw.choice(["float16", "bfloat16"]), "width": draw.choice([16, 32, 48])}
    return with_net(on_policy(draw, image(draw), discrete(draw)), "HalfImage", **net)


def half_history(draw: random.Random) -> Row:
    net = {"dtype": draw.choice(["float16", "bfloat16"]), "masked": draw.choice([True, False])}
    return with_net(any_algorithm(draw, rows_of_vectors(draw)), "HalfHistory", **net)


def evaluated(draw: random.Random) -> Row:
    row = on_policy(draw, draw.choice([vector(draw), image(draw)]), discrete(draw))
    n_envs = draw.choice([1, 6, 40])
    return row | {"eval": {"n_envs": n_envs, "every": row["kwargs"]["n_steps"], "episodes": n_envs}}


def subclass_ppo(draw: random.Random) -> Row:
    return on_policy(draw, image(draw), discrete(draw)) | {"base": "PPO", "algo": f"{NETS}:PpoWithTeacher"}


def subclass_dqn(draw: random.Random) -> Row:
    row = off_policy(draw, draw.choice([vector(draw), image(draw)]), discrete(draw), "DQN")
    return row | {"base": "DQN", "algo": f"{NETS}:DqnOfTwo"}


def subclass_sac(draw: random.Random) -> Row:
    row = off_policy(draw, vector(draw), continuous(draw), "SAC")
    return row | {"base": "SAC", "algo": f"{NETS}:SacWithContrast"}


def hindsight(draw: random.Random) -> Row:
    goal, seen = box(draw.choice([2, 3, 6])), vector(draw)
    obs = {"type": "dict", "spaces": {"achieved_goal": goal, "desired_goal": goal, "observation": seen}}
    row = off_policy(draw, obs, continuous(draw), draw.choice(["SAC", "TD3", "DDPG"])) | {"her": True, "n_envs": 1}
    row["kwargs"]["learning_starts"] = 120
    return row | {"total_timesteps": 180}


KINDS: dict[Callable[[random.Random], Row], int] = {
    ppo_plain: 4, ppo_image: 2, ppo_dict: 1, a2c: 3, dqn: 2, actor_critic: 4, actor_critic_image: 1, quantiles: 2,
    tqc: 1, crossq: 2, maskable: 2, trpo: 2, recurrent: 2, patches: 3, history: 3, readers: 2, cells: 3, layers: 1,
    dropped: 3, separable: 3, tiles: 3, half_image: 2, half_history: 2, evaluated: 3, subclass_ppo: 1, subclass_dqn: 1,
    subclass_sac: 1, hindsight: 1,
}  # fmt: skip


def make_rows() -> list[Row]:
    draw = random.Random(SEED)
    rows = []
    for kind, count in KINDS.items():
        for number in range(1, count + 1):
            rows.append({"name": f"{kind.__name__.replace('_', '-')}-{number}"} | kind(draw))
    return rows


# ------------------------------------------------------------------------------------------------ recording


def space_of(described: Row) -> gym.Space[Any]:
    match described["type"]:
        case "discrete":
            return gym.spaces.Discrete(described["n"])
        case "multidiscrete":
            return gym.spaces.MultiDiscrete(described["nvec"])
        case "multibinary":
            return gym.spaces.MultiBinary(described["n"])
        case "dict":
            return gym.spaces.Dict({key: space_of(inner) for key, inner in described["spaces"].items()})
    dtype = np.dtype(described["dtype"])
    low, high = (0, 255) if dtype == np.uint8 else (-1, 1)
    return gym.spaces.Box(low, high, tuple(described["shape"]), dtype.type)


def zeros(space: gym.Space[Any]) -> Any:
    if isinstance(space, gym.spaces.Dict):
        return {key: zeros(inner) for key, inner in space.items()}
    return 0 if isinstance(space, gym.spaces.Discrete) else np.zeros(space.shape or (), space.dtype)


class Still(gym.Env[Any, Any]):
    """Nothing but zeros, for a hundred steps; every action is allowed."""

    def __init__(self, row: Row) -> None:
        self.observation_space, self.action_space = space_of(row["obs"]), space_of(row["action"])
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Row]:
        self.steps = 0
        return zeros(self.observation_space), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Row]:
        self.steps += 1
        return zeros(self.observation_space), 0.0, self.steps >= 100, False, {}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return np.zeros(len(achieved), np.float32)

    def action_masks(self) -> Any:
        space = self.action_space
        return np.ones(space.n if isinstance(space, gym.spaces.Discrete) else int(space.nvec.sum()), bool)  # type: ignore[attr-defined]


def named(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def answer_checks() -> None:
    """Let torch.distributions check its arguments as always and find them valid."""
    checked = torch._is_all_true

    def valid(tensor: torch.Tensor) -> Any:
        answer = checked(tensor)
        return True if tensor.is_cuda else answer

    torch._is_all_true = valid  # type: ignore[assignment]


def record(row: Row) -> Row:
    """Train as the row says and return what the allocator counted."""
    answer_checks()
    if row["algo"] == "TRPO":
        torch.Tensor.__float__ = lambda tensor: 1.0  # type: ignore[method-assign]
    hyper, policy = dict(row["kwargs"]), dict(row.get("policy_kwargs", {}))
    if "activation_fn" in policy:
        policy["activation_fn"] = getattr(nn, policy["activation_fn"].removeprefix("nn."))
    if "features_extractor" in row:
        policy["features_extractor_class"] = named(row["features_extractor"])
        policy["features_extractor_kwargs"] = row["features_extractor_kwargs"]
    if row.get("her"):
        hyper |= {"replay_buffer_class": sb3.HerReplayBuffer, "replay_buffer_kwargs": {"n_sampled_goal": 4}}
    name, n_envs = row["algo"], row["n_envs"]
    algorithm = named(name) if ":" in name else getattr(sb3, name, None) or getattr(sb3_contrib, name)
    environments = DummyVecEnv([lambda: Still(row)] * n_envs)
    model = algorithm(row["policy"], environments, policy_kwargs=policy, device="cuda", **hyper)
    callback = None
    if "eval" in row:
        seen = DummyVecEnv([lambda: Still(row)] * row["eval"]["n_envs"])
        every = max(1, row["eval"]["every"] // n_envs)
        callback = EvalCallback(
            seen, eval_freq=every, n_eval_episodes=row["eval"]["episodes"], warn=False, verbose=0
        )  # fmt: skip
    model.learn(row.get("total_timesteps") or 2 * hyper["n_steps"] * n_envs, callback=callback)
    counted = torch.cuda.memory_stats()
    return {
        "peak_allocated": counted["allocated_bytes.all.peak"], "peak_reserved": counted["reserved_bytes.all.peak"],
        "parameters": sum(p.numel() for p in model.policy.parameters()), "torch": torch.__version__,
        "sb3": sb3.__version__,
    }  # fmt: skip


def record_apart(row: Row) -> Row | None:
    """Record in a forked process, so that every run begins with an empty card; None if it fails."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            os.write(writing, json.dumps(record(row)).encode())
        except BaseException as error:  # whatever it is, the parent goes on with the next row
            print(f"{row['name']}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read()
    os.wait()
    return json.loads(text) if text else None


def save(rows: list[Row], file: Path) -> None:
    lines = ",\n".join(json.dumps(row) for row in rows)
    file.write_text(f"[\n{lines}\n]\n")


def main(names: list[str]) -> int:
    rows = make_rows()
    for row in rows:
        if not names or row["name"] in names:
            row["truth"] = record_apart(row)
            print(json.dumps(row), flush=True)
    if names:
        return 0
    if missing := [row["name"] for row in rows if not row["truth"]]:
        print("not recorded:", *missing, file=sys.stderr)
        return 1
    aside = set(random.Random(SEED).sample(range(len(rows)), len(rows) // 2))
    save([row for index, row in enumerate(rows) if index not in aside], DATA / "vram_own.json")
    save([row for index, row in enumerate(rows) if index in aside], DATA / "vram_own_heldout.json")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
