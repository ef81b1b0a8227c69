"""Attachments: savings that a program gets from outside while it runs, without a change to its source."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from legroom.model.plan import Price


@dataclass(frozen=True)
class Attachment:
    """One saving that a backend can attach to a program that uses its library.

    Args:
        name: as `--with` calls it.
        price: that of its knob; what is free is attached by default.
        say: what it does, for the person who reads the help.
        hooks: by module of the user's libraries, the function that is called with that module once it is loaded, as
            `legroom.x:function`. It runs in the user's interpreter, which need have no more than his libraries.
        variables: of the program's environment, where the user has not set them.
        others: variables of the user's that stand for those as well.
        needs_gpu: whether it does anything without one.
        takes: what its number is, for `name=N`; empty where it takes none.
        saves: which memory it saves: the host's, or that of the device that trains, which may be the host.
    """

    name: str
    price: Price
    say: str
    hooks: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    needs_gpu: bool = False
    takes: str = ""
    saves: Literal["host", "device"] = "host"


@dataclass(frozen=True)
class AttachedNote:
    """What a program said of one attachment: that it is there, or why not, and at which line of the program."""

    name: str
    attached: bool
    text: str
    where: str = ""


@dataclass(frozen=True)
class PredictedNote:
    """What a model of the program was predicted to need without anything attached, in bytes of host memory."""

    what: str
    where: str
    host: int
    low: int
    high: int


@dataclass(frozen=True)
class StoredNote:
    """What a buffer of the program took, and what the library's own would have taken."""

    what: str
    nbytes: int
    plain_nbytes: int
