"""A Draft: what a reader found, in the shape of a run file, before it is validated; and what readers go by.

Readers differ in syntax only. Each yields drafts; `validating` turns a draft into a Run, so that a wrong value gets
the same line of text wherever it was written. A `FileKind` is YAML that people have for one library, a `Vocabulary` the
words of one library in run files and on command lines.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from legroom.errors import BadInput

Key = tuple[str | int, ...]  # path of keys and list positions from the top of the file
Lines = Mapping[Key, int]


class NotFollowed(NamedTuple):
    """A place of a program that only running it could follow: its file where that is not the draft's, and its text."""

    file: str | None
    line: int | None
    text: str
    because: str = "may change what is trained or how much at a time"


@dataclass
class Draft:
    """The data of one run as its file would have it, and where each key was found."""

    name: str
    path: str | None
    data: dict[str, Any] = field(default_factory=dict)
    lines: dict[Key, int] = field(default_factory=dict)
    # keys whose value cannot be known without executing something: path -> (line, what stands there). An override may
    # still give them; one that memory depends on is an error otherwise.
    unknown: dict[Key, tuple[int | None, str]] = field(default_factory=dict)
    not_followed: NotFollowed | None = None  # what may have changed any value, so that none can be relied on
    # the reader's last word, once the base run and the overrides are laid over the draft; it is told which keys the
    # overrides have set
    settle: Callable[[Draft, Collection[Key]], None] | None = None
    # the part of `settle` that refuses nothing, for those who want to know what can be known
    finish: Callable[[Draft, Collection[Key]], None] | None = None
    # keys whose value is likely and not certain: a prediction takes it, a check claims nothing of it
    doubted: set[Key] = field(default_factory=set)
    # settings that a run file has no place for, by name: value, line, and what the user calls it. They may be arguments
    # of the environment.
    others: dict[str, tuple[Any, int | None, str]] = field(default_factory=dict)
    # what the user calls the settings that were read, where those that were not are listed
    used: list[str] = field(default_factory=list)

    def put(self, key: Key, value: Any, line: int | None = None) -> None:
        """Set `key` (a path) to `value`, making the mappings on the way."""
        put(self.data, key, value)
        self.unknown.pop(key, None)
        if line is not None:
            for depth in range(1, len(key) + 1):
                if depth == len(key):
                    self.lines[key] = line
                else:
                    self.lines.setdefault(key[:depth], line)


def put(data: dict[str, Any], key: Key, value: Any) -> None:
    """Set the nested `key` of `data`; what is in the way and no mapping is replaced by one."""
    at: Any = data
    for part in key[:-1]:
        if not isinstance(at.get(part), dict):
            at[part] = {}
        at = at[part]
    at[key[-1]] = value


def get(data: Any, key: Key, default: Any = None) -> Any:
    """Return the value at the nested `key`, `default` when there is none."""
    for part in key:
        if not isinstance(data, dict) or part not in data:
            return default
        data = data[part]
    return data


def made_with(env: Any) -> dict[str, Any]:
    """Return the settings of an `env:` section that its spaces follow from."""
    return {key: copied(get(env, (key,))) for key in ("id", "kwargs", "grid", "wrappers")}


def stale_keys(before: Mapping[str, Any], env: Any) -> tuple[str, ...]:
    """Return what an `env:` section no longer knows of its environment, which was `made_with` other settings before."""
    now = made_with(env)
    if now["id"] != before["id"]:
        return ("spaces", "episode_steps", "nbytes")
    return () if now == before else ("spaces", "nbytes")


def copied(data: Any) -> Any:
    """Return a copy of nested dicts and lists; the values themselves are plain and shared."""
    if isinstance(data, dict):
        return {key: copied(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [copied(value) for value in data]
    return data


def merged(base: Any, over: Any) -> Any:
    """Return `base` with the keys of `over` laid on top, mapping by mapping."""
    if isinstance(base, dict) and isinstance(over, dict):
        return {**base, **{key: merged(base[key], over[key]) if key in base else over[key] for key in over}}
    return over


def only_entry(drafts: list[Draft], entry: str | None, path: str) -> list[Draft]:
    """Return the drafts, or the one that `entry` names where a file holds several.

    Raises:
        BadInput: none has that name.
    """
    if entry is None:
        return drafts
    chosen = [draft for draft in drafts if draft.name.rpartition(":")[2] == entry or draft.name == entry]
    if chosen:
        return chosen
    hint = f"there is {', '.join(d.name for d in drafts)}" if len(drafts) > 1 else f"name it as {path}"
    raise BadInput(f"no entry {entry!r}", path=path, hint=hint)


@dataclass(frozen=True)
class Vocabulary:
    """Where names belong, and which values are numbers."""

    # bare names that an override may use, besides hyperparameters, with their place in a run file
    names: Mapping[str, Key] = field(default_factory=dict)
    moved: Mapping[Key, Key] = field(default_factory=dict)  # keys that people write elsewhere than where they belong
    hyperparams: frozenset[str] = frozenset()  # that the backend takes besides those of its algorithms
    layers: tuple[str, ...] = ()  # keys of policy.kwargs that hold layer widths
    sizes: frozenset[str] = frozenset()  # hyperparameters that are whole numbers of at least 1
    # those that are whole numbers, with the least: 0, or -1 where the library gives that a meaning
    counts: Mapping[str, int] = field(default_factory=dict)
    free: frozenset[str] = frozenset()  # those that take anything: class names, mappings, objects of the library


class FileKind(Protocol):
    """One such kind of file."""

    name: str  # one word, before "file" in sentences: "zoo"
    spellings: Mapping[str, Key] = {}  # its names for keys of a run file
    # whether its keys mean what the library means by them; a program of the user's own may read them otherwise, so that
    # a value which the library would refuse is no mistake
    certain: bool = True
    by_entry: bool = False  # whether it is a mapping from names to runs

    def matches(self, data: dict[Any, Any]) -> bool:
        """Return whether the parsed file is of this kind; run files are not asked about."""
        ...

    def drafts(
        self, data: dict[Any, Any], lines: Lines, path: str, *, entry: str | None = None, algo: str | None = None,
        problems: list[BadInput] | None = None,
    ) -> list[Draft]:  # fmt: skip
        """Return the runs of the file, or the one of `entry`.

        Args:
            algo: the algorithm that an override gives, where the file need not say it.
            problems: given, it gets what is wrong with single runs, and the others are returned.

        Raises:
            BadInput: there is no such entry, or one cannot be read.
        """
        ...
