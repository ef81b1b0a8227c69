"""The sizes of the mine's network, for the network itself and for predicting its memory without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from legroom.extend import convolutions

if TYPE_CHECKING:
    from legroom.extend import BoxSpace, Net


@dataclass(frozen=True)
class Size:
    """Convolutions as (channels, kernel, stride, padding), then pooling to pool³ cells and `features` outputs."""

    layers: tuple[tuple[int, int, int, int], ...]
    pool: int
    features: int


SIZES = {
    "full": Size(((32, 3, 1, 1), (64, 3, 2, 1), (128, 3, 2, 1)), pool=4, features=512),
    "small": Size(((16, 3, 1, 1), (32, 3, 2, 1), (64, 3, 2, 1)), pool=4, features=256),
    "tiny": Size(((8, 5, 2, 2), (16, 5, 2, 2)), pool=1, features=64),
}
CHECKPOINTED_SAMPLES = 4  # that are computed again at a time


def cnn3d(observation: BoxSpace, size: str = "full", **_: Any) -> Net:
    """Return the layers of `Cnn3d`."""
    spec = SIZES.get(size, SIZES["full"])
    return convolutions(
        observation.shape,
        spec.layers,
        spec.features,
        convert=observation.dtype != "float32",
        pool=spec.pool,
        samples=CHECKPOINTED_SAMPLES,
    )
