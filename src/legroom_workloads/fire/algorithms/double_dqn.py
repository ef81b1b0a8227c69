"""Double DQN with prioritized replay, and with actions that are sets: SB3's DQN in all that is not said here.

**Double.** The online network selects the next action and the target network values it (van Hasselt et al., 2016), so
that the maximum of noisy values is no longer taken for the value of the maximum. `double=False` is SB3's target.

**Sets.** An action space MultiDiscrete([n] * K) is read as "a set of K of n cells": K fuel breaks in a raster. There
are n! / K! (n - K)! such sets, far too many for a Q value each, so a network has one output per cell and the Q value of
a set is the *mean* of its members'. The greedy set is then simply the K highest cells; the mean, unlike the sum, keeps
values, errors and clipping in the same range whatever K is; and every member gets a K-th of the gradient, so that over
many sets a cell's value becomes what it contributes to them. What it cannot say is that two cells are worth more, or
less, together than each alone. Discrete(n) is K = 1, and then nothing differs from DQN. Replay keeps the K indices.

**Cells that are not allowed.** Where the policy has `action_mask(observations) -> bool [B, n]`, the others are chosen
neither greedily nor at random nor in the target. The mask follows from the observation: nothing is stored for it.

**Target network.** SB3 synchronises every `target_update_interval // n_envs` calls, rounded down: with 1000 and 16
environments every 992 steps. Here the k-th time is the first step of all environments at which k * interval environment
steps have been made: the count never drifts, and it is exact where n_envs divides the interval.

**Schedules.** Learning rate, epsilon and beta are functions of the progress towards the total of `learn()`.

Mirrors `DQN` of stable_baselines3/dqn/dqn.py, 2.9.2; a test pins its source.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.type_aliases import GymEnv, PyTorchObs, Schedule
from stable_baselines3.common.utils import polyak_update
from stable_baselines3.dqn.policies import DQNPolicy
from torch.nn import functional

from legroom.extend import BadInput
from legroom_workloads.fire.algorithms.action_sets import ActionSets
from legroom_workloads.fire.algorithms.prioritized import Priorities, PrioritizedMinibatch
from legroom_workloads.fire.algorithms.set_policy import allowed_cells, choosing_sets

Parts = Callable[[int], Iterator[Any]]  # makes one minibatch's samples in parts of this size


class DoubleDQN(DQN):
    """Double DQN with prioritized replay over sets of actions; the module says what that means.

    Args:
        double: the online network selects, the target network values; False: the target network does both.
        priority_alpha: how much TD errors matter for what is drawn; 0: drawn uniformly, as SB3 draws it.
        priority_beta: how much of the bias importance weights take back at first; rises to 1 at the end of training.
        priority_eps: added to TD errors before they become priorities.
        The others are DQN's.

    Example:
        >>> import legroom
        >>> model = legroom.DoubleDQN("MlpPolicy", "CartPole-v1", buffer_size=1000)
        >>> model.double
        True
    """

    def __init__(
        self,
        policy: str | type[DQNPolicy],
        env: GymEnv | str,
        learning_rate: float | Schedule = 1e-4,
        buffer_size: int = 1_000_000,
        learning_starts: int = 100,
        batch_size: int = 32,
        tau: float = 1.0,
        gamma: float = 0.99,
        train_freq: int | tuple[int, str] = 4,
        gradient_steps: int = 1,
        replay_buffer_class: type[ReplayBuffer] | None = None,
        replay_buffer_kwargs: dict[str, Any] | None = None,
        optimize_memory_usage: bool = False,
        n_steps: int = 1,
        target_update_interval: int = 10000,
        exploration_fraction: float = 0.1,
        exploration_initial_eps: float = 1.0,
        exploration_final_eps: float = 0.05,
        max_grad_norm: float = 10,
        double: bool = True,
        priority_alpha: float = 0.6,
        priority_beta: float = 0.4,
        priority_eps: float = 1e-6,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: th.device | str = "auto",
        _init_setup_model: bool = True,
    ) -> None:
        _check_priorities(priority_alpha, priority_beta, priority_eps)
        # not DQN's own constructor, which takes Discrete actions only
        OffPolicyAlgorithm.__init__(
            self,
            policy,
            env,
            learning_rate,
            buffer_size,
            learning_starts,
            batch_size,
            tau,
            gamma,
            train_freq,
            gradient_steps,
            replay_buffer_class=replay_buffer_class,
            replay_buffer_kwargs=replay_buffer_kwargs,
            optimize_memory_usage=optimize_memory_usage,
            n_steps=n_steps,
            policy_kwargs=policy_kwargs,
            stats_window_size=stats_window_size,
            tensorboard_log=tensorboard_log,
            verbose=verbose,
            device=device,
            seed=seed,
            sde_support=False,
            supported_action_spaces=(spaces.Discrete, spaces.MultiDiscrete),
            support_multi_env=True,
        )
        self.exploration_initial_eps = exploration_initial_eps
        self.exploration_final_eps = exploration_final_eps
        self.exploration_fraction = exploration_fraction
        self.target_update_interval = target_update_interval
        self._n_calls = 0
        self.max_grad_norm = max_grad_norm
        self.exploration_rate = 0.0
        self.double = double
        self.priority_alpha, self.priority_beta, self.priority_eps = priority_alpha, priority_beta, priority_eps
        if _init_setup_model:
            self._setup_model()

    def _setup_model(self) -> None:
        self.sets = ActionSets.of(self.action_space)
        given: Any = self.policy_class
        if self.sets.chosen > 1 or hasattr(given, "action_mask"):
            self.policy_class = choosing_sets(given)
        super()._setup_model()
        self.policy_class = given
        self._begin_priorities()

    def _begin_priorities(self) -> None:
        self.priorities: Priorities | None = None
        if self.priority_alpha > 0:
            self.priorities = Priorities(self.replay_buffer, self.priority_alpha, self.priority_eps)

    def load_replay_buffer(self, *arguments: Any, **named: Any) -> None:
        """Load a replay buffer that SB3 saved, which knows no priorities: every transition counts as new."""
        super().load_replay_buffer(*arguments, **named)
        self._begin_priorities()

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "priorities"]

    # -- acting -------------------------------------------------------------------------------------------------------

    @property
    def _acts_as_dqn(self) -> bool:
        return self.sets.chosen == 1 and not hasattr(self.policy, "action_mask")

    def predict(
        self,
        observation: np.ndarray | dict[str, np.ndarray],
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
        """Return the greedy sets, or with the exploration rate's probability random ones, for all environments."""
        if self._acts_as_dqn:
            return super().predict(observation, state, episode_start, deterministic)
        if not deterministic and np.random.rand() < self.exploration_rate:
            return self._random_actions(observation), state
        return self.policy.predict(observation, state, episode_start, deterministic)

    def _sample_action(
        self, learning_starts: int, action_noise: ActionNoise | None = None, n_envs: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        if self._acts_as_dqn or self.num_timesteps >= learning_starts:
            return super()._sample_action(learning_starts, action_noise, n_envs)
        assert self._last_obs is not None
        actions = self._random_actions(self._last_obs)
        return actions, actions

    def _random_actions(self, observation: np.ndarray | dict[str, np.ndarray]) -> np.ndarray:
        tensors, is_batch = self.policy.obs_to_tensor(observation)
        with th.no_grad():
            allowed = allowed_cells(self.policy, tensors)
        first = next(iter(tensors.values())) if isinstance(tensors, dict) else tensors
        actions = self.sets.random(len(first), None if allowed is None else allowed.cpu().numpy())
        actions = actions.reshape(len(first), *(self.action_space.shape or ()))
        return actions if is_batch else actions[0]

    # -- collecting ---------------------------------------------------------------------------------------------------

    def _store_transition(self, replay_buffer: ReplayBuffer, *arguments: Any, **named: Any) -> None:
        super()._store_transition(replay_buffer, *arguments, **named)
        if self.priorities is not None:
            self.priorities.added(replay_buffer)

    def _on_step(self) -> None:
        """Bring the target network up to date when it is due, and the exploration rate always."""
        self._n_calls += 1
        steps, interval = self._n_calls * self.n_envs, self.target_update_interval
        due = steps // interval - (steps - self.n_envs) // interval
        for _ in range(min(due, 1) if self.tau == 1 else due):  # several in one step of many environments
            polyak_update(self.q_net.parameters(), self.q_net_target.parameters(), self.tau)
            polyak_update(self.batch_norm_stats, self.batch_norm_stats_target, 1.0)
        self.exploration_rate = self.exploration_schedule(self._current_progress_remaining)
        self.logger.record("rollout/exploration_rate", self.exploration_rate)

    # -- learning -----------------------------------------------------------------------------------------------------

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Make gradient steps; `backends.sb3.updates` does the same with each minibatch in pieces."""
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        losses = []
        for _ in range(gradient_steps):
            minibatch = self._draw(batch_size)
            (samples,) = minibatch(batch_size)
            loss = self._loss(samples)
            losses.append(loss.item())
            self.policy.optimizer.zero_grad()
            th.autograd.backward(loss)
            th.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
            self.policy.optimizer.step()
            self._learned(minibatch)
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/loss", np.mean(losses))

    def _draw(self, batch_size: int) -> Parts:
        """Draw a minibatch, and return what makes its samples, whole or in parts."""
        if self.priorities is None:
            return self._draw_uniformly(batch_size)
        beta = 1.0 - (1.0 - self.priority_beta) * self._current_progress_remaining
        draw = self.priorities.draw(self.replay_buffer, batch_size, beta)
        dtype = next(self.q_net.parameters()).dtype
        return PrioritizedMinibatch(self.replay_buffer, draw, self._vec_normalize_env, dtype)

    def _draw_uniformly(self, batch_size: int) -> Parts:
        assert self.replay_buffer is not None
        samples = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)
        return lambda size: iter([samples])

    def _loss(self, part: Any) -> th.Tensor:
        """Return the loss of samples, as if they were a minibatch, and leave their TD errors where they are wanted."""
        discounts = part.discounts if part.discounts is not None else self.gamma
        with th.no_grad():
            next_values = self._next_values(part.next_observations)
            targets = part.rewards + (1 - part.dones) * discounts * next_values
        values = th.gather(self.q_net(part.observations), dim=1, index=part.actions.long())
        if self.sets.chosen > 1:
            values = values.mean(dim=1, keepdim=True)
        weights: th.Tensor | None = getattr(part, "weights", None)
        if weights is None:
            return functional.smooth_l1_loss(values, targets)
        part.errors.copy_((values.detach() - targets).abs_())
        return (functional.smooth_l1_loss(values, targets, reduction="none") * weights).mean()

    def _next_values(self, observations: PyTorchObs) -> th.Tensor:
        """Return the target network's value of the best next set, [B, 1]."""
        allowed = allowed_cells(self.policy, observations)
        if self.double:
            # only to select: no dropout, and batch statistics are not made from it
            self.q_net.set_training_mode(False)
            best = self.sets.best(self.q_net(observations), allowed)
            self.q_net.set_training_mode(True)
            values: th.Tensor = self.q_net_target(observations)
        else:
            values = self.q_net_target(observations)
            best = self.sets.best(values, allowed)
        values = values.gather(1, best)
        return values if self.sets.chosen == 1 else values.mean(dim=1, keepdim=True)

    def _learned(self, minibatch: Parts) -> None:
        """Take over what a minibatch has shown, after the step made of it."""
        if self.priorities is not None:
            assert isinstance(minibatch, PrioritizedMinibatch)
            self.priorities.learned(minibatch.slots, minibatch.errors.squeeze(1).cpu().numpy())


def _check_priorities(alpha: float, beta: float, eps: float) -> None:
    for name, value in (("priority_alpha", alpha), ("priority_beta", beta)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise BadInput(f"{name} is {value!r}", hint="from 0 to 1")
    if isinstance(eps, bool) or not isinstance(eps, int | float) or not 0 < eps < float("inf"):
        raise BadInput(f"priority_eps is {eps!r}", hint="a small positive number, such as 1e-6")
