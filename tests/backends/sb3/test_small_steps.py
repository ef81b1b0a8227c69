"""An optimizer's step in fewer calls: the same numbers to the last bit, and nothing about the optimizer changes."""

import pytest

torch = pytest.importorskip("torch")

from legroom.device import small_steps  # noqa: E402
from legroom.device.small_steps import make_step  # noqa: E402


def trained(step, kind, width=64, **options):
    torch.manual_seed(3)
    net = torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.Tanh(), torch.nn.Linear(width, 2))
    optimizer = kind(net.parameters(), lr=3e-4, eps=1e-5, **options)
    for _ in range(30):
        optimizer.zero_grad()
        net(torch.randn(16, 4)).square().mean().backward()
        step(optimizer)
    return net, optimizer


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.Adam, {}),
        (torch.optim.Adam, {"weight_decay": 0.01, "amsgrad": True}),
        (torch.optim.AdamW, {}),
        (torch.optim.RMSprop, {}),
    ],
)
def test_parameters_and_state_are_the_same_to_the_last_bit(kind, options):
    (net, optimizer), (other, plain) = (
        trained(make_step, kind, **options),
        trained(lambda each: each.step(), kind, **options),
    )
    assert all(torch.equal(one, two) for one, two in zip(net.parameters(), other.parameters(), strict=True))
    ours, theirs = optimizer.state_dict(), plain.state_dict()
    assert ours["param_groups"] == theirs["param_groups"]
    for one, two in zip(ours["state"].values(), theirs["state"].values(), strict=True):
        assert all(torch.equal(one[name], two[name]) for name in one)


def test_only_small_networks_are_stepped_at_once_since_it_takes_memory():
    seen = []

    def watch(optimizer):
        optimizer.register_step_pre_hook(lambda each, *rest: seen.append(each.param_groups[0]["foreach"]))
        make_step(optimizer)

    trained(watch, torch.optim.Adam)
    assert set(seen) == {True}
    seen.clear()
    trained(watch, torch.optim.Adam, width=small_steps.SMALL_BYTES // 16)
    assert set(seen) == {None}


def test_what_the_user_has_chosen_stays():
    _, optimizer = trained(make_step, torch.optim.Adam, foreach=False)
    assert optimizer.param_groups[0]["foreach"] is False


def test_a_step_that_fails_leaves_the_optimizer_as_it_was():
    _, optimizer = trained(make_step, torch.optim.Adam)

    def fail(each, *rest):
        raise RuntimeError("out of memory")

    optimizer.register_step_pre_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        make_step(optimizer)
    assert optimizer.param_groups[0]["foreach"] is None
