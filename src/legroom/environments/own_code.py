"""Which code a run names, and which of it may be imported without the user's word (`--trust`).

A run file is data from anywhere, and the name of a class in it is a request to run code. Without trust, names are
followed only into packages that somebody installed for the purpose: gymnasium and what registers environments with it,
the libraries of the run's backend, and the packages of registered workloads. Even there only classes of the right kind
are used (`env_make`), with arguments that cannot name a file or further code. Everything else is the run's own code.
Nothing is imported to find this out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from legroom.backends.base import backend_of
from legroom.environments.objects import LIVE, PROVIDERS, package_of, texts_of
from legroom.model.run import Run
from legroom.named_runs import workload_packages

_CODE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")  # module:Name, as a whole value


@dataclass(frozen=True)
class OwnCode:
    """The names in a run that are imported only with trust, each with what it is: `env 'os:system'`."""

    env: tuple[str, ...] = ()
    policy: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return self.env + self.policy


def own_code(run: Run) -> OwnCode:
    """Return what the run names of code that no installed package has registered; nothing is imported."""
    installed = registered_packages(run)
    env = [f"{what} {name!r}" for what, name, known in _env_names(run, installed) if not known]
    policy = [f"{what} {name!r}" for what, name in _policy_names(run) if not _is_installed(name, installed)]
    return OwnCode(tuple(dict.fromkeys(env)), tuple(dict.fromkeys(policy)))


def registered_packages(run: Run) -> set[str]:
    """Return the packages whose classes the run may name without trust."""
    return {"gymnasium", "legroom", *PROVIDERS, *backend_of(run).classes_from, *workload_packages()}


def _is_installed(name: str, installed: set[str]) -> bool:
    return name.startswith(LIVE) or package_of(name) in installed  # what is live was given as an object


def _env_names(run: Run, installed: set[str]) -> Iterator[tuple[str, str, bool]]:
    """Yield what each name is, the name, and whether it may be followed."""
    env_id = run.env.id or ""
    if ":" in env_id:
        yield "env", env_id, _is_installed(env_id, installed)
    if package_of(env_id) not in workload_packages():  # gymnasium's adapters take the name of a further environment
        yield from (("env.kwargs", text, False) for text in texts_of(run.env.kwargs) if _CODE.fullmatch(text))
    for wrapper in run.env.wrappers:
        named = wrapper if isinstance(wrapper, dict) else {wrapper: None}
        for name, arguments in named.items():
            # RecordVideo, Monitor: a text may be a file that the wrapper writes
            yield "wrapper", str(name), _is_installed(str(name), installed) and not any(texts_of(arguments))


def _policy_names(run: Run) -> Iterator[tuple[str, str]]:
    if run.algo_class:
        yield "algorithm", run.algo_class
    for what, name in (("policy", run.policy.name), ("features extractor", run.policy.features_extractor or "")):
        if ":" in name or (what != "policy" and "." in name):
            yield what, name
    for part in (run.policy.kwargs, run.policy.features_extractor_kwargs):
        yield from (("policy.kwargs", name) for name in _class_names("", part))


def _class_names(key: str, value: Any) -> Iterator[str]:
    """Yield the values that a backend looks up as classes (`activation_fn`, `optimizer_class`), at any depth."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _class_names(str(name), each)
    elif isinstance(value, str) and key.endswith(("_class", "_fn")) and (":" in value or "." in value):
        yield value
