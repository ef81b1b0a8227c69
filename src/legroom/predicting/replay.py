"""Predict the replay buffer of an off-policy run.

A ring of `rows x n_envs` transitions, one `np.zeros` array per field. Linux backs such pages only once they are
written: the run starts well and dies hours later. So every field counts with the rows that the run gets to write:
the whole ring, unless `total_timesteps` ends the run before.

Mirrors `ReplayBuffer`, `DictReplayBuffer` and `NStepReplayBuffer` (which stores nothing more) in
stable_baselines3/common/buffers.py, and `HerReplayBuffer`, release 2.9.2.
"""

from __future__ import annotations

from collections.abc import Iterator

from legroom.model.evidence import Evidence
from legroom.model.facts import hyper, replay_rows, spaces_of
from legroom.model.footprint import Item, Phase, Place
from legroom.model.run import Run
from legroom.model.spaces import DTYPES
from legroom.model.stored import FLOAT32, actions_nbytes, is_sb3, observation_leaves, written_rows
from legroom.predicting.rollout import FILLED, LEAN_OVERHEAD

FLAGS = ("rewards", "dones", "timeouts")  # float32 each, whatever the environment returns
HER_FIELDS = 2  # start and length of each transition's episode, int64


def replay_items(run: Run, evidence: Evidence) -> Iterator[Item]:
    """Yield the fields of the replay buffer: at the start, and with the rows the run writes."""
    ring = replay_rows(run)
    if ring is None or not is_sb3(run):
        return
    rows = written_rows(run, ring)
    slots = rows * run.env.n_envs
    fields = replay_fields(run)
    held = f"when full: {rows:,} rows x {run.env.n_envs:,} envs"
    if rows < ring:
        held = f"the run ends after {rows:,} of {ring:,} rows x {run.env.n_envs:,} envs"
    first = run.env.n_envs * sum(fields.values())
    yield Item("replay.at start", first, Place.HOST, "the first row: pages are resident once written", (Phase.START,))
    lean = run.memory.replay == "lean"
    for name, each in fields.items():
        observations = "observations" in name
        if lean and name.startswith("next_"):
            continue  # the next observation is the following row's own; terminal ones are kept beside
        nbytes, why = slots * each, f"{held} x {each:,} B"
        if lean and observations:
            nbytes = int(nbytes * LEAN_OVERHEAD / (run.env.frame_stack or 1))
            why = f"at most, {why}; what repeats is stored once (measured by a probe later)"
        yield Item(f"replay.{name}", nbytes, Place.HOST, why, FILLED)


def replay_fields(run: Run) -> dict[str, int]:
    """Return bytes per transition of each field."""
    _, action = spaces_of(run)
    stored = {key: elements * DTYPES[dtype] for key, (elements, dtype) in observation_leaves(run).items()}
    shared = bool(hyper(run, "optimize_memory_usage"))
    fields: dict[str, int] = {}
    for prefix in ("",) if shared else ("", "next_"):
        fields |= {f"{prefix}observations[{key}]" if key else f"{prefix}observations": n for key, n in stored.items()}
    fields["actions"] = actions_nbytes(action, replay=True)  # type: ignore[arg-type]
    fields |= dict.fromkeys(FLAGS, FLOAT32)
    if "her" in str(hyper(run, "replay_buffer_class") or "").lower():
        fields["episodes (HER)"] = HER_FIELDS * 8
    return fields
