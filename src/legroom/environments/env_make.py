"""Make the environment that a run names, with its wrappers: from `module:attr`, or an id registered with gymnasium.

Everything an environment can do wrong while it is made becomes one line, `EnvError`. Imports only gymnasium: worker
processes make their environments with it, and they are to stay small.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import gymnasium

from legroom.environments.objects import PROVIDERS, makes_env, resolve_object
from legroom.errors import BadInput
from legroom.sharing.env_state import EpisodeStatistics

LONGEST_MESSAGE = 600  # characters; some libraries print a whole configuration


class EnvError(Exception):
    """The environment cannot be used; the text is for the user."""


def build(env_id: str, kwargs: dict[str, Any], wrappers: Sequence[str | dict[str, Any]], *, trust: bool = True) -> Any:
    """Return the environment with its wrappers around it, the first in the list innermost.

    Args:
        trust: False: only classes of environments and wrappers are used, each of the package that it is named of.

    Raises:
        EnvError: with the environment's own words.
    """
    env = _checked(env_id, _make(env_id, kwargs, trust))
    for wrapper in wrappers:
        if isinstance(wrapper, dict):
            if len(wrapper) != 1:
                raise EnvError(f"env.wrappers: {wrapper} must have one key, the wrapper's name")
            ((name, arguments),) = wrapper.items()
        else:
            name, arguments = wrapper, None
        try:
            wrap = makes_env(name, resolve_object(name), None if trust else gymnasium.Wrapper)
        except BadInput as unknown:
            raise EnvError(f"env.wrappers: {unknown}") from unknown
        with stage(f"env.wrappers: {name} raised"):
            env = wrap(env, **(arguments or {}))
        _checked(name, env)
    return env


def _checked(name: str, env: Any) -> Any:
    if all(hasattr(env, each) for each in ("observation_space", "action_space", "reset", "step")):
        return env
    raise EnvError(f"env {name!r} made an object of type {type(env).__name__}, which is not a gymnasium environment")


def _make(env_id: str, kwargs: dict[str, Any], trust: bool) -> Any:
    if ":" in env_id:
        factory = _find_factory(env_id, trust)
        if factory is not None:
            with stage(f"env {env_id!r} raised"):
                return factory(**kwargs)
    for imported in (False, True):
        try:
            with stage(f"env {env_id!r} raised", but=gymnasium.error.UnregisteredEnv):
                return gymnasium.make(env_id, **kwargs)
        except gymnasium.error.UnregisteredEnv as unknown:
            if imported or not _import_provider(env_id):
                raise EnvError(f"env {env_id!r}: {_short(str(unknown))}") from unknown
    return None


def _find_factory(env_id: str, trust: bool) -> Callable[..., Any] | None:
    """Return what `module:attr` names; None when it is gymnasium's `module:Id-v0`, an id the module registers."""
    try:
        found = resolve_object(env_id)
    except BadInput:
        registered = env_id.partition(":")[2] in gymnasium.registry  # importing the module may have added it
        if registered:
            return None
        raise
    return makes_env(env_id, found, None if trust else gymnasium.Env)


def _import_provider(env_id: str) -> bool:
    """Import the installed packages that register ids, until one has this; return whether there were any."""
    present = [name for name in PROVIDERS if name not in sys.modules and find_spec(name) is not None]
    for name in present:
        with suppress(Exception):  # a broken package we only tried is not the user's concern
            gymnasium.register_envs(import_module(name))
        if env_id in gymnasium.registry:
            break
    return bool(present)


def import_makers(env_id: str, wrappers: Sequence[str | dict[str, Any]]) -> None:
    """Import what makes the environment and its wrappers, as a process does that prepares to make several."""
    names = [env_id, *(next(iter(each), "") if isinstance(each, dict) else each for each in wrappers)]
    for name in names:
        with suppress(Exception):  # making it says what is wrong
            spec = gymnasium.registry.get(name)
            if spec is None and ":" not in name and "." not in name and _import_provider(name):
                spec = gymnasium.registry.get(name)
            entry = name if spec is None else spec.entry_point
            if isinstance(entry, str) and (":" in entry or "." in entry):
                resolve_object(entry)


@contextmanager
def stage(what: str, but: type[BaseException] | None = None) -> Iterator[None]:
    """Turn any exception (sys.exit included) into `EnvError`, in one line that begins with `what`."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, EnvError) or (but is not None and isinstance(error, but)):
            raise
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise EnvError(f"{what}: {_short(text)}") from error


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_MESSAGE else line[: LONGEST_MESSAGE - 3] + "..."


def make_env(env_id: str, kwargs: dict[str, Any], wrappers: Sequence[str | dict[str, Any]]) -> Any:
    """Return the environment as training uses it: built, and with episode statistics outermost."""
    return EpisodeStatistics(build(env_id, kwargs, wrappers))


def _prepare_workers(env_id: str, kwargs: dict[str, Any], _wrappers: Sequence[str | dict[str, Any]]) -> None:
    """Let the environment's class prepare the process that workers are forked from, if it can (`worker_template`)."""
    prepare = getattr(_find_factory(env_id, trust=True), "prepare_workers", None) if ":" in env_id else None
    if prepare is not None:
        prepare(**kwargs)


# Both make environments in workers: for training, and for a profile.
build.prepare_workers = make_env.prepare_workers = _prepare_workers  # type: ignore[attr-defined]
