"""Inside of a compiled function, the bill names the lines that hold its memory."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from legroom.backends.program import jax_bill
from legroom.backends.program.program_bill import predicted
from legroom.backends.program.rehearsing import RehearsalPlan, rehearse
from legroom.machine.gpu_table import KnownGpu, find_gpu
from legroom.model.rehearsal import Rehearsal
from legroom.model.verdict import Budget
from legroom.rendering.program_text import by_line, moment_text, place_text, program_json
from legroom.units import GIB, MIB
from legroom.xla.buffers import held_lines
from legroom.xla.programs import XlaProgramPlan
from legroom.xla.target import plugin_missing

CARD = find_gpu("RTX 4090").as_gpu()

# shortened from what jaxlib 0.9 writes of a loop: line 5 is inlined into line 2, the parents are one too high
MODULE = """HloModule jit_update

FileNames
1 "lines"

FileLocations
1 {file_name_id=1 function_name_id=1 line=2 end_line=2 column=0 end_column=0}
2 {file_name_id=1 function_name_id=1 line=5 end_line=5 column=0 end_column=0}
3 {file_name_id=1 function_name_id=1 line=7 end_line=7 column=0 end_column=0}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}
3 {file_location_id=3 parent_frame_id=1}


%fused (p: f32[1000]) -> (f32[10], f32[1000]) {
  %p = f32[1000]{0} parameter(0)
  %exp.1 = f32[1000]{0} exponential(%p), metadata={op_name="exp" stack_frame_id=2}
  %sum.1 = f32[10]{0} reduce(%exp.1), metadata={op_name="sum" stack_frame_id=3}
  ROOT %tuple.1 = (f32[10]{0}, f32[1000]{0}) tuple(%sum.1, %exp.1)
}

%body (arg_tuple.1: (f32[500])) -> (f32[500]) {
  %arg_tuple.1 = (f32[500]{0}) parameter(0)
}

ENTRY %main (x: f32[1000]) -> f32[1000] {
  %x = f32[1000]{0} parameter(0)
  %start = f32[500]{0} broadcast(%x), metadata={op_name="zeros" stack_frame_id=3}
  %copy.9 = f32[200]{0} copy(%x), metadata={op_name="x"}
  %two = (f32[10]{0}, f32[1000]{0}) fusion(%x), kind=kInput, calls=%fused, metadata={op_name="sum" stack_frame_id=3}
  ROOT %done = f32[1000]{0} add(%x, %x), metadata={op_name="add" stack_frame_id=1}
}
"""
ASSIGNMENT = """BufferAssignment:
allocation 0: size 4000, output shape is |f32[1000]|, maybe-live-out:
 value: <1 done @0> (size=4000,offset=0): f32[1000]{0}
allocation 1: size 8000, preallocated-temp:
 value: <2 start @0> (size=2000,offset=0): f32[500]{0}
 value: <3 arg_tuple.1{0} (phi) @0> (size=2000,offset=0): f32[500]{0}
 value: <4 two{0} @0> (size=40,offset=2048): f32[10]{0}
 value: <5 two{1} @0> (size=4000,offset=2304): f32[1000]{0}
 value: <6 copy.9 @0> (size=800,offset=6400): f32[200]{0}
 value: <7 later @0> (size=6000,offset=0): f32[1500]{0}

HloLiveRange (max 9):
  BufferLiveRange:
    done{}:8-9
    start{}:0-2
    arg_tuple.1{0}:2-5
    two{0}:3-4
    two{1}:3-5
    copy.9{}:1-5
    later{}:6-7
"""


def test_what_is_live_together_is_billed_to_the_lines_it_comes_from() -> None:
    held = held_lines(ASSIGNMENT, MODULE)
    # at instruction 3: 2,000 B that a loop carries, from line 7; 4,000 B of line 5, called by line 2; 40 B of line 7.
    # 800 B are a copy of XLA's own, the rest of 8,000 B gaps. 6,000 B live later, where less is live.
    assert held["temporaries"] == [(4000, (5, 2)), (2040, (7,))]
    assert held["results"] == [(4000, (2,))]


HELPER = """import jax.numpy as jnp

def ordered(a):
    return jnp.sort(a, axis=0)
"""
TOY = """import jax
import jax.numpy as jnp
from helper import ordered

@jax.jit
def update(w, x):
    def loss(w):
        hidden = jnp.tanh(x @ w)
        return (ordered(hidden) * hidden).sum()
    def step(w, _):
        value, gradient = jax.value_and_grad(loss)(w)
        return w - 0.1 * gradient, value
    return jax.lax.scan(step, w, None, length=1000)

w, x = jnp.ones((512, 4096)), jnp.ones((8192, 512))
for _ in range(2):
    w, losses = update(w, x)
"""


def rehearsed(folder: Path, source: str = TOY) -> Rehearsal:
    (folder / "helper.py").write_text(HELPER)
    (folder / "train.py").write_text(source)
    found = rehearse([sys.executable, str(folder / "train.py")], RehearsalPlan(CARD), output="kept")
    assert found.card is not None, found.failure
    return found


def lines_of(found: Rehearsal) -> dict[str, int]:
    return {f"{Path(line.file).name}:{line.line}" if line.file else "": line.nbytes for line in by_line(found)}


def test_numbers_in_the_program_stand_for_lines_and_outlive_a_comment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jax")
    asked: list[bytes] = []

    def plan(path: Path, card: KnownGpu) -> XlaProgramPlan:
        asked.append(path.read_bytes())
        rows = json.loads(Path(f"{path}.lines").read_text())
        assert not any(library for _, (library, _) in rows)  # of jax alone, which is no library that somebody calls
        numbers = {(Path(file).name, line): number for number, ((file, line), _) in enumerate(rows, 1)}
        scan = max(line for file, line in numbers if file == "train.py" and line < 17 + shift)
        stack = (numbers["helper.py", 4], numbers["train.py", scan])
        held = {"temporaries": [(300 * MIB, stack)], "results": [(8 * MIB, stack[1:])]}
        return XlaProgramPlan(arguments=0, results=9 * MIB, temporaries=320 * MIB, constants=0, held=held)

    monkeypatch.setattr(jax_bill, "plan_program", plan)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shift = 0
    found = rehearsed(tmp_path)
    arrays = (512 * 4096 + 8192 * 512) * 4
    lines = lines_of(found)
    assert lines["helper.py:4"] == 300 * MIB and lines[""] == 20 * MIB and lines["train.py:13"] == 8 * MIB
    assert lines["train.py:17"] >= arrays + MIB  # the call: what is live, and results that have no line
    assert any("no source line for 20.0 MiB, 6% of the temporaries of update" in note for note in found.notes)
    assert moment_text(found).endswith("train.py:17, in update")
    told = json.loads(program_json(predicted(found, Budget(64 * GIB, CARD.total))))["runs"][0]["program"]
    assert sum(line["nbytes"] for line in told["lines"]) == sum(lines.values())
    shift = 1
    found = rehearsed(tmp_path, f"# a comment\n{TOY}")
    assert asked[0] == asked[1]
    assert lines_of(found)["train.py:14"] == 8 * MIB


def test_lines_of_libraries_are_named_where_the_program_only_calls_one() -> None:
    library, inner, call = "/env/lib/site-packages/brax/ppo.py", "/env/lib/site-packages/flax/dense.py", ("train.py", 9)
    rows = [
        (("train.py", 9), (library, 155)),  # 1: brax calls flax: the number stands for brax's line
        (("", 0), (inner, 7)),  # 2: inside of a function that flax compiles
        (("train.py", 4), (library, 20)),  # 3: the program's own environment, called by brax
        (("train.py", 9), ("", 0)),
    ]
    assert jax_bill._place((1,), rows, [call]) == (library, 155)
    assert jax_bill._place((2, 1), rows, [call]) == (library, 155)
    assert jax_bill._place((2,), rows, [call]) == (inner, 7)
    assert jax_bill._place((2, 3, 1), rows, [call]) == ("train.py", 4)
    assert jax_bill._place((4,), rows, [call]) == call
    assert jax_bill._place((), rows, [call]) is None
    assert place_text(library, 155) == "brax/ppo.py:155 (library)"


@pytest.mark.extras
@pytest.mark.skipif(bool(plugin_missing()), reason=f"the extra xla-gpu: {plugin_missing()}")
def test_the_lines_of_a_program_hold_what_its_arrays_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lines = lines_of(rehearsed(tmp_path))
    hidden = 8192 * 4096 * 4
    # tanh's result is kept for the backward pass. Sorting keeps its result, and in the backward pass a gradient is
    # scattered by pairs of indices (two numbers each) into a second array: four times as much in all.
    assert lines["train.py:8"] == hidden
    assert lines["helper.py:4"] == 4 * hidden
    assert lines["train.py:13"] == pytest.approx((512 * 4096 + 1000) * 4, abs=64)  # results: weights and losses
    assert lines["train.py:17"] == pytest.approx((512 * 4096 + 8192 * 512) * 4, rel=1e-3)


FOREIGN = """import jax
import jax.numpy as jnp

@jax.jit
def update(x):
    kernel = jax.ffi.ffi_call("kernel_of_warp", jax.ShapeDtypeStruct(x.shape, x.dtype))
    return jax.lax.fori_loop(0, 1000, lambda _, x: kernel(x), x)

update(jnp.ones((1024, 1024)))
"""


def test_memory_that_custom_calls_may_allocate_is_a_range_of_the_bill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jax")
    plan = XlaProgramPlan(arguments=0, results=4 * MIB, temporaries=MIB, constants=0)
    monkeypatch.setattr(jax_bill, "plan_program", lambda path, card: plan)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    prediction = predicted(rehearsed(tmp_path, FOREIGN), Budget(64 * GIB, CARD.total))
    item = next(item for item in prediction.footprint.items if item.name == "gpu.custom calls")
    assert (item.nbytes - item.error, item.nbytes + item.error) == (0, pytest.approx(4 * MIB, rel=0.01))
    assert prediction.fits is True


SCAN = """import jax
import jax.numpy as jnp

@jax.jit
def update(x):
    def step(x, _):
        x = jnp.sin(x)
        return x, x
    _, trajectory = jax.lax.scan(step, x, None, length=1000)
    return (trajectory * trajectory[::-1]).sum(0)

update(jnp.ones(524_288))
"""


@pytest.mark.extras
@pytest.mark.skipif(bool(plugin_missing()), reason=f"the extra xla-gpu: {plugin_missing()}")
def test_what_a_scan_stacks_is_held_by_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lines = lines_of(rehearsed(tmp_path, SCAN))
    assert lines["train.py:9"] == pytest.approx(1000 * 524_288 * 4, rel=1e-5)  # and a counter
    assert lines["train.py:10"] == 524_288 * 4  # the result
