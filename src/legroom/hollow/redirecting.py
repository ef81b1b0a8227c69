"""Redirects what this interpreter writes to a layer, where the kernel allows no overlay.

Functions of `os`, `open`, sqlite3 and torch.save go there; a write of Python that came past them is refused (an audit
hook sees it). Programs that are not Python, and C libraries that open files themselves, write for real.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import shutil
import stat
import sys
from typing import Any, Callable

from .file_layer import SHARED, Entries, Entry, Layer, failure

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_LOOKS = ("stat", "access", "statvfs", "getxattr", "listxattr")
_LOOKS_AT_LINKS = ("lstat", "readlink")
_CHANGES = ("chmod", "chown", "utime", "truncate", "setxattr", "removexattr")
_MAKES = ("mkfifo", "mknod")
_AUDITED = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod",
            "os.chown", "os.utime")  # fmt: skip


class Redirection:
    """Puts functions that know of a layer in the place of Python's; `undo` takes them away again."""

    def __init__(self, folder: str) -> None:
        self.layer = Layer(folder)
        self._before: list[tuple[Any, str, Any]] = []
        self._os_open = os.open
        for names, how, follow in (
            (_LOOKS, self.layer.found, True), (_LOOKS_AT_LINKS, self.layer.found, False),
            (("chdir",), self.layer.entered, True),
            (_CHANGES, self.layer.own, True), (_MAKES, self.layer.place, False),
        ):  # fmt: skip
            for name in names:
                if hasattr(os, name):
                    self._replace(name, self._mapped(getattr(os, name), how, follow))
        for name in ("open", "rename", "link", "symlink", "listdir", "scandir", "getcwd"):
            self._replace(name, self._guarded(getattr(os, name), getattr(self, f"_{name}")))
        for name, own in (("unlink", self._remove), ("rmdir", self._remove), ("mkdir", self._mkdir)):
            self._replace(name, self._guarded(getattr(os, name), self._named(own)))
        for alias, name in (("remove", "unlink"), ("replace", "rename")):
            self._replace(alias, getattr(os, name))
        self._set(builtins, "open", self._guarded(builtins.open, self._python_open, counts_fd=True))
        self._set(io, "open", builtins.open)
        for place in (io, sys.modules["_io"]):  # with which modules are loaded
            self._set(place, "open_code", lambda path: builtins.open(path, "rb"))  # noqa: SIM115
        sys.addaudithook(self._audit)
        self._shared_memory()

    def undo(self) -> None:
        self.layer.on = False
        for place, name, value in reversed(self._before):
            setattr(place, name, value)

    def _set(self, place: Any, name: str, value: Any) -> None:
        self._before.append((place, name, getattr(place, name)))
        setattr(place, name, value)

    def _replace(self, name: str, value: Any) -> None:
        before = getattr(os, name)
        for known in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
            if before in known:
                known.add(value)
        self._set(os, name, value)
        posix = sys.modules.get("posix")
        if posix is not None and hasattr(posix, name):
            self._set(posix, name, value)

    def _mapped(self, original: Any, how: Callable[[str], str], follow: bool) -> Any:
        layer, looking = self.layer, (self.layer.found, self.layer.entered)

        def mapped(path: Any = ".", *args: Any, dir_fd: int | None = None, **kwargs: Any) -> Any:
            more = {} if dir_fd is None else {"dir_fd": dir_fd}
            if layer.busy or isinstance(path, int) or (layer.is_empty and how in looking):
                return original(path, *args, **more, **kwargs)
            name = layer.run(layer.name, path, dir_fd, follow and kwargs.get("follow_symlinks", True))
            if name is None:
                return original(path, *args, **more, **kwargs)
            actual = layer.run(how, name)
            if actual == name and dir_fd is None and layer.run(layer.is_outside, path):
                return original(path, *args, **kwargs)  # as it was asked for: an error says so
            return layer.run(original, actual, *args, **kwargs)

        mapped.__name__ = original.__name__
        return mapped

    def _guarded(self, original: Any, own: Any, counts_fd: bool = False) -> Any:
        """Return `own`, which gets `original` first and means real files; `original` alone inside of itself."""
        layer = self.layer

        def guarded(*args: Any, **kwargs: Any) -> Any:
            if layer.busy or (counts_fd and args and isinstance(args[0], int)):
                return original(*args, **kwargs)
            return layer.run(own, original, *args, **kwargs)

        guarded.__name__ = original.__name__
        return guarded

    def _named(self, own: Any) -> Any:
        """Return `own`, which gets the name that the program means as well, where that is not left as it is."""

        def named(original: Any, path: Any, *args: Any, dir_fd: int | None = None, **kwargs: Any) -> Any:
            name = self.layer.name(path, dir_fd, False)
            if name is None:
                return original(path, *args, **kwargs, **({} if dir_fd is None else {"dir_fd": dir_fd}))
            return own(original, name, path, *args, **kwargs)

        return named

    def _audit(self, event: str, args: Any) -> None:
        """Refuse what came past the functions above: better a program that fails than a file that is lost."""
        if not (event == "open" or event in _AUDITED) or self.layer.busy:
            return
        if event == "open" and not (isinstance(args[2], int) and args[2] & WRITING and not self._is_opening):
            return
        if isinstance(args[0], (str, bytes)) and self.layer.run(self.layer.name, args[0]) is not None:
            raise OSError(errno.EROFS, "a rehearsal without namespaces cannot redirect this", os.fsdecode(args[0]))

    @property
    def _is_opening(self) -> bool:
        return getattr(self.layer.here, "opening", False)

    def _open(self, original: Any, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        layer, name = self.layer, self.layer.name(path, dir_fd, not flags & os.O_NOFOLLOW)
        if name is None:
            if flags & WRITING and os.fsdecode(path).startswith(layer.root):  # temporary files
                layer.refuse_if_full(path)
            return original(path, flags, mode, **({} if dir_fd is None else {"dir_fd": dir_fd}))
        there = layer.found(name)
        if not flags & WRITING or (os.path.isdir(there) and not flags & getattr(os, "O_TMPFILE", 0)):
            return original(there, flags, mode)
        if os.path.lexists(there):
            if flags & os.O_EXCL and flags & os.O_CREAT:
                raise failure(errno.EEXIST, path)
            return original(layer.own(name, content=not flags & os.O_TRUNC), flags, mode)
        if not flags & os.O_CREAT:
            return original(there, flags, mode)
        return original(layer.place(name), flags, mode)

    def _python_open(self, original: Any, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if (len(args) > 5 and args[5] is not None) or kwargs.get("opener") is not None:
            self.layer.here.busy, self.layer.here.opening = False, True  # what opens it is the program's
            try:
                return original(file, mode, *args, **kwargs)
            finally:
                self.layer.here.opening = False
        kwargs["opener"] = lambda path, flags: self._open(self._os_open, path, flags, 0o666)
        return original(file, mode, *args[:5], **kwargs)

    def _remove(self, original: Any, name: str, path: Any) -> None:
        there, folder = self.layer.found(name), original.__name__ == "rmdir"
        if stat.S_ISDIR(os.lstat(there).st_mode) != folder:
            raise failure(errno.ENOTDIR if folder else errno.EISDIR, path)
        if folder and self.layer.names(name):
            raise failure(errno.ENOTEMPTY, path)
        self.layer.place(name)
        if there != name:
            original(there)
        self.layer.delete(name)

    def _mkdir(self, original: Any, name: str, path: Any, mode: int = 0o777) -> None:
        original(self._new(name, path), mode)

    def _new(self, name: str, path: Any) -> str:
        if os.path.lexists(self.layer.found(name)):
            raise failure(errno.EEXIST, path)
        return self.layer.place(name)

    def _rename(
        self, original: Any, src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        layer = self.layer
        old, new = layer.name(src, src_dir_fd, False), layer.name(dst, dst_dir_fd, False)
        if old is None and new is None:
            return original(src, dst)
        if old is None or new is None:
            raise failure(errno.EXDEV, src)
        os.lstat(layer.found(old))
        target = layer.found(new)
        if os.path.isdir(target) and not os.path.islink(target) and layer.names(new):
            raise failure(errno.ENOTEMPTY, dst)
        own, place = layer.all_of(old), layer.place(new)
        original(own, place)
        layer.delete(new)
        layer.delete(old)
        return None

    def _link(self, original: Any, src: Any, dst: Any, **kwargs: Any) -> None:
        old = self.layer.name(src, kwargs.pop("src_dir_fd", None), False)
        new = self.layer.name(dst, kwargs.pop("dst_dir_fd", None), False)
        if old is None or new is None:
            raise failure(errno.EXDEV, src)
        original(self.layer.own(old), self._new(new, dst), **kwargs)

    def _symlink(self, original: Any, src: Any, dst: Any, *args: Any, dir_fd: int | None = None, **kwargs: Any) -> None:
        name = self.layer.name(dst, dir_fd, False)
        self.layer._parents.clear()
        original(src, dst if name is None else self._new(name, dst), *args, **kwargs)

    def _listdir(self, original: Any, path: Any = None) -> list[Any]:
        name = self._folder(path)
        if name is None or self.layer.is_untouched(name):
            return original(path if name is None or self.layer.is_outside(path) else name)
        os.lstat(self.layer.found(name))
        found = self.layer.names(name)
        return [os.fsencode(each) for each in found] if isinstance(path, bytes) else found

    def _folder(self, path: Any) -> str | None:
        if isinstance(path, int):
            return self.layer.name(self.layer.meant(os.readlink(f"/proc/self/fd/{path}")))
        return self.layer.name("." if path is None else path)

    def _scandir(self, original: Any, path: Any = None) -> Any:
        name = self._folder(path)
        if name is None or self.layer.is_untouched(name):
            return original(path if name is None or self.layer.is_outside(path) else name)
        os.lstat(self.layer.found(name))
        shown = "." if path is None or isinstance(path, int) else os.fspath(path)
        return Entries(
            [
                Entry(
                    each, each if isinstance(path, int) else os.path.join(os.fsdecode(shown), each),
                    self.layer.found(os.path.join(name, each)),
                )
                for each in self.layer.names(name)
            ]
        )  # fmt: skip

    def _getcwd(self, original: Any) -> str:
        return self.layer.meant(original())

    def on_sqlite(self, module: Any) -> None:
        connect, layer = module.connect, self.layer

        def connected(database: Any, *args: Any, **kwargs: Any) -> Any:
            text = os.fsdecode(database)
            uri, path = text.startswith("file:"), text.partition("?")[0]
            path = path[5:] if uri else text
            if not path or path == ":memory:" or layer.busy or (name := layer.run(layer.name, path)) is None:
                return connect(database, *args, **kwargs)
            reading = uri and "mode=ro" in text
            actual = layer.run(layer.found if reading else layer.own, name)
            return layer.run(connect, text.replace(path, actual, 1), *args, **kwargs)

        self._set(module, "connect", connected)

    def on_torch(self, torch: Any) -> None:
        save, load, layer = torch.save, torch.load, self.layer

        def saved(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(f, (str, os.PathLike)):
                return save(obj, f, *args, **kwargs)
            with open(f, "wb") as file:
                return save(obj, file, *args, **kwargs)

        def loaded(f: Any, *args: Any, **kwargs: Any) -> Any:
            name = layer.run(layer.name, f) if isinstance(f, (str, os.PathLike)) and not layer.busy else None
            return load(f if name is None else layer.run(layer.found, name), *args, **kwargs)

        for place in (torch, torch.serialization):
            self._set(place, "save", saved)
            self._set(place, "load", loaded)

    def _shared_memory(self) -> None:
        """Note the names of shared memory that is made: what is left of it is removed at the end."""
        try:
            import _posixshmem
        except ImportError:
            return
        shm_open, layer = _posixshmem.shm_open, self.layer

        def opened(path: str, flags: int, *args: Any, **kwargs: Any) -> int:
            descriptor: int = shm_open(path, flags, *args, **kwargs)
            if flags & os.O_CREAT and layer.on:
                folder = os.path.join(layer.root, SHARED)
                layer.run(os.makedirs, folder, exist_ok=True)
                layer.run(open, os.path.join(folder, path.lstrip("/")), "w").close()
            return descriptor

        self._set(_posixshmem, "shm_open", opened)


def copying_renames() -> None:
    """Let folders be renamed that an overlay of an ordinary user refuses to: they are copied."""

    def copying(original: Any) -> Any:
        def rename(src: Any, dst: Any, **kwargs: Any) -> None:
            try:
                return original(src, dst, **kwargs)
            except OSError as error:
                if error.errno != errno.EXDEV or kwargs or not os.path.isdir(src) or os.path.islink(src):
                    raise
                if os.path.isdir(dst):
                    os.rmdir(dst)
                shutil.copytree(src, dst, symlinks=True)
            shutil.rmtree(src)
            return None

        return rename

    os.rename, os.replace = copying(os.rename), copying(os.replace)
