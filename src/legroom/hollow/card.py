"""One card that is not there: its allocator, its figures, its limit, and PyTorch's own words when it is full."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch

from .cuda_allocator import Block, CachingAllocator, Settings, round_size, segment_size
from .cuda_reduce import GpuShape as Shape
from .cuda_reduce import card_with

GIB = 1 << 30


def nothing(*_: Any, **__: Any) -> None:
    """Do what there is to do on a card that is not there."""


OutOfMemory: Any = getattr(torch, "OutOfMemoryError", None) or torch.cuda.OutOfMemoryError
_NEWER = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 9)
_LINK = (
    "https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf"
    if _NEWER
    else "https://pytorch.org/docs/stable/notes/cuda.html#environment-variables"
)


@dataclass(frozen=True)
class CardPlan:
    """What the parent says about the card."""

    name: str = "NVIDIA GeForce RTX 4090"
    nbytes: int = 25_250_627_584
    multiprocessors: int = 128
    capability: tuple[int, int] = (8, 9)
    limit: int | None = None  # what the allocator may take; None where it may take anything

    @classmethod
    def read(cls, plan: dict[str, Any]) -> CardPlan:
        card = plan.get("card") or {}
        capability = card.get("capability")
        if isinstance(capability, str):
            major, _, minor = capability.partition(".")
            capability = int(major), int(minor or 0)
        given: dict[str, Any] = {
            "name": card.get("name"), "nbytes": card.get("bytes"), "multiprocessors": card.get("sm_count"),
            "capability": capability and tuple(capability), "limit": plan.get("limit"),
        }  # fmt: skip
        return cls(**{name: value for name, value in given.items() if value is not None})

    @property
    def shape(self) -> Shape:
        return card_with(self.multiprocessors, self.capability)


class Stat:
    """One of the allocator's figures: now, its highest, and how much came and went."""

    __slots__ = ("current", "peak", "total")

    def __init__(self) -> None:
        self.current = self.peak = self.total = 0

    def change(self, nbytes: int) -> None:
        self.current += nbytes
        if nbytes > 0:
            self.total += nbytes
            self.peak = max(self.peak, self.current)

    def figures(self) -> dict[str, int]:
        return {"current": self.current, "peak": self.peak, "allocated": self.total, "freed": self.total - self.current}


_STATS = (
    "allocation", "segment", "inactive_split", "allocated_bytes", "reserved_bytes", "inactive_split_bytes",
    "requested_bytes",
)  # fmt: skip


class Card:
    """The allocator of one process on one card, with the figures `torch.cuda` shows."""

    def __init__(self, index: int, plan: CardPlan, shape: Shape | None = None) -> None:
        self.index, self.plan, self.shape = index, plan, shape or plan.shape
        self.device = torch.device("cuda", index)
        text = os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or ""
        said = dict(part.split(":", 1) for part in text.replace(" ", "").split(",") if ":" in part)
        split = said.get("max_split_size_mb", "")
        expandable = said.get("expandable_segments", "").lower() == "true"
        self.allocator = CachingAllocator(Settings(expandable, int(split) if split.isdigit() else None))
        self.fraction = 1.0
        self.stats = {(name, pool): Stat() for name in _STATS for pool in ("all", "large_pool", "small_pool")}
        self.ooms = self.retries = 0
        self.used = False
        self.generator: Any = None
        self._limit, self._beside = 0, 0
        self.limit_to(plan.limit)

    def limit_to(self, nbytes: int | None) -> None:
        """Let the allocator take at most so much."""
        self._limit = (1 << 62) if nbytes is None else nbytes
        self.leave(self._beside)

    def leave(self, nbytes: int) -> None:
        """Let the cache shrink before so much of the limit, which libraries may take, is used."""
        self._beside = nbytes
        self.allocator.spare = min(nbytes, self._limit)
        self.allocator.capacity = self._limit - self.allocator.spare

    def take(self, nbytes: int, place: tuple[Any, int] = (None, 0)) -> Block:
        """Serve a request.

        Raises:
            OutOfMemory: it does not fit, after everything cached was given back.
        """
        before, released = self.allocator.reserved, self.allocator.released
        block = self.allocator.alloc(nbytes, place)
        if self.allocator.released != released:
            self.retries += 1
        if block is None:
            self.ooms += 1
            raise OutOfMemory(self.refusal(nbytes))
        self._count(block, nbytes, 1)
        if self.allocator.reserved != before:
            for pool in ("all", "small_pool" if block.small else "large_pool"):
                self.stats["segment", pool].change(1)
                self.stats["reserved_bytes", pool].change(self.allocator.reserved - before)
        return block

    def give(self, block: Block, nbytes: int) -> None:
        self._count(block, nbytes, -1)
        self.allocator.free(block)

    def empty_cache(self) -> None:
        before = self.allocator.reserved
        self.allocator.empty_cache()
        self.stats["reserved_bytes", "all"].change(self.allocator.reserved - before)

    @property
    def figures(self) -> tuple[int, int]:
        return self.allocator.allocated, self.allocator.reserved

    @property
    def free_bytes(self) -> int:
        """What the driver would say is free on the card."""
        limit = self.plan.nbytes if self.plan.limit is None else self.plan.limit
        return max(limit - self.allocator.reserved, 0)

    def _count(self, block: Block, nbytes: int, sign: int) -> None:
        size, pool = sign * block.size, "small_pool" if block.small else "large_pool"
        for kind in ("all", pool):
            stat = self.stats["allocated_bytes", kind]
            stat.current += size
            if sign > 0:
                stat.total += size
                if stat.current > stat.peak:
                    stat.peak = stat.current
        self.stats["allocation", "all"].change(sign)
        self.stats["requested_bytes", "all"].change(sign * nbytes)

    def memory_stats(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for (name, pool), stat in self.stats.items():
            found.setdefault(name, {})[pool] = stat.figures()
        found["active"], found["active_bytes"] = found["allocation"], found["allocated_bytes"]
        none = Stat().figures()
        found |= {"oversize_allocations": none, "oversize_segments": none}
        return {
            **found, "num_alloc_retries": self.retries, "num_ooms": self.ooms, "num_sync_all_streams": 0,
            "num_device_alloc": self.stats["segment", "all"].total, "num_device_free": 0, "max_split_size": -1,
        }  # fmt: skip

    def reset_peaks(self) -> None:
        for stat in self.stats.values():
            stat.peak = stat.current

    def refusal(self, nbytes: int) -> str:
        """Return what PyTorch says (CUDACachingAllocator.cpp, malloc) when a request does not fit."""
        allocated, reserved = self.figures
        tried = segment_size(round_size(nbytes))
        allowed = f"{_size(int(self.fraction * self.plan.nbytes))} allowed; " if self.fraction < 1 else ""
        in_use = self.plan.nbytes - self.free_bytes
        return (
            f"CUDA out of memory. Tried to allocate {_size(tried)}. GPU {self.index} has a total capacity of "
            f"{_size(self.plan.nbytes)} of which {_size(self.free_bytes)} is free. Including non-PyTorch memory, this "
            f"process has {_size(in_use)} memory in use. {allowed}Of the allocated memory {_size(allocated)} is "
            f"allocated by PyTorch, and {_size(reserved - allocated)} is reserved by PyTorch but unallocated. If "
            "reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to "
            f"avoid fragmentation.  See documentation for Memory Management  ({_LINK})"
        )


def _size(nbytes: int) -> str:
    """Return a size as PyTorch's `format_size` writes it."""
    if nbytes <= 1024:
        return f"{nbytes} bytes"
    for unit, name in ((1 << 20, "KiB"), (GIB, "MiB")):
        if nbytes <= unit:
            return f"{nbytes / (unit >> 10):.2f} {name}"
    return f"{nbytes / GIB:.2f} GiB"
