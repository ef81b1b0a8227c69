"""Which mappings of a process count as arrays that it will fill."""

from __future__ import annotations

from legroom.backends.program.host_watch import Mapping, _asked_for_by, large_mappings

SMAPS = """\
7f0000600000-7f0004600000 rw-p 00000000 00:00 0
Rss:                   0 kB
7f0004600000-7f0004e00000 r--p 00000000 08:01 42 /usr/lib/libopenblas.so
Rss:                 100 kB
7f1000000000-7f1010000000 rw-p 00000000 00:00 0
Rss:                   0 kB
7f1010000000-7f1010001000 ---p 00000000 00:00 0
Rss:                   0 kB
7f2000000000-7f2010000000 rw-p 00000000 00:00 0
Rss:                   4 kB
"""


def test_what_a_library_maps_and_never_writes_is_no_array() -> None:
    """OpenBLAS keeps 64 MiB for two threads: a program without any buffer was told that one would fill."""
    blas, fresh, begun = large_mappings(7, SMAPS.encode())
    assert blas == Mapping(7, 0x7F0000600000, 0x7F0004600000, resident=0) and not blas.is_array
    assert fresh.guarded and fresh.is_array, "np.zeros of 256 MiB, as _reserve.c maps it"
    assert not begun.guarded and begun.is_array, "mapped by glibc, which writes the head"


def test_what_pyarrow_reserves_is_no_array() -> None:
    """A program that reads a CSV by pandas 3 was told of 1 GiB that "a large array" would take."""
    (arena,) = large_mappings(7, b"2689fc00000-268dfc00000 rw-p 00000000 00:00 0\nRss:   4096 kB\n")
    assert arena.nbytes == 1 << 30 and not arena.is_array


def test_an_array_of_a_library_names_the_line_that_called_it() -> None:
    asked = {"file": "/lib/site-packages/tensordict/_torch_func.py", "line": 381}
    assert _asked_for_by({**asked, "user_file": "/home/train.py", "user_line": 23}) == "the array of train.py:23"
    assert _asked_for_by({**asked, "user_file": "", "user_line": 0}) == ""
    assert _asked_for_by({"file": "a.py", "line": 5, "user_file": "a.py", "user_line": 5}) == "", "it made it itself"
    assert _asked_for_by({}) == ""
