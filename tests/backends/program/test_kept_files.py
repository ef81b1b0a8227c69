"""A rehearsal leaves the user's files, processes and shared memory as they were, with overlays and without them."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from legroom.backends.program.rehearsing import RehearsalPlan, rehearse
from legroom.model.rehearsal import Rehearsal

BOTH = pytest.mark.parametrize("writes", ["discarded", "redirected"])
BOTH_SLOWLY = pytest.mark.parametrize("writes", ["discarded", pytest.param("redirected", marks=pytest.mark.slow)])


def state(folder: Path) -> dict[str, Any]:
    """Return what a user could notice of all that is in a folder."""
    found = {}
    for path in sorted([folder, *folder.rglob("*")]):
        about = path.lstat()
        content = bytes(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        found[str(path)] = (hashlib.sha256(content).hexdigest(), about.st_mode, about.st_mtime_ns, about.st_ino)
    return found


def left_behind() -> list[Path]:
    return [*Path("/dev/shm").glob("psm_*"), *Path("/dev/shm").glob("mine-*"), *Path("/tmp").glob("mine-*")]


def rehearsed(folder: Path, body: str, writes: Any = "discarded", *, seconds: float = 30.0, **how: Any) -> Rehearsal:
    """Rehearse a program in a folder that holds a checkpoint, a log, a database, old runs and a link."""
    if not (folder / "best.pt").exists():
        (folder / "best.pt").write_bytes(b"trained for a week")
        (folder / "log.txt").write_text("epoch 1\n")
        (folder / "old").mkdir()
        (folder / "old" / "run.json").write_text("{}")
        (folder / "old" / "deep").mkdir()
        (folder / "old" / "deep" / "x").write_text("x")
        (folder / "link.txt").symlink_to("log.txt")
    (folder / "program.py").write_text(body)
    before, others = state(folder), set(left_behind())
    here = Path.cwd()
    os.chdir(folder)
    try:
        plan = RehearsalPlan(None, seconds=seconds, writes=writes, **how)
        found = rehearse([sys.executable, "program.py"], plan, output="kept")
    finally:
        os.chdir(here)
    assert state(folder) == before
    assert set(left_behind()) <= others
    return found


WRITES = """
import glob, json, os, pathlib, shutil, sqlite3, tempfile
with open("best.pt", "wb") as file: file.write(b"new")
assert open("best.pt", "rb").read() == b"new" and os.path.getsize("best.pt") == 3
with open("log.txt", "a") as file: file.write("epoch 2\\n")
assert pathlib.Path("link.txt").read_text() == "epoch 1\\nepoch 2\\n"
assert sorted(os.listdir("old")) == ["deep", "run.json"]
pathlib.Path("old/run.json").unlink()
assert os.listdir("old") == ["deep"] and not os.path.exists("old/run.json")
os.rename("old", "older")
assert not os.path.isdir("old") and open("older/deep/x").read() == "x"
os.makedirs("old/deep")
assert os.listdir("old/deep") == [] and [each.name for each in os.scandir("old")] == ["deep"]
shutil.rmtree("older")
assert not glob.glob("older*") and "older" not in os.listdir(".")
pathlib.Path("a/b").mkdir(parents=True)
pathlib.Path("a/b/c.json").write_text(json.dumps({"n": 1}))
os.replace("a/b/c.json", "best.pt")
assert json.load(open("best.pt")) == {"n": 1}
os.chmod("log.txt", 0o600); os.utime("log.txt", (1, 1)); os.truncate("log.txt", 3)
assert os.stat("log.txt").st_size == 3 and oct(os.stat("log.txt").st_mode)[-3:] == "600"
os.symlink("log.txt", "other"); os.link("log.txt", "hard")
assert open("other").read() == open("hard").read() == "epo"
with sqlite3.connect("runs.db") as base:
    base.execute("create table runs (n)"); base.execute("insert into runs values (7)")
base.close()
assert sqlite3.connect("runs.db").execute("select n from runs").fetchone() == (7,)
with tempfile.NamedTemporaryFile(prefix="mine-", delete=False) as file: file.write(b"x")
assert open(file.name).read() == "x"
with tempfile.TemporaryDirectory(prefix="mine-") as folder:
    shutil.copytree("a", folder + "/a"); shutil.move(folder + "/a", "moved")
assert os.path.isdir("moved/b")
os.chdir("a"); pathlib.Path("here").touch()
assert os.path.exists("../a/here") and os.getcwd().endswith("/a"); os.chdir("..")
os.chdir("a/b"); assert os.path.exists("../../link.txt") and "old" in os.listdir("../.."); os.chdir("../..")
os.chdir("old"); os.chdir(".."); assert os.path.isdir("old")
try: os.mkdir("a"); raise SystemExit("made twice")
except FileExistsError: pass
try: os.rmdir("a"); raise SystemExit("not empty")
except OSError: pass
try: open("nowhere/x", "w"); raise SystemExit("no folder")
except FileNotFoundError: pass
pathlib.Path("written.py").write_text("value = 5")
import written
assert written.value == 5
names = set(os.listdir(".")) - {"__pycache__"}
seen = "a best.pt hard link.txt log.txt moved old other program.py runs.db written.py"
assert names == set(seen.split()), names
"""


@BOTH
def test_a_program_sees_what_it_wrote_and_nobody_else_does(tmp_path: Path, writes: str) -> None:
    found = rehearsed(tmp_path, WRITES, writes)
    assert (found.stopped, found.failure) == ("finished", "")
    assert any(note.startswith("files: ") for note in found.notes)


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs a right to give up")
def test_who_may_not_mount_has_a_view_of_his_own_too(tmp_path: Path) -> None:
    again = "import sys, pathlib; from tests.backends.program import test_kept_files as t"
    body = f"{again}; found = t.rehearsed(pathlib.Path(sys.argv[1]), t.WRITES); print(found.stopped, found.notes)"
    without = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]
    done = subprocess.run(
        [*without, sys.executable, "-c", body, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("finished") and "(overlay)" in done.stdout, done.stderr


def test_a_socket_that_somebody_else_listens_at_is_reached(tmp_path: Path) -> None:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "s"))
    listening.listen()
    body = """
import os, socket
socket.socket(socket.AF_UNIX).connect("s")
inside = socket.socket(socket.AF_UNIX); inside.bind("own"); inside.listen()
socket.socket(socket.AF_UNIX).connect("own")
"""
    with listening:
        assert rehearsed(tmp_path, body).failure == ""


def test_programs_that_are_not_python_write_into_the_layer_too(tmp_path: Path) -> None:
    body = """
import subprocess
subprocess.run("rm -r old && mv best.pt worst.pt && echo lost > log.txt && cat log.txt > copy", shell=True, check=True)
assert open("copy").read() == "lost\\n"
subprocess.run(["cp", "log.txt", "/tmp/mine-copy"], env={}, check=True)
"""
    assert rehearsed(tmp_path, body).failure == ""


def test_keep_writes_keeps_them(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"open({str(tmp_path / 'made')!r}, 'w').write('x')")
    found = rehearse([sys.executable, str(program)], RehearsalPlan(None, writes="kept"), output="kept")
    assert "kept" in found.notes[-1] and (tmp_path / "made").read_text() == "x"


DAEMON = """
import os, subprocess, sys, time
forever = "import os, time\\nwhile True: open('beat', 'a').write('x'); time.sleep(0.05)  # {mark}"
subprocess.Popen([sys.executable, "-c", forever], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3)
        os.execv(sys.executable, [sys.executable, "-c", "import signal; signal.signal(15, 1)\\n" + forever])
    os._exit(0)
time.sleep({seconds})
"""


@BOTH_SLOWLY
@pytest.mark.parametrize("seconds", [0.5, 60])
def test_no_child_survives_the_answer_nor_writes_after_it(tmp_path: Path, writes: str, seconds: float) -> None:
    mark = f"mark {os.getpid()} {tmp_path.name}"
    found = rehearsed(tmp_path, DAEMON.format(mark=mark, seconds=seconds), writes, seconds=2.0)
    assert found.stopped == ("finished" if seconds < 1 else "seconds")
    assert not [each for each in Path("/proc").glob("[0-9]*") if mark in _command(each)]
    if seconds > 1:
        assert found.host.processes == 3, "the program and both daemons"


def _command(process: Path) -> str:
    try:
        return (process / "cmdline").read_text(errors="replace")
    except OSError:
        return ""


CHILD = "b = b'x' * (300 << 20); open('written', 'w'); import time; time.sleep(30)"


@BOTH_SLOWLY
def test_memory_of_a_child_in_its_own_session_counts(tmp_path: Path, writes: str) -> None:
    body = f"""
import os, subprocess, sys, time
if os.fork() == 0:
    subprocess.Popen([sys.executable, "-c", {CHILD!r}], start_new_session=True)
    os._exit(0)
while not os.path.exists("written"): time.sleep(0.1)
time.sleep(1.5)  # between two looks at what all of it takes
"""
    assert rehearsed(tmp_path, body, writes).host.peak > 300 << 20


@BOTH_SLOWLY
def test_shared_memory_counts_once_and_is_removed(tmp_path: Path, writes: str) -> None:
    body = """
import os, time
from multiprocessing import resource_tracker, shared_memory
mine = shared_memory.SharedMemory(create=True, size=60 << 20)
mine.buf[:] = bytes(60 << 20)
resource_tracker.unregister("/" + mine.name, "shared_memory")
with open("/dev/shm/mine-file", "wb") as file: file.write(bytes(40 << 20))
assert os.path.getsize("/dev/shm/mine-file") == 40 << 20
time.sleep(4)
"""
    assert 100 << 20 < rehearsed(tmp_path, body, writes).host.peak < 150 << 20


@pytest.mark.parametrize("options", ["-I", "-E", "-Iu", "-s"])
def test_isolated_children_and_cleared_variables_are_seen(tmp_path: Path, options: str) -> None:
    body = f"""
import subprocess, sys
child = "import sys; sys.exit('legroom_hollow' not in sys.modules)"
raise SystemExit(subprocess.run([sys.executable, {options!r}, "-c", child], env={{}}).returncode)
"""
    assert rehearsed(tmp_path, body).stopped == "finished"


UNSEEN = """
import mmap, os, time
with open("libtorch_cpu.so", "wb+") as file:
    file.write(bytes(4096)); file.flush()
    mapped = mmap.mmap(file.fileno(), 4096)
time.sleep(30)
"""


@BOTH_SLOWLY
def test_a_process_with_torch_that_lets_nobody_in_leaves_it_unknown(tmp_path: Path, writes: str) -> None:
    (tmp_path / "child.py").write_text(UNSEEN)
    body = "import subprocess, sys; subprocess.run([sys.executable, '-S', 'child.py', '--hidden'])"
    if writes == "redirected":
        (tmp_path / "libtorch_cpu.so").write_bytes(bytes(4096))
        (tmp_path / "child.py").write_text(
            UNSEEN.replace("wb+", "rb")
            .replace("4096)\n", "4096, access=1)\n")
            .replace("file.write(bytes(4096)); file.flush()", "")
        )
    (line,) = rehearsed(tmp_path, body, writes, seconds=3.0).unseen
    assert "child.py --hidden" in line and "\n" not in line


@BOTH_SLOWLY
def test_temporary_files_are_seen_by_programs_that_are_not_python(tmp_path: Path, writes: str) -> None:
    """Trackers start a server of their own in C or Go and wait for its port in such a file."""
    body = """
import os, subprocess, sys, tempfile
with tempfile.TemporaryDirectory() as folder:
    port = os.path.join(folder, "port")
    subprocess.run(["sh", "-c", f"echo 4242 > {port}"], check=True)
    raise SystemExit(open(port).read() != "4242\\n")
"""
    assert rehearsed(tmp_path, body, writes).stopped == "finished"


@BOTH
@pytest.mark.parametrize("where", ["", "tempfile.gettempdir() + '/legroom-test-' +"])
def test_a_full_layer_says_so(tmp_path: Path, writes: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("legroom.backends.program.launching.LEAST_LAYER", 1 << 20)
    monkeypatch.setattr("legroom.backends.program.launching.MOST_LAYER", 8 << 20)
    body = f"""
import tempfile, time
for number in range(100):
    with open({where} str(number) + ".bin", "wb") as file: file.write(bytes(1 << 20))
    time.sleep(0.05)
"""
    found = rehearsed(tmp_path, body, writes)
    assert "No space left on device" in found.failure
    assert found.unseen == (
        "the program wrote more than the 8.0 MiB of files that a rehearsal keeps (--keep-writes writes for real)",
    )


def test_a_block_in_this_process_writes_nothing_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    import legroom

    monkeypatch.chdir(tmp_path)
    torch.save({"week": 1}, "best.pt")
    (tmp_path / "old").mkdir()
    before = state(tmp_path)
    with legroom.rehearse(vram="8GiB") as rehearsal:
        torch.save({"week": 2}, "best.pt")
        assert torch.load("best.pt") == {"week": 2}
        (tmp_path / "old").rmdir()
        assert not Path("old").exists()
    assert state(tmp_path) == before and torch.load("best.pt") == {"week": 1}
    assert any(note.startswith("files: ") for note in rehearsal.footprint.notes)
    with legroom.rehearse(vram="8GiB", keep_writes=True):
        (tmp_path / "old").rmdir()
    assert not (tmp_path / "old").exists()
