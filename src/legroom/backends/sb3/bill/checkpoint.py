"""Predict what writing a checkpoint takes on top.

`model.save` writes the tensors one by one into a zip archive, but everything else of the model (spaces with their
bounds, the last observations) is pickled, base64-encoded and put into one JSON text: four times its size at the peak.
`save_replay_buffer` pickles the arrays, and the pickler copies each one it writes, untouched pages included: the
largest array of the ring in full, however little of it is filled. Lean storage is pickled as the bytes it holds: once
more what it takes.

Mirrors `save_to_zip_file` and `save_to_pkl` in stable_baselines3/common/save_util.py 2.9.2, and CPython 3.11's pickler.
"""

from collections.abc import Iterator

from legroom.backends.sb3.bill.replay import replay_fields, replay_items
from legroom.backends.sb3.bill.rollout import OBSERVATIONS
from legroom.backends.sb3.stored import bounds_nbytes, observation_nbytes, replay_rows, stores_leanly
from legroom.model.evidence import Evidence
from legroom.model.facts import spaces_of
from legroom.model.footprint import Item, Phase, Place
from legroom.model.run import Run

WRITING = (Phase.CHECKPOINT,)
# base64 text, the JSON it becomes part of, and its encoded bytes, 4/3 of the pickle each
JSON_COPIES = 4


def checkpoint_items(run: Run, evidence: Evidence) -> Iterator[Item]:
    """Yield the buffers of writing a checkpoint, none without `checkpoint`."""
    if run.checkpoint is None:
        return
    observation, _ = spaces_of(run)
    pickled = bounds_nbytes(observation) + run.env.n_envs * observation_nbytes(run)
    why = "spaces and last observations, pickled into base64 into JSON"
    yield Item("checkpoint.model data", JSON_COPIES * pickled, Place.HOST, why, WRITING)
    if evidence.net is not None:
        why = "at most: tensors are copied one by one as they are written"
        yield Item("checkpoint.tensors", evidence.net.weights, Place.HOST, why, WRITING)
    ring = replay_rows(run)
    if run.checkpoint.replay_buffer and ring is not None:
        largest = max(replay_fields(run).values()) * ring * run.env.n_envs
        why = "the pickler copies each array it writes, also the rows that are still empty"
        if stores_leanly(run):
            largest = sum(item.nbytes for item in replay_items(run, evidence) if OBSERVATIONS in item.name)
            why = "the stored observations as bytes, while they are written"
        yield Item("checkpoint.replay buffer", largest, Place.HOST, why, WRITING)
