"""`legroom.torchrl.LeanStorage`: lean storage for torchrl's replay buffers.

    buffer = TensorDictReplayBuffer(storage=legroom.torchrl.LeanStorage(100_000), batch_size=256)

Each tensor of a transition is kept by itself: small ones plainly, others in a `LeanArray`. `next` observations share
the array of the observations that they follow, where they mostly are the next row's observations. Mirrors
`torchrl.data.replay_buffers.storages`, release 0.14.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch as th
from tensordict import TensorDict, TensorDictBase
from torchrl.data.replay_buffers.storages import LazyStackStorage

from legroom.errors import BadInput
from legroom.storing.array import PLAIN_UP_TO, LeanArray
from legroom.storing.saving import UNUSABLE, read_file, write_file

NEXT = "next"  # torchrl's key of what follows a step
FILE = "lean_storage.bin"
AS_BITS = {th.bfloat16: th.int16}  # what NumPy has no name for

Key = tuple[str, ...]


class LeanStorage(LazyStackStorage):  # for its collate_fn, which torchrl picks by class
    """A torchrl storage of TensorDicts (or tensors) in little memory, every byte as it was written.

    Args:
        max_size: transitions that it holds.
        device: of what is read.
        max_bytes, spill_dir, codec: as for `legroom.LeanArray`, for each tensor.

    Example:
        >>> import torch
        >>> from tensordict import TensorDict
        >>> from torchrl.data import TensorDictReplayBuffer
        >>> from legroom.torchrl import LeanStorage
        >>> buffer = TensorDictReplayBuffer(storage=LeanStorage(1000), batch_size=4)
        >>> steps = TensorDict({"pixels": torch.zeros(10, 3, 64, 64, dtype=torch.uint8)}, batch_size=[10])
        >>> _ = buffer.extend(steps)
        >>> buffer.sample()["pixels"].shape
        torch.Size([4, 3, 64, 64])
    """

    def __init__(
        self,
        max_size: int,
        *,
        device: th.device | str = "cpu",
        max_bytes: int | str | None = None,
        spill_dir: str | None = None,
        codec: str = "lz4",
        **kwargs: Any,
    ) -> None:
        super().__init__(max_size, device=th.device(device), **kwargs)
        self._options = {"max_bytes": max_bytes, "spill_dir": spill_dir, "codec": codec}
        self._empty()

    def _empty(self) -> None:
        self._length = 0
        self._is_tensor = False
        self._plain: dict[Key, th.Tensor] = {}
        self._lean: dict[Key, LeanArray] = {}
        self._kinds: dict[Key, tuple[th.dtype, tuple[int, ...]]] = {}  # of each tensor: dtype and shape

    def set(self, cursor: Any, data: Any, *, set_cursor: bool = True) -> None:
        """Write one transition to an integer cursor, or a batch to as many places.

        Raises:
            BadInput: other tensors than before, or something that is no tensor.
            IndexError: a place beyond the end, or one that would leave a gap.
        """
        places = self._places(cursor, self.max_size)
        is_one = places.ndim == 0
        steps = {key: (part[None] if is_one else part) for key, part in self._parts(data)}
        self._check(steps, places.size)
        if set_cursor:
            self._set_last_cursor(cursor)
        for key, plain in self._plain.items():
            plain[th.from_numpy(places.reshape(-1))] = steps[key]
        for key, lean in self._lean.items():
            frames = [_array(steps[key])]
            if (following := (NEXT, *key)) in self._kinds and following not in {*self._plain, *self._lean}:
                frames.append(_array(steps[following]))
            for row, place in enumerate(places.reshape(-1).tolist()):
                for side, each in enumerate(frames):
                    lean.put(len(frames) * place + side, each[row])
        self._length = max(self._length, int(places.max(initial=-1)) + 1)
        self._bump_mutation_revision()

    def get(self, index: Any) -> Any:
        """Return the transitions of an integer, a slice, a sequence or a tensor of indices."""
        places = self._places(index, self._length)
        flat, found = places.reshape(-1), dict[Key, th.Tensor]()
        for key, plain in self._plain.items():
            found[key] = plain[th.from_numpy(flat)]
        for key, lean in self._lean.items():
            following = (NEXT, *key)
            keys = [key, following] if following in self._kinds and following not in self._lean else [key]
            for side, each in enumerate(keys):
                dtype, shape = self._kinds[each]
                out = th.empty((len(flat), *shape), dtype=dtype)
                lean.gather(len(keys) * flat + side, _array(out))
                found[each] = out
        found = {key: part.reshape((*places.shape, *part.shape[1:])).to(self.device) for key, part in found.items()}
        if self._is_tensor:
            return found[()]
        steps = TensorDict({}, batch_size=list(places.shape), device=self.device)
        for key in self._kinds:
            steps.set(key, found[key])
        return steps

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"LeanStorage({self._length:,} of {self.max_size:,} transitions, {self.nbytes:,} bytes)"

    def contains(self, item: Any) -> Any:
        """Say whether there is a transition at an index, or at each of several."""
        asked = np.asarray(item)
        inside = (asked >= 0) & (asked < self._length)
        return bool(inside) if asked.ndim == 0 else th.from_numpy(inside)

    @property
    def nbytes(self) -> int:
        """The bytes in memory, of plain tensors those of the transitions that there are."""
        plain = sum(each[: self._length].numel() * each.element_size() for each in self._plain.values())
        return plain + sum(each.nbytes for each in self._lean.values())

    def state_dict(self) -> dict[str, Any]:
        """Return everything that changes, as a tree of plain values, arrays and bytes."""
        names = {"/".join(key): key for key in self._kinds}
        return {
            "length": self._length,
            "is_tensor": self._is_tensor,
            "keys": {name: list(key) for name, key in names.items()},
            "kinds": {name: [str(self._kinds[key][0]), list(self._kinds[key][1])] for name, key in names.items()},
            "plain": {n: _array(self._plain[k][: self._length]).copy() for n, k in names.items() if k in self._plain},
            "lean": {name: self._lean[key].__getstate__() for name, key in names.items() if key in self._lean},
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        names = {name: tuple(key) for name, key in state_dict["keys"].items()}
        kinds = {
            names[name]: (getattr(th, dtype.removeprefix("torch.")), tuple(shape))
            for name, (dtype, shape) in state_dict["kinds"].items()
        }
        lean = {names[name]: LeanArray.__new__(LeanArray) for name in state_dict["lean"]}
        for name, state in state_dict["lean"].items():
            lean[names[name]].__setstate__(state)
        plain = {}
        for name, array in state_dict["plain"].items():
            dtype, shape = kinds[names[name]]
            plain[names[name]] = th.zeros((self.max_size, *shape), dtype=dtype)
            _array(plain[names[name]])[: len(array)] = array
        self._kinds, self._lean, self._plain = kinds, lean, plain
        self._length, self._is_tensor = int(state_dict["length"]), bool(state_dict["is_tensor"])

    def dumps(self, path: Any) -> None:
        """Write everything to one file in this directory, without pickle."""
        Path(path).mkdir(parents=True, exist_ok=True)
        write_file(Path(path) / FILE, {"buffer": {"kind": "LeanStorage"}, "state": self.state_dict()})

    def loads(self, path: Any) -> None:
        """Take over what `dumps` wrote.

        Raises:
            BadInput: the file is missing, damaged, or no storage's.
        """
        tree = read_file(Path(path) / FILE)
        try:
            self.load_state_dict(tree["state"])
        except UNUSABLE as error:
            raise BadInput(f"holds no LeanStorage: {error}", path=path) from error
        self._bump_mutation_revision()

    def _places(self, index: Any, limit: int) -> np.ndarray:
        """Return an index of any kind as integers from 0 on."""
        if isinstance(index, tuple):
            (index,) = index
        if isinstance(index, slice):
            return np.arange(*index.indices(limit))
        places = np.asarray(index.cpu() if isinstance(index, th.Tensor) else index)
        if places.dtype == bool:
            places = np.flatnonzero(places)
        places = np.where(places < 0, places + limit, places).astype(np.int64)
        if places.size and not 0 <= places.min() <= places.max() < limit:
            raise IndexError(f"transitions {places.min()} to {places.max()} of {limit}")
        return places

    def _parts(self, data: Any) -> Iterator[tuple[Key, th.Tensor]]:
        if isinstance(data, list | tuple):
            data = th.stack(list(data))
        self._is_tensor = isinstance(data, th.Tensor)
        parts = {(): data} if self._is_tensor else data
        keys = [()] if self._is_tensor else _leaves(data)
        for key in keys:
            part = parts[key] if self._is_tensor else data.get(key)
            if not isinstance(part, th.Tensor):
                raise BadInput(f"{'/'.join(key)} is a {type(part).__name__}", hint="LeanStorage holds tensors")
            yield key, part.detach().cpu()

    def _check(self, steps: dict[Key, th.Tensor], count: int) -> None:
        kinds = {key: (part.dtype, tuple(part.shape[1:])) for key, part in steps.items()}
        if not self._kinds:
            self._kinds = kinds
            self._prepare()
        if kinds != self._kinds:
            differing = sorted(
                "/".join(key) for key in {*kinds, *self._kinds} if kinds.get(key) != self._kinds.get(key)
            )
            raise BadInput(f"{', '.join(differing)} came with another shape or dtype than before, or not at all")
        if any(len(part) != count for part in steps.values()):
            raise BadInput(f"a batch of {len(next(iter(steps.values())))} for {count} places")

    def _prepare(self) -> None:
        for key, (dtype, shape) in self._kinds.items():
            sample = _array(th.empty((1, *shape), dtype=dtype))
            before = key[1:] if key[:1] == (NEXT,) else None
            if sample.nbytes <= PLAIN_UP_TO:
                self._plain[key] = th.zeros((self.max_size, *shape), dtype=dtype)
            elif before is None or self._kinds.get(before) != (dtype, shape):
                self._lean[key] = LeanArray(shape, sample.dtype, **self._options)  # type: ignore[arg-type]


def _leaves(data: TensorDictBase) -> list[Key]:
    keys = data.keys(include_nested=True, leaves_only=True)
    return [(key,) if isinstance(key, str) else tuple(key) for key in keys]


def _array(tensor: th.Tensor) -> np.ndarray:
    """Return a tensor's memory as an array."""
    tensor = tensor.contiguous()
    return (tensor.view(AS_BITS[tensor.dtype]) if tensor.dtype in AS_BITS else tensor).numpy()
