"""The parts of an SB3 run's bill, in the order they are shown. A new part is one line here."""

from collections.abc import Callable, Iterable

from legroom.backends.sb3.bill.buffers import checkpoint_items, replay_items, rollout_items
from legroom.backends.sb3.bill.network import network_items
from legroom.backends.sb3.bill.processes import envs_items, evaluation_items, runtime_items
from legroom.model.evidence import Evidence
from legroom.model.footprint import Footprint, Item
from legroom.model.run import Run
from legroom.predicting.predict import footprint_of

PARTS: tuple[Callable[[Run, Evidence], Iterable[Item]], ...] = (
    runtime_items,
    envs_items,
    rollout_items,
    replay_items,
    network_items,
    evaluation_items,
    checkpoint_items,
)


def sb3_footprint(run: Run, evidence: Evidence) -> Footprint:
    """Return what an SB3 run will need."""
    return footprint_of(run, evidence, (item for part in PARTS for item in part(run, evidence)))
