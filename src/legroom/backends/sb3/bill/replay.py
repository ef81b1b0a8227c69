"""Predict the replay buffer of an off-policy run.

A ring of `rows x n_envs` transitions, one `np.zeros` array per field. Linux backs such pages only once they are
written: the run starts well and dies hours later. So every field counts with the rows that the run gets to write:
the whole ring, unless `total_timesteps` ends the run before. An array that is larger than RAM and swap together is
refused when it is made, however few of its rows would be written (`model.verdict.refused_array`).

With lean storage, observations and next observations are one stream of frames (`backends.sb3.bill.lean`), and dones and
timeouts share a byte. Prioritized replay keeps a tree of sums beside the ring.

A hindsight buffer (HER) is made with one dict per transition, from the start and for the whole ring: Python objects, so
that their pages are written at once. They are made in a list per row, and between the dicts the freed lists stay.

Mirrors `ReplayBuffer`, `DictReplayBuffer` and `NStepReplayBuffer` (which stores nothing more) in
stable_baselines3/common/buffers.py, and `HerReplayBuffer`, release 2.9.2.
"""

from collections.abc import Iterator
from dataclasses import replace

from legroom.backends.base import hyper
from legroom.backends.sb3.bill.lean import is_kept_plainly, lean_replay, within_limit
from legroom.backends.sb3.bill.rollout import FILLED, OBSERVATIONS
from legroom.backends.sb3.stored import (
    FLOAT32,
    actions_nbytes,
    observation_leaves,
    replay_rows,
    stores_leanly,
    written_rows,
)
from legroom.model.evidence import Evidence
from legroom.model.facts import spaces_of
from legroom.model.footprint import Item, Known, Phase, Place
from legroom.model.run import Run
from legroom.model.spaces import DTYPES

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
