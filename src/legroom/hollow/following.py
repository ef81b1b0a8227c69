"""Runs every operator on cards that are not there: shapes on the meta device, bytes in the simulated allocator.

Card tensors are meta tensors. Each operator of the program passes through a dispatch mode, one per thread; it is run
on shapes, the storages that are born are requested from the card's allocator, small ones keep their values
(`shadows.py`), and what the host reads is answered. A storage's death is put on a list and given back before the next
request: the allocator's state matters only then, and the list can be appended to from any thread at any moment.
"""

from __future__ import annotations

import collections
import threading
import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .card import Card, CardPlan, OutOfMemory
from .fake_tensors import StorageFollower, Workspaces, _kept_in_place, is_meta
from .journal import Journal
from .op_scratch import MATMULS, PROGRAMS, Call
from .reads import Assumptions, answer
from .shadows import NONE, Facts, Shadows, unwritten
from .sites import Sites

META = torch.device("meta")
_aten = torch.ops.aten

_graph_task = torch._C._current_graph_task_id
OTHER, BACKWARD, STEP = 0, 1, 2
_SCRATCH = 1


class Record:
    """What is known about one storage of a card."""

    __slots__ = ("block", "card", "nbytes", "number", "origin", "ref", "shadow")

    def __init__(self, card: Card, nbytes: int, origin: str) -> None:
        self.card, self.nbytes, self.origin = card, nbytes, origin
        self.number = -1  # of zero bytes: nothing was requested
        self.block: Any = None
        self.shadow: Any = None
        self.ref: Any = None


class _Here(threading.local):
    inside = 0  # our own code is running: tensors show their real device
    device = 0  # the current card
    card: Any = None  # of the operator that is running
    origin = ""  # its name
    stepping = 0  # optimizer steps that are running


class Follower(StorageFollower):
    """The cards of this process, and what its operators do to them."""

    def __init__(self, plan: dict[str, Any], journal: Journal) -> None:
        read = CardPlan.read(plan)
        super().__init__(Workspaces(card=read.shape), ())
        self.journal = journal
        self.cards = [Card(index, read) for index in range(int(plan.get("cards") or 1))]
        self.sites = Sites(journal.site)
        self.assumptions = Assumptions(journal.json)
        self.records: dict[int, Record] = {}
        self.live = self.records  # type: ignore[assignment]  # what the base class asks for storages
        small = 1 << 62 if plan.get("values") == "real" else plan.get("small")
        self.shadows = Shadows(self.records, 1 << 18 if small is None else int(small))
        self.here = _Here()
        self.following = True
        self.capturing = False
        self._dead: collections.deque[int] = collections.deque()
        self._blocks: dict[int, tuple[Card, Any, int]] = {}
        self._lock = threading.RLock()
        self._facts: dict[Any, Facts] = {}
        self._special = {
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
        }

    # -- the allocator ---------------------------------------------------------------------------------------------

    def give_back(self) -> None:
        """Free the blocks of storages that have died."""
        dead = self._dead
        while dead:
            try:
                number = dead.popleft()
            except IndexError:  # another thread was faster
                return
            self.free(number)

    def free(self, number: int) -> None:
        with self._lock:
            card, block, nbytes = self._blocks.pop(number)
            card.give(block, nbytes)
            self.journal.free(number, card.figures, card.index)

    def alloc(self, nbytes: int, label: str = "", card: Card | None = None, flags: int = _SCRATCH) -> int:
        """Request bytes from a card and return the number of the block.

        Raises:
            OutOfMemory: they do not fit.
        """
        card = card or self.here.card
        with self._lock:
            self.give_back()
            if not card.used:
                card.used = True
                self.journal.json("context", device=card.index)
            try:
                block = card.take(nbytes)
            except OutOfMemory as error:
                file, line = self.sites.where()
                self.journal.json(
                    "oom", file=file, line=line, text=str(error), requested=nbytes, free=card.free_bytes, caught=None
                )
                raise
            number = self._next
            self._next += 1
            self._blocks[number] = (card, block, nbytes)
            phase = BACKWARD if _graph_task() != -1 else STEP if self.here.stepping else OTHER
            self.journal.alloc(
                number, nbytes, block.size, card.figures, site=self.sites.here(), device=card.index, phase=phase,
                flags=flags,
            )  # fmt: skip
        return number

    def _born(self, storage: torch.UntypedStorage, label: str, nbytes: int = 0) -> None:
        nbytes = nbytes or storage.nbytes()
        record = Record(self.here.card, nbytes, self.here.origin)
        if nbytes:
            record.number = self.alloc(nbytes, label, flags=0)
        key, number, dead, records = storage._cdata, record.number, self._dead, self.records

        def died(_: Any) -> None:
            records.pop(key, None)
            if number >= 0:
                dead.append(number)

        record.ref = weakref.ref(storage, died)
        self.records[key] = record

    def figures(self, index: int) -> Card:
        """Return a card whose figures are those of this moment."""
        self.give_back()
        return self.cards[index]

    def record_of(self, tensor: torch.Tensor) -> Record | None:
        return self.records.get(tensor.untyped_storage()._cdata)

    # -- operators -------------------------------------------------------------------------------------------------

    def dispatch(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run one operator of the program."""
        if not self.following or not _concerned(args, kwargs):
            return func(*args, **kwargs)
        here = self.here
        here.inside += 1
        try:
            return self._run(func, args, kwargs)
        except OutOfMemory as error:
            failure = error.with_traceback(None)  # its frames would keep tensors alive that die on a card
        finally:
            here.inside -= 1
        del func, args, kwargs
        raise failure

    def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
        wanted = kwargs.get("device")
        kwargs, card = self._placed(kwargs, wanted)
        known = card is not None
        if card is None:
            card = self._card_of(args) or self._card_of(kwargs.values())
            known = card is not None
        self.here.card = card or self.cards[self.here.device]
        self.here.origin = func.overloadpacket.__name__
        special = self._special.get(func)
        if special is not None:
            out = special(func, args, kwargs)
            if out is not NONE:
                return out
        if not known and not self._ours():
            return func(*args, **kwargs)  # the program's own use of the meta device
        return self._operator(func, args, kwargs)

    def _placed(self, kwargs: Any, wanted: Any) -> tuple[Any, Card | None]:
        """Return the arguments with the card's device replaced by meta, and the card they name."""
        card = None
        if wanted is not None:
            device = torch.device(wanted)
            if device.type == "cuda":
                kwargs = {**kwargs, "device": META}
                card = self.card_at(device.index)
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        return kwargs, card

    def card_at(self, index: int | None) -> Card:
        if index is None:
            index = self.here.device
        if index >= len(self.cards):
            raise RuntimeError("CUDA error: invalid device ordinal")
        return self.cards[index]

    def _card_of(self, values: Any) -> Card | None:
        for value in values:
            if isinstance(value, torch.Tensor):
                if is_meta(value):
                    record = self.records.get(value.untyped_storage()._cdata)
                    if record is not None:
                        return record.card
            elif isinstance(value, (list, tuple)):
                found = self._card_of(value)
                if found is not None:
                    return found
        return None

    def _ours(self) -> bool:
        """Return whether meta tensors that come from nowhere are the card's: C++ makes such from a tensor's options."""
        return any(card.used for card in self.cards)

    def _operator(self, func: Any, args: Any, kwargs: Any) -> Any:
        facts = self._facts.get(func)
        if facts is None:
            facts = self._facts[func] = Facts(func)
        backward = _graph_task() != -1
        if backward:
            kept = _kept_in_place(func, args)
            if kept is not None:
                if func in PROGRAMS:  # scratch beside what is written into
                    self._run_scratch(PROGRAMS[func], Call(args, kwargs, kept, self.here.card.plan.shape))
                self._accumulate(func, args, kwargs)
                return kept
        for given in args:
            if isinstance(given, torch.Tensor) and is_meta(given):
                self._births(given)  # if it was made behind the dispatcher's back
        out = self._shapes(func, args, kwargs)
        program = PROGRAMS.get(func)
        if program is not None:
            self._run_scratch(program, Call(args, kwargs, out, self.here.card.plan.shape))
        elif not facts.view:
            self._births(out)
        if func in MATMULS:
            self._warm_up(self._thread())
        self.shadows.follow(func, facts, args, kwargs, out)
        return out

    def _births(self, out: Any) -> None:
        if isinstance(out, torch.Tensor):
            if is_meta(out):
                storage = out.untyped_storage()
                if storage._cdata not in self.records and storage._cdata not in self._elsewhere:
                    self._born(storage, "")
        elif isinstance(out, (list, tuple)):
            for each in out:
                self._births(each)

    def _run_scratch(self, program: Any, call: Call) -> None:
        held: dict[str, int] = {}
        try:
            for step in program(call):
                if step.kind == "alloc":
                    if step.nbytes:
                        held[step.name] = self.alloc(step.nbytes)
                elif step.kind == "free":
                    if step.name in held:
                        self.free(held.pop(step.name))
                elif step.kind == "once":
                    self._take_once(f"{step.name} {self.here.card.index}", step.nbytes)
                elif step.kind == "cublas":
                    self._warm_up(self._thread())
                else:
                    self._place_result(call.out, step)
        finally:
            for number in reversed(list(held.values())):
                self.free(number)
        self._births(call.out)

    def _place_result(self, out: Any, step: Any) -> None:
        result = out if isinstance(out, torch.Tensor) else out[int(step.name)]
        tensor = result[0] if isinstance(result, list) else result
        if is_meta(tensor) and tensor.untyped_storage()._cdata not in self.records:
            if step.kind == "host":
                self._put_elsewhere(tensor.untyped_storage())
            else:
                self._born(tensor.untyped_storage(), "", step.nbytes)

    def _thread(self) -> str:
        return f"{'backward' if _graph_task() != -1 else threading.get_ident()} {self.here.card.index}"

    def _take_once(self, name: str, nbytes: int) -> None:
        if name not in self._warm:
            self._warm.add(name)
            self.alloc(nbytes, "workspace", flags=0)

    def _accumulate(self, func: Any, args: Any, kwargs: Any) -> None:
        """Write the values of a gradient that is added in place."""
        given = self.shadows._twins(args)
        if given is NONE:
            self.shadows.drop(args[0])
        else:
            given[0].copy_(func(*given, **kwargs))

    # -- reading values ----------------------------------------------------------------------------------------------

    def assume(self, what: str, *, sets_size: bool = False) -> None:
        self.assumptions.add(self.sites.where(), what, sets_size)

    def _read_number(self, func: Any, args: Any, kwargs: Any) -> Any:
        twin = self.shadows.twin(args[0])
        if twin is not NONE:
            return func(twin)
        record = self.record_of(args[0])
        origin = record.origin if record is not None else ""
        found = answer(args[0].dtype, origin)
        self.assume(f"{origin or 'a value'} read as {found}")
        return found

    def array(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return a card tensor's values on the host."""
        if not _is_dense(tensor):  # Copy.cu: a copy to the host goes through a contiguous one on the card
            self.free(self.alloc(tensor.numel() * tensor.element_size()))
        twin = self.shadows.twin(tensor)
        if twin is not NONE:
            found: torch.Tensor = _aten._to_copy.default(twin, dtype=dtype)
            return found
        self.assume(f"{tuple(tensor.shape)} values read as 0")
        return unwritten(tensor.shape, dtype)

    def _to_copy(self, func: Any, args: Any, kwargs: Any) -> Any:
        source, wanted = args[0], kwargs.get("device")
        if is_meta(source) and wanted is not None and torch.device(wanted).type == "cpu":
            record = self.record_of(source)
            if record is None:
                return NONE
            self.here.card = record.card
            return self.array(source, kwargs.get("dtype") or source.dtype)
        if is_meta(source) or wanted is None:
            return NONE
        # from the host to a card
        out = func(*args, **kwargs)
        self._born(out.untyped_storage(), "batch")
        dtype = kwargs.get("dtype")
        if kwargs.get("non_blocking") and dtype is not None and dtype != source.dtype:
            self.free(self.alloc(source.numel() * source.element_size()))  # Copy.cu: converted on the card
        if out.untyped_storage().nbytes() <= self.shadows.small:
            self.shadows.give(out, func(source, **{**kwargs, "device": torch.device("cpu")}))
        return out

    def _copy(self, func: Any, args: Any, kwargs: Any) -> Any:
        target, source = args[:2]
        if not is_meta(target):
            record = self.record_of(source)
            if record is not None:
                self.here.card = record.card
            target.copy_(self.array(source, source.dtype))
            return target
        if is_meta(source):
            return NONE
        blocking = not (args[2] if len(args) > 2 else kwargs.get("non_blocking"))
        same = source.dtype == target.dtype
        if source.numel() > 1 and (not _is_dense(target) or (not same and not blocking)):
            size = target.element_size() if blocking else source.element_size()
            self.free(self.alloc(target.numel() * size))
        whole = target.numel() * target.element_size() == target.untyped_storage().nbytes()
        if whole and target.untyped_storage().nbytes() <= self.shadows.small:
            self.shadows._prepare(target)
        twin = self.shadows.twin(target)
        if twin is not NONE:
            twin.copy_(source)
        return target

    def _equal(self, func: Any, args: Any, kwargs: Any) -> Any:
        given = self.shadows._twins(args)
        if given is not NONE:
            return func(*given)
        self.assume("equal read as True")
        return True

    def _count(self, mask: torch.Tensor) -> int:
        """Return how many entries are selected."""
        twin = self.shadows.twin(mask)
        if twin is not NONE:
            return int(torch.count_nonzero(twin))
        self.assume(f"a selection takes all of {tuple(mask.shape)}", sets_size=True)
        return mask.numel()

    def _nonzero(self, func: Any, args: Any, kwargs: Any) -> Any:
        found = self._positions(args[0])
        twin = self.shadows.twin(args[0])
        if twin is not NONE:
            self.shadows.give(found, func(twin))
        return found

    def _positions(self, mask: torch.Tensor) -> torch.Tensor:
        count = self._count(mask)
        found = torch.empty((mask.dim(), count), dtype=torch.int64, device=META).t()
        self._births(found)
        return found

    def _masked_select(self, func: Any, args: Any, kwargs: Any) -> Any:
        tensor, mask = args[:2]
        shape = torch.broadcast_shapes(tensor.shape, mask.shape)
        positions = self._positions(mask.expand(shape))
        out = torch.empty((positions.shape[0],), dtype=tensor.dtype, device=META)
        self._births(out)
        given = self.shadows._twins(args)
        if given is not NONE:
            self.shadows.give(out, func(*given))
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
                    on_card = torch.empty(column.shape, dtype=torch.int64, device=META)
                    self._births(on_card)
                    self.shadows.give(on_card, column.to(torch.int64).contiguous())
                    replaced.append(on_card)
            elif index.dtype in (torch.bool, torch.uint8):
                if self._fills(func, args, index):
                    self._filled(args, index)
                    return args[0]
                found = self._nonzero(_aten.nonzero.default, (index,), {})
                replaced.extend(found.unbind(1))
            else:
                replaced.append(index)
        return self._operator(func, (args[0], replaced, *args[2:]), kwargs)

    @staticmethod
    def _fills(func: Any, args: Any, mask: torch.Tensor) -> bool:
        """Return whether a masked write becomes `masked_fill_` (canDispatchToMaskedFill in TensorAdvancedIndexing)."""
        return (
            func is not _aten.index.Tensor and func is not _aten.index_put.default
            and len([i for i in args[1] if i is not None]) == 1 and args[2].numel() == 1
            and not (len(args) > 3 and args[3])
        )  # fmt: skip

    def _filled(self, args: Any, mask: torch.Tensor) -> None:
        given = self.shadows._twins(args[:3])
        if given is NONE:
            self.shadows.drop(args[0])
        else:
            given[0][tuple(slice(None) if i is None else i for i in given[1])] = given[2]


class _Entered(TorchDispatchMode):
    """The mode of one thread."""

    def __init__(self, follower: Follower) -> None:
        super().__init__()
        self._dispatch = follower.dispatch

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise every operator goes through torch._dynamo's wrapper

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._dispatch(func, args, kwargs or {})


def enter(follower: Follower) -> None:
    """Follow the operators of the running thread until it ends."""
    _Entered(follower).__enter__()


def _concerned(args: Any, kwargs: Any) -> bool:
    for value in args:
        if isinstance(value, torch.Tensor):
            if is_meta(value):
                return True
        elif isinstance(value, (list, tuple)) and value and _concerned(value, ()):
            return True
    if kwargs:
        for name, value in kwargs.items():
            if name == "device":
                if value is not None and torch.device(value).type in ("cuda", "meta"):
                    return True
            elif isinstance(value, torch.Tensor):
                if is_meta(value):
                    return True
            elif name == "pin_memory" and value:
                return True
    return False


def _is_dense(tensor: torch.Tensor) -> bool:
    """Return whether a tensor's elements lie side by side, in whatever order."""
    if tensor.is_contiguous():
        return True
    expected = 1
    for step, size in sorted((step, size) for step, size in zip(tensor.stride(), tensor.shape) if size != 1):
        if step != expected:
            return False
        expected *= size
    return True
