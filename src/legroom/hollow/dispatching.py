"""Runs every operator on cards that are not there: shapes on the meta device, bytes in the simulated allocator.

Card tensors are meta tensors. Each operator of the program passes through a dispatch mode, one per thread; it is run
on shapes, the storages that are born are requested from the card's allocator, small ones keep their values
(`shadows.py`), and what the host reads is answered. A storage's death is put on a list and given back before the next
request: the allocator's state matters only then, and the list can be appended to from any thread at any moment.
"""

from __future__ import annotations

import collections
import os
import sys
import threading
import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .card import Card, CardPlan, OutOfMemory
from .conv_scratch import CONVOLUTIONS, laid_out
from .doubts import doubt_of
from .fake_tensors import (
    _ASK as ASK,
)
from .fake_tensors import (
    _OUT_OF_PLACE,
    _PLAIN,
    StorageFollower,
    Workspaces,
    _follow,
    _kept_in_place,
    _recipe,
    _tensors,
    is_meta,
    storage_key,
)
from .journal import Journal
from .library_memory import NAMES, LibraryMemory
from .op_scratch import MATMULS, PROGRAMS, SHAPES, Call
from .reads import Assumptions, answer
from .shadows import NONE, Facts, Shadows, unwritten
from .sites import Sites
from .sparse_tensors import SparseTensors

META = torch.device("meta")
_aten = torch.ops.aten

_graph_task = torch._C._current_graph_task_id
_tracing: Any = torch._C._get_tracing_state


def _upsampling() -> list[Any]:
    return [getattr(_aten, name) for name in dir(_aten) if "upsample" in name or "interpolate" in name]


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


def _visible(cards: int) -> int:
    """Return how many of the machine's cards this process may see."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return cards
    count = 0
    for each in listed.split(","):
        if not each.strip() or (each.strip().lstrip("-").isdigit() and not 0 <= int(each) < cards):
            break  # the driver looks no further than the first that is none
        count += 1
    return min(count, cards)


class _Here(threading.local):
    autocast = False  # PyTorch's own word for it cannot be asked from inside the dispatcher
    cast = False  # the arguments of the next operator are cast already
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
        self.cards = [Card(index, read) for index in range(_visible(int(plan.get("cards", 1))))]
        self.sites = Sites(journal.site)
        self.libraries = LibraryMemory(journal, int(plan.get("limit_error") or 0))
        self.assumptions = Assumptions(journal.json)
        self.records: dict[int, Record] = {}
        self.live = self.records  # type: ignore[assignment]  # what the base class asks for storages
        small = 1 << 62 if plan.get("values") == "real" else plan.get("small")
        self.shadows = Shadows(self.records, 1 << 18 if small is None else int(small))
        self.here = _Here()
        self.following = True
        self.optimizer_steps = 0
        self.died = 0  # bytes of storages that have died
        self.kernels: dict[Any, Any] = {}  # operator -> what a card does instead
        self.casts: dict[Any, Any] = {}  # operator -> what autocast does to its arguments
        self.capturing: Any = None  # the private pool of the graph that is captured
        self._dead: collections.deque[int] = collections.deque()
        self._blocks: dict[int, tuple[Card, Any, int]] = {}
        self._lock = threading.RLock()
        self._steps: dict[Any, list[Any]] = {}
        self._unmodelled: set[Any] = set()
        self._doubts: dict[str, int] = {}
        self._tried: set[tuple[int, str]] = set()  # convolutions that were benchmarked
        self._sparse = SparseTensors(self, _Entered)
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
            _aten._nested_tensor_from_mask_left_aligned.default: self._is_left_aligned,
            _aten._ctc_loss.Tensor: self._ctc_loss,
            _aten._sparse_coo_tensor_with_dims_and_tensors.default: self._made_sparse,
            _aten._ctc_loss_backward.Tensor: self._ctc_loss,
            _aten._convolution.default: lambda func, args, kwargs: self.dispatch(
                _aten.convolution.default, args[:9], {}
            ),
            _aten.allclose.default: self._allclose,
            _aten.repeat_interleave.Tensor: self._repeats,
            _aten._cudnn_rnn_flatten_weight.default: self._flatten_weights,
            _aten._amp_foreach_non_finite_check_and_unscale_.default: self._unscale,
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
                block = card.take(nbytes, (self.capturing, self._stream(card)))
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

    def _stream(self, card: Card) -> int:
        streams = self.here.__dict__.get("streams")
        if not streams:
            return 0
        found = streams.get(card.index)
        return 0 if found is None else int(found.stream_id)

    def _born(self, storage: torch.UntypedStorage, label: str, nbytes: int = 0) -> None:
        nbytes = nbytes or storage.nbytes()
        record = Record(self.here.card, nbytes, self.here.origin)
        if nbytes:
            record.number = self.alloc(nbytes, label, flags=0)
        self._enroll(storage, record)

    def _enroll(self, storage: torch.UntypedStorage, record: Record) -> None:
        """Know a storage until it dies."""
        key, number, dead, records, nbytes = storage._cdata, record.number, self._dead, self.records, record.nbytes

        def died(_: Any) -> None:
            records.pop(key, None)
            if number >= 0:
                dead.append(number)
                self.died += nbytes

        record.ref = weakref.ref(storage, died)
        records[key] = record

    def figures(self, index: int) -> Card:
        """Return a card whose figures are those of this moment."""
        self.give_back()
        return self.cards[index]

    def empty_cache(self, card: Card) -> None:
        self.give_back()
        card.empty_cache()
        self.journal.json("cache emptied", device=card.index)

    def record_of(self, tensor: torch.Tensor) -> Record | None:
        return self.records.get(storage_key(tensor))

    def has_values(self, tensor: torch.Tensor) -> bool:
        record = self.record_of(tensor)
        return record is not None and (record.shadow is not None or not tensor.numel())

    # -- operators -------------------------------------------------------------------------------------------------

    def dispatch(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run one operator of the program."""
        if not _concerned(args, kwargs):
            if args and type(args[0]) in (int, float, bool):  # a constant of TorchScript that is a tensor
                args = _constants(func, args)
            return func(*args, **kwargs)
        if not self.following:
            return self._in_fork(func, args, kwargs)
        if torch.is_inference_mode_enabled():
            found = self._inferred(func, args, kwargs)
            if found is not NONE:
                return found
        here, traced = self.here, _tracing()
        if traced is not None:
            if func is _aten.convolution.default:
                return self._traced_convolution(args)
            _trace(None)
        here.inside += 1
        try:
            return self._run(func, args, kwargs)
        except OutOfMemory as error:
            failure = error.with_traceback(None)  # its frames would keep tensors alive that die on a card
        except RuntimeError as error:
            if "on the expected device meta" not in str(error):
                raise
            devices = f"{here.card.device} and cpu"
            failure = RuntimeError(
                f"Expected all tensors to be on the same device, but found at least two devices, {devices}!"
            )
        finally:
            here.inside -= 1
            if traced is not None:
                _trace(traced)
        del func, args, kwargs
        raise failure

    def _traced_convolution(self, args: Any) -> Any:
        """Let `torch.jit.trace` note a convolution by the operator below it, as it does where no mode is active."""
        flags = (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic, torch.backends.cudnn.enabled, True)
        with _traceable(), _Entered(self):
            return _aten._convolution.default(*args, *flags)

    def _in_fork(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Refuse a card in a forked child, as PyTorch does; the rest of what it does is its own."""
        device = kwargs.get("device")
        if self._ours() and (
            self._card_of(args) is not None or (device is not None and torch.device(device).type == "cuda")
        ):
            raise RuntimeError(
                "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the "
                "'spawn' start method"
            )
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        return func(*args, **kwargs)

    def _inferred(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Do what PyTorch does above the dispatcher elsewhere: in inference mode operators come here undivided."""
        facts = getattr(func, "_legroom", None) or self._facts_of(func)
        kernel, cast = self.kernels.get(func), None
        if self.here.autocast and not self.here.cast:
            cast = self.casts.get(func)
        if kernel is None and cast is None and not facts.composite:
            return NONE
        with _Entered(self):
            if cast is not None:
                args, kwargs = cast(func, args, kwargs)
            if kernel is not None:
                return kernel(*args, **kwargs)
            if facts.composite:
                return func.decompose(*args, **kwargs)
            self.here.cast = True
            try:
                return func(*args, **kwargs)
            finally:
                self.here.cast = False

    def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
        facts = getattr(func, "_legroom", None) or self._facts_of(func)
        card = None
        if kwargs:
            kwargs, card = self._placed(kwargs, kwargs.get("device"))
        try:
            if card is None:
                card = self._card_of(args) or (self._card_of(kwargs.values()) if kwargs else None)
        except NotImplementedError:  # a tensor without a storage of its own
            return self._sparse.run(func, args, kwargs)
        known, here = card is not None, self.here
        here.card = card or self.cards[here.device]
        here.origin = facts.name
        if facts.special is not None:
            out = facts.special(func, args, kwargs)
            if out is not NONE:
                return out
        if not known and not self._ours():
            return func(*args, **kwargs)  # the program's own use of the meta device
        try:
            for given in args:
                if isinstance(given, torch.Tensor) and is_meta(given):
                    self._births(given)  # if it was made behind the dispatcher's back
        except NotImplementedError:
            return self._sparse.run(func, args, kwargs)
        if facts.composite:  # called from here, below autograd, which divides it elsewhere
            with _Entered(self):
                return func.decompose(*args, **kwargs)
        return self._operator(func, args, kwargs, facts)

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

    def _operator(self, func: Any, args: Any, kwargs: Any, facts: Facts) -> Any:
        backward = _graph_task() != -1
        if backward and facts.may_keep:
            kept = _kept_in_place(func, args)
            if kept is not None:
                if facts.program is not None:  # scratch beside what is written into
                    self._run_steps(list(facts.program(Call(args, kwargs, kept, self.here.card.plan.shape))), kept)
                self._accumulate(func, args, kwargs)
                return kept
        if facts.view:
            return func(*args, **kwargs)
        key: Any = [facts]
        plain = _describe(args, key, facts.numbers_matter) and (
            not kwargs or (_describe(kwargs, key, True) and _describe(kwargs.values(), key, facts.numbers_matter))
        )
        key = tuple(key) if plain else None
        out = self._shapes(func, args, kwargs, key)
        if facts.program is not None:
            steps = self._steps.get(key) if plain else None
            if steps is None:
                steps = list(facts.program(Call(args, kwargs, out, self.here.card.plan.shape)))
                if plain:
                    self._steps[key] = steps
            self._run_steps(steps, out)
        elif not facts.written:
            self._births(out)
        else:
            self._resized(facts, args, kwargs)
        if facts.matmul:
            self._warm_up(self._thread())
        if facts.name in NAMES:
            self.libraries.see(facts.name, args, out)
            self.here.card.leave(self.libraries.beside)
        if facts.doubt is not None:
            self._doubt(facts, (args, kwargs, out))
        self.shadows.follow(func, facts, args, kwargs, out)
        return out

    def _doubt(self, facts: Facts, tensors: Any) -> None:
        what, size = facts.doubt
        self.tell_doubt(what, size(*tensors), *self.sites.where())

    def tell_doubt(self, what: str, nbytes: int, file: str, line: int) -> None:
        """Tell by how many bytes an operator's scratch may differ from what was requested; more than before only."""
        if nbytes > self._doubts.get(what, 0):
            self._doubts[what] = nbytes
            self.journal.json("doubt", what=what, nbytes=nbytes, file=file, line=line)

    def _facts_of(self, func: Any) -> Facts:
        facts = Facts(func)
        facts.special = self._special.get(func)
        if facts.name == "set_":  # another storage, with values of its own
            facts.special = lambda func, args, kwargs: func(*args, **kwargs)
        facts.program = PROGRAMS.get(func)
        facts.matmul = func in MATMULS
        facts.may_keep = func is _aten.add.Tensor or func in _OUT_OF_PLACE
        facts.numbers_matter = func in _NUMBERS_MATTER
        facts.ask = SHAPES.get(func, func)
        facts.doubt = doubt_of(func)
        has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
        # silu_backward and its like have both, and a kernel of its own is what a device takes
        facts.composite = has_kernel(func.name(), "CompositeImplicitAutograd") and not has_kernel(func.name(), "Meta")
        func._legroom = facts
        return facts

    def _shapes(self, func: Any, args: Any, kwargs: Any, key: Any = None) -> Any:
        """Run the operator on shapes; what it returned last time for the same shapes is made anew without asking."""
        recipe = ASK if key is None else self._recipes.get(key, NONE)
        if recipe is not ASK and recipe is not NONE:
            return _follow(recipe, args)
        try:
            out = func._legroom.ask(*args, **kwargs)
        except NotImplementedError:
            return self._on_host(func, args, kwargs)
        if func in CONVOLUTIONS:
            out = laid_out(func, args, out, self.here.card.plan.shape)
        if recipe is NONE:
            # unsqueeze_ and its like change the shape of what they are given
            changed = (
                isinstance(out, torch.Tensor) and args and out is args[0] and (out.shape, out.stride()) != key[1:3]
            )
            self._recipes[key] = ASK if changed else _recipe(args, kwargs, out)
        return out

    def _on_host(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator that knows no shapes on the CPU, with zeros where there are no values.

        Raises:
            NotImplementedError: it cannot be run there either.
        """
        given = self.shadows._twins(args)
        if given is NONE:
            self.assume(f"{func._legroom.name} of values that are not known", sets_size=True)
        given, named = _zeros(given if given is not NONE else args), _zeros(kwargs)
        if "device" in named:
            named["device"] = torch.device("cpu")
        if func not in self._unmodelled:
            self._unmodelled.add(func)
            file, line = self.sites.where()
            self.journal.json("unmodelled", what=str(func), file=file, line=line)
        return _hollowed(self.shadows._compute(func, func._legroom, given, named))

    def _resized(self, facts: Facts, args: Any, kwargs: Any) -> None:
        """Request anew what an operator made larger (`resize_`, results given as `out=`)."""
        if facts.name != "resize_" and "out" not in kwargs:
            return
        for tensor in (args[0],) if facts.name == "resize_" else _tensors(kwargs["out"]):
            storage = tensor.untyped_storage()
            record = self.records.get(storage._cdata)
            if record is not None and storage.nbytes() > record.nbytes:
                self.records.pop(storage._cdata)
                self._born(storage, "")
                if record.number >= 0:
                    self._dead.append(record.number)

    def _births(self, out: Any) -> None:
        if isinstance(out, torch.Tensor):
            if is_meta(out):
                storage = out.untyped_storage()
                if storage._cdata not in self.records:
                    self._born(storage, "")
        elif isinstance(out, (list, tuple)):
            for each in out:
                self._births(each)

    def _run_steps(self, steps: list[Any], out: Any) -> None:
        """Request and free what an operator takes inside, its results among that."""
        held: dict[str, int] = {}
        try:
            for step in steps:
                if step.kind == "alloc":
                    if step.nbytes:
                        held[step.name] = self.alloc(step.nbytes)
                elif step.kind == "free":
                    if step.name in held:
                        self.free(held.pop(step.name))
                elif step.kind == "once":
                    self._take_once(step.name, step.nbytes, step.first)
                elif step.kind == "cublas":
                    self._warm_up(self._thread())
                elif step.kind == "benchmark":
                    self._benchmark(step.name)
                else:
                    result = out if isinstance(out, torch.Tensor) else out[int(step.name)]
                    self._place(result[0] if isinstance(result, list) else result, step)
        finally:
            for number in reversed(list(held.values())):
                self.free(number)
        self._births(out)

    def _place(self, tensor: torch.Tensor, step: Any) -> None:
        if is_meta(tensor) and tensor.untyped_storage()._cdata not in self.records:
            if step.kind == "host":  # known, and takes nothing
                self._enroll(tensor.untyped_storage(), Record(self.here.card, 0, self.here.origin))
            else:
                self._born(tensor.untyped_storage(), "", step.nbytes)

    def _take_once(self, name: str, nbytes: int, first: int = 0) -> None:
        name = f"{name} {self.here.card.index} {self._stream(self.here.card)}"
        if name not in self._warm:
            self._warm.add(name)
            if first:
                self.free(self.alloc(first))
            self.alloc(nbytes, flags=0)

    def _benchmark(self, convolution: str) -> None:
        """Give back the cache, as PyTorch does after it tried the kernels for a convolution it has not met before."""
        if torch.backends.cudnn.benchmark and (self.here.card.index, convolution) not in self._tried:
            self._tried.add((self.here.card.index, convolution))
            self.empty_cache(self.here.card)

    def _thread(self) -> str:
        return "backward" if _graph_task() != -1 else str(threading.get_ident())

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

    def array(self, tensor: torch.Tensor, dtype: torch.dtype, waits: bool = True, into: Any = None) -> torch.Tensor:
        """Return a card tensor's values on the host; `waits` unless the copy is a non-blocking one."""
        self._pass_through(tensor, dtype, waits, into)
        twin = self.shadows.twin(tensor)
        if twin is not NONE:
            found: torch.Tensor = _aten._to_copy.default(twin, dtype=dtype)
            return found
        self.assume(f"{tuple(tensor.shape)} values read as 0")
        return unwritten(tensor.shape, dtype)

    def _pass_through(self, tensor: torch.Tensor, dtype: torch.dtype, waits: bool, into: Any) -> None:
        """Request what a copy to the host passes through: other types and layouts become contiguous on the card first.

        Copy.cu, copy_requires_temporaries: types are converted on the card where nobody waits for the copy.
        """
        same = dtype == tensor.dtype
        if tensor.numel() < 2 or (same and _is_dense(tensor) and (into is None or _same_order(tensor, into))):
            return
        number = None if same or waits else self.alloc(tensor.numel() * dtype.itemsize)
        if not tensor.is_contiguous():
            self.free(self.alloc(tensor.numel() * (tensor.dtype if waits else dtype).itemsize))
        if number is not None:
            self.free(number)

    def _to_copy(self, func: Any, args: Any, kwargs: Any) -> Any:
        source, wanted = args[0], kwargs.get("device")
        if source.layout is not torch.strided:
            return self._sparse.run(func, args, kwargs)
        if is_meta(source) and wanted is not None and torch.device(wanted).type == "cpu":
            record = self.record_of(source)
            if record is None:
                return NONE
            self.here.card = record.card
            return self.array(source, kwargs.get("dtype") or source.dtype, not kwargs.get("non_blocking"))
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
        blocking = not (args[2] if len(args) > 2 else kwargs.get("non_blocking"))
        if not is_meta(target):
            record = self.record_of(source)
            if record is not None:
                self.here.card = record.card
            target.copy_(self.array(source, target.dtype, blocking, target))
            return target
        if is_meta(source):
            return NONE
        same = source.dtype == target.dtype
        straight = same and _is_dense(target) and _same_order(source, target)
        if source.numel() > 1 and not straight and not (target.is_contiguous() and (same or blocking)):
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

    def _allclose(self, func: Any, args: Any, kwargs: Any) -> bool:
        with _Entered(self):  # what PyTorch calls inside, and reads
            found = torch.isclose(*args, **kwargs).all()
        return bool(self._read_number(_aten._local_scalar_dense.default, (found,), {}))

    def _is_left_aligned(self, func: Any, args: Any, kwargs: Any) -> bool:
        """Keep an encoder from nested tensors, which are not simulated: padding stays."""
        self.assume("a padding mask read as not aligned, so that padding stays")
        return False

    def _made_sparse(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Make a sparse tensor of two on the card, which takes nothing; one that is on the host is copied."""
        given = [x if is_meta(x) else self._to_copy(_aten._to_copy.default, (x,), {"device": META}) for x in args[3:5]]
        return self._sparse.made(*given, args[2], bool(kwargs.get("is_coalesced")))

    def _ctc_loss(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Read the lengths, as PyTorch does, whose other form of the operator takes numbers."""
        back = func is _aten._ctc_loss_backward.Tensor
        at = 3 if back else 2
        targets, wide = args[at - 1], args[at - 1].shape[-1] if args[at - 1].dim() > 1 else 0
        lengths = []
        for each, longest in zip(args[at : at + 2], (args[at - 2].shape[0], wide or targets.numel())):
            twin = self.shadows.twin(each) if is_meta(each) else each
            if twin is NONE:
                self.assume("lengths of sequences are the longest possible", sets_size=True)
                twin = torch.full(each.shape, longest)
            lengths.append(twin.tolist())
        packet = _aten._ctc_loss_backward if back else _aten._ctc_loss
        if not is_meta(targets):
            targets = self._to_copy(_aten._to_copy.default, (targets,), {"device": META})
        args = (*args[: at - 1], targets, *lengths, *args[at + 2 :])
        facts = getattr(packet.default, "_legroom", None) or self._facts_of(packet.default)
        return self._operator(packet.default, args, kwargs, facts)

    def _unscale(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Say that gradients without values are finite: a step that is skipped would take less than the others."""
        if self.shadows._twins(args) is not NONE:
            return NONE
        self.shadows.drop(args[0])
        return None

    def _repeats(self, func: Any, args: Any, kwargs: Any) -> Any:
        if kwargs.get("output_size") is not None:
            return NONE
        given = self.shadows._twins(args)
        if given is NONE:
            self.assume("repeat_interleave repeats everything once", sets_size=True)
            given = [torch.ones(args[0].shape, dtype=args[0].dtype)]
        values = func(*given)
        out = _hollowed(values)
        self._births(out)
        self.shadows.give(out, values)
        return out

    def _flatten_weights(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Let the weights of recurrent layers be views of one block (RNN.cpp, copy_weights_to_flat_buf_views)."""
        weights = args[0]
        block = torch.empty(sum(weight.numel() for weight in weights), dtype=weights[0].dtype, device=META)
        self._births(block)
        values = self.shadows._twins(weights)
        if values is not NONE:
            self.shadows.give(block, torch.cat([each.reshape(-1) for each in values]))
        place = 0
        for weight in weights:
            weight.set_(block.untyped_storage(), place, weight.shape, torch.empty(weight.shape, device=META).stride())
            place += weight.numel()
        return block

    def address(self, tensor: torch.Tensor) -> int:
        """Return what `data_ptr` of a card tensor would be."""
        record = self.record_of(tensor)
        if record is None or record.number < 0:
            return 0
        return self.storage_address(record) + int(tensor.storage_offset()) * tensor.element_size()

    def storage_address(self, record: Record) -> int:
        """Return where on its card a storage would begin; 0 for one without bytes."""
        return 0 if record.number < 0 else int(self._blocks[record.number][1].address)

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
        return self._operator(func, (args[0], replaced, *args[2:]), kwargs, func._legroom)

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
        found = self._dispatch(func, args, kwargs or {})
        return found if func is not _aten.alias.default else _of_subclass(found)


def _of_subclass(found: torch.Tensor) -> torch.Tensor:
    """Return what `Tensor.__new__(cls, other)` asks for, which cannot make it of a tensor that Python has seen."""
    frame: Any = sys._getframe(2)
    if frame.f_code.co_name != "__new__" or not frame.f_code.co_varnames:
        return found
    wanted = frame.f_locals.get(frame.f_code.co_varnames[0])
    if not isinstance(wanted, type) or not issubclass(wanted, torch.Tensor) or isinstance(found, wanted):
        return found
    made: torch.Tensor = found.as_subclass(wanted)
    return made


def enter(follower: Follower) -> None:
    """Follow the operators of the running thread until it ends."""
    _Entered(follower).__enter__()


# the value of a number sets these operators' shapes; others' shapes depend on whole numbers at most
_NUMBERS_MATTER = {
    overload
    for packet in (_aten.arange, _aten.range, _aten.linspace, _aten.logspace, *_upsampling())
    for overload in (getattr(packet, name) for name in packet.overloads())
}


def _describe(values: Any, key: list[Any], numbers: bool) -> bool:
    """Add what result shapes depend on to a key; False where that cannot be told."""
    for value in values:
        if isinstance(value, torch.Tensor):
            if not is_meta(value):
                return False  # values on the host may matter
            key += (value.shape, value.stride(), value.dtype)
        elif isinstance(value, float) and not numbers:
            key.append(value == 0.0)  # attention without dropout takes other scratch
        elif isinstance(value, (list, tuple)):
            key.append(len(value))
            if not _describe(value, key, numbers):
                return False
        elif isinstance(value, _PLAIN):
            key.append(value)
            key.append(type(value))
        elif value is not None:
            return False
        else:
            key.append(None)
    return True


def _zeros(value: Any) -> Any:
    """Return arguments with zeros on the host in the place of card tensors."""
    if isinstance(value, torch.Tensor):
        return unwritten(value.shape, value.dtype) if is_meta(value) else value
    if isinstance(value, dict):
        return {name: _zeros(each) for name, each in value.items()}
    return type(value)(_zeros(each) for each in value) if isinstance(value, (list, tuple)) else value


def _hollowed(value: Any) -> Any:
    """Return results on the host as card tensors."""
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=META)
    return tuple(_hollowed(each) for each in value) if isinstance(value, (list, tuple)) else value


def _constants(func: Any, args: Any) -> Any:
    """Return arguments with numbers as tensors where an operator takes these."""
    kinds = [str(each.type) for each in func._schema.arguments]
    return [torch.tensor(x) if k == "Tensor" and type(x) in (int, float, bool) else x for x, k in zip(args, kinds)]


def _traceable() -> Any:
    """Return a block in which PyTorch's own tracer, which sits above modes, may be reached or changed."""
    module: Any = torch._C
    key = module._dispatch_key_parse("Tracer")
    included, excluded = module._dispatch_tls_local_include_set(), module._dispatch_tls_local_exclude_set()
    return module._ForceDispatchKeyGuard(included.add(key), excluded.remove(key))


def _trace(state: Any) -> None:
    """Let sizes be numbers while an operator runs (None), or tensors again, as `torch.jit.trace` wants them."""
    with _traceable():
        torch._C._set_tracing_state(state)


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


def _same_order(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether the elements of two tensors of one shape lie in the same order."""
    return one.shape == other.shape and all(
        a == b for a, b, size in zip(one.stride(), other.stride(), one.shape) if size != 1
    )


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
