"""`legroom explain` as people and scripts meet it: the JSON contract, exit codes, one page, one line of error."""

import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest
from explain_fixtures import EXPECTED, NAMES, TEXTS

from legroom.explaining import explain_file
from legroom.explaining.explain import TAIL_BYTES
from legroom.rendering.explanation_text import explanation_text
from legroom.rendering.layout import draw

LEGROOM = str(Path(sys.executable).parent / "legroom")
CONTRACT = {
    "legroom", "kind", "requested", "capacity", "free", "allocated", "reserved_unallocated", "shape", "dtype",
    "certain", "advice",
}  # fmt: skip
HEAVY = ("torch", "gymnasium", "stable_baselines3", "jax", "ray", "numpy", "scipy", "matplotlib")


def legroom(*arguments: str, text: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [LEGROOM, "explain", *arguments], input=text, capture_output=True, check=False, timeout=60
    )  # fmt: skip


def test_json_has_the_contract_s_keys_and_the_numbers() -> None:
    done = legroom(str(TEXTS / "seed_mine.txt"), "--json")
    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert set(document) >= CONTRACT
    assert document["legroom"] == 1
    assert document["kind"] == "host-array"
    assert document["requested"] == 112_742_891_520
    assert document["shape"] == [2048, 4, 17, 49, 71, 58]
    assert document["dtype"] == "float32"
    assert set(document["advice"][0]) == {"knob", "price", "say", "command"}


def test_standard_input_with_and_without_a_dash() -> None:
    text = (TEXTS / "cuda_reserved.txt").read_bytes()
    for arguments in (("--json",), ("-", "--json")):
        assert json.loads(legroom(*arguments, text=text).stdout)["kind"] == "cuda"


def test_nothing_recognised_says_so_with_exit_code_1() -> None:
    done = legroom("-", text=b"all is well\n")
    assert done.returncode == 1
    assert b"No out-of-memory error recognised" in done.stdout
    done = legroom("-", "--json", text=b"")
    assert done.returncode == 1
    assert json.loads(done.stdout)["kind"] == "unknown"


@pytest.mark.parametrize("path", ["no/such/file.log", str(TEXTS)])
def test_what_cannot_be_read_is_one_line_and_exit_code_2(path: str) -> None:
    done = legroom(path)
    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr.count(b"\n") == 1
    assert path.encode() in done.stderr


def test_a_terminal_as_standard_input_does_not_wait_for_typing() -> None:
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run([LEGROOM, "explain"], stdin=theirs, capture_output=True, check=False, timeout=30)
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_page_fits_a_small_terminal(name: str) -> None:
    page = draw(explanation_text(explain_file(TEXTS / name)), width=80, colour=False)
    lines = page.splitlines()
    assert len(lines) <= 22
    assert all(len(line) <= 80 for line in lines)
    assert ("price" in page) is (EXPECTED[name]["kind"] != "unknown")


def test_the_whole_page_of_the_mine_s_error() -> None:
    page = draw(explanation_text(explain_file(TEXTS / "seed_mine.txt")), width=80, colour=False)
    assert page == (
        "Host memory (RAM and swap) ran out: the system refused one array of 105.0 GiB.\n"
        "array: n_steps 2,048 × n_envs 4 × observation (17, 49, 71, 58), float32\n"
        "most likely: by its shape a rollout buffer: every observation of a rollout, and\n"
        "a copy at update\n"
        "n_steps 256 instead of 2,048 would ask 13.1 GiB\n"
        "\n"
        "price             change                   effect\n"
        "slower            memory.rollout=lean      lossless storage of the rollout, no\n"
        "                                           flatten copy\n"
        "slower            memory.max_bytes=4GiB    lean storage goes to disk above 4 GiB\n"
        "changes-learning  hyperparams.n_steps=256  a shorter rollout\n"
        "changes-learning  env.n_envs=1             fewer environments at once\n"
        "\n"
        "start with: legroom fit RUN\n"
    )


def test_it_imports_nothing_heavy() -> None:
    code = (
        f"import sys; sys.argv = ['legroom', 'explain', {str(TEXTS / 'seed_mine.txt')!r}]\n"
        "from legroom.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        f"print([m for m in {HEAVY} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_of_a_long_log_the_end_counts_and_the_middle_only_if_the_ends_say_nothing(tmp_path: Path) -> None:
    line = b"2024-05-06 07:08:09,101 INFO step 1370 reward 12.5 loss 0.25\n"
    filler = line * (TAIL_BYTES // len(line) + 1000)
    log = tmp_path / "train.log"
    log.write_bytes(filler + filler + (TEXTS / "cuda_capacty.txt").read_bytes())
    began = time.perf_counter()
    assert explain_file(log).kind == "cuda"
    assert time.perf_counter() - began < 15  # about 1.5 s on an idle core
    log.write_bytes(filler + (TEXTS / "cuda_capacty.txt").read_bytes() + filler)
    assert explain_file(log).requested == 320 << 20
    log.write_bytes((TEXTS / "jax_request.txt").read_bytes() + filler + filler)
    assert explain_file(log).kind == "jax"
