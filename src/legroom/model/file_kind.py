"""A FileKind: YAML that people have for one library, and that its backend reads runs from."""

from collections.abc import Mapping
from typing import Any, Protocol

from legroom.errors import BadInput
from legroom.model.draft import Draft, Key, Lines


class FileKind(Protocol):
    """One such kind of file.

    Attributes:
        name: one word, before "file" in sentences: "zoo".
        spellings: its names for keys of a run file.
        beside: the file in the same folder that completes it; without a folder it cannot be read.
        in_python: whether its mapping may stand in a Python module too, as `hyperparams = {...}`.
        certain: whether its keys mean what the library means by them; a program of the user's own may read them
            otherwise, so that a value which the library would refuse is no mistake.
        by_entry: whether it is a mapping from names to runs.
    """

    name: str
    spellings: Mapping[str, Key] = {}
    beside: str = ""
    in_python: bool = False
    certain: bool = True
    by_entry: bool = False

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
