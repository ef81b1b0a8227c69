"""The returns of single episodes, as every runner logs them: RLlib's own mean is that of the last iteration alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

EPISODES = "legroom_episodes"
WINDOW = 100  # episodes, as SB3's stats_window_size


def log_episode(*, episode: Any, metrics_logger: Any, prev_episode_chunks: Sequence[Any] = (), **more: Any) -> None:
    """Log return and length of an episode that has ended; an episode may have been cut into chunks between samples."""
    chunks = [episode, *(prev_episode_chunks or ())]
    ended = (float(sum(chunk.get_return() for chunk in chunks)), sum(len(chunk) for chunk in chunks))
    metrics_logger.log_value(EPISODES, ended, reduce="item_series")


def episodes_of(sampled: dict[str, Any]) -> list[tuple[float, int]]:
    """Return the episodes that ended in an iteration."""
    found = sampled.get(EPISODES)
    if not isinstance(found, list | tuple):
        return []
    if len(found) == 2 and not isinstance(found[0], list | tuple):  # RLlib gives a single item without its list
        found = [found]
    return [(float(reward), int(length)) for reward, length in found]
