"""Runs every operator on cards that are not there: shapes on the meta device, bytes in the simulated allocator.

Card tensors are meta tensors. Each operator of a program, or of the networks of a run (`of_run`), passes through a
dispatch mode, one per thread; it is run on shapes, the storages that are born are requested from the card's allocator
(`card_storages.py`), small ones keep their values (`known_values.py`), and what the host reads is answered
(`value_operators.py`).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .assumed_values import Assumptions, RunReads
from .card import Card, CardPlan, OutOfMemory
from .card_storages import CardStorages, Record, graph_task
from .conv_scratch import CONVOLUTIONS, laid_out
from .cuda_reduce import GpuShape as Shape
from .fake_tensors import (
    ASK,
    DEVICE,
    NUMBERS_MATTER,
    OUT_OF_PLACE,
    concerned,
    constants,
    describe,
    follow,
    hollowed,
    is_meta,
    kept_in_place,
    recipe_of,
    tensors_in,
    zeros,
)
from .journal import Requests
from .known_values import NONE, Facts, Shadows
from .op_scratch import Call
from .recurrent_scratch import NAMES, LibraryMemory
from .scratch_uncertainty import MATMULS, PROGRAMS, SHAPES, doubt_of
from .value_operators import ValueOperators

_aten = torch.ops.aten
_tracing: Any = torch._C._get_tracing_state
_COMPUTED_BYTES = 256 << 20  # of the largest tensor of a run whose values are computed


class Follower(CardStorages):
    """The cards of this process, and what its operators do to them.

    Args:
        reads: answers whoever reads a value that is not known, and notes it.
    """

    def __init__(self, plan: dict[str, Any], journal: Any, reads: Any = None, **options: Any) -> None:
        super().__init__(plan, journal, **options)
        self.libraries = LibraryMemory(journal, int(plan.get("limit_error") or 0))
        self.reads: Any = reads or Assumptions(journal.json)
        small = 1 << 62 if plan.get("values") == "real" else plan.get("small")
        self.shadows = Shadows(self.records, 1 << 18 if small is None else int(small))
        self.following = True
        self.optimizer_steps = 0
        self.batches = 0  # that the loop over a DataLoader was handed in which the optimizer steps
        self.left_out = False  # whether batches were left out
        self.kernels: dict[Any, Any] = {}  # operator -> what a card does instead
        self.casts: dict[Any, Any] = {}  # operator -> what autocast does to its arguments
        self._facts: dict[Any, Facts] = {}
        self._recipes: dict[Any, Any] = {}
        self._warm: set[str] = set()
        self._steps: dict[Any, list[Any]] = {}
        self._unmodelled: set[Any] = set()
        self._doubts: dict[str, int] = {}
        self._tried: set[tuple[int, str]] = set()  # convolutions that were benchmarked
        self._special = ValueOperators(self, _Entered).table

    @classmethod
    def of_run(cls, shape: Shape | None, reads: RunReads) -> Follower:
        """Return what follows the networks of a run, whose requests are kept in memory (`journal`).

        Nothing is requested before `recording` is set: networks are built on the host.

        Args:
            shape: the card; None for a CPU, whose operators' scratch is not modelled.
        """
        small = _COMPUTED_BYTES if reads.values == "real" else -1
        card = Card(0, CardPlan(), shape)
        card.used = True  # every tensor on the meta device is on it
        made = cls({"small": small}, Requests(), reads, cards=[card], scratch=shape is not None)
        made.shadows.generator = torch.Generator().manual_seed(0)
        made.here.card, made.recording = card, False
        return made

    def entered(self) -> _Entered:
        """Return a block in which the operators of the running thread are followed."""
        return _Entered(self)

    def assume(self, what: str, *, sets_size: bool = False) -> None:
        """Note that something is answered without being known.

        Raises:
            ValueRefused: it may not be.
        """
        self.reads.add(what, sets_size)

    def dispatch(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run one operator of the program."""
        if not concerned(args, kwargs):
            if args and type(args[0]) in (int, float, bool):  # a constant of TorchScript that is a tensor
                args = constants(func, args)
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
        except NotImplementedError as error:
            if "storage" not in str(error):
                raise
            failure = self.refused(f"{func} of a tensor without a storage of its own (sparse)")
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
        facts = self._facts.get(func) or self.facts_of(func)
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
        facts = self._facts.get(func) or self.facts_of(func)
        card = None
        if kwargs:
            kwargs, card = self._placed(kwargs, kwargs.get("device"))
        if card is None:
            card = self._card_of(args) or (self._card_of(kwargs.values()) if kwargs else None)
        known, here = card is not None, self.here
        here.card = card or self.cards[here.device]
        here.origin = facts.name
        if facts.special is not None:
            out = facts.special(func, args, kwargs)
            if out is not NONE:
                return out
        if not known and not self._ours():
            return func(*args, **kwargs)  # the program's own use of the meta device
        for given in args:
            if isinstance(given, torch.Tensor) and is_meta(given):
                self.births(given)  # if it was made behind the dispatcher's back
        if facts.composite:  # called from here, below autograd, which divides it elsewhere
            with _Entered(self):
                return func.decompose(*args, **kwargs)
        return self.operator(func, args, kwargs, facts)

    def _placed(self, kwargs: Any, wanted: Any) -> tuple[Any, Card | None]:
        """Return the arguments with the card's device replaced by meta, and the card they name."""
        card = None
        if wanted is not None:
            device = torch.device(wanted)
            if device.type == "cuda":
                kwargs = {**kwargs, "device": DEVICE}
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

    def operator(self, func: Any, args: Any, kwargs: Any, facts: Facts) -> Any:
        backward = graph_task() != -1
        if backward:
            self.libraries.passed()
        if backward and facts.may_keep:
            kept = kept_in_place(func, args)
            if kept is not None:
                if facts.program is not None:  # scratch beside what is written into
                    self.run_steps(list(facts.program(Call(args, kwargs, kept, self.here.card.shape))), kept)
                self._accumulate(func, args, kwargs)
                return kept
        if facts.view:
            return func(*args, **kwargs)
        key: Any = [facts]
        plain = describe(args, key, facts.numbers_matter) and (
            not kwargs or (describe(kwargs, key, True) and describe(kwargs.values(), key, facts.numbers_matter))
        )
        key = tuple(key) if plain else None
        out = self._shapes(func, args, kwargs, facts, key)
        if facts.program is not None:
            steps = self._steps.get(key) if plain else None
            if steps is None:
                steps = list(facts.program(Call(args, kwargs, out, self.here.card.shape)))
                if plain:
                    self._steps[key] = steps
            self.run_steps(steps, out)
        elif not facts.written_names:
            self.births(out)
        if facts.written_names:
            self._resized(facts, args, kwargs)
        if facts.matmul:
            self._warm_up(self._thread())
        if facts.name in NAMES:
            self.libraries.see(facts.name, args, out)
            self.here.card.leave(self.libraries.beside)
        if facts.doubt is not None:
            what, size = facts.doubt
            self.tell_doubt(what, size(args, kwargs, out))
        self.shadows.follow(func, facts, args, kwargs, out)
        return out

    def tell_doubt(self, what: str, nbytes: int) -> None:
        """Tell by how many bytes an operator's scratch may differ from what was requested; more than before only."""
        if self.recording and nbytes > self._doubts.get(what, 0):
            self._doubts[what] = nbytes
            self.tell("doubt", what=what, nbytes=nbytes)

    def facts_of(self, func: Any) -> Facts:
        """Return what is known about an operator."""
        if func in self._facts:
            return self._facts[func]
        facts = self._facts[func] = Facts(func)
        facts.special = self._special.get(func)
        if facts.name == "set_":
            facts.special = self._set
        facts.program = PROGRAMS.get(func) if self.scratch else None
        facts.matmul = self.scratch and func in MATMULS
        facts.may_keep = func is _aten.add.Tensor or func in OUT_OF_PLACE
        facts.numbers_matter = func in NUMBERS_MATTER
        facts.ask = SHAPES.get(func, func)
        facts.doubt = doubt_of(func) if self.scratch else None
        has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
        # silu_backward and its like have both, and a kernel of its own is what a device takes
        facts.composite = has_kernel(func.name(), "CompositeImplicitAutograd") and not has_kernel(func.name(), "Meta")
        return facts

    def _shapes(self, func: Any, args: Any, kwargs: Any, facts: Facts, key: Any) -> Any:
        """Run the operator on shapes; what it returned last time for the same shapes is made anew without asking."""
        recipe = ASK if key is None else self._recipes.get(key, NONE)
        if recipe is not ASK and recipe is not NONE:
            return follow(recipe, args)
        try:
            out = facts.ask(*args, **kwargs)
        except NotImplementedError:
            return self._on_host(func, args, kwargs, facts)
        if func in CONVOLUTIONS:
            out = laid_out(func, args, out, self.here.card.shape)
        if recipe is NONE:
            # unsqueeze_ and its like change the shape of what they are given
            changed = (
                isinstance(out, torch.Tensor) and args and out is args[0] and (out.shape, out.stride()) != key[1:3]
            )
            self._recipes[key] = ASK if changed else recipe_of(args, kwargs, out)
        return out

    def _on_host(self, func: Any, args: Any, kwargs: Any, facts: Facts) -> Any:
        """Run an operator that knows no shapes on the CPU, with zeros where there are no values.

        Raises:
            NotImplementedError: it cannot be run there either.
        """
        given = self.shadows._twins(args)
        if given is NONE:
            self.assume(f"{facts.name} of values that are not known", sets_size=True)
        given, named = zeros(given if given is not NONE else args), zeros(kwargs)
        if "device" in named:
            named["device"] = torch.device("cpu")
        if func not in self._unmodelled:
            self._unmodelled.add(func)
            self.tell("unmodelled", what=str(func))
        return hollowed(self.shadows._compute(func, facts, given, named))

    def _resized(self, facts: Facts, args: Any, kwargs: Any) -> None:
        """Request anew what an operator made larger (`resize_`, results given as `out=`, whatever it is called)."""
        given = [args[0]] if facts.name in ("resize_", "resize_as_") else []
        for tensor in (*given, *tensors_in([kwargs.get(name) for name in facts.written_names])):
            if is_meta(tensor):
                self._grown(tensor.untyped_storage())

    def _grown(self, storage: torch.UntypedStorage) -> None:
        record = self.records.get(storage._cdata)
        if record is not None and storage.nbytes() > record.nbytes:
            self.resize(storage, storage.nbytes())

    def _set(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Give a tensor another storage, with values of its own; it grows where the new shape needs that."""
        out = func(*args, **kwargs)
        self._grown(args[0].untyped_storage())
        return out

    def births(self, out: Any) -> None:
        if isinstance(out, torch.Tensor):
            if is_meta(out):
                self.adopt(out)
        elif isinstance(out, (list, tuple)):
            for each in out:
                self.births(each)

    def run_steps(self, steps: Iterable[Any], out: Any) -> None:
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
        self.births(out)

    def _place(self, tensor: torch.Tensor, step: Any) -> None:
        if is_meta(tensor) and tensor.untyped_storage()._cdata not in self.records:
            if step.kind == "host":  # known, and takes nothing
                self.enroll(tensor.untyped_storage(), Record(self.here.card, 0, self.here.origin))
            else:
                self.born(tensor.untyped_storage(), "", step.nbytes)

    def _take_once(self, name: str, nbytes: int, first: int = 0) -> None:
        name = f"{name} {self.here.card.index} {self._stream(self.here.card)}"
        if self.recording and name not in self._warm:
            self._warm.add(name)
            if first:
                self.free(self.alloc(first))
            self.alloc(nbytes, "workspace", flags=0)

    def _benchmark(self, convolution: str) -> None:
        """Give back the cache, as PyTorch does after it tried the kernels for a convolution it has not met before."""
        if torch.backends.cudnn.benchmark and (self.here.card.index, convolution) not in self._tried:
            self._tried.add((self.here.card.index, convolution))
            self.empty_cache(self.here.card)

    def _warm_up(self, thread: str) -> None:
        # The autograd engine runs CUDA's backward in a thread of its own, with its own cuBLAS handle and workspace.
        self._take_once(thread, self.here.card.shape.cublas)

    def _thread(self) -> str:
        return "backward" if graph_task() != -1 else str(threading.get_ident())

    def _accumulate(self, func: Any, args: Any, kwargs: Any) -> None:
        """Write the values of a gradient that is added in place."""
        given = self.shadows._twins(args)
        if given is NONE:
            self.shadows.drop(args[0])
        else:
            given[0].copy_(func(*given, **kwargs))


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


def _traceable() -> Any:
    """Return a block in which PyTorch's own tracer, which sits above modes, may be reached or changed."""
    module: Any = torch._C
    key = module._dispatch_key_parse("Tracer")
    included, excluded = module._dispatch_tls_local_include_set(), module._dispatch_tls_local_exclude_set()
    return module._ForceDispatchKeyGuard(included.add(key), excluded.remove(key))


def _trace(state: Any) -> None:
    """Let sizes be numbers while an operator runs (None), or tensors again, as `torch.jit.trace` wants them."""
    module: Any = torch._C
    with _traceable():
        module._set_tracing_state(state)
