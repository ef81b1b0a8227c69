"""The power goes at every moment of a training: is the run folder whole, with every checkpoint that was synced?

A shim (io_faults.c) records what a training and its resume do to files. It is replayed up to every point, and the
folder rebuilt as a disk may show it afterwards: of names and contents that were not synced nothing is there, or
everything, or any mixture, also contents of the right length full of zeros. In each, the newest checkpoint that was
synced (or a later one) is verified, and run.json says what is trained; a sample is resumed to the same parameters.

    python -m bench.power_loss [EVERY]       every EVERY-th point; default 1
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.io_faults import BEFORE, Server, start_servers

MIXTURES = 3
RESUMED_EVERY = 40  # states
STEP = re.compile(r"/checkpoints/step-(\d+)$")


@dataclass
class File:
    """An inode: what was synced of it, and what was written since."""

    synced: bytes | None = None  # None: not even its size is known to the disk
    content: bytes = b""


@dataclass
class Folder:
    """An inode of a directory; its names are `Disk`'s."""

    names: dict[str, Any] = field(default_factory=dict)


@dataclass
class Change:
    """Names that change together: (folder, name, inode or None for none)."""

    names: list[tuple[Folder, str, Any]]
    synced: bool = False


@dataclass(frozen=True)
class Operation:
    kind: str
    path: str
    other: str
    data: bytes
    offset: int


class Disk:
    """Follows operations, and knows what a power loss may leave of them."""

    def __init__(self, root: str) -> None:
        self.root, self.top = root, Folder()
        self.changes: list[Change] = []
        self.synced_step = 0
        self._waiting_step = 0

    def follow(self, done: Operation) -> None:
        if done.kind in "ct":
            if done.kind == "c":
                self._change([(*self._place(done.path), File())])
            elif (file := self._find(done.path)) is not None:
                file.content = b""
        elif done.kind in "wz":
            self._write(done)
        elif done.kind == "m":
            self._change([(*self._place(done.path), Folder())])
        elif done.kind == "u":
            self._change([(*self._place(done.path), None)])
        elif done.kind == "l":
            self._change([(*self._place(done.other), self._find(done.path))])
        elif done.kind in "rx":
            self._rename(done)
        elif done.kind == "s":
            self._sync(done.path)

    def _rename(self, done: Operation) -> None:
        one, two = self._find(done.path), self._find(done.other)
        swapped = two if done.kind == "x" else None
        self._change([(*self._place(done.path), swapped), (*self._place(done.other), one)])
        if match := STEP.search(done.other):
            self._waiting_step = int(match[1])

    def _write(self, done: Operation) -> None:
        file = self._find(done.path)
        if not isinstance(file, File):
            return
        at = len(file.content) if done.offset < 0 else done.offset
        if done.kind == "z":
            file.content = file.content[:at].ljust(at, b"\0")
        else:
            file.content = file.content[:at].ljust(at, b"\0") + done.data + file.content[at + len(done.data) :]

    def _sync(self, path: str) -> None:
        inode = self._find(path)
        if isinstance(inode, File):
            inode.synced = inode.content
        elif inode is not None:
            for change in self.changes:
                change.synced |= any(folder is inode for folder, _, _ in change.names)
            if path.endswith("/checkpoints"):
                self.synced_step = max(self.synced_step, self._waiting_step)

    def _change(self, names: list[tuple[Folder, str, Any]]) -> None:
        self.changes.append(Change(names))
        _apply(names, lambda folder: folder.names)

    def _parts(self, path: str) -> list[str]:
        return [part for part in path.removeprefix(self.root).split("/") if part]

    def _place(self, path: str) -> tuple[Folder, str]:
        *way, name = self._parts(path)
        inode = self.top
        for part in way:
            inode = inode.names[part]
        return inode, name

    def _find(self, path: str) -> Any:
        inode: Any = self.top
        for part in self._parts(path):
            inode = inode.names.get(part) if isinstance(inode, Folder) else None
        return inode

    def after_power_loss(self, target: Path, how: str, dice: random.Random) -> None:
        """Write what the disk shows afterwards: "least", "most", or some of what was not synced."""
        names: dict[int, dict[str, Any]] = {}
        for change in self.changes:
            if change.synced or how == "most" or (how == "some" and dice.random() < 0.5):
                _apply(change.names, lambda folder: names.setdefault(id(folder), {}))
        contents: dict[int, bytes] = {}

        def show(folder: Folder, at: Path) -> None:
            at.mkdir(exist_ok=True)
            for name, inode in names.get(id(folder), {}).items():
                if isinstance(inode, Folder):
                    show(inode, at / name)
                else:
                    if id(inode) not in contents:
                        contents[id(inode)] = _content(inode, how, dice)
                    (at / name).write_bytes(contents[id(inode)])

        show(self.top, target)


def _apply(names: list[tuple[Folder, str, Any]], of: Any) -> None:
    for folder, name, inode in names:
        if inode is None:
            of(folder).pop(name, None)
        else:
            of(folder)[name] = inode


def _content(file: File, how: str, dice: random.Random) -> bytes:
    if how == "most" or file.synced == file.content:
        return file.content
    synced = file.synced or b""
    if how == "least":
        return synced
    if not file.content.startswith(synced):  # written over in place
        return dice.choice([synced, file.content])
    new = file.content[len(synced) :]
    cut = dice.randint(0, len(new))
    return synced + dice.choice([new[:cut], bytes(len(new)), new[:cut] + bytes(len(new) - cut)])


@dataclass
class Losses:
    """What came of the power losses of one training."""

    scenario: str
    operations: int = 0
    states: int = 0
    resumed: int = 0
    bad: list[str] = field(default_factory=list)


def operations(log: bytes) -> Iterator[Operation]:
    at = 0
    while at < len(log):
        end = log.index(b"\n", at)
        kind, *numbers = log[at:end].decode().split()
        one, two, length, offset = map(int, numbers)
        at = end + 1
        parts = log[at : at + one], log[at + one : at + one + two], log[at + one + two : at + one + two + length]
        at += one + two + length
        yield Operation(kind, parts[0].decode(), parts[1].decode(), parts[2], offset)


def lose_power(server: Server, scenario: str, every: int, seed: int = 1) -> Losses:
    """Record a training, and judge what every power loss during it leaves."""
    losses, dice = Losses(scenario), random.Random(seed)
    server.begin("start")
    (server.folder / "log").write_bytes(b"")
    if scenario == "resume":  # recorded from its very beginning, so that the disk knows what is there
        server.train(None, "--timesteps", str(BEFORE), armed=2)
    before = (server.folder / "log").stat().st_size if scenario == "resume" else 0
    code, said = server.train(None, armed=2)
    undisturbed = server.hash()
    if code or undisturbed is None:
        raise SystemExit(f"the undisturbed training failed ({code}):\n{said}")
    log = (server.folder / "log").read_bytes()
    skipped = len(list(operations(log[:before])))
    done = list(operations(log))
    losses.operations = len(done) - skipped
    disk = Disk(str(server.place))
    for name in ("tmp",):
        disk.top.names[name] = Folder()
    for number, operation in enumerate(done):
        disk.follow(operation)
        if number < skipped or number % every:
            continue
        for how in ("least", "most", *["some"] * MIXTURES):
            losses.states += 1
            shutil.rmtree(server.place)
            disk.after_power_loss(server.place, how, dice)
            _judge(server, losses, disk.synced_step, undisturbed, f"{scenario}, point {number}, {how}")
    return losses


def _judge(server: Server, losses: Losses, synced_step: int, undisturbed: str, where: str) -> None:
    from legroom.errors import LegroomError
    from legroom.training.checkpoint import newest_checkpoint
    from legroom.training.run_folder import RunFolder

    try:
        newest = newest_checkpoint(server.out)
        run = RunFolder(server.out).run() if server.out.is_dir() else None
    except LegroomError as error:
        losses.bad.append(f"{where}: {error}")
        return
    found = newest.step if newest is not None else 0
    if found < synced_step or (synced_step and run is None):
        losses.bad.append(f"{where}: step {synced_step} was synced, {found} is there, run.json: {run is not None}")
    if losses.states % RESUMED_EVERY == 0:
        (server.place / "tmp").mkdir(parents=True, exist_ok=True)
        losses.resumed += 1
        code, said = server.train(None)
        if code or server.hash() != undisturbed:
            losses.bad.append(f"{where}: resume ends with {code}, {server.hash()}: {said[-1500:]}")


def measure(folder: Path, *, every: int = 1) -> list[Losses]:
    """Record and judge in a server of its own; return what came of it."""
    return [Losses(**each) for each in start_servers("bench.power_loss", folder, every)]


def main(every: int) -> int:
    from bench.results import write_section

    with tempfile.TemporaryDirectory(prefix="power-loss-") as folder:
        found = measure(Path(folder), every=every)
    rows = []
    for losses in found:
        print(*losses.bad[:20], sep="\n")
        good = losses.states - len(losses.bad)
        rows.append([losses.scenario, losses.operations, f"{good} of {losses.states}", losses.resumed])
    columns = ["training", "file operations", "folders whole (required all)", "of these resumed to the end"]
    if every == 1:
        write_section("Power loss during a training", columns, rows, "make bench-io-faults")
    for row in rows:
        print(*row)
    return 1 if any(losses.bad for losses in found) else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        os.environ.pop("LD_PRELOAD", None)
        server = Server(Path(sys.argv[2]))
        print(json.dumps(asdict(lose_power(server, server.folder.name, int(sys.argv[3])))))
    else:
        sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1))
