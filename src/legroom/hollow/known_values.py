"""Values of card tensors: small ones are computed on the CPU beside the hollow run, as long as all they come from is.

A shadow belongs to a storage, so views and aliases agree. Writing into a storage from something without values drops
its shadow. The kernels that compute shadows are run below the follower and never count as the card's. Random numbers
come from a generator of the card's own: the CPU's is never advanced.
"""

from __future__ import annotations

from typing import Any

import torch

from .fake_tensors import is_meta

_aten = torch.ops.aten

NONE: Any = object()  # there is no value
_WHOLE = {
    "zero_", "fill_", "copy_", "normal_", "uniform_", "random_", "exponential_", "bernoulli_", "log_normal_",
    "cauchy_", "geometric_", "_foreach_zero_", "_foreach_copy_",
}  # fmt: skip


class Facts:
    """What an operator's schema says: which arguments it writes to, whether it draws random numbers."""

    __slots__ = (
        "ask", "composite", "doubt", "generator", "host_less", "matmul", "may_keep", "name", "numbers_matter",
        "overwrites", "program", "random", "special", "view", "written", "written_names",
    )  # fmt: skip

    def __init__(self, func: Any) -> None:
        arguments = func._schema.arguments
        writes = [a.alias_info is not None and a.alias_info.is_write for a in arguments]
        self.name = func.overloadpacket.__name__
        self.written = [i for i, w in enumerate(writes) if w and not arguments[i].kwarg_only]
        self.written_names = [arguments[i].name for i, w in enumerate(writes) if w]
        returns = func._schema.returns
        self.view = not any(writes) and any(r.alias_info is not None for r in returns)
        self.random = torch.Tag.nondeterministic_seeded in func.tags
        self.generator = any(a.name == "generator" for a in arguments)
        self.overwrites = self.name in _WHOLE
        self.host_less = False  # the CPU has no kernel for it
        # what the follower knows about it
        self.special: Any = None
        self.program: Any = None
        self.ask: Any = func
        self.doubt: Any = None
        self.composite = self.matmul = self.may_keep = self.numbers_matter = False


class Shadows:
    """Computes and keeps shadows; `records` maps a storage's address to what is known about it.

    Args:
        small: the largest storage that has one, in bytes; -1: none has.
    """

    def __init__(self, records: dict[int, Any], small: int) -> None:
        self.records, self.small = records, small
        self.generator: Any = None  # the card's own

    # -- one tensor ------------------------------------------------------------------------------------------------

    def twin(self, tensor: torch.Tensor) -> Any:
        """Return a CPU tensor with this card tensor's values, NONE where there are none."""
        record = self.records.get(tensor.untyped_storage()._cdata)
        if record is None or record.shadow is None:
            return NONE if tensor.numel() else torch.empty(tensor.shape, dtype=tensor.dtype)
        found = torch.empty(0, dtype=tensor.dtype)
        return found.set_(record.shadow, tensor.storage_offset(), tensor.shape, tensor.stride())

    def give(self, tensor: torch.Tensor, values: torch.Tensor) -> None:
        """Let a fresh card tensor have these values."""
        storage = tensor.untyped_storage()
        record = self.records.get(storage._cdata)
        if record is None or storage.nbytes() > self.small:
            return
        own = values.untyped_storage()
        if (
            values.stride() == tensor.stride()
            and values.storage_offset() == tensor.storage_offset() == 0
            and (own.nbytes() >= storage.nbytes())
        ):
            record.shadow = own
            return
        record.shadow = torch.UntypedStorage(storage.nbytes())
        self.twin(tensor).copy_(values)

    def drop(self, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            if is_meta(value):
                record = self.records.get(value.untyped_storage()._cdata)
                if record is not None:
                    record.shadow = None
        elif isinstance(value, (list, tuple)):
            for each in value:
                self.drop(each)

    # -- one operator ------------------------------------------------------------------------------------------------

    def follow(self, func: Any, facts: Facts, args: Any, kwargs: Any, out: Any) -> None:
        """Compute what an operator did to values; called after it ran on shapes."""
        if self.small < 0:
            return
        written = [args[i] for i in facts.written if i < len(args)]
        written += [kwargs[name] for name in facts.written_names if name in kwargs]
        if facts.view:
            return
        if facts.host_less or not self._worth(written, out):
            self.drop(written)
            return
        if facts.overwrites and written:
            self._prepare(written[0])
        given = self._twins(args)
        named = NONE if given is NONE else self._twins_named(kwargs)
        if named is NONE:
            self.drop(written)
            return
        try:
            found = self._compute(func, facts, given, named)
        except (RuntimeError, NotImplementedError, IndexError, TypeError):
            facts.host_less = facts.host_less or not written
            self.drop(written)
            return
        if not written:
            self._bind(out, found)

    def _worth(self, written: Any, out: Any) -> bool:
        return self._small(written) if written else self._small(out)

    def _small(self, value: Any) -> bool:
        if isinstance(value, torch.Tensor):
            return not is_meta(value) or value.untyped_storage().nbytes() <= self.small
        if isinstance(value, (list, tuple)):
            return all(self._small(each) for each in value)
        return True

    def _prepare(self, value: Any) -> None:
        """Give storages that are about to be overwritten as a whole a shadow to write to."""
        if isinstance(value, (list, tuple)):
            for each in value:
                self._prepare(each)
        elif is_meta(value):
            storage = value.untyped_storage()
            record = self.records.get(storage._cdata)
            if (
                record is not None
                and record.shadow is None
                and value.numel() * value.element_size() == storage.nbytes()
            ):
                record.shadow = torch.UntypedStorage(storage.nbytes())

    def _compute(self, func: Any, facts: Facts, args: Any, kwargs: Any) -> Any:
        if not facts.random:
            return func(*args, **kwargs)
        generator = kwargs.get("generator")
        if facts.generator:
            return func(*args, **{**kwargs, "generator": self.generator if generator is None else generator})
        return self.with_own_random(lambda: func(*args, **kwargs))

    def with_own_random(self, compute: Any) -> Any:
        """Run something that draws from torch's default generator, which is then as it was before."""
        before = torch.get_rng_state()
        torch.set_rng_state(self.generator.get_state())
        try:
            return compute()
        finally:
            self.generator.set_state(torch.get_rng_state())
            torch.set_rng_state(before)

    def _bind(self, out: Any, found: Any) -> None:
        if isinstance(out, torch.Tensor):
            if (
                is_meta(out)
                and isinstance(found, torch.Tensor)
                and out.shape == found.shape
                and out.dtype == found.dtype
            ):
                self.give(out, found)
        elif isinstance(out, (list, tuple)):
            for one, values in zip(out, found):
                self._bind(one, values)

    def _twins(self, values: Any) -> Any:
        found = []
        for value in values:
            if isinstance(value, torch.Tensor):
                each = self.twin(value) if is_meta(value) else value
            elif isinstance(value, (list, tuple)):
                each = self._twins(value)
            elif isinstance(value, torch.device):
                each = _CPU
            else:
                each = value
            if each is NONE:
                return NONE
            found.append(each)
        return found

    def _twins_named(self, kwargs: Any) -> Any:
        found = {}
        for name, value in kwargs.items():
            if name == "device":
                each: Any = _CPU
            else:
                each = self._twins([value])
                if each is NONE:
                    return NONE
                each = each[0]
            found[name] = each
        return found


_CPU = torch.device("cpu")
