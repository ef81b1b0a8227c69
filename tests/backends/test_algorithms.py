"""The table of algorithms says what the installed libraries' constructors say, so arithmetic needs no import."""

import inspect
from importlib import import_module

import pytest

from legroom.backends.base import all_algorithms
from legroom.model.facts import NEUTRAL, Algorithm

# Arguments that have places of their own in a Run.
ELSEWHERE = {"self", "policy", "env", "policy_kwargs", "device", "seed"}
BRAX_ELSEWHERE = {"environment", "num_timesteps", "num_envs", "num_eval_envs", "seed", "network_factory", "eval_env"}
BRAX_CALLABLES = {
    "wrap_env_fn", "randomization_fn", "progress_fn", "policy_params_fn", "save_checkpoint_path", "checkpoint_logdir",
    "restore_checkpoint_path", "restore_params",
}  # fmt: skip


@pytest.mark.parametrize("algorithm", [a for a in all_algorithms() if a.backend == "sb3"], ids=lambda a: a.name)
def test_defaults_are_the_constructors_own(algorithm: Algorithm) -> None:
    constructor = inspect.signature(getattr(import_module(algorithm.package), algorithm.name).__init__)
    own = {
        name: parameter.default for name, parameter in constructor.parameters.items() if name not in ELSEWHERE | NEUTRAL
    }
    assert dict(algorithm.defaults) == own


@pytest.mark.parametrize("algorithm", [a for a in all_algorithms() if a.backend == "brax"], ids=lambda a: a.name)
def test_brax_defaults_are_brax_own(algorithm: Algorithm) -> None:
    train = inspect.signature(import_module(algorithm.package + ".train").train)
    own = {
        name: None if parameter.default is inspect.Parameter.empty else parameter.default
        for name, parameter in train.parameters.items()
        if name not in BRAX_ELSEWHERE | BRAX_CALLABLES
    }
    assert dict(algorithm.defaults) == own
