"""A result as a small document of headings, tables, notes, bars and curves, which is printed as text or as a page.

Every result becomes one `Document`. `layout` prints it as text: the verdict first, then the title and the parts, with
an empty line before every section. `page` prints the same as HTML, with headings, drawings and folded details, which
text leaves out. A result says what there is to say once; how it looks is the printer's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from legroom.model.footprint import Peak
from legroom.model.outcome import TrainingEvent
from legroom.rendering.printable import printable


@dataclass(frozen=True)
class Note:
    """A text with a style: a line of its own, or a cell of a table."""

    text: str
    style: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", printable(self.text))


Cell = str | Note


@dataclass(frozen=True)
class Table:
    """Rows under a header. `align` has a letter per column: `l`, `r`, `w` for a long text, `v` for what stays as it is.

    Without a header, two columns are names with their facts. A bold row of one cell is a heading over all columns.
    """

    header: Sequence[str]
    align: str
    most_lines: int | None = None  # where wrapping would take more, what wraps is cut short, as little as that needs
    spare: Sequence[str] = ()  # titles of columns that may be left out where it is narrow, the first one first
    rows: list[list[Note]] = field(default_factory=list)

    def add(self, *cells: Cell, style: str = "") -> None:
        """Add a row; missing cells are empty."""
        row = [cell if isinstance(cell, Note) else Note(cell, style) for cell in cells]
        self.rows.append(row + [Note("")] * (len(self.align) - len(row)))


@dataclass(frozen=True)
class BarSegment:
    """A piece of a bar; `why` is shown with it."""

    name: str
    nbytes: int
    why: str = ""


@dataclass(frozen=True)
class Bar:
    """A stack of segments, and the band that the truth is expected in (None: it was measured)."""

    name: str
    segments: tuple[BarSegment, ...]
    low: int | None = None
    high: int | None = None
    note: str = ""

    @property
    def nbytes(self) -> int:
        return sum(segment.nbytes for segment in self.segments)


@dataclass(frozen=True)
class Limit:
    """A line that bars and curves should not cross."""

    nbytes: int
    label: str


@dataclass(frozen=True)
class Bars:
    """Stacked bars under one scale."""

    title: str  # for those who cannot see it
    bars: Sequence[Bar]
    # drawn where they are on the scale; the first is named in any case, since it is what has to be kept
    limits: Sequence[Limit] = ()
    # which bar the scale is made for; one that is many times as long is cut off. None: the longest.
    own: int | None = None


@dataclass(frozen=True)
class Series:
    """A value at every place along the width; its colour is CSS."""

    name: str
    colour: str
    values: Sequence[float]


@dataclass(frozen=True)
class Curves:
    """Values over time, steps or a parameter; nothing is drawn of fewer than two places."""

    title: str  # for those who cannot see it
    places: Sequence[float]
    layers: Sequence[Series]
    along: Literal["time", "count"] = "time"  # what the places are: seconds of time, or counts
    stacked: bool = True  # layers are areas on one another; else lines
    unit: Literal["bytes", "number"] = "bytes"  # of the values: bytes, or any number
    said: str = ""
    phases: Sequence[str] = ()  # which phase went on at each place
    predicted: Peak | None = None  # the expected peak and its band
    limit: Limit | None = None  # drawn where memory comes anywhere near it
    marks: Sequence[TrainingEvent] = ()  # what happened, and when


@dataclass(frozen=True)
class Section:
    """Parts under a heading, which text leaves out: its tables name themselves."""

    title: str
    parts: Sequence[Part]
    folded: bool = False  # only pages have it, and show it when it is opened


Part = str | Note | Table | Bars | Curves | Section


@dataclass(frozen=True)
class Document:
    """What is said of one result."""

    title: str  # what it is about, on a line below the verdict
    verdict: Note | None  # the answer, as `fits: needs 3 GiB`; its style says how good it is
    parts: Sequence[Part]
    footer: str = ""  # the small print of the page
    page_title: str = ""  # the heading of the page where text needs none
    ways: Sequence[str] = ()  # what would help, right below the verdict


def verdict(text: str, style: str) -> Note:
    """An answer as a sentence in its colour."""
    return Note(text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else "."), style)


def section(title: str, parts: Iterable[Part]) -> list[Section]:
    """The section, or none where there is nothing in it."""
    inside = [part for part in parts if not isinstance(part, Table) or part.rows]
    return [Section(title, inside)] if inside else []
