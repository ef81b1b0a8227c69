"""SB3's networks inside RLlib: the same numbers as SB3's own policies, masks that hold, and the same observations."""

import logging

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from ray.rllib.algorithms.dqn.dqn import calculate_rr_weights
from ray.rllib.algorithms.sac.sac_learner import QF_PREDS, QF_TWIN_PREDS
from ray.rllib.core.columns import Columns
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecTransposeImage

from legroom.backends.rllib.actors import (
    ACTOR_MANAGER,
    DeathNotices,
    Room,
    RunnerRaised,
    reason_of,
    refuse_what_cannot_be_placed,
)
from legroom.backends.rllib.config import make_config
from legroom.backends.rllib.envs import MASK, OBSERVATION, WithAxes, make_runner_env
from legroom.backends.rllib.modules import ActorCriticModule, QModule, SacModule
from legroom.backends.rllib.results import EPISODES, episodes_of
from legroom.backends.rllib.training import RllibLearner, Stalled, failure_cause
from legroom.backends.rllib.translation import rllib_plan
from legroom.errors import BadInput
from legroom.fitting.changes import with_settings
from legroom.model.learner import TrainTask
from legroom.model.run import Run

BOX = spaces.Box(-1, 1, (5,), np.float32)


def run(algo, **policy):
    return Run.model_validate({"algo": algo, "backend": "rllib", "env": {"id": "CartPole-v1"}, "policy": policy})


def module(made_of, algo, observation, action, *, masked=False, minibatch_size=3, **policy):
    facts = {"run": run(algo, **policy).model_dump(), "masked": masked, "minibatch_size": minibatch_size}
    facts |= {"double_q": False, "epsilon": [[0, 0.0]]}
    return made_of(observation_space=observation, action_space=action, model_config=facts)


def test_ppos_distribution_and_values_are_sb3s():
    made = module(ActorCriticModule, "PPO", BOX, spaces.Discrete(4), kwargs={"net_arch": {"pi": [8], "vf": [6]}})
    observations, actions = torch.randn(7, 5), torch.randint(4, (7,))
    values, log_probs, entropy = made.policy.evaluate_actions(observations, actions)
    out = made._forward_train({Columns.OBS: observations})
    distribution = made.get_train_action_dist_cls().from_logits(out[Columns.ACTION_DIST_INPUTS])
    torch.testing.assert_close(distribution.logp(actions), log_probs)
    torch.testing.assert_close(distribution.entropy(), entropy)
    torch.testing.assert_close(made.compute_values({}, out[Columns.EMBEDDINGS]), values[:, 0])
    torch.testing.assert_close(made.compute_values({Columns.OBS: observations}), values[:, 0])  # in parts of 3


def test_continuous_actions_have_sb3s_probabilities():
    made = module(ActorCriticModule, "PPO", BOX, spaces.Box(-1, 1, (2,)), kwargs={"log_std_init": -0.7})
    observations, actions = torch.randn(4, 5), torch.randn(4, 2)
    _, log_probs, _ = made.policy.evaluate_actions(observations, actions)
    out = made._forward({Columns.OBS: observations})
    distribution = made.get_train_action_dist_cls().from_logits(out[Columns.ACTION_DIST_INPUTS])
    torch.testing.assert_close(distribution.logp(actions), log_probs)


def test_a_masked_action_is_never_drawn():
    space = spaces.Dict({MASK: spaces.Box(0, 1, (6,), np.int8), OBSERVATION: BOX})
    made = module(ActorCriticModule, "MaskablePPO", space, spaces.Discrete(6), masked=True)
    mask = torch.tensor([[1, 0, 0, 1, 0, 0]] * 500)
    batch = {Columns.OBS: {OBSERVATION: torch.randn(500, 5), MASK: mask}}
    out = made._forward(batch)
    distribution = made.get_exploration_action_dist_cls().from_logits(out[Columns.ACTION_DIST_INPUTS])
    assert set(distribution.sample().tolist()) == {0, 3}
    _, _, entropy = made.policy.evaluate_actions(batch[Columns.OBS][OBSERVATION], torch.zeros(500), mask.bool())
    torch.testing.assert_close(distribution.entropy(), entropy)


def test_dqns_target_is_no_parameter_until_it_is_made():
    made = module(QModule, "DQN", BOX, spaces.Discrete(3), kwargs={"net_arch": [8]})
    assert sum(p.numel() for p in made.parameters()) == 5 * 8 + 8 + 8 * 3 + 3
    made.make_target_networks()
    (net, target), observations = made.get_target_network_pairs()[0], torch.randn(2, 5)
    torch.testing.assert_close(net(observations), target(observations))
    greedy = made._forward_exploration({Columns.OBS: observations}, t=5)[Columns.ACTIONS]
    assert greedy.tolist() == net(observations).argmax(1).tolist()  # epsilon is 0


def test_sacs_critics_are_sb3s_and_stand_still_for_the_policys_loss():
    made = module(SacModule, "SAC", BOX, spaces.Box(-1, 1, (2,)), kwargs={"net_arch": [8]})
    made.make_target_networks()
    observations, actions = torch.randn(4, 5), torch.rand(4, 2)
    batch = {Columns.OBS: observations, Columns.NEXT_OBS: torch.randn(4, 5), Columns.ACTIONS: actions}
    out = made._forward_train(batch)
    first, second = made.policy.critic(observations, actions)
    torch.testing.assert_close(out[QF_PREDS], first[:, 0])
    torch.testing.assert_close(out[QF_TWIN_PREDS], second[:, 0])
    out["q_curr"].mean().backward()
    assert all(p.grad is None for p in made.policy.critic.parameters())
    assert any(p.grad is not None for p in made.policy.actor.parameters())


def test_the_wrong_kind_of_actions_is_refused():
    with pytest.raises(BadInput, match="one discrete action"):
        module(QModule, "DQN", BOX, spaces.Box(-1, 1, (2,)))
    with pytest.raises(BadInput, match="continuous actions"):
        module(SacModule, "SAC", BOX, spaces.Discrete(2))


class Pictures(gym.Env):
    """Random pictures in episodes of three steps."""

    observation_space = spaces.Box(0, 255, (16, 16, 3), np.uint8)
    action_space = spaces.Discrete(2)

    def __init__(self):
        self._rng, self._t = np.random.default_rng(0), 0

    def _look(self):
        return self._rng.integers(256, size=(16, 16, 3)).astype(np.uint8)

    def reset(self, *, seed=None, options=None):
        self._t = 0
        return self._look(), {}

    def step(self, action):
        self._t += 1
        return self._look(), 0.0, self._t == 3, False, {}


def test_stacked_and_transposed_observations_are_those_of_sb3s_wrappers():
    ours = WithAxes(Pictures(), 4)
    sb3s = VecTransposeImage(VecFrameStack(DummyVecEnv([Pictures]), 4))
    assert ours.observation_space == sb3s.observation_space
    np.testing.assert_array_equal(ours.reset()[0], sb3s.reset()[0])
    for _ in range(8):
        observation, _, ended, _, _ = ours.step(0)
        if ended:
            observation, _ = ours.reset()
        np.testing.assert_array_equal(observation, sb3s.step(np.array([0]))[0][0])


def test_a_run_with_masks_needs_an_environment_that_has_them():
    with pytest.raises(BadInput, match="no method action_masks"):
        make_runner_env({"run": run("MaskablePPO").model_dump(), "masked": True})


def test_rllib_makes_as_many_updates_as_were_meant():
    asked = Run.model_validate(
        {"algo": "DQN", "env": {"id": "CartPole-v1", "n_envs": 6, "workers": "subproc", "envs_per_worker": 2},
         "hyperparams": {"train_freq": 8, "gradient_steps": 5, "batch_size": 48}, "total_timesteps": 1000}
    )  # fmt: skip
    plan = rllib_plan(asked)
    assert calculate_rr_weights(make_config(asked, plan, "cpu")) == [1, 5]


def test_too_little_room_is_said_with_numbers_instead_of_waiting_for_ever():
    asked = Run.model_validate(
        {"algo": "PPO", "env": {"id": "CartPole-v1", "n_envs": 5, "workers": "subproc"}, "total_timesteps": 1000}
    )
    asked = with_settings(asked, memory={"runner_bytes": 3 << 30})
    plan = rllib_plan(asked)
    rooms = [Room(cpus=4, memory_nbytes=7 << 30), Room(cpus=1, memory_nbytes=64 << 30)]
    with pytest.raises(BadInput, match=r"room for 3 of 5 env runners of 1 CPU and 3\.0 GiB each"):
        refuse_what_cannot_be_placed(asked, plan, rooms)  # two by memory on the first, one by CPUs on the second
    refuse_what_cannot_be_placed(asked, plan, [*rooms, Room(cpus=2, memory_nbytes=6 << 30)])


def test_why_a_runner_died_is_read_from_rays_words():
    killed = "The actor died unexpectedly before finishing this task. ... The process died: SIGKILL by OOM killer"
    assert reason_of(killed) == "its process is gone"
    monitor = (
        "Task was killed due to the node running low on memory.\nMemory on the node (IP: 127.0.0.1, ID: ab) where the "
        "task (actor ID: cd, name=SingleAgentEnvRunner.__init__, pid=7, memory used=3.10GB) was running was 22.90GB / "
        "24.00GB (0.954), which exceeds the memory usage threshold of 0.95."
    )
    assert "Ray's monitor killed a worker" in reason_of(monitor)


def test_a_single_episode_comes_without_a_list_around_it():
    assert episodes_of({EPISODES: (12.0, 12)}) == [(12.0, 12)]
    assert episodes_of({EPISODES: [(1.0, 2), (3.0, 4)]}) == [(1.0, 2), (3.0, 4)]
    assert episodes_of({}) == []


def test_what_an_environment_raised_in_a_runner_is_told_in_its_own_words():
    text = (
        'Ray error (\x1b[36mray::SpeakingEnvRunner.apply()\x1b[39m (pid=7)\n  File "bad_env.py", line 8\n'
        "RuntimeError: the pole has broken\n\nThe above exception was the direct cause of the following exception:\n\n"
        "ray::SpeakingEnvRunner.apply() (pid=7)\n    raise RuntimeError from e\nRuntimeError), taking actor 1 out of "
        "service."
    )
    assert str(RunnerRaised(text)) == "RuntimeError: the pole has broken"
    assert "\x1b" not in RunnerRaised(text).traceback


def test_a_runner_that_dies_while_rllib_is_built_leads_back_to_the_last_checkpoint(tmp_path):
    """RLlib asks its runners for their spaces and takes the first answer: IndexError where there is none."""

    class Loop:
        def __init__(self):
            self.said = []

        def say(self, line):
            self.said.append(line)

        def in_background(self, function, *, needed, within_s=None):
            died = "The actor died unexpectedly before finishing this task., taking actor 1 out of service."
            logging.getLogger(ACTOR_MANAGER).error(died)
            raise IndexError("list index out of range")

    loop = Loop()
    learner = RllibLearner(TrainTask(run("PPO"), str(tmp_path), "cpu", 64, -1), loop)
    learner._notices = DeathNotices(loop.say)
    try:
        with pytest.raises(Stalled, match="1 env runners died while RLlib was built") as raised:
            learner._built(tmp_path)
    finally:
        learner._notices.close()
    assert failure_cause(raised.value).kind == "worker-died"
