"""Rollouts that are half collected, or half learned from, in checkpoints: segments of rows, written once, then linked.

SB3 collects a rollout in one call and learns from it in another, and either may take days. Both have moments at which
everything that follows is decided by what can be captured: before the policy is asked for the next actions, and before
a minibatch. Random numbers drawn before such a moment are drawn again after a resume (the permutation of an epoch) or
left out (gSDE's noise at the beginning of a rollout).

A segment (`segments`) holds the rows that are new since the last checkpoint of the same rollout. A lean store only ever
adds to its last arena; the others are segments, too. So of a rollout no byte of observations is written twice, but for
that arena and the index.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from inspect import signature
from typing import Any
from uuid import uuid4

import numpy as np

from legroom.backends.sb3.segments import Kept, file_name, layout_of, parts_writer, read_parts, saved_rows
from legroom.backends.sb3.updates import update_of
from legroom.errors import BadInput
from legroom.model.learner import SavedState
from legroom.storing.budget import Options
from legroom.storing.buffers import shapes_of
from legroom.storing.column import Column
from legroom.storing.outputs import Outputs
from legroom.storing.saving import UNUSABLE
from legroom.storing.small_arrays import Masks
from legroom.training.arrays import put_together, take_apart

KNOWN = tuple(f"{masks}{form}RolloutBuffer" for masks in ("", "Maskable") for form in ("", "Dict"))
SMALL = ("actions", "rewards", "episode_starts", "values", "log_probs", "action_masks")
NEVER_FLAT = ("rewards", "episode_starts")
OF_UPDATES = ("advantages", "returns")
_LINEAGE = "_legroom_lineage"  # of a store and of what checkpoints have of it


def stops_within(model: Any) -> bool:
    """Return whether everything that decides how a rollout goes on is known."""
    buffer, collects = getattr(model, "rollout_buffer", None), type(model).collect_rollouts.__module__
    ours = type(buffer).__module__.partition(".")[0] in ("stable_baselines3", "sb3_contrib", "legroom")
    known = ours and type(buffer).__name__.removeprefix("Lean") in KNOWN
    return known and collects in ("stable_baselines3.common.on_policy_algorithm", "sb3_contrib.ppo_mask.ppo_mask")


def may_stop_here(model: Any) -> bool:
    """Return whether a rollout can go on from its current row: one with noise of its own only where that is drawn."""
    pos, every = model.rollout_buffer.pos, model.sde_sample_freq if model.use_sde else 0
    return pos > 0 and (every <= 0 or pos % every == 0)


@contextmanager
def going_on(model: Any, rows: int) -> Iterator[None]:
    """Let the next `collect_rollouts` keep the rows that are there: no reset, no new noise before the first action."""
    if not rows:
        yield
        return
    buffer, policy = model.rollout_buffer, model.policy
    buffer.reset = lambda: None
    if model.use_sde:
        policy.reset_noise = lambda *arguments: None

    def began(*arguments: Any) -> None:
        hook.remove()
        if model.use_sde:
            del policy.reset_noise

    hook = policy.register_forward_pre_hook(began)
    try:
        yield
    finally:
        hook.remove()
        del buffer.reset


def rest_of(collect: Callable[..., Any], rows: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call `collect_rollouts` for the steps that are left of a rollout."""
    bound = signature(collect).bind(*args, **kwargs)
    bound.arguments["n_rollout_steps"] -= rows
    return collect(*bound.args, **bound.kwargs)


def capture_rollout(model: Any, previous: SavedState | None, arrays: dict[str, np.ndarray]) -> Kept:
    """Return what a checkpoint needs of the rollout so far; segments of the one before are linked.

    Args:
        arrays: gets what is no row.
    """
    buffer, count = model.rollout_buffer, int(model.rollout_buffer.pos)
    rows = _rows(buffer)
    data: dict[str, Any] = {
        "began": model.num_timesteps - count * buffer.n_envs,
        "count": count,
        "layout": layout_of(buffer, rows),
        "stores": {},
    }
    before = previous.data.get("rollout") if previous is not None else None
    if before is not None and any(before[key] != data[key] for key in ("began", "layout")):
        before = None
    kept = Kept(data)
    kept.add_rows("rollout", rows, range(count), before, previous)
    for key, column in _stored(buffer).items():
        earlier = before["stores"].get(key) if before is not None else None
        data["stores"][key] = _capture_store(key, column, earlier, previous, kept)
        arrays[f"rollout/numbers.{key}"] = column._numbers
    update = update_of(model)
    if update is not None and update.at is not None:
        for name in OF_UPDATES:
            arrays[f"rollout/{name}"] = _by_step(buffer, name, getattr(buffer, name))
        data["update"] = {"learns": _learns(model), "at": take_apart(update.at, "rollout", arrays)}
    return kept


def _capture_store(
    key: str, column: Column, earlier: Mapping[str, Any] | None, previous: SavedState | None, kept: Kept
) -> dict[str, Any]:
    """Return the entry of a store; its arenas are added to the files that are linked or written."""
    shelf, store = column.shelves[0], column.shelves[0].store
    lineage = vars(shelf).setdefault(_LINEAGE, uuid4().hex)
    segments: list[dict[str, Any]] = []
    if earlier is not None and previous is not None and earlier["lineage"] == lineage:  # else stacks were found since
        segments = list(earlier["segments"])
        kept.link.update({each["file"]: previous.path / each["file"] for each in segments})
    name, n_arenas = f"rollout-store-{file_name(key)}", store.n_arenas()
    first, end = segments[-1]["end"] if segments else 0, max(n_arenas - 1, 0)
    if first < end:
        segments.append({"file": f"{name}{first:012d}-{end:012d}.bin", "first": first, "end": end})
        kept.files[segments[-1]["file"]] = parts_writer([partial(store.dump_arena, i) for i in range(first, end)])
    last = [partial(store.dump_arena, i) for i in range(end, n_arenas)]
    kept.files[f"{name}last.bin"] = parts_writer([store.dump_index, *last])
    state = {**column.stack_state(), "flat": False, "written": column._written}
    return {"lineage": lineage, "segments": segments, "last": f"{name}last.bin", "column": state}


def prepare_rollout(model: Any, checkpoint: SavedState) -> tuple[Callable[[], None], str]:
    """Return what takes over the rollout of a checkpoint, if it has one, and why it is not, or not exactly.

    Raises:
        BadInput: it is damaged.
    """
    data = checkpoint.data.get("rollout")
    if data is None:
        return (lambda: None), ""
    buffer: Any = getattr(model, "rollout_buffer", None)
    update = data.get("update")
    why = "this algorithm starts its rollouts over"
    if stops_within(model):
        theirs = [data["layout"].get(key) for key in ("size", "environments")]
        if theirs == [buffer.buffer_size, buffer.n_envs]:
            why = ""
        else:
            why = f"rollouts had {theirs[0]} steps of {theirs[1]} environments"
    ours = update_of(model)
    if not why and update is not None and not (ours is not None and ours.goes_on):
        why = "this algorithm starts its updates over"
    if why:
        return (lambda: None), f"{data['count']:,} steps of a rollout are not used: {why}"
    changed = update is not None and update["learns"] != _learns(model)

    def take_over() -> None:
        buffer.reset()
        try:
            _take_over_rows(buffer, checkpoint, data)
            for key, entry in data["stores"].items():
                _take_over_store(buffer, key, entry, checkpoint)
        except UNUSABLE as error:
            raise BadInput(f"its rollout is damaged: {error}", path=checkpoint.path) from error
        buffer.pos, buffer.full = data["count"], data["count"] == buffer.buffer_size
        if update is not None and ours is not None:
            arrays = checkpoint.tensors("rollout")
            for name in OF_UPDATES:
                getattr(buffer, name)[...] = arrays[name].reshape(buffer.buffer_size, buffer.n_envs)
            at = put_together(update["at"], {f"rollout/{name}": array for name, array in arrays.items()})
            if changed:  # the epoch begins anew, with minibatches of its own
                at = {key: value for key, value in at.items() if key != "random"} | {"minibatch": 0}
            ours.at = at

    return take_over, "batch_size or n_epochs have changed within an update" if changed else ""


def _take_over_rows(buffer: Any, checkpoint: SavedState, data: Mapping[str, Any]) -> None:
    """Give the buffer the rows of the segments, in whatever way it keeps them."""
    rows, columns = _rows(buffer), _stored(buffer)
    for first, block in saved_rows(checkpoint, data, range(data["count"])):
        for name, saved in block.items():
            key = name.removeprefix("observations.")
            if name == "action_masks":
                masks, n = buffer.action_masks, buffer.mask_dims
                for row, mask in enumerate(saved, first):
                    masks[row] = np.unpackbits(mask, axis=-1, count=n) if mask.dtype == np.uint8 else mask
            elif name != key and key in columns:
                for row, seen in enumerate(saved, first):
                    columns[key][row] = seen.reshape(buffer.n_envs, *columns[key].item_shape)
            else:
                rows[name][first : first + len(saved)] = saved


def _take_over_store(buffer: Any, key: str, entry: Mapping[str, Any], checkpoint: SavedState) -> None:
    """Give the buffer the observations of a store, in whatever way it keeps them."""
    parts = [part for each in entry["segments"] for part in read_parts(checkpoint.file(each["file"]))]
    index, *last = read_parts(checkpoint.file(entry["last"]))
    numbers = checkpoint.tensors("rollout")[f"numbers.{key}"]
    state = {**entry["column"], "numbers": numbers, "shelves": [{"index": index, "arenas": parts + last}]}
    column = _stored(buffer).get(key)
    if column is not None:
        column.prepare(state)()
        vars(column.shelves[0])[_LINEAGE] = entry["lineage"]
        buffer.make_room()
        return
    plain = _rows(buffer)[f"observations.{key}"]
    column = Column(*plain.shape[:2], shapes_of(buffer.obs_shape)[key], plain.dtype, Options(), Outputs())
    column.prepare(state)()
    for row in range(state["written"]):
        plain[row] = column[row].reshape(plain.shape[1:])


def _learns(model: Any) -> list[int | None]:
    return [model.n_epochs, model.batch_size]


def _stored(buffer: Any) -> dict[str, Column]:
    """Return the columns that keep observations in a store."""
    return {key: column for key, column in getattr(buffer, "columns", {}).items() if not column.is_plain}


def _rows(buffer: Any) -> dict[str, np.ndarray]:
    """Return every array with an entry per step and environment, [steps, environments, numbers], by name."""
    observations = getattr(buffer, "columns", None) or buffer.observations
    parts = observations if isinstance(observations, dict) else {"": observations}
    found = {f"observations.{key}": getattr(part, "_plain", part) for key, part in parts.items()}
    found = {name: part for name, part in found.items() if isinstance(part, np.ndarray)}
    for name in SMALL:
        if hasattr(buffer, name):
            small = getattr(buffer, name)
            found[name] = small.array if isinstance(small, Masks) else small
    return {name: _by_step(buffer, name, array) for name, array in sorted(found.items())}


def _by_step(buffer: Any, name: str, array: np.ndarray) -> np.ndarray:
    """Return an array with the steps first: for an update SB3 has flattened most of them, the environments first."""
    size, n_envs = buffer.buffer_size, buffer.n_envs
    if buffer.generator_ready and name not in NEVER_FLAT:
        return array.reshape(n_envs, size, -1).swapaxes(0, 1)
    return array.reshape(size, n_envs, -1)
