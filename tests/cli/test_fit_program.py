"""`legroom fit --param … -- COMMAND`: the largest argument that fits. Programs write their own journals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli import in_process

JOURNALS = Path(__file__).parents[1] / "backends" / "program"
# Takes 1 MiB of the card per sample; the card of a journal has no limit, so what does not fit is billed, not refused.
PROGRAM = f"""
import sys
sys.path.insert(0, {str(JOURNALS)!r})
size, multiple = int(sys.argv[1]), int(sys.argv[2])
if size % multiple:
    sys.exit(f"error: {{size}} is not a multiple of {{multiple}}")
from journal_writer import MIB, JournalWriter
writer = JournalWriter()
writer.begin()
here = writer.site(__file__, 10)
for _ in range(2):
    writer.free(writer.alloc(size * MIB, here, phase=1))
    writer.step()
print("output of the program")
"""


def fit(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "legroom.cli.main", "fit", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=folder, check=False)


def test_the_largest_value_that_fits_is_found_and_the_command_is_printed(tmp_path: Path) -> None:
    # 1000 MiB, of which the context takes up to 500 MB: 523 MiB are left, in segments of 2 MiB, one of them in doubt
    page = tmp_path / "memory.html"
    done = fit(tmp_path, "--vram", "1000MiB", "--param", "n=16..900:4", "--html", str(page),
               "--", sys.executable, "program.py", "{n}", "1")  # fmt: skip
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert text.startswith("Fits: n=520 (GPU up to 996.9 MiB of 1000.0 MiB") and "; n=524 does not" in text
    assert f"run it with: {sys.executable} program.py 520 1" in text
    assert "output of the program" not in done.stdout
    assert "n=16: fits" in done.stderr  # each rehearsal is told
    assert "<svg" in page.read_text()


def test_as_json_with_refused_values(tmp_path: Path) -> None:
    done = fit(tmp_path, "--vram", "1000MiB", "--json", "--param", "n=100,200,250,300,600",
               "--", sys.executable, "program.py", "{n}", "100")  # fmt: skip
    found = json.loads(done.stdout)
    assert (found["fits"], found["params"], found["next"]) == (True, {"n": 300}, {"n": 600})
    refused = [one for one in found["trials"] if one["refused"]]
    assert all(one["refused"] == "error: 250 is not a multiple of 100" for one in refused)
    assert found["runs"][0]["program"]["command"][-2:] == ["300", "100"]
    assert found["runs"][0]["gpu"]["allocator"]["limit"] == (1000 << 20) - 500_000_000


def test_a_program_that_takes_none_of_the_values_is_quoted_in_one_line(tmp_path: Path) -> None:
    done = fit(tmp_path, "--vram", "1000MiB", "--param", "n=7,9", "--", sys.executable, "program.py", "{n}", "2")
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.splitlines()[2:] == [  # after a line for each rehearsal
        "legroom: the program refuses all 2 values tried, n=7 first: error: 7 is not a multiple of 2 "
        "(give values that the program accepts)"
    ]


def test_a_place_without_a_param_is_named_where_the_program_fails(tmp_path: Path) -> None:
    done = fit(tmp_path, "--vram", "1000MiB", "--", sys.executable, "program.py", "{n}", "2")
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.splitlines() == [
        "legroom: the program failed: ValueError: invalid literal for int() with base 10: '{n}' "
        "({n} in the command stands for a value only with --param n=1..64)"
    ]


def test_control_c_ends_the_rehearsal_too_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(60)\n")
    command = [sys.executable, "-m", "legroom.cli.main", "fit", "--vram", "1GiB", "--param", "n=1..8"]
    command += ["--keep-writes"]  # the test reads what the program writes
    with subprocess.Popen(
        [*command, "--", sys.executable, "slow.py", "{n}"], cwd=tmp_path, text=True, stderr=subprocess.PIPE
    ) as started:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            time.sleep(0.05)
        started.send_signal(signal.SIGINT)
        _, errors = started.communicate(timeout=60)
    assert (started.returncode, errors) == (130, "legroom: interrupted\n")
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_host_memory_alone_is_a_question(tmp_path: Path) -> None:
    done = fit(tmp_path, "--ram", "2GiB", "--json", "--", sys.executable, "program.py", "600", "1")
    found = json.loads(done.stdout)
    assert done.returncode == 0 and found["fits"] is True, done.stderr
    assert found["runs"][0]["program"]["budget"]["host_only"] and len(found["tried"]) == 1
    done = fit(tmp_path, "--ram", "2GiB", "--", sys.executable, "program.py", "600", "1")
    first = " ".join(done.stdout.partition("\n\n")[0].split())
    assert first.startswith("Fits as it is: GPU up to") and "(compared with none; --gpu or --vram names one)" in first


def test_nothing_fits(tmp_path: Path) -> None:
    done = fit(tmp_path, "--vram", "600MiB", "--param", "n=200..900", "--", sys.executable, "program.py", "{n}", "1")
    assert done.returncode == 1
    assert done.stdout.startswith("Does not fit: n=200 needs GPU up to")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--param", "b=64..10", "--", "x", "{b}"), "--param b=64..10: the range is empty"),
        (("--vram", "1GiB", "--html", "page.html", "--", "x"), "--html draws memory against a parameter"),
        (("--param", "b=1..2", "--", "x"), "--param b: the command has no {b}"),
        (("--param", "batch=1..2", "--", "x", "{batches}"), "did you mean {batches}?"),
        (("--param", "b=1..2", "--", "x", "{b}", "{c}"), "the command has {c}, and there is no --param c"),
        (("--param", "b=1..2", "--", "x", "{b}"), "fit needs a budget"),
        (("--vram", "1GiB", "--param", "b=1,two", "--", "x", "{b}"), "'two' is not a number"),
        (("--vram", "1GiB", "--param", "b", "--", "x", "{b}"), "--param 'b' cannot be read"),
    ],
)
def test_bad_input_gets_one_line(tmp_path: Path, arguments: tuple[str, ...], line: str) -> None:
    done = in_process.legroom("fit", *arguments, cwd=tmp_path)
    assert done.returncode == 2 and not done.stdout
    assert line in done.stderr and len(done.stderr.splitlines()) == 1


# The same program with constants in place of arguments: at the top, in its main, and in a module beside it.
CONSTANTS = PROGRAM.replace(
    "size, multiple = int(sys.argv[1]), int(sys.argv[2])",
    """
from settings import N_ENVS
BATCH_SIZE = 64
TWICE = 2 * BATCH_SIZE  # reads what was set

def main():
    EXTRA = 1
    return EXTRA

if __name__ == "__main__":
    FREE = main()
size, multiple = TWICE * N_ENVS // 2 * FREE, 1
if size < 0:
    NEVER = 1
""",
)


def fit_constants(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(CONSTANTS)
    (folder / "settings.py").write_text("class Nothing:\n    pass\n\n\nN_ENVS = (\n    1\n)\n")
    command = [sys.executable, "-m", "legroom.cli.main", "fit", "--vram", "1000MiB", *arguments]
    command += ["--", sys.executable, "program.py"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=folder, check=False)


@pytest.mark.parametrize(
    ("name", "values", "largest", "place"),
    [
        ("BATCH_SIZE", "8,64,260,520,540", 520, "program.py:6"),
        ("EXTRA", "1,2,8,9", 8, "program.py:10"),
        ("N_ENVS", "1,8,16", 8, "settings.py:5"),
    ],
)
def test_a_constant_is_set_while_the_program_runs(
    tmp_path: Path, name: str, values: str, largest: int, place: str
) -> None:
    done = fit_constants(tmp_path, "--param", f"{name}={values}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Fits: {name}={largest} "), done.stdout
    assert f"set {name} = {largest} in {place}, then run: {sys.executable} program.py" in done.stdout
    assert f"{name}={values.partition(',')[0]}: fits" in done.stderr  # each try is named
    assert (tmp_path / "program.py").read_text() == CONSTANTS  # no file is changed


def test_a_constant_that_was_not_set_is_no_answer(tmp_path: Path) -> None:
    done = fit_constants(tmp_path, "--param", "NEVER=1..4")
    assert done.returncode == 2 and "--param NEVER: program.py:" in done.stderr
    assert "was not executed in" in done.stderr and "Fits" not in done.stdout
    done = fit_constants(tmp_path, "--param", "BATCHSIZE=1..4")
    assert done.returncode == 2 and "did you mean BATCH_SIZE?" in done.stderr


def test_a_program_without_arguments_is_offered_its_constants_and_smaller_pieces(tmp_path: Path) -> None:
    script = CONSTANTS.replace("BATCH_SIZE = 64", "BATCH_SIZE = 640")
    (tmp_path / "program.py").write_text(script)
    (tmp_path / "settings.py").write_text("N_ENVS = 1\n")
    command = [sys.executable, "-m", "legroom.cli.main", "fit", "--vram", "1000MiB", "--", sys.executable, "program.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False)
    text = " ".join(done.stdout.split())
    assert done.returncode == 1, done.stderr
    search = f"legroom fit --vram 1000MiB --param BATCH_SIZE=80..640 -- {sys.executable} program.py"
    assert f"try: a smaller size (changes learning): {search}" in text
    assert "try: gradient accumulation (slower; same results except with BatchNorm)" in text
    assert "2 backward passes, each on 1/2 of the batch" in text
    assert "N_ENVS=" not in text  # 1 is no size to search below
