"""Replay buffers in checkpoints: only new rows are written, and what is read back is sampled to the bit as before."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3 import HerReplayBuffer
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer

from legroom.backends.sb3 import segments
from legroom.backends.sb3.lean_replay import LeanReplayBuffer
from legroom.backends.sb3.replay_state import capture_replay, prepare_replay
from legroom.errors import BadInput
from legroom.training.checkpoint import Checkpoints

N_ENVS, SIZE = 2, 20  # rows of the ring
VECTOR = spaces.Box(-1, 1, (3,), np.float32)
PICTURE = spaces.Box(0, 255, (8, 8), np.uint8)
STACK = spaces.Box(0, 255, (4, 8, 8), np.uint8)
BOTH = spaces.Dict({"a picture/with a name": PICTURE, "b": VECTOR})
KINDS: dict[str, Any] = {
    "plain": (ReplayBuffer, VECTOR, {}),
    "one array": (ReplayBuffer, PICTURE, {"optimize_memory_usage": True, "handle_timeout_termination": False}),
    "dict": (DictReplayBuffer, BOTH, {}),
    "n steps": (NStepReplayBuffer, VECTOR, {"n_steps": 3}),
    "lean": (LeanReplayBuffer, PICTURE, {}),
    "lean stack": (LeanReplayBuffer, STACK, {}),
    "lean small": (LeanReplayBuffer, VECTOR, {}),
    "lean dict": (LeanReplayBuffer, BOTH, {}),
    "lean n steps": (LeanReplayBuffer, PICTURE, {"n_steps": 3}),
    "lean on disk": (LeanReplayBuffer, PICTURE, {"max_bytes": 100}),
}


class Filler:
    """A model as far as replay goes, and what fills its buffer: the same rows for the same numbers."""

    def __init__(self, kind: str, size: int = SIZE) -> None:
        make, self.space, more = KINDS[kind]
        buffer = make(size * N_ENVS, self.space, spaces.Discrete(4), device="cpu", n_envs=N_ENVS, **more)
        self.model: Any = SimpleNamespace(replay_buffer=buffer, num_timesteps=0)
        self.random = np.random.default_rng(0)
        self.last: Any = None
        self.last = self._observe()

    def _observe(self) -> Any:
        if self.space is STACK:  # found out to be one after some rows, which are stored anew then
            before = np.zeros((N_ENVS, 4, 8, 8), np.uint8) if self.last is None else self.last[:, 1:]
            return np.concatenate([before[:, -3:], self.random.integers(0, 255, (N_ENVS, 1, 8, 8), np.uint8)], axis=1)
        parts = self.space.spaces if isinstance(self.space, spaces.Dict) else {"": self.space}
        seen = {
            key: (self.random.random((N_ENVS, *part.shape)) * 200).astype(part.dtype) if part is PICTURE
            else self.random.random((N_ENVS, *part.shape)).astype(part.dtype)
            for key, part in parts.items()
        }  # fmt: skip
        return seen if isinstance(self.space, spaces.Dict) else seen[""]

    def add(self, rows: int) -> Filler:
        for _ in range(rows):
            following, done = self._observe(), self.random.random(N_ENVS) < 0.2
            actions = self.random.integers(0, 4, (N_ENVS, 1))
            infos = [{"TimeLimit.truncated": bool(flag)} for flag in self.random.random(N_ENVS) < 0.5]
            self.model.replay_buffer.add(self.last, following, actions, self.random.random(N_ENVS), done, infos)
            self.last = None if done.any() else following
            self.last = following if self.last is not None else self._observe()
            self.model.num_timesteps += N_ENVS
        return self

    def write(self, checkpoints: Checkpoints) -> Path:
        arrays: dict[str, np.ndarray] = {}
        previous = checkpoints.latest()
        replay = capture_replay(self.model, previous, arrays)
        assert replay.why_not_exact == ""
        step = self.model.num_timesteps
        return checkpoints.write(step, arrays, {"replay": replay.data}, link=replay.link, files=replay.files)


def sampled(model: Any) -> list[np.ndarray]:
    """Return what the buffer would hand out, everything several times over."""
    np.random.seed(5)
    found = []
    for part in model.replay_buffer.sample(400):
        values = part.values() if isinstance(part, dict) else [] if part is None else [part]
        found += [value.numpy().copy() for value in values]
    return found


def same(one: Any, other: Any) -> bool:
    pair = list(zip(sampled(one), sampled(other), strict=True))
    state = [(each.replay_buffer.pos, each.replay_buffer.full) for each in (one, other)]
    return state[0] == state[1] and all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in pair)


def read(kind: str, checkpoints: Checkpoints) -> Any:
    fresh = Filler(kind)
    checkpoint = checkpoints.latest()
    take_over, lost = prepare_replay(fresh.model, checkpoint)
    take_over()
    assert lost == ""
    return fresh.model


@pytest.mark.parametrize("worth_linking", [0, 1 << 20])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_read_back_is_sampled_as_before(tmp_path: Path, kind: str, worth_linking: int, monkeypatch) -> None:
    monkeypatch.setattr(segments, "WORTH_LINKING", worth_linking)
    filler, checkpoints = Filler(kind), Checkpoints(tmp_path)
    # empty, part of the ring, nothing new, up to its end, round it, much of it, exactly all of it, more than that
    for rows in (0, 7, 0, 13, 9, 17, SIZE, SIZE + 5, 3):
        filler.add(rows).write(checkpoints)
        if filler.model.num_timesteps:
            resumed = read(kind, checkpoints)
            assert same(filler.model, resumed), f"after {filler.model.num_timesteps // N_ENVS} rows"
            # going on from there stores the same, with the same files still of use
            ahead = Filler(kind)
            ahead.model, ahead.random, ahead.last = resumed, np.random.default_rng(1), filler.last
            twin = Filler(kind)
            twin.model, twin.random, twin.last = read(kind, checkpoints), np.random.default_rng(1), filler.last
            assert same(ahead.add(4).model, twin.add(4).model)


def test_a_checkpoint_writes_the_new_rows_and_links_the_others(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(segments, "WORTH_LINKING", 0)
    filler, checkpoints = Filler("plain"), Checkpoints(tmp_path, keep=2)
    first = filler.add(6).write(checkpoints)
    second = filler.add(5).write(checkpoints)
    names = ["replay-rows-000000000000-000000000006.bin", "replay-rows-000000000006-000000000011.bin"]
    assert rows_in(first) == names[:1]
    assert rows_in(second) == names
    assert (second / names[0]).samefile(first / names[0])
    row = N_ENVS * (3 * 4 + 3 * 4 + 8 + 4 + 4 + 4)  # two observations, an action, reward, done, timeout
    assert (second / names[1]).stat().st_size == 5 * row
    # rows 11..24: the ring of 20 has passed over rows 0..4 but not over row 5, so its segment stays
    assert rows_in(filler.add(14).write(checkpoints)) == [*names, "replay-rows-000000000011-000000000025.bin"]
    assert rows_in(filler.add(1).write(checkpoints))[0] == names[1]  # and now it is gone


def rows_in(path: Path) -> list[str]:
    return sorted(each.name for each in path.glob("replay-rows-*"))


def test_small_segments_are_written_again_together_rather_than_as_thousands_of_files(tmp_path: Path) -> None:
    filler, checkpoints = Filler("plain"), Checkpoints(tmp_path)
    for _ in range(12):
        path = filler.add(1).write(checkpoints)
    assert rows_in(path) == ["replay-rows-000000000000-000000000012.bin"]


def test_lean_observations_are_written_once_when_their_store_is_full(tmp_path: Path) -> None:
    filler, checkpoints = Filler("lean"), Checkpoints(tmp_path)
    first = filler.add(15).write(checkpoints)
    second = filler.add(2).write(checkpoints)
    stores = [sorted(path.glob("replay-store-*")) for path in (first, second)]
    sealed = stores[0][:-1]
    assert len(sealed) >= 3
    for path in sealed:
        assert (second / path.name).samefile(path)


def test_lean_replay_takes_its_own_size_on_disk_not_that_of_the_plain_one(tmp_path: Path) -> None:
    size = 400
    buffer = LeanReplayBuffer(size, spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.Discrete(4), device="cpu")
    frames = np.zeros((1, 4, 84, 84), np.uint8)
    for step in range(size):
        following = np.roll(frames, -1, axis=1)
        following[0, 3] = 0
        following[0, 3, step % 80 : step % 80 + 4, 40:44] = 255
        buffer.add(frames, following, np.zeros((1, 1)), np.zeros(1), np.zeros(1, bool), [{}])
        frames = following
    model: Any = SimpleNamespace(replay_buffer=buffer, num_timesteps=size)
    replay = capture_replay(model, None, {})
    path = Checkpoints(tmp_path).write(size, {}, {"replay": replay.data}, files=replay.files)
    on_disk = sum(each.stat().st_size for each in path.iterdir())
    assert on_disk < size * 2 * 4 * 84 * 84 / 50


def test_a_damaged_segment_is_found(tmp_path: Path) -> None:
    for kind, pattern in (("plain", "replay-rows-*"), ("lean", "replay-store-*")):
        checkpoints = Checkpoints(tmp_path / kind)
        path = Filler(kind).add(9).write(checkpoints)
        victim = next(path.glob(pattern))
        content = bytearray(victim.read_bytes())
        content[-1] ^= 1
        victim.write_bytes(content)
        assert checkpoints.latest() is None
        assert victim.name in checkpoints.damaged[0][1]


def test_a_buffer_that_was_cleared_or_is_another_one_is_written_anew(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(segments, "WORTH_LINKING", 0)
    for kind in ("plain", "lean"):
        filler, checkpoints = Filler(kind), Checkpoints(tmp_path / kind)
        filler.add(12).write(checkpoints)
        filler.model.replay_buffer.reset()
        filler.add(15).write(checkpoints)
        assert same(filler.model, read(kind, checkpoints))
        other = Filler(kind).add(3)
        other.model.num_timesteps = 1000
        other.add(9).write(checkpoints)
        assert same(other.model, read(kind, checkpoints))


def test_flags_that_are_neither_yes_nor_no_come_back(tmp_path: Path) -> None:
    filler, checkpoints = Filler("lean"), Checkpoints(tmp_path)
    filler.add(3).write(checkpoints)
    filler.model.replay_buffer.dones[1] = 0.5
    filler.add(3).write(checkpoints)
    assert same(filler.model, read("lean", checkpoints))


# what a retreat turns in the middle of a run: from which buffer to which, of the same observations
CONVERSIONS = (
    ("plain", "lean small"), ("dict", "lean dict"), ("n steps", "lean small n steps"), ("plain picture", "lean"),
    ("plain stack", "lean stack"), ("plain picture", "lean on disk"), ("lean", "lean on disk"),
)  # fmt: skip
KINDS |= {
    "plain picture": (ReplayBuffer, PICTURE, {}),
    "plain stack": (ReplayBuffer, STACK, {}),
    "lean small n steps": (LeanReplayBuffer, VECTOR, {"n_steps": 3}),
}


@pytest.mark.parametrize("rows", [1, 7, SIZE, SIZE + 9, 3 * SIZE + 4])
@pytest.mark.parametrize(("one", "other"), [*CONVERSIONS, *((b, a) for a, b in CONVERSIONS)])
def test_what_one_storage_wrote_the_other_samples_to_the_bit(tmp_path: Path, one: str, other: str, rows: int) -> None:
    filler, checkpoints = Filler(one), Checkpoints(tmp_path)
    filler.add(rows).write(checkpoints)
    converted = Filler(other)
    converted.model, converted.last = read(other, checkpoints), filler.last
    assert same(filler.model, converted.model)
    # both go on alike, and what the other one writes is read by itself and by the first again
    filler.random, converted.random = (np.random.default_rng(1) for _ in range(2))
    converted.model.num_timesteps = filler.model.num_timesteps
    assert same(filler.add(6).model, converted.add(6).model)
    converted.write(checkpoints)
    assert same(filler.model, read(other, checkpoints))
    assert same(filler.model, read(one, checkpoints))


def test_a_row_of_one_array_is_followed_by_the_next_one(tmp_path: Path) -> None:
    for rows in (7, SIZE + 9):
        filler, checkpoints = Filler("one array"), Checkpoints(tmp_path / str(rows))
        filler.add(rows).write(checkpoints)
        other = Filler("lean").model
        take_over, lost = prepare_replay(other, checkpoints.latest())
        take_over()
        assert "optimize_memory_usage" in lost  # which draws other samples
        buffer, lean = filler.model.replay_buffer, other.replay_buffer
        kept = np.arange(min(rows, SIZE))
        following = np.roll(buffer.observations, -1, axis=0)
        assert np.array_equal(lean.observations[kept], buffer.observations[kept])
        assert np.array_equal(lean.next_observations[kept], following[kept])


@pytest.mark.parametrize("kind", ["plain", "lean", "lean dict", "dict"])
@pytest.mark.parametrize("rows", [4, 9, SIZE, SIZE + 9])
def test_a_smaller_buffer_keeps_the_newest_rows(tmp_path: Path, kind: str, rows: int) -> None:
    filler, checkpoints = Filler(kind), Checkpoints(tmp_path)
    filler.add(rows).write(checkpoints)
    smaller, kept = Filler(kind, 8), min(rows, 8)
    take_over, lost = prepare_replay(smaller.model, checkpoints.latest())
    take_over()
    assert lost == "the replay buffer had 20 rows, and has 8"
    ours, theirs = smaller.model.replay_buffer, filler.model.replay_buffer
    newest = np.arange(rows - kept, rows) % SIZE
    assert np.array_equal(ours.rewards[:kept], theirs.rewards[newest])
    for mine, other in ((ours.observations, theirs.observations), (ours.next_observations, theirs.next_observations)):
        for key in mine if isinstance(mine, dict) else [None]:
            pair = (mine, other) if key is None else (mine[key], other[key])
            assert np.array_equal(pair[0][np.arange(kept)], pair[1][newest])
    assert (ours.pos, ours.full) == (kept % 8, kept == 8)
    smaller.last, smaller.model.num_timesteps = filler.last, filler.model.num_timesteps
    smaller.add(11).write(checkpoints)
    assert same(smaller.model, resumed_as(Filler(kind, 8).model, checkpoints))


def resumed_as(model: Any, checkpoints: Checkpoints) -> Any:
    prepare_replay(model, checkpoints.latest())[0]()
    return model


def test_fewer_environments_keep_theirs_and_more_are_refused(tmp_path: Path) -> None:
    filler, checkpoints = Filler("plain"), Checkpoints(tmp_path)
    filler.add(9).write(checkpoints)
    one, three = (ReplayBuffer(SIZE * N_ENVS, VECTOR, spaces.Discrete(4), n_envs=n) for n in (1, 3))
    model: Any = SimpleNamespace(replay_buffer=one, num_timesteps=0)
    take_over, lost = prepare_replay(model, checkpoints.latest())
    take_over()
    assert lost == "the replay buffer had 2 environments, and has 1"
    assert np.array_equal(one.observations[:9, 0], filler.model.replay_buffer.observations[:9, 0])
    with pytest.raises(BadInput, match="its replay has environments 2, this one has 3"):
        prepare_replay(SimpleNamespace(replay_buffer=three), checkpoints.latest())  # type: ignore[arg-type]


def test_another_kind_of_transition_is_refused(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    Filler("plain").add(3).write(checkpoints)
    with pytest.raises(BadInput, match="belongs to another run: its replay has next_observations"):
        prepare_replay(Filler("plain picture").model, checkpoints.latest())


class Prioritized(ReplayBuffer):
    """Somebody's buffer with something more to remember."""


def test_buffers_that_remember_more_are_named() -> None:
    def why(buffer: Any) -> str:
        return capture_replay(SimpleNamespace(replay_buffer=buffer, num_timesteps=0), None, {}).why_not_exact  # type: ignore[arg-type]

    action = spaces.Discrete(4)
    assert why(ReplayBuffer(10, VECTOR, action)) == ""
    assert "Prioritized" in why(Prioritized(10, VECTOR, action))
    assert "sampler" in why(LeanReplayBuffer(10, VECTOR, action, sampler=lambda buffer, n: np.zeros(n, int)))
    goals = spaces.Dict(dict.fromkeys(("observation", "achieved_goal", "desired_goal"), VECTOR))
    her = HerReplayBuffer(10, goals, action, env=SimpleNamespace())  # type: ignore[arg-type]
    assert "HerReplayBuffer" in why(her)
