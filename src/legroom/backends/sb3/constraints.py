"""What SB3 and sb3-contrib refuse or do differently from what a run file seems to say, and what they do not read.

Each function mirrors one assertion of the library, so that the user meets a sentence instead of a bare AssertionError.
"""

from collections.abc import Iterator

from legroom.backends.base import algorithm_of, hyper
from legroom.backends.sb3.stored import MICRO_BATCHED, storage_said
from legroom.errors import BadInput
from legroom.model.facts import spaces_of
from legroom.model.footprint import Finding
from legroom.model.run import Run
from legroom.model.spaces import BoxSpace, DictSpace, MultiDiscreteSpace
from legroom.storing.core import WAY_OUT, WHY_NOT

ONLY_IN_PIECES = f"only {', '.join(MICRO_BATCHED)} on SB3 update in pieces"
# What each SB3 algorithm takes as actions; `supported_action_spaces` in stable-baselines3 2.9.2 and sb3-contrib 2.9.
_ACTIONS = {
    **dict.fromkeys(("DQN", "QRDQN"), ("discrete",)),
    "DoubleDQN": ("discrete", "multidiscrete"),
    **dict.fromkeys(("SAC", "TD3", "DDPG", "TQC", "CrossQ"), ("box",)),
    "MaskablePPO": ("discrete", "multidiscrete", "multibinary"),
    "ARS": ("box", "discrete"),
}


def constraints(run: Run) -> Iterator[Finding]:
    """Yield all that SB3 would refuse, or do differently, about the run."""
    for rule in (space_rules, rollout_rules, replay_rules):
        yield from rule(run)


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
    parts = observation.spaces.values() if isinstance(observation, DictSpace) else (observation,)
    if any(isinstance(part, BoxSpace) and not part.shape for part in parts) and not run.policy.features_extractor:
        yield Finding(
            "LR004", "policy-does-not-match", "error",
            "SB3's policies cannot flatten an observation of shape (), a single number without a dimension",
            hint="give the Box the shape (1,)", path=run.source,
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
            f"{rollout:,} samples are not a multiple of batch_size {batch:,}; "
            f"the last minibatch has {rollout % batch:,}",
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


def unread_memory(run: Run) -> dict[str, tuple[str, str]]:
    """Return the keys of `memory` that such a run does not read: what is to be said of each, and the way out."""
    algorithm, found = algorithm_of(run), {}
    for key, family in (("rollout", "on-policy"), ("replay", "off-policy")):
        if algorithm.family != family:
            found[key] = (f"memory.{key} has no effect with {algorithm.name}, which has no such buffer", "")
    if algorithm.name not in MICRO_BATCHED:
        found["micro_batch"] = (f"memory.micro_batch has no effect with {algorithm.name}", ONLY_IN_PIECES)
    if WHY_NOT and storage_said(run) == "lean":
        kind = "rollout" if algorithm.family == "on-policy" else "replay"
        found[kind] = (f"memory.{kind}: {WHY_NOT}: observations are stored plainly", WAY_OUT)
    if WHY_NOT or storage_said(run) == "plain":
        for key in ("max_bytes", "spill_dir"):
            found[key] = (f"memory.{key} has no effect on plain storage: only lean storage spills", "")
    return found | unread_by_torch(run)


def refuse_untrainable(run: Run) -> None:
    """Refuse knobs that training cannot turn: better than silently not done.

    Raises:
        BadInput: with the way out.
    """
    if run.memory.xla_preallocate:
        raise BadInput("memory.xla_preallocate cannot be trained with yet", path=run.source, hint="remove it")
    name = algorithm_of(run).name
    if run.memory.micro_batch is not None and name not in MICRO_BATCHED:
        raise BadInput(f"{name} has no micro_batch: {ONLY_IN_PIECES}", path=run.source, hint="remove it")


def unread_by_torch(run: Run) -> dict[str, tuple[str, str]]:
    """Return the same for the keys that are XLA's, whichever library trains with torch."""
    return {"xla_preallocate": (f"memory.xla_preallocate has no effect with backend {run.backend}", "")}
