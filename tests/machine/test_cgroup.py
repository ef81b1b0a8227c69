"""In a container the limit must be the container's, in whichever kind of cgroup it lives (fixture trees)."""

from __future__ import annotations

from pathlib import Path

import pytest

from legroom.machine.cgroup import oom_kills, read_cgroup, read_pressure
from legroom.units import GIB, MIB

V1_NONE = "9223372036854771712\n"
V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
V1_MOUNTS = (
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"
)
HYBRID_MOUNTS = V1_MOUNTS + "\n41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"
# /proc/self/cgroup names the path on the host, while the container's own cgroup is mounted as the top
NO_NAMESPACE = "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory"


def write_tree(root: Path, cgroup: str | None, mounts: str | None, files: dict[str, object]) -> Path:
    """Write a /proc, and files below /sys/fs/cgroup, or below the root where they begin with a slash."""
    told = {"/proc/self/cgroup": cgroup, "/proc/self/mountinfo": mounts}
    for name, text in {**{name: text for name, text in told.items() if text is not None}, **files}.items():
        path = root / (name[1:] if name.startswith("/") else f"sys/fs/cgroup/{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(text))
    return root


SESSION = "user.slice/user-1000.slice/session-3.scope"
# cgroup, mounts, files; limit, available, soft, where the limit stands
CASES = {
    # 4 GiB - (3 GiB used - 2 GiB of cache the kernel would drop) = 3 GiB
    "v2 in docker": (
        "0::/\n", V2_MOUNT,
        {"memory.max": 4 * GIB, "memory.high": "max\n", "memory.current": 3 * GIB,
         "memory.stat": f"anon {GIB}\nfile {2 * GIB}\ninactive_file {2 * GIB}\n"},
        (4 * GIB, 3 * GIB, False, ""),
    ),
    # the outer slice is looser, but its other users have left less of it
    "v2, the smallest on the way up": (
        f"0::/{SESSION}\n", V2_MOUNT,
        {f"{SESSION}/memory.max": "max\n", "user.slice/user-1000.slice/memory.max": 8 * GIB,
         "user.slice/user-1000.slice/memory.current": GIB, "user.slice/memory.max": 10 * GIB,
         "user.slice/memory.current": 9 * GIB},
        (8 * GIB, GIB, False, "user.slice/user-1000.slice"),
    ),
    "v2, memory.high is soft": (
        "0::/train\n", V2_MOUNT,
        {"train/memory.max": 8 * GIB, "train/memory.high": 6 * GIB, "train/memory.current": 100 * MIB},
        (6 * GIB, 6 * GIB - 100 * MIB, True, "train"),
    ),
    "v2, used above the limit": (
        "0::/\n", V2_MOUNT, {"memory.high": GIB, "memory.current": 2 * GIB}, (GIB, 0, True, ""),
    ),
    "v2, outside of the namespace": ("0::/../../other\n", V2_MOUNT, {"memory.max": GIB}, (GIB, GIB, False, "")),
    "v2, mounted away": ("0::/gone/away\n", V2_MOUNT, {"memory.max": GIB}, (GIB, GIB, False, "")),
    "v2, usage and stat malformed": (
        "0::/\n", V2_MOUNT,
        {"memory.max": GIB, "memory.current": "?", "memory.stat": "inactive_file\ninactive_file many\n\n"},
        (GIB, GIB, False, ""),
    ),
    "v1 in docker without namespace": (
        "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n", NO_NAMESPACE,
        {"memory/memory.limit_in_bytes": 2 * GIB, "memory/memory.usage_in_bytes": 1536 * MIB,
         "memory/memory.stat": f"inactive_file 1\ntotal_inactive_file {512 * MIB}\n"},
        (2 * GIB, GIB, False, "memory"),
    ),
    "v1 nested under slurm": (
        "4:memory:/slurm/job_7/step_0\n", V1_MOUNTS,
        {"memory/slurm/job_7/step_0/memory.limit_in_bytes": V1_NONE, "memory/memory.limit_in_bytes": V1_NONE,
         "memory/slurm/job_7/memory.limit_in_bytes": 16 * GIB, "memory/slurm/job_7/memory.usage_in_bytes": GIB},
        (16 * GIB, 15 * GIB, False, "memory/slurm/job_7"),
    ),
    "hybrid with memory on v1": (
        "4:memory:/box\n1:cpu:/\n0::/init.scope\n", HYBRID_MOUNTS,
        {"memory/box/memory.limit_in_bytes": GIB, "unified/init.scope/cgroup.procs": 1},
        (GIB, GIB, False, "memory/box"),
    ),
    "hybrid with memory on v2": (
        "3:cpu:/\n0::/box\n", HYBRID_MOUNTS.replace("rw,memory", "rw,freezer"), {"unified/box/memory.max": GIB},
        (GIB, GIB, False, "unified/box"),
    ),
    "no mountinfo": (
        "0::/a/b\n", None, {"cgroup.controllers": "cpu memory", "a/memory.max": GIB}, (GIB, GIB, False, "a"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_limit_that_binds_and_what_is_left_of_it(tmp_path: Path, case: str) -> None:
    cgroup, mounts, files, (limit, available, soft, where) = CASES[case]
    found = read_cgroup(write_tree(tmp_path, cgroup, mounts, files))
    assert found is not None and (found.limit, found.available, found.soft) == (limit, available, soft)
    assert Path(found.path) == tmp_path / "sys/fs/cgroup" / where


@pytest.mark.parametrize(
    ("cgroup", "mounts", "files"),
    [
        (None, None, {}),
        ("", "", {}),
        ("0::/\n", V2_MOUNT, {}),
        ("0::/\n", V2_MOUNT, {"memory.max": "max\n", "memory.high": "max\n"}),
        ("4:memory:/\n", V1_MOUNTS, {"memory/memory.limit_in_bytes": V1_NONE}),
        ("4:memory:/\n", V1_MOUNTS, {"memory/memory.limit_in_bytes": "9223372036854710272\n"}),
        ("4:memory:/\n", V1_MOUNTS, {"memory/memory.limit_in_bytes": "-1\n"}),
        ("0::/\n", V2_MOUNT, {"memory.max": "lots\x00\xff"}),
        ("0::/\n", V2_MOUNT, {"memory.max": "0\n"}),
        ("nonsense\n:::\n\n7\n0::", "short\n - \na b c d e - cgroup2\n", {}),
    ],
    ids=["nothing", "empty", "no-files", "v2-max", "v1-none", "64k-pages", "negative", "binary", "zero", "malformed"],
)
def test_no_limit_is_none_and_never_an_error(tmp_path: Path, cgroup: str, mounts: str, files: dict) -> None:
    root = write_tree(tmp_path, cgroup, mounts, files)
    assert read_cgroup(root) is None


def test_what_is_left_before_the_kernel_kills_counts_all_page_cache(tmp_path: Path) -> None:
    stat = f"anon {4 * GIB}\nactive_file {GIB}\ninactive_file {2 * GIB}\n"
    files = {"memory.max": 8 * GIB, "memory.current": 7 * GIB, "memory.stat": stat}
    found = read_cgroup(write_tree(tmp_path, "0::/\n", V2_MOUNT, files))
    assert found is not None and found.left == 4 * GIB  # 8 less the 4 that no cache is


def test_another_process_is_measured_against_its_own_container(tmp_path: Path) -> None:
    files = {"/proc/77/cgroup": "0::/other\n", "mine/memory.max": 4 * GIB, "other/memory.max": 2 * GIB}
    root = write_tree(tmp_path, "0::/mine\n", V2_MOUNT, files)
    assert (read_cgroup(root).limit, read_cgroup(root, 77).limit) == (4 * GIB, 2 * GIB)  # type: ignore[union-attr]


def test_this_very_process_can_be_asked() -> None:
    found = read_cgroup()
    assert found is None or 0 <= found.available <= found.limit


@pytest.mark.parametrize(
    ("cgroup", "files"),
    [
        ("0::/job", {"job/memory.events": "low 0\noom 9\noom_kill 5\noom_group_kill 0\n"}),
        ("4:memory:/job", {"memory/job/memory.oom_control": "under_oom 0\noom_kill 5\n"}),
        ("0::/", {"/proc/vmstat": "nr_free_pages 77\noom_kill 5\n"}),
    ],
    ids=["v2", "v1", "no cgroup"],
)
def test_where_the_count_of_killed_processes_stands(tmp_path: Path, cgroup: str, files: dict) -> None:
    assert oom_kills(write_tree(tmp_path, cgroup, None, {"cgroup.controllers": "memory\n", **files})) == 5
    assert oom_kills(tmp_path / "nothing here") == 0


MACHINE = "some avg10=9.00 avg60=1.00 avg300=0.10 total=5\nfull avg10=2.50 avg60=0.30 avg300=0.05 total=3\n"
BOX = {"box/memory.pressure": "full avg10=61.00 avg60=0 avg300=0 total=1\n"}


@pytest.mark.parametrize(
    ("machine", "container", "share"),
    [(MACHINE, {}, 0.025), (MACHINE, BOX, 0.61), (None, {}, None), ("full avg10=broken\n\nrubbish", {}, None)],
    ids=["of the machine", "of the container first", "a kernel that does not count it", "malformed"],
)
def test_the_share_of_the_time_in_which_everything_stands_still(
    tmp_path: Path, machine: str | None, container: dict, share: float | None
) -> None:
    files = {**container, **({} if machine is None else {"/proc/pressure/memory": machine})}
    assert read_pressure(write_tree(tmp_path, "0::/box\n", V2_MOUNT, files)) == share
