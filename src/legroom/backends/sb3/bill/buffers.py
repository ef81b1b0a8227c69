"""Predict the buffers: the rollout of an on-policy run, the replay of an off-policy one, and writing a checkpoint.

Both mirror stable_baselines3/common/buffers.py, release 2.9.2, and the maskable and recurrent buffers of sb3-contrib
2.9.0; arrays are made by `np.zeros`, whose pages Linux backs once they are written.

*Rollout*: one array per field, `[n_steps, n_envs, ...]`, allocated anew for every rollout. When it is complete,
`RolloutBuffer.get` swaps and flattens the first two axes, field after field, which copies: at its peak the largest
field exists twice. With one environment (or one step) the axes need no copying and NumPy returns a view. The copy is
over before the first minibatch is made, so it never meets the memory of the update: it counts to the end of collecting.
With lean storage, observations are not arrays (`lean`) and are never flattened; action masks are bits. Where a limit
leaves room for it, they are decoded once for all epochs (`LeanRolloutBuffer._flatten`), which is as large as the array.

*Replay*: a ring of `rows x n_envs` transitions. The run starts well and dies hours later, so every field counts with
the rows that the run gets to write: the whole ring, unless `total_timesteps` ends the run before. An array that is
larger than RAM and swap together is refused when it is made, however few of its rows would be written
(`model.verdict.refused_array`). With lean storage, observations and next observations are one stream of frames, and
dones and timeouts share a byte. Prioritized replay keeps a tree of sums beside the ring. A hindsight buffer (HER) is
made with one dict per transition, from the start and for the whole ring: Python objects, so that their pages are
written at once. They are made in a list per row, and between the dicts the freed lists stay.

*Checkpoint*: `model.save` writes the tensors one by one into a zip archive, but everything else of the model (spaces
with their bounds, the last observations) is pickled, base64-encoded and put into one JSON text: four times its size at
the peak. `save_replay_buffer` pickles the arrays by protocol 5, which writes them from where they are: nothing is
copied, and pages that are only read stay untouched. The pickler remembers every Python object it writes: the dicts of a
hindsight buffer. Lean storage is pickled as the bytes it holds: once more what it takes. Mirrors `save_to_zip_file` and
`save_to_pkl` in stable_baselines3/common/save_util.py 2.9.2, and CPython 3.11's pickler.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

from legroom.backends.base import algorithm_of, hyper
from legroom.backends.sb3.bill.lean import is_kept_plainly, lean_replay, lean_rollout, within_limit
from legroom.backends.sb3.stored import (
    FLOAT32,
    actions_nbytes,
    bounds_nbytes,
    keeps_float32,
    lstm_elements,
    mask_size,
    observation_leaves,
    observation_nbytes,
    replay_rows,
    rollout_rows,
    stores_leanly,
    written_rows,
)
from legroom.model.evidence import Evidence
from legroom.model.facts import spaces_of
from legroom.model.footprint import Item, Known, Phase, Place
from legroom.model.run import Run
from legroom.model.spaces import DTYPES
from legroom.units import format_size

SCALARS = 6  # rewards, returns, episode_starts, values, log_probs, advantages: float32 each
FILLED = (Phase.COLLECT, Phase.UPDATE, Phase.CHECKPOINT)
# The copy is freed the moment it is complete: sampled every 15-20 ms, a peak seems lower by what is copied in between.
BRIEF_NBYTES = 30_000_000
OBSERVATIONS = "observations"

NEXT = "next_"
FLAGS = ("dones", "timeouts")  # float32 each as the rewards, whatever the environment returns
TREE_BYTES = 2 * 8  # per leaf: itself and as many sums above, float64 (`sum_tree` of its own)
HER_FIELDS = 2  # start and length of each transition's episode, int64
# CPython 3.11, measured 2026-11-17 by making `HerReplayBuffer.infos`: an empty dict, its place in the array of objects,
# an empty list, and the places in it. 170, 98 and 86 bytes per transition with 1, 4 and 16 environments.
DICT_NBYTES, POINTER, LIST_NBYTES = 64, 8, 64
# What a script's later imports and objects put into the room of the freed lists: 29 MB of a million rows' 96.
REUSED, REUSED_ERROR = 29_000_000, 12_000_000
# With copy_info_dict the environment's dicts stay: one with a key or two takes this, arrays in it are not known.
INFO_NBYTES = 232

WRITING = (Phase.CHECKPOINT,)
# base64 text, the JSON it becomes part of, and its encoded bytes, 4/3 of the pickle each
JSON_COPIES = 4
# Entries of the pickler's table are 16 bytes, and up to three of four are free. 68 MB at 10^6 dicts, 12 MB at 250,000
# (2026-11-17, CPython 3.11; tests/backends/sb3/test_replay.py).
REMEMBERED = 64


def rollout_items(run: Run, evidence: Evidence) -> Iterator[Item]:
    """Yield the fields of the rollout buffer and the copy at flatten; nothing for other families."""
    rows = rollout_rows(run)
    if rows is None:
        return
    fields = _rollout_fields(run, evidence)
    slots = rows * run.env.n_envs
    shape = f"{rows:,} steps x {run.env.n_envs:,} envs"
    stored, decoded = [], 0
    for name, each in list(fields.items()):
        if stores_leanly(run) and name.startswith(OBSERVATIONS) and not is_kept_plainly(run, each):
            del fields[name]  # minibatches are decoded straight from the store, there is nothing to flatten
            found = lean_rollout(run, evidence, name.removeprefix(OBSERVATIONS).strip("[]"), each)
            item = Item(f"rollout.{name}", found.nbytes, Place.HOST, found.why, FILLED, known=found.known)
            stored.append(replace(item, error=found.error))
            decoded += slots * each
        else:
            yield Item(f"rollout.{name}", slots * each, Place.HOST, f"{shape} x {each:,} B", FILLED)
    yield from within_limit(run, stored)
    yield from _decoded_copy(run, stored, decoded, beside=slots * sum(fields.values()))
    name, largest = max(_copied(fields).items(), key=lambda field: field[1])
    if run.env.n_envs > 1 and rows > 1:
        why = f"RolloutBuffer.get copies field after field before the first minibatch; {name} is the largest"
        error = min(BRIEF_NBYTES, slots * largest // 4)
        yield Item("rollout.flatten copy", slots * largest, Place.HOST, why, (Phase.COLLECT,), error=error)


def _decoded_copy(run: Run, stored: list[Item], nbytes: int, *, beside: int) -> Iterator[Item]:
    """Yield the copy that later epochs read, where records, copy and arrays are within the limit; half of it where the
    records may be too large for that."""
    limit = run.memory.max_bytes
    least = sum(item.nbytes - item.error for item in stored if item.known is Known.MEASURED)
    if not stored or limit is None or least + nbytes > limit:
        return
    sure = sum(item.nbytes + item.error for item in stored) + beside + nbytes <= limit
    middle = nbytes if sure else nbytes // 2
    why = (
        f"{'' if sure else 'perhaps '}decoded once for all epochs: memory.max_bytes = {format_size(limit)} leaves room"
    )
    phases = (Phase.UPDATE, Phase.CHECKPOINT)
    yield Item("rollout.decoded copy", middle, Place.HOST, why, phases, error=nbytes - middle)


def _rollout_fields(run: Run, evidence: Evidence) -> dict[str, int]:
    """Return bytes per environment step of each field."""
    algorithm = algorithm_of(run)
    _, action = spaces_of(run)
    lean = stores_leanly(run)
    old = keeps_float32(evidence.library_versions) and not lean
    fields = {
        f"{OBSERVATIONS}[{key}]" if key else OBSERVATIONS: elements * (FLOAT32 if old else DTYPES[dtype])
        for key, (elements, dtype) in observation_leaves(run).items()
    }
    numbers = FLOAT32 * math.prod(getattr(action, "shape", (1,)))
    fields["actions"] = numbers if old else actions_nbytes(action, replay=False)  # type: ignore[arg-type]
    fields["scalars"] = SCALARS * FLOAT32
    if algorithm.masked:
        fields["action masks"] = -(-mask_size(action) // 8) if lean else FLOAT32 * mask_size(action)
    if algorithm.recurrent:
        fields["lstm states"] = 4 * FLOAT32 * lstm_elements(run, algorithm)  # hidden and cell, actor and critic
    return fields


def _copied(fields: dict[str, int]) -> dict[str, int]:
    # LSTM states are four arrays and the scalars six, each copied for itself
    parts = {"scalars": SCALARS, "lstm states": 4}
    return {name: each // parts.get(name, 1) for name, each in fields.items()}


def replay_items(run: Run, evidence: Evidence) -> Iterator[Item]:
    """Yield the fields of the replay buffer: at the start, and with the rows the run writes."""
    ring = replay_rows(run)
    if ring is None:
        return
    rows = written_rows(run, ring)
    slots = rows * run.env.n_envs
    fields = replay_fields(run)
    held = f"when full: {rows:,} rows x {run.env.n_envs:,} envs"
    if rows < ring:
        held = f"the run ends after {rows:,} of {ring:,} rows x {run.env.n_envs:,} envs"
    first = run.env.n_envs * sum(fields.values())
    yield Item("replay.at start", first, Place.HOST, "the first row: pages are resident once written", (Phase.START,))
    stored = []
    for name, each in fields.items():
        observations = OBSERVATIONS in name
        if stores_leanly(run) and observations and not is_kept_plainly(run, each):
            if name.startswith(NEXT):
                continue  # the next observation is the following row's own; terminal ones are kept beside
            key = name.removeprefix(OBSERVATIONS).strip("[]")
            found = lean_replay(run, evidence, key, each, rows)
            why = f"{held}: {found.why}"
            item = Item(f"replay.{name}", found.nbytes, Place.HOST, why, FILLED, known=found.known)
            stored.append(replace(item, error=found.error))
        else:
            why = f"{held} x {each:,} B"
            yield Item(f"replay.{name}", slots * each, Place.HOST, why, FILLED, reserved=ring * run.env.n_envs * each)
    yield from within_limit(run, stored)
    if keeps_infos(run):
        yield from _info_items(run, ring, rows)
    if hyper(run, "priority_alpha"):
        capacity = ring * run.env.n_envs
        leaves = 1 << (capacity - 1).bit_length()
        why = f"prioritized replay: a tree of sums over {capacity:,} transitions, {leaves:,} leaves x {TREE_BYTES} B"
        yield Item("replay.priorities", TREE_BYTES * leaves, Place.HOST, why, FILLED)


def keeps_infos(run: Run) -> bool:
    """Return whether the buffer has a dict per transition: SB3's `HerReplayBuffer`, and what derives from it."""
    return "her" in str(hyper(run, "replay_buffer_class") or "").lower()


def _info_items(run: Run, ring: int, rows: int) -> Iterator[Item]:
    envs = run.env.n_envs
    dicts = (DICT_NBYTES + POINTER) * ring * envs
    why = f"HER makes a dict per transition at once: {ring * envs:,} x {DICT_NBYTES + POINTER} B"
    yield Item("replay.infos (HER)", dicts, Place.HOST, why)
    places = 4 if envs <= 4 else 8 if envs <= 8 else -(-envs // 8) * 8  # as lists grow
    freed = (LIST_NBYTES + POINTER * places) * ring
    why = f"lists between HER's dicts, freed and not given back: {ring:,} rows, less what later objects take of it"
    yield Item("replay.gaps (HER)", max(freed - REUSED, 0), Place.HOST, why, error=min(freed, REUSED_ERROR))
    settings = hyper(run, "replay_buffer_kwargs")
    if isinstance(settings, dict) and settings.get("copy_info_dict"):
        kept = INFO_NBYTES * rows * envs
        why = f"copy_info_dict: at least {INFO_NBYTES} B per transition; arrays in an info are not counted"
        yield Item("replay.copied infos (HER)", kept, Place.HOST, why, FILLED, known=Known.DEFAULT, error=kept // 2)


def replay_fields(run: Run) -> dict[str, int]:
    """Return bytes per transition of each field."""
    _, action = spaces_of(run)
    stored = {key: elements * DTYPES[dtype] for key, (elements, dtype) in observation_leaves(run).items()}
    lean = stores_leanly(run)  # which accepts optimize_memory_usage and ignores it
    shared = bool(hyper(run, "optimize_memory_usage")) and not lean
    fields: dict[str, int] = {}
    for prefix in ("",) if shared else ("", NEXT):
        name = f"{prefix}{OBSERVATIONS}"
        fields |= {f"{name}[{key}]" if key else name: nbytes for key, nbytes in stored.items()}
    fields["actions"] = actions_nbytes(action, replay=True)  # type: ignore[arg-type]
    fields["rewards"] = FLOAT32
    fields |= {"dones, timeouts": 1} if lean else dict.fromkeys(FLAGS, FLOAT32)
    if keeps_infos(run):
        fields["episodes (HER)"] = HER_FIELDS * 8
    return fields


def checkpoint_items(run: Run, evidence: Evidence) -> Iterator[Item]:
    """Yield the buffers of writing a checkpoint, none without `checkpoint`."""
    if run.checkpoint is None:
        return
    observation, _ = spaces_of(run)
    pickled = bounds_nbytes(observation) + run.env.n_envs * observation_nbytes(run)
    why = "spaces and last observations, pickled as base64 in JSON"
    yield Item("checkpoint.model data", JSON_COPIES * pickled, Place.HOST, why, WRITING)
    if evidence.net is not None:
        why = "at most: tensors are copied one by one as they are written"
        yield Item("checkpoint.tensors", evidence.net.weights, Place.HOST, why, WRITING)
    ring = replay_rows(run)
    if not run.checkpoint.replay_buffer or ring is None:
        return
    if stores_leanly(run):
        stored = sum(item.nbytes for item in replay_items(run, evidence) if OBSERVATIONS in item.name)
        why = "the stored observations as bytes, while they are written"
        yield Item("checkpoint.replay buffer", stored, Place.HOST, why, WRITING)
    elif keeps_infos(run):
        remembered = REMEMBERED * ring * run.env.n_envs
        why = "the pickler keeps every info dict it has written"
        yield Item("checkpoint.replay buffer", remembered, Place.HOST, why, WRITING, error=remembered // 4)
