"""If these fail, the mine's network sees other numbers than it should, or checkpointing changes what is learned."""

import gymnasium
import numpy as np
import pytest
import torch

from legroom.workloads.mine.nets import SCALES, SIZES, Cnn3d

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
def test_checkpointing_gives_the_same_gradients_bit_for_bit(size):
    gradients = []
    for checkpointing in (False, True):
        net = build(size, checkpointing=checkpointing)
        net(observations()).square().sum().backward()
        gradients.append([parameter.grad for parameter in net.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
    assert all(gradient.abs().sum() > 0 for gradient in gradients[0][:2])


def kept_nbytes(net):
    """Return what autograd keeps of a forward pass, besides parameters and observations."""
    known = {parameter.data_ptr() for parameter in net.parameters()}
    raw, kept = observations(), {}

    def pack(tensor):
        if tensor.data_ptr() not in known | {raw.data_ptr()}:
            kept[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        features = net(raw)
    del features
    return sum(kept.values())


def test_checkpointing_keeps_less():
    assert kept_nbytes(build("full", checkpointing=True)) < 0.6 * kept_nbytes(build("full"))


def test_other_observations_are_taken_as_they_are():
    space = gymnasium.spaces.Box(0, 1, (4, 6, 6, 6), np.float32)
    net = Cnn3d(space, "tiny")
    batch = torch.rand(2, 4, 6, 6, 6)
    torch.testing.assert_close(net(batch), net.net(batch))


def test_an_unknown_size_is_said():
    with pytest.raises(ValueError, match="one of full, small, tiny"):
        build("huge")
