"""The memory of a compiled program as a function of a brax run's settings: the largest of a few sums.

What is live at one instruction is a sum of terms (bytes per environment, per sample of a minibatch, ...); the program
needs the largest of those sums, one *piece* each. The settings that axes of arrays depend on are

    N environments, B batch_size, M num_minibatches, U unroll_length, and k = B × M / N unrolls of every environment,

and a term is a product of them: `BMU` is the whole rollout, `BU` one minibatch, `NU` one unroll, `1` a constant; V is
U + 1 and W is U - 1, as the loss looks at an unroll with one step more or less. SAC
has no unroll, and M are the transitions of its replay buffer.

To see which axis is which, a program is compiled with sizes made of primes that no model has: B = 61 × 67 for N = 61,
so that a product of axes is a batch where 61 and 67 divide it, and k where 67 and 71 do.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from legroom.model.data import Data

Terms = Mapping[str, float]
PRIMES = {"n": 61, "b": 67, "m": 71, "u": 73}
# Which of the first three primes divide a product of axes, and what that product therefore is.
_NAMES = {"": "", "n": "N", "nb": "B", "m": "M", "bm": "k", "nbm": "BM"}
UNKNOWN = "?"


@dataclass(frozen=True)
class Sizes(Data):
    """The settings that arrays depend on; an evaluation has only environments."""

    envs: int
    batch: int = 1
    minibatches: int = 1
    unroll: int = 1

    @property
    def unrolls(self) -> float:
        """How many unrolls of every environment one rollout is made of; brax wants a whole number of them."""
        return self.batch * self.minibatches / self.envs

    def value(self, term: str) -> float:
        """Return the term's value, 3 × 4 for `BU` of 3 segments of 4 steps."""
        values = {
            "N": self.envs, "B": self.batch, "M": self.minibatches, "k": self.unrolls,
            "U": self.unroll, "V": self.unroll + 1, "W": self.unroll - 1,
        }  # fmt: skip
        return math.prod(values[letter] for letter in term if letter in values)


def marked_sizes(*, one_unroll: bool) -> Sizes:
    """Return the sizes to compile with: products of primes; `one_unroll` where environments are as many as segments."""
    n, b, m, u = (PRIMES[letter] for letter in "nbmu")
    return Sizes(n * b * m if one_unroll else n, n * b, m, u)


def marked_replay() -> Sizes:
    """Return the sizes to compile SAC with, whose minibatches are the transitions of its replay buffer."""
    n, b, m = (PRIMES[letter] for letter in "nbm")
    return Sizes(n, n * b, 1000 * m, 1)


def term_of(dimensions: Iterable[int]) -> str:
    """Return the term that an array of these dimensions grows with; `UNKNOWN` in it where it is none of them."""
    found: Counter[str] = Counter()
    for size in dimensions:
        for letter, prime in PRIMES.items():
            while size and size % prime == 0:
                size //= prime
                found[letter] += 1
        # the loss looks at an unroll without its first or last step, or with one more; a GPU's matrix products have
        # that axis and the batch's as one
        if abs(size - PRIMES["u"]) == 1:
            found["V" if size > PRIMES["u"] else "W"] += 1
    letters = "".join(letter * found[letter] for letter in "nbm")
    steps = "U" * found["u"] + "V" * found["V"] + "W" * found["W"]
    return (_NAMES.get(letters, UNKNOWN + letters) + steps) or "1"


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
