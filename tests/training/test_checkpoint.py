"""Checkpoints on disk: good or not there, found after any damage, kept to the last few, never executed."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from legroom.errors import BadInput
from legroom.training import durable
from legroom.training.arrays import BFLOAT16, NotPlain, put_together, take_apart
from legroom.training.checkpoint import Checkpoint, Checkpoints, Pace, newest_checkpoint, parameters_sha256

TENSORS = {
    "policy/net.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "policy/net.bias": np.array(0.5),
    "optimizer/adam.0.step": np.array(7.0, np.float32),
    "envs/0": np.arange(5, dtype=np.uint8),
    "envs/1": np.zeros((0, 3), np.float64),
}


def write(checkpoints: Checkpoints, step: int, **more) -> Path:
    return checkpoints.write(step, TENSORS, {"step": step}, **more)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    path = write(Checkpoints(tmp_path), 12345)
    assert path == tmp_path / "checkpoints" / "step-000000012345"
    found = Checkpoints(tmp_path).latest()
    assert found is not None
    assert (found.step, found.data, found.path) == (12345, {"step": 12345}, path)
    for group, names in {
        "policy": ["net.weight", "net.bias"],
        "optimizer": ["adam.0.step"],
        "envs": ["0", "1"],
    }.items():
        read = found.tensors(group)
        assert sorted(read) == sorted(names)
        for name in names:
            np.testing.assert_array_equal(read[name], TENSORS[f"{group}/{name}"], strict=True)
    assert found.tensors("nothing") == {}


def test_other_tools_read_the_networks_and_the_manifest_tells_size_and_hash_of_every_file(tmp_path: Path) -> None:
    path = write(Checkpoints(tmp_path), 1)
    np.testing.assert_array_equal(load_file(path / "policy.safetensors")["net.weight"], TENSORS["policy/net.weight"])
    listed = json.loads((path / "manifest.json").read_text())["files"]
    assert set(listed) == {each.name for each in path.iterdir()} - {"manifest.json"}
    for name, entry in listed.items():
        content = (path / name).read_bytes()
        assert entry == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def test_bfloat16_and_every_other_dtype_come_back_bit_for_bit(tmp_path: Path) -> None:
    bits = np.arange(24, dtype=np.uint16).reshape(4, 6)
    arrays = {"policy/half": bits.view(BFLOAT16), "other/half": bits.view(BFLOAT16)}
    for dtype in ("bool", "int8", "uint16", "int64", "float16", "float64", "complex64"):
        arrays[f"policy/{dtype}"] = np.ones(3, dtype)
    arrays["other/text"] = np.array(["ab", "c"])
    arrays["other/turned"] = np.arange(6.0).reshape(2, 3).T
    arrays["other/big_endian"] = np.arange(3, dtype=">i4")
    Checkpoints(tmp_path).write(1, arrays, {})
    found = Checkpoints(tmp_path).latest()
    for name, array in arrays.items():
        group, _, rest = name.partition("/")
        read = found.tensors(group)[rest]
        assert read.shape == array.shape
        assert read.tobytes() == array.astype(array.dtype.newbyteorder("<")).tobytes()
    assert found.tensors("policy")["half"].dtype == BFLOAT16


@pytest.mark.parametrize("victim", ["policy.safetensors", "arrays.bin", "state.json", "manifest.json", "extra.bin"])
@pytest.mark.parametrize("damage", ["changed", "cut", "gone"])
def test_a_damaged_checkpoint_is_passed_over_and_named(tmp_path: Path, victim: str, damage: str) -> None:
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2):
        path = write(checkpoints, step, files={"extra.bin": lambda p: p.write_bytes(b"segment") and None})
    content = bytearray((path / victim).read_bytes())
    content[len(content) // 2] ^= 1
    if damage == "gone":
        (path / victim).unlink()
    else:
        (path / victim).write_bytes(content if damage == "changed" else content[:-3])
    after = Checkpoints(tmp_path)
    found = after.latest()
    assert found is not None and found.step == 1
    assert [each.name for each, _ in after.damaged] == ["step-000000000002"]
    if victim != "manifest.json":  # what a changed manifest says may be about any file
        assert victim in after.damaged[0][1]
    write(after, 2)  # the run comes by there again
    assert Checkpoints(tmp_path).latest().step == 2
    assert [each.step for each in Checkpoints(tmp_path).all()] == [1, 2]


def test_there_is_none_where_all_are_damaged_or_none_was_written(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "no such").latest() is None
    path = write(Checkpoints(tmp_path), 3)
    (path / "manifest.json").write_text("{}")
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.latest() is None and len(checkpoints.damaged) == 1
    write(checkpoints, 1)  # starting over, below the damaged one
    assert Checkpoints(tmp_path).latest().step == 1
    assert names(tmp_path) == ["damaged-step-000000000003", "step-000000000001"]


def test_a_manifest_cannot_name_files_elsewhere(tmp_path: Path) -> None:
    path = write(Checkpoints(tmp_path), 3)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["files"]["../../secret"] = {"bytes": 0, "sha256": ""}
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BadInput, match=r"manifest\.json"):
        Checkpoint(path)


def test_the_last_three_stay_and_the_last_one_always(tmp_path: Path) -> None:
    for keep, left in ((3, [30, 40, 50]), (1, [60])):
        checkpoints = Checkpoints(tmp_path, keep=keep)
        for step in (10, 20, 30, 40, 50) if keep == 3 else (60,):
            write(checkpoints, step)
        assert [each.step for each in checkpoints.all()] == left


def test_damaged_ones_do_not_count_among_those_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    write(checkpoints, 1)
    bad = write(checkpoints, 2)
    (bad / "state.json").unlink()
    write(checkpoints, 3)
    assert [each.step for each in checkpoints.all()] == [1, 3]


def test_a_step_written_again_replaces_its_checkpoint(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    write(checkpoints, 5)
    checkpoints.write(5, {}, {"again": True})
    assert Checkpoints(tmp_path).latest().data == {"again": True}
    assert [each.name for each in tmp_path.iterdir()] == ["checkpoints"]


def test_a_step_is_also_replaced_where_names_cannot_be_exchanged(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(durable, "_exchange", lambda *_: False)
    test_a_step_written_again_replaces_its_checkpoint(tmp_path)


def test_unchanged_files_are_the_same_file_on_disk_and_outlive_the_checkpoint_they_were_written_in(
    tmp_path: Path,
) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    first = write(checkpoints, 1, files={"a.bin": lambda path: path.write_bytes(b"rows") and None})
    inode = (first / "a.bin").stat().st_ino
    second = write(checkpoints, 2, link={"a.bin": first / "a.bin"})
    assert not first.exists()
    assert (second / "a.bin").stat().st_ino == inode
    assert Checkpoints(tmp_path).latest().file("a.bin").read_bytes() == b"rows"
    with pytest.raises(BadInput, match=r"no file b\.bin"):
        Checkpoint(second).file("b.bin")


def test_files_are_copied_where_they_cannot_be_linked(tmp_path: Path, monkeypatch) -> None:
    checkpoints = Checkpoints(tmp_path)
    first = write(checkpoints, 1, files={"a.bin": lambda path: path.write_bytes(b"rows") and None})

    def refuse(*_: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    second = write(checkpoints, 2, link={"a.bin": first / "a.bin"})
    assert (second / "a.bin").read_bytes() == b"rows"
    assert Checkpoints(tmp_path).latest().step == 2


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    write(checkpoints, 1)

    def full(path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(BadInput, match="step 2 cannot be written: No space left"):
        write(checkpoints, 2, files={"a.bin": full})
    assert [each.name for each in tmp_path.iterdir()] == ["checkpoints"]
    assert Checkpoints(tmp_path).latest().step == 1


def test_leftovers_of_dead_processes_are_cleared_and_those_of_living_ones_are_not(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    mine = durable.new_temporary(tmp_path)
    before_us = tmp_path / f".tmp-{os.getpid()}-1-0"  # our process id, of a process that began at another time
    theirs = tmp_path / f".tmp-{dead.pid}-12345-0"
    for path in (before_us, theirs):
        path.mkdir()
        (path / "state.json").write_text("{")
    (tmp_path / ".tmp-notes").mkdir()
    Checkpoints(tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([mine.name, ".tmp-notes"])


def test_one_checkpoint_or_a_runs_newest_is_found_by_its_directory(tmp_path: Path) -> None:
    paths = [write(Checkpoints(tmp_path), step) for step in (1, 2)]
    assert newest_checkpoint(tmp_path).step == 2
    assert newest_checkpoint(paths[0]).step == 1
    assert newest_checkpoint(tmp_path / "elsewhere") is None


WRITER = """
import sys
from pathlib import Path
import numpy as np
from legroom.training.checkpoint import Checkpoints
checkpoints = Checkpoints(Path(sys.argv[1]), keep=2)
found = checkpoints.latest()
step = found.step if found else 0
while True:
    step += 1
    values = np.full(50_000, step, np.float32)
    previous = checkpoints.newest
    link = {"seg": previous.path / "seg"} if previous and step % 10 else {}
    files = {} if link else {"seg": lambda path: path.write_bytes(bytes(10_000)) and None}
    checkpoints.write(step, {"policy/w": values, "a/b": values}, {"step": step}, link=link, files=files)
    print(step, flush=True)
"""


def test_killed_at_any_moment_the_last_checkpoint_is_good(tmp_path: Path) -> None:
    reached = 0
    moments = random.Random(4)
    for _ in range(5):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        said = int(writer.stdout.readline())  # it has begun
        time.sleep(moments.uniform(0.0, 0.25))
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().split()
        writer.wait()
        said = int(rest[-1]) if rest else said
        names = [each.name for each in (tmp_path / "checkpoints").iterdir()]
        assert all(name.startswith("step-") for name in names)
        assert len(names) <= 3  # the two kept, and one that was just about to go
        checkpoints = Checkpoints(tmp_path)
        found = checkpoints.latest()
        assert checkpoints.damaged == []
        assert said <= found.step <= said + 1
        assert found.data == {"step": found.step}
        assert (found.tensors("policy")["w"] == found.step).all()
        assert found.step > reached
        reached = found.step
    assert [each.name for each in tmp_path.iterdir()] == ["checkpoints"]  # what the last one left is cleared away


def test_the_hash_of_parameters_is_of_raw_bytes_in_name_order() -> None:
    b, a = np.array([1.0, 2.0], np.float32), np.array([[3]], np.int64)
    by_hand = hashlib.sha256(a.tobytes() + b.tobytes()).hexdigest()
    assert parameters_sha256({"b": b, "a": a}) == by_hand
    assert parameters_sha256({"b": b.astype(">f4"), "a": a}) == by_hand
    assert parameters_sha256({"x": a, "y": b}) == by_hand  # names only give the order
    assert parameters_sha256({}) == hashlib.sha256(b"").hexdigest()


def test_trees_come_back_as_they_were_types_included() -> None:
    tree = {
        "none": None, "yes": True, "big": 2**127 + 1, "float": 0.1, "nan": float("nan"), "text": "é",
        "array": np.arange(3), "scalar": np.float32(0.1), "flag": np.True_, "complex": np.complex128(1j),
        "tuple": (1, (2,)), "bytes": b"\x00\xff", "$array": "no mark", "numbers": {1: "a", (2, 3): "b"}, "empty": {},
        "list": [{"$tuple": 1}],
    }  # fmt: skip
    arrays: dict[str, np.ndarray] = {}
    text = json.dumps(take_apart(tree, "env", arrays))
    assert all(name.startswith("env/") for name in arrays)
    back = put_together(json.loads(text), arrays)
    assert str(back) == str(tree)
    assert type(back["scalar"]) is np.float32 and type(back["flag"]) is np.bool_ and type(back["big"]) is int


def test_what_is_no_plain_data_is_named() -> None:
    with pytest.raises(NotPlain, match=r"a\.b\[1\] is a object"):
        take_apart({"a": {"b": [1, object()]}}, "env", {})
    with pytest.raises(NotPlain, match="array of object"):
        take_apart(np.array([{}]), "env", {})


def test_checkpoints_take_at_most_two_percent_of_the_time() -> None:
    now = [0.0]
    pace, written, spent = Pace(clock=lambda: now[0]), [], 0.0
    for step in range(1, 20_001):
        now[0] += 0.05  # an iteration
        if pace.is_due(step):
            with pace.writing(step):
                now[0] += 0.1
            written.append(step)
            spent += 0.1
    assert written[0] == 1  # as early as possible
    assert 0.018 < spent / now[0] <= 0.02
    cheap = Pace(clock=lambda: now[0])
    for step in range(1, 101):  # where it costs next to nothing, after every iteration
        now[0] += 1.0
        assert cheap.is_due(step)
        with cheap.writing(step):
            now[0] += 0.001
    for step in range(101, 201):  # but no more than one in a second
        now[0] += 0.3
        if cheap.is_due(step):
            with cheap.writing(step):
                now[0] += 0.001
            written.append(step)
    assert written[-25:] == list(range(104, 201, 4))


def test_steps_between_checkpoints_override_the_time() -> None:
    pace = Pace(clock=lambda: 0.0)
    pace.written_at_step = 0
    assert [step for step in range(0, 50, 8) if pace.is_due(step, every=20)] == [24, 32, 40, 48]
    pace.written_at_step = 100
    assert not pace.is_due(100)
    assert not pace.is_due(119, every=20)
    assert pace.is_due(120, every=20)
