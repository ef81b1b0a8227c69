"""Predict what writing a checkpoint takes on top.

`model.save` writes the tensors one by one into a zip archive, but everything else of the model (spaces with their
bounds, the last observations) is pickled, base64-encoded and put into one JSON text: four times its size at the peak.
`save_replay_buffer` pickles the arrays by protocol 5, which writes them from where they are: nothing is copied, and
pages that are only read stay untouched (protocol 4, which SB3 does not use, copies each array). The pickler remembers
every Python object it writes: the dicts of a hindsight buffer. Lean storage is pickled as the bytes it holds: once more
what it takes.

Mirrors `save_to_zip_file` and `save_to_pkl` in stable_baselines3/common/save_util.py 2.9.2, and CPython 3.11's pickler.
"""

from collections.abc import Iterator

from legroom.backends.sb3.bill.replay import keeps_infos, replay_items
from legroom.backends.sb3.bill.rollout import OBSERVATIONS
from legroom.backends.sb3.stored import bounds_nbytes, observation_nbytes, replay_rows, stores_leanly
from legroom.model.evidence import Evidence
from legroom.model.facts import spaces_of
from legroom.model.footprint import Item, Phase, Place
from legroom.model.run import Run

WRITING = (Phase.CHECKPOINT,)
# base64 text, the JSON it becomes part of, and its encoded bytes, 4/3 of the pickle each
JSON_COPIES = 4
# Entries of the pickler's table are 16 bytes, and up to three of four are free. 68 MB at 10^6 dicts, 12 MB at 250,000
# (2026-11-17, CPython 3.11; tests/backends/sb3/test_replay.py).
REMEMBERED = 64


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
