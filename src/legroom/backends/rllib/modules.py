"""SB3's networks as RLlib's RLModules: the policy object of SB3 itself, asked for what RLlib's losses need.

`policy_kwargs`, features extractors, orthogonal initialisation and the scaling of images are SB3's own that way, and
the parameters have SB3's names. Where a whole train batch comes at once, as RLlib's advantage estimation asks for it,
values are computed in parts: nothing else would have to hold activations of so many samples.

PPO's update is SB3's, too. Two things differ in RLlib and are put right where they are decided (`Sb3PPOLearner`):
advantages are standardised in every minibatch and not only over the rollout (standardising twice is the same as doing
it last), and Adam's epsilon is 1e-5.

Mirrors PPO.train of stable-baselines3 2.9 on PPOTorchLearner of ray 2.60.
"""

from typing import Any

import torch
from gymnasium import spaces
from ray.rllib.algorithms.dqn.default_dqn_rl_module import QF_NEXT_PREDS, QF_PREDS, QF_TARGET_NEXT_PREDS
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.algorithms.sac.sac_learner import ACTION_DIST_INPUTS_NEXT, QF_TWIN_PREDS
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.torch.torch_distribution import (
    TorchCategorical,
    TorchDiagGaussian,
    TorchMultiCategorical,
    TorchSquashedGaussian,
)
from ray.rllib.core.learner.utils import make_target_network
from ray.rllib.core.rl_module.apis import QNetAPI, TargetNetworkAPI, ValueFunctionAPI
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.utils.schedules.scheduler import Scheduler
from stable_baselines3.sac.policies import SACPolicy

from legroom.backends.base import algorithm_of
from legroom.backends.rllib.envs import MASK, OBSERVATION
from legroom.backends.sb3.building import class_of, find_class, policy_arguments
from legroom.errors import BadInput
from legroom.model.run import Run

ADAM_EPS = 1e-5
UNLIKELY = -1e8  # a masked action's logit, as in sb3-contrib


def build_policy(run: Run, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> Any:
    """Return the run's policy as SB3 builds it, without its optimizer.

    Raises:
        BadInput: SB3 refuses, in its words.
    """
    algorithm = class_of(algorithm_of(run.replace(backend="sb3")))
    name = run.policy.name
    policy_class = find_class(run, name) if ":" in name else algorithm.policy_aliases.get(name)
    if policy_class is None:
        known = ", ".join(algorithm.policy_aliases)
        raise BadInput(f"policy {name!r} is not a policy of {run.algo}", path=run.source, hint=f"one of {known}")
    try:
        policy = policy_class(observation_space, action_space, lambda _: 0.0, **policy_arguments(run))
    except (AssertionError, TypeError, ValueError) as refused:
        raise BadInput(f"the policy cannot be built: {refused}", path=run.source) from refused
    for part in (policy, getattr(policy, "actor", None), getattr(policy, "critic", None)):
        if part is not None and hasattr(part, "optimizer"):
            del part.optimizer
    return policy


def split_observation(observation: Any, masked: bool) -> tuple[Any, torch.Tensor | None]:
    """Return what the networks see, and the mask."""
    return (observation[OBSERVATION], observation[MASK]) if masked else (observation, None)


def unmasked_space(space: spaces.Space[Any], masked: bool) -> spaces.Space[Any]:
    return space[OBSERVATION] if masked and isinstance(space, spaces.Dict) else space


class Sb3Module(TorchRLModule):
    """A module around a policy of SB3."""

    model_config: Any  # RLlib declares these as None until they are set
    observation_space: Any
    action_space: Any
    action_dist_cls: Any


class ActorCriticModule(Sb3Module, ValueFunctionAPI):
    """PPO's networks: SB3's ActorCriticPolicy, or sb3-contrib's maskable one."""

    def setup(self) -> None:
        run = Run.model_validate(self.model_config["run"])
        self._masked = bool(self.model_config["masked"])
        self._part = int(self.model_config["minibatch_size"])
        self.policy = build_policy(run, unmasked_space(self.observation_space, self._masked), self.action_space)
        self.action_dist_cls = _distribution(self.action_space)
        self._gaussian = isinstance(self.action_space, spaces.Box)

    def _latents(self, observation: Any) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.policy.extract_features(observation)
        if self.policy.share_features_extractor:
            latents: tuple[torch.Tensor, torch.Tensor] = self.policy.mlp_extractor(features)
            return latents
        of_actor, of_critic = features
        extractor = self.policy.mlp_extractor
        return extractor.forward_actor(of_actor), extractor.forward_critic(of_critic)

    def _inputs(self, latent: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Return what the distribution of actions is made of."""
        outputs = self.policy.action_net(latent)
        if self._gaussian:
            return torch.cat([outputs, self.policy.log_std.expand_as(outputs)], dim=-1)
        return outputs if mask is None else torch.where(mask.bool(), outputs, UNLIKELY)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        observation, mask = split_observation(batch[Columns.OBS], self._masked)
        return {Columns.ACTION_DIST_INPUTS: self._inputs(self._latents(observation)[0], mask)}

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        observation, mask = split_observation(batch[Columns.OBS], self._masked)
        of_actor, of_critic = self._latents(observation)
        return {Columns.ACTION_DIST_INPUTS: self._inputs(of_actor, mask), Columns.EMBEDDINGS: of_critic}

    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> torch.Tensor:
        if embeddings is not None:
            value: torch.Tensor = self.policy.value_net(embeddings)
            return value.squeeze(-1)
        observation, _ = split_observation(batch[Columns.OBS], self._masked)
        with torch.no_grad():
            values = [self.policy.value_net(self._latents(part)[1]) for part in _parts(observation, self._part)]
        return torch.cat(values).squeeze(-1)


def _parts(observation: Any, size: int) -> list[Any]:
    if not isinstance(observation, dict):
        return list(observation.split(size))
    split = {key: array.split(size) for key, array in observation.items()}
    return [dict(zip(split, part, strict=True)) for part in zip(*split.values(), strict=True)]


def _distribution(space: spaces.Space[Any]) -> Any:
    if isinstance(space, spaces.Discrete):
        return TorchCategorical
    if isinstance(space, spaces.MultiDiscrete):
        multi: Any = TorchMultiCategorical
        return multi.get_partial_dist_cls(input_lens=[int(n) for n in space.nvec])
    if isinstance(space, spaces.Box):
        return TorchDiagGaussian
    raise BadInput(
        f"RLlib has no distribution for actions of {type(space).__name__}", hint="train it with backend: sb3"
    )


class QModule(Sb3Module, QNetAPI, TargetNetworkAPI):
    """DQN's networks: SB3's DQNPolicy; its target network is made when RLlib's learner asks for it.

    A target that stood in the module from the start would be among the parameters of the optimizer.
    """

    def setup(self) -> None:
        if not isinstance(self.action_space, spaces.Discrete):
            kind = type(self.action_space).__name__
            raise BadInput(f"RLlib's DQN takes one discrete action, not {kind}", hint="train it with backend: sb3")
        self.policy = build_policy(
            Run.model_validate(self.model_config["run"]), self.observation_space, self.action_space
        )
        del self.policy.q_net_target
        self._double = bool(self.model_config["double_q"])
        self._epsilon: Any = Scheduler(fixed_value_or_schedule=self.model_config["epsilon"], framework="torch")
        self.action_dist_cls = TorchCategorical

    def compute_q_values(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {QF_PREDS: self.policy.q_net(batch[Columns.OBS])}

    def _forward_inference(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        with torch.no_grad():
            return {Columns.ACTIONS: self.policy.q_net(batch[Columns.OBS]).argmax(dim=-1)}

    def _forward_exploration(self, batch: dict[str, Any], t: int = 0, **kwargs: Any) -> dict[str, Any]:
        best = self._forward_inference(batch)[Columns.ACTIONS]
        self._epsilon.update(t)
        anything = torch.randint(int(self.action_space.n), best.shape, device=best.device)
        explores = torch.rand(best.shape, device=best.device) < self._epsilon.get_current_value()
        return {Columns.ACTIONS: torch.where(explores, anything, best)}

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        following = {Columns.OBS: batch[Columns.NEXT_OBS]}
        outputs = {QF_PREDS: self.policy.q_net(batch[Columns.OBS])}
        with torch.no_grad():  # targets are no function of the parameters
            outputs[QF_TARGET_NEXT_PREDS] = self.forward_target(following)[QF_PREDS]
            if self._double:
                outputs[QF_NEXT_PREDS] = self.policy.q_net(following[Columns.OBS])
        return outputs

    def make_target_networks(self) -> None:
        self.policy.q_net_target = make_target_network(self.policy.q_net)

    def get_target_network_pairs(self) -> list[tuple[Any, Any]]:
        return [(self.policy.q_net, self.policy.q_net_target)]

    def forward_target(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {QF_PREDS: self.policy.q_net_target(batch[Columns.OBS])}


class SacModule(Sb3Module, QNetAPI, TargetNetworkAPI):
    """SAC's networks for continuous actions, which the module gives between -1 and 1 and RLlib scales.

    RLlib's learner has one optimizer per critic and takes their parameters from `qf_encoder`, `qf` and their twins.
    SB3's critics share one features extractor, which is counted with the first of them; the second one's loss reaches
    it all the same, since gradients add up where they are.
    """

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


class Sb3PPOLearner(PPOTorchLearner):
    """RLlib's PPO with SB3's minibatches."""

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        params = self.get_parameters(self.module[module_id])
        self.register_optimizer(
            module_id=module_id,
            optimizer=torch.optim.Adam(params, eps=ADAM_EPS),
            params=params,
            lr_or_lr_schedule=config.lr,
        )

    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: dict[str, Any], fwd_out: Any) -> Any:
        mask = batch.get(Columns.LOSS_MASK)
        advantages = batch[Postprocessing.ADVANTAGES]
        counted = advantages if mask is None else advantages[mask]
        if self.config.learner_config_dict["normalize_advantage"] and len(counted) > 1:
            standard = (advantages - counted.mean()) / (counted.std() + 1e-8)
            batch = {**batch, Postprocessing.ADVANTAGES: standard}
        return super().compute_loss_for_module(module_id=module_id, config=config, batch=batch, fwd_out=fwd_out)
