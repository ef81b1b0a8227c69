"""If these fail, a training that ran out of memory in an update ends, or goes on with something else than it had."""

import gc
import random
import weakref

import numpy as np
import pytest
import torch
from gymnasium import spaces
from microbatch_cases import DQN_KW, IMAGE, MIXED, PPO_KW, VECTOR, envs, parameters, surviving, trained
from sb3_contrib import MaskablePPO
from stable_baselines3 import DQN, PPO

import legroom
from legroom.backends.sb3.updates import in_pieces, update_of
from legroom.device.exact_pieces import shrunk_from, size_at

pytestmark = pytest.mark.filterwarnings("ignore:You have specified a mini-batch size")
NO_MEMORY = "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 123 bytes."
LEAN_ROLLOUT = {"rollout_buffer_class": legroom.LeanRolloutBuffer}


@pytest.fixture(autouse=True)
def one_thread():
    """Sums of several threads may differ from run to run."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def no_collecting(monkeypatch, request):
    """Collecting cycles takes a third of a second where as many objects live as in pytest."""
    if "alive" not in request.node.name:
        monkeypatch.setattr("legroom.device.redoing.gc.collect", lambda: 0)


def failing(algorithm, fails, micro_batch=None, place="loss"):
    """Return what makes models in whose updates memory runs out where `fails(update, attempt, size)` says so.

    It happens after the pass of a piece (`loss`), or when all gradients are there already (`clip`).
    """

    def make(*args, **kwargs):
        model = algorithm(*args, **kwargs)
        model.tries, model.seen, model.retreats = {}, [], []
        update = in_pieces(model, micro_batch, on_retreat=model.retreats.append)
        attempt, add_gradients, loss_of = update.attempt, update.add_gradients, update._loss
        now = {}

        def numbered(parts, count, number, whole=None):
            now["update"] = number
            return attempt(parts, count, number, whole)

        def once(parts, count, whole, size):
            number = now["update"]
            tried = model.tries[number] = model.tries.get(number, -1) + 1
            model.seen.append((number, size))
            now["fails"] = fails(number, tried, size)
            np.random.random(), torch.rand(1), random.random()  # an attempt that fails may have drawn numbers
            result = add_gradients(parts, count, whole, size)
            if now["fails"]:
                raise RuntimeError(NO_MEMORY)
            return result

        def loss(*args):
            result = loss_of(*args)
            if place == "loss" and now["fails"]:
                raise RuntimeError(NO_MEMORY)
            return result

        update.attempt, update.add_gradients, update._loss = numbered, once, loss
        return model

    return make


def undisturbed(algorithm, micro_batch=None):
    return failing(algorithm, lambda update, tried, size: False, micro_batch)


CASES = {
    "ppo": (PPO, VECTOR, PPO_KW | dict(n_epochs=4)),
    "ppo lean images": (PPO, IMAGE, PPO_KW | dict(n_epochs=4) | LEAN_ROLLOUT),
    "ppo early stop": (PPO, VECTOR, PPO_KW | dict(target_kl=2e-4, learning_rate=2e-3)),
    "maskable": (MaskablePPO, MIXED, PPO_KW | dict(n_epochs=4)),
    "dqn": (DQN, VECTOR, DQN_KW),
    "dqn lean": (DQN, IMAGE, DQN_KW | dict(replay_buffer_class=legroom.LeanReplayBuffer)),
}


@pytest.mark.parametrize("case", CASES)
def test_whole_minibatches_that_may_be_redone_give_sb3s_bits(case):
    algorithm, observation, kwargs = CASES[case]
    sb3 = trained(algorithm, envs(observation), 64, **kwargs)
    state = np.random.get_state()[1].tobytes(), torch.get_rng_state()
    ours = trained(surviving(algorithm), envs(observation), 64, **kwargs)
    assert torch.equal(parameters(sb3), parameters(ours))
    assert state[0] == np.random.get_state()[1].tobytes()
    assert torch.equal(state[1], torch.get_rng_state())
    assert sb3._n_updates == ours._n_updates


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("place", ["loss", "clip"])
def test_a_redo_of_the_same_size_leaves_no_trace(case, place):
    algorithm, observation, kwargs = CASES[case]
    plain = trained(undisturbed(algorithm), envs(observation), 64, **kwargs)
    every_third = failing(algorithm, lambda update, tried, size: update % 3 == 2 and not tried, place=place)
    redone = trained(every_third, envs(observation), 64, **kwargs)
    assert len(redone.retreats) >= 3
    assert update_of(redone).micro_batch is None
    assert torch.equal(parameters(plain), parameters(redone))


@pytest.mark.parametrize("case", CASES)
def test_smaller_pieces_give_the_bits_of_their_schedule(case):
    algorithm, observation, kwargs = CASES[case]
    whole = kwargs["batch_size"]
    failed_twice = failing(algorithm, lambda update, tried, size: update == 3 and tried < 2)
    redone = trained(failed_twice, envs(observation), 64, **kwargs)
    short = 12 if "n_epochs" in kwargs else whole  # update 3 is the second of its epoch, of 12 samples
    assert update_of(redone).micro_batch == [[0, whole], [3, short // 2]]
    assert [(each.size_before, each.size) for each in redone.retreats] == [(short, short), (short, short // 2)]
    repeated = trained(undisturbed(algorithm, update_of(redone).micro_batch), envs(observation), 64, **kwargs)
    assert torch.equal(parameters(redone), parameters(repeated))
    assert not repeated.retreats
    if case == "ppo":  # elsewhere sums may happen to be rounded alike
        plain = trained(undisturbed(algorithm), envs(observation), 64, **kwargs)
        assert not torch.equal(parameters(redone), parameters(plain))


@pytest.mark.parametrize("k", [1, 2, 7])
@pytest.mark.parametrize("algorithm", [PPO, DQN])
def test_failures_at_every_kth_update(algorithm, k):
    kwargs = PPO_KW | dict(n_epochs=3) if algorithm is PPO else DQN_KW
    plain = trained(undisturbed(algorithm), envs(), 64, **kwargs)
    fails = failing(algorithm, lambda update, tried, size: update % k == 0 and not tried)
    redone = trained(fails, envs(), 64, **kwargs)
    assert len(redone.retreats) == -(-len(plain.tries) // k)
    # A shortage that comes back in the very next minibatch is no passing one: pieces shrink, down to single samples.
    sizes = {each.size for each in redone.retreats}
    if k == 1:
        assert min(sizes) == 1
        plain = trained(undisturbed(algorithm, update_of(redone).micro_batch), envs(), 64, **kwargs)
    else:
        assert update_of(redone).micro_batch is None
    assert torch.equal(parameters(plain), parameters(redone))


def test_when_single_samples_do_not_fit_either_the_failure_is_the_librarys_own():
    always = failing(PPO, lambda update, tried, size: update == 4)
    with pytest.raises(RuntimeError, match="DefaultCPUAllocator"):
        trained(always, envs(), 64, **PPO_KW)


def test_pieces_shrink_until_they_fit_and_stay_small():
    model = trained(failing(PPO, lambda update, tried, size: update >= 2 and size > 3), envs(), 64, **PPO_KW)
    assert update_of(model).micro_batch == [[0, 20], [2, 2]]
    assert {size for update, size in model.seen if update > 2} == {2}


def test_other_failures_are_not_touched():
    def broken(*args, **kwargs):
        model = surviving(PPO)(*args, **kwargs)

        def loss(*args):
            raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

        update_of(model)._loss = loss
        return model

    with pytest.raises(RuntimeError, match="shapes cannot"):
        trained(broken, envs(), 64, **PPO_KW)


def test_a_failure_in_the_optimizers_step_is_not_answered():
    class Step(PPO):
        def _setup_model(self):
            super()._setup_model()
            self.policy.optimizer.step = self.no_memory

        def no_memory(self):
            raise torch.OutOfMemoryError("CUDA out of memory.")

    with pytest.raises(torch.OutOfMemoryError):
        trained(surviving(Step), envs(), 64, **PPO_KW)


def test_nothing_of_the_failed_attempt_is_alive_when_it_is_made_again():
    alive, heard = [], []

    def leaving(*args, **kwargs):
        model = failing(PPO, lambda update, tried, size: update == 1 and tried < 2)(*args, **kwargs)
        update = update_of(model)
        loss_of = update._loss

        def loss(part, advantages):
            activations = part.observations * 2  # what a frame of the traceback holds
            alive.append(weakref.ref(activations))
            return loss_of(part, advantages)

        def on_retreat(retreat):
            heard.append(retreat)
            assert alive[-1]() is None
            assert all(parameter.grad is None for parameter in model.policy.parameters())

        update._loss, update.on_retreat = loss, on_retreat
        return model

    gc.disable()  # so that only the retreat itself can have collected anything
    try:
        trained(leaving, envs(), 64, **PPO_KW)
    finally:
        gc.enable()
    assert len(heard) == 2


@pytest.mark.parametrize(
    ("kind", "space", "action", "kwargs"),
    [
        (PPO, IMAGE, None, PPO_KW),
        (PPO, VECTOR, spaces.Box(-1, 1, (2,)), PPO_KW),
        (MaskablePPO, VECTOR, spaces.MultiDiscrete([3, 3]), PPO_KW),
        (DQN, IMAGE, None, DQN_KW),
    ],
)
def test_no_activation_of_the_failed_pass_is_alive_when_it_is_made_again(kind, space, action, kwargs, monkeypatch):
    """A policy keeps its last distribution, and that knows how it was computed: all of the network would stay."""
    kept, failed = [], []
    original = torch.Tensor.backward

    class Saved:
        """What a graph keeps for its backward pass."""

        def __init__(self, tensor):
            self.tensor = tensor.detach()  # one with a history would keep itself alive
            kept.append(weakref.ref(self))

    def backward(tensor, *args, **kwargs):
        if not failed:
            failed.append(True)
            raise RuntimeError(NO_MEMORY)
        return original(tensor, *args, **kwargs)

    def none_is_left(retreat):
        assert kept and not any(each() for each in kept)

    def leaving(*args, **kwargs):
        model = kind(*args, **kwargs)
        in_pieces(model, on_retreat=none_is_left)
        return model

    monkeypatch.setattr(torch.Tensor, "backward", backward)
    with torch.autograd.graph.saved_tensors_hooks(Saved, lambda saved: saved.tensor):
        trained(leaving, envs(space, action), 64, **kwargs)
    assert failed


class Counting(torch.nn.BatchNorm1d):
    """Keeps means of what passed through it: a second pass would count twice."""


def test_a_network_that_remembers_is_not_run_twice_on_the_same_minibatch():
    from stable_baselines3.common.torch_layers import FlattenExtractor

    class Normed(FlattenExtractor):
        def __init__(self, observation_space):
            super().__init__(observation_space)
            self.layer = Counting(5)

        def forward(self, observations):
            return self.layer(super().forward(observations))

    once = failing(PPO, lambda update, tried, size: update == 2 and not tried)
    with pytest.raises(RuntimeError, match="DefaultCPUAllocator"):
        trained(once, envs(), 64, policy_kwargs=dict(features_extractor_class=Normed), **PPO_KW)
    kwargs = dict(policy_kwargs=dict(features_extractor_class=Normed), **PPO_KW)
    plain, ours = (trained(each, envs(), 64, **kwargs) for each in (PPO, surviving(PPO)))
    assert torch.equal(parameters(plain), parameters(ours))


@pytest.mark.parametrize(
    ("given", "update", "size", "schedule"),
    [
        (None, 17, 32, [[0, 64], [17, 32]]),
        (None, 0, 32, [[0, 32]]),
        (48, 5, 24, [[0, 48], [5, 24]]),
        ([[0, 64], [17, 32]], 40, 16, [[0, 64], [17, 32], [40, 16]]),
        ([[0, 64], [17, 32]], 17, 16, [[0, 64], [17, 16]]),
        ([[3, 8]], 1, 4, [[1, 4]]),  # it is not to grow again
        ([[0, 64], [100, 8]], 17, 32, [[0, 64], [17, 32], [100, 8]]),
    ],
)
def test_the_schedule_that_comes_of_a_retreat(given, update, size, schedule):
    found = shrunk_from(given, update, size, 64)
    assert found == schedule
    assert size_at(found, update) == size
    assert [size_at(found, each) for each in range(update)] == [size_at(given, each) or size_at(found, each)
                                                                for each in range(update)]  # fmt: skip
