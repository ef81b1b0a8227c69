"""File operations that fail and power that goes: the training goes on or resumes to the same parameters, every time."""

import errno
import json
import os
import shutil
import struct
import subprocess
import sys

import pytest
from bench import io_faults, power_loss

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="the shim is built with gcc")
EVERY = pytest.mark.parametrize("every", [37, pytest.param(3, marks=pytest.mark.slow)])


@EVERY
def test_whichever_file_operation_fails_it_goes_on_or_resumes_to_the_same_parameters(tmp_path, every):
    for tally in io_faults.measure(tmp_path, every=every):
        assert not tally.bad, tally.bad[0]
        assert tally.faults >= tally.calls // every and tally.resumed == tally.faults


@EVERY
def test_whenever_the_power_goes_the_folder_is_whole(tmp_path, every):
    for losses in power_loss.measure(tmp_path, every=every):
        assert not losses.bad, losses.bad[0]
        assert losses.states >= 5 * (losses.operations // every)


@pytest.mark.slow
def test_the_same_with_a_child_of_its_own_python(tmp_path):
    """A sample of the first test, without the shortcut of forking."""
    package = tmp_path / "site/adding-0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: adding\nVersion: 0\n")
    (package / "entry_points.txt").write_text("[legroom.backends]\nadding = bench.fault_backend:BACKEND\n")
    place, shim = tmp_path / "place", io_faults.Shim(tmp_path)
    (tmp_path / "run.yaml").write_text(io_faults.RUN)
    environment = os.environ | {"PYTHONPATH": f"{tmp_path / 'site'}:{io_faults.ROOT}", "TMPDIR": str(place / "tmp")}

    def train(first: int) -> tuple[int, str, int]:
        shim.state.write_bytes(struct.pack("6i", 1, first, 1, errno.EIO, 0, 0).ljust(4096, b"\0"))
        command = [sys.executable, "-m", "legroom.cli.main", "train", tmp_path / "run.yaml", "--out", place / "out"]
        begun = (place / "out").is_dir() and any((place / "out").iterdir())
        done = subprocess.run(
            [*command, *(["--resume"] if begun else [])], env=environment | shim.environment(place),
            cwd=io_faults.ROOT, text=True,
            capture_output=True, timeout=240, check=False,
        )  # fmt: skip
        return done.returncode, done.stderr, struct.unpack("6i", shim.state.read_bytes()[:24])[4]

    def begin() -> None:
        shutil.rmtree(place, ignore_errors=True)
        (place / "tmp").mkdir(parents=True)

    def learned() -> str:
        return json.loads((place / "out/outcome.json").read_text())["parameters_sha256"]

    begin()
    code, said, calls = train(io_faults.FOREVER)
    assert code == 0, said
    undisturbed = learned()
    for first in range(1, calls, calls // 8):
        begin()
        code, said, _ = train(first)
        assert code in io_faults.OURS and "Traceback" not in said, said
        code, said, _ = train(io_faults.FOREVER)
        assert code == 0 and learned() == undisturbed, said
