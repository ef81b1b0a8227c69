"""A Vocabulary: the words of one library in run files and on command lines, and what values they take."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from legroom.model.draft import Key


@dataclass(frozen=True)
class Vocabulary:
    """Where names belong, and which values are numbers.

    Args:
        names: bare names that an override may use, besides hyperparameters, with their place in a run file.
        moved: keys that people write elsewhere than where they belong.
        hyperparams: that the backend takes besides those of its algorithms.
        layers: keys of policy.kwargs that hold layer widths.
        sizes: hyperparameters that are whole numbers of at least 1.
        counts: those that are whole numbers, with the least: 0, or -1 where the library gives that a meaning.
        free: those that take anything: class names, mappings, objects of the library.
    """

    names: Mapping[str, Key] = field(default_factory=dict)
    moved: Mapping[Key, Key] = field(default_factory=dict)
    hyperparams: frozenset[str] = frozenset()
    layers: tuple[str, ...] = ()
    sizes: frozenset[str] = frozenset()
    counts: Mapping[str, int] = field(default_factory=dict)
    free: frozenset[str] = frozenset()
