"""The table of figures in the README, from bench/results/: a figure that changes there changes here.

Held-out runs and programs were never looked at while the code was written; where there are several sets, the newest
counts. `python docs/generate.py --images` writes the table into the README.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from bench.results import Section, file_name, read_sections
from docs.generators.markdown import table

BEGIN, END = "<!-- figures -->\n", "\n<!-- end of figures -->"
Figure = Callable[[Section], str]


def _last(section: Section, pattern: str) -> tuple[str, ...]:
    """Return the groups of the last cell that matches.

    Raises:
        LookupError: none does: the bench writes its summary otherwise now.
    """
    found = [match for row in section.rows for cell in row if (match := re.search(pattern, cell))]
    if not found:
        raise LookupError(f"{section.name}: nothing matches {pattern!r}")
    return found[-1].groups()


def _worst(section: Section, column: str) -> str:
    """Return the figure farthest from 0 of a column of errors in percent."""
    cells = [re.search(r"[+-]\d+(?:\.\d+)?", cell) for cell, *_ in section.cells(column) if "%" in cell]
    return max((cell[0] for cell in cells if cell), key=lambda text: abs(float(text)))


def _replayed(section: Section) -> str:
    exact, of = _last(section, r"^(\d+) of (\d+)$")
    addresses = [cell.replace(",", "").split(" of ") for (cell,) in section.cells("same address")]
    right, made = (sum(int(pair[place]) for pair in addresses) for place in (0, 1))
    return f"{exact} of {of} snapshots agree in every address and segment; {right:,} of {made:,} addresses"


def _wrong(section: Section) -> str:
    programs, wrong = next((row[1], row[2].split()[0]) for row in section.rows if row[0] == "all that do not fit")
    fitting, said = next((row[1], row[3].split()[0]) for row in section.rows if row[0] == "all that fit")
    return f'{wrong} of {programs} programs that do not fit got "Fits"; {said} of {fitting} that fit got it'


def _gpu(section: Section) -> str:
    runs = _last(section, r"^(\d+) runs$")[0]
    exact = _last(section, r"^(\d+) exact")[0]
    return f"{exact} of {runs} reserved peaks to the byte; worst {_worst(section, 'exact')} %"


def _programs(section: Section) -> str:
    exact, of, answered = _last(section, r"(\d+) of ([1-9]\d*) exact, (\d+) answered")
    return f"{exact} of {of} reserved peaks to the byte, {answered} answered; worst {_worst(section, 'reserved')} %"


def _host(section: Section) -> str:
    words = r"^as it comes, --trust: median ([\d.]+%), worst ([\d.]+%), (\d+) of (\d+) inside"
    median, worst, inside, of = _last(section, words)
    return f"median error {_percent(median)}, worst {_percent(worst)}; {inside} of {of} inside their band"


def _fitted(section: Section) -> str:
    ends = [end for (end,) in section.cells("end")]
    return f"{sum('well' in end for end in ends)} of {len(ends)} ended well"


def _mine(section: Section) -> str:
    ((plain, measured),) = section.cells("plain SB3 would need", "measured (PSS of the tree)")
    return f"{plain} with SB3's buffer, {measured} measured with lean storage and micro-batches"


def _pong(section: Section) -> str:
    ours, plain = (next(row[2] for row in _rows(section, "Pong") if row[1] == name) for name in OURS_AND_PLAIN)
    return f"{plain} with SB3's buffer, {ours} with lean storage, every bit the same"


def _noise(section: Section) -> str:
    rows = {(row[0], row[1]): row[4] for row in section.rows}
    adding = rows["noise-replay", "add ÷ SB3's"]
    epoch = max((rows[each, LATER_EPOCH] for each in ("scrolling", "pacman")), key=lambda told: float(told.rstrip("×")))
    return f"up to {adding} the time to add noise, {epoch} to read a later epoch of pictures in colour"


def _explained(section: Section) -> str:
    *_, (_, texts, right) = section.rows
    return f"{right} of {texts} texts right in kind and numbers"


def _rows(section: Section, begins: str) -> list[tuple[str, ...]]:
    """Return the rows of a group, which only its first row names."""
    found: list[tuple[str, ...]] = []
    name = ""
    for row in section.rows:
        name = row[0] or name
        if name.startswith(begins):
            found.append(row)
    return found


def _percent(text: str) -> str:
    return text.replace("%", " %")


OURS_AND_PLAIN = ("legroom (default)", "SB3 (default)")
LATER_EPOCH = "a later epoch ÷ SB3's, which has flattened"
FIGURES: tuple[tuple[str, str, Figure], ...] = (
    ("Allocations recorded on physical GPUs by other people, replayed", "Real GPUs: allocations replayed", _replayed),
    ('How often "Fits" is wrong, held out', 'Wrong "Fits": held out, fifth draw', _wrong),
    ("GPU memory of SB3 runs, held out", "GPU memory: vram_own2_heldout.json", _gpu),
    ("GPU memory of public programs as they are, held out", "Programs as they are, held out, fifth set", _programs),
    ("Host memory of generated runs, held out", "Host memory of generated runs, held out", _host),
    ("Fitted runs, trained under a limit of that size", "Fitted runs under a limit equal to the budget", _fitted),
    ("Host peak of the mine (`mine:full`)", "mine:full in the machine we have (full)", _mine),
    ("Replay of 100,000 Pong observations", "Lossless storage: side by side", _pong),
    ("What lean storage costs at worst", "Lossless storage: figures", _noise),
    ("Out-of-memory errors explained", "explain", _explained),
)  # fmt: skip


def pages() -> Mapping[str, str]:
    """Return the same table for the documentation, which has its own pages of results."""
    sections = read_sections()
    return {
        "figures.md": table(["what", "measured"], [(what, figure(sections[name])) for what, name, figure in FIGURES])
    }


def figures_table() -> str:
    """Return the table of the README."""
    sections = read_sections()
    rows = [
        (what, figure(sections[name]), f"[table](bench/results/{file_name(name)})") for what, name, figure in FIGURES
    ]
    return table(["what", "measured", "where"], rows).rstrip("\n")


def with_figures(text: str) -> str:
    """Return the README with its table as it is now."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{figures_table()}\n{END}{rest.split(END)[1]}"
