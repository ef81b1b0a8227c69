"""Files that a program changed, in a folder that is thrown away, and what it sees of those that are there.

`layer/files/home/me/best.pt` is what the program sees as `/home/me/best.pt` once it wrote it: a file is copied there
before it is changed. `layer/gone/home/me/old/.gone` says that what was there is not any more, nor anything below it.
All interpreters of a program share the layer.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import threading
from typing import Any, Callable

GONE, FULL, SHARED = ".gone", "full", "shm"
AS_THEY_ARE = ("/dev", "/proc", "/sys", "/run")


def shared_memory_made(folder: Any) -> list[str]:
    """Return the names of shared memory that interpreters with a layer in this rehearsal's folder have made."""
    try:
        return os.listdir(os.path.join(folder, "layer", SHARED))
    except OSError:
        return []


def failure(number: int, path: Any) -> OSError:
    """Return the error that the kernel would answer with."""
    return OSError(number, os.strerror(number), path)


def _exists(path: str, look: Any = os.stat) -> bool:
    try:
        look(path)
    except OSError:
        return False
    return True


class Layer:
    """What the program sees instead of files that it changed.

    Args:
        folder: of the rehearsal; what is written to it itself is not redirected.
    """

    def __init__(self, folder: str) -> None:
        self.folder = os.path.realpath(folder)
        self.root = os.path.join(self.folder, "layer")
        self.files, self.gone = os.path.join(self.root, "files"), os.path.join(self.root, "gone")
        self.here = threading.local()
        self.on = self._empty = True
        self._parents: dict[str, str] = {}
        os.makedirs(self.root, exist_ok=True)

    @property
    def is_empty(self) -> bool:
        """Whether the program has changed nothing yet."""
        if self._empty:
            self._empty = not (_exists(self.files) or _exists(self.gone))
        return self._empty

    @property
    def busy(self) -> bool:
        return not self.on or getattr(self.here, "busy", False)

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function that means real files."""
        self.here.busy, before = True, getattr(self.here, "busy", False)
        try:
            return function(*args, **kwargs)
        finally:
            self.here.busy = before

    def name(self, path: Any, folder: int | None = None, follow: bool = True) -> str | None:
        """Return the path that the program means, absolute and without links; None where it stays what it is."""
        if isinstance(path, int) or not path:
            return None
        text = os.fsdecode(path)
        if not os.path.isabs(text):
            base = os.readlink(f"/proc/self/fd/{folder}") if folder is not None else os.getcwd()
            text = os.path.join(self.meant(base), text)
        text = os.path.abspath(text)
        if text.startswith(self.files + "/"):
            text = self.meant(text)
        parent, last = os.path.split(text)
        if parent not in self._parents:
            self._parents[parent] = os.path.realpath(parent)
        text = os.path.join(self._parents[parent], last)
        if follow and os.path.islink(self.found(text)):
            text = self.meant(os.path.realpath(self.found(text)))
        kept = text == self.folder or text.startswith(self.folder + "/")
        special = text.startswith(tuple(each + "/" for each in AS_THEY_ARE)) and not text.startswith("/dev/shm/")
        return None if kept or special or text in AS_THEY_ARE else text

    def meant(self, path: str) -> str:
        return path[len(self.files) :] or "/" if (path + "/").startswith(self.files + "/") else path

    def hidden(self, name: str) -> bool:
        """Return whether the program deleted what is there, or a folder above."""
        at = self.gone
        for part in ["", *name.split("/")[1:]]:
            at = os.path.join(at, part)
            if os.path.exists(os.path.join(at, GONE)):
                return True
            if not os.path.isdir(at):
                return False
        return False

    def found(self, name: str) -> str:
        """Return the file to look at: that of the layer, or the one that is there."""
        own = self.files + name
        return own if os.path.lexists(own) or self.hidden(name) else name

    def entered(self, name: str) -> str:
        """Return the folder to work in: the real one where there is one, which programs that are not Python see."""
        return name if os.path.isdir(name) and not self.hidden(name) else self.found(name)

    def is_outside(self, path: Any) -> bool:
        """Return whether a path that is not of the layer can be used as it is."""
        return isinstance(path, int) or os.path.isabs(path or ".") or self.meant(os.getcwd()) == os.getcwd()

    def delete(self, name: str) -> None:
        self._parents.clear()
        if os.path.lexists(name) and not self.hidden(name):
            os.makedirs(self.gone + name, exist_ok=True)
            open(os.path.join(self.gone + name, GONE), "w").close()

    def place(self, name: str) -> str:
        """Return where to make something; its folder is there where the program sees one."""
        parent = os.path.dirname(name)
        self.refuse_if_full(name)
        if not os.access(self.found(parent), os.W_OK) and os.path.isdir(self.found(parent)):
            raise failure(errno.EACCES, name)
        if os.path.isdir(self.found(parent)):
            self._folders(parent)
        return self.files + name

    def refuse_if_full(self, path: str) -> None:
        if os.path.exists(os.path.join(self.root, FULL)):
            raise failure(errno.ENOSPC, path)

    def _folders(self, name: str) -> None:
        if not os.path.isdir(self.files + name):
            if name != "/":
                self._folders(os.path.dirname(name))
            os.makedirs(self.files + name, exist_ok=True)  # another process of the program may just have made it
            if os.path.isdir(name):
                shutil.copystat(name, self.files + name)
                os.chmod(self.files + name, stat.S_IMODE(os.stat(name).st_mode) | 0o700)

    def own(self, name: str, content: bool = True) -> str:
        """Return the layer's file, copied there if it is not yet; without content where that is replaced anyway."""
        seen = self.found(name)
        if seen == self.files + name:
            return self.place(name) if not os.path.lexists(seen) else seen
        if not os.path.lexists(seen):
            return self.place(name)
        if not os.access(seen, os.W_OK) and not os.path.islink(seen):
            raise failure(errno.EACCES, name)
        if os.path.isdir(seen) and not os.path.islink(seen):
            self._folders(name)
        else:
            self._folders(os.path.dirname(name))
            if content or not os.path.isfile(seen):
                shutil.copy2(seen, self.files + name, follow_symlinks=False)
            else:
                open(self.files + name, "w").close()
                shutil.copymode(seen, self.files + name)
        return self.files + name

    def names(self, name: str) -> list[str]:
        """Return what the program sees in a folder."""
        seen = set(os.listdir(self.files + name)) if os.path.isdir(self.files + name) else set()
        if not self.hidden(name) and os.path.isdir(name):
            marks = self.gone + name
            seen |= {each for each in os.listdir(name) if not os.path.exists(os.path.join(marks, each, GONE))}
        return sorted(seen)

    def is_untouched(self, name: str) -> bool:
        return not (os.path.isdir(self.files + name) or os.path.isdir(self.gone + name) or self.hidden(name))

    def all_of(self, name: str) -> str:
        """Return the layer's folder with all that the program sees in it."""
        own = self.own(name)
        for each in self.names(name) if os.path.isdir(own) and not os.path.islink(own) else ():
            self.all_of(os.path.join(name, each))
        return own


class Entry:
    """An entry of a folder that the layer changed, as `os.DirEntry`."""

    def __init__(self, name: str, path: Any, actual: str) -> None:
        self.name, self.path, self._actual = name, path, actual

    def __fspath__(self) -> Any:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"

    def _mode(self, follow: bool) -> int:
        try:
            return self.stat(follow_symlinks=follow).st_mode
        except OSError:
            return 0

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return stat.S_ISDIR(self._mode(follow_symlinks))

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return stat.S_ISREG(self._mode(follow_symlinks))

    def is_symlink(self) -> bool:
        return stat.S_ISLNK(self._mode(False))

    def is_junction(self) -> bool:
        return False

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        linked = follow_symlinks and os.path.islink(self._actual)
        return os.stat(self.path if linked else self._actual, follow_symlinks=follow_symlinks)

    def inode(self) -> int:
        return self.stat(follow_symlinks=False).st_ino


class Entries(contextlib.AbstractContextManager["Entries"]):
    """What `os.scandir` returns."""

    def __init__(self, entries: list[Entry]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> Entries:
        return self

    def __next__(self) -> Entry:
        return next(self._entries)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries = iter(())
