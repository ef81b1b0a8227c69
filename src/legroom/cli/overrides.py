"""Options that are not options of the command but keys of the run: `--n-envs 2` is short for `--set n_envs=2`.

Rewriting them before the option parser sees them keeps one mechanism (`--set`) for everything, and leaves each
command's own options to typer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Any

from typer.core import TyperOption

from legroom.backends.base import backend_names, backends, find_backend, no_cluster
from legroom.errors import BadInput
from legroom.reading import override_names
from legroom.reading.spoken import is_algorithm
from legroom.reading.user_files import is_file
from legroom.reading.workload_options import declared_options

SET = "--set"


def rewrite_overrides(
    arguments: list[str], parameters: Iterable[Any], of_programs: Callable[[], Iterable[Any]] = tuple
) -> list[str]:
    """Return the arguments with every unknown `--name value` written as `--set name=value`.

    Args:
        parameters: the command's own parameters, as the option parser knows them.
        of_programs: those that it has with a command after `--`.

    Raises:
        BadInput: the name is neither an option, of the command or of a workload, nor a key of any run, or its value is
            missing.
    """
    takes_value = {o: not getattr(p, "is_flag", False) for p in parameters for o in (*p.opts, *p.secondary_opts)}
    takes_value["--help"] = False
    if SET not in takes_value:
        return arguments
    arguments = joined_names(arguments, takes_value)
    rewritten: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if argument == "--":
            return [*rewritten, argument, *rest]
        if not argument.startswith("--"):
            rewritten.append(argument)
        elif name in takes_value:
            rewritten.append(argument)
            if takes_value[name] and not equals:
                rewritten += [v for v in [next(rest, None)] if v is not None]
        else:
            if any(name in parameter.opts for parameter in of_programs()):
                raise BadInput(f"{name} is for a program, given after --", hint=f"{name} ... -- python train.py")
            key = _known_name(name, takes_value)
            given = value if equals else next(rest, None)
            if given is None:
                raise BadInput(f"option {name} needs a value", hint=f"{name} VALUE")
            rewritten += [SET, f"{key}={given}"]
    return rewritten


def joined_names(arguments: list[str], takes_value: dict[str, bool]) -> list[str]:
    """Return the arguments with an algorithm and the environment after it as one: `PPO CartPole-v1` is a RUN."""
    joined: list[str] = []
    value_follows = False
    for at, argument in enumerate(arguments):
        if argument == "--":
            return [*joined, *arguments[at:]]
        before = joined[-1] if joined else ""
        word = not argument.startswith("-") and not value_follows
        if word and is_algorithm(before) and not is_file(argument):
            joined[-1] = f"{before} {argument}"
        else:
            joined.append(argument)
        value_follows = takes_value.get(argument, argument.startswith("--") and "=" not in argument)
    return joined


def split_settings(settings: Iterable[str]) -> list[tuple[str, str]]:
    """Return `key=value` texts as pairs.

    Raises:
        BadInput: there is no `=`.
    """
    pairs = []
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise BadInput(f"--set {setting!r} is not key=value", hint="--set hyperparams.n_steps=512")
        pairs.append((key, value))
    return pairs


def repeated(settings: Iterable[str], **options: str | int | None) -> list[str]:
    """Return the words that give these settings, and the options that were given, to another command."""
    words: list[str] = []
    for setting in settings:
        words += [*setting.partition("=")[::2]] if setting.startswith("--") else [SET, setting]
    for name, value in options.items():
        words += [f"--{name}", str(value)] if value not in (None, "") else []
    return words


def with_backend(
    overrides: Sequence[tuple[str, str]], backend: str | None, cluster: str | None = None
) -> list[tuple[str, str]]:
    """Return the settings that are laid over the run file, with the backend among them where it was given.

    Raises:
        BadInput: there is no such backend, or it does not train on a cluster.
    """
    if backend is None:
        return [*overrides]
    known = find_backend(backend)
    if known is None:
        *others, last = backend_names()
        raise BadInput(f"--backend {backend!r} is not known", hint=f"{', '.join(others)} or {last}")
    if cluster is not None and not known.spreads:
        raise no_cluster(f"backend {backend} trains on this machine")
    return [*overrides, ("backend", backend)]


def shown_options(words: Sequence[str], *, everything: bool) -> list[TyperOption]:
    """Return the options of the workloads that a command line names; where it names none, none, or all of them.

    For help and completion alone: `rewrite_overrides` has taken them from a line before the option parser sees it.
    """
    about: dict[str, list[str]] = {}
    metavars: dict[str, str] = {}
    named = {word.partition(":")[0] for word in words}
    for workload, option in declared_options(list(named)):
        if not everything and workload not in named:
            continue
        about.setdefault(option.name, []).append(f"{workload or 'others'}: {option.help}")
        metavars.setdefault(option.name, option.metavar)
    return [
        TyperOption(param_decls=[name], metavar=metavars[name], help=f"{'; '.join(helps)}.", expose_value=False)
        for name, helps in about.items()
    ]


def _known_name(option: str, own: Iterable[str]) -> str:
    """Return the name under which `--set` takes what was written as an option of its own."""
    key = option.removeprefix("--")
    names = {name for b in backends() for algorithm in b.algorithms for name in override_names(b.name, algorithm.name)}
    if "." in key or key.replace("-", "_") in names:
        return key
    of_workloads = {declared.name for _, declared in declared_options()}
    if option in of_workloads:
        return option
    known = sorted({*own, *of_workloads, *(f"--{name.replace('_', '-')}" for name in names)})
    near = get_close_matches(option.replace("_", "-"), known)
    near.sort(key=lambda each: sorted(each) != sorted(option))  # letters that changed places
    raise BadInput(f"no such option: {option}", hint=f"did you mean {near[0]}?" if near else "legroom COMMAND --help")
