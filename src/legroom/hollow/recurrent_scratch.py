"""What recurrent layers, dropout and losses of sequences allocate inside on CUDA (see `op_scratch.py`)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from .op_scratch import OUT, Call, Step, nbytes, outs, program, reduction, scratch, shapes

_aten = torch.ops.aten


@program(_aten._thnn_fused_lstm_cell_backward_impl.default, _aten._thnn_fused_gru_cell_backward.default)
def _cell_backward(call: Call) -> Iterator[Step]:
    yield from outs(call, 0, 1, 2)
    biases = ((0, 3), (1, 4)) if len(call.out) > 3 else ((0, 2),)  # gates and their bias, of GRU or LSTM
    for gates, bias in biases:
        if call.out[bias] is not None:
            if bias > 2:
                yield Step("out", str(bias))
            yield from reduction(call, call.out[gates], [0], 4)


@program(_aten._cudnn_rnn.default)
def _recurrent(call: Call) -> Iterator[Step]:
    # cudnn/RNN.cpp: the input time first; the reserve space is billed beside the allocator (`rnn_values`)
    x, batch_first, dropout, training = (call.args[index] for index in (0, 10, 11, 12))
    if batch_first and not x.transpose(0, 1).is_contiguous():
        yield Step("alloc", "input", nbytes(x))
    if dropout and training:
        yield Step("once", "state of cuDNN's dropout", _DROPOUT_STATE, first=8)
    yield from outs(call, 0, 1, 2)
    if call.args[3] is None:
        yield Step("out", "4")  # weights that are no block are copied into one, which backward needs again


_DROPOUT_STATE = 2 << 20


@program(_aten._cudnn_rnn_backward.default)
def _recurrent_backward(call: Call) -> Iterator[Step]:
    # cudnn/RNN.cpp: gradients that were not asked for begin as zeros; weights' gradients are one block
    x, batch_first = call.args[0], call.args[14]
    states = (("output", call.args[6], call.args[7]), ("state", call.args[4], call.args[8]))
    memory = () if call.args[5] is None else (("memory", call.args[5], call.args[9]),)
    for name, like, grad in (*states, *memory):
        if grad is None:
            yield Step("alloc", f"{name} zeros", nbytes(like))
    copied = batch_first and not x.transpose(0, 1).is_contiguous()
    if copied:
        yield Step("alloc", "input", nbytes(x))
    grad = call.args[7]
    if batch_first and grad is not None and not grad.transpose(0, 1).is_contiguous():
        yield Step("alloc", "output time first", nbytes(grad))
    yield from outs(call, 0, 1, 2)
    yield from scratch("output time first", "input")
    if copied:
        yield Step("alloc", "input again", nbytes(x))
    if call.out[3]:
        yield Step("out", "3")


@program(_aten._pack_padded_sequence.default)
def _pack(call: Call) -> Iterator[Step]:
    # PackedSequence.cpp: sequences that end together are cut off together; the parts are then joined
    x, lengths, batch_first = call.args[:3]
    x = x.transpose(0, 1) if batch_first else x
    before, batch = 0, x.shape[1]
    for number, length in enumerate(reversed(lengths.tolist())):
        if length > before:
            part = x[before:length, : batch - number]
            if not part.is_contiguous():
                yield Step("alloc", f"part {number}", nbytes(part))
            before = length
    yield Step("out", "0")
    yield Step("host", "1")
    yield from scratch(*(f"part {number}" for number in range(batch)))


@program(_aten._ctc_loss.default)
def _ctc_loss(call: Call) -> Iterator[Step]:
    # LossCTC.cu: lengths of inputs and targets, where targets begin, then what is kept
    yield from _lengths(call.args[0])
    yield from outs(call, 1, 0)


def _lengths(log_probs: Any) -> Iterator[Step]:
    return scratch(*((name, 8 * log_probs.shape[1]) for name in ("lengths", "target lengths", "offsets")))


@program(_aten._ctc_loss_backward.default)
def _ctc_loss_backward(call: Call) -> Iterator[Step]:
    yield from _lengths(call.args[1])
    yield from scratch(("log of beta", nbytes(call.args[6])), OUT)


def rnn_values(args: Any) -> int:
    """Return the bytes of one value per time step, sample, layer and direction, of recurrent layers in training."""
    x, hx = args[0], args[4]
    samples = math.prod(x.shape[:-1])  # packed sequences have one axis for both
    return x.element_size() * samples * hx.shape[0] * hx.shape[-1] if args[12] else 0


# -- what cuDNN may take beside PyTorch's allocator: told to the parent by its largest operands, which bound it ------

# No card was asked: how much workspace an algorithm takes is cuDNN's own business, and the parent turns operands into
# ranges. What a recurrent layer keeps for its backward pass is needed, so the allocator's cache leaves that free while
# it can. The workspace of a convolution is not: where it cannot be had, PyTorch tries an algorithm that needs less.
_GATES = {2: 5, 3: 4}  # LSTM keeps its gates and cells, GRU its gates and a product; by cudnnRNNMode_t
RESERVE = "rnn reserve"
NAMES = frozenset({"convolution", "cudnn_convolution", "_cudnn_rnn"})


class LibraryMemory:
    """Tells the journal whenever larger operands than before come.

    `convolution` and its axes are the bytes of the largest one's operands; `rnn_values` those of one value per time
    step, sample and unit of the recurrent layers that one backward pass goes through.

    Args:
        error: of what the card's limit leaves beside the allocator already, in bytes.
    """

    def __init__(self, journal: Any, error: int = 0) -> None:
        self._journal = journal
        self._largest: dict[str, int] = {}
        self._error = error
        self.convolution = self.convolution_axes = self.rnn_values = self._pass_values = 0

    @property
    def beside(self) -> int:
        """Return the upper end of what is needed: as much again may be missing, and errors add as squares."""
        needed = self._largest.get(RESERVE, 0)
        return needed + math.isqrt(self._error**2 + needed**2) - self._error

    def see(self, name: str, args: Any, out: Any) -> None:
        """Take in one call of an operator in NAMES."""
        if name == "_cudnn_rnn":
            values = rnn_values(args)
            self._pass_values += values
            self.rnn_values = max(self.rnn_values, self._pass_values)
            self._tell(RESERVE, values * _GATES.get(int(args[6]), 2), 0)
        else:
            size, axes = sum(map(nbytes, (args[0], args[1], out))), args[0].dim() - 2
            self.convolution, self.convolution_axes = max((self.convolution, self.convolution_axes), (size, axes))
            self._tell("cudnn workspace", size, axes)

    def passed(self) -> None:
        """Hear of a backward pass."""
        self._pass_values = 0

    def _tell(self, name: str, nbytes: int, axes: int) -> None:
        if nbytes > self._largest.get(name, 0):
            self._largest[name] = nbytes
            self._journal.json("item", name=name, nbytes=nbytes, axes=axes)


# -- shapes that the meta device does not know -----------------------------------------------------------------------


@shapes(_aten._thnn_fused_lstm_cell.default)
def _lstm_cell_shapes(gates: Any, hidden: Any, memory: Any, *bias: Any) -> Any:
    like = memory.new_empty
    return like(memory.shape), like(memory.shape), like(gates.shape)


@shapes(_aten._thnn_fused_lstm_cell_backward_impl.default)
def _lstm_cell_backward_shapes(grad: Any, grad_memory: Any, memory: Any, after: Any, gates: Any, bias: bool) -> Any:
    return (
        gates.new_empty(gates.shape),
        memory.new_empty(memory.shape),
        gates.new_empty(gates.shape[1:]) if bias else None,
    )


@shapes(_aten._thnn_fused_gru_cell.default)
def _gru_cell_shapes(gates: Any, hidden: Any, state: Any, *bias: Any) -> Any:
    return state.new_empty(state.shape), state.new_empty((state.shape[0], 5 * state.shape[1]))


@shapes(_aten._thnn_fused_gru_cell_backward.default)
def _gru_cell_backward_shapes(grad: Any, workspace: Any, bias: bool) -> Any:
    rows, width = grad.shape
    gates = [grad.new_empty((rows, 3 * width)) for _ in range(2)]
    return (*gates, grad.new_empty((rows, width)), *(grad.new_empty(3 * width) if bias else None for _ in range(2)))


@shapes(_aten._cudnn_rnn.default)
def _recurrent_shapes(
    x: Any, weights: Any, per_layer: int, block: Any, hx: Any, cx: Any, mode: int, hidden: int, projected: int,
    layers: int, batch_first: bool, dropout: float, train: bool, bidirectional: bool, *rest: Any,
) -> Any:  # fmt: skip
    steps = (x.shape[1], x.shape[0]) if batch_first else x.shape[:-1]
    output = x.new_empty((*steps, hidden * (2 if bidirectional else 1)))
    state, memory = hx.new_empty(hx.shape), hx.new_empty(0) if cx is None else cx.new_empty(cx.shape)
    if block is None:
        block = x.new_empty(sum(weight.numel() for weight in weights))
    return output.transpose(0, 1) if batch_first else output, state, memory, x.new_empty(0), block.detach()


@shapes(_aten._cudnn_rnn_backward.default)
def _recurrent_backward_shapes(x: Any, weights: Any, per_layer: int, block: Any, hx: Any, cx: Any, *rest: Any) -> Any:
    batch_first, mask = rest[8], rest[-1]
    shape = (x.shape[1], x.shape[0], x.shape[2]) if batch_first else x.shape
    grad = x.new_empty(shape)
    joined, place, parts = x.new_empty(sum(weight.numel() for weight in weights)), 0, []
    for weight in weights if mask[3] else ():
        parts.append(joined[place : place + weight.numel()].view(weight.shape))
        place += weight.numel()
    memory = None if cx is None else cx.new_empty(cx.shape)
    return grad.transpose(0, 1) if batch_first else grad, hx.new_empty(hx.shape), memory, parts


@shapes(_aten._ctc_loss.default)
def _ctc_loss_shapes(log_probs: Any, targets: Any, lengths: Any, target_lengths: Any, *rest: Any) -> Any:
    steps, batch = log_probs.shape[:2]
    longest = max(target_lengths, default=0)
    return log_probs.new_empty((batch,)), log_probs.new_empty((batch, steps, 2 * longest + 1))


@shapes(_aten._ctc_loss_backward.default)
def _ctc_loss_backward_shapes(grad: Any, log_probs: Any, *rest: Any) -> Any:
    return log_probs.new_empty(log_probs.shape)
