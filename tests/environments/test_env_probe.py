"""If these fail, `legroom predict` promises a size of lean storage that the environment does not keep."""

import time

import probe_envs
import pytest

from legroom.backends.sb3.stored import env_task
from legroom.environments.env_look import look_at_env
from legroom.model.run import EnvSpec, Run

PICTURE = probe_envs.PICTURE_NBYTES
OVERHEAD = 1.03  # what storing noise may cost beyond it


def look(name, algo="PPO", hyperparams=None, **env):
    run = Run(algo=algo, env=EnvSpec(id=f"probe_envs:{name}", **env), hyperparams=hyperparams or {})
    return look_at_env(run, env_task(run), trust=True)


def growth(name, **settings):
    found = look(name, **settings)
    assert not found.not_probed
    return found.probe.columns[""]


@pytest.mark.parametrize("algo", ["PPO", "DQN"])
def test_a_picture_that_stays_costs_itself_once(algo):
    found = growth("Pictures", algo=algo, n_envs=2)
    assert found.item_nbytes == PICTURE
    assert PICTURE <= found.first <= PICTURE + 800  # the store itself takes some hundred bytes
    assert found.another < 200  # the other environments show the same
    assert (found.step, found.step_error, found.reset) == (0, 0, 0)


@pytest.mark.parametrize("algo", ["PPO", "DQN"])
def test_a_new_picture_per_episode_costs_itself_per_episode(algo):
    found = look("NewPictures", algo=algo, n_envs=2)
    (column,) = found.probe.columns.values()
    assert (column.step, column.step_error) == (0, 0)
    assert PICTURE <= column.reset <= OVERHEAD * PICTURE
    assert PICTURE <= column.another <= OVERHEAD * PICTURE
    assert found.probe.episodes >= 1
    assert (found.probe.episode_mean, found.probe.episode_std) == (100, 0)


def test_noise_costs_itself_at_every_step():
    rollout, replay = growth("Noise", n_envs=2), growth("Noise", algo="DQN", n_envs=2)
    for found in (rollout, replay):
        assert PICTURE <= found.step <= OVERHEAD * PICTURE
        assert found.step_error < 0.01 * PICTURE
    assert abs(rollout.reset) < 100  # no more than any other step
    assert PICTURE <= replay.reset <= OVERHEAD * PICTURE  # the terminal observation comes on top


def test_of_a_frame_stack_each_frame_is_stored_once():
    found = growth("Noise", frame_stack=4)
    assert (found.item_nbytes, found.n_stack) == (4 * PICTURE, 4)
    assert PICTURE <= found.step <= OVERHEAD * PICTURE
    assert 4 * PICTURE <= found.first <= 4 * OVERHEAD * PICTURE + 1000  # from the midst of an episode


def test_what_normalization_moves_is_stored_anew_at_every_step():
    # one float32 per pixel, and all of them move with the running mean
    assert growth("Sprite", normalize=True).step > 2 * PICTURE
    assert growth("Sprite").step < PICTURE / 5


def test_parts_of_a_dict_are_measured_each_for_itself():
    columns = look("Mixed", n_envs=2).probe.columns
    assert columns.keys() == {"image", "vector"}  # the number is kept in a plain array
    assert columns["image"].step == 0
    assert 800 <= columns["vector"].step <= 850
    assert look("Mixed", algo="SAC").probe.columns.keys() == {"image", "vector"}


def test_allowed_actions_only():
    found = look("Picky", algo="MaskablePPO")
    assert not found.not_probed
    assert found.probe.steps > 0


def test_what_goes_wrong_in_a_step_is_a_remark():
    found = look("Fragile")
    assert found.probe is None
    assert found.not_probed == "stepping it raised: RuntimeError: the level has no exit"
    assert found.spaces.observation.shape == (84, 84, 1)
    assert found.nbytes is not None
    assert "killed by SIGSEGV" in look("Fragile", kwargs={"how": "crash"}).not_probed


def test_one_that_hangs_in_a_step_is_ended_and_all_else_is_known():
    began = time.monotonic()
    run = Run(algo="PPO", env=EnvSpec(id="probe_envs:Fragile", kwargs={"how": "hang"}))
    found = look_at_env(run, env_task(run), trust=True, probe_timeout_s=2)
    assert found.not_probed == "stepping it took too long"
    assert found.spaces.action.n == 4
    assert time.monotonic() - began < 30
