"""If these fail, the probe looks at other observations than training would store, and its bytes mean nothing."""

from copy import deepcopy

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize, VecTransposeImage

from legroom.environments.env_steps import SEED, Streams
from legroom.environments.gym_spaces import from_gymnasium
from legroom.model.spaces import leaves

STEPS = 30


class Wander(gymnasium.Env):
    """Any observations, the same whatever the actions; episodes of 7 steps, some end by chance before."""

    def __init__(self, space):
        self.observation_space, self.action_space = deepcopy(space), spaces.Discrete(2)
        self.source = deepcopy(space)  # VecNormalize changes a Dict space that it is given

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.source.seed(seed)
        self.steps = 0
        return self.source.sample(), {}

    def step(self, action):
        self.steps += 1
        return self.source.sample(), 0.0, self.np_random.random() < 0.05, self.steps >= 7, {}


IMAGE = spaces.Box(0, 255, (8, 6, 3), np.uint8)
IMAGE_FIRST = spaces.Box(0, 255, (3, 8, 6), np.uint8)
GRID = spaces.Box(-1, 1, (4, 4, 2), np.float32)
MIXED = spaces.Dict(image=spaces.Box(0, 255, (8, 6, 3), np.uint8), vector=spaces.Box(-1, 1, (5,), np.float64))


@pytest.mark.parametrize("normalize", [None, {}, {"clip_obs": 0.5}], ids=["raw", "normalized", "clipped"])
@pytest.mark.parametrize("frame_stack", [1, 3])
@pytest.mark.parametrize("space_shown", [IMAGE, IMAGE_FIRST, GRID, MIXED], ids=["image", "first", "grid", "mixed"])
def test_rows_are_what_the_vec_envs_of_sb3_hand_to_a_buffer(space_shown, frame_stack, normalize):
    envs = [Wander(space_shown) for _ in range(2)]
    streams = Streams(envs, leaves(from_gymnasium(space_shown)), frame_stack=frame_stack, normalize=normalize)
    row = streams.begin(seeded=True)

    theirs = [Wander(space_shown) for _ in range(2)]
    vec_env = DummyVecEnv([lambda: theirs[0], lambda: theirs[1]])
    if normalize is not None:
        vec_env = VecNormalize(vec_env, norm_reward=False, **normalize)
    if frame_stack > 1:
        vec_env = VecFrameStack(vec_env, frame_stack)
    if normalize is None and _has_image(space_shown):
        vec_env = VecTransposeImage(vec_env)
    vec_env.seed(SEED)
    _same(row.now, _by_key(vec_env.reset()), streams)
    for _ in range(STEPS):
        row = streams.step()
        observations, _, dones, infos = vec_env.step([0, 0])
        assert row.begun == dones.sum()
        _same(row.now, _by_key(observations), streams)
        for env in np.flatnonzero(dones):
            last = {key: part[None] for key, part in _by_key(infos[env]["terminal_observation"]).items()}
            _same({key: part[env : env + 1] for key, part in row.after.items()}, last, streams)
    assert sum(streams.lengths) <= streams.steps == 2 * STEPS
    assert max(streams.lengths) == 7


def test_a_time_limit_is_found_wherever_it_is():
    registered = gymnasium.make("CartPole-v1")
    assert Streams([registered], {}).time_limit == 500
    wrapped = gymnasium.wrappers.TimeLimit(Wander(GRID), 77)
    assert Streams([gymnasium.wrappers.RecordEpisodeStatistics(wrapped)], {}).time_limit == 77
    assert Streams([Wander(GRID)], {}).time_limit is None


@pytest.mark.parametrize(
    ("space", "masks", "allowed"),
    [
        (spaces.Discrete(4), [0, 1, 0, 1], lambda a: a in (1, 3)),
        (spaces.MultiDiscrete([2, 3]), [1, 0, 0, 0, 1], lambda a: list(a) == [0, 2]),
        (spaces.MultiBinary(2), [0, 1, 1, 0], lambda a: list(a) == [1, 0]),
    ],
)
def test_only_allowed_actions_are_taken(space, masks, allowed):
    taken = []

    class Masked(Wander):
        def __init__(self):
            super().__init__(GRID)
            self.action_space = space

        def action_masks(self):
            return np.array(masks, bool)

        def step(self, action):
            taken.append(action)
            return super().step(action)

    streams = Streams([gymnasium.wrappers.TimeLimit(Masked(), 5)], {})
    streams.begin(seeded=True)
    for _ in range(20):
        streams.step()
    assert len(taken) == 20 and all(allowed(action) for action in taken)


def _has_image(space):
    found = space.spaces.values() if isinstance(space, spaces.Dict) else [space]
    return any(part.dtype == np.uint8 and part.shape[-1] == 3 for part in found)


def _by_key(observations):
    return observations if isinstance(observations, dict) else {"": observations}


def _same(mine, theirs, streams):
    assert mine.keys() == theirs.keys()
    for key, part in mine.items():
        shape, dtype = streams.stored(key)
        assert part.shape[1:] == shape
        np.testing.assert_array_equal(part.astype(dtype), theirs[key].astype(dtype))
