"""Saved replay taken over by a buffer that stores it in another way: plain or lean, in another size, of fewer envs.

A retreat may turn lean storage on in the middle of a run, or make the buffer smaller. Rows are read from the checkpoint
a block at a time and written in the order of time: memory has just run out, so they are never there twice.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from legroom.backends.sb3.lean_replay import LeanReplayBuffer
from legroom.backends.sb3.segments import READ_AT_ONCE, Block

SMALL = ("actions", "rewards", "dones", "timeouts")


class Conversion:
    """Which saved rows a buffer keeps, and where they are in its ring.

    Args:
        theirs: the layout of the saved buffer.
        count: rows that were ever written to it.
    """

    def __init__(self, buffer: Any, theirs: Mapping[str, Any], count: int) -> None:
        self.buffer, self.theirs = buffer, theirs
        size = buffer.buffer_size
        kept = min(count, theirs["size"], size)
        self.numbers = range(count - kept, count)  # of the saved rows
        # a ring of another size begins at its first row; in one of the same size, rows stay where samples expect them
        self.first = self.numbers.start if size == theirs["size"] else 0
        self.pos, self.full = (self.first + kept) % size, kept == size

    def difference(self, ours: Mapping[str, Any]) -> str:
        """Return in what the saved transitions are not of this buffer's kind; "" where they can be taken over."""
        if self.theirs["environments"] < ours["environments"]:
            return f"environments {self.theirs['environments']}, this one has {ours['environments']}"
        forms = [
            {name: [dtype, shape[2:]] for name, (dtype, shape) in each["arrays"].items()}
            for each in (self.theirs, ours)
        ]
        for name in ("actions", *(name for name in forms[0] if "observations." in name)):
            if name in forms[1] and forms[0][name] != forms[1][name]:
                return f"{name} {forms[0][name]}, this one has {forms[1][name]}"
        return ""

    def lost(self, ours: Mapping[str, Any]) -> str:
        """Return why training does not go on as it would have, "" where it does."""
        for key, word in (("environments", "environments"), ("size", "rows")):
            if self.theirs[key] != ours[key]:
                return f"the replay buffer had {self.theirs[key]:,} {word}, and has {ours[key]:,}"
        names = self.theirs["arrays"]
        if self.theirs["storage"] == "plain" and "observations." in names and "next_observations." not in names:
            return "with optimize_memory_usage SB3 samples all rows but one, and lean storage all"
        return ""

    def fill(self, blocks: Iterator[Block]) -> None:
        """Write rows that come in the order of time, and set where the ring is."""
        buffer, n_envs, number = self.buffer, self.buffer.n_envs, self.first
        is_lean = isinstance(buffer, LeanReplayBuffer)
        after: Any = {}
        for ring in buffer.columns.values() if is_lean else ():
            ring.count = number
        for block in blocks:
            block = {name: array[:, :n_envs] for name, array in block.items()}
            rows = np.arange(number, number + len(block["rewards"])) % buffer.buffer_size
            number += len(rows)
            for name in SMALL:
                getattr(buffer, name)[rows] = block[name]
            if is_lean:
                buffer.make_room()
                for key, ring in buffer.columns.items():
                    pairs = zip(
                        rows.tolist(), block[f"observations.{key}"], block[f"next_observations.{key}"], strict=True
                    )
                    for row, before, following in pairs:
                        ring.add(row, before, following)
                continue
            for name in ("observations", "next_observations"):
                value = getattr(buffer, name, None)
                for key, part in (
                    value.items() if isinstance(value, dict) else [("", value)] if value is not None else ()
                ):
                    part[rows] = block[f"{name}.{key}"]
            after = block.get("next_observations.")
        buffer.pos, buffer.full = self.pos, self.full
        if buffer.optimize_memory_usage and not is_lean and after is not None and len(after):
            buffer.observations[buffer.pos] = after[-1]

    def priorities(self, kept: np.ndarray) -> np.ndarray:
        """Return the saved priorities, of every slot of the saved ring, in this ring's order."""
        per_row = kept.reshape(-1, self.theirs["environments"])[:, : self.buffer.n_envs]
        numbers = np.array(self.numbers, int)
        found = np.empty((len(numbers), self.buffer.n_envs), kept.dtype)
        found[(numbers - numbers[:1] + self.first) % self.buffer.buffer_size] = per_row[numbers % self.theirs["size"]]
        return found.ravel()


def with_next(blocks: Iterator[Block], after_last: np.ndarray | None) -> Iterator[Block]:
    """Yield the blocks of a buffer that keeps one array of observations with what follows each row."""
    earlier: Block | None = None
    for block in blocks:
        if earlier is not None:
            yield _followed(earlier, block["observations."][:1])
        earlier = block
    if earlier is not None:
        yield _followed(earlier, earlier["observations."][-1:] if after_last is None else after_last[None])


def _followed(block: Block, after: np.ndarray) -> Block:
    return {**block, "next_observations.": np.concatenate([block["observations."][1:], after])}


def blocks_of_buffer(source: LeanReplayBuffer, numbers: range) -> Iterator[Block]:
    """Yield rows of a lean buffer by their numbers."""
    row_bytes = sum(2 * source.n_envs * ring.item_bytes for ring in source.columns.values())
    step, envs = max(READ_AT_ONCE // max(row_bytes, 1), 1), np.arange(source.n_envs)
    for first in range(numbers.start, numbers.stop, step):
        rows = np.arange(first, min(first + step, numbers.stop)) % source.buffer_size
        at, block = rows[:, None], {name: getattr(source, name)[rows] for name in SMALL}
        for key, ring in source.columns.items():
            block[f"observations.{key}"], block[f"next_observations.{key}"] = ring.pairs(at, envs)
        yield block
