"""If these fail, a run with micro_batch learns something else than the same run without, or saves no memory."""

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces
from microbatch_cases import (
    DQN_KW,
    IMAGE,
    MIXED,
    PPO_KW,
    VECTOR,
    difference,
    envs,
    parameters,
    surviving,
    trained,
    with_micro_batch,
)
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable import buffers as maskable_buffers
from sb3_contrib.ppo_mask import ppo_mask
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.a2c import a2c
from stable_baselines3.common import buffers
from stable_baselines3.common.buffers import NStepReplayBuffer
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.vec_env import VecNormalize
from stable_baselines3.dqn import dqn
from stable_baselines3.ppo import ppo

import legroom
from legroom.backends.sb3.mirrored import PINNED, unknown_code
from legroom.backends.sb3.updates import in_pieces, update_of
from legroom.errors import BadInput

pytestmark = pytest.mark.filterwarnings("ignore:You have specified a mini-batch size")  # meant: the last one is short
LIMIT = 1e-6
TWO_CHOICES, BOX_ACTIONS = spaces.MultiDiscrete([3, 3]), spaces.Box(-1, 1, (2,), np.float32)


@pytest.fixture(autouse=True)
def one_thread():
    """Sums of several threads may differ from run to run."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pair(algorithm, micro_batch, make_env, timesteps, **kwargs):
    """Return SB3's model and the micro-batched one, trained alike, and whether they left NumPy's generator alike."""
    models, states = [], []
    for each in (algorithm, with_micro_batch(algorithm, micro_batch)):
        models.append(trained(each, make_env(), timesteps, **kwargs))
        states.append((np.random.get_state()[1:3], torch.get_rng_state()))
    (words, place), others = states[0][0], states[1]
    assert (words == others[0][0]).all()
    assert place == others[0][1]
    assert torch.equal(states[0][1], others[1])
    return models


def figures(model):
    """Return what the last update logged; how long things took is no such figure."""
    return {name: value for name, value in model.logger.name_to_value.items() if name.startswith("train/")}


@pytest.mark.parametrize(("micro_batch", "buffer"), [(3, "lean"), (8, "plain"), (19, "plain")])
def test_ppo_learns_what_sb3_learns(micro_batch, buffer):
    kwargs = PPO_KW | ({} if buffer == "plain" else {"rollout_buffer_class": legroom.LeanRolloutBuffer})
    sb3, ours = pair(PPO, micro_batch, envs, 32, **kwargs)
    assert 0 < difference(sb3, ours) <= LIMIT
    assert figures(ours) == pytest.approx(figures(sb3), rel=1e-4, abs=1e-6)
    assert list(figures(ours)) == list(figures(sb3))


@pytest.mark.parametrize(
    ("algorithm", "observation", "kwargs"),
    [
        (PPO, IMAGE, PPO_KW),
        (PPO, MIXED, PPO_KW | dict(rollout_buffer_class=legroom.LeanRolloutBuffer)),
        (MaskablePPO, IMAGE, PPO_KW),
        (DQN, IMAGE, DQN_KW | dict(replay_buffer_class=legroom.LeanReplayBuffer)),
    ],
    ids=["ppo", "ppo on dicts", "maskable", "dqn"],
)
def test_in_double_precision_only_the_last_digits_differ(algorithm, observation, kwargs):
    # single precision allows what a unit on the wrong side of zero does to a gradient; a wrong mean would still show
    sb3, ours = pair(algorithm, 3, lambda: envs(observation), 64, double=True, **kwargs)
    assert 0 < difference(sb3, ours) <= 1e-13


@pytest.mark.parametrize(
    ("action", "kwargs"),
    [
        (None, dict(clip_range_vf=0.1, ent_coef=0.02)),
        (None, dict(normalize_advantage=False, max_grad_norm=0.01)),
        (TWO_CHOICES, dict(ent_coef=0.1)),
        (BOX_ACTIONS, dict(ent_coef=0.01)),
        (BOX_ACTIONS, dict(use_sde=True)),
        (BOX_ACTIONS, dict(use_sde=True, ent_coef=0.01, policy_kwargs=dict(squash_output=True))),  # no entropy formula
        (None, dict(learning_rate=lambda left: 1e-3 * left, clip_range=lambda left: 0.1 + 0.2 * left)),
    ],
)
def test_all_of_ppos_settings_count(action, kwargs):
    sb3, ours = pair(PPO, 8, lambda: envs(action=action), 64, **PPO_KW | dict(n_epochs=3), **kwargs)
    assert 0 < difference(sb3, ours) <= LIMIT
    assert figures(ours) == pytest.approx(figures(sb3), rel=1e-4, abs=1e-6)


def test_early_stopping_comes_at_the_same_minibatch(capsys):
    kwargs = PPO_KW | dict(target_kl=2e-4, learning_rate=2e-3, verbose=1)
    sb3, ours = pair(PPO, 3, envs, 32, **kwargs)
    stops = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Early stopping")]
    assert len(stops) == 2
    assert stops[0] == stops[1]
    assert sb3._n_updates == ours._n_updates < 10
    assert difference(sb3, ours) <= LIMIT


@pytest.mark.parametrize(
    ("observation", "action", "kwargs"),
    [
        (VECTOR, None, dict(ent_coef=0.02)),
        (VECTOR, BOX_ACTIONS, dict(normalize_advantage=True, use_rms_prop=False)),
        (VECTOR, BOX_ACTIONS, dict(use_sde=True, policy_kwargs=dict(squash_output=True))),
        (MIXED, None, dict(rollout_buffer_class=legroom.LeanRolloutBuffer, max_grad_norm=0.01)),
    ],
    ids=["discrete", "normalized", "no entropy formula", "lean dict"],
)
def test_a2c_learns_what_sb3_learns(observation, action, kwargs):
    given = dict(n_steps=8, double=observation is MIXED) | kwargs
    sb3, ours = pair(A2C, 3, lambda: envs(observation, action), 64, **given)
    assert 0 < difference(sb3, ours) <= (1e-13 if observation is MIXED else LIMIT)
    assert figures(ours) == pytest.approx(figures(sb3), rel=1e-4, abs=1e-6)
    assert list(figures(ours)) == list(figures(sb3))
    whole = trained(surviving(A2C), envs(observation, action), 64, **given)
    assert torch.equal(parameters(sb3), parameters(whole))


@pytest.mark.parametrize(("algorithm", "kwargs"), [(PPO, PPO_KW), (MaskablePPO, PPO_KW), (DQN, DQN_KW)])
def test_pieces_as_large_as_the_minibatch_give_the_same_bits(algorithm, kwargs):
    sb3, ours = pair(algorithm, kwargs["batch_size"], envs, 32, **kwargs)
    assert torch.equal(parameters(sb3), parameters(ours))
    # through the mirrored update
    assert torch.equal(parameters(sb3), parameters(trained(surviving(algorithm), envs(), 32, **kwargs)))


@pytest.mark.parametrize(
    ("observation", "action", "buffer"),
    [
        (VECTOR, None, {}),
        (VECTOR, TWO_CHOICES, {}),
        (MIXED, None, {}),
        (VECTOR, None, {"rollout_buffer_class": legroom.LeanMaskableRolloutBuffer}),
        (MIXED, TWO_CHOICES, {"rollout_buffer_class": legroom.LeanMaskableRolloutBuffer}),
    ],
    ids=["vector", "two choices", "dict", "lean vector", "lean dict"],
)
def test_maskable_ppo(observation, action, buffer):
    sb3, ours = pair(MaskablePPO, 3, lambda: envs(observation, action), 32, **PPO_KW, ent_coef=0.01, **buffer)
    assert 0 < difference(sb3, ours) <= LIMIT
    assert figures(ours) == pytest.approx(figures(sb3), rel=1e-4, abs=1e-6)
    assert list(figures(ours)) == list(figures(sb3))


@pytest.mark.parametrize("micro_batch", [1, 3, 8])
@pytest.mark.parametrize("buffer", [{}, {"replay_buffer_class": legroom.LeanReplayBuffer}], ids=["plain", "lean"])
def test_dqn(micro_batch, buffer):
    sb3, ours = pair(DQN, micro_batch, lambda: envs(n_envs=3), 96, **DQN_KW, **buffer)
    assert difference(sb3, ours) <= LIMIT
    assert figures(ours) == pytest.approx(figures(sb3), rel=1e-4)
    assert sb3._n_updates == ours._n_updates > 4


@pytest.mark.parametrize(
    ("observation", "kwargs"),
    [
        (IMAGE, dict(replay_buffer_class=legroom.LeanReplayBuffer)),
        (IMAGE, dict(optimize_memory_usage=True, replay_buffer_kwargs=dict(handle_timeout_termination=False))),
        (MIXED, {}),
        (MIXED, dict(replay_buffer_class=legroom.LeanReplayBuffer)),
        (VECTOR, dict(replay_buffer_class=NStepReplayBuffer, replay_buffer_kwargs=dict(n_steps=3, gamma=0.9))),
    ],
    ids=["lean images", "shared observations", "dict", "lean dict", "n-step"],
)
def test_dqn_with_every_replay_buffer(observation, kwargs):
    sb3, ours = pair(DQN, 3, lambda: envs(observation, n_envs=1), 64, **DQN_KW, **kwargs)
    assert 0 < difference(sb3, ours) <= LIMIT


def test_dqn_with_normalized_observations_and_a_sampler_of_ones_own():
    def newest(buffer, batch_size):
        rows = np.arange(buffer.pos - batch_size, buffer.pos) % buffer.size()
        return rows, np.random.randint(0, buffer.n_envs, batch_size)

    buffer = dict(replay_buffer_class=legroom.LeanReplayBuffer, replay_buffer_kwargs=dict(sampler=newest))
    sb3, ours = pair(DQN, 3, lambda: VecNormalize(envs()), 96, **DQN_KW, **buffer)
    assert 0 < difference(sb3, ours) <= LIMIT


@pytest.mark.parametrize("algorithm", [PPO, DQN])
@pytest.mark.parametrize("lean", [False, True], ids=["plain", "lean"])
def test_no_more_than_a_micro_batch_of_observations_is_ever_made(algorithm, lean, monkeypatch):
    rollout, replay = legroom.LeanRolloutBuffer, legroom.LeanReplayBuffer
    name = "rollout_buffer_class" if algorithm is PPO else "replay_buffer_class"
    base = {(PPO, False): buffers.RolloutBuffer, (PPO, True): rollout, (DQN, False): buffers.ReplayBuffer}
    made = []

    class Counting(base.get((algorithm, lean), replay)):
        def to_torch(self, array, copy=True):
            made.append(array.shape)
            return super().to_torch(array, copy)

    kwargs = PPO_KW if algorithm is PPO else DQN_KW
    trained(with_micro_batch(algorithm, 6), envs(IMAGE), 32, **kwargs, **{name: Counting})
    images = [shape[0] for shape in made if len(shape) == 4]
    assert max(images) == 6
    assert images.count(6) > 10


def kept_for_backward(micro_batch, batch_size=64):
    """Return the most bytes autograd held at once in an update of NatureCNN."""
    live, peak = {}, [0]

    class Held:
        def __init__(self, tensor):
            self.tensor = tensor
            live[id(self)] = tensor.numel() * tensor.element_size()
            peak[0] = max(peak[0], sum(live.values()))

        def __del__(self):
            live.pop(id(self), None)

    model = with_micro_batch(PPO, micro_batch)(
        "CnnPolicy", envs(IMAGE), n_steps=32, batch_size=batch_size, n_epochs=1, device="cpu"
    )
    _, callback = model._setup_learn(64)
    model.collect_rollouts(model.env, callback, model.rollout_buffer, 32)
    weights = sum(p.numel() * p.element_size() for p in model.policy.parameters())
    with torch.autograd.graph.saved_tensors_hooks(Held, lambda held: held.tensor):
        model.train()
    return peak[0] - weights  # which autograd keeps, too


def test_activations_fall_with_the_micro_batch():
    whole, quarter, sixteenth = (kept_for_backward(size) for size in (64, 16, 4))
    assert quarter < 0.35 * whole
    assert sixteenth < 0.35 * quarter


def test_a_schedule_changes_the_size_at_its_update():
    seen = []

    class Watched(PPO):
        def _setup_model(self):
            super()._setup_model()
            original = self.policy.evaluate_actions
            self.policy.evaluate_actions = lambda obs, actions: seen.append(len(actions)) or original(obs, actions)

    kwargs = dict(n_steps=8, batch_size=16, n_epochs=1)
    trained(with_micro_batch(Watched, [[1, 8], [3, 5]]), envs(), 64, **kwargs)  # four rollouts of 16
    assert seen == [16, 8, 8, 8, 8, 5, 5, 5, 1]


def test_a_schedule_of_dqn_counts_gradient_steps():
    model = trained(with_micro_batch(DQN, [[0, 16], [3, 4]]), envs(), 38, **DQN_KW | {"learning_starts": 30})
    update = update_of(model)
    sizes, original = [], update._loss
    update._loss = lambda part: sizes.append(len(part.actions)) or original(part)
    model._n_updates = 1
    model.train(gradient_steps=4, batch_size=16)
    assert sizes == [16, 16, 4, 4, 4, 4, 4, 4, 4, 4]


# What is refused, in one line


class Normed(FlattenExtractor):
    def __init__(self, observation_space, layer):
        super().__init__(observation_space)
        self.layer = copy.deepcopy(layer)

    def forward(self, observations):
        return self.layer(super().forward(observations))


class Memory(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(5))

    def forward(self, x):
        self.mean.lerp_(x.detach().mean(0), 0.1)
        return x - self.mean


class Shaking(torch.nn.Module):
    def forward(self, x):
        return x + 0.1 * torch.randn_like(x) if self.training else x


@pytest.mark.parametrize("algorithm", [PPO, MaskablePPO, DQN])
@pytest.mark.parametrize(
    "layer", [torch.nn.BatchNorm1d(5), torch.nn.Dropout(0.1), torch.nn.Sequential(torch.nn.SyncBatchNorm(5))]
)
def test_layers_that_look_at_the_whole_batch_are_refused_when_the_model_is_built(algorithm, layer):
    inner = layer[0] if isinstance(layer, torch.nn.Sequential) else layer
    extractor = dict(features_extractor_class=Normed, features_extractor_kwargs=dict(layer=layer))
    with pytest.raises(BadInput, match=rf"{type(inner).__name__} \(.*features_extractor\.layer.*\)") as refused:
        with_micro_batch(algorithm, 4)("MlpPolicy", envs(), batch_size=16, device="cpu", policy_kwargs=extractor)
    assert "\n" not in str(refused.value)


class FixedNorm(torch.nn.BatchNorm1d):
    def train(self, mode=True):
        return super().train(False)


@pytest.mark.parametrize("layer", [torch.nn.LayerNorm(5), torch.nn.Dropout(0.0), FixedNorm(5).eval()])
def test_layers_that_do_not_are_taken(layer):
    extractor = dict(features_extractor_class=Normed, features_extractor_kwargs=dict(layer=layer))
    trained(with_micro_batch(PPO, 8), envs(), 48, policy_kwargs=extractor, **PPO_KW)


@pytest.mark.parametrize(
    ("layer", "reason"), [(Memory(), "changes the policy's buffer"), (Shaking(), "random numbers")]
)
@pytest.mark.parametrize(("algorithm", "kwargs"), [(PPO, PPO_KW), (DQN, DQN_KW)])
def test_what_cannot_be_told_from_the_layer_shows_before_anything_is_learned(algorithm, kwargs, layer, reason):
    extractor = dict(features_extractor_class=Normed, features_extractor_kwargs=dict(layer=layer))
    model = with_micro_batch(algorithm, 8)("MlpPolicy", envs(), device="cpu", policy_kwargs=extractor, **kwargs)
    weights = [p.clone() for p in model.policy.parameters()]
    with pytest.raises(BadInput, match=reason):
        model.learn(48)
    assert all(torch.equal(*both) for both in zip(weights, model.policy.parameters(), strict=True))


@pytest.mark.parametrize("algorithm", [SAC, TD3])
def test_other_algorithms_are_told_which_have_it(algorithm):
    model = algorithm("MlpPolicy", envs(action=BOX_ACTIONS), buffer_size=10, device="cpu")
    with pytest.raises(BadInput, match=rf"{algorithm.__name__} has no micro_batch: only PPO, MaskablePPO, A2C, DQN"):
        in_pieces(model, 8)


def test_an_update_of_ones_own_is_not_replaced():
    class Mine(PPO):
        def train(self):
            pass

    with pytest.raises(BadInput, match=r"Mine has a train\(\) of its own"):
        with_micro_batch(Mine, 8)("MlpPolicy", envs(), **PPO_KW)


def test_a_buffer_that_draws_in_its_own_way_is_refused_when_the_model_is_built():
    class Own(buffers.RolloutBuffer):
        def get(self, batch_size=None):
            yield from super().get(batch_size)

    with pytest.raises(BadInput, match=r"Own\.get\(\)"):
        with_micro_batch(PPO, 4)("MlpPolicy", envs(), rollout_buffer_class=Own, device="cpu", **PPO_KW)


@pytest.mark.parametrize("micro_batch", [0, -3, 2.5, "8", True, [], [[0]], [[0, 0]], [[3, 4], [1, 8]], [[-1, 4]]])
def test_sizes_that_make_no_sense_are_refused(micro_batch):
    with pytest.raises(BadInput, match="micro_batch is"):
        in_pieces(PPO("MlpPolicy", envs(), device="cpu", **PPO_KW), micro_batch)


# What it rests on


@pytest.mark.parametrize("high", [1, 2, 3, 7, 1000, 2**40])
def test_numpy_draws_the_same_numbers_in_parts(high):
    np.random.seed(3)
    at_once, after = np.random.randint(0, high=high, size=(100,)), np.random.random()
    np.random.seed(3)
    in_parts = [np.random.randint(0, high=high, size=(size,)) for size in (1, 7, 32, 60)]
    assert (np.concatenate(in_parts) == at_once).all()
    assert np.random.random() == after


MODULES = {
    "PPO": ppo, "A2C": a2c, "DQN": dqn, "MaskablePPO": ppo_mask,
    **dict.fromkeys(("MaskableRolloutBuffer", "MaskableDictRolloutBuffer"), maskable_buffers),
}  # fmt: skip


@pytest.mark.parametrize("name", PINNED)
def test_what_is_mirrored_has_not_changed(name):
    module = MODULES.get(name.partition(".")[0], buffers)
    assert not unknown_code(module, (name,)), (
        f"the library's {name} is not the one that our code mirrors: compare them line by line (random numbers, means "
        "over the minibatch, early stopping, what is logged), adapt, and pin it in backends/sb3/mirrored.py"
    )
