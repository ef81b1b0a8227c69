"""The libraries' own rules about a run: what they would refuse or do differently from what the file seems to say.

`predict` shows them beside the footprint, `fit` must satisfy them, `train` refuses what breaks them. Each function
mirrors one assertion of the library it names, so that the user meets a sentence instead of a bare AssertionError.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from legroom.backends.base import algorithm_of, all_algorithms, hyper
from legroom.backends.brax.constraints import BRAX_RULES
from legroom.backends.sb3.stored import MICRO_BATCHED
from legroom.model.facts import spaces_of
from legroom.model.finding import Finding
from legroom.model.run import Run
from legroom.model.spaces import BoxSpace, DictSpace, MultiDiscreteSpace

# What each SB3 algorithm takes as actions; `supported_action_spaces` in stable-baselines3 2.9.2 and sb3-contrib 2.9.
_ACTIONS = {
    **dict.fromkeys(("DQN", "QRDQN"), ("discrete",)),
    "DoubleDQN": ("discrete", "multidiscrete"),
    **dict.fromkeys(("SAC", "TD3", "DDPG", "TQC", "CrossQ"), ("box",)),
    "MaskablePPO": ("discrete", "multidiscrete", "multibinary"),
    "ARS": ("box", "discrete"),
}


def broken_rules(run: Run) -> list[Finding]:
    """Return what is wrong with the run, errors first."""
    rules = (brax_rules, *BRAX_RULES) if run.backend == "brax" else (space_rules, rollout_rules, replay_rules)
    findings = [finding for rule in (*rules, no_effect) for finding in rule(run)]
    order = ("error", "warning", "info")
    return sorted(findings, key=lambda finding: order.index(finding.severity))


def brax_rules(run: Run) -> Iterator[Finding]:
    """`batch_size * num_minibatches % num_envs == 0` (brax/training/agents/ppo/train.py, no message there)."""
    if run.algo.upper() != "PPO":
        return
    batch, minibatches, envs = hyper(run, "batch_size"), hyper(run, "num_minibatches"), run.env.n_envs
    if batch * minibatches % envs:
        key, better = least_mend(batch, minibatches, envs)
        product = f"{batch} × {better}" if key == "num_minibatches" else f"{better} × {minibatches}"
        product += f" = {(batch if key == 'num_minibatches' else minibatches) * better}"
        yield Finding(
            "LR002", "brax-divisibility", "error",
            f"brax PPO asserts batch_size × num_minibatches % num_envs == 0; here {batch} × {minibatches} = "
            f"{batch * minibatches} is not a multiple of {envs}",
            hint=f"{key} {better} gives {product}", path=run.source, fix={f"hyperparams.{key}": better},
        )  # fmt: skip


def least_mend(batch: int, minibatches: int, envs: int) -> tuple[str, int]:
    """Return which of the two to change, and to what, so that the data of an update changes least.

    `num_envs` stays as it is: it was chosen for the card.
    """
    more, larger = nearest_minibatches(batch, minibatches, envs), nearest_batch(batch, minibatches, envs)
    if abs(more - minibatches) * batch <= abs(larger - batch) * minibatches:
        return "num_minibatches", more
    return "batch_size", larger


def nearest_minibatches(batch: int, minibatches: int, envs: int) -> int:
    """Return the number of minibatches closest to `minibatches` that brax accepts; the larger of two as close."""
    return nearest_multiple(minibatches, envs // math.gcd(envs, batch))


def nearest_batch(batch: int, minibatches: int, envs: int) -> int:
    """Return the batch size closest to `batch` that brax accepts; the larger of two as close."""
    return nearest_multiple(batch, envs // math.gcd(envs, minibatches))


def nearest_envs(batch: int, minibatches: int, envs: int) -> int:
    """Return the number of environments closest to `envs` that brax accepts; the smaller of two as close."""
    product = batch * minibatches
    divisors = {d for i in range(1, math.isqrt(product) + 1) if product % i == 0 for d in (i, product // i)}
    return min(divisors, key=lambda d: (abs(d - envs), d))


def nearest_multiple(number: int, step: int) -> int:
    """Return the positive multiple of `step` closest to `number`; the larger of two as close."""
    below = number // step * step
    above = below + step
    return above if below == 0 or above - number <= number - below else below


def device_rule(run: Run, devices: int) -> Iterator[Finding]:
    """`num_envs % device_count == 0`, asserted by both of brax's algorithms; a run alone does not say the devices."""
    if run.backend == "brax" and run.env.n_envs % devices:
        better = nearest_multiple(run.env.n_envs, devices)
        yield Finding(
            "LR010", "brax-devices", "error",
            f"brax asserts num_envs % device_count == 0; {run.env.n_envs:,} environments are no multiple of "
            f"{devices} devices", hint=f"num_envs {better}", path=run.source, fix={"env.n_envs": better},
        )  # fmt: skip


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
    if algorithm_of(run).name == "DoubleDQN" and isinstance(action, MultiDiscreteSpace) and not _is_set(action):
        yield Finding(
            "LR003", "unsupported-actions", "error",
            f"{run.algo} reads multidiscrete actions as a set of K of n cells; nvec is {_short(action.nvec)}",
            hint="the same n K times, K at most n", path=run.source,
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


def _is_set(action: MultiDiscreteSpace) -> bool:
    return len(set(action.nvec)) == 1 and len(action.nvec) <= action.nvec[0]


def _short(nvec: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, nvec[:4]))
    return f"[{shown}, …]" if len(nvec) > 4 else f"[{shown}]"


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
    """Settings that nothing reads in such a run."""
    for _, message, hint in keys_without_effect(run):
        yield Finding("LR009", "no-effect", "warning", message, hint=hint, path=run.source)


def keys_without_effect(run: Run) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield (key path, what is wrong, the way out) for keys of another algorithm, backend or kind of buffer."""
    algorithm = algorithm_of(run)
    for key in run.hyperparams:
        if key not in algorithm.keys and run.backend != "rllib":
            takers = [a.name for a in all_algorithms() if a.backend == algorithm.backend and key in a.defaults]
            hint = f"it belongs to {', '.join(takers)}" if takers else "remove it"
            yield ("hyperparams", key), f"{key} has no effect with {algorithm.name}", hint
    yield from _memory_without_effect(run)
    if run.checkpoint and run.checkpoint.replay_buffer and algorithm.family != "off-policy":
        yield (
            ("checkpoint", "replay_buffer"),
            f"saving the replay buffer has no effect with {algorithm.name}, which has none: it neither costs memory "
            "nor time",
            "leave it out",
        )
    if run.env.start_method and run.env.workers == "dummy":
        yield ("env", "start_method"), "start_method has no effect with workers: dummy, which start no process", ""
    if run.env.envs_per_worker > 1 and run.env.workers != "light":
        hint = "workers: light"
        yield ("env", "envs_per_worker"), f"envs_per_worker has no effect with workers: {run.env.workers}", hint


def _memory_without_effect(run: Run) -> Iterator[tuple[tuple[str, ...], str, str]]:
    algorithm, memory = algorithm_of(run), run.memory
    on_sb3 = run.backend == "sb3"
    for knob, family in (("rollout", "on-policy"), ("replay", "off-policy")):
        if getattr(memory, knob) is not None and (algorithm.family != family or not on_sb3):
            where = algorithm.name if on_sb3 else f"{algorithm.name} on {run.backend}"
            yield ("memory", knob), f"memory.{knob} has no effect with {where}, which has no such buffer", ""
    if memory.micro_batch is not None and (algorithm.name not in MICRO_BATCHED or not on_sb3):
        hint = f"only {', '.join(MICRO_BATCHED)} on SB3 update in pieces"
        yield ("memory", "micro_batch"), f"memory.micro_batch has no effect with {algorithm.name}", hint
    stored = {"on-policy": memory.rollout, "off-policy": memory.replay}.get(algorithm.family)
    for knob in ("max_bytes", "spill_dir"):
        if getattr(memory, knob) is not None and on_sb3 and stored == "plain":
            yield ("memory", knob), f"memory.{knob} has no effect on plain storage: only lean storage spills", ""
    if memory.xla_preallocate is not None and run.backend != "brax":
        yield ("memory", "xla_preallocate"), f"memory.xla_preallocate has no effect with backend {run.backend}", ""
    if memory.env_chunk is not None and run.backend != "brax":
        hint = "workers share their environments by env.envs_per_worker"
        yield ("memory", "env_chunk"), f"memory.env_chunk has no effect with backend {run.backend}", hint
    if run.backend == "brax":
        for knob in ("expandable_segments", "max_split_size_mb", "empty_cache_every", "foreach"):
            if getattr(memory, knob) is not None:
                yield ("memory", knob), f"memory.{knob} is PyTorch's and has no effect with backend brax", ""
