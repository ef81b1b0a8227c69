"""SB3's DQN policies with actions that are sets, and with cells that are not allowed.

SB3 builds a Q network with as many outputs as a Discrete space has actions, and takes the highest. A policy made here
has one output per *cell* and takes the K highest allowed ones; everything else is that of the policy it is made from,
networks of one's own included.
"""

from functools import cache
from typing import Any

import torch as th
from gymnasium import spaces
from stable_baselines3.common.type_aliases import PyTorchObs, Schedule
from stable_baselines3.dqn.policies import DQNPolicy

from legroom_workloads.fire.algorithms.action_sets import ActionSets


@cache
def choosing_sets(policy: type[DQNPolicy]) -> type[DQNPolicy]:
    """Return the policy class with sets of cells as its actions."""
    if issubclass(policy, _ChoosingSets):
        return policy
    return type(policy.__name__, (_ChoosingSets, policy), {"__module__": policy.__module__, "__doc__": policy.__doc__})


def allowed_cells(policy: Any, observations: PyTorchObs) -> th.Tensor | None:
    """Return which cells may be chosen, bool [B, n]; None: the policy has no `action_mask`, all are allowed."""
    mask = getattr(policy, "action_mask", None)
    return None if mask is None else mask(observations)


class _ChoosingSets(DQNPolicy):
    """A mixin before a DQN policy."""

    def _build(self, lr_schedule: Schedule) -> None:
        self.sets = ActionSets.of(self.action_space)
        self.net_args = {**self.net_args, "action_space": spaces.Discrete(self.sets.cells)}
        super()._build(lr_schedule)

    def _predict(self, obs: PyTorchObs, deterministic: bool = True) -> th.Tensor:
        return self.sets.best(self.q_net(obs), allowed_cells(self, obs))
