"""If these fail, a replay buffer that fills up hours later takes its user by surprise."""

from legroom.backends.sb3.base_figures import BaseFigures
from legroom.backends.sb3.bill.checkpoint import checkpoint_items
from legroom.backends.sb3.bill.replay import replay_items
from legroom.model.evidence import Evidence
from legroom.model.footprint import Known, Phase
from legroom.model.machine import Machine
from legroom.model.run import Run

PIXELS = {"type": "box", "shape": [84, 84, 4], "dtype": "uint8"}
VECTOR = {"type": "box", "shape": [376]}
EVIDENCE = Evidence(
    Machine(ram=1, limit=None, available=1, swap=0, shm=0), "cpu", BaseFigures(0, 0, 0, {}, Known.DEFAULT)
)


def make(algo, observation, action, *, steps=None, memory=None, checkpoint=None, n_envs=1, **hyperparams):
    return Run.model_validate(
        {
            "algo": algo,
            "env": {"spaces": {"observation": observation, "action": action}, "n_envs": n_envs},
            "hyperparams": hyperparams,
            "total_timesteps": steps,
            "memory": memory or {},
            "checkpoint": checkpoint,
        }
    )


def items(*args, **kwargs):
    return {item.name: item for item in replay_items(make(*args, **kwargs), EVIDENCE)}


def test_atari_of_a_million_transitions():
    found = items("DQN", PIXELS, {"type": "discrete", "n": 6}, buffer_size=1_000_000)
    frame = 84 * 84 * 4
    assert found["replay.observations"].nbytes == found["replay.next_observations"].nbytes == 1_000_000 * frame
    assert found["replay.actions"].nbytes == 8_000_000  # int64
    assert [found[f"replay.{name}"].nbytes for name in ("rewards", "dones", "timeouts")] == [4_000_000] * 3
    assert "when full" in found["replay.observations"].why


def test_it_is_small_at_the_start():
    found = items("DQN", PIXELS, {"type": "discrete", "n": 6}, buffer_size=1_000_000, n_envs=2)
    first = found["replay.at start"]
    assert first.phases == (Phase.START,)
    assert first.nbytes == 2 * (2 * 84 * 84 * 4 + 8 + 3 * 4)
    assert Phase.START not in found["replay.observations"].phases


def test_rows_are_whole():
    found = items("SAC", VECTOR, {"type": "box", "shape": [6]}, buffer_size=1_000_000, n_envs=3)
    assert found["replay.rewards"].nbytes == 999_999 * 4
    found = items("SAC", VECTOR, {"type": "box", "shape": [6]}, buffer_size=10, n_envs=64)
    assert found["replay.rewards"].nbytes == 64 * 4


def test_a_run_that_ends_early_fills_only_a_part():
    found = items("SAC", VECTOR, {"type": "box", "shape": [6]}, buffer_size=1_000_000, n_envs=3, steps=1_000)
    assert found["replay.observations"].nbytes == 334 * 3 * 376 * 4  # 1000 / 3 steps, rounded up
    assert "ends after 334 of 333,333 rows" in found["replay.observations"].why


def test_float64_actions_are_kept_as_float32():
    found = items("SAC", VECTOR, {"type": "box", "shape": [6], "dtype": "float64"}, buffer_size=1000)
    assert found["replay.actions"].nbytes == 1000 * 6 * 4


def test_sharing_observations_halves_them():
    found = items("SAC", VECTOR, {"type": "box", "shape": [6]}, buffer_size=1000, optimize_memory_usage=True)
    assert "replay.next_observations" not in found


def test_lean_replay_shares_the_next_observation():
    found = items("SAC", VECTOR, {"type": "box", "shape": [6]}, buffer_size=1000, memory={"replay": "lean"})
    assert "replay.next_observations" not in found
    # segments of 64 rows: one more than the ring needs, and 17 stores; each row with its number and version
    assert found["replay.observations"].nbytes == int(1064 * (376 * 4 * 1.03 + 16) + 376 * 4 + 17 * 8192)
    assert found["replay.actions"].nbytes == 1000 * 6 * 4
    assert [found[f"replay.{name}"].nbytes for name in ("rewards", "dones, timeouts")] == [4000, 1000]


def test_lean_replay_keeps_small_observations_plainly():
    vector = {"type": "box", "shape": [6]}  # 24 bytes
    found = items("SAC", vector, {"type": "box", "shape": [1]}, buffer_size=1000, memory={"replay": "lean"})
    assert found["replay.observations"].nbytes == found["replay.next_observations"].nbytes == 24_000


def test_pickling_a_replay_buffer_copies_its_largest_array_in_full():
    run = make("DQN", PIXELS, {"type": "discrete", "n": 6}, steps=100, buffer_size=10_000,
               checkpoint={"replay_buffer": True})  # fmt: skip
    found = {item.name: item for item in checkpoint_items(run, EVIDENCE)}
    assert found["checkpoint.replay buffer"].nbytes == 10_000 * 84 * 84 * 4
    assert found["checkpoint.replay buffer"].phases == (Phase.CHECKPOINT,)


def test_pickling_a_lean_replay_buffer_takes_what_it_stores_once_more():
    run = make("DQN", PIXELS, {"type": "discrete", "n": 6}, steps=100, buffer_size=10_000,
               checkpoint={"replay_buffer": True}, memory={"replay": "lean"})  # fmt: skip
    stored = {item.name: item for item in replay_items(run, EVIDENCE)}["replay.observations"].nbytes
    found = {item.name: item for item in checkpoint_items(run, EVIDENCE)}
    assert found["checkpoint.replay buffer"].nbytes == stored < 10_000 * 84 * 84 * 4
