"""If these fail, a simulated node's libraries count as often as it has processes, or its object store not at all."""

import os
from pathlib import Path

from bench.object_store import store_nbytes
from bench.ray_measure import anonymous_nbytes, mapped_nbytes

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
    assert sum(anonymous_nbytes(pid, proc=tmp_path) for pid in (1, 2, 3)) == 3000 * 1024  # 3 has ended
    # of the process with the most; 4 kB of it were written to and are its own
    assert mapped_nbytes([1, 2, 3], proc=tmp_path) == 200 * 1024


def test_the_object_store_counts_the_pages_that_exist() -> None:
    path = Path("/dev/shm") / f"legroom-test-{os.getpid()}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        path.unlink()
        before = store_nbytes(os.getpid())
        os.ftruncate(descriptor, 64 << 20)  # reserved, not there
        assert store_nbytes(os.getpid()) - before < 1 << 20
        os.write(descriptor, b"x" * (8 << 20))
        assert store_nbytes(os.getpid()) - before >= 8 << 20
    finally:
        os.close(descriptor)
