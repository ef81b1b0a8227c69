"""What cannot be asked, compiled or started is told in one line, and never called a fit by a guess."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli import in_process

from legroom.backends.program.program_bill import predicted
from legroom.backends.program.rehearsing import RehearsalPlan, rehearse
from legroom.machine.gpu_table import find_gpu
from legroom.model.rehearsal import ProgramPrediction
from legroom.model.verdict import Budget
from legroom.units import GIB, MIB
from legroom.xla import programs as xla_programs
from legroom.xla import target as xla_target
from legroom.xla.target import plugin_missing

CARD = find_gpu("RTX 4090").as_gpu()
INSTALLED = {
    "jaxlib": "0.9.2", "jax-cuda12-plugin": "0.9.2", "jax-cuda12-pjrt": "0.9.2", "nvidia-cuda-nvcc-cu12": "12.9",
}  # fmt: skip
PROGRAM = """import jax
import jax.numpy as jnp
{needs}
@jax.jit
def update(w):
    return jax.lax.fori_loop(0, 100_000, lambda _, w: {loop}, w)

update(jnp.ones((1024, 1024)))
"""


def rehearsed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, needs: str = "", loop: str = "w - jnp.tanh(w @ w)"
) -> ProgramPrediction:
    pytest.importorskip("jax")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    (folder / "train.py").write_text(PROGRAM.format(needs=needs, loop=loop))
    found = rehearse([sys.executable, str(folder / "train.py")], RehearsalPlan(CARD), output="kept")
    return predicted(found, Budget(64 * GIB, CARD.total))


def with_versions(monkeypatch: pytest.MonkeyPatch, **changed: str) -> None:
    versions = {**INSTALLED, **{name.replace("_", "-"): version for name, version in changed.items()}}
    for module in (xla_target, xla_programs):
        monkeypatch.setattr(module, "read_versions", lambda names: {each: versions[each] for each in names})
    monkeypatch.setattr(xla_programs, "is_installed", lambda name: name in versions)


def test_a_plugin_of_another_version_is_named_with_both_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_versions(monkeypatch, jax_cuda12_plugin="0.9.1")
    prediction = rehearsed(tmp_path, monkeypatch)
    (said,) = prediction.footprint.unknown
    start = (
        "not modelled: update (train.py:8): XLA cannot be asked for a GeForce RTX 4090: jax-cuda12-plugin 0.9.1 does"
    )
    assert said.startswith(f"{start} not match jaxlib 0.9.2 (") and "xla-gpu" in said and "\n" not in said
    assert prediction.fits is None and prediction.exit_code == 1


def answers(monkeypatch: pytest.MonkeyPatch, *, for_card: dict[str, Any], for_cpu: dict[str, Any]) -> None:
    with_versions(monkeypatch)
    monkeypatch.setattr(xla_programs, "_asked", lambda program, target, flags="": for_card if target else for_cpu)


def test_a_function_that_xla_cannot_compile_for_the_card_has_the_cpus_plan_with_a_wide_band(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_cpu = {"arguments": 0, "results": 4 * MIB, "temporaries": 100 * MIB, "constants": 0}
    answers(monkeypatch, for_card={"error": "XlaRuntimeError: UNIMPLEMENTED: no kernel"}, for_cpu=on_cpu)
    prediction = rehearsed(tmp_path, monkeypatch)
    item = next(item for item in prediction.footprint.items if item.name == "gpu.program")
    assert (item.nbytes, item.error) == (100 * MIB, 50 * MIB) and "for the CPU" in item.why
    (note,) = [note for note in prediction.footprint.notes if "UNIMPLEMENTED" in note]
    assert note == (
        "uncertain: the CPU's plan of update: XLA cannot compile it for a GeForce RTX 4090: XlaRuntimeError: "
        "UNIMPLEMENTED: no kernel (train.py:8): the band is wider by 50.0 MiB"
    )
    assert prediction.fits is True


def test_a_function_that_nobody_can_compile_leaves_the_verdict_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch, for_card={"error": "INVALID_ARGUMENT: of the card"}, for_cpu={"error": "of the CPU"})
    prediction = rehearsed(tmp_path, monkeypatch)
    (said,) = prediction.footprint.unknown
    assert said.endswith("XLA cannot compile it for a GeForce RTX 4090: INVALID_ARGUMENT: of the card")
    assert prediction.fits is None and prediction.exit_code == 1


@pytest.mark.extras
@pytest.mark.skipif(bool(plugin_missing()), reason=f"the extra xla-gpu: {plugin_missing()}")
def test_the_message_of_a_compiler_that_ends_itself_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = 'jax.ffi.ffi_call("__cublas$gemm", jax.ShapeDtypeStruct(w.shape, w.dtype))'  # a name that is XLA's own
    prediction = rehearsed(tmp_path, monkeypatch, loop=f"{kernel}(jnp.sort(w @ w))")
    (note,) = [note for note in prediction.footprint.notes if note.startswith("uncertain")]
    assert "the CPU's plan of update: XLA cannot compile it for a GeForce RTX 4090: " in note
    assert "Check failed" in note and "PyObject" not in note


NEEDS = (
    'assert jax.default_backend() == "gpu"',
    'jax.config.update("jax_default_device", jax.devices("gpu")[0])',
    'jax.config.update("jax_platforms", "cuda")',
    'jax.jit(lambda x: x + 1, backend="gpu")(1.0)',
    "import jax.extend; jax.extend.backend.get_backend('cuda')",
)


def test_programs_that_name_a_gpu_where_they_are_imported_are_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = {"arguments": 0, "results": 0, "temporaries": MIB, "constants": 0}
    answers(monkeypatch, for_card=plan, for_cpu={})
    prediction = rehearsed(tmp_path, monkeypatch, needs="\n".join(NEEDS))
    assert prediction.fits is True, prediction.rehearsal.failure


def test_a_program_that_ends_without_a_gpu_names_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs = 'assert "NVIDIA" in jax.devices()[0].device_kind, "needs an NVIDIA GPU"'
    prediction = rehearsed(tmp_path, monkeypatch, needs=needs)
    said = "; ".join(prediction.footprint.unknown)
    assert "the program failed at train.py:3 (AssertionError: needs an NVIDIA GPU)" in said
    assert "jax sees only CPU devices here, so a program that requires a GPU exits" in said
    assert prediction.fits is None and prediction.exit_code == 2


def test_an_unknown_card_is_told_before_the_program_is_run(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("raise AssertionError('run')\n")
    done = in_process.legroom("predict", "--gpu", "RTX 9999", "--", sys.executable, script)
    said = "legroom: unknown GPU 'RTX 9999' (give its memory instead, as in --vram 12GiB)\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)
