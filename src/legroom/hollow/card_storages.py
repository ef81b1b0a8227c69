"""The storages of cards that are not there: each is requested from its card's simulated allocator, and given back.

A storage's death is put on a list and given back before the next request: the allocator's state matters only then, and
the list can be appended to from any thread at any moment.
"""

from __future__ import annotations

import collections
import os
import threading
import weakref
from typing import Any

import torch

from .card import Card, CardPlan, OutOfMemory
from .fake_tensors import storage_key
from .journal import BACKWARD
from .source_lines import Sites, chain, where

graph_task = torch._C._current_graph_task_id

OTHER, STEP = 0, 2
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

    @property
    def waits(self) -> bool:
        """Whether it is still on the host, and will be requested when it is moved or used."""
        return self.number < 0 < self.nbytes


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


class Here(threading.local):
    autocast = False  # PyTorch's own word for it cannot be asked from inside the dispatcher
    cast = False  # the arguments of the next operator are cast already
    inside = 0  # our own code is running: tensors show their real device
    device = 0  # the current card
    card: Any = None  # of the operator that is running
    origin = ""  # its name
    stepping = 0  # optimizer steps that are running


class CardStorages:
    """The cards of this process, and which storages are on them.

    Args:
        journal: is told of every request and release.
        cards: where they are not those of the plan.
        scratch: whether operators take any; a CPU's are not modelled.
    """

    def __init__(
        self, plan: dict[str, Any], journal: Any, *, cards: list[Card] | None = None, scratch: bool = True
    ) -> None:
        read = CardPlan.read(plan)
        self.journal, self.scratch = journal, scratch
        self.cards = cards or [Card(index, read) for index in range(_visible(int(plan.get("cards", 1))))]
        self.recording = True  # otherwise storages are still on the host, and wait for being moved or used
        self.sites = Sites(journal.site)
        self.records: dict[int, Record] = {}
        self.here = Here()
        self._next = 0
        self.died = 0  # bytes of storages that have died
        self.capturing: Any = None  # the private pool of the graph that is captured
        self._dead: collections.deque[int] = collections.deque()
        self._blocks: dict[int, tuple[Card, Any, int]] = {}
        self._lock = threading.RLock()

    def tell(self, kind: str, **content: Any) -> None:
        """Tell the journal of something that happens at a line of the program."""
        file, line = where()
        self.journal.json(kind, file=file, line=line, **content)

    def refused(self, what: str) -> RuntimeError:
        """Tell of something that is not simulated, and return the error to raise."""
        self.tell("unmodelled", what=what)
        file, line = where()
        return RuntimeError(f"{what} is not simulated in a rehearsal ({file}:{line})")

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
        if number < 0:
            return
        with self._lock:
            card, block, nbytes = self._blocks.pop(number)
            card.give(block, nbytes)
            self.journal.free(number, card.figures, card.index)

    def alloc(self, nbytes: int, label: str = "", card: Card | None = None, flags: int = _SCRATCH) -> int:
        """Request bytes from a card and return the number of the block; -1 where nothing is requested.

        Raises:
            OutOfMemory: they do not fit.
        """
        if not self.recording or (flags == _SCRATCH and not self.scratch):
            return -1
        card = card or self.here.card
        with self._lock:
            self.give_back()
            if not card.used:
                card.used = True
                self.journal.json("context", device=card.index)
            try:
                block = card.take(nbytes, (self.capturing, self._stream(card)))
            except OutOfMemory as error:
                self.tell(
                    "oom", text=str(error), requested=nbytes, free=card.free_bytes, chain=chain(),
                    thread=threading.get_ident(),
                )  # fmt: skip
                raise
            number = self._next
            self._next += 1
            self._blocks[number] = (card, block, nbytes)
            phase = BACKWARD if graph_task() != -1 else STEP if self.here.stepping else OTHER
            self.journal.alloc(
                number, nbytes, block.size, card.figures, site=self.sites.here(), device=card.index, phase=phase,
                flags=flags, label=label,
            )  # fmt: skip
        return number

    def _stream(self, card: Card) -> int:
        streams = self.here.__dict__.get("streams")
        if not streams:
            return 0
        found = streams.get(card.index)
        return 0 if found is None else int(found.stream_id)

    def adopt(self, tensor: torch.Tensor, label: str = "") -> None:
        """Count a tensor's storage as on the card from now on, unless it already is."""
        storage = tensor.untyped_storage()
        record = self.records.get(storage._cdata)
        if record is None or record.waits:
            self.born(storage, label)

    def relabel(self, tensor: torch.Tensor, label: str) -> None:
        """Say what a storage on a card turned out to be."""
        record = self.record_of(tensor)
        if record is not None and record.number >= 0:
            self.journal.labels[record.number] = label

    def born(self, storage: torch.UntypedStorage, label: str, nbytes: int = 0) -> None:
        nbytes = nbytes or storage.nbytes()
        record, before = Record(self.here.card, nbytes, self.here.origin), self.records.get(storage._cdata)
        if before is not None:
            record.shadow = before.shadow
        if nbytes:
            record.number = self.alloc(nbytes, label, flags=0)
        self.enroll(storage, record)

    def resize(self, storage: torch.UntypedStorage, nbytes: int) -> None:
        """Request the bytes of a storage anew, as PyTorch does (ATen/native/cuda/Resize.cpp, resize_bytes_cuda).

        The new block is requested before the old one is freed, also where it is smaller.

        Raises:
            OutOfMemory: the new block does not fit beside the old one.
        """
        before = self.records.get(storage._cdata)
        if before is None:
            return
        record = Record(before.card, nbytes, before.origin)
        if nbytes:
            record.number = self.alloc(nbytes, card=before.card, flags=0)
        self.enroll(storage, record)
        if before.number >= 0:
            self._dead.append(before.number)

    def enroll(self, storage: torch.UntypedStorage, record: Record) -> None:
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

    def is_on_card(self, tensor: torch.Tensor) -> bool:
        record = self.record_of(tensor)
        return record is not None and not record.waits

    def has_values(self, tensor: torch.Tensor) -> bool:
        record = self.record_of(tensor)
        return record is not None and (record.shadow is not None or not tensor.numel())

    def address(self, tensor: torch.Tensor) -> int:
        """Return what `data_ptr` of a card tensor would be."""
        record = self.record_of(tensor)
        if record is None or record.number < 0:
            return 0
        return self.storage_address(record) + int(tensor.storage_offset()) * tensor.element_size()

    def storage_address(self, record: Record) -> int:
        """Return where on its card a storage would begin; 0 for one without bytes."""
        return 0 if record.number < 0 else int(self._blocks[record.number][1].address)
