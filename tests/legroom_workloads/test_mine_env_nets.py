"""If these fail, the mine's network sees other numbers than it should, or checkpointing changes what is learned."""

import gymnasium
import numpy as np
import pytest
import torch

from legroom_workloads.mine.nets import SCALES, SIZES, Cnn3d

SHAPE = (17, 9, 8, 7)


def observations(count=3):
    """Return raw observations: every channel of the size that its scale is for."""
    rng = np.random.default_rng(0)
    large = 1 / np.array(list(SCALES.values())).reshape(17, 1, 1, 1)
    return torch.tensor((rng.random((count, *SHAPE)) * large).astype(np.float32))


def build(size, **kwargs):
    torch.manual_seed(0)
    return Cnn3d(gymnasium.spaces.Box(0, np.inf, SHAPE, np.float32), size, **kwargs)


@pytest.mark.parametrize("size", SIZES)
def test_it_computes_what_scaled_observations_would_give(size):
    net, raw = build(size), observations()
    scaled = raw * torch.tensor(list(SCALES.values())).reshape(1, 17, 1, 1, 1)
    torch.testing.assert_close(net(raw), net.net(scaled), rtol=1e-4, atol=1e-6)
    assert net(raw).shape == (3, SIZES[size].features)


def test_weights_are_the_only_state():
    assert sorted(build("tiny").state_dict()) == [
        "net.0.bias", "net.0.weight", "net.2.bias", "net.2.weight", "net.6.bias", "net.6.weight"
    ]  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
def test_checkpointing_gives_the_same_gradients(size):
    features, gradients = [], []
    for checkpointing in (False, True):
        net = build(size, checkpointing=checkpointing).double()  # float32 would show the order of sums, by processor
        features.append(net(observations(10).double()))
        features[-1].square().sum().backward()
        gradients.append([parameter.grad for parameter in net.parameters()])
    torch.testing.assert_close(*features, rtol=1e-12, atol=1e-12)
    for plain, again in zip(*gradients, strict=True):
        assert (plain - again).norm() <= 1e-12 * plain.norm()
        assert plain.norm() > 0
