"""Replay buffers in checkpoints, which may hold gigabytes of which ten thousand rows are new (`segments`).

Lean buffers keep observations in stores of their own (`storing.ring`), compressed, each for a run of rows. A store that
is sealed never changes: it becomes a file once. The last one still grows and is written at every checkpoint; it is at
most an eighth of the ring, mostly a 48th.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer

from legroom.backends.sb3.lean_replay import LeanDictReplayBuffer, LeanReplayBuffer
from legroom.backends.sb3.replay_conversion import Conversion, blocks_of_buffer, with_next
from legroom.backends.sb3.segments import Block, Kept, file_name, layout_of, parts_writer, read_parts, saved_rows
from legroom.backends.sb3.state_torch import misfit
from legroom.errors import BadInput
from legroom.model.learner import SavedState
from legroom.storing.ring import Ring, RingSegment
from legroom.storing.small_arrays import Flags

KNOWN = (ReplayBuffer, DictReplayBuffer, NStepReplayBuffer, LeanReplayBuffer, LeanDictReplayBuffer)
_LINEAGE = "_legroom_lineage"  # of a buffer and of its checkpoints: rows of the same lineage are the same rows


def capture_replay(model: BaseAlgorithm, previous: SavedState | None, arrays: dict[str, np.ndarray]) -> Kept:
    """Return what a checkpoint needs of the model's replay buffer, if it has one.

    Args:
        previous: the checkpoint before, whose segments are linked where it is of the same buffer.
        arrays: gets what is neither row nor store.
    """
    buffer = getattr(model, "replay_buffer", None)
    if buffer is None:
        return Kept(None)
    unknown = _unknown(buffer)
    if not _has_rows(buffer):
        return Kept(None, why_not_exact=unknown)
    rows = row_arrays(buffer)
    size, layout = buffer.buffer_size, _layout(buffer, rows)
    before = _same_rows(buffer, model.num_timesteps, previous, layout)
    count = buffer.pos + (size if buffer.full else 0)
    if before is not None:
        count = before["count"] + (buffer.pos - before["pos"]) % size
    if buffer.optimize_memory_usage and not isinstance(buffer, LeanReplayBuffer):
        # SB3 writes a row's next observation to the following row, which will be written over
        arrays["replay/after_last"] = np.array(buffer.observations[buffer.pos])
    data: dict[str, Any] = {
        "lineage": getattr(buffer, _LINEAGE),
        "layout": layout,
        "count": count,
        "pos": buffer.pos,
        "full": buffer.full,
        "num_timesteps": model.num_timesteps,
        "stores": {},
        "rings": {key: {**ring.stack_state(), "count": ring.count} for key, ring in _rings(buffer).items()},
    }
    priorities = getattr(model, "priorities", None)
    if priorities is not None:
        arrays["replay/priorities"] = priorities.kept
        data["highest_priority"] = priorities.highest
    kept = Kept(data, why_not_exact=unknown)
    kept.add_rows("replay", rows, range(max(count - size, 0), count), before, previous)
    for key, ring in _rings(buffer).items():
        data["stores"][key] = list(_store_entries(key, ring, before, previous, kept))
    return kept


def prepare_replay(model: BaseAlgorithm, checkpoint: SavedState) -> tuple[Callable[[], None], str]:
    """Check that a checkpoint's replay is of this model's buffer; return what takes it over, and what is lost.

    Raises:
        BadInput: it is of another buffer.
    """
    buffer, data = getattr(model, "replay_buffer", None), checkpoint.data["replay"]
    if buffer is None:
        return (lambda: None), ""
    if data is None:
        return (lambda: None), "the checkpoint holds no replay"
    theirs = data["layout"]
    if not _has_rows(buffer):
        raise misfit(checkpoint, f"its replay buffer is not a {type(buffer).__name__}")
    if theirs["storage"] == "lean" == _storage(buffer):
        _widen_flags(buffer, theirs["arrays"])
    ours = _layout(buffer, row_arrays(buffer))
    conversion = None
    if any(theirs.get(key) != ours[key] for key in ours if key != "decided"):
        conversion = Conversion(buffer, theirs, data["count"])
        if difference := conversion.difference(ours):
            raise misfit(checkpoint, f"its replay has {difference}")
    set_priorities, lost = _prepare_priorities(model, checkpoint, conversion)

    def take_over() -> None:
        if conversion is None:
            _take_over_rows(buffer, checkpoint)
            setattr(buffer, _LINEAGE, data["lineage"])
        else:  # rows of its own from now on: all of them are written at the next checkpoint
            conversion.fill(_saved_rows(buffer, checkpoint, conversion))
        set_priorities()

    return take_over, lost or (conversion.lost(ours) if conversion is not None else "")


def _take_over_rows(buffer: Any, checkpoint: SavedState) -> None:
    """Give a buffer the rows that a checkpoint holds of one of the same layout.

    Raises:
        BadInput: they are damaged.
    """
    data, rows = checkpoint.data["replay"], row_arrays(buffer)
    for number, block in saved_rows(checkpoint, data, range(data["count"])):
        for name, array in rows.items():
            array[np.arange(number, number + len(block[name])) % buffer.buffer_size] = block[name]
    for key, ring in _rings(buffer).items():
        state = {**data["rings"][key], "numbers": ring._numbers, "shelves": _dumps(checkpoint, data["stores"][key])}
        try:
            ring.prepare(state)()
        except (ValueError, KeyError, TypeError) as error:
            raise BadInput(f"its replay is damaged: {error}", path=checkpoint.path) from error
    after_last = checkpoint.tensors("replay").get("after_last")
    buffer.pos, buffer.full = data["pos"], data["full"]
    if after_last is not None:
        buffer.observations[buffer.pos] = after_last


def _saved_rows(buffer: Any, checkpoint: SavedState, conversion: Conversion) -> Iterator[Block]:
    """Return the saved rows that the buffer keeps, oldest first, as SB3's plain buffer has them."""
    theirs, numbers = checkpoint.data["replay"]["layout"], conversion.numbers
    if theirs["storage"] == "plain":
        blocks = (block for _, block in saved_rows(checkpoint, checkpoint.data["replay"], numbers))
        if "next_observations." in theirs["arrays"] or "observations." not in theirs["arrays"]:
            return blocks
        return with_next(blocks, checkpoint.tensors("replay").get("after_last"))
    options = vars(buffer.options) if isinstance(buffer, LeanReplayBuffer) else {}
    n_envs = theirs["environments"]
    source = LeanReplayBuffer(
        theirs["size"] * n_envs, buffer.observation_space, buffer.action_space, "cpu", n_envs, **options
    )
    _widen_flags(source, theirs["arrays"])
    _take_over_rows(source, checkpoint)
    return blocks_of_buffer(source, numbers)


def _prepare_priorities(
    model: Any, checkpoint: SavedState, conversion: Conversion | None
) -> tuple[Callable[[], None], str]:
    """Return what gives prioritized replay the saved priorities, and what is lost; sums of them are made anew.

    Raises:
        BadInput: they are of another number of transitions, or cannot be priorities.
    """
    ours, data = getattr(model, "priorities", None), checkpoint.data["replay"]
    if ours is None:
        return (lambda: None), ""
    kept, highest = checkpoint.tensors("replay").get("priorities"), data.get("highest_priority")
    if kept is None or highest is None:
        return (lambda: None), "the checkpoint holds no priorities: every transition counts as new"
    theirs = data["layout"]
    count = (theirs["size"] if data["full"] else data["pos"]) * theirs["environments"]
    if kept.dtype != np.float64 or kept.shape != (count,) or not (np.isfinite(kept).all() and (kept >= 0).all()):
        raise misfit(checkpoint, f"its priorities are not those of {count:,} transitions")
    converted = kept if conversion is None else conversion.priorities(kept)
    return (lambda: ours.take_over(converted, float(highest))), ""


def row_arrays(buffer: Any) -> dict[str, np.ndarray]:
    """Return every array of a buffer that has one entry per row, by name."""
    found: dict[str, np.ndarray] = {}
    if isinstance(buffer, LeanReplayBuffer):
        for key, ring in buffer.columns.items():
            if ring.is_plain:
                found |= {f"observations.{key}": ring._plain[0], f"next_observations.{key}": ring._plain[1]}
            else:
                found[f"numbers.{key}"] = ring._numbers
    else:
        for name in ("observations", "next_observations"):
            value = getattr(buffer, name, None)  # SB3 has no next observations when it saves memory
            parts = value if isinstance(value, dict) else {"": value}
            found |= {f"{name}.{key}": part for key, part in parts.items() if part is not None}
    for name in ("actions", "rewards", "dones", "timeouts"):
        value = getattr(buffer, name)
        found[name] = value.array if isinstance(value, Flags) else value
    return dict(sorted(found.items()))


def _widen_flags(buffer: Any, theirs: Mapping[str, Any]) -> None:
    """Let the lean flags be float32, as theirs are if anything but yes and no was ever written to them."""
    for name in ("dones", "timeouts"):
        flags = getattr(buffer, name)
        if isinstance(flags, Flags) and name in theirs and theirs[name][0] != flags.array.dtype.str == "|u1":
            flags.array = np.array(flags)


def _unknown(buffer: Any) -> str:
    """Return why going on with the saved rows alone is not exact."""
    if type(buffer) not in KNOWN:
        return f"what {type(buffer).__name__} stores besides its transitions is not known to legroom"
    if getattr(buffer, "sampler", None) is not None:
        return "the state of the replay buffer's sampler is not known to legroom"
    return ""


def _has_rows(buffer: Any) -> bool:
    """Return whether the buffer is SB3's or ours, or adds to one; hindsight replay cannot do without what it adds."""
    is_hindsight = hasattr(buffer, "goal_selection_strategy")
    return isinstance(buffer, ReplayBuffer) and not is_hindsight and isinstance(buffer.rewards, np.ndarray)


def _layout(buffer: Any, rows: Mapping[str, np.ndarray]) -> dict[str, Any]:
    decided = {key: ring.stack_state()["decided"] for key, ring in _rings(buffer).items()}
    return layout_of(buffer, rows) | {"storage": _storage(buffer), "decided": decided}


def _storage(buffer: Any) -> str:
    return "lean" if isinstance(buffer, LeanReplayBuffer) else "plain"


def _same_rows(
    buffer: Any, num_timesteps: int, previous: SavedState | None, layout: dict[str, Any]
) -> dict[str, Any] | None:
    """Return the previous checkpoint's replay if some of its rows are still this buffer's; else all is written anew.

    SB3 keeps only the position in the ring, so the time steps since then have to say that the ring did not go round.
    """
    data = previous.data["replay"] if previous is not None else None
    lineage = getattr(buffer, _LINEAGE, None)
    if lineage is None:
        setattr(buffer, _LINEAGE, uuid.uuid4().hex)
    # the layout: a ring that has found out about stacks since then has stored everything anew
    if data is None or data["lineage"] != lineage or data["layout"] != layout:
        return None
    added = (buffer.pos - data["pos"]) % buffer.buffer_size
    steps = (num_timesteps - data["num_timesteps"]) // buffer.n_envs
    return data if added == steps else None  # otherwise it went round, was cleared, or somebody else adds rows


def _rings(buffer: Any) -> dict[str, Ring]:
    """Return the rings that keep observations in stores."""
    if not isinstance(buffer, LeanReplayBuffer):
        return {}
    return {key: ring for key, ring in buffer.columns.items() if not ring.is_plain}


def _store_entries(
    key: str, ring: Ring, before: dict[str, Any] | None, previous: SavedState | None, kept: Kept
) -> Iterator[dict[str, Any]]:
    """Yield an entry per store, and add its file to those linked or written."""
    written = {} if before is None else {entry["first"]: entry for entry in before["stores"].get(key, ())}
    for number, segment in enumerate(ring._segments):
        is_sealed = number < len(ring._segments) - 1
        name = f"replay-store-{file_name(key)}{segment.first:012d}.bin"
        earlier = written.get(segment.first)
        if earlier is not None and earlier["sealed"] and previous is not None:
            kept.link[name] = previous.path / earlier["file"]
        else:
            kept.files[name] = parts_writer(_store_parts(segment))
        yield {
            "file": name,
            "first": segment.first,
            "first_row_bytes": segment.first_row_bytes,
            "sealed": is_sealed,
        }


def _store_parts(segment: RingSegment) -> list[Callable[[], bytes]]:
    store = segment.shelf.store
    n_arenas = store.n_arenas()  # first: rows that wait are stored now
    return [store.dump_index, *(partial(store.dump_arena, i) for i in range(n_arenas))]


def _dumps(checkpoint: SavedState, entries: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the stores as `Ring.prepare` takes them, one in memory at a time."""
    for entry in entries:
        index, *arenas = read_parts(checkpoint.file(entry["file"]))
        yield {"first": entry["first"], "first_row_bytes": entry["first_row_bytes"], "index": index, "arenas": arenas}
