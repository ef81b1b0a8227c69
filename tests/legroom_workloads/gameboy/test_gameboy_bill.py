"""If these fail, the analysis of the original's numbers is wrong, other from a module of constants, or endless."""

import pytest

from legroom.backends.base import backend_of
from legroom.model.machine import Machine
from legroom.model.verdict import Budget, fits
from legroom.predicting.predict import add_up, gather_all
from legroom.reading import read
from legroom.rendering.prediction_text import Prediction
from legroom.units import GIB

MACHINE = Machine(32 * GIB, None, 32 * GIB, 0, GIB, cores=8, versions={"stable-baselines3": "2.9.2"})
BUDGET = Budget(32 * GIB, 16 * GIB, ram_origin="given", vram_origin="given")
CONSTANTS = """\
'''What a fighter's training is made of.'''
import os

ROM_PATH = os.path.join("roms", "fighter.gb")
STATE_PATH = os.path.join("roms", "first_round.state")
HEADLESS = True
FRAME_SKIP = 4

# collecting
NUM_ENVS = 2
EP_LENGTH = 8192
FRAME_STACK_SIZE = 4

# learning
BATCH_SIZE = 2048
N_EPOCHS = 10
TOTAL_TIMESTEPS = 10_000_000

# keeping
SAVE_FREQ = EP_LENGTH * 10
SAVE_REPLAY_BUFFER = True
"""


@pytest.fixture
def constants(tmp_path):
    path = tmp_path / "my_constants.py"
    path.write_text(CONSTANTS)
    return path


def bill(target, device="cpu", **options):
    """Return the prediction of a run by arithmetic alone, as `legroom predict --mode arithmetic` makes it."""
    ((run, evidence),) = gather_all([read(str(target), **options)], MACHINE, mode="arithmetic", device=device)
    footprint = add_up(run, evidence)
    free = add_up(backend_of(run).fitter.with_free_savings(run, evidence), evidence)
    return Prediction(run, footprint, free, BUDGET, fits(footprint, BUDGET))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_module_of_constants_has_the_bill_of_the_named_run(constants, device):
    named, written = bill("gameboy:default", device), bill(constants, device, like="gameboy:default")
    others = [
        {item.name: item for item in each.footprint.items if not item.name.startswith("runtime.")}
        for each in (named, written)
    ]
    assert others[0] == others[1]
    # a script imports torch's compiler; legroom train does not, and has modules of its own instead
    runtime = [
        sum(item.nbytes for item in each.footprint.items if item.name.startswith("runtime."))
        for each in (named, written)
    ]
    assert named.footprint.host.nbytes - written.footprint.host.nbytes == runtime[0] - runtime[1] < 0
    assert written.footprint.gpu == named.footprint.gpu
    assert written.run.hyperparams == named.run.hyperparams
    assert written.run.checkpoint.every == named.run.checkpoint.every == 163_840  # ten iterations of both
    told = {finding.name for finding in written.footprint.findings} - {f.name for f in named.footprint.findings}
    assert told == {"no-effect"}  # the replay buffer to save, which the named run does not ask for


def test_the_rollout_is_what_the_arrays_take():
    items = {item.name: item.nbytes for item in bill("gameboy:default").footprint.items}
    observation = 144 * 160 * 3 * 4
    assert items["rollout.observations"] == 8192 * 2 * observation == 4_529_848_320  # 4.22 GiB
    assert items["rollout.flatten copy"] == pytest.approx(items["rollout.observations"], rel=0.001)  # 8.44 together


def test_the_fitted_run_learns_the_same_in_a_quarter_of_the_memory():
    default, fitted = bill("gameboy:default"), bill("gameboy:fitted")
    for part in ("algo", "policy", "hyperparams", "seed"):
        assert getattr(fitted.run, part) == getattr(default.run, part)
    for part in ("id", "kwargs", "n_envs", "frame_stack", "spaces"):
        assert getattr(fitted.run.env, part) == getattr(default.run.env, part)
    assert fitted.run.total_timesteps == 611 * 16_384
    assert fitted.footprint.host.high < 4 * GIB < default.footprint.host.nbytes / 2
    on_gpu, fitted_on_gpu = (bill(name, "cuda").footprint.gpu for name in ("gameboy:default", "gameboy:fitted"))
    assert fitted_on_gpu.high < 4 * GIB < on_gpu.low
    stored = {item.name: item.nbytes for item in fitted.footprint.items}["rollout.observations"]
    assert stored == 300_000_000
