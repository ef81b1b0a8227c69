"""If these fail, DoubleDQN is not DQN where it should be, or not double, not by sets, not masked where it should be."""

import hashlib
import inspect

import numpy as np
import pytest
import torch
from dqn_cases import CELLS, FAST, Cells, OpenCells, cells, fixed, parameters
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.common.policies import BasePolicy

import legroom
from legroom.errors import BadInput
from legroom_workloads.fire.algorithms import double_dqn, prioritized
from legroom_workloads.fire.algorithms.prioritized import PrioritizedMinibatch

pytestmark = pytest.mark.filterwarnings("ignore:The number of environments used is greater")  # meant
DoubleDQN = legroom.DoubleDQN
AS_DQN = dict(double=False, priority_alpha=0)
LINEAR = FAST | dict(policy_kwargs={"net_arch": []})


@pytest.fixture(autouse=True)
def one_thread():
    """Sums of several threads may differ from run to run."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("buffer", [None, legroom.LeanReplayBuffer], ids=["plain", "lean"])
def test_uniform_and_not_double_is_sb3s_dqn_to_the_bit(n_envs, buffer):
    kwargs = FAST | dict(replay_buffer_class=buffer)
    sb3 = DQN("MlpPolicy", cells(n_envs, chosen=1), **kwargs).learn(240)
    generators = np.random.get_state()[1].tobytes(), torch.get_rng_state()
    ours = DoubleDQN("MlpPolicy", cells(n_envs, chosen=1), **kwargs, **AS_DQN).learn(240)
    assert sb3._n_updates == ours._n_updates > 30
    assert torch.equal(parameters(sb3), parameters(ours))
    assert generators[0] == np.random.get_state()[1].tobytes()
    assert torch.equal(generators[1], torch.get_rng_state())


def test_n_steps_and_uniform_is_sb3s_dqn_too():
    sb3 = DQN("MlpPolicy", cells(1, chosen=1), **FAST, n_steps=3).learn(100)
    ours = DoubleDQN("MlpPolicy", cells(1, chosen=1), **FAST, **AS_DQN, n_steps=3).learn(100)
    assert torch.equal(parameters(sb3), parameters(ours))


@pytest.mark.parametrize("buffer", [None, legroom.LeanReplayBuffer], ids=["plain", "lean"])
def test_equal_priorities_give_the_gradients_of_dqn(buffer):
    kwargs = FAST | dict(replay_buffer_class=buffer, learning_starts=10**6)
    ours = DoubleDQN("MlpPolicy", cells(chosen=1), **kwargs, double=False).learn(60)
    with torch.no_grad():  # after a sync; a target that differs says more
        for parameter in ours.q_net_target.parameters():
            parameter.mul_(1.5)
    sb3 = DQN("MlpPolicy", cells(chosen=1), **kwargs)
    sb3.policy.load_state_dict(ours.policy.state_dict())
    drawn = ours.priorities.draw(ours.replay_buffer, 13, beta=0.4)
    (samples,) = PrioritizedMinibatch(ours.replay_buffer, drawn, None, torch.float32)(13)
    assert (samples.weights == 1).all()
    ours._loss(samples).backward()
    sb3.replay_buffer.sample = lambda *args, **named: samples
    sb3.policy.optimizer.step = lambda: None
    sb3.max_grad_norm = 1e9
    sb3._logger = ours.logger
    sb3.train(1, 13)
    for mine, its in zip(ours.q_net.parameters(), sb3.q_net.parameters(), strict=True):
        assert torch.equal(mine.grad, its.grad)


@pytest.mark.parametrize(
    ("chosen", "double", "masked", "expected"),
    [
        (1, True, False, 20.0),  # online finds cell 1 best, and the target says what it is worth
        (1, False, False, 40.0),
        (2, True, False, 30.0),  # cells 1 and 3
        (2, False, False, 35.0),  # cells 2 and 3
        (2, True, True, 35.0),  # not cell 1: cells 3 and 2
        (2, False, True, 35.0),
        (1, True, True, 40.0),
    ],
)
def test_the_next_value_by_hand(chosen, double, masked, expected):
    policy = OpenCells if masked else "MlpPolicy"
    model = DoubleDQN(policy, cells(chosen=chosen), **LINEAR, double=double)
    fixed(model, [1.0, 5.0, 3.0, 4.0, 0.0, 0.0], [10.0, 20.0, 30.0, 40.0, 0.0, 0.0])
    observation = torch.ones(1, 2 * CELLS)
    observation[0, CELLS + 1] = 0  # cell 1 is closed
    with torch.no_grad():
        assert model._next_values(observation).tolist() == [[expected]]


def test_a_sets_value_is_the_mean_of_its_members_and_each_gets_its_share():
    model = DoubleDQN("MlpPolicy", cells(), **LINEAR, gamma=0.5).learn(20)
    fixed(model, [1.0, 5.0, 3.0, 4.0, 0.0, 0.0], [0.0] * 6)
    drawn = model.priorities.draw(model.replay_buffer, 1, beta=0.4)
    minibatch = PrioritizedMinibatch(model.replay_buffer, drawn, None, torch.float32)
    (one,) = minibatch(1)
    one = one._replace(actions=torch.tensor([[1, 2]]), rewards=torch.tensor([[3.5]]))
    loss = model._loss(one)  # (5 + 3) / 2 = 4 against 3.5: an error of a half, of which Huber makes an eighth
    assert loss.item() == 0.125
    assert minibatch.errors.item() == 0.5
    loss.backward()
    assert model.q_net.q_net[-1].bias.grad.tolist() == [0.0, 0.25, 0.25, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(("n_envs", "interval"), [(1, 10), (3, 10), (16, 5)])
def test_the_target_follows_every_interval_of_environment_steps(n_envs, interval, monkeypatch):
    model = DoubleDQN("MlpPolicy", cells(n_envs), **FAST | dict(learning_starts=10**6, target_update_interval=interval))
    synced = []
    monkeypatch.setattr(double_dqn, "polyak_update", lambda *given: synced.append(model.num_timesteps))
    model.learn(96)
    due = range(interval, model.num_timesteps + 1, interval)
    # at the first step of all environments from each multiple on; twice a call, for parameters and running statistics
    assert synced[::2] == sorted({-(-k // n_envs) * n_envs for k in due})


def test_of_a_soft_target_several_updates_may_be_due_at_once(monkeypatch):
    model = DoubleDQN("MlpPolicy", cells(16), **FAST | dict(target_update_interval=5, tau=0.5, learning_starts=10**6))
    synced = []
    monkeypatch.setattr(double_dqn, "polyak_update", lambda *given: synced.append(given[-1]))
    model.learn(32)
    assert synced[::2] == [0.5] * 6  # 32 // 5


def test_beta_rises_to_one_and_rates_fall_with_the_progress(monkeypatch):
    model = DoubleDQN("MlpPolicy", cells(), **FAST | dict(learning_rate=lambda left: 1e-3 * left))
    seen = []
    draw = prioritized.Priorities.draw

    def listen(self, buffer, batch_size, beta):
        seen.append((model.num_timesteps, beta, model.policy.optimizer.param_groups[0]["lr"], model.exploration_rate))
        return draw(self, buffer, batch_size, beta)

    monkeypatch.setattr("legroom_workloads.fire.algorithms.prioritized.Priorities.draw", listen)
    model.learn(400)
    for step, beta, rate, epsilon in seen:
        assert beta == pytest.approx(0.4 + 0.6 * step / 400)
        assert rate == pytest.approx(1e-3 * (1 - step / 400))
        assert epsilon == pytest.approx(max(1 - 0.95 * step / 240, 0.05))
    assert seen[-1][1] == pytest.approx(1.0)


@pytest.mark.parametrize("chosen", [1, 2, 3])
def test_closed_cells_are_chosen_neither_at_random_nor_greedily(chosen):
    model = DoubleDQN(OpenCells, cells(chosen=chosen), **FAST).learn(300)
    envs = model.env.envs
    assert sum(env.closed_taken for env in envs) == 0  # three cells are always open
    taken = np.concatenate([cell for env in envs for cell in env.taken])
    assert set(taken.tolist()) == set(range(CELLS))
    observation = envs[0].reset(seed=1)[0]
    action, _ = model.predict(observation, deterministic=True)
    assert action.shape == (() if chosen == 1 else (chosen,))
    assert envs[0].open[np.atleast_1d(action)].all()
    assert model.policy.predict(np.stack([observation] * 4))[0].shape == ((4,) if chosen == 1 else (4, chosen))


def test_where_too_few_are_open_the_set_is_filled_up():
    model = DoubleDQN(OpenCells, cells(), **LINEAR)
    fixed(model, [1.0, 5.0, 3.0, 4.0, 0.0, 0.0], [0.0] * 6)
    observation = np.zeros((1, 2 * CELLS), np.float32)
    observation[0, CELLS + 4] = 1
    for explores in (0.0, 1.1):
        model.exploration_rate = explores
        ((one, other),) = model.predict(observation)[0]
        assert 4 in (one, other)
        assert one != other


def test_random_sets_are_drawn_evenly():
    model = DoubleDQN("MlpPolicy", cells(), **LINEAR)
    np.random.seed(0)
    drawn = model.sets.random(6_000, None)
    pairs = np.bincount(np.sort(drawn, axis=1) @ [CELLS, 1], minlength=CELLS * CELLS)
    assert (pairs > 0).sum() == 15
    assert pairs[pairs > 0].min() > 300  # 400 expected


def test_it_learns_which_cells_pay():
    settings = LINEAR | dict(gamma=0.0, buffer_size=2000, train_freq=1, learning_rate=1e-2)
    model = DoubleDQN("MlpPolicy", cells(4), **settings).learn(1_200)
    pays = np.random.default_rng(0).random((200, CELLS)).astype(np.float32)
    chosen = model.predict(np.hstack([pays, np.ones_like(pays)]), deterministic=True)[0]
    got, best = np.take_along_axis(pays, chosen, 1).mean(), np.sort(pays, axis=1)[:, -2:].mean()
    assert got > 0.5 + 0.75 * (best - 0.5)  # 0.5 is what random cells pay


@pytest.mark.parametrize("policy", ["MlpPolicy", OpenCells], ids=["all", "masked"])
def test_saved_and_loaded_by_sb3_it_acts_alike(policy, tmp_path):
    model = DoubleDQN(policy, cells(), **FAST).learn(60)
    model.save(tmp_path / "model.zip")
    again = DoubleDQN.load(tmp_path / "model.zip", env=cells(), device="cpu")
    seen = np.random.default_rng(0).random((20, 2 * CELLS)).astype(np.float32)
    assert (model.predict(seen, deterministic=True)[0] == again.predict(seen, deterministic=True)[0]).all()
    again.learn(20, reset_num_timesteps=False)


def test_a_replay_buffer_that_was_saved_and_loaded_counts_as_new(tmp_path):
    model = DoubleDQN("MlpPolicy", cells(), **FAST).learn(60)
    model.save_replay_buffer(tmp_path / "replay.pkl")
    again = DoubleDQN("MlpPolicy", cells(), **FAST)
    again.load_replay_buffer(tmp_path / "replay.pkl")
    again.learn(4)
    assert (again.priorities.kept > 0).all()
    assert len(again.priorities.kept) == 64


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.MultiDiscrete([6, 5]), "has several n"),
        (spaces.MultiDiscrete([2, 2, 2]), "3 different ones out of 2"),
        (spaces.MultiDiscrete([6, 6], start=[1, 1]), "has several n"),
    ],
)
def test_actions_that_are_no_sets_are_refused_in_one_line(space, message):
    env = Cells()
    env.action_space = space
    with pytest.raises(BadInput, match=message):
        DoubleDQN("MlpPolicy", env, **FAST)


@pytest.mark.parametrize("given", [{"priority_alpha": 1.5}, {"priority_beta": -0.1}, {"priority_eps": 0}])
def test_priorities_out_of_range_are_refused_in_one_line(given):
    with pytest.raises(BadInput, match=next(iter(given))):
        DoubleDQN("MlpPolicy", cells(), **FAST, **given)


PINNED = {
    "__init__": "a2cd14e1e7dd3201",
    "_setup_model": "59e949d9f35fd11e",
    "_on_step": "2251f2efac3ba6bf",
    "train": "3b0afacf8023a97e",
    "predict": "1743656d99e4567e",
}


@pytest.mark.parametrize("name", PINNED)
def test_what_is_mirrored_has_not_changed(name):
    found = hashlib.sha256(" ".join(inspect.getsource(getattr(DQN, name)).split()).encode()).hexdigest()[:16]
    assert found == PINNED[name], (
        f"DQN.{name} is not the one that legroom_workloads/fire/algorithms/double_dqn.py mirrors; compare, pin {found}"
    )


def test_policies_keep_their_own_names():
    model = DoubleDQN(OpenCells, cells(), **FAST)
    assert model.policy_class is OpenCells
    assert isinstance(model.policy, OpenCells)
    assert isinstance(model.policy, BasePolicy)
    assert type(model.policy).__name__ == "OpenCells"
