"""RLlib's knobs: those of SB3's that mean the same once a run is translated, at the same prices."""

from __future__ import annotations

from legroom.backends.sb3 import ladders
from legroom.backends.sb3.knobs import SB3_KNOBS

_TRANSLATED = (
    ladders.smaller_batch, ladders.smaller_replay, ladders.fewer_envs, ladders.smaller_extractor, ladders.coarser_grid,
)  # fmt: skip
RLLIB_KNOBS = tuple(knob for knob in SB3_KNOBS if knob.ladder in _TRANSLATED)
