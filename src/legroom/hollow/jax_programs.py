"""Follows what a JAX program compiles: every function is lowered for the platform `cuda`, and large ones are not run.

jax hands each call of a compiled function that its C++ cache does not know to `_pjit_call_impl_python`; here the cache
never knows one. A function that would compute for long, or on much memory, is lowered for a GPU, which any jaxlib can
do, and written down for legroom to have it compiled elsewhere; its results are zeros over memory that is never
written, so that nothing is computed. Small functions (keys, schedules, initial weights) are run on the CPU as they are.

Mirrors `jax._src.pjit` of jax 0.4.36 to 0.9.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
from typing import Any, Dict, Iterator, List, Tuple

from .install import tell_failure
from .jax_guesses import Guesses, counters_of
from .source_lines import leave_out, where

MOST_OPERATIONS = 1e9  # elements computed: a second or so of a CPU
MOST_BYTES = 64 << 20  # of arguments and results
LOOPS = 100  # of a `while`, whose length nobody knows
TELLING_BYTES = 64 << 10  # of results: from here on all live arrays are counted after a call
HOLLOW_BYTES = 1 << 20
CARDS = ("gpu", "cuda")
SMALL, UNKNOWN = -1, -2  # in place of a number: functions that are run, and those that cannot be lowered for a GPU


def on_jax(journal: Any, jax: Any) -> None:
    """Follow jax, which has just been imported."""
    jax.config.update("jax_platforms", "cpu")  # also where the program asked for a card by a variable
    journal.json("jax", version=jax.__version__)
    leave_out(jax)
    tell_failure(journal)
    try:
        _install(journal, jax)
    except (ImportError, AttributeError) as error:
        journal.json("unmodelled", what=f"jax {jax.__version__}, whose functions cannot be followed ({error})")


def _install(journal: Any, jax: Any) -> None:
    from jax._src import array, pjit

    call = pjit._pjit_call_impl_python
    guesses = Guesses(journal)
    guesses.watch(array.ArrayImpl)
    follower = JaxFollower(journal, jax, call, guesses)
    pjit._get_fastpath_data = lambda *args, **kwargs: None
    pjit._pjit_call_impl_python = follower.call
    _answer_for_cards(jax)
    plan = json.loads(os.environ.get("LEGROOM_REHEARSAL_PLAN") or "{}")
    if plan.get("card"):  # programs ask it to choose kernels; devices themselves are the CPU's, and say so
        jax.default_backend = lambda: "gpu"


def _answer_for_cards(jax: Any) -> None:
    """Have jax take the CPU wherever the program asks for a GPU by name: for devices, a backend or as a setting."""
    from jax._src import xla_bridge

    get_backend, config = xla_bridge._get_backend_uncached, type(jax.config)
    update = config.update

    def get(platform: Any = None) -> Any:
        return get_backend("cpu" if platform in (None, *CARDS) else platform)

    def set_value(self: Any, name: str, value: Any) -> None:
        asks = name in ("jax_platforms", "jax_platform_name") and set(str(value).split(",")) & set(CARDS)
        update(self, name, "cpu" if asks else value)

    xla_bridge._get_backend_uncached, config.update = get, set_value


class JaxFollower:
    """Decides for each function whether it is run, and tells what is live when it is called."""

    def __init__(self, journal: Any, jax: Any, call: Any, guesses: Guesses) -> None:
        self._journal, self._jax, self._call, self._guesses = journal, jax, call, guesses
        self._known: Dict[int, Tuple[Any, int]] = {}  # by jaxpr: itself, so that its id stays its own, and its number
        self._counters: Dict[int, Any] = {}  # by jaxpr
        self._most: Dict[int, int] = {}
        self._highest = 0
        self._returned = 0  # how many things this version of jax wants from a call; 0 before the first

    def call(self, *args: Any, **params: Any) -> Any:
        jaxpr = params["jaxpr"]
        known = self._known.get(id(jaxpr))
        if known is None:
            number = self._announce(args, params) if is_large(jaxpr) else SMALL
            known = self._known[id(jaxpr)] = (jaxpr, number)
        if known[1] == SMALL:
            found = self._call(*args, **params)
            self._returned = len(found)
            if name := self._guesses.among(args):
                self._guesses.add(found[0], name)
            if sum(_nbytes(each) for each in jaxpr.out_avals) >= TELLING_BYTES:
                self._tell_live()
            return found
        if known[1] != UNKNOWN:
            self._tell_call(known[1], args, is_step=not _is_of_jax(jaxpr))
        results = [self._hollow(aval) for aval in jaxpr.out_avals]
        guessed = dict(enumerate(results))
        for at, value in self._counted(jaxpr, args):
            results[at] = value
            del guessed[at]
        self._guesses.add(guessed.values(), params["name"])
        for argument, donated in zip(args, params["donated_invars"]):
            if donated and hasattr(argument, "delete"):
                argument.delete()
        if not self._returned:
            self._jax.jit(lambda number: number)(0.0)
        return (results, None, None, ())[: self._returned]

    def _counted(self, jaxpr: Any, args: Any) -> List[Tuple[int, Any]]:
        """Return results that count something, by their numbers."""
        try:
            if id(jaxpr) not in self._counters:
                self._counters[id(jaxpr)] = counters_of(self._jax, jaxpr, operations)
            known = self._counters[id(jaxpr)]
            if known is None:
                return []
            numbers, used, compute = known
            return list(zip(numbers, compute(*(each for each, wanted in zip(args, used) if wanted))))
        except Exception:  # the program goes on with zeros, as it did before
            self._counters[id(jaxpr)] = None
            return []

    def _announce(self, args: Any, params: Any) -> int:
        """Write the function down, lowered for a GPU."""
        from jax._src import pjit
        from jax._src.interpreters import mlir

        number = sum(1 for _, each in self._known.values() if each >= 0)
        path = os.path.join(os.environ["LEGROOM_REHEARSAL_FOLDER"], f"program-{os.getpid()}-{number}.mlir")
        file, line = where()
        try:
            with _without_lines(mlir):
                lowered = self._lowered(args, params, pjit, mlir)
            with open(path, "wb") as program:
                program.write(_portable(lowered.stablehlo(), mlir))
        except Exception as error:  # the program itself may be fine: it is ours that cannot follow it
            what = f"{params['name']}, which cannot be lowered for a GPU ({type(error).__name__}: {error})"[:400]
            self._journal.json("unmodelled", what=what, file=file, line=line)
            return UNKNOWN
        self._journal.json(
            "xla program", number=number, name=params["name"], path=path, file=file, line=line,
            consts=sum(_nbytes(each) for each in getattr(lowered, "const_args", ())),
            foreign=sorted(set(_foreign_calls(params["jaxpr"].jaxpr))),
        )  # fmt: skip
        return number

    def _lowered(self, args: Any, params: Any, pjit: Any, mlir: Any) -> Any:
        """Return the function lowered for the platform of cards; callbacks ask for a backend, which is not there."""
        get_backend = getattr(mlir.ModuleContext, "get_backend", None)
        if get_backend is not None:
            mlir.ModuleContext.get_backend = lambda *_, **__: self._jax.devices()[0].client
        try:
            described = getattr(pjit, "convert_to_metaty", lambda each: each)
            return pjit._resolve_and_lower(
                [described(each) for each in args],
                **params,
                lowering_platforms=("cuda",),
                lowering_parameters=mlir.LoweringParameters(),
                pgle_profiler=None,
            )
        finally:
            if get_backend is not None:
                mlir.ModuleContext.get_backend = get_backend

    def _live(self) -> int:
        """Return the bytes of all arrays; jax lists an array and its shards, which are the same memory, as several."""
        return sum({_address(each): each.nbytes for each in self._jax.live_arrays()}.values())

    def _tell_call(self, number: int, args: Any, *, is_step: bool) -> None:
        """Tell what is on the card when a large function is called, its arguments from the host included."""
        array = self._jax.Array
        live = self._live() + sum(_nbytes(each) for each in args if not isinstance(each, array))
        if live > self._most.get(number, -1):
            self._most[number] = live
            file, line = where()
            self._journal.json("xla call", number=number, live=live, file=file, line=line)
        if is_step:
            self._journal.json("step", n=0)

    def _tell_live(self) -> None:
        live = self._live()
        if live > self._highest + TELLING_BYTES:
            self._highest = live
            file, line = where()
            self._journal.json("xla live", live=live, file=file, line=line)

    def _hollow(self, aval: Any) -> Any:
        """Return an array of zeros; a large one is over memory that is not written."""
        import numpy as np

        jax = self._jax
        if jax.dtypes.issubdtype(aval.dtype, jax.dtypes.prng_key):
            data = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(aval.shape, aval.dtype))
            return jax.random.wrap_key_data(jax.device_put(np.zeros(data.shape, data.dtype)))
        nbytes = _nbytes(aval)
        if nbytes >= HOLLOW_BYTES:
            try:
                memory = np.frombuffer(mmap.mmap(-1, nbytes), dtype=aval.dtype).reshape(aval.shape)
                return jax.dlpack.from_dlpack(memory)
            except (BufferError, TypeError, ValueError, RuntimeError):  # a type that NumPy or dlpack has not got
                pass
        return jax.device_put(np.zeros(aval.shape, aval.dtype))


@contextlib.contextmanager
def _without_lines(mlir: Any) -> Iterator[None]:
    """Leave source lines out of what is lowered: XLA need not be asked again after an edit that only moves them."""
    before = getattr(mlir, "_traceback_to_location", None)
    if before is not None:
        mlir._traceback_to_location = lambda *_: mlir.ir.Location.unknown()
    try:
        yield
    finally:
        if before is not None:
            mlir._traceback_to_location = before


def _portable(module: Any, mlir: Any) -> bytes:
    """Return the module as other versions of jaxlib can read it, where that can be done."""
    try:
        from jax._src.export import _export

        return bytes(_export._module_to_bytecode(module))
    except Exception:  # older ones have it elsewhere, and take two arguments
        pass
    plain = mlir.module_to_bytecode(module)
    try:
        from jax._src.lib import xla_client
        from jax._src.lib.mlir.dialects import hlo

        return bytes(xla_client._xla.mlir.serialize_portable_artifact(plain, hlo.get_minimum_version()))
    except Exception:
        return bytes(plain)


def is_large(jaxpr: Any) -> bool:
    """Return whether a function computes or holds too much to be run here."""
    arrays = [*jaxpr.in_avals, *jaxpr.out_avals]
    return sum(map(_nbytes, arrays)) > MOST_BYTES or operations(jaxpr.jaxpr) > MOST_OPERATIONS


def operations(jaxpr: Any) -> float:
    """Return about how many elements a function computes, loops and all."""
    total = 0.0
    for equation in jaxpr.eqns:
        results = sum(getattr(each.aval, "size", 1) for each in equation.outvars)
        inner = [operations(each) for each in _inner(equation.params)]
        name = equation.primitive.name
        if name == "dot_general":
            (left, _), _ = equation.params["dimension_numbers"]
            for axis in left:
                results *= equation.invars[0].aval.shape[axis]
        times = equation.params.get("length", 1) if name == "scan" else LOOPS if name == "while" else 1
        total += results + times * (max(inner) if name == "cond" and inner else sum(inner))
        if total > 1e18:
            break
    return total


def _is_of_jax(jaxpr: Any) -> bool:
    """Return whether a function is a single operation, or one of `jax.numpy`: what is not compiled is made of these."""
    file = getattr(getattr(jaxpr.jaxpr, "debug_info", None), "func_filename", None) or ""
    return os.path.join(os.sep, "jax", "_src", "") in file


def _foreign_calls(jaxpr: Any) -> Iterator[str]:
    """Yield what a function calls that is no part of jax, such as kernels of Warp: XLA does not plan their memory."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "ffi_call":
            yield str(equation.params.get("target_name", "?"))
        for each in _inner(equation.params):
            yield from _foreign_calls(each)


def _inner(params: Any) -> List[Any]:
    """Return the functions inside of an equation."""
    found = []
    for value in params.values():
        for each in value if isinstance(value, (tuple, list)) else (value,):
            each = getattr(each, "jaxpr", each)
            if hasattr(each, "eqns"):
                found.append(each)
    return found


def _address(array: Any) -> Any:
    try:
        return array.unsafe_buffer_pointer()
    except Exception:  # over several devices, or deleted meanwhile
        return "array", id(array)


def _nbytes(aval: Any) -> int:
    size, dtype = getattr(aval, "size", 0), getattr(aval, "dtype", None)
    return int(size) * int(getattr(dtype, "itemsize", 4))
