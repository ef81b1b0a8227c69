"""Read instances of MineLib, the public library of open-pit problems (Espinoza, Goycoolea, Moreno and Newman, 2013).

An instance is a handful of text files with one stem:

    NAME.blocks    `id x y z attribute…`      what the blocks are; the attributes differ from mine to mine
    NAME.prec      `id n predecessor…`        what must be dug before a block
    NAME.upit      keywords, then `id value`  the ultimate-pit problem
    NAME.cpit      the same with periods, a discount rate and what blocks take of limited resources

Blocks are numbered from 0, z grows upwards, `%` begins a comment, a line EOF may end a file. Resource coefficients
are sparse: waste takes nothing of the mill. The first period is not discounted.

An instance brings its own precedence, so its ultimate pit comes from its own graph (`ultimate_pit_of`). For the
environment it becomes a block model with the usual slopes: places without a block are air, and since it tells values
and no grades, those values are taken as they are (`BlockModel.values_usd`).
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from legroom.extend import BadInput
from legroom_workloads.mine.blocks import COLUMNS, BlockModel
from legroom_workloads.mine.files import data_files
from legroom_workloads.mine.minelib_text import (
    Row,
    Word,
    expect,
    finite,
    not_nan,
    or_nan,
    read_lines,
    read_sections,
    to_index,
    to_number,
)
from legroom_workloads.mine.pit import Closure, solve_closure
from legroom_workloads.mine.rows import placed

MOST_PERIODS, MOST_RESOURCES = 10_000, 100  # more is a slip of the pen, and memory for nothing
TONNES = 15_600.0  # of a block whose file does not say: 2.6 t/m³ in 20 x 20 x 15 m


@dataclass(frozen=True, eq=False)
class Problem:
    """What a .upit or .cpit file says.

    Attributes:
        values: float64 [n], of each block at its destination.
        periods, discount_rate: None in a .upit file.
        amounts: float64 [resources, n], what mining a block takes of each resource.
        lower, upper: float64 [resources, periods], what may be taken of each resource; ±inf where there is no limit.
    """

    name: str
    values: NDArray[np.float64]
    periods: int | None = None
    discount_rate: float | None = None
    amounts: NDArray[np.float64] | None = None
    lower: NDArray[np.float64] | None = None
    upper: NDArray[np.float64] | None = None


@dataclass(frozen=True, eq=False)
class MineLibInstance:
    """An instance: the blocks, what must precede what, and the problems there are files for.

    Attributes:
        path: of the .blocks file.
        coordinates: float64 [n, 3], z upwards.
        attributes: float64 [n, k], the other numbers of the .blocks file; NaN where it has a word instead.
        lines: int64 [n], where in the .blocks file each block stands.
        precedence: bool [n, n] or None; row b has an entry for every block that must precede b.
    """

    path: Path
    coordinates: NDArray[np.float64]
    attributes: NDArray[np.float64]
    lines: NDArray[np.int64]
    precedence: csr_array | None
    upit: Problem | None
    cpit: Problem | None

    @property
    def name(self) -> str:
        """The name that the files have in common."""
        return self.path.stem

    @property
    def n_blocks(self) -> int:
        """The number of blocks."""
        return len(self.coordinates)

    @property
    def values(self) -> NDArray[np.float64]:
        """What each block is worth if mined today, [n].

        Raises:
            BadInput: there is neither a .upit nor a .cpit file.
        """
        problem = self.upit or self.cpit
        if problem is None:
            raise BadInput(
                f"instance {self.name!r} has no values", hint=f"put {self.name}.upit beside its .blocks file"
            )
        return problem.values


def read_minelib(path: str | os.PathLike[str]) -> MineLibInstance:
    """Return an instance by the path of any of its files, or by their common stem. Only .blocks is required.

    Raises:
        BadInput: a file that is not there, or not what its format says: with the line.
    """
    files = {file.suffix: file for file in data_files(path)}
    if ".blocks" not in files:
        raise BadInput(f"{str(path)!r} is not a MineLib instance", hint="name one of its files or their stem")
    coordinates, attributes, lines = _read_blocks(files[".blocks"])
    n = len(coordinates)
    precedence = _read_precedence(files[".prec"], n) if ".prec" in files else None
    upit, cpit = (_read_problem(files[kind], n) if kind in files else None for kind in (".upit", ".cpit"))
    return MineLibInstance(files[".blocks"], coordinates, attributes, lines, precedence, upit, cpit)


def ultimate_pit_of(instance: MineLibInstance) -> Closure:
    """Return the pit of largest value under the instance's own precedence, its value and the bound that proves it.

    Raises:
        BadInput: there are no values or no .prec file.
    """
    if instance.precedence is None:
        raise BadInput(f"instance {instance.name!r} has no precedence", hint=f"put {instance.name}.prec beside it")
    return solve_closure(instance.values, instance.precedence)


def to_block_model(instance: MineLibInstance) -> BlockModel:
    """Return the instance as a block model with given values; what is no block is air.

    Tonnes are what a block takes of the first resource of the .cpit file that every block takes something of, which is
    the mining capacity; without one, all blocks weigh the same.

    Raises:
        BadInput: coordinates that are no grid, or no values.
    """
    placement = placed(instance.path, instance.coordinates, instance.lines, fill_absent=True)
    values, cells = np.zeros(placement.n_cells), placement.flat
    values[cells] = instance.values
    amounts = instance.cpit.amounts if instance.cpit else None
    mining = None if amounts is None else next((taken for taken in amounts if (taken > 0).all()), None)
    channels = np.zeros((len(COLUMNS), placement.n_cells), np.float32)
    channels[COLUMNS.index("ton"), cells] = TONNES if mining is None else mining
    shape = placement.shape
    return BlockModel(channels.reshape(-1, *shape), instance.name, placement.size_m, values_usd=values.reshape(shape))


def _read_blocks(path: Path) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Return coordinates [n, 3], attributes [n, k] and lines [n] in the order of the blocks' numbers."""
    rows = list(read_lines(path))
    if not rows:
        raise BadInput("there is no block in it", path=path)
    width = len(rows[0][1])
    numbers = np.full((len(rows), max(width, 4) - 4), np.nan)
    coordinates = np.full((len(rows), 3), np.nan)
    lines = np.zeros(len(rows), np.int64)
    for line, words in rows:
        if len(words) != width or width < 4:
            raise BadInput(
                f"{len(words)} values where {max(width, 4)} are expected", path=path, line=line, hint="id x y z …"
            )
        block = to_index(path, line, words[0], len(rows), "block")
        if lines[block]:
            raise BadInput(f"block {block} is already in line {lines[block]}", path=path, line=line)
        lines[block] = line
        coordinates[block] = [to_number(path, line, word, finite) for word in words[1:4]]
        numbers[block] = [or_nan(word) for word in words[4:]]
    return coordinates, numbers, lines  # n different numbers below n: every block is there


def _read_precedence(path: Path, n: int) -> csr_array:
    """Return who must precede whom, [n, n]."""
    # compact arrays, since the largest instance has 73 million arcs; who is out of range is looked up at the end
    lines, blocks, counts, predecessors = array("q"), array("q"), array("q"), array("q")
    for line, words in read_lines(path):
        try:
            block, count, *before = map(int, words)
            predecessors.extend(before)
        except (ValueError, OverflowError):
            raise BadInput(f"{' '.join(words)[:40]!r} is not `id n predecessor…`", path=path, line=line) from None
        if count != len(before):
            message = f"block {block}: {count} predecessors announced, {len(before)} given"
            raise BadInput(message, path=path, line=line, hint="id n predecessor…")
        for column, number in zip((lines, blocks, counts), (line, block, count), strict=True):
            column.append(number)
    line_of = np.repeat(np.asarray(lines, np.int64), np.asarray(counts, np.int64))
    for numbers, at, what in ((blocks, lines, "block"), (predecessors, line_of, "predecessor")):
        found = np.asarray(numbers, np.int64)
        outside = (found < 0) | (found >= n)
        if outside.any():
            first = int(np.argmax(outside))
            raise BadInput(f"{what} {found[first]}, there are {n}, counted from 0", path=path, line=int(at[first]))
    tails = np.repeat(np.asarray(blocks, np.int64), np.asarray(counts, np.int64)).astype(np.int32)
    heads = np.asarray(predecessors, np.int64).astype(np.int32)
    return csr_array(coo_array((np.ones(len(heads), np.bool_), (tails, heads)), shape=(n, n)))


def _read_problem(path: Path, n: int) -> Problem:
    """Return what a .upit or .cpit file says about n blocks."""
    head, sections = read_sections(path)

    def header(key: str, kind: Callable[[str], Word], missing: Word) -> Word:
        line, word = head.get(key, (0, ""))
        return to_number(path, line, word, kind) if line else missing

    stated = header("NBLOCKS", int, n)
    if stated != n:
        raise BadInput(f"NBLOCKS is {stated}, the .blocks file has {n}", path=path, line=head["NBLOCKS"][0])
    values = _values(path, sections.get("OBJECTIVE_FUNCTION"), n)
    name = head.get("NAME", (0, path.stem))[1]
    if "NPERIODS" not in head:
        return Problem(name, values)
    periods, resources = header("NPERIODS", int, 0), header("NRESOURCE_SIDE_CONSTRAINTS", int, 0)
    if not (1 <= periods <= MOST_PERIODS and 0 <= resources <= MOST_RESOURCES):
        raise BadInput(f"{periods} periods and {resources} resources", path=path, line=head["NPERIODS"][0])
    amounts = np.zeros((resources, n))
    for line, words in sections.get("RESOURCE_CONSTRAINT_COEFFICIENTS", []):
        expect(path, line, words, (3,), "block resource amount")
        block = to_index(path, line, words[0], n, "block")
        amounts[to_index(path, line, words[1], resources, "resource"), block] = to_number(path, line, words[2], finite)
    lower, upper = _limits(path, sections.get("RESOURCE_CONSTRAINT_LIMITS", []), resources, periods)
    return Problem(name, values, periods, header("DISCOUNT_RATE", finite, 0.0), amounts, lower, upper)


def _values(path: Path, rows: list[Row] | None, n: int) -> NDArray[np.float64]:
    """Return the objective [n]."""
    values = np.full(n, np.nan)
    for line, words in rows or []:
        expect(path, line, words, (2,), "block value")
        values[to_index(path, line, words[0], n, "block")] = to_number(path, line, words[1], finite)
    unknown = np.flatnonzero(np.isnan(values))
    if len(unknown):
        raise BadInput(
            f"OBJECTIVE_FUNCTION has no value for {len(unknown):,} blocks, block {unknown[0]} first", path=path
        )
    return values


def _limits(
    path: Path, rows: list[Row], resources: int, periods: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the least and the most of each resource in each period: `L` at most, `G` at least, `I` between."""
    lower, upper = np.full((resources, periods), -np.inf), np.full((resources, periods), np.inf)
    for line, words in rows:
        expect(path, line, words, (4, 5), "resource period L|G|I limit(s)")
        where = to_index(path, line, words[0], resources, "resource"), to_index(path, line, words[1], periods, "period")
        sense, limits = words[2].upper(), [to_number(path, line, word, not_nan) for word in words[3:]]
        if (sense in ("L", "G") and len(limits) == 1) or (sense == "I" and len(limits) == 2):
            if sense in ("G", "I"):
                lower[where] = limits[0]
            if sense in ("L", "I"):
                upper[where] = limits[-1]
        else:
            raise BadInput(
                f"limit {' '.join(words[2:])!r}", path=path, line=line, hint="L most, G least, or I least most"
            )
    return lower, upper
