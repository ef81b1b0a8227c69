"""Gradients clipped and steps made in fewer calls: the same numbers to the last bit, and nothing else changes."""

import copy

import pytest

torch = pytest.importorskip("torch")

from legroom.device import small_steps  # noqa: E402
from legroom.device.small_steps import clip_gradients, make_step  # noqa: E402


def theirs(optimizer, parameters):
    torch.nn.utils.clip_grad_norm_(parameters, 0.5)
    optimizer.step()


def ours(optimizer, parameters):
    clip_gradients(optimizer, parameters, 0.5)
    make_step(optimizer)


def trained(step, kind, width=64, meanwhile=lambda count, net, optimizer: None, **options):
    torch.manual_seed(3)
    net = torch.nn.Sequential(
        torch.nn.Linear(4, width), torch.nn.Tanh(), torch.nn.Linear(width, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)
    )
    optimizer = kind(net.parameters(), **{"lr": 3e-4, "eps": 1e-5} | options)
    for count in range(30):
        meanwhile(count, net, optimizer)
        optimizer.zero_grad()
        (10 * net(torch.randn(16, 4))).square().mean().backward()
        step(optimizer, net.parameters())
    return net, optimizer


def assert_same(one, other):
    (net, optimizer), (like, plain) = one, other
    pairs = zip(net.parameters(), like.parameters(), strict=True)
    assert all(torch.equal(one, two) and torch.equal(one.grad, two.grad) for one, two in pairs)
    mine, expected = optimizer.state_dict(), plain.state_dict()
    assert mine["param_groups"] == expected["param_groups"]
    for one, two in zip(mine["state"].values(), expected["state"].values(), strict=True):
        assert list(one) == list(two)
        assert all(torch.equal(one[name], two[name]) for name in one)


def steps_of_its_own(monkeypatch, kind, **options):
    """Return how many of 30 steps the optimizer was asked to make by itself."""
    asked, own = [], kind.step
    monkeypatch.setattr(kind, "step", lambda self, *rest: (asked.append(self), own(self, *rest))[1])
    _, optimizer = trained(ours, kind, **options)
    return sum(each is optimizer for each in asked)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.Adam, {}),
        (torch.optim.Adam, {"betas": (0.5, 0.9), "lr": 0.1}),
        (torch.optim.Adam, {"weight_decay": 0.01}),
        (torch.optim.Adam, {"weight_decay": 0.01, "amsgrad": True}),
        (torch.optim.AdamW, {}),
        (torch.optim.RMSprop, {}),
    ],
)
def test_parameters_and_state_are_the_same_to_the_last_bit(kind, options):
    assert_same(trained(ours, kind, **options), trained(theirs, kind, **options))


def test_it_stays_the_same_where_a_learning_rate_falls_a_layer_rests_or_a_state_is_loaded():
    def meanwhile(count, net, optimizer):
        optimizer.param_groups[0]["lr"] = 1e-3 / (count + 1)
        net[0].requires_grad_(count % 7 != 3)  # from then on its parameters are a step behind the others
        if count == 20:
            optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))

    results = [trained(each, torch.optim.Adam, meanwhile=meanwhile) for each in (ours, theirs)]
    for net, _ in results:
        net[0].requires_grad_(True)
    assert_same(*results)


def test_only_small_networks_are_stepped_at_once_since_it_takes_memory(monkeypatch):
    assert steps_of_its_own(monkeypatch, torch.optim.Adam) == 1  # the first, which makes its state
    assert steps_of_its_own(monkeypatch, torch.optim.Adam, width=small_steps.SMALL_BYTES // 16) == 30


def test_what_the_user_has_chosen_stays(monkeypatch):
    assert steps_of_its_own(monkeypatch, torch.optim.Adam, foreach=False) == 30


def test_who_watches_steps_sees_all_of_them():
    seen, schedules = [], []

    def meanwhile(count, net, optimizer):
        if not count:
            optimizer.register_step_post_hook(lambda *rest: seen.append(1))

    def scheduled(count, net, optimizer):
        if not count:
            schedules.append(torch.optim.lr_scheduler.StepLR(optimizer, 5))
        elif not count % 2:
            schedules[-1].step()  # warns where no step was made before it

    trained(ours, torch.optim.Adam, meanwhile=meanwhile)
    assert len(seen) == 30
    assert_same(*(trained(each, torch.optim.Adam, meanwhile=scheduled) for each in (ours, theirs)))
