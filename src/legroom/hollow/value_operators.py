"""Operators that give values to the host, or whose results' shapes depend on values.

Where a value is known (`known_values.py`) it is given; otherwise the answer is one that keeps training going,
and is noted.
"""

from __future__ import annotations

from typing import Any

import torch

from .assumed_values import answer
from .fake_tensors import DEVICE, hollowed, is_dense, is_meta, same_order, unwritten
from .known_values import NONE
from .sort_scratch import nonzero_steps

_aten = torch.ops.aten


def _is_set_to(func: Any, args: Any, kwargs: Any) -> bool:
    """Return whether two tensors are the same view of one storage; meta tensors have no kernel for it."""
    one, other = args
    same = one.untyped_storage()._cdata == other.untyped_storage()._cdata
    view = (one.storage_offset(), one.shape, one.stride()) == (other.storage_offset(), other.shape, other.stride())
    return bool(same and view)


class ValueOperators:
    """What each of these operators does; `table` has them by operator.

    Args:
        follower: the cards' `Follower`.
        entered: the mode in which what an operator calls inside is followed.
    """

    def __init__(self, follower: Any, entered: Any) -> None:
        self._follower, self._entered = follower, entered
        self.table = {
            _aten._local_scalar_dense.default: self._read_number,
            _aten._to_copy.default: self._to_copy,
            _aten.copy_.default: self._copy,
            _aten.nonzero.default: self._nonzero,
            _aten.masked_select.default: self._masked_select,
            _aten.index.Tensor: self._index,
            _aten.index_put_.default: self._index,
            _aten.index_put.default: self._index,
            _aten._index_put_impl_.default: self._index,
            _aten.equal.default: self._equal,
            _aten.is_set_to.default: _is_set_to,
            _aten._nested_tensor_from_mask_left_aligned.default: self._is_left_aligned,
            _aten._ctc_loss.Tensor: self._ctc_loss,
            _aten._sparse_coo_tensor_with_dims_and_tensors.default: self._made_sparse,
            _aten._ctc_loss_backward.Tensor: self._ctc_loss,
            _aten._convolution.default: lambda func, args, kwargs: follower.dispatch(
                _aten.convolution.default, args[:9], {}
            ),
            _aten.allclose.default: self._allclose,
            _aten.repeat_interleave.Tensor: self._repeats,
            _aten._cudnn_rnn_flatten_weight.default: self._flatten_weights,
            _aten._amp_foreach_non_finite_check_and_unscale_.default: self._unscale,
        }

    def _read_number(self, func: Any, args: Any, kwargs: Any) -> Any:
        twin = self._follower.shadows.twin(args[0])
        if twin is not NONE:
            self._follower.reads.known("a value")
            return func(twin)
        record = self._follower.record_of(args[0])
        origin = record.origin if record is not None else ""
        found = answer(args[0].dtype, origin)
        self._follower.assume(f"{origin or 'a value'} read as {found}")
        return found

    def array(self, tensor: torch.Tensor, dtype: torch.dtype, waits: bool = True, into: Any = None) -> torch.Tensor:
        """Return a card tensor's values on the host; `waits` unless the copy is a non-blocking one."""
        self._pass_through(tensor, dtype, waits, into)
        twin = self._follower.shadows.twin(tensor)
        if twin is not NONE:
            self._follower.reads.known("values")
            found: torch.Tensor = _aten._to_copy.default(twin, dtype=dtype)
            return found
        self._follower.assume(f"{tuple(tensor.shape)} values read as 0")
        return unwritten(tensor.shape, dtype)

    def _pass_through(self, tensor: torch.Tensor, dtype: torch.dtype, waits: bool, into: Any) -> None:
        """Request what a copy to the host passes through: other types and layouts become contiguous on the card first.

        Copy.cu, copy_requires_temporaries: a copy that does not block converts types on the card.
        """
        same = dtype == tensor.dtype
        if tensor.numel() < 2 or (same and is_dense(tensor) and (into is None or same_order(tensor, into))):
            return
        number = None if same or waits else self._follower.alloc(tensor.numel() * dtype.itemsize)
        if not tensor.is_contiguous():
            self._follower.free(self._follower.alloc(tensor.numel() * (tensor.dtype if waits else dtype).itemsize))
        if number is not None:
            self._follower.free(number)

    def _to_copy(self, func: Any, args: Any, kwargs: Any) -> Any:
        source, wanted = args[0], kwargs.get("device")
        if source.layout is not torch.strided:
            raise self._follower.refused(f"a {str(source.layout)[6:]} tensor on the GPU")
        if is_meta(source) and wanted is not None and torch.device(wanted).type == "cpu":
            record = self._follower.record_of(source)
            if record is None:
                return NONE
            self._follower.here.card = record.card
            return self.array(source, kwargs.get("dtype") or source.dtype, not kwargs.get("non_blocking"))
        if is_meta(source) or wanted is None:
            return NONE
        # from the host to a card
        out = func(*args, **kwargs)
        self._follower.born(out.untyped_storage(), "batch")
        dtype = kwargs.get("dtype")
        if kwargs.get("non_blocking") and dtype is not None and dtype != source.dtype:
            self._follower.free(
                self._follower.alloc(source.numel() * source.element_size())
            )  # Copy.cu: converted on the card
        if out.untyped_storage().nbytes() <= self._follower.shadows.small:
            self._follower.shadows.give(out, func(source, **{**kwargs, "device": torch.device("cpu")}))
        return out

    def _copy(self, func: Any, args: Any, kwargs: Any) -> Any:
        target, source = args[:2]
        blocking = not (args[2] if len(args) > 2 else kwargs.get("non_blocking"))
        if not is_meta(target):
            record = self._follower.record_of(source)
            if record is not None:
                self._follower.here.card = record.card
            target.copy_(self.array(source, target.dtype, blocking, target))
            return target
        if is_meta(source):
            return NONE
        same = source.dtype == target.dtype
        straight = same and is_dense(target) and same_order(source, target)
        if source.numel() > 1 and not straight and not (target.is_contiguous() and (same or blocking)):
            size = target.element_size() if blocking else source.element_size()
            self._follower.free(self._follower.alloc(target.numel() * size))
        whole = target.numel() * target.element_size() == target.untyped_storage().nbytes()
        if whole and target.untyped_storage().nbytes() <= self._follower.shadows.small:
            self._follower.shadows._prepare(target)
        twin = self._follower.shadows.twin(target)
        if twin is not NONE:
            twin.copy_(source)
        return target

    def _equal(self, func: Any, args: Any, kwargs: Any) -> Any:
        given = self._follower.shadows._twins(args)
        if given is not NONE:
            return func(*given)
        self._follower.assume("equal read as True")
        return True

    def _allclose(self, func: Any, args: Any, kwargs: Any) -> bool:
        with self._entered(self._follower):  # what PyTorch calls inside, and reads
            found = torch.isclose(*args, **kwargs).all()
        return bool(self._read_number(_aten._local_scalar_dense.default, (found,), {}))

    def _is_left_aligned(self, func: Any, args: Any, kwargs: Any) -> bool:
        """Keep an encoder from nested tensors, which are not simulated: padding stays."""
        self._follower.assume("a padding mask read as not aligned, so that padding stays")
        return False

    def _made_sparse(self, func: Any, args: Any, kwargs: Any) -> Any:
        raise self._follower.refused("a sparse_coo tensor on the GPU")

    def _ctc_loss(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Read the lengths, as PyTorch does, whose other form of the operator takes numbers."""
        back = func is _aten._ctc_loss_backward.Tensor
        at = 3 if back else 2
        targets, wide = args[at - 1], args[at - 1].shape[-1] if args[at - 1].dim() > 1 else 0
        lengths = []
        for each, longest in zip(args[at : at + 2], (args[at - 2].shape[0], wide or targets.numel())):
            twin = self._follower.shadows.twin(each) if is_meta(each) else each
            if twin is NONE:
                self._follower.assume("lengths of sequences are the longest possible", sets_size=True)
                twin = torch.full(each.shape, longest)
            lengths.append(twin.tolist())
        packet = _aten._ctc_loss_backward if back else _aten._ctc_loss
        if not is_meta(targets):
            targets = self._to_copy(_aten._to_copy.default, (targets,), {"device": DEVICE})
        args = (*args[: at - 1], targets, *lengths, *args[at + 2 :])
        return self._follower.operator(packet.default, args, kwargs, self._follower.facts_of(packet.default))

    def _unscale(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Say that gradients without values are finite: a step that is skipped would take less than the others."""
        found = self._follower.record_of(args[1])
        if found is not None:
            found.origin = "isinf"  # what a GradScaler reads of it is answered as such a check
        if self._follower.shadows._twins(args) is not NONE:
            return NONE
        self._follower.shadows.drop(args[0])
        return None

    def _repeats(self, func: Any, args: Any, kwargs: Any) -> Any:
        if kwargs.get("output_size") is not None:
            return NONE
        given = self._follower.shadows._twins(args)
        if given is NONE:
            self._follower.assume("repeat_interleave repeats everything once", sets_size=True)
            given = [torch.ones(args[0].shape, dtype=args[0].dtype)]
        values = func(*given)
        out = hollowed(values)
        self._follower.births(out)
        self._follower.shadows.give(out, values)
        return out

    def _flatten_weights(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Let the weights of recurrent layers be views of one block (RNN.cpp, copy_weights_to_flat_buf_views)."""
        weights = args[0]
        block = torch.empty(sum(weight.numel() for weight in weights), dtype=weights[0].dtype, device=DEVICE)
        self._follower.births(block)
        values = self._follower.shadows._twins(weights)
        if values is not NONE:
            self._follower.shadows.give(block, torch.cat([each.reshape(-1) for each in values]))
        place = 0
        for weight in weights:
            weight.set_(block.untyped_storage(), place, weight.shape, torch.empty(weight.shape, device=DEVICE).stride())
            place += weight.numel()
        return block

    def _count(self, mask: torch.Tensor) -> int:
        """Return how many entries are selected."""
        twin = self._follower.shadows.twin(mask)
        if twin is not NONE:
            self._follower.reads.known("a mask")
            return int(torch.count_nonzero(twin))
        self._follower.assume(f"a selection takes all of {tuple(mask.shape)}", sets_size=True)
        return mask.numel()

    def _nonzero(self, func: Any, args: Any, kwargs: Any) -> Any:
        found = self._positions(args[0])
        twin = self._follower.shadows.twin(args[0])
        if twin is not NONE:
            self._follower.shadows.give(found, func(twin))
        return found

    def _positions(self, mask: torch.Tensor) -> torch.Tensor:
        count = self._count(mask)
        if self._follower.scratch:
            self._follower.run_steps(nonzero_steps(mask.numel(), self._follower.here.card.shape), None)
        found = torch.empty((mask.dim(), count), dtype=torch.int64, device=DEVICE).t()
        self._follower.births(found)
        return found

    def _masked_select(self, func: Any, args: Any, kwargs: Any) -> Any:
        tensor, mask = args[:2]
        shape = torch.broadcast_shapes(tensor.shape, mask.shape)
        positions = self._positions(mask.expand(shape))
        out = torch.empty((positions.shape[0],), dtype=tensor.dtype, device=DEVICE)
        self._follower.births(out)
        given = self._follower.shadows._twins(args)
        if given is not NONE:
            self._follower.shadows.give(out, func(*given))
        return out

    def _index(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Replace masks among indices by the positions they select, and indices on the host by copies on the card."""
        if not any(i is not None and (i.dtype in (torch.bool, torch.uint8) or not is_meta(i)) for i in args[1]):
            return NONE
        replaced: list[Any] = []
        for index in args[1]:
            if index is None:
                replaced.append(None)
                continue
            if not is_meta(index):
                masks = index.dtype in (torch.bool, torch.uint8)
                for column in torch.nonzero(index).unbind(1) if masks else (index,):
                    on_card = torch.empty(column.shape, dtype=torch.int64, device=DEVICE)
                    self._follower.births(on_card)
                    self._follower.shadows.give(on_card, column.to(torch.int64).contiguous())
                    replaced.append(on_card)
            elif index.dtype in (torch.bool, torch.uint8):
                if self._fills(func, args, index):
                    self._filled(args, index)
                    return args[0]
                found = self._nonzero(_aten.nonzero.default, (index,), {})
                replaced.extend(found.unbind(1))
            else:
                replaced.append(index)
        return self._follower.operator(func, (args[0], replaced, *args[2:]), kwargs, self._follower.facts_of(func))

    @staticmethod
    def _fills(func: Any, args: Any, mask: torch.Tensor) -> bool:
        """Return whether a masked write becomes `masked_fill_` (canDispatchToMaskedFill in TensorAdvancedIndexing)."""
        return (
            func is not _aten.index.Tensor and func is not _aten.index_put.default
            and len([i for i in args[1] if i is not None]) == 1 and args[2].numel() == 1
            and not (len(args) > 3 and args[3])
        )  # fmt: skip

    def _filled(self, args: Any, mask: torch.Tensor) -> None:
        given = self._follower.shadows._twins(args[:3])
        if given is NONE:
            self._follower.shadows.drop(args[0])
        else:
            given[0][tuple(slice(None) if i is None else i for i in given[1])] = given[2]
