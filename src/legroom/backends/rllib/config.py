"""A plan as an AlgorithmConfig of RLlib's new API stack.

Runners that fail are restarted by Ray and given the state of the others; a sub-environment that raises is a fault of
the environment and is not hidden by making it anew. What an actor asks Ray for in memory goes around RLlib's config,
which has no place for it: Ray refuses `memory` among custom resources.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from gymnasium import spaces
from ray.rllib.algorithms import algorithm as rllib_algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.sac import SACConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.env_runner_group import EnvRunnerGroup
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.rllib.utils.typing import EnvCreator
from ray.tune.registry import register_env
from ray.tune.trainable import trainable

from legroom.backends.rllib.envs import make_runner_env
from legroom.backends.rllib.modules import ActorCriticModule, QModule, SacModule, Sb3PPOLearner
from legroom.backends.rllib.results import log_episode
from legroom.backends.rllib.translation import RllibPlan
from legroom.model.run import Run

CONFIGS: dict[str, Callable[[], AlgorithmConfig]] = {"PPO": PPOConfig, "DQN": DQNConfig, "SAC": SACConfig}
MODULES: dict[str, Any] = {"PPO": ActorCriticModule, "DQN": QModule, "SAC": SacModule}
ENV_NAME = "legroom"
PROBE_S, RESTORE_S = 2.0, 60.0  # how long each iteration waits for a runner that is not back yet, and one that is
MOST_RESTARTS = 100
ITERATION_S = 0.5  # of off-policy training: between two, checkpoints are written and stops are heard


class SpeakingEnvRunner(SingleAgentEnvRunner):
    """An env runner that says what is wrong with its environment: its exceptions are the caller's.

    RLlib's own answers an exception by waiting a minute and ending its process, to be started anew; the words are lost,
    and an environment that raises would raise again. Processes that die are another matter, and are restarted.
    """

    def apply(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return func(self, *args, **kwargs)


def make_config(run: Run, plan: RllibPlan, device: str) -> AlgorithmConfig:
    """Return the config that RLlib builds its algorithm from; checked by RLlib when it is built."""
    env = make_runner_env({"run": run.model_dump(), "masked": plan.masked})
    observation_space, action_space = env.observation_space, env.action_space
    env.close()
    register_env(ENV_NAME, make_runner_env)
    on_cuda = device == "cuda"
    config = (
        CONFIGS[plan.algo]()
        .api_stack(enable_rl_module_and_learner=True, enable_env_runner_and_connector_v2=True)
        .framework("torch")
        .environment(
            ENV_NAME,
            env_config={"run": run.model_dump(), "masked": plan.masked},
            observation_space=observation_space,
            action_space=action_space,
            clip_actions=plan.algo == "PPO",  # as SB3: the policy's own action is learned from, the env gets it clipped
            normalize_actions=plan.algo == "SAC",
            disable_env_checking=True,
        )
        .env_runners(
            env_runner_cls=SpeakingEnvRunner,
            num_env_runners=plan.runners,
            num_envs_per_env_runner=plan.envs_per_runner,
            num_cpus_per_env_runner=plan.cpus_per_runner,  # type: ignore[arg-type]  # Ray takes fractions
            rollout_fragment_length=plan.rollout_fragment_length,
            sample_timeout_s=None,  # a runner that is dead says so; one that is slow is slow
        )
        .learners(
            num_learners=plan.learners,
            num_cpus_per_learner=plan.cpus_per_learner if plan.learners else "auto",
            num_gpus_per_learner=(plan.gpus_per_learner or 1) if on_cuda else plan.gpus_per_learner,
            custom_resources_per_learner={"memory": run.memory.learner_bytes} if run.memory.learner_bytes else {},
        )
        .training(**plan.settings)
        .rl_module(rl_module_spec=_module(run, plan, observation_space, action_space))
        .fault_tolerance(
            restart_failed_env_runners=True,
            max_num_env_runner_restarts=MOST_RESTARTS,
            delay_between_env_runner_restarts_s=1.0,
            env_runner_health_probe_timeout_s=PROBE_S,
            env_runner_restore_timeout_s=RESTORE_S,
        )
        .callbacks(on_episode_end=log_episode)
        .debugging(seed=run.seed, log_level="WARN")
    )
    if plan.algo == "PPO":
        config.reporting(min_time_s_per_iteration=None, min_sample_timesteps_per_iteration=None)
        asked = {"normalize_advantage": plan.normalize_advantage}
        config.learners(learner_class=Sb3PPOLearner, learner_config_dict=asked)
    else:
        config.reporting(min_time_s_per_iteration=ITERATION_S, min_sample_timesteps_per_iteration=0)
    return config


def _module(run: Run, plan: RllibPlan, observation: spaces.Space[Any], action: spaces.Space[Any]) -> RLModuleSpec:
    facts = {"run": run.model_dump(), "masked": plan.masked, "minibatch_size": plan.minibatch_size}
    if plan.algo == "DQN":
        facts |= {name: plan.settings[name] for name in ("double_q", "epsilon")}
    return RLModuleSpec(
        module_class=MODULES[plan.algo], observation_space=observation, action_space=action, model_config=facts
    )


@contextmanager
def building(folder: Path, runner_nbytes: int | None) -> Iterator[None]:
    """Have what RLlib builds meanwhile use a folder of ours, and not ~/ray_results; runners ask for memory."""
    module: Any = trainable  # which imports the name for itself only

    class Asking(EnvRunnerGroup):
        def _make_worker(self, *, env_creator: EnvCreator, **kwargs: Any) -> Any:
            if runner_nbytes is not None:  # so that Ray places them where they fit
                self._remote_args["memory"] = runner_nbytes
            return super()._make_worker(env_creator=env_creator, **kwargs)

    with (
        mock.patch.object(module, "DEFAULT_STORAGE_PATH", str(folder)),
        mock.patch.object(rllib_algorithm, "EnvRunnerGroup", Asking),
    ):
        yield
