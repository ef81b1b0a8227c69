"""The shipped table of spaces says what the installed environments say."""

import pytest

from legroom.reading.known_spaces import find_spaces, is_atari

gymnasium = pytest.importorskip("gymnasium")

CONSTRUCTIBLE = (
    "CartPole-v0", "CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Acrobot-v1", "Pendulum-v1",
    "FrozenLake-v1", "FrozenLake8x8-v1", "Taxi-v3",
)  # fmt: skip


@pytest.mark.parametrize("env_id", [env_id for env_id in CONSTRUCTIBLE if env_id in gymnasium.registry])
def test_table_agrees_with_gymnasium(env_id: str) -> None:
    env = gymnasium.make(env_id)
    known = find_spaces(env_id)
    assert known is not None
    for declared, real in ((known.observation, env.observation_space), (known.action, env.action_space)):
        if declared["type"] == "discrete":
            assert declared["n"] == real.n
        else:
            assert (tuple(declared["shape"]), declared["dtype"]) == (real.shape, str(real.dtype))
    assert known.episode_steps == env.spec.max_episode_steps


@pytest.mark.parametrize(
    ("wrapper", "shape"),
    [
        ("stable_baselines3.common.atari_wrappers.AtariWrapper", [84, 84, 1]),
        ({"stable_baselines3.common.atari_wrappers:AtariWrapper": {"screen_size": 42}}, [42, 42, 1]),
        ({"gymnasium.wrappers.AtariPreprocessing": {"grayscale_newaxis": True}}, [84, 84, 1]),
        ("gymnasium.wrappers.AtariPreprocessing", [84, 84]),
        ({"gymnasium.wrappers.ResizeObservation": {"shape": [64, 48]}}, [64, 48, 3]),
        ("gymnasium.wrappers.GrayscaleObservation", [210, 160]),
        ("gymnasium.wrappers.FlattenObservation", [100_800]),
        ({"gymnasium.wrappers.FrameStackObservation": {"stack_size": 4}}, [4, 210, 160, 3]),
        ("stable_baselines3.common.monitor.Monitor", [210, 160, 3]),
        ("somebody.Elses", None),
        ({"gymnasium.wrappers.ResizeObservation": {}}, None),
        (["not", "a", "wrapper"], None),
    ],
)
def test_wrappers_change_the_observation(wrapper: object, shape: list[int] | None) -> None:
    known = find_spaces("ALE/Breakout-v5", [wrapper])
    assert (known and known.observation["shape"]) == shape


def test_wrappers_see_the_one_before() -> None:
    known = find_spaces(
        "ALE/Pong-v5",
        ["gymnasium.wrappers.GrayscaleObservation", {"gymnasium.wrappers.FrameStackObservation": {"stack_size": 4}}],
    )
    assert known is not None
    assert known.observation["shape"] == [4, 210, 160]


def test_goal_environments() -> None:
    known = find_spaces("FetchReach-v1", ["sb3_contrib.common.wrappers.TimeFeatureWrapper"])
    assert known is not None
    assert {name: space["shape"] for name, space in known.observation["spaces"].items()} == {
        "achieved_goal": [3], "desired_goal": [3], "observation": [11],
    }  # fmt: skip


@pytest.mark.parametrize("env_id", ["ALE/Pong-v5", "PongNoFrameskip-v4", "PongDeterministic-v0", "Pong-ram-v4"])
def test_atari_ids(env_id: str) -> None:
    assert is_atari(env_id)


@pytest.mark.parametrize("env_id", ["Pongo-v4", "CartPole-v1", "Pong", "atari", "Blackjack-v1"])
def test_other_ids(env_id: str) -> None:
    assert not is_atari(env_id)


def test_arguments_that_change_the_spaces_make_them_unknown() -> None:
    assert find_spaces("Ant-v4", kwargs={"use_contact_forces": True}) is None
    assert find_spaces("Ant-v4", kwargs={"healthy_reward": 2.0}) is not None
