"""What lean rollout and replay buffers have in common: columns of observations, small arrays, sizes, saving, tensors.

Decoded batches become tensors without a copy on the CPU, and go through page-locked memory to a GPU, which fetches a
batch while Python goes on. What it fetches is referred to from here until it is there, so that `Outputs` does not hand
the same memory out again.
"""

import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar

import numpy as np
import torch as th
from gymnasium import spaces

from legroom.errors import BadInput
from legroom.storing.budget import Options, enforce
from legroom.storing.column import Column
from legroom.storing.outputs import Decoded, Outputs, PageLocked
from legroom.storing.ring import Ring
from legroom.storing.saving import Savable
from legroom.storing.small_arrays import Flags, Masks

_lock = threading.Lock()
_on_the_way: deque[tuple[Any, np.ndarray]] = deque()  # events, and what a GPU fetches before them


def outputs_for(device: th.device, keep: int = 2) -> Outputs:
    """Return reused memory for batches that go to this device."""
    return Outputs(keep, _pinned if device.type == "cuda" and th.cuda.is_available() else None)


def as_tensor(array: np.ndarray, device: th.device, copy: bool = True) -> th.Tensor:
    """Do what SB3's `to_torch` does, but do not copy an array that was decoded for this tensor alone."""
    if not isinstance(array, Decoded):
        return th.tensor(array, device=device) if copy else th.as_tensor(array, device=device)
    plain = array.view(np.ndarray)
    if not plain.flags.c_contiguous or plain.ndim == 0:
        return th.tensor(plain, device=device)
    tensor = th.from_numpy(plain)
    if device.type == "cpu":
        return tensor
    is_fetched = device.type == "cuda" and isinstance(array, PageLocked)
    return _fetched(tensor, plain, device) if is_fetched else tensor.to(device)


def _fetched(tensor: th.Tensor, plain: np.ndarray, device: th.device) -> th.Tensor:
    """Return the tensor on a GPU, which fetches it while Python goes on."""
    on_device = tensor.to(device, non_blocking=True)
    fetched = th.cuda.Event()
    fetched.record(th.cuda.current_stream(on_device.device))
    with _lock:
        while _on_the_way and _on_the_way[0][0].query():
            _on_the_way.popleft()
        _on_the_way.append((fetched, plain))
    return on_device


def _pinned(n_bytes: int) -> np.ndarray:
    return th.empty(n_bytes, dtype=th.uint8, pin_memory=True).numpy()


APART = ("outputs", "spilled")  # purposes that do not count as the buffer's memory
_filling: weakref.WeakSet[Any] = weakref.WeakSet()  # replay of this process, which grows until it is full


def fills(buffer: Any) -> None:
    """Note that a buffer grows with every row until it is full."""
    _filling.add(buffer)


def legroom_filling_buffers() -> list[dict[str, Any]]:
    """Return the buffers that fill, as plain data: what a rehearsal asks for (`hollow/growing.py`), and forecasts."""
    found = []
    for buffer in list(_filling):
        stored = buffer.nbytes - sum(getattr(buffer, name).nbytes for name in buffer.small_arrays)
        plain = sum(column.n_envs * column.item_bytes for column in buffer.columns.values())
        rows = buffer.buffer_size if buffer.full else buffer.pos
        found.append({
            "id": id(buffer), "type": type(buffer).__name__, "count": rows, "most": buffer.buffer_size,
            "nbytes": stored, "plain": 2 * plain,
        })  # fmt: skip
    return found


class LeanBuffer(Savable):
    """A mixin of SB3 buffers whose observations are in columns."""

    columns: Mapping[str, Column | Ring]
    options: Options
    small_arrays: ClassVar[tuple[str, ...]] = ()

    def to_torch(self, array: np.ndarray, copy: bool = True) -> th.Tensor:
        """Make a tensor, without copying what was decoded for this batch alone."""
        return as_tensor(array, self.device, copy)  # type: ignore[attr-defined]

    @property
    def nbytes(self) -> int:
        """The bytes this buffer occupies in memory; output buffers and what is on disk apart."""
        return sum(size for purpose, size in self.breakdown().items() if purpose not in APART)

    def breakdown(self) -> dict[str, int]:
        """Return bytes by purpose: stored records, indexes, small arrays, and apart `outputs` and `spilled`."""
        parts = {"small arrays": sum(getattr(self, name).nbytes for name in self.small_arrays), "outputs": 0}
        for column in self.columns.values():
            for purpose, size in {**column.breakdown(), "outputs": column.outputs.nbytes()}.items():
                parts[purpose] = parts.get(purpose, 0) + size
        return parts

    def make_room(self) -> None:
        """Spill what is beyond `max_bytes`, before anything new is stored."""
        if self.options.spills:
            enforce(self.options, (shelf for column in self.columns.values() for shelf in column.shelves))

    def describe(self) -> dict[str, Any]:
        """Return what must be equal for a saved state to fit this buffer."""
        columns = {key: [list(column.item_shape), column.dtype.str] for key, column in self.columns.items()}
        sizes = {name: getattr(self, name) for name in ("buffer_size", "n_envs", "action_dim")}
        return {"kind": "+".join(sorted(self.small_arrays)), **sizes, "observations": columns}

    def state(self) -> dict[str, Any]:
        """Return everything that changes, as a tree of plain values, arrays and bytes."""
        return {
            "progress": {name: getattr(self, name) for name in self._progress()},
            "arrays": {name: _array(getattr(self, name)) for name in self.small_arrays},
            "columns": {key: column.state() for key, column in self.columns.items()},
        }

    def prepare(self, state: dict[str, Any]) -> Callable[[], None]:
        """Check a state and return what takes it over; raise ValueError if it does not fit."""
        arrays = {name: state["arrays"][name] for name in self.small_arrays}
        slots = self.buffer_size * self.n_envs  # type: ignore[attr-defined]
        for name, array in arrays.items():
            if slots not in (array.shape[0], array.shape[0] * array.shape[1]):  # flattened, or not yet
                raise ValueError(f"{name} has shape {array.shape}")
        steps = [column.prepare(state["columns"][key]) for key, column in self.columns.items()]

        def take_over() -> None:
            for step in steps:
                step()
            for name, array in arrays.items():
                mine = getattr(self, name)
                if isinstance(mine, Flags) and mine.array.dtype == array.dtype:
                    mine.array[...] = array  # in place, since others may share these bytes
                elif isinstance(mine, Flags | Masks):
                    mine.array = array
                else:
                    setattr(self, name, array)
            for name in self._progress():
                setattr(self, name, state["progress"][name])

        return take_over

    def _progress(self) -> tuple[str, ...]:
        return ("pos", "full", "generator_ready") if hasattr(self, "generator_ready") else ("pos", "full")


def check_form(buffer: object, space: spaces.Space[Any]) -> None:
    """Refuse a plain space for a Dict form; the other way round, the Dict form has been picked already."""
    name = type(buffer).__name__
    if "Dict" in name and not isinstance(space, spaces.Dict):
        raise BadInput(f"{name} is for Dict spaces, not {type(space).__name__}", hint=name.replace("Dict", ""))


@cache
def stands_for(cls: type, lean: type, method: str, known: tuple[Any, ...]) -> bool:
    """Return whether a method of the mixin `lean` does all that the one does which it hides in the class `cls`.

    Args:
        known: the library's methods that it was written after.
    """
    after = cls.__mro__[cls.__mro__.index(lean) + 1 :]
    return next((each.__dict__[method] for each in after if method in each.__dict__), None) in known


def parts_of(space: spaces.Space[Any]) -> dict[str, spaces.Space[Any]]:
    """Return the parts of an observation space, a Dict's or the one there is."""
    return dict(space.spaces) if isinstance(space, spaces.Dict) else {"": space}


def shapes_of(obs_shape: Any) -> dict[str, tuple[int, ...]]:
    """Return the shapes of its parts, from what SB3 keeps as `obs_shape`."""
    return obs_shape if isinstance(obs_shape, dict) else {"": obs_shape}


def _array(small: Any) -> np.ndarray:
    return small.array if isinstance(small, Flags | Masks) else small
