"""What a page says of simulators, engines and other trainers: their settings, the numbers, and nothing false."""

import json
import os
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from explain_fixtures import TEXTS, text_of

from legroom.errors import BadInput
from legroom.explaining import Explanation, explain, explain_file
from legroom.explaining import explain as explain_module
from legroom.rendering.explanation_text import explanation_document
from legroom.rendering.layout import draw

GIB = 1 << 30
SAYS: dict[str, dict[str, list[str]]] = json.loads((TEXTS / "says.json").read_text())
LEGROOM = str(Path(sys.executable).parent / "legroom")


def page_of(found: Explanation) -> str:
    return " ".join(draw(explanation_document(found, None), width=200, colour=False).lower().split())


def refused(path: object) -> str:
    """Return the one line with which a path is refused; waiting for it to end is a failure."""
    done = subprocess.run([LEGROOM, "explain", str(path)], capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"legroom: {path}: ")
    return done.stderr


@pytest.mark.parametrize("name", sorted(SAYS))
def test_the_page_names_what_the_text_proves_and_nothing_else(name: str) -> None:
    page = page_of(explain(text_of(name)))
    assert [words for words in SAYS[name]["has"] if words not in page] == []
    assert [words for words in SAYS[name]["lacks"] if words in page] == []


def cuda(capacity: str, processes: str, allocated: str, idle: str = "0 bytes", free: str = "0 bytes") -> Explanation:
    return explain(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of "
        f"{capacity} of which {free} is free. {processes} Of the allocated memory {allocated} is allocated by PyTorch, "
        f"and {idle} is reserved by PyTorch but unallocated."
    )


def this_process(size: str) -> str:
    return f"Including non-PyTorch memory, this process has {size} memory in use."


def test_what_is_outside_pytorch_is_the_process_less_what_pytorch_has() -> None:
    found = cuda("40.00 GiB", this_process("38.50 GiB"), "5.00 GiB", "512.00 MiB", free="1.00 GiB")
    assert found.outside == 33 * GIB
    assert found.others == 0  # 40 - 1 - 38.5 is the driver's own
    assert found.command == "legroom predict --vram 7GiB -- YOUR COMMAND"


@pytest.mark.parametrize(
    ("process", "ours", "named"),
    [("12.00 MiB", "39.70 GiB", False), ("900.00 MiB", "38.80 GiB", True), ("8.00 GiB", "31.70 GiB", True)],
)
def test_other_processes_are_named_where_ending_them_helps(process: str, ours: str, named: bool) -> None:
    listed = f"Process 9 has {process} memory in use. {this_process(ours)}"
    found = cuda("40.00 GiB", listed, "5.00 GiB", free="200.00 MiB")
    assert any(one.knob == "other processes" for one in found.advice) is named


def test_where_this_process_has_the_gpu_others_are_no_advice() -> None:
    found = cuda("31.36 GiB", this_process("30.92 GiB"), "1.91 GiB", "301.06 MiB", free="211.00 MiB")
    assert all(one.knob != "other processes" for one in found.advice)


def test_what_nobody_is_said_to_hold_is_not_given_to_anybody() -> None:
    found = explain(
        "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.00 GiB total capacity; 2.00 GiB "
        "already allocated; 0 bytes free; 3.00 GiB reserved in total by PyTorch)"
    )
    assert found.outside == 7 * GIB
    assert any("does not say which" in note for note in found.notes)


def test_of_several_processes_that_could_be_this_one_none_is_taken_for_it() -> None:
    listed = "Process 11 has 11.00 GiB memory in use. Process 12 has 12.00 GiB memory in use."
    found = cuda("24.00 GiB", listed, "10.00 GiB", "100.00 MiB")
    assert (found.others, found.outside) == (None, None)
    assert any("23.0 GiB" in note and "does not say which" in note for note in found.notes)


def test_graphs_and_nccl_of_an_engine_are_not_said_to_be_a_simulator() -> None:
    found = cuda("24.00 GiB", this_process("23.50 GiB"), "20.50 GiB")
    assert found.outside == 3 * GIB
    assert any("NCCL" in note and "does not say" in note for note in found.notes)


def test_a_buffer_s_size_is_not_taken_from_another_buffer_s_message() -> None:
    found = explain(
        "PxGpuDynamicsMemoryConfig::collisionStackSize buffer overflow detected, please increase its size to at least "
        "900000000 in the scene desc!\nPatch buffer overflow detected, please increase its size to at least 170000 in "
        "PxGpuDynamicsMemoryConfig::maxRigidPatchCount!\n"
    )
    assert found.advice[0].knob == "gpu_max_rigid_patch_count=170000"


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("python ppo_rgb.py", "python ppo_rgb.py"),
        ("(main) ada@box:~$ python ppo_rgb.py --num_envs=64", "python ppo_rgb.py --num_envs=64"),
        ("$ CUDA_VISIBLE_DEVICES=0 python3 -u run/ppo.py cfg.yaml --name 'a b' 2>&1 | tee log  # third try",
         "python run/ppo.py cfg.yaml --name 'a b'"),
        ("wandb: Agent: Running: /usr/bin/env python ppo.py \\\n  --lr 1 \\\n  -n 2 &", "python ppo.py --lr 1 -n 2"),
        ("PS C:\\rl> python -m rl.train task=Ant num_envs=4096", "python -m rl.train task=Ant num_envs=4096"),
        ("$ torchrun --nproc_per_node 2 train.py --x 1", "torchrun --nproc_per_node 2 train.py --x 1"),
        ("then python train.py fails like this", "python train.py"),
    ],
)  # fmt: skip
def test_a_command_line_in_the_log_is_the_program_of_the_suggestion(line: str, command: str) -> None:
    found = explain(f"{line}\nstarting\n{text_of('cuda_message_only.txt')}")
    page = draw(explanation_document(found), width=150, colour=False)
    assert f"legroom predict --vram 15.77GiB -- {command}\n" in page
    assert "YOUR COMMAND" not in page
    assert shlex.split(found.command).count("--") == 1


NO_LOGS = ("/dev/kmsg", "/dev/zero", "/dev/tty", "/tmp")


@pytest.mark.parametrize("path", [path for path in NO_LOGS if Path(path).exists()])
def test_what_is_no_log_is_refused_in_one_line(path: str) -> None:
    assert "legroom explain -" in refused(path)


def test_a_pipe_that_nobody_writes_to_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "without a writer" in refused(tmp_path / "pipe")


def test_a_pipe_is_read_when_its_writer_begins_late_and_until_it_closes(tmp_path: Path) -> None:
    pipe, text = tmp_path / "pipe", text_of("cuda_reserved.txt")
    os.mkfifo(pipe)

    def write() -> None:
        time.sleep(0.3)
        with pipe.open("w") as file:
            for half in (text[:50], text[50:]):
                file.write(half)
                file.flush()
                time.sleep(0.2)

    writer = threading.Thread(target=write)
    writer.start()
    assert explain_file(pipe) == explain(text)
    writer.join()


def test_a_writer_that_stays_silent_or_never_ends_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    module = sys.modules[explain_module.__module__]
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    monkeypatch.setattr(module, "SILENT_S", 0.2)
    held = os.open(pipe, os.O_RDWR)
    with pytest.raises(BadInput, match="nothing was written"):
        explain_file(pipe)
    monkeypatch.setattr(module, "MOST_PIPED_BYTES", 1000)
    os.write(held, b"step 1\n" * 200)
    with pytest.raises(BadInput, match="more than 1000 B was written"):
        explain_file(pipe)
    os.close(held)


def test_standard_input_that_never_ends_or_is_closed_is_refused() -> None:
    for given in ("</dev/zero", "<&-"):
        command = f"{shlex.quote(LEGROOM)} explain {given}"
        done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=20, check=False)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), given
