"""If these fail, a simulated node's libraries count as often as it has processes."""

from pathlib import Path

from legroom.cluster.node_memory import anonymous_nbytes, node_memory

SMAPS = """\
7f00-7f10 r-xp 00000000 08:01 11 /usr/lib/libtorch.so
Rss:                {torch} kB
Anonymous:             4 kB
7f20-7f30 rw-s 00000000 00:01 12 /dev/shm/plasma (deleted)
Rss:                 900 kB
Anonymous:             0 kB
7f40-7f50 rw-p 00000000 00:00 0
Rss:                  50 kB
Anonymous:            50 kB
"""


def make_process(proc: Path, pid: int, *, torch: int, anon: int) -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "smaps").write_text(SMAPS.format(torch=torch))
    (folder / "smaps_rollup").write_text(f"0-1 ---p 0 0 0 [rollup]\nPss_Anon: {anon} kB\nAnonymous: {anon} kB\n")


def test_libraries_count_once_and_own_memory_every_time(tmp_path: Path) -> None:
    make_process(tmp_path, 1, torch=104, anon=1000)
    make_process(tmp_path, 2, torch=204, anon=2000)
    found = node_memory([1, 2, 3], proc=tmp_path)  # 3 has ended
    assert found.anon == 3000 * 1024
    assert found.files == 200 * 1024  # of the process with the most; 4 kB of it were written to and are its own


def test_a_process_that_ended_holds_nothing(tmp_path: Path) -> None:
    assert anonymous_nbytes(7, proc=tmp_path) == 0
