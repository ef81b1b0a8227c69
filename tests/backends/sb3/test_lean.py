"""If these fail, a probed prediction of lean storage adds up wrongly, or promises less than it may need."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legroom.backends.sb3.base_figures import BaseFigures
from legroom.backends.sb3.bill import lean
from legroom.backends.sb3.bill.lean import (
    count_episodes,
    episode_rates,
    lean_replay,
    lean_rollout,
)
from legroom.backends.sb3.bill.net_arithmetic import estimate_net
from legroom.backends.sb3.bill.network import network_items
from legroom.backends.sb3.stored import may_store_leanly, stores_leanly
from legroom.model.evidence import ColumnGrowth, Evidence, LeanProbe
from legroom.model.footprint import Known, Phase
from legroom.model.machine import Machine
from legroom.model.run import Run
from legroom.storing import budget, column, ring

PIXELS = {"type": "box", "shape": [84, 84, 1], "dtype": "uint8"}
NBYTES = 84 * 84
GROWTH = ColumnGrowth(
    item_nbytes=NBYTES, n_stack=1, first=1000, another=100, another_error=0, current=50, step=10, step_error=0,
    reset=500, reset_error=0,
)  # fmt: skip
PROBE = LeanProbe("rollout", {"": GROWTH}, steps=1000, episodes=0)
MACHINE = Machine(ram=1, limit=None, available=1, swap=0, shm=0)


def evidence(probe=None, device="cpu", net=None):
    return Evidence(MACHINE, device, BaseFigures(0, 0, 0, {}, Known.DEFAULT), net=net, lean=probe)


def make(algo="PPO", n_envs=4, memory="lean", env=None, policy="CnnPolicy", observation=PIXELS, **hyperparams):
    spaces = {"observation": observation, "action": {"type": "discrete", "n": 4}}
    return Run.model_validate(
        {
            "algo": algo,
            "env": {"spaces": spaces, "n_envs": n_envs, **(env or {})},
            "policy": {"name": policy},
            "hyperparams": hyperparams,
            "memory": {"rollout": memory, "replay": memory},
        }
    )


def test_it_mirrors_the_storage_it_predicts():
    assert column.PLAIN_UP_TO == lean.ROLLOUT_PLAIN_UP_TO
    assert ring.PLAIN_UP_TO == lean.REPLAY_PLAIN_UP_TO
    assert budget.LARGE == lean.HUGE_FROM
    mirrored = (lean.MOST_SEGMENTS, lean.FEWEST_SEGMENTS, lean.WORTH_OF_BEGINNING)
    assert mirrored == (ring.MOST_SEGMENTS, ring.FEWEST_SEGMENTS, ring.WORTH_OF_BEGINNING)
    assert budget.QUEUE_SHARE == lean.QUEUE_SHARE


def test_a_rollout_is_firsts_and_steps_and_episodes():
    run = make(n_envs=4, n_steps=101, env={"episode_steps": 50})
    found = lean_rollout(run, evidence(PROBE), "", NBYTES)
    numbers, first_ones, current, steps = 4 * 404, 1000 + 3 * 100, 4 * 50, 10 * 400
    episodes = 500 * 4 * 100 / 50  # 8 of them
    assert found.nbytes == numbers + first_ones + current + steps + episodes
    assert found.known is Known.MEASURED
    assert "10 B a step and 500 B more where an episode begins, as in 1,000 random steps" in found.why


def test_the_band_is_what_was_measured_badly():
    run = make(n_envs=4, n_steps=101, env={"episode_steps": 50})
    sure = lean_rollout(run, evidence(PROBE), "", NBYTES)
    growth = replace(GROWTH, step_error=20, reset_error=100, another_error=7)
    unsure = lean_rollout(run, evidence(replace(PROBE, columns={"": growth})), "", NBYTES)
    # a step of 10 bytes is never surer than ± 0.5
    wider = unsure.nbytes + unsure.error - sure.nbytes - sure.error
    assert wider == pytest.approx(19.5 * 404 + 100 * 8 + 4 * 7, abs=2)


def test_never_more_than_the_structure_allows():
    run = make(n_envs=2, n_steps=100)
    at_most = lean_rollout(run, evidence(), "", NBYTES)
    assert at_most.nbytes == int(200 * (NBYTES * 1.03 + 16) + 2 * NBYTES + 8192)
    assert (at_most.error, at_most.known) == (0, Known.ARITHMETIC)
    dear = replace(GROWTH, step=NBYTES, step_error=NBYTES, reset=10 * NBYTES)
    found = lean_rollout(run, evidence(replace(PROBE, columns={"": dear})), "", NBYTES)
    assert found.nbytes + found.error <= at_most.nbytes + 1


def test_a_probe_of_other_observations_is_not_used():
    stacked = make(env={"frame_stack": 4}, n_steps=100)
    assert lean_rollout(stacked, evidence(PROBE), "", 4 * NBYTES).known is Known.ARITHMETIC
    assert lean_rollout(make(n_steps=100), evidence(PROBE), "other", NBYTES).known is Known.ARITHMETIC
    replay = make("DQN", buffer_size=100)
    assert lean_replay(replay, evidence(PROBE), "", NBYTES, 25).known is Known.ARITHMETIC


def test_a_ring_begins_anew_with_every_segment():
    run = make("DQN", n_envs=1, buffer_size=1280, env={"episode_steps": 10_000_000})
    growth = replace(GROWTH, first=2000, step=1000, reset=0)
    probe = LeanProbe("replay", {"": growth}, steps=1000, episodes=0)
    found = lean_replay(run, evidence(probe), "", NBYTES, 1280)
    # a segment ends at 32 times its first row of 4096 bytes (a page): after 31 * 4096 / 1000 = 126 rows
    segments, rows = 1280 / 126 + 0.5, 1280 + 126 / 2
    assert found.nbytes == pytest.approx(4 * 1280 + segments * (2000 + 2048) + 50 + 1000 * rows, abs=2)
    half = lean_replay(run, evidence(probe), "", NBYTES, 640)  # a run that ends before the ring is full
    assert half.nbytes == pytest.approx(4 * 640 + (640 / 126 + 0.5) * (2000 + 2048) + 50 + 1000 * 640, abs=2)


def test_episodes_are_as_often_as_declared_seen_or_not_excluded():
    run = make(n_steps=1000)
    assert episode_rates(run, replace(PROBE, time_limit=2000)) == (1 / 2000, (1 / 2000 + 3 / 1000) / 2, 3 / 1000)
    assert episode_rates(run, replace(PROBE, time_limit=100)) == (1 / 100, 1 / 100, 1 / 100)
    assert episode_rates(run, PROBE) == (0, 1.5 / 1000, 3 / 1000)
    regular = replace(PROBE, episodes=9, episode_mean=100, episode_std=0)
    assert episode_rates(run, regular) == (0.01, 0.01, 0.01)
    by_chance = replace(PROBE, episodes=16, episode_mean=50, episode_std=50)
    assert episode_rates(run, by_chance) == (0.008, 0.016, 0.024)  # 16 ± 2 * 4
    declared = make(env={"episode_steps": 100})
    assert episode_rates(declared, by_chance) == (0.0075, 0.01, 0.0125)


def test_environments_that_began_together_end_together():
    regular = replace(PROBE, episodes=9, episode_mean=1000, episode_std=0)
    episodes = count_episodes(make(n_envs=8, n_steps=1501), regular, 1501)
    assert (episodes.low, episodes.expected, episodes.high) == (8, 12, 16)


@pytest.mark.parametrize(
    ("algo", "hyperparams", "lean_runs"),
    [("PPO", {}, True), ("RecurrentPPO", {}, False), ("ARS", {}, False), ("DQN", {}, True),
     ("SAC", {"replay_buffer_class": "stable_baselines3:HerReplayBuffer"}, False),
     ("PPO", {"rollout_buffer_class": "my.module:Buffer"}, False)],
)  # fmt: skip
def test_what_lean_storage_is_for(algo, hyperparams, lean_runs):
    assert may_store_leanly(make(algo, memory=None, **hyperparams)) is lean_runs


def test_a_run_that_gives_sb3_a_lean_class_is_lean():
    assert not stores_leanly(make(memory=None))
    assert stores_leanly(make(memory=None, rollout_buffer_class="legroom.backends.sb3.lean_rollout:LeanRolloutBuffer"))
    assert not stores_leanly(make(memory=None, rollout_buffer_class="my.LeanModule:Buffer"))


def network(algo, device="cpu", **settings):
    run = make(algo, policy="MlpPolicy", **settings)
    return {item.name: item for item in network_items(run, evidence(device=device, net=estimate_net(run, device)))}


def test_one_decoded_minibatch_more_but_no_copies():
    plain = network("PPO", memory="plain", n_steps=64, batch_size=32)
    found = network("PPO", n_steps=64, batch_size=32)
    assert "update.minibatch copies" not in found
    assert found["storage.decoded minibatch"].nbytes == 32 * NBYTES
    assert found["storage.decoded minibatch"].phases == (Phase.COLLECT, Phase.UPDATE, Phase.CHECKPOINT)
    assert found["storage.last minibatch"].phases == (Phase.COLLECT, Phase.CHECKPOINT)  # in the update it is its batch
    assert found["update.batch"] == plain["update.batch"]


def test_a_single_minibatch_is_let_go_before_the_next():
    assert "storage.decoded minibatch" not in network("A2C", n_steps=5)  # one of the whole rollout
    assert network("A2C", n_steps=5)["storage.last minibatch"].nbytes == 5 * 4 * NBYTES
    assert "storage.decoded minibatch" not in network("DQN", batch_size=32)
    found = network("DQN", batch_size=32, gradient_steps=2)
    assert found["storage.decoded minibatch"].nbytes == 2 * 32 * NBYTES  # observations and next observations


def test_for_a_gpu_they_wait_in_page_locked_memory():
    found = network("PPO", device="cuda", n_steps=64, batch_size=32)
    assert {name: item.nbytes for name, item in found.items()} == {"storage.decoded minibatches": 2 * 32 * NBYTES}


@given(
    step=st.floats(0, NBYTES), reset=st.floats(-1000, 10 * NBYTES), rows=st.integers(1, 5000), envs=st.integers(1, 8),
    episodes=st.integers(0, 50), kind=st.sampled_from(["PPO", "DQN"]),
)  # fmt: skip
def test_a_probed_run_never_needs_more_than_an_unprobed_one_may(step, reset, rows, envs, episodes, kind):
    growth = replace(GROWTH, step=step, step_error=step / 10, reset=reset, first=NBYTES, another=NBYTES)
    mean = {"episode_mean": 20.0, "episode_std": 5.0} if episodes else {}
    probe = LeanProbe("rollout" if kind == "PPO" else "replay", {"": growth}, 1000, episodes, **mean)
    if kind == "PPO":
        run = make("PPO", n_envs=envs, n_steps=rows)
        found, at_most = (lean_rollout(run, evidence(known), "", NBYTES) for known in (probe, None))
        assert found.nbytes + found.error <= at_most.nbytes + 2
    else:
        run = make("DQN", n_envs=envs, buffer_size=rows * envs)
        found = lean_replay(run, evidence(probe), "", NBYTES, rows)
    assert found.nbytes >= 0
    assert found.error >= 0
