"""The memory of a compiled program as a function of a brax run's settings: the largest of a few sums.

What is live at one instruction is a sum of terms (bytes per environment, per sample of a minibatch, ...); the program
needs the largest of those sums, one *piece* each. The settings that axes of arrays depend on are

    N environments, B batch_size, M num_minibatches, U unroll_length, and k = B × M / N unrolls of every environment,

and a term is a product of them: `BMU` is the whole rollout, `BU` one minibatch, `NU` one unroll, `1` a constant; V is
U + 1 and W is U - 1, as the loss looks at an unroll with one step more or less. SAC has no unroll: there U are the
gradient updates of a training step, each of one batch, and M the transitions of the replay buffer.

A workspace of a matrix product has a limit: `min 4194304 BU*1024` is 1,024 bytes per sample of a minibatch, 4 MiB at
most.

To see which axis is which, a program is compiled with sizes that no axis of the model has. For the CPU's compiler they
are products of primes. A GPU's compiler fuses otherwise where a batch is no multiple of 64, and where minibatches are
many: there the sizes are such as people train with, and none that an axis of the model has (`card_marks`).
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from legroom.model.data import Data

Terms = Mapping[str, float]
PRIMES = {"n": 61, "b": 67, "m": 71, "u": 73}
DIVISIBLE = 60  # a multiple of a size from here on is an axis made of it and one of the model's; below, of anything
EVEN = 64  # a GPU's compiler fuses otherwise where the batch is a multiple of it; less of smaller powers of two
FEW = 24  # minibatches; with more of them a GPU's compiler keeps more of the policy's activations (`bench/xla.py`)
CAPPED = "min "


@dataclass(frozen=True)
class Sizes(Data):
    """The settings that arrays depend on; an evaluation has only environments.

    Args:
        replay: they are SAC's, see above.
    """

    envs: int
    batch: int = 1
    minibatches: int = 1
    unroll: int = 1
    replay: bool = False

    @property
    def unrolls(self) -> float:
        """How many unrolls of every environment one rollout is made of; brax wants a whole number of them."""
        return self.batch * self.minibatches / self.envs

    def value(self, term: str) -> float:
        """Return the term's value, 3 × 4 for `BU` of 3 segments of 4 steps."""
        if term.startswith(CAPPED):
            most, parts = _capped_parts(term)
            return min(most, sum(each * self.value(part) for part, each in parts))
        values = {
            "N": self.envs, "B": self.batch, "M": self.minibatches, "k": self.unrolls,
            "U": self.unroll, "V": self.unroll + 1, "W": self.unroll - 1,
        }  # fmt: skip
        return math.prod(values[letter] for letter in term if letter in values)


def capped_term(most: int, terms: Terms) -> str:
    """Return the term of a buffer that is so many bytes per unit of some terms, and `most` at most."""
    return " ".join((f"{CAPPED}{most}", *(f"{term}*{each:g}" for term, each in sorted(terms.items()))))


@lru_cache(maxsize=1024)
def _capped_parts(term: str) -> tuple[int, tuple[tuple[str, float], ...]]:
    most, *parts = term.removeprefix(CAPPED).split()
    found = (each.split("*") for each in parts)
    return int(most), tuple((part, float(each)) for part, each in found)


def marked_sizes(*, one_unroll: bool) -> Sizes:
    """Return the sizes to compile with: products of primes; `one_unroll` where environments are as many as segments."""
    n, b, m, u = (PRIMES[letter] for letter in "nbmu")
    return Sizes(n * b * m if one_unroll else n, n * b, m, u)


def marked_replay(*, one_update: bool) -> Sizes:
    """Return the sizes to compile SAC with."""
    n, b, m, u = (PRIMES[letter] for letter in "nbmu")
    return Sizes(n, n * b, 1000 * m, 1 if one_update else u, replay=True)


def card_marks(taken: Collection[int], *, one_unroll: bool, few: bool, even: int) -> Sizes:
    """Return sizes to compile with for a card: as people train with, and none that an axis of the model has.

    Args:
        taken: the axes that the traced program has.
        few: few minibatches, or lots of them.
        even: what the batch is an odd multiple of (`evenness`).
    """

    def free(choices: Iterable[int], around: Sequence[int] = (0,)) -> int:
        found = list(choices)
        return next((each for each in found if not {each + by for by in around} & used), found[-1])

    used = set(taken)
    batches = range(320 // even // 2 * 2 * even + even, 1600, 2 * even)
    batch = next((each for each in batches if not any(size % each == 0 for size in used if size)), batches[-1])
    unroll = free(range(14, 60, 4), (-1, 0, 1))
    used |= {unroll - 1, unroll, unroll + 1}
    if one_unroll:
        minibatches = free([12, *range(10, FEW)] if few else [40, *range(36, DIVISIBLE)])
        return Sizes(batch * minibatches, batch, minibatches, unroll)
    used |= {size // 2 for size in used if size % 2 == 0}  # twice as many minibatches as unrolls
    unrolls = free([7, *range(5, FEW // 2 + 1)] if few else [23, *range(18, DIVISIBLE // 2)])
    return Sizes(2 * batch, batch, 2 * unrolls, unroll)


def evenness(batch: int) -> int:
    """Return the largest power of two that divides the batch, 64 at most: what is fused depends on it."""
    return math.gcd(batch, EVEN)


def card_replay_marks(taken: Collection[int], *, one_update: bool) -> Sizes:
    """Return the sizes to compile SAC with for a card."""
    updates = next((each for each in range(14, 60, 2) if each not in taken), 60)
    return Sizes(448, 320, 64 * 1009, 1 if one_update else updates, replay=True)


def term_of(dimensions: Iterable[int], marked: Sizes) -> str:
    """Return the term that an array of these dimensions grows with where the program was compiled with such sizes."""
    letters = "".join(_axis(size, marked) for size in dimensions)
    if "k" in letters and "N" in letters:  # so many unrolls of every environment are the rollout
        letters = letters.replace("k", "B", 1).replace("N", "M", 1)
    return "".join(letter * letters.count(letter) for letter in "NBMkUVW") or "1"


@lru_cache(maxsize=4096)
def _axis(size: int, marked: Sizes) -> str:
    """Return the term that an axis grows with, empty where it is the model's."""
    values = _values(marked)
    exactly = (term for value, term in values if size == value)
    multiple = (term for value, term in values if value >= DIVISIBLE and term not in "VW" and size and not size % value)
    return next(exactly, None) or next(multiple, "")


@lru_cache(maxsize=16)
def _values(marked: Sizes) -> list[tuple[float, str]]:
    """Return what axes can be, the largest first: a GPU's matrix products have steps and segments as one.

    The loss looks at an unroll without its first or last step, or with one more.
    """
    steps = ("",) if marked.unroll == 1 else ("", "U") if marked.replay else ("", "U", "V", "W")
    batches = ("N", "B", "M", "")
    if not marked.replay:
        batches = ("BM", *batches, *(("k",) if marked.unrolls != 1 else ()))
    found = [(marked.value(each + step), each + step) for each in batches for step in steps]
    return sorted(((value, term) for value, term in found if term and value > 1), key=lambda each: -each[0])


@dataclass(frozen=True)
class Program(Data):
    """One compiled program.

    Args:
        pieces: bytes per unit of each term, one sum per moment that can be the fullest.
        packing: how much more XLA's packing took than the fullest moment holds, where it was compiled: the gaps that
            it leaves are other ones at every setting, so they are part of the error and not of the figure.
    """

    pieces: tuple[dict[str, float], ...]
    packing: float = 1.0

    def fullest(self, sizes: Sizes, adjust: Mapping[str, float] = MappingProxyType({})) -> dict[str, float]:
        """Return the bytes of each term at the fullest moment; terms in `adjust` are multiplied."""
        terms = {term for piece in self.pieces for term in piece}
        value = {term: sizes.value(term) * adjust.get(term, 1.0) for term in terms}
        best = max(self.pieces, key=lambda piece: sum(each * value[term] for term, each in piece.items()))
        return {term: each * value[term] for term, each in best.items()}

    def nbytes(self, sizes: Sizes) -> int:
        """Return what its temporaries need."""
        return round(sum(self.fullest(sizes).values()))


def undominated(pieces: Sequence[Terms]) -> tuple[dict[str, float], ...]:
    """Return the sums that are the largest for some sizes: none of whose terms are all at most those of another."""
    kept: list[Terms] = []
    for piece in sorted(pieces, key=lambda each: -sum(each.values())):
        if not any(all(other.get(term, 0) >= each for term, each in piece.items()) for other in kept):
            kept.append(piece)
    return tuple(dict(piece) for piece in kept)
