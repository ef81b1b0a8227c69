"""What is shared comes back as it was, read-only, and bad arrays and broken builds are said."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import legroom
from legroom.errors import BadInput
from legroom.sharing import shared, shared_folder
from legroom.sharing.shared import map_arrays

RECORD = np.dtype([("id", "<i4"), ("where", "<f4", (3,)), ("inner", [("größe", ">u2")])], align=True)


@pytest.fixture(autouse=True)
def own_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A run for each test: its own folder, nothing known yet."""
    monkeypatch.setenv(shared_folder.VARIABLE, str(tmp_path / "run"))
    monkeypatch.setattr(shared, "_folder", None)
    monkeypatch.setattr(shared, "_known", {})
    yield tmp_path / "run"


def in_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what this process has, as another one of the run would not have it either."""
    monkeypatch.setattr(shared, "_known", {})


def fail() -> Any:
    raise AssertionError("built again")


ARRAYS = {
    **{name: np.arange(12).reshape(3, 4).astype(name) for name in "bBhHiIlLqQefdgFDG?"},
    "big-endian": np.arange(5, dtype=">f8"),
    "dates": np.array(["2026-11-01", "NaT"], "datetime64[s]"),
    "texts": np.array(["a", "größer"]),
    "bytes": np.array([b"ab", b"\x00c"]),
    "records": np.arange(4).astype("i4").view("V4").astype("V4"),
    "structured": np.array([(1, (2, 3, 4), (5,)), (-1, (0, 0, 0), (65535,))], RECORD),
    "0-d": np.array(2.5, "float32"),
    "0-d structured": np.zeros((), RECORD),
    "empty": np.empty((0, 3), "int16"),
    "empty structured": np.empty((2, 0), RECORD),
    "fortran": np.asfortranarray(np.arange(24.0).reshape(2, 3, 4)),
    "not contiguous": np.arange(20)[::3],
    "transposed slice": np.arange(24).reshape(2, 3, 4)[:, 1:].T,
    "with a\nline's end": np.ones(1),
    "": np.array([np.nan, -0.0, np.inf]),
}


def test_every_dtype_shape_and_order_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    legroom.share("all", lambda: ARRAYS)
    in_another_process(monkeypatch)
    found = legroom.share("all", fail)
    assert list(found) == list(ARRAYS)
    for name, expected in ARRAYS.items():
        array = found[name]
        assert (array.dtype, array.shape) == (expected.dtype, expected.shape), name
        assert array.tobytes() == expected.tobytes(), name
        assert array.flags.aligned and array.flags.forc, name
        assert array.size < 2 or array.ctypes.data % 64 == 0, name
    assert found["fortran"].flags.f_contiguous
    assert legroom.share("nothing", dict) == {}


def test_nobody_can_write_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = np.zeros(3)
    for off in (False, True):
        if off:
            monkeypatch.setenv(shared_folder.VARIABLE, shared_folder.OFF)
            in_another_process(monkeypatch)
        found = legroom.share("read only", lambda: {"a": mine, "empty": np.zeros(0)})
        for array in found.values():
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 1
        with pytest.raises(TypeError):
            found["a"] = mine  # type: ignore[index]
    with pytest.raises(ValueError, match="WRITEABLE"):
        map_arrays(next(Path(shared._folder.path).glob("*.arrays")))["a"].flags.writeable = True  # type: ignore[union-attr]
    mine[0] = 1  # what the builder keeps stays its own


@pytest.mark.parametrize(
    ("built", "words"),
    [
        ({"a": np.array([None, 1])}, "'a' is an array of object"),
        ({"a": np.array([(None,)], [("x", "O")])}, "array of"),
        ({"a": np.ma.masked_array([1, 2], [True, False])}, "masked"),
        ({"a": [[1], [2, 3]]}, "no array"),
        ({"a": "text"}, ""),
        ({1: np.zeros(2)}, "dict of arrays"),
        ([np.zeros(2)], "build returned list"),
        (None, "build returned NoneType"),
    ],
)  # fmt: skip
def test_what_cannot_be_shared_is_said_in_one_line(built: Any, words: str, own_run: Path) -> None:
    if words:
        with pytest.raises(BadInput, match=words) as told:
            legroom.share("bad", lambda: built)
        assert "\n" not in str(told.value)
        assert not list(own_run.glob("*.arrays")) and not list(own_run.glob("*.new"))
    else:
        assert str(legroom.share("bad", lambda: built)["a"]) == "text"


def test_keys_are_any_text_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for number, key in enumerate(["", "/../..", "a" * 10_000, "ü\0\n", "\udc80"]):
        legroom.share(key, lambda number=number: {"n": np.array(number)})
    in_another_process(monkeypatch)
    for number, key in enumerate(["", "/../..", "a" * 10_000, "ü\0\n", "\udc80"]):
        assert legroom.share(key, fail)["n"] == number
    with pytest.raises(BadInput, match="the key is a int"):
        legroom.share(3, dict)  # type: ignore[arg-type]


def test_a_build_that_raises_is_tried_again_by_the_next(own_run: Path) -> None:
    for wrong in (ZeroDivisionError, OSError, ValueError, KeyboardInterrupt):
        with pytest.raises(wrong, match="mine"):
            legroom.share("broken", lambda wrong=wrong: (_ for _ in ()).throw(wrong("mine")))  # type: ignore[return-value]
    assert not list(own_run.glob("*.arrays"))
    assert legroom.share("broken", lambda: {"a": np.ones(2)})["a"].sum() == 2


def test_a_build_may_share_something_else_but_not_itself() -> None:
    def outer() -> Any:
        return {"twice": 2 * legroom.share("inner", lambda: {"a": np.arange(3)})["a"]}

    assert legroom.share("outer", outer)["twice"].tolist() == [0, 2, 4]
    with pytest.raises(BadInput, match="asks for the same key"):
        legroom.share("ring", lambda: legroom.share("ring", fail))


def test_threads_build_once_and_other_keys_do_not_wait() -> None:
    builds: list[str] = []
    other = threading.Event()

    def slow() -> Any:
        builds.append("slow")
        assert other.wait(10)  # another key is built meanwhile
        return {"a": np.ones(3)}

    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(legroom.share("slow", slow))) for _ in range(6)]
    for thread in threads:
        thread.start()
    legroom.share("quick", dict)
    other.set()
    for thread in threads:
        thread.join(10)
    assert builds == ["slow"]
    assert len({id(each) for each in found}) == 1


def test_a_damaged_file_is_built_again(monkeypatch: pytest.MonkeyPatch, own_run: Path) -> None:
    legroom.share("a", lambda: {"a": np.arange(100)})
    (file,) = own_run.glob("*.arrays")
    whole = file.read_bytes()
    broken = whole.replace(b"{", b"(", 1)
    for damage in (b"", b"something else\n", b'["a"]\n', whole[:70], whole[:150], whole[:300], broken):
        file.write_bytes(damage)
        in_another_process(monkeypatch)
        assert legroom.share("a", lambda: {"a": np.arange(100)})["a"][-1] == 99


def test_where_nothing_can_be_written_everyone_has_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(shared_folder.VARIABLE, str(tmp_path / "file" / "run"))
    with pytest.warns(UserWarning, match="this process keeps its own copy") as told:
        assert legroom.share("a", lambda: {"a": np.arange(3)})["a"].tolist() == [0, 1, 2]
    assert told[0].filename == __file__


def test_a_full_disk_leaves_nothing_and_builds_once(monkeypatch: pytest.MonkeyPatch, own_run: Path) -> None:
    builds: list[int] = []

    def build() -> Any:
        builds.append(1)
        return {"a": np.arange(1000)}

    def full(path: Path, arrays: Any) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shared, "write_arrays", full)
    with pytest.warns(UserWarning, match="No space left"):
        assert legroom.share("a", build)["a"][-1] == 999
    assert len(builds) == 1
    assert [file.suffix for file in own_run.iterdir()] == [".lock"]


def test_switched_off_every_process_builds_its_own(monkeypatch: pytest.MonkeyPatch, own_run: Path) -> None:
    shared.begin_sharing(shared=False)
    assert os.environ[shared_folder.VARIABLE] == "off"
    for _ in range(2):
        in_another_process(monkeypatch)
        builds: list[int] = []
        for _ in range(2):
            legroom.share("a", lambda builds=builds: (builds.append(1), {"a": np.ones(2)})[1])
        assert builds == [1]
    shared.begin_sharing()  # whoever switched it off outside means the whole run
    assert os.environ[shared_folder.VARIABLE] == "off" and not own_run.exists()
