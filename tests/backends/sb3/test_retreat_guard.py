"""If these fail, a script that uses legroom.guard or legroom.survive dies of a shortage, or learns something else."""

import logging
from typing import NamedTuple

import numpy as np
import pytest
import torch
from microbatch_cases import DQN_KW, PPO_KW, envs, parameters
from sb3_contrib import TRPO
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.utils import set_random_seed
from torch import nn
from torch.nn import functional

import legroom
from legroom.errors import BadInput

pytestmark = pytest.mark.filterwarnings("ignore:You have specified a mini-batch size")
NO_MEMORY = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 123 bytes."


def short_of_memory(model, at, times):
    """Let the model's networks fail in a training pass, so often, from that call on."""
    network, calls = (model.policy.action_net if hasattr(model.policy, "action_net") else model.q_net), [0]

    def hook(module, arguments, result):
        if torch.is_grad_enabled():
            calls[0] += 1
            if at <= calls[0] < at + times:
                raise RuntimeError(NO_MEMORY)

    return network.register_forward_hook(hook)


def made(algorithm, **kwargs):
    return algorithm("MlpPolicy", envs(), seed=7, device="cpu", policy_kwargs=dict(net_arch=[16, 16]), **kwargs)


@pytest.mark.parametrize(("algorithm", "kwargs"), [(PPO, PPO_KW), (A2C, dict(n_steps=4)), (DQN, DQN_KW)])
def test_a_guarded_model_learns_the_same_and_is_afterwards_what_it_was(algorithm, kwargs, caplog):
    kwargs = kwargs | (dict(n_epochs=3) if algorithm is PPO else {})
    plain = made(algorithm, **kwargs).learn(64)
    model = made(algorithm, **kwargs)
    attributes, kind = set(vars(model)), type(model)
    hook = short_of_memory(model, at=5, times=1)
    with legroom.guard(model) as guarded, caplog.at_level(logging.WARNING, "legroom"):
        assert isinstance(model, algorithm)
        model.learn(64)
    hook.remove()
    assert torch.equal(parameters(plain), parameters(model))
    assert [(each.update, each.size == each.size_before) for each in guarded.retreats] == [(4, True)]
    assert guarded.micro_batch is None
    assert "DefaultCPUAllocator" in caplog.text
    assert type(model) is kind
    assert set(vars(model)) - attributes <= set(vars(plain))
    for each in (plain, model):  # unguarded again
        set_random_seed(1)
        each.learn(32, reset_num_timesteps=False)
    assert torch.equal(parameters(plain), parameters(model))


def test_the_schedule_of_a_guard_repeats_the_run():
    models = []
    for schedule in (None, [[0, 20], [4, 10]]):
        model = made(PPO, **PPO_KW | dict(n_epochs=3))
        hook = short_of_memory(model, at=5, times=2) if schedule is None else None
        with legroom.guard(model, micro_batch=schedule) as guarded:
            model.learn(64)
        if hook is not None:
            hook.remove()
            assert [(each.size_before, each.size) for each in guarded.retreats] == [(20, 20), (20, 10)]
        assert guarded.micro_batch == [[0, 20], [4, 10]]
        models.append(model)
    assert torch.equal(parameters(models[0]), parameters(models[1]))


def test_a_guarded_model_can_be_saved(tmp_path):
    model = made(PPO, **PPO_KW | dict(n_epochs=1))
    with legroom.guard(model):
        model.learn(32)
        model.save(tmp_path / "model.zip")
    assert torch.equal(parameters(PPO.load(tmp_path / "model.zip", device="cpu")), parameters(model))


def test_an_algorithm_that_cannot_be_redone_says_what_helps():
    model = made(TRPO, n_steps=8, batch_size=16)
    hook = short_of_memory(model, at=2, times=9)
    with pytest.raises(RuntimeError, match="DefaultCPUAllocator") as failed, legroom.guard(model):
        model.learn(64)
    hook.remove()
    assert "TRPO cannot be done again safely" in failed.value.__notes__[0]
    with pytest.raises(BadInput, match="TRPO has no micro_batch"), legroom.guard(model, micro_batch=4):
        pass


def test_what_fails_with_single_samples_too_comes_through_and_the_model_is_whole():
    model = made(PPO, **PPO_KW)
    hook = short_of_memory(model, at=3, times=1000)
    with pytest.raises(RuntimeError, match="DefaultCPUAllocator") as failed, legroom.guard(model) as guarded:
        model.learn(64)
    hook.remove()
    assert "legroom.lean" in failed.value.__notes__[0]
    assert guarded.retreats[-1].size == 1
    assert type(model) is PPO


def test_a_guard_is_for_sb3_models():
    with pytest.raises(BadInput, match="not Linear"):
        legroom.guard(nn.Linear(2, 2))


# a loop of one's own


class Batch(NamedTuple):
    x: torch.Tensor
    y: np.ndarray
    name: str


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1)).double()


def batch_of(n):
    generator = np.random.default_rng(5)
    return Batch(torch.from_numpy(generator.normal(size=(n, 6))), generator.normal(size=(n, 1)), "one")


def gradients(net):
    return torch.cat([parameter.grad.flatten() for parameter in net.parameters()])


def loss_and_failures(net, fails=lambda call, samples: False):
    calls = []

    def loss_of(batch, scale=1.0):
        calls.append(len(batch.x))
        loss = functional.mse_loss(net(batch.x), torch.from_numpy(batch.y)) * scale
        if fails(len(calls), len(batch.x)):
            raise RuntimeError(NO_MEMORY)
        return loss

    return loss_of, calls


def test_gradients_in_pieces_are_those_of_the_whole_batch():
    net, batch = network(), batch_of(50)
    plain, _ = loss_and_failures(net)
    plain(batch, scale=2.0).backward()
    expected, loss = gradients(net), plain(batch, scale=2.0).item()
    net.zero_grad()
    short, calls = loss_and_failures(net, lambda call, samples: samples > 12)
    surviving = legroom.survive()(short)
    found = surviving(batch, scale=2.0)
    assert calls == [50, 50, 25, 12, 12, 12, 12, 2]
    assert surviving.micro_batch == 12
    assert [each.size for each in surviving.retreats] == [50, 25, 12]
    assert found.item() == pytest.approx(loss, rel=1e-12)
    assert (gradients(net) - expected).norm() / expected.norm() < 1e-12
    assert surviving.__name__ == "loss_of"


def test_gradients_that_were_there_are_added_to_and_come_back_when_nothing_fits():
    net, batch = network(), batch_of(8)
    plain, _ = loss_and_failures(net)
    for _ in range(2):
        plain(batch).backward()
    twice = gradients(net)
    net.zero_grad()
    surviving = legroom.survive()(plain)
    surviving(batch)
    surviving(batch)
    assert torch.equal(gradients(net), twice)  # all fitted at once: to the bit
    never, _ = loss_and_failures(net, lambda call, samples: True)
    with pytest.raises(RuntimeError, match="DefaultCPUAllocator"):
        legroom.survive(micro_batch=4)(never)(batch)
    assert torch.equal(gradients(net), twice)


def test_a_failure_after_some_pieces_takes_their_gradients_back():
    net, batch = network(), batch_of(12)
    plain, _ = loss_and_failures(net)
    in_thirds = legroom.survive(micro_batch=4)(plain)
    in_thirds(batch)
    expected = gradients(net)
    net.zero_grad()
    third, calls = loss_and_failures(net, lambda call, samples: call == 3)
    again = legroom.survive(micro_batch=4)(third)
    again(batch)
    assert calls == [4, 4, 4, 4, 4, 4]
    assert torch.equal(gradients(net), expected)


def test_a_redo_draws_the_same_random_numbers():
    net, x = network(), torch.ones(10, 6, dtype=torch.float64)
    found = []
    for fails_at in (None, 1):
        calls = []

        @legroom.survive()
        def loss_of(x, fails_at=fails_at, calls=calls):
            calls.append(1)
            loss = net(functional.dropout(x, 0.5)).mean()
            if len(calls) == fails_at:
                raise MemoryError
            return loss

        torch.manual_seed(1)
        net.zero_grad()
        loss_of(x)
        found.append((gradients(net), torch.rand(1)))
    assert torch.equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


@pytest.mark.parametrize("batch", [{}, {"x": torch.ones(3), "y": torch.ones(4)}, torch.ones(0, 2), torch.tensor(1.0)])
def test_a_batch_without_a_number_of_samples_is_refused(batch):
    with pytest.raises(BadInput, match="samples"):
        legroom.survive()(lambda batch: torch.zeros(()))(batch)


def test_what_is_no_loss_and_no_size_is_refused():
    with pytest.raises(BadInput, match="scalar loss"):
        legroom.survive()(lambda batch: batch.mean())(torch.ones(4))
    with pytest.raises(BadInput, match=r"@legroom\.survive\(\)"):
        legroom.survive(lambda batch: batch.mean())
    with pytest.raises(BadInput, match="micro_batch is 0"):
        legroom.survive(micro_batch=0)


def test_the_examples_in_the_documentation_run():
    from legroom.backends.sb3 import guard
    from legroom.device import survive

    net = nn.Linear(3, 1)
    batches = [{"x": torch.rand(9, 3), "y": torch.rand(9, 1)} for _ in range(3)]
    scope = {"legroom": legroom, "functional": functional, "net": net, "batches": batches,
             "optimizer": torch.optim.SGD(net.parameters(), 0.1), "print": lambda *text: None}  # fmt: skip
    before = net.weight.clone()
    exec(example(survive), scope)
    assert not torch.equal(before, net.weight)

    def small(policy, env, batch_size, device):
        return PPO("MlpPolicy", env, n_steps=16, batch_size=8, n_epochs=1)

    scope = {"legroom": legroom, "env": envs(), "print": lambda *text: None, "PPO": small}
    exec(example(guard).replace("1_000_000", "32"), scope)
    assert scope["model"].num_timesteps == 32


def example(module):
    """Return the first indented block of the module's docstring."""
    lines = module.__doc__.split("\n\n")[1:]
    return "\n".join(line[4:] for block in lines for line in ["", *block.splitlines()]
                     if line.startswith("    ") or not line)  # fmt: skip
