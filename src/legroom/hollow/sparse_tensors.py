"""Sparse tensors (COO) of a card: two hollow tensors, indices and values, and what operators do to these.

PyTorch has sparse tensors on the meta device but hardly an operator for them, so those that training code uses are
written out here, with the requests of their CUDA kernels. How many entries are left once equal indices are added up
(`coalesce`) depends on the indices: where these are known they are counted, otherwise all of them are taken to differ.
cuSPARSE's own workspace is not known. Other operators are refused by name.

Mirrors aten/src/ATen/native/sparse of torch 2.14: SparseTensorMath.cpp, cuda/SparseCUDATensor.cu,
cuda/SparseCUDATensorMath.cu.
"""

from __future__ import annotations

from typing import Any

import torch

from .known_values import NONE

_aten = torch.ops.aten
_META = torch.device("meta")
_ALIGNED = 256
_AS_THEY_ARE = {
    "_indices", "_values", "indices", "values", "_nnz", "_dimI", "_dimV", "sparse_dim", "dense_dim", "is_coalesced",
    "_coalesced_", "detach", "alias", "sym_size", "size", "is_same_size",
}  # fmt: skip


class SparseTensors:
    """Runs operators that have a sparse tensor among their arguments."""

    def __init__(self, follower: Any, entered: Any) -> None:
        self._follower, self._entered = follower, entered
        self._table: dict[str, Any] = {
            "_to_copy": self.copied, "_coalesce": self.coalesced, "coalesce": self.coalesced, "_to_dense": self.dense,
            "to_dense": self.dense, "clone": self.cloned, "t": self.transposed, "transpose": self.transposed,
            "mm": self.product, "_sparse_mm": self.product, "matmul": self.product, "addmm": self.added_product,
            "_sparse_addmm": self.added_product, "mul": self.scaled, "div": self.scaled, "neg": self.scaled,
            "add": self.sum, "add_": self.sum_in_place, "zero_": self.zeroed, "copy_": self.written,
            "sparse_mask": self.masked, "_sparse_mask_projection": self.masked, "pow": self.scaled,
        }  # fmt: skip

    def made(self, indices: Any, values: Any, size: Any, coalesced: bool = False) -> Any:
        """Return a sparse tensor of these two; nothing is requested."""
        return _aten._sparse_coo_tensor_with_dims_and_tensors.default(
            indices.shape[0], values.dim() - 1, list(size), indices, values, dtype=values.dtype,
            layout=torch.sparse_coo, device=_META if indices.device.type == "meta" else indices.device,
            is_coalesced=coalesced,
        )  # fmt: skip

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run one operator.

        Raises:
            RuntimeError: it is not simulated.
        """
        name = func.overloadpacket.__name__
        if name in _AS_THEY_ARE:
            return func(*args, **kwargs)
        sparse = next(each for each in args if isinstance(each, torch.Tensor) and each.layout is not torch.strided)
        found = self._table.get(name) if sparse.layout is torch.sparse_coo else None
        if found is None:
            what = f"{func} of a sparse tensor ({str(sparse.layout).replace('torch.', '')})"
            raise self._follower.refused(what)
        record = self._follower.record_of(sparse)
        if record is not None:
            self._follower.here.card = record.card
        with self._entered(self._follower):
            return found(*args, **kwargs)

    # -- operators; what they call is followed -----------------------------------------------------------------------

    def copied(self, source: Any, *, dtype: Any = None, device: Any = None, **rest: Any) -> Any:
        indices, values = _parts(source)
        away = {} if device is None else {"device": device}
        indices = _aten._to_copy.default(indices, **away) if away else _aten.clone.default(indices)
        values = _aten._to_copy.default(values, dtype=dtype or values.dtype, **away)
        return self.made(indices, values, source.shape, _is_coalesced(source))

    def coalesced(self, x: Any) -> Any:
        if _is_coalesced(x):
            return x
        indices, values = _parts(x)
        entries = indices.shape[1]
        if entries < 2:
            return self.made(indices, values, x.shape, True)
        flat, order, offsets = (_empty((entries,), torch.int64) for _ in range(3))
        for size in (2 * _aligned(8 * entries) + 2 * _ALIGNED - 1, 6 * _ALIGNED - 1):  # sort, then unique, by thrust
            scratch = _empty((size,), torch.uint8)
            del scratch
        left, known = self._different(indices)
        new_values = _empty((left, *values.shape[1:]), values.dtype)
        new_indices = _empty((indices.shape[0], left), torch.int64)
        if known is not None:
            self._follower.shadows.give(new_indices, known)
        del offsets, order, flat
        return self.made(new_indices, new_values, x.shape, True)

    def dense(self, x: Any, dtype: Any = None, masked_grad: Any = None) -> Any:
        out = _aten.zeros.default(list(x.shape), dtype=dtype or x.dtype, device=_META)
        return self._add_into(out, x)

    def cloned(self, x: Any, **rest: Any) -> Any:
        indices, values = _parts(x)
        values = _aten.clone.default(values)
        return self.made(_aten.clone.default(indices), values, x.shape, _is_coalesced(x))

    def transposed(self, x: Any, one: int = 0, other: int = 1) -> Any:
        size, dims = list(x.shape), x.dim()
        one, other = one % dims, other % dims
        indices, values = _parts(x)
        values, indices = _aten.clone.default(values), _aten.clone.default(indices)
        row = _empty((indices.shape[1],), torch.int64)
        del row
        twin = self._follower.shadows.twin(indices)
        if twin is not NONE:
            twin[[one, other]] = twin[[other, one]]
        size[one], size[other] = size[other], size[one]
        return self.made(indices, values, size)

    def product(self, one: Any, other: Any) -> Any:
        if one.layout is torch.strided or other.layout is not torch.strided:
            raise RuntimeError("a product with a sparse matrix on the right is not simulated in a rehearsal")
        start = _aten.zeros.default([one.shape[0], *other.shape[1:]], dtype=other.dtype, device=_META)
        return self.added_product(start, one, other)

    def added_product(self, start: Any, one: Any, other: Any, **rest: Any) -> Any:
        if one.layout is torch.strided or other.layout is not torch.strided:
            raise RuntimeError("a product with a sparse matrix on the right is not simulated in a rehearsal")
        out = _empty((one.shape[0], *other.shape[1:]), other.dtype)
        sorted_one = self.coalesced(one)
        entries = _parts(sorted_one)[0].shape[1]
        rows, columns = _empty((one.shape[0] + 1,), torch.int32), _empty((entries,), torch.int32)
        del columns, rows, sorted_one
        self._follower.tell_doubt("cuSPARSE's workspace", 4 * entries)
        return out

    def scaled(self, x: Any, by: Any = None, **rest: Any) -> Any:
        if isinstance(x, torch.Tensor) and x.layout is torch.strided:
            x, by = by, x
        indices, values = _parts(x)
        indices = _aten.clone.default(indices)
        return self.made(indices, _aten.clone.default(values), x.shape, _is_coalesced(x))

    def sum(self, one: Any, other: Any, **rest: Any) -> Any:
        if one.layout is torch.strided:
            return self._add_into(_aten.clone.default(one), other)
        (a, x), (b, y) = _parts(one), _parts(other)
        indices = _aten.cat.default([a, b], 1)
        return self.made(indices, _aten.cat.default([x, y]), one.shape)

    def sum_in_place(self, one: Any, other: Any, **rest: Any) -> Any:
        if one.layout is not torch.strided:
            raise RuntimeError("adding into a sparse tensor is not simulated in a rehearsal")
        return self._add_into(one, other)

    def zeroed(self, x: Any) -> Any:
        return x

    def written(self, x: Any, source: Any, *rest: Any) -> Any:
        return x

    def masked(self, x: Any, mask: Any, *rest: Any) -> Any:
        indices, values = _parts(mask)
        flat = _empty((indices.shape[1],), torch.int64)
        new_values = _empty(tuple(values.shape), x.dtype)
        del flat
        return self.made(_aten.clone.default(indices), new_values, mask.shape, True)

    # -- what they need ----------------------------------------------------------------------------------------------

    def _add_into(self, out: Any, x: Any) -> Any:
        self._follower.shadows.drop(out)
        if not _is_coalesced(x):  # entries are added one by one, by one index each
            indices, values = _parts(x)
            flat, factors = _empty((indices.shape[1],), torch.int64), _empty(tuple(values.shape), values.dtype)
            del flat, factors
        return out

    def _different(self, indices: Any) -> tuple[int, Any]:
        """Return how many columns of indices differ, and these in order; None where they are not known."""
        twin = self._follower.shadows.twin(indices)
        if twin is NONE:
            self._follower.assume("entries of a sparse tensor all differ", sets_size=True)
            return int(indices.shape[1]), None
        known = torch.unique(twin, dim=1)
        return int(known.shape[1]), known


def _parts(x: Any) -> tuple[Any, Any]:
    with torch._C._DisableTorchDispatch():
        return x._indices(), x._values()


def _is_coalesced(x: Any) -> bool:
    with torch._C._DisableTorchDispatch():
        return bool(x.is_coalesced())


def _empty(shape: Any, dtype: torch.dtype) -> Any:
    return _aten.empty.memory_format(list(shape), dtype=dtype, device=_META)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED
