"""What one iteration of an RLlib algorithm says, in the names that SB3's runs have in their logs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    FAULT_TOLERANCE_STATS,
    LEARNER_RESULTS,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
)

EPISODES = "legroom_episodes"
WINDOW = 100  # episodes, as SB3's stats_window_size
# RLlib's names of what SB3 logs too; everything else keeps its own, after train/.
_TRAIN_NAMES = {
    "policy_loss": "policy_gradient_loss", "vf_loss": "value_loss", "entropy": "entropy", "qf_loss": "loss",
    "vf_explained_var": "explained_variance", "total_loss": "loss",
}  # fmt: skip


@dataclass(frozen=True)
class Result:
    """How far training is, and how its last episodes went."""

    steps: int = 0
    episodes: int = 0
    last: tuple[tuple[float, int], ...] = ()  # return and length of the last episodes, at most `WINDOW`
    healthy: int = 0
    restarts: int = 0
    steps_per_s: float = 0.0
    train: dict[str, float] = field(default_factory=dict)

    @property
    def reward_mean(self) -> float | None:
        return sum(reward for reward, _ in self.last) / len(self.last) if self.last else None

    @property
    def length_mean(self) -> float | None:
        return sum(length for _, length in self.last) / len(self.last) if self.last else None

    def row(self) -> dict[str, float | int | None]:
        """Return the figures as SB3 would log them; the loop adds those of time and of episodes."""
        steady = {"time/fps": self.steps_per_s, "rollout/episodes": self.episodes}
        return {
            **steady, "rollout/healthy_runners": self.healthy, **{f"train/{name}": n for name, n in self.train.items()}
        }  # fmt: skip

    def score(self) -> dict[str, Any]:
        score: dict[str, Any] = {"episodes": self.episodes, "runner_restarts": self.restarts}
        if self.reward_mean is not None:
            score |= {"reward_mean": self.reward_mean, "length_mean": self.length_mean}
        return score

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Result:
        known = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        return cls(**known | {"last": tuple((float(r), int(n)) for r, n in known.get("last", ()))})


def log_episode(*, episode: Any, metrics_logger: Any, prev_episode_chunks: Sequence[Any] = (), **more: Any) -> None:
    """Log return and length of an episode that has ended; an episode may have been cut into chunks between samples.

    Every runner does: RLlib's own mean is that of the last iteration alone.
    """
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


def result_of(results: Mapping[str, Any], *, before: Result) -> Result:
    """Return what RLlib's nested results say; a figure that is missing in an iteration stays as it was."""
    sampled = results.get(ENV_RUNNER_RESULTS, {})
    fault = results.get(FAULT_TOLERANCE_STATS, {})
    learned = results.get(LEARNER_RESULTS, {}).get(DEFAULT_MODULE_ID, {})
    made = _number(sampled.get(NUM_ENV_STEPS_SAMPLED_LIFETIME))
    steps = int(made) if made and math.isfinite(made) else before.steps
    took = float(results.get("time_this_iter_s") or 0.0)
    ended = episodes_of(sampled)
    restarts = int(fault.get("num_remote_worker_restarts") or 0)
    return Result(
        steps=steps,
        episodes=before.episodes + len(ended),
        last=(*before.last, *ended)[-WINDOW:],
        healthy=int(fault.get("num_healthy_workers") or 0),
        restarts=max(restarts, before.restarts),
        steps_per_s=max(steps - before.steps, 0) / took if took else 0.0,
        train={
            _TRAIN_NAMES.get(name, name): number
            for name, value in learned.items()
            if (number := _number(value)) is not None
        },
    )


def reward_not_finite(result: Result, *, before: Result) -> str:
    """Say which return of an episode that ended in the iteration is not finite; "" where all are.

    RLlib leaves gradients of NaN out, so networks stay finite and learn nothing any more: nothing else would show it.
    """
    ended = result.last[-(result.episodes - before.episodes) :] if result.episodes > before.episodes else ()
    wrong = next((reward for reward, _ in ended if not math.isfinite(reward)), None)
    return "" if wrong is None else f"the reward of an episode was {wrong}"


def _number(value: Any) -> float | None:
    """Return a figure as a number, NaN included: that a loss is not finite has to be seen."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
