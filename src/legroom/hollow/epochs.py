"""Leaves out the batches of an epoch that only repeat, so that what comes after it (validation, checkpoints) is seen.

The parent asks for it by a file in the rehearsal's folder, once a training's steps repeat. The loop over a DataLoader
that they are in is then handed its last batch next, which may be smaller than the others. From then on, a loop without
optimizer steps, such as a validation, goes to its last batch once the card's memory was the same at several batches in
a row: one that gathers its results on the card is run in full.

Only `for` loops are shortened, and functions that call `next` and know StopIteration: others count their batches, and
may not expect the end.
"""

from __future__ import annotations

import dis
import itertools
import os
import sys
from typing import Any

SAME_BATCHES = 8


def asking_file(folder: str, pid: int) -> str:
    """Return the file by which a process is asked to leave out what repeats."""
    return os.path.join(folder, f"leave-out-{pid}")


def install(follower: Any, folder: str) -> None:
    """Look at every batch that a DataLoader hands out."""
    from torch.utils.data import dataloader

    asked = _Asked(asking_file(folder, os.getpid()))
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
            return plain(self)
        except StopIteration:
            del self._legroom_epoch  # with workers that stay, the iterator is used again
            epoch.end()
            raise

    kind.__next__ = handed_out


class _Asked:
    """Whether the parent has asked: once for the training, and from then on for all loops without steps."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.once = False

    def take(self) -> bool:
        if not os.path.exists(self._path):
            return False
        os.unlink(self._path)
        self.once = True
        return True


class _Epoch:
    """One loop over a DataLoader."""

    def __init__(self, iterator: Any, follower: Any, asked: _Asked, frame: Any) -> None:
        self._iterator, self._follower, self._asked = iterator, follower, asked
        self._first_step = follower.optimizer_steps
        self._can_end = _expects_the_end(frame) and _most_batches(iterator) > 0
        self._place = frame.f_code.co_filename, frame.f_lineno
        self._told = False
        self._figures: Any = None
        self._same = 0

    def look(self) -> None:
        """Leave out the batches up to the last one, if it is time to."""
        if not self._can_end:
            return
        if self._follower.optimizer_steps > self._first_step:
            if not self._told:
                self._told = True
                self._follower.journal.json("epoch")
            if self._asked.take():
                self._leave_out()
        elif self._asked.once:
            self._follower.give_back()
            figures = [card.figures for card in self._follower.cards]
            self._same, self._figures = (self._same + 1 if figures == self._figures else 0), figures
            if self._same >= SAME_BATCHES:
                self._leave_out()

    def end(self) -> None:
        if self._told:
            self._follower.journal.json("epoch ended")

    def _leave_out(self) -> None:
        iterator, self._can_end, most = self._iterator, False, _most_batches(self._iterator)
        rest = list(itertools.islice(iterator._sampler_iter, most + 1))
        if len(rest) > most:  # a sampler without end
            iterator._sampler_iter = itertools.chain(rest, iterator._sampler_iter)
            return
        iterator._sampler_iter = iter(rest[-1:])
        if len(rest) > 1:
            file, line = self._place
            where = f"{os.path.basename(file)}:{line}"
            self._follower.journal.json("note", text=f"{len(rest) - 1:,} batches at {where} were skipped: they repeat")


def _expects_the_end(frame: Any) -> bool:
    """Return whether the code that asks for a batch is a loop over them, or looks for their end."""
    code = frame.f_code
    return dis.opname[code.co_code[frame.f_lasti]] == "FOR_ITER" or "StopIteration" in code.co_names


def _most_batches(iterator: Any) -> int:
    """Return how many batches a loop may have; 0 where that is not known, as with a stream."""
    for sized in ("_index_sampler", "_dataset"):  # a sampler of the user's own may not say
        try:
            return len(getattr(iterator, sized))
        except (TypeError, NotImplementedError, AttributeError):
            continue
    return 0
