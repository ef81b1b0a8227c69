"""What rules ask of an SB3 script: its models, `learn` calls and callbacks; its environments, how many and whose.

The call that makes an environment is its identity, whatever wraps it: two names with the same origin are the same
object, two calls of one helper are not. One that comes from code that is not followed is a value by itself.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from legroom.backends.sb3.signatures import algorithm_named
from legroom.reading.interpreter.gym_calls import Env
from legroom.reading.interpreter.known_values import text_of, values_of
from legroom.reading.interpreter.script import Script, argument
from legroom.reading.interpreter.values import Class, NotKnown

CALLBACKS = frozenset({
    "EvalCallback", "CheckpointCallback", "CallbackList", "EveryNTimesteps", "ProgressBarCallback",
    "LogEveryNTimesteps", "StopTrainingOnRewardThreshold", "StopTrainingOnMaxEpisodes", "ConvertCallback",
    "StopTrainingOnNoModelImprovement", "MaskableEvalCallback", "WandbCallback", "BaseCallback", "EventCallback",
})  # fmt: skip
_CALLBACK_PACKAGES = ("stable_baselines3", "sb3_contrib", "wandb")
PROCESSES = frozenset({"SubprocVecEnv", "AsyncVectorEnv"})
_LIBRARIES = ("stable_baselines3", "sb3_contrib", "gymnasium", "gym", "shimmy")


def library_class(script: Script, node: ast.expr | None) -> str | None:
    """Return the last name of a class of SB3, sb3-contrib or gymnasium that `node` means."""
    name = script.qualified(node)
    if name is None or name.partition(".")[0] not in _LIBRARIES or "." not in name:
        return None
    return name.rpartition(".")[2]


def n_envs_of(script: Script, node: ast.expr | None) -> int | None:
    counts = {env.n_envs if isinstance(env, Env) else None for env in values_of(script, node)}
    count = counts.pop() if len(counts) == 1 else None
    return count if isinstance(count, int) else None


def origins_of(script: Script, node: ast.expr | None) -> frozenset[int]:
    """Return the identities `node` can have; empty when not known."""
    values = [value for value in values_of(script, node) if value is not None]
    known = all(isinstance(value, Env | NotKnown) for value in values)
    return frozenset(id(env.origin if isinstance(env, Env) else env) for env in values if known)


def process_vec_envs(script: Script) -> Iterator[tuple[ast.Call, str]]:
    """Yield the calls that start a process per environment, with the class's name."""
    for call in script.calls:
        name = library_class(script, call.func)
        if name in PROCESSES:
            yield call, name
        elif name == "make_vec_env" and library_class(script, argument(call, "vec_env_cls", 6)) in PROCESSES:
            yield call, "SubprocVecEnv"
        elif name == "make_vec" and text_of(script, argument(call, "vectorization_mode", 2)) == "async":
            yield call, "AsyncVectorEnv"


def worker_classes(script: Script) -> Iterator[tuple[ast.Call, Script, ast.ClassDef]]:
    """Yield the environment classes of the folder that run in worker processes, with the call that starts them."""
    for call, _ in process_vec_envs(script):
        seen: set[int] = set()
        for env in values_of(script, call):
            made = [(script.modules.get(cls.module.name, script), cls.node) for cls in _classes(env)]
            for other, cls in (*made, *_registered(script, env)):
                if id(cls) not in seen:
                    seen.add(id(cls))
                    yield call, other, cls


def _classes(env: object) -> Iterator[Class]:
    """Yield the classes of the folder that an environment is made of, and their bases."""
    todo = list(env.classes) if isinstance(env, Env) else []
    for cls in todo:  # it grows
        yield cls
        todo += [base for base in cls.bases if isinstance(base, Class)]


def _registered(script: Script, env: object) -> Iterator[tuple[Script, ast.ClassDef]]:
    """Yield the class of the folder that `gym.register(id, entry_point="module:Class")` gives the environment's id."""
    wanted = env.id if isinstance(env, Env) else None
    for call in script.calls if wanted is not None else ():
        if library_class(script, call.func) == "register" and text_of(script, argument(call, "id", 0)) == wanted:
            entry = argument(call, "entry_point", 1)
            module, _, last = (text_of(script, entry) or "").partition(":")
            found = script.modules[module].defined_as(last) if module in script.modules else script.definition(entry)
            if found is not None and isinstance(found[1], ast.ClassDef):
                yield found[0], found[1]


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
    return {n_envs_of(script, model.env) for model in model_calls(script)}


def learn_calls(script: Script) -> Iterator[ast.Call]:
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
