"""The robot as a gymnasium environment: it stands, walks when pushed to, falls, and can be put back to any state."""

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from legroom.errors import BadInput
from legroom_workloads.robot import task as rules
from legroom_workloads.robot.biped import read_biped
from legroom_workloads.robot.gym_env import RobotGymEnv
from legroom_workloads.robot.task import Task

STILL = np.zeros(11, np.float32)
TERRAINS = ("flat", "rough")


def walk(env, actions):
    """Observations, rewards and whether the robot fell, of these actions."""
    seen, paid, fallen = [], [], False
    for action in actions:
        observation, reward, fallen, _, _ = env.step(action)
        seen.append(observation)
        paid.append(reward)
        if fallen:
            break
    return np.array(seen), np.array(paid), fallen


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_gymnasium_finds_nothing_wrong_with_it():
    check_env(RobotGymEnv("rough"), skip_render_check=True)


def test_it_stands_by_its_default_pose():
    env = RobotGymEnv(start_noise=0.0, speeds=(0.0, 0.0))
    env.reset(seed=0)
    _, paid, fallen = walk(env, [STILL] * 250)
    assert not fallen
    assert env.data.qpos[2] == pytest.approx(0.38, abs=0.01)
    assert paid[-1] > 2.9  # of the 3.0 that a step can pay: nobody told it to walk


def test_random_actions_fall_within_two_seconds():
    env, rng, lengths = RobotGymEnv(), np.random.default_rng(0), []
    for seed in range(5):
        env.reset(seed=seed)
        seen, paid, fallen = walk(env, np.tanh(0.7 * rng.standard_normal((100, 11))))
        assert fallen and paid[-1] == 0
        lengths.append(len(seen))
    assert 15 < np.mean(lengths) < 100


def test_an_episode_is_truncated_where_it_was_told_to():
    env = RobotGymEnv(start_noise=0.0, episode_steps=3)
    env.reset(seed=0)
    assert [env.step(STILL)[3] for _ in range(3)] == [False, False, True]


def test_the_observation_is_what_it_says():
    env = RobotGymEnv()
    observation, info = env.reset(seed=3, options={"command": 0.4})
    assert observation.shape == (58,) and observation[-1] == pytest.approx(0.4) and info["command"] == 0.4
    action = np.linspace(-1, 1, 11).astype(np.float32)
    observation = env.step(action)[0]
    joints, speeds, up, rest, last = np.split(observation[:57], (11, 22, 25, 46))
    assert joints == pytest.approx(env.data.qpos[7:] - env.biped.stand[7:], abs=1e-6)
    assert speeds == pytest.approx(env.data.qvel[6:], abs=1e-4)
    assert np.linalg.norm(up) == pytest.approx(1, abs=1e-6)
    assert rest.shape == (21,) and np.abs(rest).max() > 1  # accelerometers feel the weight
    assert last == pytest.approx(action)


@pytest.mark.parametrize("terrain", TERRAINS)
def test_a_state_is_all_that_the_rest_of_an_episode_depends_on(terrain):
    env, other = RobotGymEnv(terrain), RobotGymEnv(terrain)
    actions = 0.4 * np.random.default_rng(1).standard_normal((40, 11))
    env.reset(seed=5)
    walk(env, actions[:10])
    state = env.get_state()
    expected = walk(env, actions[10:])
    other.reset(seed=99)
    other.set_state(state)
    for got, wanted in zip(walk(other, actions[10:]), expected, strict=True):
        assert np.array_equal(got, wanted)
    assert np.array_equal(other.reset()[0], env.reset()[0])  # and the episodes after it


def test_starts_differ_and_a_seed_repeats_them():
    env = RobotGymEnv("rough")
    one, again, other = (env.reset(seed=seed)[0] for seed in (1, 1, 2))
    assert np.array_equal(one, again) and not np.allclose(one, other)


def test_pay_by_hand():
    """Upright at 0.25 m/s where 0.5 was asked for: alive 1.0, speed 1.5/e, upright 0.5, nothing lost."""
    biped, task = read_biped(), Task()
    velocity = np.zeros(17)
    velocity[0] = 0.25
    calm = dict(action=np.zeros(11), before=np.zeros(11), command=0.5, phases=np.zeros(4))
    outcome = rules.judge(np, task, biped, biped.stand, velocity, **calm)
    assert outcome.reward == pytest.approx(1.0 + 1.5 / np.e + 0.5) and not outcome.fallen
    jerky = rules.judge(np, task, biped, biped.stand, velocity, **{**calm, "action": np.ones(11)})
    assert outcome.reward - jerky.reward == pytest.approx(0.02 * 11)
    turned = np.array(biped.stand)  # facing y, the same velocity is sideways
    turned[3:7] = np.sqrt(0.5), 0, 0, np.sqrt(0.5)
    aside = rules.judge(np, task, biped, turned, velocity, **calm)
    assert aside.forward_speed == pytest.approx(0, abs=1e-6)
    assert aside.reward == pytest.approx(1.0 + 1.5 * np.exp(-4) + 0.5 - 0.5 * 0.25**2)
    low = np.array(biped.stand)
    low[2] *= 0.6
    assert rules.judge(np, task, biped, low, velocity, **calm).fallen


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"terrain": "lunar"}, "flat or rough"),
        ({"roughness_m": 3.0}, "roughness_m"),
        ({"speeds": (0.5, 0.1)}, "slower one first"),
        ({"speeds": 0.5}, "two numbers"),
        ({"speeds": (0.0, float("nan"))}, "speeds"),
        ({"start_noise": True}, "start_noise"),
        ({"reach_rad": "far"}, "reach_rad"),
        ({"modell": "a.xml"}, "did you mean model"),
        ({"model": 3}, "MJCF"),
        ({"model": "nowhere.xml"}, "no such model file"),
        ({"episode_steps": 0}, "episode_steps"),
        ({"render_mode": "human"}, "rgb_array"),
    ],
)
def test_bad_arguments_are_one_clear_line(arguments, says):
    with pytest.raises(BadInput, match=says):
        RobotGymEnv(**arguments)
