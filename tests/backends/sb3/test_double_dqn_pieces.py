"""If these fail, a DoubleDQN in pieces learns something else than whole, or forgets priorities where memory ran out."""

import numpy as np
import pytest
import torch
from dqn_cases import FAST, OpenCells, cells, parameters
from microbatch_cases import surviving, with_micro_batch

import legroom
from legroom.backends.sb3.updates import update_of

NO_MEMORY = "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 123 bytes."
CASES = {
    "sets": dict(policy=OpenCells, chosen=2),
    "lean": dict(policy="MlpPolicy", chosen=2, replay_buffer_class=legroom.LeanReplayBuffer),
    "one cell": dict(policy="MlpPolicy", chosen=1),
    "uniform": dict(policy="MlpPolicy", chosen=2, priority_alpha=0),
}


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """Sums of several threads may differ from run to run; collecting cycles takes long where as many objects live."""
    monkeypatch.setattr("legroom.device.redoing.gc.collect", lambda: 0)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def trained(algorithm, case, steps=80, double=True):
    settings = {"replay_buffer_class": None, **CASES[case]}
    policy, chosen = settings.pop("policy"), settings.pop("chosen")
    model = algorithm(policy, cells(chosen=chosen), **FAST | settings | dict(gradient_steps=3))
    if double:
        model.policy.double()
        for net in (model.q_net, model.q_net_target):
            net.features_extractor.register_forward_hook(lambda module, seen, shown: shown.double())
    return model.learn(steps)


def leaves(model):
    return np.zeros(0) if model.priorities is None else model.priorities.kept


@pytest.mark.parametrize(("case", "micro_batch"), [("sets", 1), *((case, 5) for case in CASES)])
def test_in_pieces_it_learns_what_it_learns_whole(case, micro_batch):
    whole = trained(legroom.DoubleDQN, case)
    pieces = trained(with_micro_batch(legroom.DoubleDQN, micro_batch), case)
    assert whole._n_updates == pieces._n_updates > 30
    assert (parameters(whole) - parameters(pieces)).abs().max() < 1e-12
    assert np.abs(leaves(whole) - leaves(pieces)).max(initial=0) < 1e-12
    loss = [model.logger.name_to_value["train/loss"] for model in (whole, pieces)]
    assert loss[0] == pytest.approx(loss[1], rel=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_a_minibatch_that_may_be_redone_has_the_bits_of_one_that_may_not(case):
    plain = trained(legroom.DoubleDQN, case, double=False)
    careful = trained(surviving(legroom.DoubleDQN), case, double=False)
    assert torch.equal(parameters(plain), parameters(careful))
    assert leaves(plain).tobytes() == leaves(careful).tobytes()


def failing(fails):
    """Return the algorithm in which memory runs out after the pieces of which `fails(number, size)` says so."""

    class Failing(legroom.DoubleDQN):
        passes = 0

        def _loss(self, part):
            loss = super()._loss(part)
            self.passes += 1
            if fails(self.passes, len(part.actions)):
                raise RuntimeError(NO_MEMORY)
            return loss

    return surviving(Failing)


@pytest.mark.parametrize("case", ["sets", "lean"])
def test_memory_that_runs_out_once_leaves_no_trace(case):
    plain = trained(legroom.DoubleDQN, case, double=False)
    redone = trained(failing(lambda number, size: number % 7 == 0), case, double=False)
    assert update_of(redone).micro_batch is None
    assert redone.passes > plain._n_updates
    assert torch.equal(parameters(plain), parameters(redone))
    assert leaves(plain).tobytes() == leaves(redone).tobytes()


def test_memory_for_half_a_minibatch_is_enough():
    whole = trained(legroom.DoubleDQN, "sets")
    halves = trained(failing(lambda number, size: size > 8), "sets")
    assert update_of(halves).micro_batch == [[0, 8]]
    assert (parameters(whole) - parameters(halves)).abs().max() < 1e-12
    assert np.abs(leaves(whole) - leaves(halves)).max() < 1e-12


def test_guarded_by_a_block_it_goes_on_as_well():
    plain, guarded = (legroom.DoubleDQN("MlpPolicy", cells(), **FAST) for _ in range(2))
    np.random.seed(1), torch.manual_seed(1), plain.env.seed(1), plain.learn(60)
    np.random.seed(1), torch.manual_seed(1), guarded.env.seed(1)
    with legroom.guard(guarded):
        guarded.learn(60)
    assert type(guarded) is legroom.DoubleDQN
    assert torch.equal(parameters(plain), parameters(guarded))
