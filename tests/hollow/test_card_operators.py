"""What operators keep and take inside on a card: numbers worked out by hand from the shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from legroom.hollow.assumed_values import RunReads
from legroom.hollow.card_autocast import autocast_as_on_card
from legroom.hollow.card_operators import attention_backend, operators_as_on_card
from legroom.hollow.cuda_reduce import GpuShape
from legroom.hollow.dispatching import Follower
from legroom.hollow.journal import Requests, ValueRefused

F32 = 4


@pytest.fixture
def follower() -> Iterator[Follower]:
    with ExitStack() as stack:
        stack.enter_context(autocast_as_on_card(stack.enter_context(operators_as_on_card(GpuShape()))))
        made = Follower.of_run(GpuShape(), RunReads("refuse", ()))
        made.recording = True
        stack.enter_context(made.entered())
        yield made


def born(follower: Follower, work: Callable[[], object]) -> list[int]:
    """Return the sizes of what is allocated while `work` is done, in order."""
    start = len(follower.journal.events)
    kept = work()
    labels = follower.journal.labels
    events = [event for event in follower.journal.events[start:] if len(event) == 3]
    found = [event[2] for event in events if labels[event[1]] != "workspace"]  # cuBLAS's, which the first product takes
    del kept
    return found


def meta(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta", requires_grad=grad)


@pytest.mark.parametrize(
    ("dtype", "width", "mask", "capability", "expected"),
    [
        (torch.float32, 64, False, (8, 9), "efficient"),  # flash attention is for half precision
        (torch.float32, 30, False, (8, 9), "math"),  # rows of float32 have to be multiples of 16 bytes
        (torch.bfloat16, 64, False, (8, 9), "flash"),
        (torch.bfloat16, 30, False, (8, 9), "flash"),  # padded to 32
        (torch.bfloat16, 64, True, (8, 9), "efficient"),  # flash attention takes no mask
        (torch.float16, 64, False, (7, 5), "efficient"),  # flash attention needs sm80
        (torch.bfloat16, 64, False, (7, 5), "math"),
        (torch.bfloat16, 320, False, (8, 9), "efficient"),
        (torch.float64, 64, False, (8, 9), "math"),
    ],
)
def test_attention_takes_the_kernel_that_the_card_would(
    dtype: torch.dtype, width: int, mask: bool, capability: tuple[int, int], expected: str
) -> None:
    query = meta(2, 4, 16, width, dtype=dtype)
    given = meta(16, 16, dtype=dtype) if mask else None
    card = GpuShape(capability=capability)
    assert attention_backend(card, query, query, query, mask=given, dropout=0.0) == expected


def test_recurrent_layers_are_one_call_and_their_reserve_is_counted_beside(follower: Follower) -> None:
    layer = nn.LSTM(20, 256, 2, batch_first=True, device="meta")
    output, _ = layer(meta(8, 50, 20))
    assert output.shape == (8, 50, 256)
    assert follower.libraries.rnn_values == 8 * 50 * 2 * 256 * F32
    output.sum().backward()
    grads = {weight.grad.untyped_storage()._cdata for weight in layer.parameters() if weight.grad is not None}
    assert len(grads) == 1  # views of one block


# -- mixed precision -------------------------------------------------------------------------------------------------


def test_autocast_casts_weights_once_per_block_and_inputs_at_every_use(follower: Follower) -> None:
    layer, x = nn.Linear(32, 64, device="meta"), meta(8, 32)

    def twice() -> Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            layer(x)
            return layer(x)

    sizes = born(follower, twice)
    assert sizes.count(32 * 64 * 2) == 1
    assert sizes.count(8 * 32 * 2) == 2
    assert sizes.count(8 * 64 * 2) == 2
    assert born(follower, twice).count(32 * 64 * 2) == 1  # forgotten with the block


@pytest.mark.parametrize("device", ["cuda", "meta"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_runs_some_in_half_precision_and_others_in_float32(
    follower: Follower, device: str, dtype: torch.dtype
) -> None:
    x = meta(8, 32, grad=True)
    with torch.autocast(device, dtype=dtype):
        product = x @ x.t()
        assert product.dtype == dtype
        assert functional.relu(product).dtype == dtype
        assert product.exp().dtype == torch.float32
        assert product.softmax(-1).dtype == torch.float32
        assert product.sum().dtype == torch.float32
        assert torch.cat([product, x], 1).dtype == torch.float32
        assert functional.layer_norm(product, (8,)).dtype == torch.float32
    assert (x @ x.t()).dtype == torch.float32


def test_afterwards_operators_are_as_before() -> None:
    with (
        operators_as_on_card(GpuShape()) as kernels,
        autocast_as_on_card(kernels),
        torch.autocast("cuda", dtype=torch.bfloat16),
    ):
        pass
    out = functional.dropout(meta(4, 4, grad=True), 0.5, training=True)
    assert type(out.grad_fn).__name__ == "MulBackward0"


def test_a_strangers_question_for_a_value_is_refused_under_autocast_too(follower: Follower) -> None:
    with torch.autocast("cuda", dtype=torch.bfloat16), pytest.raises(ValueRefused):
        bool(meta(4, 4).sum() > 0)


def test_an_index_on_the_host_is_copied_to_the_card(follower: Follower) -> None:
    x = meta(8, 4)
    assert born(follower, lambda: x[torch.tensor([1, 2])]) == [2 * 8, 2 * 4 * F32]


def test_a_program_gives_cublas_32_mib_on_hopper_too() -> None:
    follower = Follower({"card": {"capability": "9.0"}}, Requests())
    follower.cards[0].used = True
    with follower.entered():
        torch.addmm(meta(4), meta(4, 4), meta(4, 4))
    assert ("alloc", 4, 32 << 20) in follower.journal.events


def test_operators_of_networks_that_are_still_built_ask_for_nothing() -> None:
    follower = Follower.of_run(GpuShape(), RunReads("refuse", ()))
    with follower.entered():
        weight = torch.zeros(64, 64, device="meta")
        assert (weight @ weight).sum().shape == () and follower.journal.events == []
        follower.recording = True
        follower.adopt(weight, "weights")  # the copy to the card
    assert follower.journal.events == [("alloc", 0, 64 * 64 * F32)]
    assert follower.journal.labels == {0: "weights"}
