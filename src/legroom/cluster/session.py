"""A Ray session that is surely gone afterwards: started on this machine alone, or joined and left running.

`local` starts Ray on the loopback interface, so that no port is open to others: Ray 2.60 turns 127.0.0.1 into the
machine's address unless it is told that there are no clusters (RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0, as on macOS). Its
files are in a folder of their own with a short name, since Ray's sockets lie in it and a socket's path may have 107
characters. A process of ours watches over it (`watchdog.py`). The access token, which Ray would write to the home
directory, is the session's own.

Ray's services end with the *thread* that called `ray.init` (the kernel's PR_SET_PDEATHSIG): enter a session in a thread
that lives as long as it.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import ray
from ray._private import ray_constants, services
from ray._raylet import AuthenticationTokenLoader  # type: ignore[attr-defined]  # its stub does not know it
from ray.job_config import JobConfig

from legroom.cluster import watchdog
from legroom.cluster.reaching import CLIENT, parse_address, refuse_unreachable
from legroom.errors import BadInput, LegroomError
from legroom.machine.temporary_folder import SHORT, temporary_folder

LOOPBACK = "127.0.0.1"
LONGEST_FOLDER = 40  # characters: leaves room for /session_DATE_PID/sockets/plasma_store within a socket's 107
WATCHDOG_TIMEOUT_S = watchdog.TERM_GRACE_S + watchdog.KILL_GRACE_S + 5.0
NO_CLUSTERS = ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR
TOKEN = "RAY_AUTH_TOKEN"
SET_BY_RAY = ("RAY_AUTH_MODE", "RAY_CLIENT_MODE", "PYTHONBREAKPOINT")  # in the environment of whoever calls ray.init


@dataclass(frozen=True)
class RaySession:
    """A Ray that this process is connected to."""

    address: str  # HOST:PORT of its head, or the ray:// address that was given
    folder: Path | None = None  # where its files are; None for one that was joined


class RayTimedOut(LegroomError):
    """A local Ray did not start in time: half a minute, which on a busy machine is too little now and then."""


@contextmanager
def ray_session(
    cluster: str = "local",
    *,
    num_cpus: int | None = None,
    memory_nbytes: int | None = None,
    object_store_nbytes: int | None = None,
    memory_monitor: bool = True,
) -> Iterator[RaySession]:
    """Connect to Ray, and leave nothing behind: what was started is ended, what was joined is left running.

    Args:
        cluster: `local` starts one on this machine; `auto` joins the one that runs here; or its address.
        num_cpus, memory_nbytes, object_store_nbytes: what the local node declares; None: Ray decides.
        memory_monitor: let Ray kill workers of a local session when the machine is nearly full, whoever filled it.

    Raises:
        BadInput: there is no cluster at the address, or it runs another version of Ray or Python.
        RayTimedOut: Ray did not start in time; the next time it may.
        LegroomError: Ray did not start.
    """
    if ray.is_initialized():
        raise LegroomError("this process is connected to a Ray cluster already: ray.shutdown() ends that")
    if cluster != "local":
        with _joined(cluster) as session:
            yield session
        return
    with temporary_folder(SHORT, _short_base()) as folder:
        dog = _watch(folder)
        try:
            token = os.environ.get(TOKEN) or secrets.token_hex(32)
            marks = ":".join(filter(None, [os.environ.get(watchdog.MARK), str(folder)]))
            settings: dict[str, str | None] = {TOKEN: token, watchdog.MARK: marks} | dict.fromkeys(SET_BY_RAY)
            if not memory_monitor:
                settings["RAY_memory_monitor_refresh_ms"] = "0"
            with environment(settings), _loopback(), _own_signals():
                _start(
                    address="local",
                    num_cpus=num_cpus,
                    object_store_memory=object_store_nbytes,
                    _memory=memory_nbytes,
                    _temp_dir=str(folder),
                    _node_ip_address=LOOPBACK,
                )
            yield RaySession(ray.get_runtime_context().gcs_address, folder)
        finally:
            # Kindly first; what does not go, and the folder, is the watchdog's.
            with _uninterrupted():
                with suppress(Exception):
                    ray.shutdown()
                _release(dog, folder)
                AuthenticationTokenLoader.instance().reset_cache()


def ray_nodes() -> list[dict[str, Any]]:
    """Return the nodes of the connected cluster, the dead ones too, in Ray's words."""
    nodes: Callable[[], list[dict[str, Any]]] = ray.nodes  # which has no annotations
    return nodes()


def find_cluster(cluster: str) -> str:
    """Return the address of the cluster that `auto` or an address means, having looked that it is there.

    Raises:
        BadInput: it is not, or this machine is not part of it.
    """
    address = _found() if cluster == "auto" else cluster
    refuse_unreachable(address)
    if not address.startswith(CLIENT) and not services.find_node_ids():
        raise BadInput(
            f"this machine is not a node of the Ray cluster at {address}",
            hint=f"ray start --address={address} makes it one; --cluster ray://HOST:10001 needs none",
        )
    return address


@contextmanager
def _joined(cluster: str) -> Iterator[RaySession]:
    address = find_cluster(cluster)
    is_here = parse_address(address)[0] in (LOOPBACK, "localhost", "::1")
    try:
        with _loopback(really=is_here), _own_signals():
            _start(address=address)
        yield RaySession(address)
    finally:
        with suppress(Exception):
            ray.shutdown()


def _found() -> str:
    """Return the address of the cluster that runs on this machine, or that RAY_ADDRESS names."""
    address = os.environ.get("RAY_ADDRESS") or services.get_ray_address_from_environment("auto", None)
    if not address or address == "auto":
        raise BadInput("no Ray cluster runs on this machine", hint="ray start --head starts one; --cluster local")
    return str(address)


def _start(**arguments: Any) -> None:
    """Call `ray.init`, quietly, and put into one line what it raises."""
    try:
        with environment({"RAY_USAGE_STATS_ENABLED": "0"}):
            given = {name: value for name, value in arguments.items() if value is not None}
            if arguments["address"] == "local":
                given["include_dashboard"] = False
            with _own_import_path():
                ray.init(**given, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray raises all kinds, and plain Exception where its processes are slow
        if arguments["address"] == "local" and "timed out" in str(error).lower():
            raise RayTimedOut("Ray's processes were not there in the time that it gives them") from error
        if not isinstance(error, ConnectionError | RuntimeError | ValueError | OSError):
            raise
        raise _in_one_line(arguments["address"], error) from error


@contextmanager
def _own_import_path() -> Iterator[None]:
    """Keep Ray from putting the working directory first in its workers' path: a torch.py there is not torch.

    What workers are to find there, PYTHONPATH names last.
    """
    serialize = JobConfig._serialize

    def without_folders(config: JobConfig) -> str:
        config._py_driver_sys_path = []
        return serialize(config)

    with mock.patch.object(JobConfig, "_serialize", without_folders):
        yield


def _in_one_line(address: str, error: Exception) -> LegroomError:
    mismatch = version_mismatch(str(error))
    if mismatch:
        return BadInput(f"the Ray cluster at {address} {mismatch}", hint="install the same versions here and there")
    what = "Ray did not start here" if address == "local" else f"no connection to the Ray cluster at {address}"
    words = " ".join(str(error.__cause__ or error).split())
    return LegroomError(f"{what}: {words[:300]}") if address == "local" else BadInput(f"{what}: {words[:300]}")


def version_mismatch(text: str) -> str | None:
    """Return which versions differ, as Ray's own words about it say; None where they are about something else."""
    rays, pythons = re.findall(r"Ray: (\S+)", text), re.findall(r"Python: (\S+)", text)
    if "ersion mismatch" not in text or len(rays) < 2 or len(pythons) < 2:
        return None
    pairs = [("Ray", rays), ("Python", pythons)]
    differ = [(name, there, here) for name, (there, here, *_) in pairs if there != here]
    there_words = " and ".join(f"{name} {there}" for name, there, _ in differ)
    return f"runs {there_words}, this process {' and '.join(f'{name} {here}' for name, _, here in differ)}"


def _short_base() -> str:
    """Return the folder for a session's own, which has to have a short path."""
    base = tempfile.gettempdir()
    return base if len(base) + len(f"/{SHORT}12345678") <= LONGEST_FOLDER else "/tmp"


def _watch(folder: Path) -> subprocess.Popen[bytes]:
    """Start the watchdog; it cleans up when the pipe to it closes, and in the environment of no session."""
    environment = {name: value for name, value in os.environ.items() if name != watchdog.MARK}
    return subprocess.Popen(
        [sys.executable, "-I", "-S", watchdog.__file__, str(os.getpid()), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )


def _release(dog: subprocess.Popen[bytes], folder: Path) -> None:
    assert dog.stdin is not None
    dog.stdin.close()
    try:
        dog.wait(WATCHDOG_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        dog.kill()
        dog.wait()
    if folder.exists():  # somebody ended the watchdog itself
        watchdog.end_session(str(folder), keep={os.getpid()})


@contextmanager
def environment(settings: Mapping[str, str | None]) -> Iterator[None]:
    """Set variables for a while; None leaves one as it is, and undoes what somebody sets meanwhile."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update({name: value for name, value in settings.items() if value is not None})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _loopback(*, really: bool = True) -> Iterator[None]:
    """Have Ray take the loopback interface for this machine's address."""
    if not really:
        yield
        return
    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        with environment({NO_CLUSTERS: "0"}):
            yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep this process's handling of SIGTERM, which `ray.init` replaces."""
    try:
        before = signal.getsignal(signal.SIGTERM)
        yield
    finally:
        with suppress(ValueError):  # not the main thread: nothing was replaced
            signal.signal(signal.SIGTERM, before)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Have a second Ctrl-C wait until everything is ended; it takes a few seconds at most."""
    try:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
