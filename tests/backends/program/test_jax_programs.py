"""A JAX program is billed by XLA's plans of its functions; what cannot be planned is unknown, never "fits"."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from legroom.backends.program import jax_bill
from legroom.backends.program.jax_bill import with_jax
from legroom.backends.program.program_bill import predicted
from legroom.backends.program.rehearsing import RehearsalPlan, rehearse
from legroom.errors import MissingExtra
from legroom.machine.gpu_table import find_gpu
from legroom.model.rehearsal import HostSeen, Rehearsal
from legroom.model.verdict import Budget
from legroom.units import GIB
from legroom.xla import programs as xla_programs
from legroom.xla.buffers import read_allocations
from legroom.xla.programs import XlaProgramPlan, plan_program
from legroom.xla.target import plugin_missing

CARD = find_gpu("RTX 4090").as_gpu()
HOST = HostSeen(peak=300 << 20, last=300 << 20, workers=0, processes=1)
SEEN = Rehearsal(("python", "train.py"), 0, "finished", 2, 0, 5.0, HOST, had_card=True)
MESSAGES: dict[str, list[dict[str, Any]]] = {
    "jax": [{"version": "0.9.2", "pid": 1, "t": 0.1}],
    "xla program": [
        {"number": 0, "name": "update", "path": "p", "file": "train.py", "line": 9, "consts": 0, "pid": 1, "t": 1.0}
    ],
    "xla call": [
        {"number": 0, "live": GIB, "file": "train.py", "line": 30, "pid": 1, "t": 1.1},
        {"number": 0, "live": 2 * GIB, "file": "train.py", "line": 30, "pid": 1, "t": 1.2},
    ],
    "xla live": [{"live": GIB, "file": "train.py", "line": 5, "pid": 1, "t": 0.5}],
}


def planning(monkeypatch: pytest.MonkeyPatch, results: int, temporaries: int) -> None:
    planned = XlaProgramPlan(arguments=GIB, results=results, temporaries=temporaries, constants=0)
    monkeypatch.setattr(jax_bill, "plan_program", lambda path, card: planned)


def test_the_peak_is_live_arrays_and_what_the_largest_call_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    planning(monkeypatch, results=3 * GIB, temporaries=4 * GIB)
    prediction = predicted(with_jax(SEEN, MESSAGES, CARD, None, lambda _: None), Budget(64 * GIB, CARD.total))
    items = {item.name: item.total for item in prediction.footprint.items}
    assert (items["gpu.arrays"], items["gpu.results"], items["gpu.program"]) == (2 * GIB, 3 * GIB, 4 * GIB)
    assert prediction.fits is True
    card = prediction.rehearsal.card
    assert card is not None and card.at is not None and (card.at.file, card.at.line) == ("train.py", 30)


def test_running_out_is_told_at_the_line_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    planning(monkeypatch, results=3 * GIB, temporaries=14 * GIB)  # 18 GiB at the first call; XLA takes 17.99 of 23.99
    found = with_jax(SEEN, MESSAGES, CARD, None, lambda _: None)
    assert found.stopped == "out-of-memory"
    (oom,) = found.out_of_memory
    assert (oom.file, oom.line, oom.requested) == ("train.py", 30, 17 * GIB)
    assert oom.text.startswith("RESOURCE_EXHAUSTED") and "update" in oom.text
    assert predicted(found, Budget(64 * GIB, CARD.total)).fits is False


def test_a_function_that_xla_was_not_asked_about_makes_the_verdict_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, card: Any) -> Any:
        raise MissingExtra("xla-gpu", "jax-cuda12-plugin", what="asking XLA for a card")

    monkeypatch.setattr(jax_bill, "plan_program", fail)
    prediction = predicted(with_jax(SEEN, MESSAGES, CARD, None, lambda _: None), Budget(64 * GIB, CARD.total))
    assert prediction.fits is None
    assert any("update (train.py:9)" in why and "xla-gpu" in why for why in prediction.footprint.unknown)


def test_growth_while_functions_are_traced_leaves_no_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    planning(monkeypatch, results=0, temporaries=GIB)
    growing = replace(SEEN, stopped="repeats", host=replace(HOST, growing_per_s=3 << 20))
    prediction = predicted(with_jax(growing, MESSAGES, CARD, None, lambda _: None), Budget(64 * GIB, CARD.total))
    assert prediction.fits is True
    assert any("host memory grew by 3.0 MiB per second" in note for note in prediction.footprint.notes)


def test_the_parts_of_a_buffer_assignment_are_told_apart() -> None:
    text = """BufferAssignment:
allocation 0: size 4000, output shape is |f32[1000]|, maybe-live-out:
allocation 1: size 800, parameter 0, shape |f32[200]| at ShapeIndex {}:
allocation 2: size 600, parameter 1, maybe-live-out, shape |f32[150]| at ShapeIndex {}:
allocation 3: size 1, thread-local:
allocation 4: size 4, constant:
allocation 5: size 9000, preallocated-temp:
"""
    assert read_allocations(text) == {"arguments": 1400, "results": 4000, "temporaries": 9000, "constants": 4}


PROGRAM = """
import jax
import jax.numpy as jnp

@jax.jit
def update(w, n, x):
    def step(carry, _):
        w, n = carry
        return (w - jnp.tanh(x @ w), n + 1), w[0, 0]
    return jax.lax.scan(step, (w, n), None, length=100_000)

key = jax.random.PRNGKey(0)
w, n = jax.random.normal(key, (256, 256)), jnp.int32(0)
assert float(jnp.abs(w).sum()) > 0  # small functions are run
assert jax.default_backend() == "gpu"
assert len(jax.local_devices(backend="gpu")) == jax.device_count("cuda") == 1
for _ in range(3):
    (w, n), seen = update(w, n, jnp.ones((256, 256)))
assert int(n) == 300_000  # what a large function counts is known
print("shape", w.shape, float(w.sum()))
"""


def test_a_program_that_would_compute_for_minutes_is_followed_in_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jax")
    asked: list[bytes] = []

    def plan(path: Path, card: Any) -> XlaProgramPlan:
        asked.append(path.read_bytes())
        return XlaProgramPlan(arguments=0, results=1000, temporaries=2000, constants=0)

    monkeypatch.setattr(jax_bill, "plan_program", plan)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    found = rehearse([sys.executable, str(script)], RehearsalPlan(CARD), output="kept")
    assert found.stopped == "finished" and found.exit_code == 0, found.failure
    assert len(asked) == 1  # one large function, three times called
    assert found.updates == 3 and found.card is not None and found.card.at is not None
    assert (Path(found.card.at.file).name, found.card.at.line) == ("train.py", 18)
    assert found.card.at.function == "update"
    # w and x, 256 KiB each, the key, and the last results: w again and 100,000 numbers
    assert 2 * 262_144 < found.card.peak_allocated - 3000 < 4 * 262_144 + 400_000 + 1000


def test_an_array_and_its_shards_are_billed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    planning(monkeypatch, results=0, temporaries=0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    script = tmp_path / "train.py"
    held = "held = jnp.zeros((1, 8 << 20))  # 32 MiB\nview = held.addressable_shards[0].data\nfor _ in range(3):"
    script.write_text(PROGRAM.replace("for _ in range(3):", held))
    found = rehearse([sys.executable, str(script)], RehearsalPlan(CARD), output="kept")
    assert found.stopped == "finished" and found.card is not None, found.failure
    assert 32 << 20 < found.card.peak_allocated < 36 << 20


GUESSING = """
import jax
import jax.numpy as jnp

@jax.jit
def update(w):
    w = jax.lax.fori_loop(0, 100_000, lambda _, w: w - jnp.tanh(w @ w), w)
    return w, (w > 0).sum(), w.sum()

w, positive, loss = update(jnp.ones((256, 256)))
assert positive >= 0  # the program would have ended: no guess about what it does next
print(float(loss))
rows = 2 * positive + 1
buffer = jnp.zeros((int(rows), 4))
if rows > 100:
    buffer = jnp.zeros((10_000, 10_000))
"""


def test_a_number_that_was_not_computed_and_is_read_leaves_the_verdict_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jax")
    planning(monkeypatch, results=0, temporaries=GIB)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    script = tmp_path / "train.py"
    script.write_text(GUESSING)
    found = rehearse([sys.executable, str(script)], RehearsalPlan(CARD), output="kept")
    assert found.stopped == "finished" and found.exit_code == 0, found.failure
    said = "int32 that update returns is read here; it was not computed, 0 was assumed (train.py:14)"
    assert found.unmodelled[0] == said
    assert [each.rpartition(" ")[2] for each in found.unmodelled] == ["(train.py:14)", "(train.py:15)"]
    assert predicted(found, Budget(64 * GIB, CARD.total)).fits is None


def test_a_state_that_is_kept_on_the_host_decides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    planning(monkeypatch, results=0, temporaries=GIB)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    head = GUESSING.partition("assert")[0].replace("(256, 256)", "(512, 512)")
    script = tmp_path / "train.py"
    script.write_text(f'{head}best = jax.device_get({{"weights": w, "count": positive}})\n')
    found = rehearse([sys.executable, str(script)], RehearsalPlan(CARD), output="kept")
    assert found.stopped == "finished" and not found.unmodelled
    script.write_text(f'{head}told = jax.device_get({{"loss": loss, "count": positive}})\n')
    (said,) = rehearse([sys.executable, str(script)], RehearsalPlan(CARD), output="kept").unmodelled
    assert said.endswith("(train.py:11)")


def test_a_program_that_fails_after_its_training_repeated_is_known_until_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jax")
    planning(monkeypatch, results=0, temporaries=GIB)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    script = tmp_path / "train.py"
    script.write_text(
        PROGRAM.replace("range(3)", "range(6)").replace("300_000", "600_000") + "print(1 / float(w[0, 0]))\n"
    )
    command = [sys.executable, str(script)]
    found = rehearse(command, RehearsalPlan(CARD), output="kept")
    said = "the program ended with ZeroDivisionError: float division by zero at train.py:21, after 6 large calls"
    assert (found.stopped, found.exit_code) == ("repeats", 1)
    assert any(note.startswith(said) for note in found.notes), found.notes
    assert predicted(found, Budget(64 * GIB, CARD.total)).fits is True
    # after a single call nothing had repeated, and a missing package may be installed
    script.write_text(PROGRAM.replace("range(3)", "range(1)").replace("300_000", "100_000") + "import not_there\n")
    assert rehearse(command, RehearsalPlan(CARD), output="kept").stopped == "failed"
    script.write_text(PROGRAM.replace("range(3)", "range(6)").replace("300_000", "600_000") + "import not_there\n")
    assert rehearse(command, RehearsalPlan(CARD), output="kept").stopped == "repeats"


def test_each_compiled_function_is_listed_with_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    planning(monkeypatch, results=0, temporaries=GIB)
    other = {"number": 1, "name": "evaluate", "path": "q", "file": "train.py", "line": 12, "pid": 1, "t": 2.0}
    call = {"number": 1, "live": GIB, "file": "train.py", "line": 40, "pid": 1, "t": 2.1}
    programs = {"xla program": [*MESSAGES["xla program"], other], "xla call": [*MESSAGES["xla call"], call]}
    seen = with_jax(SEEN, {**MESSAGES, **programs}, CARD, None, lambda _: None)
    (note,) = seen.notes
    assert note.endswith("update 3.0 GiB (train.py:30), evaluate 2.0 GiB (train.py:40)")


@pytest.mark.extras
@pytest.mark.skipif(bool(plugin_missing()), reason=f"the extra xla-gpu: {plugin_missing()}")
def test_xla_plans_a_program_for_a_gpu_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jax = pytest.importorskip("jax")
    from jax._src.export import _export

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    square = jax.ShapeDtypeStruct((512, 512), "float32")
    lowered = jax.jit(lambda x: x @ x).trace(square).lower(lowering_platforms=("cuda",))
    path = tmp_path / "program.mlir"
    path.write_bytes(_export._module_to_bytecode(lowered._lowering.stablehlo()))
    planned = plan_program(path, find_gpu("RTX 4090"))
    assert (planned.arguments, planned.results) == (512 * 512 * 4, 512 * 512 * 4)
    assert planned.temporaries < 64 << 20  # cuBLAS's workspace
    monkeypatch.setattr(xla_programs, "ask_child", None)
    assert plan_program(path, find_gpu("RTX 4090")) == planned  # not asked twice


def test_the_guest_reads_without_legroom() -> None:
    source = Path(jax_bill.__file__).parents[2] / "hollow" / "jax_programs.py"
    code = f"import ast; ast.parse(open({str(source)!r}).read(), feature_version=(3, 9))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


EAGER = """
import time
import torch  # only imported, as by a library for its logs
import jax
import jax.numpy as jnp

state = jnp.zeros((4096, 4096))
for _ in range(300):  # a reset, operation by operation: long enough to look like a training that repeats
    state = jnp.cross(state[:, :3], state[:, :3]) if state.shape[1] == 3 else state + 1
    time.sleep(0.02)

@jax.jit
def update(w):
    return jax.lax.fori_loop(0, 100_000, lambda _, w: w - jnp.tanh(w @ w), w)

for _ in range(2):
    state = update(state)
"""


def test_single_operations_are_no_steps_of_a_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    planning(monkeypatch, results=0, temporaries=GIB)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    script = tmp_path / "train.py"
    script.write_text(EAGER)
    found = rehearse([sys.executable, str(script)], RehearsalPlan(CARD), output="kept")
    assert (found.stopped, found.updates) == ("finished", 2), found.failure  # it was not stopped before its training
    assert found.torch and found.jax_alone and found.card is not None
    assert not predicted(found, Budget(64 * GIB, CARD.total)).footprint.unknown
