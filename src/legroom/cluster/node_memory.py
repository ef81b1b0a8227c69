"""Memory of one node of a cluster, also where several nodes are simulated on one machine.

The sum of PSS over the processes of a real node counts a library's page once, however many of the node's processes
map it. On a machine that pretends to be several nodes, the kernel divides the same page among the processes of all of
them, and of everybody else's, so PSS is too small. What is counted here is what a real node's sum of PSS would be:

- anonymous memory of every process, by `Pss_Anon` (a forked process and its parent share pages inside a node);
- pages of mapped files once per node: of every file, as many as the process of the node with the most of them has.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
KIB = 1024
SHARED_MEMORY = ("/dev/shm/", "/memfd:")


@dataclass(frozen=True)
class NodeMemory:
    """Bytes of a node's processes: written by themselves, and of mapped files (once)."""

    anon: int
    files: int


def node_memory(pids: Iterable[int], *, proc: Path = PROC) -> NodeMemory:
    """Return what these processes hold together; those that have ended hold nothing."""
    processes = list(pids)
    files: dict[str, int] = {}
    for pid in processes:
        for path, nbytes in file_pages(pid, proc=proc).items():
            files[path] = max(files.get(path, 0), nbytes)
    anon = sum(anonymous_nbytes(pid, proc=proc) for pid in processes)
    return NodeMemory(anon, sum(files.values()))


def anonymous_nbytes(pid: int, *, proc: Path = PROC) -> int:
    """Return the anonymous bytes of one process, those shared with a forked one by half."""
    try:
        lines = (proc / str(pid) / "smaps_rollup").read_bytes().splitlines()
    except OSError:
        return 0
    fields = {name: int(rest.split()[0]) * KIB for name, _, rest in (line.partition(b":") for line in lines[1:])}
    return fields.get(b"Pss_Anon", fields.get(b"Anonymous", 0))


def file_pages(pid: int, *, proc: Path = PROC) -> dict[str, int]:
    """Return the resident, unwritten bytes of every file that a process maps; shared memory is none of them."""
    found: dict[str, int] = {}
    try:
        text = (proc / str(pid) / "smaps").read_text()
    except OSError:
        return found
    path, resident = "", 0
    for line in text.splitlines():
        name, *rest = line.split(None, 5)
        if not name.endswith(":"):
            path = rest[4] if len(rest) > 4 and rest[4].startswith("/") else ""
            path = "" if path.startswith(SHARED_MEMORY) else path
        elif path and name == "Rss:":
            resident = int(rest[0]) * KIB
        elif path and name == "Anonymous:":  # pages of a private mapping that were written to
            found[path] = found.get(path, 0) + resident - int(rest[0]) * KIB
    return found
