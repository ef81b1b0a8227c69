"""Runs as commands name them: options that are keys of the run (`--n-envs 2` is `--set n_envs=2`), notes of readers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches

from legroom.backends.base import backend_names, backends, find_backend, no_cluster
from legroom.cli.parsing import Option
from legroom.errors import BadInput
from legroom.reading import override_names
from legroom.reading.reading_notes import collected_notes
from legroom.reading.targets import is_algorithm
from legroom.reading.user_files import is_file
from legroom.reading.workload_options import declared_options
from legroom.rendering.console import complain

SET = "--set"


def joined(words: Sequence[str]) -> list[str]:
    """Return the words with an algorithm and the environment after it as one: `PPO CartPole-v1` is a RUN."""
    found: list[str] = []
    for word in words:
        if found and is_algorithm(found[-1]) and not is_file(word):
            found[-1] = f"{found[-1]} {word}"
        else:
            found.append(word)
    return found


@contextmanager
def told_notes() -> Iterator[list[str]]:
    """Collect what is noted while a run is read inside the block, and tell it at its end."""
    with collected_notes() as notes:
        yield notes
    for each in notes:
        complain(each)


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


def shown_options(words: Sequence[str], *, everything: bool) -> list[Option]:
    """Return the options of the workloads that a command line names, or all of them; for help and completion alone."""
    about: dict[str, list[str]] = {}
    metavars: dict[str, str] = {}
    named = {word.partition(":")[0] for word in words}
    for workload, option in declared_options(list(named)):
        if not everything and workload not in named:
            continue
        about.setdefault(option.name, []).append(f"{workload or 'others'}: {option.help}")
        metavars.setdefault(option.name, option.metavar)
    return [Option(f"{'; '.join(helps)}.", (name,), metavars[name]) for name, helps in about.items()]


def key_of(option: str, own: Iterable[str]) -> str:
    """Return the key under which `--set` takes what was written as an option of its own.

    Raises:
        BadInput: it is neither an option of a workload nor a key of any run.
    """
    key = option.removeprefix("--")
    names = {name for b in backends() for algorithm in b.algorithms for name in override_names(b.name, algorithm.name)}
    if "." in key or key.replace("-", "_") in names:
        return key
    of_workloads = {declared.name for _, declared in declared_options()}
    if option in of_workloads:
        return option
    known = sorted({*own, *of_workloads, *(f"--{name.replace('_', '-')}" for name in names)})
    near = get_close_matches(option.replace("_", "-"), known, n=1)
    raise BadInput(f"no such option: {option}", hint=f"did you mean {near[0]}?" if near else "legroom COMMAND --help")
