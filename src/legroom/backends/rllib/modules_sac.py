"""SB3's SACPolicy as RLlib's RLModule: actor and critics are SB3's own objects, the target made when it is asked for.

RLlib's learner has one optimizer per critic and takes their parameters from `qf_encoder`, `qf` and their twins. SB3's
critics share one features extractor, which is counted with the first of them; the second one's loss reaches it all the
same, since gradients add up where they are.
"""

from typing import Any

import torch
from gymnasium import spaces
from ray.rllib.algorithms.sac.sac_learner import ACTION_DIST_INPUTS_NEXT, QF_PREDS, QF_TWIN_PREDS
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.torch.torch_distribution import TorchSquashedGaussian
from ray.rllib.core.learner.utils import make_target_network
from ray.rllib.core.rl_module.apis import QNetAPI, TargetNetworkAPI
from stable_baselines3.sac.policies import SACPolicy

from legroom.backends.rllib.modules import Sb3Module, build_policy
from legroom.errors import BadInput
from legroom.model.run import Run


class SacModule(Sb3Module, QNetAPI, TargetNetworkAPI):
    """SAC's networks for continuous actions, which the module gives between -1 and 1 and RLlib scales."""

    policy: SACPolicy

    def setup(self) -> None:
        if not isinstance(self.action_space, spaces.Box):
            raise BadInput(f"SAC takes continuous actions, not {type(self.action_space).__name__}", hint="algo: DQN")
        run = Run.model_validate(self.model_config["run"])
        self.policy = build_policy(run, self.observation_space, self.action_space)
        del self.policy.critic_target
        self.twin_q = len(self.policy.critic.q_networks) == 2
        self.action_dist_cls = TorchSquashedGaussian

    # What RLlib's learner makes its optimizers of; properties, so that no parameter is registered under two names.

    @property
    def qf_encoder(self) -> torch.nn.Module:
        return self.policy.critic.features_extractor

    @property
    def qf(self) -> torch.nn.Module:
        return self.policy.critic.q_networks[0]

    @property
    def qf_twin_encoder(self) -> torch.nn.Module:
        return torch.nn.Identity()

    @property
    def qf_twin(self) -> torch.nn.Module:
        return self.policy.critic.q_networks[1]

    @property
    def pi_encoder(self) -> torch.nn.Module:
        return torch.nn.Identity()

    @property
    def pi(self) -> torch.nn.Module:
        return self.policy.actor

    def _logits(self, observation: Any) -> torch.Tensor:
        mean, log_std, _ = self.policy.actor.get_action_dist_params(observation)
        return torch.cat([mean, log_std], dim=-1)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {Columns.ACTION_DIST_INPUTS: self._logits(batch[Columns.OBS])}

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        observation, following = batch[Columns.OBS], batch[Columns.NEXT_OBS]
        predictions = self.policy.critic(observation, batch[Columns.ACTIONS])
        output = {QF_PREDS: predictions[0].squeeze(-1)}
        if self.twin_q:
            output[QF_TWIN_PREDS] = predictions[1].squeeze(-1)
        logits = self._logits(observation)
        actions, output["logp_resampled"] = self.action_dist_cls.from_logits(logits).rsample_and_logp()
        with torch.no_grad():
            logits_following = self._logits(following)
            further, logp = self.action_dist_cls.from_logits(logits_following).sample_and_logp()
            output["logp_next_resampled"] = logp
            output["q_target_next"] = self.forward_target({Columns.OBS: following, Columns.ACTIONS: further})
        output |= {Columns.ACTION_DIST_INPUTS: logits, ACTION_DIST_INPUTS_NEXT: logits_following}
        output["q_curr"] = self._q_of_policy(observation, actions)
        return output

    def _q_of_policy(self, observation: Any, actions: torch.Tensor) -> torch.Tensor:
        """Return the value of the policy's actions as a function of the policy alone: the critics stand still."""
        parameters = list(self.policy.critic.parameters())
        for parameter in parameters:
            parameter.requires_grad = False
        value = self.compute_q_values({Columns.OBS: observation, Columns.ACTIONS: actions})
        for parameter in parameters:
            parameter.requires_grad = True
        return value

    def compute_q_values(self, batch: dict[str, Any]) -> torch.Tensor:  # type: ignore[override]
        return _least(self.policy.critic(batch[Columns.OBS], batch[Columns.ACTIONS]))

    def forward_target(self, batch: dict[str, Any]) -> torch.Tensor:  # type: ignore[override]
        return _least(self.policy.critic_target(batch[Columns.OBS], batch[Columns.ACTIONS]))

    def make_target_networks(self) -> None:
        target: Any = make_target_network(self.policy.critic)  # a copy; declared as any network
        self.policy.critic_target = target

    def get_target_network_pairs(self) -> list[tuple[Any, Any]]:
        return [(self.policy.critic, self.policy.critic_target)]


def _least(values: tuple[torch.Tensor, ...]) -> torch.Tensor:
    return torch.cat(values, dim=-1).min(dim=-1).values
