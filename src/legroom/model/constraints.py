"""The libraries' own rules about a run: what they would refuse or do differently from what the file seems to say.

`predict` shows them beside the footprint, `fit` must satisfy them, `train` refuses what breaks them. Each function
mirrors one assertion of the library it names, so that the user meets a sentence instead of a bare AssertionError.
"""

from __future__ import annotations

from collections.abc import Iterator

from legroom.model.algorithms import ALGORITHMS
from legroom.model.facts import algorithm_of, hyper, spaces_of
from legroom.model.finding import Finding
from legroom.model.run import Run
from legroom.model.spaces import BoxSpace, DictSpace

# What each SB3 algorithm takes as actions; `supported_action_spaces` in stable-baselines3 2.9.2 and sb3-contrib 2.9.
_ACTIONS = {
    **dict.fromkeys(("DQN", "QRDQN"), ("discrete",)),
    **dict.fromkeys(("SAC", "TD3", "DDPG", "TQC", "CrossQ"), ("box",)),
    "MaskablePPO": ("discrete", "multidiscrete", "multibinary"),
    "ARS": ("box", "discrete"),
}


def broken_rules(run: Run) -> list[Finding]:
    """Return what is wrong with the run, errors first."""
    rules = (brax_rules,) if run.backend == "brax" else (space_rules, rollout_rules, replay_rules)
    findings = [finding for rule in (*rules, no_effect) for finding in rule(run)]
    order = ("error", "warning", "info")
    return sorted(findings, key=lambda finding: order.index(finding.severity))


def brax_rules(run: Run) -> Iterator[Finding]:
    """`batch_size * num_minibatches % num_envs == 0` (brax/training/agents/ppo/train.py, no message there)."""
    if run.algo.upper() != "PPO":
        return
    batch, minibatches, envs = hyper(run, "batch_size"), hyper(run, "num_minibatches"), run.env.n_envs
    if batch * minibatches % envs:
        better = nearest_minibatches(batch, minibatches, envs)
        yield Finding(
            "LR002", "brax-divisibility", "error",
            f"brax PPO asserts batch_size × num_minibatches % num_envs == 0; here {batch} × {minibatches} = "
            f"{batch * minibatches} is not a multiple of {envs}",
            hint=f"num_minibatches {better} gives {batch} × {better} = {batch * better}",
            path=run.source, fix={"hyperparams.num_minibatches": better},
        )  # fmt: skip


def nearest_minibatches(batch: int, minibatches: int, envs: int) -> int:
    """Return the number of minibatches closest to `minibatches` that brax accepts; the larger of two as close."""
    from math import gcd

    step = envs // gcd(envs, batch)
    below = minibatches // step * step
    above = below + step
    return above if below == 0 or above - minibatches <= minibatches - below else below


def space_rules(run: Run) -> Iterator[Finding]:
    """What SB3's constructors assert about spaces and policies."""
    observation, action = spaces_of(run)
    allowed = _ACTIONS.get(algorithm_of(run).name)
    if allowed and action.type not in allowed:
        yield Finding(
            "LR003", "unsupported-actions", "error",
            f"{run.algo} takes {' or '.join(allowed)} actions, the environment has {action.type}",
            hint="choose another algorithm", path=run.source,
        )  # fmt: skip
    if isinstance(observation, DictSpace) and run.policy.name in ("MlpPolicy", "CnnPolicy"):
        yield Finding(
            "LR004", "policy-does-not-match", "error",
            f"SB3 takes no {run.policy.name} for a dict observation", hint="policy: {name: MultiInputPolicy}",
            path=run.source, fix={"policy.name": "MultiInputPolicy"},
        )  # fmt: skip
    if run.policy.name == "CnnPolicy" and isinstance(observation, BoxSpace) and not run.policy.features_extractor:
        image = len(observation.shape) == 3 and (
            observation.dtype == "uint8" or run.policy.kwargs.get("normalize_images") is False
        )
        if not image:
            yield Finding(
                "LR004", "policy-does-not-match", "error",
                f"CnnPolicy needs an image (3 axes, uint8); the observation is {observation.shape} {observation.dtype}",
                hint="MlpPolicy, or a features_extractor of your own", path=run.source,
            )  # fmt: skip


def rollout_rules(run: Run) -> Iterator[Finding]:
    """What PPO says about rollout and minibatch size (stable_baselines3/ppo/ppo.py)."""
    if algorithm_of(run).family != "on-policy" or "batch_size" not in algorithm_of(run).defaults:
        return
    rollout, batch = hyper(run, "n_steps") * run.env.n_envs, hyper(run, "batch_size")
    if rollout == 1 and hyper(run, "normalize_advantage"):
        yield Finding(
            "LR005", "rollout-too-small", "error",
            "n_steps × n_envs = 1, and one sample cannot be normalised", hint="n_steps of at least 2", path=run.source,
        )  # fmt: skip
    elif batch > rollout:
        yield Finding(
            "LR006", "minibatch-exceeds-rollout", "warning",
            f"batch_size {batch:,} is over the rollout of {rollout:,} samples; minibatches have {rollout:,}",
            hint=f"batch_size {rollout}", path=run.source, fix={"hyperparams.batch_size": rollout},
        )  # fmt: skip
    elif rollout % batch:
        yield Finding(
            "LR007", "minibatch-does-not-divide", "warning",
            f"{rollout:,} samples are no multiple of batch_size {batch:,}; the last minibatch has {rollout % batch:,}",
            hint="a batch_size that divides n_steps × n_envs", path=run.source,
        )  # fmt: skip


def replay_rules(run: Run) -> Iterator[Finding]:
    """What SB3's replay buffers refuse (stable_baselines3/common/buffers.py)."""
    if algorithm_of(run).family != "off-policy" or not hyper(run, "optimize_memory_usage"):
        return
    kwargs = hyper(run, "replay_buffer_kwargs") or {}
    if isinstance(spaces_of(run)[0], DictSpace):
        yield Finding(
            "LR008", "optimize-memory-refused", "error", "SB3 refuses optimize_memory_usage for dict observations",
            hint="remove it", path=run.source, fix={"hyperparams.optimize_memory_usage": False},
        )  # fmt: skip
    elif not isinstance(kwargs, dict) or kwargs.get("handle_timeout_termination", True):
        yield Finding(
            "LR008", "optimize-memory-refused", "error",
            "SB3 refuses optimize_memory_usage together with timeout handling",
            hint="replay_buffer_kwargs: {handle_timeout_termination: false}", path=run.source,
        )  # fmt: skip


def no_effect(run: Run) -> Iterator[Finding]:
    """Keys that another algorithm of the backend takes and this one does not."""
    algorithm = algorithm_of(run)
    for key in run.hyperparams:
        if key not in algorithm.keys:
            takers = [a.name for a in ALGORITHMS if a.backend == algorithm.backend and key in a.defaults]
            yield Finding(
                "LR009", "no-effect", "warning", f"{key} has no effect with {algorithm.name}",
                hint=f"it belongs to {', '.join(takers)}" if takers else "remove it", path=run.source,
            )  # fmt: skip
