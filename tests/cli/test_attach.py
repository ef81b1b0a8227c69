"""`legroom train -- COMMAND`: one line for what cannot be done, and the program's own end for all else."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from legroom.cli.main import main

LEGROOM = [sys.executable, "-c", "from legroom.cli.main import main; main()"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--with", "leen", "--", "python", "x.py"], "--with: there is no 'leen' (did you mean 'lean'?)"),
        (["--with", "nothing", "--", "python", "x.py"], "--with: there is no 'nothing' (there are: lean, workers, "
         "redo, allocator, micro_batch)"),
        (["--with", "", "--", "python", "x.py"], "--with names nothing (there are: lean, workers, redo, allocator, "
         "micro_batch)"),
        (["--with", "micro_batch", "--", "python"], "--with micro_batch: needs a number of samples (--with "
         "micro_batch=16)"),
        (["--with", "lean,micro_batch=0", "--", "python"], "--with micro_batch=0: needs a number of samples (--with "
         "micro_batch=16)"),
        (["--with", "lean=2", "--", "python"], "--with lean=2: lean takes no number (--with lean)"),
        (["--plain", "--with", "lean", "--", "python"], "--plain contradicts --with (give one of them)"),
        (["--"], "no command after -- (legroom train -- python train.py)"),
        (["--", "no-such-command"], "no-such-command: there is no such command (legroom train -- python train.py)"),
        (["--", sys.executable, "-I", __file__], "Python is started with -I (isolated mode), so it cannot use attached "
         "savings (run it without -I)"),
        (["--ram", "much", "--", "python"], "--ram"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_line(options, said, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["train", *options])
    assert ended.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and said in lines[0]


def test_output_input_and_exit_code_are_the_programs(tmp_path: Path) -> None:
    program = "import sys; print('read', sys.stdin.read()); print('said', file=sys.stderr); sys.exit(7)"
    done = subprocess.run(
        [*LEGROOM, "train", "--json", "--", sys.executable, "-c", program], input="given", capture_output=True,
        text=True, timeout=60, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 7
    printed, told = done.stdout.splitlines()
    assert printed == "read given"
    assert done.stderr.startswith("said\n")
    assert "applies to this program" in done.stderr
    document = json.loads(told)
    assert (document["exit_code"], document["attached"], document["not_attached"]) == (7, [], [])


def test_the_environment_of_a_plain_program_is_its_own(tmp_path: Path) -> None:
    program = "import os; print(sorted(set(os.environ) - {'LC_CTYPE'}), os.environ.get('PYTHONPATH'))"
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    outputs = [
        subprocess.run([*before, sys.executable, "-c", program], capture_output=True, text=True, timeout=60,
                       env=environment, check=True).stdout
        for before in ([], [*LEGROOM, "train", "--plain", "--"])
    ]  # fmt: skip
    assert outputs[0] == outputs[1]


def test_a_signal_reaches_the_program_and_its_end_is_ours(tmp_path: Path) -> None:
    program = "import time; print('ready', flush=True); time.sleep(60)"
    with subprocess.Popen(
        [*LEGROOM, "train", "--", sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        time.sleep(0.2)
        child.send_signal(signal.SIGTERM)
        assert child.wait(30) == 128 + signal.SIGTERM


def test_allocator_settings_are_the_users_where_he_has_some() -> None:
    from legroom.backends.program.attach_api import attaching, by_default

    command = [sys.executable, "-c", "pass"]
    with attaching(command, by_default(), {"PATH": "/bin"}, has_gpu=True) as found:
        assert found.environment["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"
        assert [(each.name, each.attached) for each in found.notes()] == [("allocator", True)]
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        with attaching(command, by_default(), {name: "max_split_size_mb:64"}, has_gpu=True) as found:
            assert found.environment[name] == "max_split_size_mb:64"
            assert [(each.name, each.attached) for each in found.notes()] == [("allocator", False)]
    with attaching(command, by_default(), {}, has_gpu=False) as found:
        assert not any(name.startswith("PYTORCH") for name in found.environment)
