"""Rehearses generated programs that write, rename and delete, and compares everything before and after.

    python -m bench.kept_files [--programs 200] [--seed 1] [--torch 6]

Each program is a seeded list of operations on a folder with files, folders, links, a database and an array, in Python
and (with overlays) by other programs, some of them by daemons that go on writing. Half run with overlays, half with
writes redirected inside Python. A program fails here if any hash, mode, time or inode differs afterwards, if a process,
shared memory or a temporary file is left, or if the program itself did not see what it had written.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from legroom.backends.program.rehearsing import RehearsalPlan, rehearse

# what an operation does with {f} (a file that is there), {d} (a folder that is there) and {n} (a new name)
PYTHON = (
    "open({f!r}, 'w').write('new'); assert open({f!r}).read() == 'new'",
    "open({f!r}, 'ab').write(b'more'); assert open({f!r}, 'rb').read().endswith(b'more')",
    "h = os.open({f!r}, os.O_RDWR | os.O_CREAT); os.pwrite(h, b'mid', 1); os.close(h)",
    "os.remove({f!r}); assert not os.path.exists({f!r})",
    "pathlib.Path({f!r}).unlink(); pathlib.Path({f!r}).write_text('again')",
    "os.rename({f!r}, {n!r}); assert os.path.exists({n!r}) and not os.path.lexists({f!r})",
    "open({n!r}, 'w').write('x'); os.replace({n!r}, {f!r}); assert open({f!r}).read() == 'x'",
    "shutil.rmtree({d!r}); assert not os.path.isdir({d!r}); os.makedirs({d!r}); assert os.listdir({d!r}) == []",
    "os.rename({d!r}, {n!r}); assert os.path.isdir({n!r}) and not os.path.exists({d!r})",
    "shutil.move({d!r}, {n!r}); os.mkdir({d!r})",
    "shutil.copytree({d!r}, {n!r}); assert sorted(os.listdir({n!r})) == sorted(os.listdir({d!r}))",
    "os.chmod({f!r}, 0o600); os.utime({f!r}, (5, 5)); assert os.stat({f!r}).st_mtime == 5",
    "os.truncate({f!r}, 2); assert os.path.getsize({f!r}) == 2",
    "os.symlink({f!r}, {n!r}); open({n!r}, 'a').write('through the link')",
    "os.link({f!r}, {n!r}); open({n!r}, 'a').write('both')",
    "b = sqlite3.connect('runs.db'); b.execute('insert into runs values (2)'); b.commit(); b.close()",
    "m = np.memmap('array.npy', 'u1', 'r+'); m[:8] = 7; m.flush(); assert np.fromfile('array.npy', 'u1')[3] == 7",
    "np.save({n!r} + '.npy', np.ones(9)); assert np.load({n!r} + '.npy').sum() == 9",
    "f = tempfile.NamedTemporaryFile(prefix='kept-', delete=False); f.write(b'x'); f.close(); os.path.getsize(f.name)",
    "t = tempfile.mkdtemp(prefix='kept-'); open(t + '/x', 'w').close(); shutil.rmtree(t); os.mkdir(t)",
    "json.dump([1], open({n!r}, 'w')); assert json.load(open({n!r})) == [1]",
    "for each in pathlib.Path({d!r}).rglob('*'): each.touch()",
    "os.chdir({d!r}); open('inside', 'w').close(); assert 'inside' in os.listdir('.'); os.chdir(TOP)",
    "s = shared_memory.SharedMemory(create=True, size=4096); s.buf[0] = 1; s.close(); forget(s)",
    "subprocess.run([sys.executable, '-c', \"open('child', 'w').write('c')\"], check=True); open('child').close()",
    "multiprocessing.get_context('fork').Process(target=lambda: open({f!r}, 'w').close()).start()",
    "subprocess.Popen([sys.executable, '-c', BEAT], start_new_session=True)",
)
OTHERS = (
    "subprocess.run(['sh', '-c', 'echo lost > \"{f}\"'], check=True); assert open({f!r}).read() == 'lost\\n'",
    "subprocess.run(['rm', '-r', {d!r}], check=True); assert not os.path.exists({d!r})",
    "subprocess.run(['mv', {f!r}, {n!r}], env={{}}, check=True); assert os.path.exists({n!r})",
    "subprocess.Popen(['sh', '-c', 'while true; do echo x >> \"{f}\"; sleep 0.05; done'], start_new_session=True)",
    "subprocess.run([sys.executable, '-I', '-c', \"open('isolated', 'w').close()\"], env={{}}, check=True)",
)
TORCH = """
import torch
net = torch.nn.Linear(8, 8)
net.load_state_dict(torch.load("best.pt"))
for step in range(3):
    net(torch.ones(2, 8)).sum().backward()
    torch.save(net.state_dict(), "best.pt"); torch.save(net.state_dict(), "last.pt")
    os.replace("last.pt", "best.pt")
net.load_state_dict(torch.load("best.pt"))
"""
HEAD = """
import json, multiprocessing, os, pathlib, shutil, sqlite3, subprocess, sys, tempfile
from multiprocessing import resource_tracker, shared_memory
TOP = os.getcwd()
BEAT = "import time  # {mark}\\nwhile True: open('beat', 'a').write('x'); time.sleep(0.05)"
def forget(s): resource_tracker.unregister("/" + s.name, "shared_memory")
"""


def made(folder: Path, *, with_torch: bool) -> None:
    """Make what a user has: files in folders, links, a database, an array and a checkpoint."""
    for name in ("a", "b", "b/c", "b/c/d", "runs"):
        (folder / name).mkdir()
        for number in range(3):
            (folder / name / f"file {number}.txt").write_text(f"{name} {number}\n" * (number * 50 + 1))
    (folder / "link").symlink_to("a/file 1.txt")
    (folder / "array.npy").write_bytes(bytes(4096))
    (folder / "a" / "file 2.txt").chmod(0o640)
    import sqlite3

    base = sqlite3.connect(folder / "runs.db")
    base.execute("create table runs (n)")
    base.commit()
    base.close()
    if with_torch:
        import torch

        torch.save(torch.nn.Linear(8, 8).state_dict(), folder / "best.pt")


def program(chosen: random.Random, writes: str, mark: str, *, with_torch: bool) -> str:
    """Return a program of up to ten operations, each on a file or folder that none before it took away."""
    files = [f"{name}/file {number}.txt" for name in ("a", "b", "b/c", "runs") for number in range(3)]
    folders = ["b/c/d", "b/c", "runs", "a"]
    operations = [*PYTHON, *(OTHERS if writes == "discarded" else ())]
    lines = []
    for at in range(chosen.randint(3, 10)):
        if not files or not folders:
            break
        file, folder = chosen.choice(files), chosen.choice(folders)
        line = chosen.choice(operations)
        lines.append(line.format(f=file, d=folder, n=f"new {at}"))
        if "{d" in line:
            folders = [each for each in folders if not each.startswith(folder) and not folder.startswith(each)]
            files = [each for each in files if not each.startswith(folder)]
        if "{f" in line:
            files.remove(file)
    numpy = "import numpy as np\n" if any("np." in line for line in lines) else ""

    return HEAD.replace("{mark}", mark) + numpy + "\n".join(lines) + (TORCH if with_torch else "") + "\n"


def state(folder: Path) -> dict[str, Any]:
    found = {}
    for path in sorted([folder, *folder.rglob("*")]):
        about = path.lstat()
        content = bytes(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        found[str(path)] = hashlib.sha256(content).hexdigest(), about.st_mode, about.st_mtime_ns, about.st_ino
    return found


def left(mark: str) -> list[str]:
    """Return processes of the program, and shared memory and temporary files of its kind."""
    found = [*map(str, Path("/dev/shm").glob("psm_*")), *map(str, Path(tempfile.gettempdir()).glob("kept-*"))]
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (entry / "cmdline").read_bytes():
                found.append(str(entry))
        except OSError:
            continue
    return found


def one(seed: int, writes: Any, *, with_torch: bool) -> list[str]:
    """Rehearse one program; return what is wrong."""
    mark = f"kept-files-{os.getpid()}-{seed}"
    folder = Path(tempfile.mkdtemp(prefix="bench-kept-"))
    try:
        made(folder, with_torch=with_torch)
        (folder / "program.py").write_text(program(random.Random(seed), writes, mark, with_torch=with_torch))
        before, others = state(folder), set(left(mark))
        os.chdir(folder)
        found = rehearse(
            [sys.executable, "program.py"], RehearsalPlan(None, seconds=60, writes=writes), output="kept"
        )  # fmt: skip
        os.chdir("/")
        after = state(folder)
        time.sleep(0.06)
        wrong = [f"{path} differs" for path in before.keys() | after if before.get(path) != after.get(path)]
        wrong += [f"{each} is left" for each in set(left(mark)) - others]
        wrong += [] if state(folder) == after else ["something still writes"]
        wrong += [] if found.stopped == "finished" else [f"{found.stopped}: {found.failure}"]
        wrong += [] if f"({'overlay' if writes == 'discarded' else 'no namespaces'}" in found.notes[-1] else ["not so"]
        return wrong
    finally:
        os.chdir("/")
        shutil.rmtree(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--torch", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    good: Counter[str] = Counter()
    began = time.monotonic()
    for number in range(options.programs):
        writes = ("discarded", "redirected")[number % 2]
        wrong = one(options.seed * 100_000 + number, writes, with_torch=number < options.torch)
        good[writes] += not wrong
        for each in wrong:
            print(f"program {options.seed * 100_000 + number} ({writes}): {each}", flush=True)
    counts = ", ".join(f"{writes} {count}" for writes, count in sorted(good.items()))
    took = f"{time.monotonic() - began:.0f} s"
    print(f"{sum(good.values())} of {options.programs} left everything as it was ({counts}), {took}")
    return int(sum(good.values()) != options.programs)


if __name__ == "__main__":
    sys.exit(main())
