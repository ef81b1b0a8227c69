"""Leaves out batches of an epoch that were looked at, so that what comes after it (validation, checkpoints) is seen.

The parent asks for it by a file in the rehearsal's folder, once a training's steps repeat. The batches that the loop
over a DataLoader has left are then collated on the host, by the loader's own dataset, workers and `collate_fn`, and
dropped again: only their shapes matter (`batch_shapes.py`). The loop is handed the largest of each kind next, and the
last batch, which may be smaller than the others. Where there is no time for all of them, those with the most items are
looked at first, and others at random; the parent is told how many.

From then on, a loop without optimizer steps, such as a validation, goes the same way once the card's memory was the
same at several batches in a row: one that gathers its results on the card is run in full.

Only `for` loops are shortened, and functions that call `next` and know StopIteration. Others count their batches and
may not expect the end: they are handed the largest ones first, and then all the others. A stream (IterableDataset) is
left alone: what has not come yet cannot be looked at.
"""

from __future__ import annotations

import dis
import itertools
import os
import random
import sys
import time
from collections import deque
from typing import Any, Iterator

from .batch_shapes import BatchKinds

SAME_BATCHES = 8
PAGES_EVERY_S, PAGES_COST = 1.0, 20  # between two looks at the workers' pages, and times as long as one takes
SEEN_BY_PARENT_S = 0.3  # how long workers are kept once all was fetched, so that the parent sees what they take


def asking_file(folder: str, pid: int) -> str:
    """Return the file by which a process is asked to leave out what repeats."""
    return os.path.join(folder, f"leave-out-{pid}")


def install(follower: Any, folder: str, seconds: float) -> None:
    """Look at every batch that a DataLoader hands out; `seconds`: that looking ahead may take in total."""
    from torch.utils.data import dataloader

    asked = _Asked(asking_file(folder, os.getpid()), seconds)
    kind: Any = dataloader._BaseDataLoaderIter
    plain = kind.__next__

    def handed_out(self: Any) -> Any:
        if not follower.following:
            return plain(self)
        epoch = self.__dict__.get("_legroom_epoch")
        if epoch is None:
            epoch = self._legroom_epoch = _Epoch(self, follower, asked, sys._getframe(1))
        epoch.look()
        try:
            return epoch.handed(plain(self))
        except StopIteration:
            del self._legroom_epoch  # with workers that stay, the iterator is used again
            epoch.end()
            raise

    kind.__next__ = handed_out
    several: Any = dataloader._MultiProcessingDataLoaderIter
    plain_index = several._next_index

    def next_index(self: Any) -> Any:
        index = plain_index(self)
        self.__dict__.setdefault("_legroom_sent", deque(maxlen=1024)).append((self._send_idx, index))
        return index

    several._next_index = next_index


class _Asked:
    """How often the parent has asked: for loops that train then, and since the first time for those without steps."""

    def __init__(self, path: str, seconds: float) -> None:
        self._path = path
        self.times = 0
        self.loops: set[str] = set()  # of which batches were left out; their next epochs are run in full
        self.seconds = seconds  # left for looking ahead

    def look(self) -> int:
        if os.path.exists(self._path):
            os.unlink(self._path)
            self.times += 1
        return self.times


class _Epoch:
    """One loop over a DataLoader."""

    def __init__(self, iterator: Any, follower: Any, asked: _Asked, frame: Any) -> None:
        self._iterator, self._follower, self._asked = iterator, follower, asked
        self._first_step = follower.optimizer_steps
        self._ends = _expects_the_end(frame)
        self._most = _most_batches(iterator)
        self._place = frame.f_code.co_filename, frame.f_lineno
        self._open = True  # nothing was left out yet
        self._loop = f"{self._place}, {self._most} batches of {type(iterator._dataset).__qualname__}"
        self._runs_in_full = self._loop in asked.loops
        self._asked_before = asked.times
        self._told = False
        self._handed = 0
        self._kinds = BatchKinds()
        self._pages_at = 0.0  # when to look at the workers' pages next
        self._figures: Any = None
        self._same = 0

    def look(self) -> None:
        """Leave out the batches that were looked at, if it is time to."""
        if hasattr(self._iterator, "_workers") and time.monotonic() >= self._pages_at:
            self._tell_pages(self._handed)
        if not self._open:
            return
        if self._follower.optimizer_steps > self._first_step:
            if not self._told:
                self._told = True
                self._follower.journal.json("epoch", loop=self._loop)
            if not self._runs_in_full and self._asked.look() > self._asked_before:
                self._asked.loops.add(self._loop)
                self._leave_out()
        elif self._asked.times and self._most:
            self._follower.give_back()
            figures = [card.figures for card in self._follower.cards]
            self._same, self._figures = (self._same + 1 if figures == self._figures else 0), figures
            if self._same >= SAME_BATCHES:
                self._leave_out()

    def handed(self, batch: Any) -> Any:
        self._handed += 1
        if self._told or self._first_step == 0:
            self._follower.batches = self._handed
        if not self._most and self._open:  # of a stream, what came is all that is known
            self._kinds.add(batch, self._handed)
        return batch

    def end(self) -> None:
        if self._told:
            self._follower.journal.json("epoch ended", loop=self._loop)

    def _leave_out(self) -> None:
        iterator, self._open = self._iterator, False
        if self._asked.seconds <= 0:  # nothing is left out that cannot be looked at
            if self._told:
                self._tell(self._handed, self._most or None, 0, ends=False)
            return
        rest = list(itertools.islice(iterator._sampler_iter, self._most + 1)) if self._most else []
        if not rest or len(rest) > self._most:  # a stream, or a sampler without end
            iterator._sampler_iter = itertools.chain(rest, iterator._sampler_iter)
            self._tell(self._handed, None, 0, ends=False)
            return
        kinds, began = BatchKinds(), time.monotonic()
        seen, waiting = self._look_ahead(rest, kinds)
        self._asked.seconds -= time.monotonic() - began
        self._kinds, largest = kinds, kinds.largest()
        largest = [index for index in largest if index is not rest[-1]]
        handed = [*largest, rest[-1]] if self._ends else [*largest, *waiting, *rest]
        iterator._sampler_iter, self._follower.left_out = iter(handed), True
        _send_ahead(iterator)
        total = self._handed + len(waiting) + len(rest)
        self._tell(self._handed + seen, total, len(largest), ends=self._ends)
        left_out = len(rest) + len(waiting) - len(handed)
        if self._ends and left_out > 0:
            where = f"{os.path.basename(self._place[0])}:{self._place[1]}"
            text = f"{left_out:,} batches at {where} were skipped: they repeat, or are smaller than others"
            self._follower.journal.json("note", text=text)

    def _tell(self, seen: int, total: int | None, largest: int, *, ends: bool) -> None:
        """Tell the parent how many batches were looked at, and what they were like."""
        self._follower.journal.json(
            "batches", file=self._place[0], line=self._place[1], seen=seen, total=total, alike=self._kinds.alike,
            largest=largest, ends=ends, stacked=_is_stacked(self._iterator) and self._kinds.least_items > 1,
        )  # fmt: skip

    def _tell_pages(self, done: int) -> None:
        """Tell how much of their memory workers have for themselves: what they write to, if only a reference count.

        Args:
            done: batches that they have fetched in this epoch.
        """
        began = time.monotonic()
        pages = [each for each in (_own_and_anonymous(worker.pid) for worker in self._iterator._workers) if each]
        self._follower.journal.json(
            "workers", done=done, total=self._most, again=bool(self._iterator._persistent_workers), pages=pages
        )
        now = time.monotonic()
        self._pages_at = now + max(PAGES_EVERY_S, PAGES_COST * (now - began))

    def _look_ahead(self, rest: list[Any], kinds: BatchKinds) -> tuple[int, list[Any]]:
        """Fetch the batches that are left and drop them; return how many of them are known, and what had been sent.

        Workers have been sent some batches before. They come first, and count as left.
        """
        from torch.utils.data import Subset, TensorDataset

        iterator, until, again = self._iterator, time.monotonic() + self._asked.seconds, _random_states()
        sent = list(iterator.__dict__.get("_legroom_sent", ()))
        waiting = [index for task, index in sent if task in iterator._task_info]
        dataset = iterator._dataset
        while type(dataset) is Subset:
            dataset = dataset.dataset
        # rows of tensors, stacked: batches of as many items are alike by construction
        alike = type(dataset) is TensorDataset and iterator._auto_collation and _is_stacked(iterator)
        under_way = deque(waiting)
        by_size = {len(index): index for index in reversed(rest)} if alike else {}
        order = list(by_size.values()) if alike else random.Random(len(rest)).sample(rest, len(rest))
        if not alike:
            order.sort(key=lambda index: -len(index) if isinstance(index, (list, tuple)) else 0)

        def feed() -> Iterator[Any]:
            for index in order:
                if time.monotonic() > until and not alike:
                    return
                under_way.append(index)
                yield index

        iterator._sampler_iter, in_order = feed(), getattr(iterator, "_in_order", None)
        if in_order is False:
            iterator._in_order = True
        _send_ahead(iterator)
        seen = 0
        while not hasattr(iterator, "_task_info") or iterator._task_info:
            try:
                batch = iterator._next_data()
            except StopIteration:
                break
            except Exception:  # the program's own: it is handed that batch, and fails or goes on by itself
                batch = None
            kinds.add(batch, under_way.popleft())
            seen += 1
            del batch
        if in_order is False:
            iterator._in_order = in_order
        for put_back, state in again:
            put_back(state)
        if hasattr(iterator, "_workers"):
            self._tell_pages(self._most if seen == len(waiting) + len(rest) else self._handed + seen)
            time.sleep(SEEN_BY_PARENT_S)
        return len(waiting) + len(rest) if alike else seen, waiting


def _own_and_anonymous(pid: int) -> list[int]:
    """Return the bytes that a process has written to itself, and all it has without files; none where it is gone."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            fields = dict(line.split(":", 1) for line in file if ":" in line)
        return [int(fields[name].split()[0]) * 1024 for name in ("Private_Dirty", "Anonymous")]
    except (OSError, KeyError, ValueError, IndexError):
        return []


def _random_states() -> list[tuple[Any, Any]]:
    """Return what puts back which random numbers come next, after items were fetched that may draw some."""
    import torch

    numpy = sys.modules.get("numpy")
    found: list[tuple[Any, Any]] = [(random.setstate, random.getstate()), (torch.set_rng_state, torch.get_rng_state())]
    return found + ([(numpy.random.set_state, numpy.random.get_state())] if numpy is not None else [])


def _send_ahead(iterator: Any) -> None:
    """Send workers as many batches as they may have, as the loader does when an epoch begins."""
    if not hasattr(iterator, "_try_put_index"):
        return
    while iterator._tasks_outstanding < iterator._prefetch_factor * iterator._num_workers:
        before = iterator._send_idx
        iterator._try_put_index()
        if iterator._send_idx == before:
            return


def _is_stacked(iterator: Any) -> bool:
    """Return whether torch's own function makes batches of items: it refuses items of different shapes."""
    from torch.utils.data import default_collate

    return iterator._collate_fn is default_collate


def _expects_the_end(frame: Any) -> bool:
    """Return whether the code that asks for a batch is a loop over them, or looks for their end."""
    code = frame.f_code
    return dis.opname[code.co_code[frame.f_lasti]] == "FOR_ITER" or "StopIteration" in code.co_names


def _most_batches(iterator: Any) -> int:
    """Return how many batches a loop may have; 0 where that is not known, as with a stream."""
    if iterator._dataset_kind:  # an IterableDataset, whatever length it claims
        return 0
    for sized in ("_index_sampler", "_dataset"):  # a sampler of the user's own may not say
        try:
            return len(getattr(iterator, sized))
        except (TypeError, NotImplementedError, AttributeError):
            continue
    return 0
