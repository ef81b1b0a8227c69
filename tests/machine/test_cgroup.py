"""In a container the limit must be the container's, in whichever kind of cgroup it lives (fixture trees)."""

from pathlib import Path

import pytest

from legroom.machine.cgroup import CgroupMemory, read_cgroup, read_left
from legroom.units import GIB, MIB

V1_NONE = "9223372036854771712\n"
V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
V1_MOUNTS = (
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"
)
HYBRID_MOUNTS = V1_MOUNTS + "\n41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"


def write_tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def proc(cgroup: str, mountinfo: str) -> dict[str, str]:
    return {"proc/self/cgroup": cgroup, "proc/self/mountinfo": mountinfo}


def test_v2_in_docker_sees_its_own_cgroup_as_the_root(tmp_path):
    root = write_tree(
        tmp_path,
        proc("0::/\n", V2_MOUNT)
        | {
            "sys/fs/cgroup/memory.max": f"{4 * GIB}\n",
            "sys/fs/cgroup/memory.high": "max\n",
            "sys/fs/cgroup/memory.current": f"{3 * GIB}\n",
            "sys/fs/cgroup/memory.stat": f"anon {1 * GIB}\nfile {2 * GIB}\ninactive_file {2 * GIB}\n",
        },
    )
    # 4 GiB - (3 GiB used - 2 GiB of cache the kernel would drop) = 3 GiB
    assert read_cgroup(root) == CgroupMemory(4 * GIB, 3 * GIB, False, str(root / "sys/fs/cgroup"))


def test_what_is_left_before_the_kernel_kills_counts_all_page_cache(tmp_path):
    root = write_tree(
        tmp_path,
        proc("0::/\n", V2_MOUNT)
        | {
            "sys/fs/cgroup/memory.max": f"{8 * GIB}\n",
            "sys/fs/cgroup/memory.current": f"{7 * GIB}\n",
            "sys/fs/cgroup/memory.stat": f"anon {4 * GIB}\nactive_file {1 * GIB}\ninactive_file {2 * GIB}\n",
        },
    )
    assert read_left(root) == 4 * GIB  # 8 less the 4 that no cache is
    assert read_left(tmp_path / "nothing here") is None


def test_another_process_is_measured_against_its_own_container(tmp_path):
    mine, other = "sys/fs/cgroup/mine", "sys/fs/cgroup/other"
    root = write_tree(
        tmp_path,
        proc("0::/mine\n", V2_MOUNT)
        | {
            "proc/77/cgroup": "0::/other\n",
            f"{mine}/memory.max": f"{4 * GIB}\n",
            f"{other}/memory.max": f"{2 * GIB}\n",
        },
    )
    assert (read_cgroup(root).limit, read_cgroup(root, 77).limit) == (4 * GIB, 2 * GIB)


def test_v2_the_smallest_limit_on_the_way_up_decides(tmp_path):
    top = "sys/fs/cgroup"
    slice_ = f"{top}/user.slice"
    session = f"{slice_}/user-1000.slice/session-3.scope"
    root = write_tree(
        tmp_path,
        proc("0::/user.slice/user-1000.slice/session-3.scope\n", V2_MOUNT)
        | {
            f"{session}/memory.max": "max\n",
            f"{slice_}/user-1000.slice/memory.max": f"{8 * GIB}\n",
            f"{slice_}/user-1000.slice/memory.current": f"{1 * GIB}\n",
            f"{slice_}/memory.max": f"{10 * GIB}\n",
            # the outer slice is looser, but its other users have left less of it
            f"{slice_}/memory.current": f"{9 * GIB}\n",
        },
    )
    assert read_cgroup(root) == CgroupMemory(8 * GIB, 1 * GIB, False, str(root / slice_ / "user-1000.slice"))


def test_v2_memory_high_is_a_soft_limit(tmp_path):
    root = write_tree(
        tmp_path,
        proc("0::/train.service\n", V2_MOUNT)
        | {
            "sys/fs/cgroup/train.service/memory.max": f"{8 * GIB}",
            "sys/fs/cgroup/train.service/memory.high": f"{6 * GIB}",
            "sys/fs/cgroup/train.service/memory.current": f"{100 * MIB}",
        },
    )
    found = read_cgroup(root)
    assert (found.limit, found.soft, found.available) == (6 * GIB, True, 6 * GIB - 100 * MIB)


def test_v1_in_docker_without_namespace_finds_the_mounted_cgroup(tmp_path):
    # /proc/self/cgroup names the path on the host, while the container's own cgroup is mounted as the top
    mounts = "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory"
    root = write_tree(
        tmp_path,
        proc("4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n", mounts)
        | {
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2 * GIB}\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{1536 * MIB}\n",
            "sys/fs/cgroup/memory/memory.stat": f"inactive_file 1\ntotal_inactive_file {512 * MIB}\n",
        },
    )
    assert read_cgroup(root) == CgroupMemory(2 * GIB, 1 * GIB, False, str(root / "sys/fs/cgroup/memory"))


def test_v1_nested_under_slurm(tmp_path):
    job = "sys/fs/cgroup/memory/slurm/uid_1000/job_7"
    root = write_tree(
        tmp_path,
        proc("4:memory:/slurm/uid_1000/job_7/step_0\n", V1_MOUNTS)
        | {
            f"{job}/step_0/memory.limit_in_bytes": V1_NONE,
            f"{job}/memory.limit_in_bytes": f"{16 * GIB}",
            f"{job}/memory.usage_in_bytes": f"{GIB}",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": V1_NONE,
        },
    )
    assert read_cgroup(root) == CgroupMemory(16 * GIB, 15 * GIB, False, str(root / job))


def test_hybrid_with_memory_on_v1(tmp_path):
    root = write_tree(
        tmp_path,
        proc("4:memory:/box\n1:cpu:/\n0::/init.scope\n", HYBRID_MOUNTS)
        | {
            "sys/fs/cgroup/memory/box/memory.limit_in_bytes": f"{GIB}",
            "sys/fs/cgroup/memory/box/memory.usage_in_bytes": "0",
            "sys/fs/cgroup/unified/init.scope/cgroup.procs": "1",
        },
    )
    assert read_cgroup(root) == CgroupMemory(GIB, GIB, False, str(root / "sys/fs/cgroup/memory/box"))


def test_hybrid_with_memory_on_v2(tmp_path):
    root = write_tree(
        tmp_path,
        proc("3:cpu:/\n0::/box\n", HYBRID_MOUNTS.replace("rw,memory", "rw,freezer"))
        | {"sys/fs/cgroup/unified/box/memory.max": f"{GIB}"},
    )
    assert read_cgroup(root).limit == GIB


def test_usual_places_without_mountinfo(tmp_path):
    root = write_tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/a/b\n",
            "sys/fs/cgroup/cgroup.controllers": "cpu memory",
            "sys/fs/cgroup/a/memory.max": f"{GIB}",
        },
    )
    assert read_cgroup(root).limit == GIB


@pytest.mark.parametrize("outside", ["0::/../../other\n", "0::/gone/away\n"])
def test_a_cgroup_that_cannot_be_seen_falls_back_to_the_mount(tmp_path, outside):
    root = write_tree(tmp_path, proc(outside, V2_MOUNT) | {"sys/fs/cgroup/memory.max": f"{GIB}"})
    assert read_cgroup(root).limit == GIB


def test_usage_over_the_limit_leaves_nothing_rather_than_less(tmp_path):
    root = write_tree(
        tmp_path,
        proc("0::/\n", V2_MOUNT)
        | {"sys/fs/cgroup/memory.high": f"{GIB}", "sys/fs/cgroup/memory.current": f"{2 * GIB}"},
    )
    assert read_cgroup(root).available == 0


@pytest.mark.parametrize(
    "files",
    [
        {},
        proc("", ""),
        proc("0::/\n", V2_MOUNT),
        proc("0::/\n", V2_MOUNT) | {"sys/fs/cgroup/memory.max": "max\n", "sys/fs/cgroup/memory.high": "max\n"},
        proc("4:memory:/\n", V1_MOUNTS) | {"sys/fs/cgroup/memory/memory.limit_in_bytes": V1_NONE},
        proc("4:memory:/\n", V1_MOUNTS) | {"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854710272\n"},
        proc("4:memory:/\n", V1_MOUNTS) | {"sys/fs/cgroup/memory/memory.limit_in_bytes": "-1\n"},
        proc("0::/\n", V2_MOUNT) | {"sys/fs/cgroup/memory.max": "lots\x00\xff"},
        proc("0::/\n", V2_MOUNT) | {"sys/fs/cgroup/memory.max": "0\n"},
        proc("nonsense\n:::\n\n7\n0::", "short\n - \na b c d e - cgroup2\n"),
    ],
    ids=["nothing", "empty", "no-files", "v2-max", "v1-none", "64k-pages", "negative", "binary", "zero", "malformed"],
)
def test_no_limit_is_none_and_never_an_error(tmp_path, files):
    assert read_cgroup(write_tree(tmp_path, files)) is None


def test_malformed_usage_and_stat_count_as_nothing_used(tmp_path):
    root = write_tree(
        tmp_path,
        proc("0::/\n", V2_MOUNT)
        | {
            "sys/fs/cgroup/memory.max": f"{GIB}",
            "sys/fs/cgroup/memory.current": "?",
            "sys/fs/cgroup/memory.stat": "inactive_file\ninactive_file many\n\n",
        },
    )
    assert read_cgroup(root).available == GIB


def test_this_very_process_can_be_asked():
    found = read_cgroup()
    assert found is None or 0 <= found.available <= found.limit
