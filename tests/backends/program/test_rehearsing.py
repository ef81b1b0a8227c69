"""`legroom predict -- COMMAND` from its outside: programs that write their journals as a guest would."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cli import in_process
from tests.cli.test_terminal import on_a_terminal

HERE = Path(__file__).parent
HEAD = f"""
import os, sys, time
sys.path.insert(0, {str(HERE)!r})
from journal_writer import MIB, JournalWriter
writer = JournalWriter()
writer.begin()
here = writer.site(__file__, 10)
writer.alloc(100 * MIB, here)

def update():
    writer.free(writer.alloc(50 * MIB, here, phase=1))
    writer.step()
    time.sleep(0.01)
"""


def legroom(*arguments: str, timeout: float = 60.0, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "legroom.cli.main", "predict", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=cwd, check=False)


def program(folder: Path, body: str, head: str = HEAD) -> str:
    script = folder / "program.py"
    script.write_text(head + body)
    return str(script)


def document(folder: Path, body: str, *options: str, head: str = HEAD) -> tuple[int, dict[str, Any], str]:
    script = program(folder, body, head)
    done = legroom("--json", *options, "--", sys.executable, script)
    assert done.stdout, done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    return done.returncode, run, done.stderr


def test_a_training_that_repeats_is_stopped_and_fits(tmp_path: Path) -> None:
    code, run, errors = document(tmp_path, "print('mine')\nwhile True: update()", "--gpu", "RTX 4070", "--ram", "64GiB")
    assert (code, run["fits"]) == (0, True)
    assert run["gpu"]["allocator"]["peak_allocated"] == run["gpu"]["allocator"]["peak_reserved"] == 150 << 20
    assert run["gpu"]["allocator"]["limit"] == (12282 << 20) - 500_000_000  # the upper end of the context
    assert run["gpu"]["peak"] == (150 << 20) + 400_000_000
    seen = run["program"]
    assert (seen["stopped"], seen["exit_code"]) == ("repeats", None)
    assert seen["updates"] >= 4 and seen["command"][0] == sys.executable
    assert seen["at"] == {"file": str(tmp_path / "program.py"), "line": 10}
    assert seen["lines"] == [{"file": str(tmp_path / "program.py"), "line": 10, "nbytes": 150 << 20}]
    assert errors.startswith("mine\n")  # its own output, since standard output is the document's


def test_an_evaluation_that_the_source_mentions_is_waited_for_and_named_if_it_does_not_come(tmp_path: Path) -> None:
    """One that takes a whole test set at once takes more than the training that repeats before it."""
    body = """
writer.json("evaluation awaited", file=__file__, line=77)
began = time.monotonic()
while True:
    update()
    if "--evaluates" in sys.argv and began and time.monotonic() - began > 6:
        began = None
        writer.free(writer.alloc(500 * MIB, here))
        writer.json("evaluation ended")
"""
    script, options = program(tmp_path, body), ("--json", "--vram", "8GiB", "--ram", "64GiB", "--seconds", "20")
    (run,) = json.loads(legroom(*options, "--", sys.executable, script, "--evaluates").stdout)["runs"]
    assert run["gpu"]["allocator"]["peak_allocated"] == 600 << 20 and run["program"]["stopped"] == "repeats"
    assert "not seen: what comes later, such as a checkpoint" in run["notes"]
    (run,) = json.loads(legroom(*options[:-1], "5", "--", sys.executable, script).stdout)["runs"]
    assert run["program"]["stopped"] == "repeats"
    assert "not seen: the evaluation at program.py:77, and what comes later, such as a checkpoint" in run["notes"]


def test_the_same_keys_as_the_document_of_a_run(tmp_path: Path) -> None:
    _, run, _ = document(tmp_path, "update()")
    done = legroom("mine:full", "--mode", "arithmetic", "--json", "--gpu", "RTX 4070")
    (of_run,) = json.loads(done.stdout)["runs"]
    assert set(run) - {"program", "unknown"} == set(of_run) - {"unknown", "unseen", "assumed"}
    assert set(run["gpu"]) == set(of_run["gpu"])


def test_one_that_does_not_fit_says_so_and_what_to_try(tmp_path: Path) -> None:
    script = program(tmp_path, "while True: update()")
    done = legroom("--vram", "512MiB", "--", sys.executable, script, "--batch-size", "64")
    assert done.returncode == 1
    assert done.stdout.startswith("Does not fit: needs up to ")
    assert "--batch-size" in done.stdout or "a GPU with" in done.stdout


def test_finished_updates_and_seconds(tmp_path: Path) -> None:
    code, run, _ = document(tmp_path, "for _ in range(3): update()", "--vram", "8GiB", "--ram", "64GiB")
    assert (code, run["fits"], run["program"]["stopped"], run["program"]["exit_code"]) == (0, True, "finished", 0)
    growing = "while True:\n    writer.alloc(MIB, here)\n    update()"
    code, run, _ = document(tmp_path, growing, "--vram", "8GiB", "--updates", "5")
    assert (code, run["fits"], run["program"]["stopped"]) == (1, None, "updates")
    code, run, _ = document(tmp_path, growing, "--vram", "8GiB", "--seconds", "2")
    assert (code, run["fits"], run["program"]["stopped"]) == (1, None, "seconds")
    assert run["program"]["leaks"][0]["line"] == 10
    assert any(finding["name"] == "gpu-leak" for finding in run["findings"])
    code, run, _ = document(tmp_path, "time.sleep(60)", "--vram", "8GiB", "--seconds", "1")
    assert (code, run["fits"]) == (1, None)
    assert "no optimizer step within 1 s: allow more time (--seconds 180) or shorten" in run["unknown"][0]


def test_a_failing_program_shows_its_own_traceback(tmp_path: Path) -> None:
    told = "writer.json('exception', type='ValueError', text='no', file=__file__, line=21)"
    body = f"update()\n{told}\nraise ValueError('no')"
    code, run, errors = document(tmp_path, body, "--vram", "8GiB")
    assert (code, run["fits"], run["program"]["stopped"], run["program"]["exit_code"]) == (2, None, "failed", 1)
    assert "Traceback (most recent call last)" in errors and "ValueError: no" in errors
    assert run["program"]["at"]["line"] == 21


def test_out_of_memory_is_at_its_line(tmp_path: Path) -> None:
    oom = (
        "writer.json('oom', file=__file__, line=33, text='CUDA out of memory. Tried', requested=9 << 30, free=1 << 30)"
    )
    raised = "writer.json('exception', type='torch.OutOfMemoryError', text='CUDA', file=__file__, line=33)\nsys.exit(1)"
    code, run, _ = document(tmp_path, f"update()\n{oom}\n{raised}", "--vram", "2GiB")
    assert (code, run["fits"], run["program"]["stopped"]) == (1, False, "out-of-memory")
    assert run["program"]["at"]["line"] == 33
    code, run, _ = document(tmp_path, f"update()\n{oom}\nupdate()", "--vram", "2GiB", "--ram", "64GiB")
    assert (code, run["fits"], run["program"]["stopped"]) == (1, False, "out-of-memory")  # whatever it did with it
    assert run["findings"][0]["name"] == "out-of-memory-caught"
    assert [(one["line"], one["caught"], one["retried"]) for one in run["program"]["failed_requests"]] == [
        (33, True, None)
    ]


def test_a_retry_with_less_that_trains_on_fits_after_retries(tmp_path: Path) -> None:
    body = """
def train(n):
    if n > 8:
        writer.json("oom", file=__file__, line=30, text="CUDA out of memory.", requested=n << 30, free=0,
                    chain=[(__file__, 30), (__file__, CALL)], thread=1)
        raise MemoryError
    for _ in range(STEPS):
        writer.free(writer.alloc(n << 20, writer.site(__file__, 30)))
        writer.json("step", thread=1)
n = 32
while True:
    try:
        train(n)
        break
    except Exception:
        n //= 2
"""
    body = body.replace("CALL", str((HEAD + body).splitlines().index("        train(n)") + 1))
    script = program(tmp_path, body.replace("STEPS", "3"))
    done = legroom("--vram", "2GiB", "--ram", "64GiB", "--", sys.executable, script, cwd=tmp_path)
    said = " ".join(done.stdout.split())
    assert said.startswith("Fits after retries: out of GPU memory at program.py:30, went on with less at program.py:30")
    assert done.returncode == 0
    code, run, _ = document(tmp_path, body.replace("STEPS", "1"), "--vram", "2GiB", "--ram", "64GiB")
    assert (code, run["fits"]) == (1, False)  # one step is no training


def test_assumptions_that_set_a_size_and_what_is_not_modelled_leave_it_unknown(tmp_path: Path) -> None:
    said = "writer.json('assumed', file=__file__, line=10, what='a mask selects all', count=3, sets_size={})\nupdate()"
    code, run, _ = document(tmp_path, said.format("True"), "--vram", "8GiB", "--ram", "64GiB")
    assert (code, run["fits"]) == (1, None)
    script = str(tmp_path / "program.py")
    assert run["program"]["assumed"] == [{"file": script, "line": 10, "what": "a mask selects all", "count": 3}]
    assert run["gpu"]["allocator"]["band"][0] < (1 << 20)  # all of that line's bytes are in doubt
    code, run, _ = document(tmp_path, said.format("False"), "--vram", "8GiB", "--ram", "64GiB")
    assert (code, run["fits"]) == (0, True)
    body = "writer.json('unmodelled', what='a kernel', file=__file__, line=3)\nupdate()"
    code, run, _ = document(tmp_path, body, "--vram", "8GiB", "--ram", "64GiB")
    assert (code, run["unknown"]) == (1, ["not modelled: a kernel (program.py:3)"])


def test_compiled_code_widens_the_band_by_what_a_first_run_takes(tmp_path: Path) -> None:
    body = "writer.json('compile', what='inductor', file=__file__, line=3)\nfor _ in range(4): update()"
    _, run, _ = document(tmp_path, body, "--gpu", "RTX 4090")
    # one segment of the allocator, a quarter of 150 MiB, and the 72 MiB beside which Inductor times kernels
    wider = (2 << 20) + (150 << 18) + (72 << 20)
    assert run["gpu"]["allocator"]["band"] == [(150 << 20) - wider, (150 << 20) + wider]


def test_a_kill_loses_nothing(tmp_path: Path) -> None:
    body = "update()\nwriter.half_a_record()\nos.kill(os.getpid(), 9)"
    code, run, _ = document(tmp_path, body, "--vram", "8GiB")
    assert (code, run["program"]["stopped"], run["program"]["exit_code"]) == (2, "failed", 137)
    assert run["gpu"]["allocator"]["peak_allocated"] == 150 << 20


def test_programs_without_a_card_or_torch_get_no_gpu_verdict(tmp_path: Path) -> None:
    code, run, _ = document(tmp_path, "", "--vram", "8GiB", head="print('nothing')")
    assert (code, run["gpu"], run["unknown"]) == (1, None, ["the program ended before it used torch"])
    head = HEAD.replace("writer.alloc(100 * MIB, here)", "")
    code, run, _ = document(tmp_path, "writer.step()", "--vram", "8GiB", head=head)
    assert (code, run["fits"]) == (1, None)
    assert "the program put nothing on the GPU" in run["unknown"][0]


def test_a_command_that_is_no_python_program(tmp_path: Path) -> None:
    done = legroom("--json", "--ram", "64GiB", "--", "sleep", "0.3")
    (run,) = json.loads(done.stdout)["runs"]
    assert (done.returncode, run["fits"]) == (1, None)
    assert run["unknown"] == ["not a Python program: only its host memory was watched"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ([], "no command after --"),
        (["no-such-command-here"], "no-such-command-here: there is no such command"),
        (["./plain.py"], "cannot be executed (legroom predict -- python ./plain.py)"),
        (["python", "-X", "dev", "-S", "-c", "pass"], "Python is started with -S (without site)"),
        (["env", "python", "-S", "plain.py"], "started with -S"),
        (["./isolated"], "started with -S"),
    ],
)
def test_bad_input_gets_one_line(tmp_path: Path, command: list[str], said: str) -> None:
    (tmp_path / "plain.py").write_text("pass")
    script = tmp_path / "isolated"
    script.write_text("#!/usr/bin/python3 -uS\npass")
    script.chmod(0o755)
    done = in_process.legroom("predict", "--", *command, cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == ""
    assert said in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("options", ["-I", "-uE"])
def test_an_isolated_interpreter_is_entered_through_the_view_of_its_files(tmp_path: Path, options: str) -> None:
    (tmp_path / "plain.py").write_text("import sys; print('legroom_hollow' in sys.modules)")
    assert "True" in legroom("--all", "--", sys.executable, options, "plain.py", cwd=tmp_path).stdout
    refused = in_process.legroom("predict", "--keep-writes", "--", sys.executable, options, "plain.py", cwd=tmp_path)
    assert refused.returncode == 2 and f"Python is started with -{options[-1]}" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_options_that_only_look_isolating_are_the_programs_own(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("import sys; print(sys.argv)")
    done = legroom("--all", "--", sys.executable, "plain.py", "-I", "-E", cwd=tmp_path)
    assert "['plain.py', '-I', '-E']" in done.stdout


MANY_LINES = """
print("the program's own words")
for line in range(20, 80):
    writer.alloc(MIB * line // 20 if line < 60 else 512, writer.site(__file__, line))
while True: update()
"""


def test_the_answer_is_one_screen_without_the_programs_output_and_all_of_it_with_all(tmp_path: Path) -> None:
    script = program(tmp_path, MANY_LINES)
    short = legroom("--vram", "8GiB", "--", sys.executable, script, cwd=tmp_path).stdout
    assert len(short.splitlines()) <= 40 and "own words" not in short, short
    assert re.search(r"\d+ others +[\d.]+ MiB +\d+% +--all lists them", short)
    whole = legroom("--vram", "8GiB", "--all", "--", sys.executable, script, cwd=tmp_path).stdout
    assert "own words" in whole and "program.py:70" in whole


def test_a_program_that_fails_at_an_import_gets_its_own_words_and_no_bill(tmp_path: Path) -> None:
    script = program(tmp_path, "", head="print('so far')\nimport no_such_module_here")
    done = legroom("--", sys.executable, script)
    assert "peak" not in done.stdout and "seen up to there" not in done.stdout
    assert "No module named 'no_such_module_here'" in " ".join(done.stdout.split())
    assert "so far" in done.stderr and "ModuleNotFoundError" in done.stderr


def test_a_terminal_shows_how_long_it_may_still_take(tmp_path: Path) -> None:
    script = program(tmp_path, "time.sleep(1)\nwhile True: update()")
    shown = on_a_terminal("predict", "--vram", "8GiB", "--", sys.executable, script)
    assert re.search(r"\d+ steps in 1 s, at most 59 s left", shown)


def test_bad_numbers_get_one_line() -> None:
    for options in (["--seconds", "0"], ["--updates", "0"], ["--gpu", "0x RTX 3090"], ["--gpu", "RTX 9999"]):
        done = in_process.legroom("predict", *options, "--", "true")
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1


def children_of(name: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if name.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                pass
    return found


STUBBORN = """
import signal, subprocess
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", {mark!r}])
while True:
    writer.alloc(MIB, here)
    update()
"""


def started(script: str, tmp_path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "legroom.cli.main", "predict", "--vram", "8GiB", "--", sys.executable, script]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_running_and_no_file_behind(tmp_path: Path, number: signal.Signals) -> None:
    mark = f"mark-{os.getpid()}-{int(number)}"
    script = program(tmp_path, STUBBORN.format(mark=mark))
    child = started(script, tmp_path)
    until = time.monotonic() + 30
    while not children_of(mark) and time.monotonic() < until:
        time.sleep(0.1)
    time.sleep(0.5)
    child.send_signal(number)
    out, errors = child.communicate(timeout=30)
    until = time.monotonic() + 10
    while (children_of(mark) or list(tmp_path.glob("legroom-*"))) and time.monotonic() < until:
        time.sleep(0.1)
    assert not children_of(mark) and not children_of(script)
    assert not list(tmp_path.glob("legroom-*"))
    if number == signal.SIGINT:
        assert child.returncode == 130 and "interrupted" in out, errors


def test_a_buffer_that_fills_is_forecast(tmp_path: Path) -> None:
    body = """
import mmap
buffers = [mmap.mmap(-1, 3 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000) for _ in range(2)]
at = 0
while True:
    for buffer in buffers:
        buffer[at:at + MIB] = b"x" * MIB
    at += MIB
    update()
    time.sleep(0.02)
"""
    code, run, _ = document(tmp_path, body, "--vram", "8GiB", "--ram", "4GiB")
    (full,) = [item for item in run["items"] if item["name"] == "host.a large array"]
    assert full["nbytes"] == 6 << 30 and "full after about" in full["why"]
    assert (code, run["fits"]) == (1, False)
    assert run["host"]["peak"] > 6 << 30
    (note,) = [note for note in run["notes"] if note.startswith("host memory runs out after about")]
    steps = int(note.split("about ")[1].split()[0].replace(",", ""))
    assert 1500 < steps < 2500  # 4 GiB at 2 MiB per step


def test_a_program_that_really_writes_too_much_is_stopped(tmp_path: Path) -> None:
    body = "kept = []\nwhile True:\n    kept.append(bytearray(MIB) * 8)\n    time.sleep(0.01)"
    code, run, _ = document(tmp_path, body, "--vram", "8GiB", "--real-limit", "300MiB")
    assert (code, run["fits"], run["program"]["stopped"]) == (1, None, "real-limit")


def test_a_deque_is_forecast_and_a_list_without_end_leaves_it_unknown(tmp_path: Path) -> None:
    body = """
count = 0
while True:
    count += 500
    about = dict(type="deque", held="Agent.memory", file=__file__, line=12, each=2e4, count=count, before=count - 500)
    containers = [dict(about, id=1, most=100000)]
    if "--endless" in sys.argv:
        containers.append(dict(about, id=2, type="list", held="kept", line=13, most=None))
    writer.json("growing", step=count, resident=0, containers=containers)
    for _ in range(20):
        update()
"""
    code, run, _ = document(tmp_path, body, "--vram", "8GiB", "--ram", "1GiB")
    (full,) = [item for item in run["items"] if item["name"] == "host.program.py:12"]
    assert full["nbytes"] == 2_000_000_000 and full["why"].startswith("deque Agent.memory, at most 100,000: ")
    assert (code, run["fits"]) == (1, False)
    assert any("host memory runs out after about" in note and "program.py:12" in note for note in run["notes"])
    (filling,) = run["program"]["host"]["filling"]
    assert filling["what"] == "deque Agent.memory, at most 100,000" and run["program"]["host"]["full"]["seconds"] > 0
    script = program(tmp_path, body)
    done = legroom("--json", "--vram", "8GiB", "--ram", "64GiB", "--", sys.executable, script, "--endless")
    (run,) = json.loads(done.stdout)["runs"]
    assert run["fits"] is None
    (why,) = [
        why
        for why in run["unknown"]
        if "per optimizer step (program.py:13, list kept); the length of the run is not known" in why
    ]
    assert run["program"]["host"]["growing"][0]["line"] == 13 and why


def test_zeros_of_torch_are_certain(tmp_path: Path) -> None:
    """`torch.zeros` writes all of it at once, so that it counts though the rehearsal has not written it."""
    body = """
import ctypes, mmap
buffer = mmap.mmap(-1, 3 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
writer.json("host-alloc", nbytes=3 << 30, address=address, file=__file__, line=7, how="reserved")
writer.json("host-written", address=address)
while True:
    writer.json("growing", step=1, resident=0, containers=[])
    update()
"""
    code, run, _ = document(tmp_path, body, "--vram", "8GiB", "--ram", "2GiB")
    (full,) = [item for item in run["items"] if item["name"] == "host.program.py:7"]
    assert full["nbytes"] == 3 << 30 and full["why"] == "torch.zeros writes all of it where it is made"
    assert (code, run["fits"]) == (1, False)


def test_a_model_of_sb3_gives_the_run_file(tmp_path: Path) -> None:
    call = {
        "id": 1, "bases": [["stable_baselines3", "PPO"]], "policy": "CnnPolicy", "device": "cuda",
        "arguments": {"n_steps": 512, "batch_size": 128, "learning_rate": "<function>"}, "file": "x.py", "line": 5,
        "env": {"n_envs": 8, "workers": "dummy", "observation": {"type": "box", "shape": [1, 36, 36], "dtype": "uint8"},
                "action": {"type": "discrete", "n": 4}},
    }  # fmt: skip
    body = f"""
writer.json("call", **{call!r})
writer.json("learn", id=1, total_timesteps=100000, buffer_files=["buffers.py"])
kept = bytearray(os.urandom(1 << 20)) * 30  # the rollout and its copy
while True:
    writer.json("growing", step=1, resident=0, containers=[])
    update()
"""
    script, written = program(tmp_path, body), tmp_path / "run.yaml"
    done = legroom("--json", "-o", str(written), "--vram", "8GiB", "--ram", "64GiB", "--", sys.executable, script)
    (run,) = json.loads(done.stdout)["runs"]
    same = run["program"]["same_run"]
    assert (same["algo"], same["env"]["n_envs"], same["hyperparams"]) == ("PPO", 8, {"n_steps": 512, "batch_size": 128})
    assert f"written: {written} (its environment is not registered: predict, check and fit read it;" in done.stderr
    again = in_process.legroom("predict", str(written), "--ram", "64GiB", "--vram", "8GiB")
    assert again.returncode == 0 and again.stdout.startswith("Fits"), again.stderr
    from legroom.reading import read_all

    (read,) = read_all(str(written))
    assert (read.algo, read.env.n_envs, read.total_timesteps) == ("PPO", 8, 100_000)


def test_a_run_file_that_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    call = {
        "id": 1, "bases": [["stable_baselines3", "PPO"]], "policy": "MlpPolicy", "device": "cpu", "file": "", "line": 0,
        "arguments": {"n_steps": 0},
        "env": {"n_envs": 1, "workers": "dummy", "observation": {"type": "box", "shape": [4], "dtype": "float32"},
                "action": {"type": "discrete", "n": 4}},
    }  # fmt: skip
    body = f"writer.json('call', **{call!r})\nwriter.json('learn', id=1, total_timesteps=100)\nupdate()"
    written = tmp_path / "run.yaml"
    done = legroom("-o", str(written), "--vram", "8GiB", "--", sys.executable, program(tmp_path, body))
    (said,) = [line for line in done.stderr.splitlines() if str(written) in line]
    assert f"-o {written}: not written: " in said and not written.exists()


def test_a_stopped_program_fits_so_far_and_names_what_it_has_not_reached(tmp_path: Path) -> None:
    body = """
count = 0
writer.json("lines", lines={__file__: list(range(1, LAST + 1))})
while True:
    count += 1
    update()
    writer.json("step", thread=1, stack=[[__file__, LAST, 0]])
    if count == 1_000_000:
"""
    last = (HEAD + body).rstrip().count("\n") + 1
    body = body.replace("LAST", str(last))
    ram = ("--vram", "8GiB", "--ram", "64GiB")
    code, run, _ = document(tmp_path, body + "        bigger(net)\n", *ram)
    place = {"file": str(tmp_path / "program.py"), "line": last + 1, "text": "bigger(net)", "may_allocate": True}
    assert (code, run["fits"], run["program"]["not_reached"]) == (1, None, [place])
    done = legroom(*ram, "--", sys.executable, str(tmp_path / "program.py"), cwd=tmp_path)
    said = " ".join(done.stdout.split())
    assert said.startswith("Fits so far: needs up to ")
    assert f"not reached: program.py:{last + 1} (bigger(net)) (shorten the training by its arguments" in said


SLOW_ROLLOUTS = """
import time
import gymnasium
import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv

class Slow(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 255, (256, 256, 4), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.ones((256, 256, 4), np.uint8), {}

    def step(self, action):
        time.sleep(0.25)
        return np.ones((256, 256, 4), np.uint8), 0.0, False, False, {}

policy = {"net_arch": [8]}
both = DummyVecEnv([Slow, Slow])
PPO("MlpPolicy", both, n_steps=512, batch_size=16, n_epochs=1, policy_kwargs=policy, device="cuda").learn(10**6)
"""


@pytest.mark.slow
def test_a_rollout_that_would_take_minutes_is_cut_short_and_its_buffer_is_billed_whole(tmp_path: Path) -> None:
    _, run, _ = document(tmp_path, SLOW_ROLLOUTS, "--vram", "8GiB", "--ram", "8GiB", "--seconds", "45", head="")
    assert run["program"]["updates"] > 0  # 4 minutes of steps come before the first one
    # the rollout and the copy that flattening makes are there at once
    assert run["host"]["peak"] > 2 * 1024 * 256 * 256 * 4 + (100 << 20)
    (note,) = [note for note in run["notes"] if "of 512 steps of a rollout" in note]
    assert note.startswith("not seen: what follows the first ")
