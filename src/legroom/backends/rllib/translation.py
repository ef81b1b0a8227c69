"""What a run means on RLlib: SB3's settings translated, and every difference of meaning said.

A run keeps SB3's names and defaults, and its networks; RLlib's own words in a run file say only where its processes are
(`PLACEMENT`). Nothing here imports Ray: predicting needs the numbers as much as training does.

Mirrors PPOConfig, DQNConfig and SACConfig of ray 2.60 and the constructors of stable-baselines3 2.9.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from legroom.backends.base import algorithm_of, hyper
from legroom.backends.sb3.vocabulary import VOCABULARY as SB3
from legroom.errors import BadInput
from legroom.model.run import Run

RllibAlgo = Literal["PPO", "DQN", "SAC"]
ALGOS: Mapping[str, RllibAlgo] = {
    "PPO": "PPO", "MaskablePPO": "PPO", "DQN": "DQN", "DoubleDQN": "DQN", "SAC": "SAC",
}  # fmt: skip
# How many processes there are, and what each of them has.
PLACEMENT = frozenset({
    "num_env_runners", "num_envs_per_env_runner", "num_cpus_per_env_runner", "num_learners", "num_gpus_per_learner",
    "num_cpus_per_learner",
})  # fmt: skip
VOCABULARY = replace(
    SB3,
    names={name: ("hyperparams", name) for name in PLACEMENT},
    moved={("hyperparams", "seed"): ("seed",)},
    hyperparams=PLACEMENT,
    layers=(),
    sizes=SB3.sizes | {"num_envs_per_env_runner"},
    counts={**SB3.counts, "num_env_runners": 0, "num_learners": 0},
)
LEAST_ROUND = 32  # env steps collected between two updates from replay: every round is a call to every runner

# Savings that legroom has for SB3's trainings alone.
SB3_KNOBS = ("rollout", "replay", "micro_batch", "activation_checkpointing", "bf16", "max_bytes")
# SB3's settings that need no word because nothing in RLlib would read them.
_SILENT = frozenset({"verbose", "tensorboard_log", "stats_window_size", "_init_setup_model", "sde_sample_freq"})


@dataclass(frozen=True)
class RllibPlan:
    """A run as RLlib will train it."""

    algo: RllibAlgo
    masked: bool
    runners: int  # env runner actors; 0: the environments are in the training process
    envs_per_runner: int
    learners: int
    train_batch_size: int  # steps per update of all learners together; off-policy: transitions drawn per update
    minibatch_size: int  # of PPO; off-policy: the whole batch, once
    num_epochs: int
    replay_capacity: int | None  # transitions, None for PPO
    rollout_fragment_length: int  # steps that one env makes per call of its runner
    updates_per_round: int  # off-policy: updates after each such call of all runners
    settings: dict[str, Any]  # arguments of `config.training()`
    said: tuple[str, ...]  # every difference of meaning, in sentences
    cpus_per_runner: float
    cpus_per_learner: float
    gpus_per_learner: float
    normalize_advantage: bool = True  # of PPO, which RLlib has no setting for

    @property
    def n_envs(self) -> int:
        return max(self.runners, 1) * self.envs_per_runner

    @property
    def steps_per_round(self) -> int:
        """Env steps that one call of all runners makes."""
        return self.rollout_fragment_length * self.n_envs


def rllib_plan(run: Run) -> RllibPlan:
    """Return the run as RLlib will train it; the run's backend need not be rllib yet.

    Raises:
        BadInput: RLlib has no such algorithm, or a setting cannot be kept and its loss would not be harmless.
    """
    algo = ALGOS.get(run.algo)
    if algo is None:
        raise BadInput(
            f"{run.algo} cannot be trained with backend rllib",
            path=run.source,
            hint=f"{', '.join(ALGOS)} can; backend: sb3 trains {run.algo} on one machine",
        )
    if run.env.normalize:
        raise BadInput(
            "env.normalize keeps running statistics in one process, and RLlib's runners are many", path=run.source,
            hint="remove it, or put a gymnasium wrapper into env.wrappers",
        )  # fmt: skip
    if hyper(run, "use_sde"):
        raise BadInput("use_sde has no counterpart on RLlib", path=run.source, hint="remove it")
    for key, default in algorithm_of(run).defaults.items():
        if isinstance(default, int | float) and run.hyperparams.get(key, default) is None:
            raise BadInput(f"hyperparams.{key} is null, and RLlib needs a value", path=run.source, hint=f"{default}")
    given = run.hyperparams
    said: list[str] = []
    runners, envs_per_runner = _runners(run, said)
    if run.env.frame_stack and run.env.frame_stack > 1 and run.algo == "SAC":
        said.append(f"frames are stacked in each environment, {run.env.frame_stack} at a time")
    parts = {"PPO": _ppo, "DQN": _dqn, "SAC": _sac}[algo](run, runners, envs_per_runner, said)
    learners = int(given.get("num_learners", 0))
    parts["settings"]["train_batch_size_per_learner"] = -(-parts["train_batch_size"] // max(learners, 1))
    if run.eval is not None:
        said.append("eval is left out: the score is that of the last episodes of training")
    knobs = [f"memory.{knob}" for knob in SB3_KNOBS if getattr(run.memory, knob) not in (None, "plain", False)]
    if knobs:
        said.append(f"{', '.join(knobs)} have no effect: they apply to SB3 trainings only")
    unread = sorted(set(given) - SB3_KEYS[algo] - PLACEMENT - _SILENT)
    said += [f"{key} has no counterpart on RLlib and is left out" for key in unread]
    return RllibPlan(
        algo=algo,
        masked=algorithm_of(run).masked,
        runners=runners,
        envs_per_runner=envs_per_runner,
        learners=learners,
        said=tuple(said),
        cpus_per_runner=given.get("num_cpus_per_env_runner", 1),
        cpus_per_learner=given.get("num_cpus_per_learner", 1),
        gpus_per_learner=given.get("num_gpus_per_learner", 0),
        **parts,
    )


def _runners(run: Run, said: list[str]) -> tuple[int, int]:
    """Return how many runners there are and how many environments each has."""
    env, given = run.env, run.hyperparams
    runners, each = given.get("num_env_runners"), given.get("num_envs_per_env_runner")
    if runners is None and each is None and env.workers == "dummy" and env.envs_per_worker == 1:
        if env.n_envs > 1:
            said.append(
                f"all {env.n_envs} environments are in one runner, as workers: dummy has them in one process; "
                "num_env_runners spreads them"
            )
        return 1, env.n_envs
    if runners is None:
        each = int(each or env.envs_per_worker)
        runners = -(-env.n_envs // each)
    elif each is None:
        each = -(-env.n_envs // max(int(runners), 1))
    runners, each = int(runners), int(each)
    made = max(runners, 1) * each
    if made != env.n_envs:
        said.append(
            f"{max(runners, 1)} {'runners' if runners > 1 else 'runner'} of {each} make {made:,} environments, not "
            f"the {env.n_envs:,} of env.n_envs: every runner has as many as the others"
        )
    return runners, each


_PPO_KEYS = frozenset({
    "learning_rate", "n_steps", "batch_size", "n_epochs", "gamma", "gae_lambda", "clip_range", "clip_range_vf",
    "normalize_advantage", "ent_coef", "vf_coef", "max_grad_norm", "use_sde",
})  # fmt: skip
_OFF_KEYS = frozenset({
    "learning_rate", "buffer_size", "learning_starts", "batch_size", "tau", "gamma", "train_freq", "gradient_steps",
    "target_update_interval", "optimize_memory_usage", "n_steps", "use_sde",
})  # fmt: skip
SB3_KEYS: Mapping[RllibAlgo, frozenset[str]] = {
    "PPO": _PPO_KEYS,
    "DQN": _OFF_KEYS | {
        "exploration_fraction", "exploration_initial_eps", "exploration_final_eps", "max_grad_norm", "double",
        "priority_alpha", "priority_beta", "priority_eps",
    },
    "SAC": _OFF_KEYS | {"ent_coef", "target_entropy"},
}  # fmt: skip


# RLlib's word -> SB3's, for the same number.
_SAME_IN_PPO = {
    "gamma": "gamma", "lambda_": "gae_lambda", "entropy_coeff": "ent_coef", "vf_loss_coeff": "vf_coef",
    "grad_clip": "max_grad_norm",
}  # fmt: skip


def _ppo(run: Run, runners: int, envs_per_runner: int, said: list[str]) -> dict[str, Any]:
    n_steps, batch_size = int(hyper(run, "n_steps")), int(hyper(run, "batch_size"))
    rollout = n_steps * max(runners, 1) * envs_per_runner
    minibatch = min(batch_size, rollout)
    told: list[str] = []
    clip = _constant("clip_range", hyper(run, "clip_range"), told)
    remarks = (
        (batch_size > rollout,
         f"batch_size {batch_size:,} is more than the rollout of {rollout:,}: minibatches have {rollout:,}"),
        (rollout % minibatch,
         f"{rollout:,} steps are not a multiple of minibatches of {minibatch:,}: RLlib fills the last one of the "
         "epochs with repeated steps, where SB3 has a smaller one in every epoch"),
        (run.hyperparams.get("clip_range_vf") is not None,
         "clip_range_vf is left out: RLlib clips the squared error of the value, SB3 its change"),
        (not hyper(run, "normalize_advantage"),
         "normalize_advantage: false is left out: RLlib always standardises advantages, over the rollout"),
    )  # fmt: skip
    said += [text for holds, text in remarks if holds] + told
    settings = {word: hyper(run, sb3) for word, sb3 in _SAME_IN_PPO.items()} | {
        "lr": _lr(run, hyper(run, "learning_rate")), "clip_param": clip, "grad_clip_by": "global_norm",
        "use_kl_loss": False, "kl_coeff": 0.0, "vf_clip_param": math.inf,  # which SB3's loss does not have
    }  # fmt: skip
    epochs = int(hyper(run, "n_epochs"))
    return {
        "train_batch_size": rollout,
        "minibatch_size": minibatch,
        "num_epochs": epochs,
        "replay_capacity": None,
        "rollout_fragment_length": n_steps,
        "updates_per_round": 0,
        "settings": settings | {"minibatch_size": minibatch, "num_epochs": epochs},
        "normalize_advantage": bool(hyper(run, "normalize_advantage")),
    }


def _dqn(run: Run, runners: int, envs_per_runner: int, said: list[str]) -> dict[str, Any]:
    parts = _off_policy(run, runners, envs_per_runner, said)
    settings = parts["settings"]
    double = run.algo == "DoubleDQN"
    fraction, total = float(hyper(run, "exploration_fraction")), run.total_timesteps or 0
    decay = max(round(fraction * total), 1)
    settings |= {
        "lr": _lr(run, hyper(run, "learning_rate")),
        "double_q": double and bool(hyper(run, "double")),
        "dueling": False,
        "epsilon": [[0, hyper(run, "exploration_initial_eps")], [decay, hyper(run, "exploration_final_eps")]],
        "grad_clip": hyper(run, "max_grad_norm"),
        "grad_clip_by": "global_norm",
        "target_network_update_freq": int(hyper(run, "target_update_interval")),
    }
    if double:
        settings["replay_buffer_config"] |= {
            "type": "PrioritizedEpisodeReplayBuffer",
            "alpha": float(hyper(run, "priority_alpha")),
            "beta": _constant("priority_beta", hyper(run, "priority_beta"), said),
        }
    return parts


def _sac(run: Run, runners: int, envs_per_runner: int, said: list[str]) -> dict[str, Any]:
    parts = _off_policy(run, runners, envs_per_runner, said)
    settings, rate = parts["settings"], _lr(run, hyper(run, "learning_rate"))
    ent_coef, interval = hyper(run, "ent_coef"), int(hyper(run, "target_update_interval"))
    if isinstance(ent_coef, str):
        _, _, first = ent_coef.partition("_")
        alpha, alpha_lr = float(first or 1.0), rate
    else:
        alpha, alpha_lr = float(ent_coef), 0.0
    steps_per_update = parts["rollout_fragment_length"] * max(runners, 1) * envs_per_runner / parts["updates_per_round"]
    if interval > 1:
        said.append(
            f"target_update_interval counts gradient steps in SB3 and env steps in RLlib: {interval:,} of them are "
            f"{round(interval * steps_per_update):,} steps"
        )
    critics = int(run.policy.kwargs.get("n_critics", 2))
    if critics > 2:
        raise BadInput(f"RLlib's SAC has one critic or two, not {critics}", path=run.source, hint="n_critics: 2")
    if int(hyper(run, "learning_starts")):
        said.append("before learning_starts RLlib acts by its initial policy, SB3 at random")
    settings |= {
        "actor_lr": rate,
        "critic_lr": rate,
        "alpha_lr": alpha_lr,
        "initial_alpha": alpha,
        "target_entropy": hyper(run, "target_entropy"),
        "target_network_update_freq": 0 if interval == 1 else round(interval * steps_per_update),
        "twin_q": critics == 2,
    }
    said.append("RLlib's critics learn with Huber's loss, SB3's with the squared error")
    return parts


def _off_policy(run: Run, runners: int, envs_per_runner: int, said: list[str]) -> dict[str, Any]:
    """Return what DQN and SAC share: replay, and how much is learned per step.

    RLlib alternates rounds: every env makes `rollout_fragment_length` steps, then there are so many updates. The number
    of updates follows from `training_intensity` by a formula that counts one runner more than there are
    (`calculate_rr_weights`), so the intensity is chosen to give back the number that was meant.
    """
    n_envs, batch_size = max(runners, 1) * envs_per_runner, int(hyper(run, "batch_size"))
    train_freq = hyper(run, "train_freq")
    if isinstance(train_freq, list | tuple):
        if train_freq[1] != "step":
            raise BadInput(
                "train_freq in episodes has no counterpart on RLlib", path=run.source, hint="count it in steps"
            )
        train_freq = train_freq[0]
    gradient_steps = int(hyper(run, "gradient_steps"))
    if gradient_steps == -1:
        gradient_steps = int(train_freq) * n_envs
    times = max(-(-LEAST_ROUND // (int(train_freq) * n_envs)), 1)
    fragment, updates = int(train_freq) * times, max(gradient_steps, 1) * times
    if times > 1:
        said.append(
            f"a round is {fragment * n_envs:,} env steps and {updates:,} updates, where SB3 alternates "
            f"{int(train_freq) * n_envs:,} and {gradient_steps:,}: as many in all, and fewer calls between processes"
        )
    n_step = int(hyper(run, "n_steps") or 1)
    capacity = int(hyper(run, "buffer_size"))
    if hyper(run, "optimize_memory_usage"):
        said.append("optimize_memory_usage needs no setting: RLlib's episodes have every observation once")
    settings = {
        "gamma": hyper(run, "gamma"),
        "tau": float(hyper(run, "tau")),
        "n_step": n_step,
        "replay_buffer_config": {"type": "EpisodeReplayBuffer", "capacity": capacity},
        "num_steps_sampled_before_learning_starts": int(hyper(run, "learning_starts")),
        "training_intensity": updates * batch_size / (fragment * envs_per_runner * (runners + 1)),
    }
    said.append("replay is one buffer of whole episodes in the training process, for any number of environments")
    return {
        "train_batch_size": batch_size,
        "minibatch_size": batch_size,
        "num_epochs": 1,
        "replay_capacity": capacity,
        "rollout_fragment_length": max(fragment, n_step),
        "updates_per_round": updates,
        "settings": settings,
    }


def _lr(run: Run, value: Any) -> Any:
    """Return a learning rate, or RLlib's schedule for `lin_X`: linear in env steps, to 0 at the end of training."""
    if not isinstance(value, str):
        return value
    kind, _, start = value.partition("_")
    if not kind.startswith("lin"):
        return float(start)
    if run.total_timesteps is None:
        raise BadInput(f"learning_rate {value} needs total_timesteps", path=run.source, hint="set total_timesteps")
    return [[0, float(start)], [run.total_timesteps, 0.0]]


def _constant(name: str, value: Any, said: list[str]) -> float:
    if not isinstance(value, str):
        return float(value)
    start = float(value.partition("_")[2])
    if value.startswith("lin"):
        said.append(f"{name} stays {start:g}: RLlib has no schedule for it, {value} would end at 0")
    return start
