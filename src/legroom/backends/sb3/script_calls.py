"""The parts of an SB3 script that rules speak about: models, their `learn` calls, and callbacks."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from legroom.backends.sb3.script_envs import library_class, n_envs_of
from legroom.backends.sb3.signatures import algorithm_named
from legroom.reading.interpreter.script import Script, argument

CALLBACKS = frozenset({
    "EvalCallback", "CheckpointCallback", "CallbackList", "EveryNTimesteps", "ProgressBarCallback",
    "LogEveryNTimesteps", "StopTrainingOnRewardThreshold", "StopTrainingOnMaxEpisodes", "ConvertCallback",
    "StopTrainingOnNoModelImprovement", "MaskableEvalCallback", "WandbCallback", "BaseCallback", "EventCallback",
})  # fmt: skip
_CALLBACK_PACKAGES = ("stable_baselines3", "sb3_contrib", "wandb")


@dataclass(frozen=True)
class ModelCall:
    """A constructor call of an SB3 algorithm."""

    call: ast.Call
    algorithm: str
    env: ast.expr | None


def trains(script: Script) -> bool:
    """Return whether the script calls `learn` of something and imports the library."""
    if not (script.imports("stable_baselines3") or script.imports("sb3_contrib")):
        return False
    return any(isinstance(call.func, ast.Attribute) and call.func.attr == "learn" for call in script.calls)


def is_algorithm(script: Script, node: ast.expr | None) -> str | None:
    """Return the SB3 algorithm that `node` names; None when it is something else."""
    name = library_class(script, node)
    return algorithm_named(name) if name else None


def model_calls(script: Script) -> Iterator[ModelCall]:
    """Yield the models that the script makes, new (`PPO("MlpPolicy", env)`) or from a file (`PPO.load(path, env)`)."""
    for call in script.calls:
        algorithm = is_algorithm(script, call.func)
        if algorithm is not None:
            yield ModelCall(call, algorithm, argument(call, "env", 1))
        elif isinstance(call.func, ast.Attribute) and call.func.attr == "load":
            algorithm = is_algorithm(script, call.func.value)
            if algorithm is not None and argument(call, "env", 1) is not None:
                yield ModelCall(call, algorithm, argument(call, "env", 1))


def training_envs(script: Script) -> set[int | None]:
    """Return how many environments the models of the script train on; None stands for one that is not known."""
    return {n_envs_of(script, model.env) for model in model_calls(script)}


def learn_calls(script: Script) -> Iterator[ast.Call]:
    """Yield the calls of `.learn(...)`."""
    for call in script.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "learn":
            yield call


def callback_name(script: Script, node: ast.expr | None) -> str | None:
    """Return the name of the SB3 callback class that `node` means: a library's own or one that derives from it."""
    name = script.qualified(node)
    if name is not None and name.partition(".")[0] in _CALLBACK_PACKAGES:
        last = name.rpartition(".")[2]
        return last if last in CALLBACKS else None
    definition = script.definition(node)
    if definition is None:
        return None
    other, cls = definition
    if not isinstance(cls, ast.ClassDef):
        return None
    if any(b.partition(".")[0] in _CALLBACK_PACKAGES and b.rpartition(".")[2] in CALLBACKS for b in other.bases(cls)):
        return cls.name
    return None
