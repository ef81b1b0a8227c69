"""XLA's text about its buffers, read: what lives when, what is one buffer in turns, and what is no temporary."""

from __future__ import annotations

from legroom.backends.brax.buffers import WORKSPACE, coefficients, live_sums, read_assignment, workspaces
from legroom.backends.brax.pieces import Sizes, marked_sizes

# 61 environments, a batch of 61 × 67 = 4087 segments; shortened from what jaxlib 0.9 writes
TEXT = """BufferAssignment:
allocation 0: size 244, parameter 0, shape |f32[61]| at ShapeIndex {}, maybe-live-out:
 value: <1 x.1 @0> (size=244,offset=0): f32[61]{0}
allocation 1: size 4, constant:
 value: <2 constant.6 @0> (size=4,offset=0): s32[]
allocation 2: size 18300, preallocated-temp:
 value: <3 physics @0> (size=732,offset=0): f32[61,3]{1,0}
 value: <4 carried @0> (size=244,offset=768): f32[61]{0}
 value: <5 arg_tuple.3{1} (phi) @0> (size=244,offset=768): f32[61]{0}
 value: <6 loss.2 @0> (size=16348,offset=1024): f32[4087]{0}
 value: <7 tuple.6{} @0> (size=24,offset=17408): (s32[], f32[61]{0})

Total bytes used: 18548 (18.1KiB)

HloLiveRange (max 25):
  BufferLiveRange:
    x.1{}:0-25
    constant.6{}:1-3
    physics{}:2-4
    carried{}:3-6
    arg_tuple.3{1}:6-10
    loss.2{}:8-9
    tuple.6{}:3-10
  Live ranges at 8 (peak):
"""


def test_only_temporaries_are_counted() -> None:
    found = read_assignment(TEXT, marked_sizes(one_unroll=False))
    assert found.packed == 18_300
    assert [(region.size, len(region.buffers), term) for region, term in found.regions] == [
        (732, 1, "N"), (244, 2, "N"), (16_348, 1, "B"), (24, 1, "1"),
    ]  # fmt: skip


def test_what_lives_together_is_added_and_a_loop_carries_one_buffer() -> None:
    sums = list(live_sums(read_assignment(TEXT, marked_sizes(one_unroll=False))))
    assert sums[0] == {"N": 732}
    assert sums[1] == {"N": 732 + 244, "1": 24}
    assert sums[-1] == {"N": 244, "1": 24, "B": 16_348}  # carried and arg_tuple.3 are the same bytes, in turns
    per_unit = coefficients(sums[-1], {term: Sizes(61, 4087).value(term) for term in sums[-1]})
    assert per_unit == {"N": 4, "1": 24, "B": 4}


PROGRAM = """
  %gradient = (f32[128,128]{1,0}, s8[4194304]{0}) custom-call(%left, %right), custom_call_target="__cublas$gemm", x
  %left = f32[4480,128]{1,0} bitcast(%a)
  %right = f32[4480,128]{1,0} fusion(%b), kind=kLoop
  %small = (f32[448,4]{1,0}, s8[59392]{0}) custom-call(%states, %weights), custom_call_target="__cublas$gemm", x
  %states = f32[448,32]{1,0} bitcast(%a)
  ROOT %weights = f32[32,16]{1,0} bitcast(%c)
  %solve = (f32[448,8]{1,0}, s8[16384]{0}) custom-call(%states), custom_call_target="__cublas$triangularSolve", x
"""


def test_a_workspace_of_a_matrix_product_grows_with_its_operands_up_to_a_limit() -> None:
    found = workspaces(PROGRAM, Sizes(448, 320, 40, 14), WORKSPACE)
    # two operands of 4,480 samples × 512 B are more than 4 MiB there; 448 × 128 B and the weights' 2,048 B are less
    assert found == {"gradient{1}": "min 4194304 BU*1024", "small{1}": "min 4194304 1*2048 N*128"}
    small, large = Sizes(256, 128, 4, 10), Sizes(2048, 1024, 4, 10)
    assert (small.value(found["gradient{1}"]), large.value(found["gradient{1}"])) == (1_310_720, 4 << 20)
    assert small.value(found["small{1}"]) == 2048 + 256 * 128
