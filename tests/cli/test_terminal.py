"""The terminal: 80 columns are enough, colour only where somebody looks, words that complete themselves."""

import os
import pty
import resource
import select
import subprocess
import sys
import time
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest
from tests.cli.in_process import legroom

from legroom.cli import completion
from legroom.cli.commands import COMMANDS, WITH_PROGRAM
from legroom.cli.main import SUMMARIES
from legroom.cli.parsing import options_of
from legroom.errors import BadInput

LEGROOM = str(Path(sys.executable).parent / "legroom")
HEAVY = ("torch", "numpy", "gymnasium", "jax", "rich", "matplotlib")
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 7.79 GiB of "
    "which 1.00 GiB is free. Of the allocated memory 5.00 GiB is allocated by PyTorch, and 500.00 MiB is reserved"
)
SCREENS = [
    ("predict", "mine:full", "--mode", "arithmetic"),
    ("predict", "mine:full", "--mode", "arithmetic", "--all"),
    ("predict", "ninja:parallel", "gameboy:default", "mine:memory_optimized", "--mode", "arithmetic", "--gpu", "A100"),
    ("predict", "robot", "--mode", "arithmetic"),
    ("fit", "mine:full", "--ram", "2GiB", "--vram", "4GiB", "--mode", "arithmetic"),
    ("fit", "mine", "--ram", "8GiB", "--gpu", "RTX 4070", "--mode", "arithmetic"),
    ("fit", "robot:default", "--tiers", "8,16,24,48,80", "--ram", "64GiB", "--mode", "arithmetic"),
    ("check", "mine:full", "ninja:parallel"),
    ("check", "--list"),
    ("explain", "oom.txt"),
    ("machine",),
    ("workloads",),
    ("profile", "CartPole-v1", "--frames", "300", "--envs", "1"),
    ("watch", "--interval", "0.1", "--", sys.executable, "-c", "import time; time.sleep(0.8)"),
]


def run(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    return subprocess.run([LEGROOM, *arguments], capture_output=True, text=True, cwd=cwd, check=False, timeout=240,
                          env={**kept, "COLUMNS": "80", **environment})  # fmt: skip


@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: " ".join(screen[:3]))
def test_every_screen_fits_80_columns(screen: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "oom.txt").write_text(OOM)
    call = run if screen[0] in ("watch", "profile") else partial(legroom, COLUMNS="80")
    done = call(*screen, cwd=tmp_path)
    lines = (done.stdout + done.stderr).splitlines()
    assert len(lines) >= 3, done.stderr
    assert [line for line in lines if len(line) > 80] == []
    assert "\x1b" not in done.stdout + done.stderr and "Traceback" not in done.stderr


def on_a_terminal(*arguments: str, **environment: str) -> str:
    """Return what the command writes to a terminal."""
    pid, fd = pty.fork()
    if pid == 0:
        kept = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        os.execve(LEGROOM, [LEGROOM, *arguments], {**kept, "TERM": "xterm-256color", **environment})
    written, until = b"", time.monotonic() + 60
    while time.monotonic() < until:
        if select.select([fd], [], [], 0.5)[0]:
            try:
                data = os.read(fd, 65536)
            except OSError:  # the other end is closed
                break
            if not data:
                break
            written += data
    os.close(fd)
    os.waitpid(pid, 0)
    return written.decode()


def test_colour_is_for_terminals_and_no_color_turns_it_off(tmp_path: Path) -> None:
    shown = ("predict", "mine:small", "--mode", "arithmetic")
    assert "\x1b[1m" in on_a_terminal(*shown)
    assert "\x1b" not in on_a_terminal(*shown, NO_COLOR="1")
    assert "\x1b" not in run(*shown, cwd=tmp_path).stdout


def completed(*words: str) -> list[str]:
    return [text for text, _ in completion.candidates(words, SUMMARIES)]


def test_words_complete_commands_options_values_and_runs() -> None:
    assert completed("pr") == ["predict", "profile"]
    assert completed("") == list(COMMANDS)
    assert completed("--v") == ["--version"]
    assert completed("predict", "mine:u") == ["mine:ultra_light"]
    assert completed("predict", "mine:full", "ninja:") == ["ninja:default", "ninja:parallel", "ninja:learn"]
    assert completed("fit", "--like", "gameboy:f") == ["gameboy:fitted"]
    assert completed("predict", "--json", "mine:s") == ["mine:small"]  # after a flag comes a run
    assert completed("fit", "--mode", "") == ["auto", "trace", "arithmetic"]
    assert completed("train", "--check") == ["--checkpoint-every"]
    assert completed("train", "m") == [
        *(f"mine:{run}" for run in ("full", "memory_optimized", "ultra_light", "small")),
        "mine",
    ]
    assert completed("train", "more/") == []  # the shell completes files
    assert completed("watch", "--", "py") == completed("export", "x") == completed("nonsense", "x") == []
    assert completed("--show-completion", "z") == ["zsh"]


def test_every_command_is_declared_and_can_be_carried_out() -> None:
    assert list(COMMANDS) == list(SUMMARIES)
    for command in (*COMMANDS.values(), *WITH_PROGRAM.values()):
        module, _, function = command.module.partition(":")
        assert command.__doc__ and callable(getattr(import_module(module), function or "run"))
        assert len({one.field for one in options_of(command)}) == len(options_of(command))


@pytest.mark.parametrize("words", [("",), ("predict", "mine:"), ("train", "--")])
def test_a_press_of_tab_is_quick_and_imports_nothing_heavy(words: tuple[str, ...]) -> None:
    code = (
        "import sys\nfrom legroom.cli.main import main\n"
        f"try: main(['--complete-words', *{words!r}])\nexcept SystemExit: pass\n"
        f"print([m for m in {HEAVY} if m in sys.modules], file=sys.stderr)"
    )
    spent, plain = [], []
    for _ in range(3):
        for each, times in (("import pydantic, yaml", plain), (code, spent)):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run([sys.executable, "-c", each], capture_output=True, text=True, check=True, timeout=60)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert done.stdout.count("\n") >= 4
        assert done.stderr.strip() == "[]"
    assert min(spent) <= 3.5 * min(plain)  # 0.14 s on a quiet machine, where these imports take 0.06


def test_bash_completes_runs_across_the_colon(tmp_path: Path) -> None:
    script = f"""
        export PATH={Path(LEGROOM).parent}:$PATH
        source <(legroom --show-completion bash)
        COMP_WORDBREAKS=$' \\t\\n"><=;|&(:'
        try() {{
            COMP_LINE="$1"; COMP_POINT=${{#1}}; COMPREPLY=()
            _legroom_completion 2>/dev/null  # which says that it is not called by readline
            echo "${{COMPREPLY[*]}}"
        }}
        try "legroom pre"; try "legroom predict mine:u"; try "legroom fit --mod"
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.stdout.splitlines() == ["predict", "ultra_light", "--mode"], done.stderr


def test_a_shell_without_completion_is_told() -> None:
    with pytest.raises(BadInput, match="no completion for tcsh"):
        completion.script_for("tcsh")
