"""Predict the rollout buffer of an on-policy run.

One array per field, `[n_steps, n_envs, ...]`, allocated anew for every rollout with `np.zeros`; its pages are resident
once they are written. When the rollout is complete, `RolloutBuffer.get` swaps and flattens the first two axes, field
after field, which copies: at its peak the largest field exists twice. With one environment (or one step) the axes
need no copying and NumPy returns a view. The copy is over before the first minibatch is made, so it never meets the
memory of the update: it counts to the end of collecting.

With lean storage, observations are not arrays (`lean`) and are never flattened; action masks are bits. Where a limit
leaves room for it, they are decoded once for all epochs (`LeanRolloutBuffer._flatten`), which is as large as the array.

Mirrors `RolloutBuffer`, `DictRolloutBuffer` (stable_baselines3/common/buffers.py, 2.9.2) and the maskable and
recurrent buffers of sb3-contrib 2.9.0.
"""

from collections.abc import Iterator
from dataclasses import replace

from legroom.backends.base import algorithm_of
from legroom.backends.sb3.bill.lean import is_kept_plainly, lean_rollout, within_limit
from legroom.backends.sb3.stored import (
    FLOAT32,
    actions_nbytes,
    keeps_float32,
    lstm_elements,
    mask_size,
    observation_leaves,
    rollout_rows,
    stores_leanly,
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


def rollout_items(run: Run, evidence: Evidence) -> Iterator[Item]:
    """Yield the fields of the rollout buffer and the copy at flatten; nothing for other families."""
    rows = rollout_rows(run)
    if rows is None:
        return
    fields = _fields(run, evidence)
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


def _fields(run: Run, evidence: Evidence) -> dict[str, int]:
    """Return bytes per environment step of each field."""
    algorithm = algorithm_of(run)
    _, action = spaces_of(run)
    lean = stores_leanly(run)
    old = keeps_float32(evidence.library_versions) and not lean
    fields = {
        f"{OBSERVATIONS}[{key}]" if key else OBSERVATIONS: elements * (FLOAT32 if old else DTYPES[dtype])
        for key, (elements, dtype) in observation_leaves(run).items()
    }
    fields["actions"] = FLOAT32 * len_of(action) if old else actions_nbytes(action, replay=False)  # type: ignore[arg-type]
    fields["scalars"] = SCALARS * FLOAT32
    if algorithm.masked:
        fields["action masks"] = -(-mask_size(action) // 8) if lean else FLOAT32 * mask_size(action)
    if algorithm.recurrent:
        fields["lstm states"] = 4 * FLOAT32 * lstm_elements(run, algorithm)  # hidden and cell, actor and critic
    return fields


def len_of(action: object) -> int:
    """Return how many numbers one action has."""
    count = 1
    for n in getattr(action, "shape", (1,)):
        count *= n
    return count


def _copied(fields: dict[str, int]) -> dict[str, int]:
    # LSTM states are four arrays and the scalars six, each copied for itself
    parts = {"scalars": SCALARS, "lstm states": 4}
    return {name: each // parts.get(name, 1) for name, each in fields.items()}
