"""A watched command behaves as if nobody watched: its output, its signals, its exit code."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from watch_helpers import ENVIRONMENT, LEGROOM, PYTHON, TOUCHED, watch_command, watch_python


def test_exit_code_passes_through(tmp_path: Path) -> None:
    assert watch_command(tmp_path, ["true"]).code == 0
    ran = watch_command(tmp_path, ["sh", "-c", "exit 3"])
    assert ran.code == 3 and ran.told is not None
    assert (ran.told["exit_code"], ran.told["signal"], ran.told["cause"]) == (3, None, None)


def test_killed_command_gives_128_plus_signal(tmp_path: Path) -> None:
    ran = watch_command(tmp_path, ["sh", "-c", "sleep 0.3; kill -9 $$"])
    assert ran.code == 137 and ran.told is not None
    assert (ran.told["exit_code"], ran.told["signal"]) == (137, 9)
    assert ran.told["of_memory"] is False and "SIGKILL" in ran.err  # it held next to nothing, and legroom says so


def test_output_passes_byte_for_byte(tmp_path: Path) -> None:
    script = (
        "import sys\nsys.stdout.buffer.write(bytes(range(256)) * 4000)\n"
        "sys.stderr.buffer.write(b'\\xff\\r\\x1b[1m!' * 9)\n"
    )
    ran = subprocess.run(
        [*LEGROOM, "watch", "--", PYTHON, "-c", script], capture_output=True, env=ENVIRONMENT, check=True
    )
    assert ran.stdout == bytes(range(256)) * 4000
    assert ran.stderr.startswith(b"\xff\r\x1b[1m!" * 9)


def test_one_log_for_both_streams_keeps_their_order(tmp_path: Path) -> None:
    script = "import os\nfor i in range(200):\n    os.write(1 + i % 2, b'%d\\n' % i)\n"
    together = subprocess.run(
        [*LEGROOM, "watch", "--", PYTHON, "-c", script],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=ENVIRONMENT, check=True,
    )  # fmt: skip
    assert together.stdout.split()[:200] == [b"%d" % i for i in range(200)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_signal_sent_to_watch_reaches_the_command_once(tmp_path: Path, number: signal.Signals) -> None:
    script = (
        "import signal, sys, time\ncount = 0\n"
        "def handle(n, f):\n    global count\n    count += 1\n"
        f"signal.signal({int(number)}, handle)\nprint('ready', flush=True)\n"
        "end = time.time() + 20\nwhile not count and time.time() < end: time.sleep(0.02)\n"
        "time.sleep(0.4)\nsys.exit(40 + count)\n"
    )
    watch = subprocess.Popen([*LEGROOM, "watch", "--", PYTHON, "-c", script], stdout=subprocess.PIPE, env=ENVIRONMENT)
    assert watch.stdout is not None and watch.stdout.readline() == b"ready\n"
    watch.send_signal(number)
    assert watch.wait(30) == 41
    watch.stdout.close()


def test_terminated_command_is_no_failure_of_memory_and_leaves_nobody(tmp_path: Path) -> None:
    out = tmp_path / "out"
    watch = subprocess.Popen(
        [*LEGROOM, "watch", "--out", str(out), "--", PYTHON, "-c",
         "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)"],
        stdout=subprocess.PIPE, env=ENVIRONMENT,
    )  # fmt: skip
    assert watch.stdout is not None
    pid = int(watch.stdout.readline())
    time.sleep(0.3)
    watch.terminate()
    assert watch.wait(30) == 143
    told = json.loads((out / "watch.json").read_text())
    assert (told["signal"], told["cause"]) == (15, None) and told["samples"]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    watch.stdout.close()


def test_ctrl_c_on_a_terminal_reaches_the_command_once(tmp_path: Path) -> None:
    ready = tmp_path / "ready"  # what it prints may have a redrawn live line in the middle
    script = (
        f"import pathlib, sys, time\nready = pathlib.Path({str(ready)!r})\n"
        "try:\n    ready.write_text(f'{sys.stdout.isatty()} {sys.stderr.isatty()}')\n    time.sleep(60)\n"
        "except KeyboardInterrupt:\n    time.sleep(0.5)\n    sys.exit(7)\n"
    )
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored, and inherited so, where the tests run with nohup
        os.execve(LEGROOM[0], [*LEGROOM, "watch", "--", PYTHON, "-c", script], {**ENVIRONMENT, "TERM": "xterm"})
    shown, pressed = b"", False
    while True:
        try:
            chunk = os.read(terminal, 1 << 16)
        except OSError:
            break
        shown += chunk
        if not pressed and ready.exists() and ready.read_text() == "True True":
            os.write(terminal, b"\x03")
            pressed = True
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert b"exit code 7" in shown
    os.close(terminal)


def test_commands_that_cannot_be_started(tmp_path: Path) -> None:
    plain = tmp_path / "data.txt"
    plain.write_text("no program")
    for command, code in ((["no-such-command-here"], 127), ([str(plain)], 126)):
        ran = watch_command(tmp_path, command)
        assert ran.code == code and len(ran.err.splitlines()) == 1 and ran.told is None


@pytest.mark.parametrize("options", [[], ["--interval", "0", "--", "true"], ["--limit", "many", "--", "true"],
                                     ["--pid", "1", "--", "true"], ["--pid", "99999999"]])  # fmt: skip
def test_bad_input_is_one_line_and_exit_code_2(options: list[str]) -> None:
    ran = subprocess.run([*LEGROOM, "watch", *options], capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert ran.returncode == 2 and len(ran.stderr.splitlines()) == 1 and ran.stdout == ""


@pytest.mark.parametrize("into", ["pipe", "file"])
def test_with_json_standard_output_is_the_document_alone(into: str, tmp_path: Path) -> None:
    with (tmp_path / "err").open("wb") as file:
        where = file if into == "file" else subprocess.PIPE
        ran = subprocess.run([*LEGROOM, "watch", "--json", "--", "echo", "mine"], stdout=subprocess.PIPE, stderr=where,
                             env=ENVIRONMENT, check=True)  # fmt: skip
    err = (tmp_path / "err").read_bytes() if into == "file" else ran.stderr
    assert json.loads(ran.stdout)["legroom"] == 1
    assert err.startswith(b"mine\n")


@pytest.mark.parametrize("interrupt", [False, True])
def test_attached_watching_ends_with_the_process_or_at_ctrl_c(tmp_path: Path, interrupt: bool) -> None:
    script = TOUCHED + "kept = touched(50)\nprint('ready', flush=True)\nsys.stdin.read()\n"
    process = subprocess.Popen([PYTHON, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None and process.stdout.readline() == b"ready\n"
    watch = subprocess.Popen([*LEGROOM, "watch", "--pid", str(process.pid), "--out", str(tmp_path)],
                             stderr=subprocess.DEVNULL, env=ENVIRONMENT)  # fmt: skip
    try:
        _wait_until_it_watches(watch.pid)
        time.sleep(0.5)
        if interrupt:
            watch.send_signal(signal.SIGINT)
        else:
            process.stdin.close()
        assert watch.wait(30) == 0
        assert not interrupt or process.poll() is None  # attaching does nothing to it
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    told = json.loads((tmp_path / "watch.json").read_text())
    assert told["exit_code"] is None and told["pid"] == process.pid
    assert 50 << 20 <= told["peak"]["host"] <= 80 << 20


SIGTIMEDWAIT = ("128", "137")  # the number of rt_sigtimedwait on x86-64 and on arm64


def _wait_until_it_watches(pid: int) -> None:
    """Wait until SIGINT is held back or waited for, which is when the watching begins.

    While a process waits for signals the kernel does not show them as blocked, but that it is in `rt_sigtimedwait`.
    """
    until = time.time() + 30
    while time.time() < until:
        blocked = re.search(r"SigBlk:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
        if blocked and int(blocked[1], 16) & 1 << (signal.SIGINT - 1):
            return
        with suppress(OSError):  # not every kernel has it
            if Path(f"/proc/{pid}/syscall").read_text().split()[0] in SIGTIMEDWAIT:
                return
        time.sleep(0.02)
    raise AssertionError("it does not begin to watch")


def test_workers_are_told_from_the_trainer_and_counted_once(tmp_path: Path) -> None:
    script = TOUCHED + (
        "import multiprocessing\n"
        "def work():\n    own = touched(15); time.sleep(2.5)\n"
        "if __name__ == '__main__':\n"
        "    shared = touched(80)\n"
        "    crew = [multiprocessing.get_context('fork').Process(target=work) for _ in range(4)]\n"
        "    [one.start() for one in crew]; [one.join() for one in crew]\n"
    )
    told = watch_python(tmp_path, script, "--interval", "0.05").told
    assert told is not None
    peak = told["peak"]
    # 80 shared by all five and 4 x 15 of their own: 140 MiB and the interpreters, not 5 x 80
    assert 140 << 20 <= peak["host"] <= 185 << 20
    assert peak["by_role"]["workers"] >= 60 << 20


def test_exit_code_is_kept_when_nobody_reads(tmp_path: Path) -> None:
    script = "import os\ntry:\n    os.write(2, b'x' * 200_000)\nexcept OSError:\n    pass\nos._exit(5)\n"
    watch = subprocess.Popen([*LEGROOM, "watch", "--json", "--", PYTHON, "-c", script], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, env=ENVIRONMENT)  # fmt: skip
    assert watch.stdout is not None and watch.stderr is not None
    watch.stderr.close()
    watch.stdout.close()
    assert watch.wait(30) == 5


def test_processes_left_behind_are_named(tmp_path: Path) -> None:
    ran = watch_command(tmp_path, ["sh", "-c", "sleep 20 >/dev/null 2>&1 & sleep 0.6; exit 0"])
    assert ran.told is not None
    (left,) = ran.told["left_behind"]
    os.kill(left, signal.SIGKILL)
    assert str(left) in ran.err
