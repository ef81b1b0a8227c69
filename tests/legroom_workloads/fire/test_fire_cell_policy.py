"""If these fail, the wildfire agent wastes breaks on cells that do not burn, or cannot be built for sets of cells."""

import numpy as np
import pytest
import torch
from stable_baselines3.common.vec_env import DummyVecEnv

from legroom import DoubleDQN
from legroom_workloads.fire.env import FireEnv
from legroom_workloads.fire.nets import CellPolicy, FireNet

BASIC = dict(residual=False, multi_scale=False, attention=False)
SMALL = dict(grid=(12, 12), sims=2, budget=30, breaks_per_step=5, rasters=3)


@pytest.mark.parametrize("dead_1h", [0.06, 0.14, 0.22])  # as it is by default; so wet that some fuels do not burn
def test_the_mask_is_what_the_environment_allows(dead_1h):
    env = FireEnv(**SMALL | dict(grid=(30, 30)), moisture={"dead_1h": dead_1h})
    allowed = 0
    for raster in range(3):
        observation, _ = env.reset(seed=raster, options={"raster": raster})
        for _ in range(3):
            mask = CellPolicy.action_mask(torch.from_numpy(observation)[None])
            assert (mask[0].numpy() == env.action_masks()).all()
            allowed += int(mask.sum())
            observation, *_ = env.step(np.flatnonzero(env.action_masks())[:5])
    assert 0 < allowed < 9 * 900


@pytest.mark.parametrize("breaks_per_step", [1, 5])
def test_an_agent_wastes_no_breaks(breaks_per_step):
    envs = DummyVecEnv([lambda: FireEnv(**SMALL | dict(breaks_per_step=breaks_per_step, budget=10 * breaks_per_step))])
    model = DoubleDQN(
        CellPolicy, envs, seed=0, device="cpu", learning_starts=8, batch_size=4, train_freq=4, buffer_size=100,
        policy_kwargs=dict(
            normalize_images=False, features_extractor_class=FireNet, features_extractor_kwargs=BASIC
        ),
    )  # fmt: skip
    model.learn(24)
    assert model.q_net(torch.zeros(1, 8, 12, 12)).shape == (1, 144)
    env = envs.envs[0]
    observation, _ = env.reset(seed=1)
    over = False
    while not over:
        action, _ = model.predict(observation, deterministic=True)
        observation, _, over, _, info = env.step(action)
    assert info["wasted"] == 0
