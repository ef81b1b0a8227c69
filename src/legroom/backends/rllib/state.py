"""The state of an RLlib algorithm as arrays and JSON: networks, optimizers, schedules and counters; and back.

RLlib's own checkpoints are pickles. Its `get_state`, though, is plain data, so it is taken apart as an environment's
state is. What it does not hold is on the runners: environments begin new episodes, and draw new random numbers. A
resume is therefore approximate, whatever the algorithm; a replay buffer, too, starts anew and is filled first.
"""

from typing import Any

import numpy as np
from ray.rllib.core import DEFAULT_MODULE_ID

from legroom.backends.rllib.modules import unmasked_space
from legroom.backends.sb3.state_envs import describe_space
from legroom.errors import BadInput
from legroom.model.learner import SavedState
from legroom.training.arrays import NotPlain, put_together, take_apart
from legroom.training.checkpoint import parameters_sha256

WHY_NOT_EXACT = "environments on Ray's runners begin new episodes, with new random numbers"
WHY_NOT_EXACT_REPLAY = f"{WHY_NOT_EXACT}, and the replay buffer is filled again"
_PREFIX = "policy."  # of the module's parameters: what follows is SB3's name


def capture(algorithm: Any) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays and all else of the algorithm's state.

    Raises:
        BadInput: a state that is not plain data.
    """
    state = algorithm.get_state()
    learner = dict(state["learner_group"]["learner"])
    arrays = {f"policy/{name}": array for name, array in _named(learner.pop("rl_module")).items()}
    policy = algorithm.config.rl_module_spec
    masked = bool(policy.model_config["masked"])
    seen = {"observation": unmasked_space(policy.observation_space, masked), "action": policy.action_space}
    try:
        data = {
            "spaces": take_apart({kind: describe_space(space) for kind, space in seen.items()}, "spaces", arrays),
            "optimizers": take_apart(learner.pop("optimizer"), "optimizer", arrays),
            "rllib": take_apart(state | {"learner_group": {"learner": learner}}, "rllib", arrays),
        }
    except NotPlain as error:
        raise BadInput(f"RLlib's state cannot be kept: {error}") from error
    return arrays, data


def restore(algorithm: Any, checkpoint: SavedState) -> None:
    """Put the algorithm where the checkpoint was captured, on all its runners and learners.

    Raises:
        BadInput: the checkpoint is of another algorithm or network.
    """
    try:
        arrays = {
            f"{group}/{name}": a for group in ("optimizer", "rllib") for name, a in checkpoint.tensors(group).items()
        }
        state = put_together(checkpoint.data["rllib"], arrays)
        module = {_PREFIX + name: array for name, array in checkpoint.tensors("policy").items()}
        state["learner_group"]["learner"] |= {
            "rl_module": {DEFAULT_MODULE_ID: module},
            "optimizer": put_together(checkpoint.data["optimizers"], arrays),
        }
        algorithm.set_state(state)
    except (KeyError, ValueError, RuntimeError, AttributeError) as error:
        raise BadInput(
            f"belongs to another algorithm: {error}",
            path=checkpoint.path,
            hint="resume with the run it was started with",
        ) from error
    algorithm.env_runner_group.sync_weights(
        from_worker_or_learner_group=algorithm.learner_group, policies=[DEFAULT_MODULE_ID], inference_only=True
    )


def policy_arrays(algorithm: Any) -> dict[str, np.ndarray]:
    """Return the parameters of policy and value function, by SB3's names."""
    state = algorithm.learner_group.get_state(components="learner/rl_module")
    return _named(state["learner"]["rl_module"])


def parameters_hash(algorithm: Any) -> str:
    return parameters_sha256(policy_arrays(algorithm))


def _named(modules: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name.removeprefix(_PREFIX): np.asarray(a) for name, a in modules[DEFAULT_MODULE_ID].items()}
