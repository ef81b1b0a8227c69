"""What watch says about memory: verdicts of real commands, what killed them, and the files it writes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from watch_helpers import ENVIRONMENT, LEAK, LEGROOM, PYTHON, SAWTOOTH, STEADY, TOUCHED, Ran, watch_python

CGROUPS = (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup"))
FILL = TOUCHED + (  # as np.zeros does: asked for at once, resident while it is written
    "import mmap\nbuffer = mmap.mmap(-1, 160 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
    "for i in range(220):\n    at = i * (512 << 10)\n"
    "    buffer[at:at + (512 << 10)] = bytes([1]) * (512 << 10)\n    tick()\n"
)
PLATEAU = TOUCHED + "kept = []\nfor i in range(260):\n    kept += [touched(1)] if i < 90 else []\n    tick()\n"


@pytest.fixture(scope="module")
def leaked(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("leaked")
    return watch_python(folder, LEAK, "--interval", "0.05", "--limit", "300MiB", arguments=("<b>&",))


@pytest.mark.parametrize(
    ("script", "verdict"),
    [(SAWTOOTH, "ok"), (FILL, "growing"), (PLATEAU, "ok")],
    ids=["sawtooth", "fill", "plateau"],
)
def test_verdict_of_a_script(tmp_path: Path, script: str, verdict: str) -> None:
    told = watch_python(tmp_path, script, "--interval", "0.05", "--limit", "1GiB").told
    assert told is not None
    assert told["verdict"] == verdict, told["why"]


def test_leak_is_called_one_and_its_end_foretold(leaked: Ran) -> None:
    ran = leaked
    assert ran.told is not None
    assert ran.told["verdict"] == "leak", (ran.told["why"], ran.told["phases"], ran.told["forecasts"])
    assert re.search(r"legroom watch: memory runs out in about \d+ s \(at \d\d:\d\d:\d\d\)", ran.err)
    assert ran.told["forecast"]["certain"]
    coming = ran.told["forecast"]
    assert coming["made"] < coming["earliest"] <= coming["reaches"] <= coming["latest"]


COPIES = """
import os, time
data = bytearray(os.urandom(1 << 20) * 200)
time.sleep(1)
for _ in range(3):
    if os.fork() == 0:
        time.sleep(1)
        for at in range(0, len(data), 4096): data[at] = 1
        time.sleep(3.5)
        os._exit(0)
for _ in range(3): os.wait()
"""


def test_what_forks_copy_of_their_parent_is_counted(tmp_path: Path) -> None:
    """200 MiB in the parent and in each of three children: the kernel's counters show no growth while they copy."""
    told = watch_python(tmp_path, COPIES).told
    assert told is not None
    assert told["peak"]["host"] > 700 << 20


def test_limit_that_a_steady_script_passes_is_told_and_kills_nobody(tmp_path: Path) -> None:
    ran = watch_python(tmp_path, STEADY, "--limit", "30MiB", "--interval", "0.05")
    assert ran.code == 0 and ran.told is not None
    assert ran.told["verdict"] == "ok", ran.told["why"]
    assert ran.told["exceeded"] is not None and "above the limit of 30.0 MiB" in ran.err


def test_memory_error_is_explained_with_a_command_to_try(tmp_path: Path) -> None:
    script = (
        "import sys\nprint('Traceback (most recent call last):', file=sys.stderr)\n"
        "sys.exit('numpy._core._exceptions._ArrayMemoryError: Unable to allocate 104. GiB for an array with shape "
        "(2048, 4, 17, 49, 71, 58) and data type float32')\n"
    )
    ran = watch_python(tmp_path, script, "--limit", "8GiB")
    assert ran.code == 1 and ran.told is not None
    assert ran.told["cause"] == "host-array" and ran.told["of_memory"] is True
    assert re.fullmatch(r"legroom fit \S*train\.py --ram 8GiB", ran.told["hint"])
    assert "104" in ran.err and "--ram 8GiB" in " ".join(ran.err.split()) and "--ram 8GiB" in ran.page


def test_kill_by_the_kernel_is_told_as_such(tmp_path: Path) -> None:
    group = next((root / f"legroom-test-{os.getpid()}" for root in CGROUPS if root.is_dir()), None)
    try:
        assert group is not None
        group.mkdir()
        limit = next(group / name for name in ("memory.limit_in_bytes", "memory.max") if (group / name).exists())
        limit.write_text(str(120 << 20))
    except (AssertionError, OSError, StopIteration):
        pytest.skip("no container can be made here")
    script, out = tmp_path / "train.py", tmp_path / "out"
    script.write_text(TOUCHED + "kept = []\nwhile True:\n    kept.append(touched(1)); time.sleep(0.01)\n")
    inside = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
    command = [*inside, *LEGROOM, "watch", "--out", str(out), "--", PYTHON, str(script)]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, env=ENVIRONMENT, check=False)
        assert ran.returncode == 137
        told = json.loads((out / "watch.json").read_text())
        assert (told["cause"], told["of_memory"], told["limit"]["origin"]) == ("container", True, "container")
        assert told["hint"].endswith("train.py --ram 120MiB")
    finally:
        for _ in range(50):
            with suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.1)


def test_error_log_in_a_file_is_read_there(tmp_path: Path) -> None:
    log, out = tmp_path / "err.log", tmp_path / "out"
    text = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 7.78 GiB"
    )
    with log.open("wb") as file:
        command = [PYTHON, "-c", f"import sys; sys.exit({text!r})"]
        subprocess.run(
            [*LEGROOM, "watch", "--out", str(out), "--", *command], stderr=file, env=ENVIRONMENT, check=False
        )
    assert '"cause": "cuda"' in (out / "watch.json").read_text()
    assert log.read_text().startswith(text)


def test_document_has_what_is_promised(leaked: Ran) -> None:
    told = leaked.told
    assert told is not None
    assert told["legroom"] == 1 and told["exit_code"] == 0 and told["signal"] is None and told["cause"] is None
    assert told["peak"].keys() >= {"host", "gpu"} and told["verdict"] in ("leak", "growing", "ok")
    assert 20 <= len(told["samples"]) <= 2000
    for sample in told["samples"]:
        assert sample.keys() == {"t", "host", "gpu", "by_role"}
        assert sum(sample["by_role"].values()) == sample["host"]
    times = [sample["t"] for sample in told["samples"]]
    assert times == sorted(times) and max(s["host"] for s in told["samples"]) <= told["peak"]["host"]
    assert told["phases"][0]["name"] == "start"


def test_report_is_short_and_fits_80_columns(leaked: Ran) -> None:
    err = leaked.err
    report = err[err.index("legroom watch: leak") :].splitlines()
    assert not re.search("steady (?!at)", " ".join(report[1:]))  # the text does not contradict its first line
    assert len(report) <= 20
    assert all(len(line) <= 80 for line in report if not line.startswith("written:"))
