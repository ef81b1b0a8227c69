"""A Ray session leaves no process and no folder behind, and an address without a cluster is one line, soon."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("ray")

from legroom.cluster import watchdog
from legroom.cluster.reaching import parse_address, refuse_unreachable
from legroom.cluster.session import RayTimedOut, ray_nodes, ray_session, version_mismatch
from legroom.errors import BadInput, LegroomError

GIB = 1 << 30

# A worker that has started a process of its own, which Ray does not know.
USER = """
import subprocess, sys, time
import ray
from legroom.cluster.session import ray_session

with ray_session("local", num_cpus=1, memory_nbytes=1 << 30, object_store_nbytes=80 << 20) as session:
    @ray.remote
    def start():
        return subprocess.Popen(["sleep", "600"], start_new_session=True).pid
    print(session.folder, ray.get(start.remote()), flush=True)
    time.sleep(600)
"""


def test_a_local_session_declares_what_it_was_told_and_leaves_nothing() -> None:
    before = dict(os.environ)
    with ray_session("local", num_cpus=3, memory_nbytes=5 * GIB, object_store_nbytes=80 << 20) as session:
        assert session.folder is not None
        assert session.address.startswith("127.0.0.1:")
        (node,) = ray_nodes()
        has = node["Resources"]
        assert (node["Alive"], has["CPU"], has["memory"]) == (True, 3.0, 5 * GIB)
        assert has["object_store_memory"] == 80 << 20
        started = watchdog.members(str(session.folder), {os.getpid()})
        assert len(started) >= 3  # the control service, the raylet, an agent
        assert _others_can_reach(started) == []
    assert not session.folder.exists()
    assert watchdog.members(str(session.folder), {os.getpid()}) == set()
    assert dict(os.environ) == before


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_whatever_ends_the_user_ends_ray(number: signal.Signals) -> None:
    user = subprocess.Popen([sys.executable, "-c", USER], stdout=subprocess.PIPE, text=True)
    assert user.stdout is not None
    folder, stranger = user.stdout.readline().split()
    user.send_signal(number)
    user.wait()
    until = time.monotonic() + 10
    while time.monotonic() < until and (Path(folder).exists() or watchdog.members(folder, set())):
        time.sleep(0.2)
    assert watchdog.members(folder, set()) == set()
    assert not Path(folder).exists()
    assert not _is_running(int(stranger))


def test_an_exception_ends_ray_and_passes() -> None:
    folder = None
    with pytest.raises(KeyError), ray_session("local", num_cpus=1, object_store_nbytes=80 << 20) as session:
        folder = session.folder
        raise KeyError
    assert folder is not None and not folder.exists()
    assert watchdog.members(str(folder), {os.getpid()}) == set()


def test_no_cluster_at_an_address_is_one_line_within_seconds() -> None:
    with socket.socket() as held:  # bound, so that nobody else gets the port, and deaf
        held.bind(("127.0.0.1", 0))
        began = time.monotonic()
        with pytest.raises(BadInput, match=r"no Ray cluster at .*refused"), _to(held):
            pass
        held.listen()
        with pytest.raises(BadInput, match="answers, but not as a Ray cluster"), _to(held):
            pass
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("address", ["", "host:", "host:port", "http://host:1", "host:70000"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(BadInput, match="not an address of a Ray cluster"):
        refuse_unreachable(address)


def test_addresses() -> None:
    assert parse_address("head") == ("head", 6379)
    assert parse_address("ray://head") == ("head", 10001)
    assert parse_address("ray://10.0.0.1:77") == ("10.0.0.1", 77)
    assert parse_address("[::1]:6379") == ("::1", 6379)


def test_versions_that_differ_are_named() -> None:
    text = (
        "Version mismatch: The cluster was started with:\n    Ray: 2.9.0\n    Python: 3.11.4\n"
        "This process on node 1.2.3.4 was started with:\n    Ray: 2.60.0\n    Python: 3.11.4\n"
    )
    assert version_mismatch(text) == "runs Ray 2.9.0, this process Ray 2.60.0"
    assert version_mismatch("no route to host") is None


def _to(held: socket.socket):
    return ray_session(f"127.0.0.1:{held.getsockname()[1]}")


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _others_can_reach(pids: set[int]) -> list[str]:
    """Return the addresses besides loopback at which one of the processes listens."""
    sockets = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                sockets.add(str(link.readlink()))
            except OSError:
                continue
    loopback = ("0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000")
    open_ = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and f"socket:[{inode}]" in sockets and local.partition(":")[0] not in loopback:
                open_.append(local)
    return open_


def test_a_start_that_ray_gives_up_is_tried_again_and_any_other_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine Ray's processes need more than its half minute; a training would end as if it were wrong."""
    import ray

    from legroom.backends.rllib.training import failure_cause

    def raises(error: Exception) -> None:
        def init(**_: object) -> None:
            raise error

        monkeypatch.setattr(ray, "init", init)

    raises(Exception("The current node timed out during startup. This could happen because some of the raylet failed"))
    with pytest.raises(RayTimedOut, match="were not there in the time") as slow, ray_session():
        pass
    assert failure_cause(slow.value).kind == "worker-died"
    raises(RuntimeError("Failed to start the GCS"))
    with pytest.raises(LegroomError, match="Ray did not start here") as wrong, ray_session():
        pass
    assert failure_cause(wrong.value).kind == "refused"
