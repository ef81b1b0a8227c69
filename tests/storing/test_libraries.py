"""Lean storage behind the buffers of torchrl and Tianshou: what comes back is what their own storages give back.

Both packages are optional; `make test-extras` installs them.
"""

import doctest

import numpy as np
import pytest
import torch

pytestmark = pytest.mark.extras


def frames(count: int, seed: int = 0) -> np.ndarray:
    """A dot that moves over a picture of 24 by 24."""
    rng = np.random.default_rng(seed)
    scene = rng.integers(0, 255, (24, 24), np.uint8)
    made = np.repeat(scene[None], count, 0)
    made[np.arange(count), np.arange(count) % 24, np.arange(count) // 24 % 24] = 255
    return made


def steps(count: int, seed: int = 0):
    tensordict = pytest.importorskip("tensordict")
    pixels = torch.from_numpy(frames(count + 1, seed))
    following = {"pixels": pixels[1:], "reward": torch.arange(count, dtype=torch.float32)[:, None],
                 "done": torch.zeros(count, 1, dtype=torch.bool)}  # fmt: skip
    state = torch.randn(count, 40, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16)
    content = {"pixels": pixels[:-1], "action": torch.arange(count), "state": state, "next": following}
    return tensordict.TensorDict(content, batch_size=[count])


@pytest.mark.parametrize("sizes", [[10], [7, 8, 30, 3], [100, 100]])
def test_torchrl_buffers_sample_the_same(sizes):
    torchrl_data = pytest.importorskip("torchrl.data")
    from legroom.torchrl import LeanStorage

    found = []
    for storage in (torchrl_data.LazyTensorStorage(64), LeanStorage(64)):
        buffer = torchrl_data.TensorDictReplayBuffer(storage=storage, batch_size=16)
        for seed, size in enumerate(sizes):
            buffer.extend(steps(size, seed)[-64:])
        buffer.add(steps(3)[1])
        torch.manual_seed(5)
        found.append(([buffer.sample() for _ in range(4)], buffer[:], buffer[3], len(buffer)))
    (plain, plain_all, plain_one, plain_length), (lean, lean_all, lean_one, lean_length) = found
    assert plain_length == lean_length
    assert all((one == other).all() for one, other in zip(plain, lean, strict=True))
    assert (plain_all == lean_all).all() and (plain_one == lean_one).all()
    assert lean_all["state"].dtype == torch.bfloat16


def test_torchrl_masks_are_of_what_is_there():
    pytest.importorskip("torchrl.data")
    from legroom.torchrl import LeanStorage

    storage = LeanStorage(50)
    storage.set(range(20), steps(20))
    assert torch.equal(storage.get(torch.arange(20) % 5 == 4)["action"], torch.tensor([4, 9, 14, 19]))
    with pytest.raises(IndexError):
        storage.get(torch.ones(50, dtype=torch.bool))


def test_torchrl_next_pixels_cost_nothing():
    pytest.importorskip("torchrl.data")
    from legroom.torchrl import LeanStorage

    storage = LeanStorage(2000)
    storage.set(range(2000), steps(2000).select("pixels", ("next", "pixels")))
    assert storage.nbytes < 2 * 2000 * 24 * 24 / 8
    assert storage[1999]["next", "pixels"].shape == (24, 24)


def test_torchrl_storage_is_saved_and_loaded(tmp_path):
    pytest.importorskip("torchrl.data")
    from legroom.errors import BadInput
    from legroom.torchrl import LeanStorage

    storage = LeanStorage(50)
    storage.set(torch.arange(20), steps(20))
    storage.dumps(tmp_path / "saved")
    loaded = LeanStorage(50)
    loaded.loads(tmp_path / "saved")
    assert len(loaded) == 20 and (loaded[:] == storage[:]).all()
    loaded.set(range(20, 30), steps(10, seed=3))
    assert len(loaded) == 30
    with pytest.raises(BadInput, match="cannot be read"):
        loaded.loads(tmp_path / "missing")
    with pytest.raises(BadInput, match="another shape"):
        loaded.set(30, steps(1)[0].exclude("action"))


def test_torchrl_storage_holds_tensors_too():
    pytest.importorskip("torchrl.data")
    from legroom.torchrl import LeanStorage

    storage, pixels = LeanStorage(30), torch.from_numpy(frames(30))
    storage.set(range(30), pixels)
    assert torch.equal(storage.get([3, 29]), pixels[[3, 29]]) and torch.equal(storage[-1], pixels[-1])


@pytest.mark.parametrize("n_envs", [0, 3])
@pytest.mark.parametrize("stack_num", [1, 4])
def test_tianshou_buffers_sample_the_same(n_envs, stack_num):
    tianshou_data = pytest.importorskip("tianshou.data")
    from legroom import tianshou as lean

    made = frames(301)
    if n_envs:
        buffers = [cls(120, n_envs, stack_num=stack_num) for cls in
                   (tianshou_data.VectorReplayBuffer, lean.LeanVectorReplayBuffer)]  # fmt: skip
    else:
        buffers = [cls(120, stack_num=stack_num) for cls in (tianshou_data.ReplayBuffer, lean.LeanReplayBuffer)]
    for step in range(300):
        rows = [made[(step + 50 * env) % 300] for env in range(n_envs or 1)]
        nexts = [made[(step + 50 * env) % 300 + 1] for env in range(n_envs or 1)]
        done = np.array([(step + env) % 37 == 36 for env in range(n_envs or 1)])
        zeros = np.zeros(n_envs or 1)
        content = {"obs": np.array(rows), "obs_next": np.array(nexts), "act": zeros.astype(int), "rew": zeros + 1,
                   "terminated": done, "truncated": zeros.astype(bool)}  # fmt: skip
        if not n_envs:
            content = {key: value[0] for key, value in content.items()}
        for buffer in buffers:
            buffer.add(tianshou_data.Batch(content))
    samples = [buffer.sample(32) for buffer in buffers]
    assert (samples[0][1] == samples[1][1]).all()
    for key in ("obs", "obs_next", "act", "rew", "done"):
        assert np.array_equal(samples[0][0][key], samples[1][0][key]), key
    assert np.array_equal(buffers[0][:].obs, buffers[1][:].obs)
    assert buffers[1].nbytes < buffers[1].maxsize * 2 * made[0].nbytes / 2


@pytest.mark.parametrize("n_envs", [0, 3])
def test_tianshou_places_that_were_never_added_are_zeros(n_envs):
    tianshou_data = pytest.importorskip("tianshou.data")
    from legroom import tianshou as lean
    from legroom.errors import BadInput

    made, n = frames(12), n_envs or 1
    if n_envs:
        buffers = [cls(30, n) for cls in (tianshou_data.VectorReplayBuffer, lean.LeanVectorReplayBuffer)]
    else:
        buffers = [cls(30) for cls in (tianshou_data.ReplayBuffer, lean.LeanReplayBuffer)]
    for step in range(4):
        seen = np.stack([made[(step + env) % 11] for env in range(n)])
        content = {"obs": seen, "obs_next": seen + 1, "act": np.zeros(n, int), "rew": np.ones(n),
                   "terminated": np.zeros(n, bool), "truncated": np.zeros(n, bool)}  # fmt: skip
        for buffer in buffers:
            buffer.add(tianshou_data.Batch(content if n_envs else {key: value[0] for key, value in content.items()}))
    mask = np.arange(30) % 3 == 0
    for index in (np.arange(30), [3, 4, 29], 20, -1, slice(2, 9), mask, np.array([[0, 4], [5, 2]]), np.int64(7)):
        for key in ("obs", "obs_next"):
            plain, found = (buffer.get(index, key, stack_num=1) for buffer in buffers)
            assert np.array_equal(plain, found) and plain.dtype == found.dtype, (index, key)
    for index in (np.array([1, 3]), [0, 3]):
        assert np.array_equal(*(buffer.get(index, "obs", stack_num=3) for buffer in buffers))
    assert np.array_equal(buffers[0].obs, buffers[1].obs) and buffers[0].obs.shape == buffers[1].obs.shape
    with pytest.raises(BadInput, match=r"add\(\) the transitions"):
        buffers[1].update(buffers[0])


@pytest.mark.parametrize("library", ["torchrl", "tianshou"])
def test_examples_of_docstrings_work(library):
    pytest.importorskip(library)
    module = __import__(f"legroom.{library}", fromlist=["_"])
    ran = doctest.testmod(module)
    assert ran.attempted and not ran.failed
