"""Stands between legroom and a rehearsed command: `python -I -S launcher.py SPEC`. It imports nothing of legroom.

- What the command writes, renames and deletes goes to a layer that is thrown away: it runs in a mount namespace (in a
  user namespace too, where the user may not mount) in which everything writable has an overlay over it. The layers are
  on a tmpfs, which bounds them and which the kernel frees with the last process. Another one has what the command
  writes to memory, `/dev/shm` and the like. What cannot have an overlay is read-only. The rehearsal's folder is shared.
- What the command starts stays below this process, also daemons (it is their reaper), and all of it is ended when the
  command is, when the pipe from legroom is closed, or when legroom is killed, which closes it.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

POLITE_S = 2.0  # between SIGTERM and SIGKILL
GIVE_UP_S = 30.0  # a process that the kernel does not let go
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE, MNT_DETACH = 1, 32, 4096, 16384, 1 << 18, 2
FLAGS = {"nosuid": 2, "nodev": 4, "noexec": 8, "noatime": 1024, "nodiratime": 2048, "relatime": 1 << 21}
# of the kernel and of the system's services, no place for files; devices cannot be opened through an overlay
AS_THEY_ARE = ("/proc", "/sys", "/dev", "/run", "/var/run")
IN_MEMORY = ("tmpfs", "ramfs")
MOST_LOOKED_AT = 1000
PTH = "legroom_rehearsal.pth"


def _libc(name: str, *arguments: Any) -> None:
    words = [word.encode() if isinstance(word, str) else word for word in arguments]
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*words) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def _mount(source: str, target: str, kind: str | None = None, flags: int = 0, options: str | None = None) -> None:
    _libc("mount", source, target, kind, ctypes.c_ulong(flags), options)


def _is_below(path: str, folder: str) -> bool:
    return path != folder and path.startswith(folder.rstrip("/") + "/")


def _stays(path: str) -> bool:
    return any(path == each or _is_below(path, each) for each in AS_THEY_ARE)


def _mounts() -> dict[str, tuple[str, list[str]]]:
    """Return the kind and the options of what is mounted, by place, in the order in which it was."""
    found: dict[str, tuple[str, list[str]]] = {}
    with open("/proc/self/mountinfo", "rb") as file:
        for line in file:
            fields, _, rest = line.partition(b" - ")
            place, options = fields.split()[4:6]
            path = os.fsdecode(place.decode("unicode_escape").encode("latin-1"))
            found.pop(path, None)
            found[path] = rest.split()[0].decode(), options.decode().split(",")
    return found


class FileView:
    """The file system as the command sees it: `root` is put together from what is there, and then entered."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec
        self._new, self._layers = (os.path.join(spec["folder"], name) for name in ("view", "layers"))
        self._count = 0
        self.privileged = self._unshared()
        if not self.privileged and _has_foreign(spec["cwd"]):
            raise OSError("files of other users or groups cannot be copied into a layer by an ordinary user")
        _mount("none", "/", None, MS_REC | MS_PRIVATE)
        self._mounted = _mounts()
        for name, nbytes in (("files", spec["layer"]), ("memory", _size_of_memory())):
            path = os.path.join(self._layers, name)
            os.makedirs(path)
            _mount("legroom", path, "tmpfs", 0, f"size={nbytes},mode=700")
            if not self.privileged:  # before Linux 6.6 a folder that was removed could not be made again
                os.setxattr(path, "user.overlay.legroom", b"1")
        os.mkdir(self._new)
        _mount("/", self._new, None, MS_BIND | MS_REC)
        self._cover("/", "files")
        if os.path.isdir("/dev/shm"):
            self._cover("/dev/shm", "memory")
        for path in (spec["folder"], *_sockets()):
            _mount(path, self._new + path, None, MS_BIND)
        self._plant()

    def _unshared(self) -> bool:
        """Leave the mount namespace; return whether that was possible as who we are."""
        uid, gid = os.geteuid(), os.getegid()
        try:
            _libc("unshare", CLONE_NEWNS)
            return True
        except OSError:
            _libc("unshare", CLONE_NEWUSER | CLONE_NEWNS)
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
        return False

    def _cover(self, path: str, layer: str) -> None:
        """Put overlays over a folder and what is mounted in it.

        Who may not mount may not see what is below a mount either: a folder that has one inside has its folders covered
        one by one, and is itself read-only.
        """
        kind, options = self._mounted.get(path, ("", []))
        layer = "memory" if kind in IN_MEMORY else "files" if kind else layer
        inside = [each for each in self._mounted if _is_below(each, path)]
        covered = "ro" not in options and (self.privileged or not inside) and self._overlay(path, layer)
        if self.privileged:
            if not covered:
                _mount(path, self._new + path, None, MS_BIND)
            for each in _highest([each for each in inside if _stays(each)]):
                _mount(each, self._new + each, None, MS_BIND | MS_REC)
            below = _highest([each for each in inside if not _stays(each)])
        else:
            below = [os.path.join(path, name) for name in _names(path)] if inside else []
        for each in below:
            if not _stays(each) and (each in self._mounted or (os.path.isdir(each) and not os.path.islink(each))):
                self._cover(each, layer)
        if path in self._mounted and not covered and "ro" not in options:
            flags = sum(FLAGS.get(option, 0) for option in options)
            _mount("none", self._new + path, None, MS_REMOUNT | MS_BIND | MS_RDONLY | flags)

    def _overlay(self, path: str, layer: str) -> bool:
        """Put an overlay over a folder; return False where its file system has none."""
        self._count += 1
        upper, work = (os.path.join(self._layers, layer, f"{self._count}-{name}") for name in ("upper", "work"))
        os.mkdir(work)
        self._like(path, upper)
        if not self.privileged:  # a folder of somebody else cannot be copied up: those in use are there from the start
            for each in (self._spec["cwd"], *self._spec["sites"], "/var/tmp", os.path.expanduser("~")):
                for folder in _from(path, each):
                    self._like(folder, upper + folder[len(path.rstrip("/")) :])
        kind = "redirect_dir=on" if self.privileged else "userxattr"
        places = [each.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,") for each in (path, upper, work)]
        options = "lowerdir={},upperdir={},workdir={},".format(*places) + kind
        try:
            _mount("legroom", self._new + path, "overlay", 0, options)
        except OSError:
            return False
        return True

    @staticmethod
    def _like(path: str, made: str) -> None:
        """Make a folder of a layer with the mode of the one that it lies over."""
        if os.path.isdir(made):
            return
        os.mkdir(made)
        about = os.stat(path)
        os.chmod(made, about.st_mode & 0o7777 | (0o700 if os.access(path, os.W_OK) else 0))
        with suppress(OSError):
            os.chown(made, about.st_uid, about.st_gid)
        os.utime(made, ns=(about.st_atime_ns, about.st_mtime_ns))

    def _plant(self) -> None:
        """Let interpreters in that ignore their variables, or were started without ours."""
        for site in self._spec["sites"]:
            with suppress(OSError):
                shutil.copy(os.path.join(self._spec["folder"], PTH), self._new + site)

    def enter(self) -> None:
        os.chdir(self._new)
        try:
            _libc("pivot_root", ".", ".")
            _libc("umount2", ".", MNT_DETACH)
        except OSError:
            os.chroot(".")
        os.chdir(self._spec["cwd"])


def _from(top: str, path: str) -> Iterator[str]:
    """Yield the folders below `top` on the way to a path and the path, where it is below."""
    if not _is_below(path, top):
        return
    rest = path[len(top.rstrip("/")) + 1 :].split("/")
    for count in range(1, len(rest) + 1):
        yield os.path.join(top, *rest[:count])


def _sockets() -> Iterator[str]:
    """Yield the sockets that somebody listens at, which cannot be reached through an overlay."""
    with open("/proc/net/unix", "rb") as file:
        for fields in (line.split(None, 7) for line in file):
            path = os.fsdecode(fields[7].strip()) if len(fields) == 8 and fields[3] == b"00010000" else ""
            if path.startswith("/") and not _stays(path) and os.path.exists(path):
                yield path


def _highest(paths: list[str]) -> list[str]:
    return [path for path in paths if not any(_is_below(path, other) for other in paths)]


def _names(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def _has_foreign(path: str) -> bool:
    """Return whether a folder or a file in it may be written here and belongs to somebody else."""
    uid, gid = os.geteuid(), os.getegid()
    for each in [path, *(os.path.join(path, name) for name in _names(path)[:MOST_LOOKED_AT])]:
        with suppress(OSError):
            about = os.lstat(each)
            if (about.st_uid != uid or about.st_gid != gid) and os.access(each, os.W_OK):
                return True
    return False


def _size_of_memory() -> int:
    """Return how much may be in /dev/shm."""
    try:
        about = os.statvfs("/dev/shm")
    except OSError:
        return 64 << 20
    return max(about.f_bavail * about.f_frsize, 1 << 20)


def _begin(command: list[str], spec: dict[str, Any], told: int) -> None:
    """Become the command, and tell why if that fails."""
    try:
        os.setsid()
        if spec["files"] == "discarded":
            try:
                FileView(spec).enter()
            except (OSError, AttributeError) as error:  # AttributeError: a C library without these functions
                _tell(told, no_view=str(error))
                os._exit(127)
        if spec["files"] == "redirected":  # temporary files are handed to programs that are not Python
            os.environ["TMPDIR"] = os.path.join(spec["folder"], "layer", "tmp")
            os.makedirs(os.environ["TMPDIR"])
        os.environ["LEGROOM_REHEARSAL_FILES"] = spec["files"]
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        if sys.platform.startswith("linux"):
            _libc("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)
        os.execvp(command[0], command)
    except BaseException as error:
        _tell(told, error=getattr(error, "strerror", None) or str(error))
    finally:
        os._exit(127)


def _tell(told: int, **content: Any) -> None:
    os.write(told, json.dumps(content).encode() + b"\n")


def _descendants() -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    parent = file.read().rpartition(b")")[2].split()[1]
            except OSError:
                continue
            children.setdefault(int(parent), []).append(int(entry))
    found, queue = [], [os.getpid()]
    while queue:
        queue += children.get(queue[0], [])
        found.append(queue.pop(0))
    return found[1:]


def _signal_all(number: int, command: int) -> None:
    try:
        there = _descendants()
    except OSError:  # no /proc: the command's own group
        there = [-command]
    for pid in there:
        try:
            os.kill(pid, number)
        except OSError:
            continue


class Launcher:
    """The command and all that it starts."""

    def __init__(self, command: list[str], spec: dict[str, Any]) -> None:
        self._status: int | None = None
        self._alone = False
        self.answer: dict[str, Any] = {}
        while not self.answer:
            reading, told = os.pipe()
            self._pid = os.fork()
            if self._pid == 0:
                _begin(command, spec, told)
            os.close(told)
            with open(reading, "rb") as file:
                said = json.loads(file.read() or b"{}")  # nothing, once the command has begun
            if "no_view" in said and not spec["isolated"]:
                os.waitpid(self._pid, 0)
                spec = {**spec, "files": "redirected"}
            else:
                self.answer = {"pid": self._pid, "files": spec["files"], **said}

    def _reap(self) -> None:
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._pid:
                    self._status = status
        except ChildProcessError:  # it adopts orphans, so there is nobody left at all
            self._alone = True

    def follow(self, life: int, wake: int) -> None:
        """Return when the command has ended, or is to end."""
        while self._status is None:
            ready = select.select([life, wake], [], [])[0]
            if life in ready or any(number != signal.SIGCHLD for number in os.read(wake, 64)):
                return
            self._reap()

    def end(self) -> None:
        """End all that is left: politely where the command still runs, and then for certain."""
        self._reap()
        polite = time.monotonic() + POLITE_S
        if self._status is None:
            _signal_all(signal.SIGTERM, self._pid)
            while not self._alone and time.monotonic() < polite:
                time.sleep(0.02)
                self._reap()
        until = time.monotonic() + GIVE_UP_S
        while not self._alone and time.monotonic() < until:
            _signal_all(signal.SIGKILL, self._pid)
            time.sleep(0.005)
            self._reap()

    def leave(self) -> None:
        """End as the command did."""
        status = self._status or 0
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            if number != signal.SIGKILL:
                signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        os._exit(os.WEXITSTATUS(status))


def main() -> None:
    spec: dict[str, Any] = json.loads(sys.argv[1])
    life, told = spec["pipes"]
    for descriptor in (life, told):
        os.set_inheritable(descriptor, False)
    if sys.platform.startswith("linux"):
        _libc("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wake, waking = os.pipe()
    for descriptor in (wake, waking):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(waking)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    parent = os.getppid()
    launcher = Launcher(sys.argv[2:], spec)
    _tell(told, **launcher.answer)
    os.close(told)
    launcher.follow(life, wake)
    launcher.end()
    if os.getppid() != parent:  # legroom was killed
        shutil.rmtree(spec["folder"], ignore_errors=True)
    launcher.leave()


if __name__ == "__main__":
    main()
