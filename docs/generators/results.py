"""Tables and plots of what was measured, from the sections that the benches write into bench/RESULTS.md."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from docs.generators.drawing import Point, bars, scatter
from docs.generators.markdown import table, tree

RESULTS = Path(__file__).resolve().parent.parent.parent / "bench" / "RESULTS.md"
MB = 1e6
# Page, its title, and the sections that belong to it; the first that matches has a section, the last takes the rest.
GROUPS: tuple[tuple[str, str, str], ...] = (
    ("gpu", "GPU memory", r"^GPU memory|on a card"),
    ("host", "Host memory", r"^Host memory|^mine:full in"),
    ("speed", "Speed of predicting and fitting", r"^Speed of"),
    ("attached", "Programs with savings attached", r"^Attached programs"),
    ("storage", "Lean storage", r"(?i)storage"),
    ("cluster", "Ray, sweeps and clusters", r"(?i)\bray\b|rllib|sweep|cluster"),
    ("brax", "brax and the robot", r"(?i)brax|robot"),
    ("workers", "Workers, and many environments", r"^Workers|^Parallel"),
    ("micro_batches", "Micro-batches", r"^Micro-batches"),
    ("fit", "Fitting, and hard limits", r"^Fitted|^Hard limits"),
    ("failures", "Kills, faults and failed allocations", r"kill|^Faults|^Allocation|^File operations|^Power loss"),
    ("watch", "Watching and explaining", r"^Watching|^explain"),
    ("leaks", "Leaks", r"^Leaks"),
    ("page", "The page", r"(?i)\bui\b|\bpage\b"),
    ("mine", "The mine", r"(?i)\bmine\b"),
    ("ninja", "The ninja", r"^Ninja"),
    ("gameboy", "The Game Boy", r"^Game Boy"),
    ("fire", "The wildfire", r"(?i)fire"),
    ("others", "Others", r""),
)
_MISSED = re.compile(r"FALLS SHORT|MISSED|\bNO\b|\bfailed\b")


@dataclass(frozen=True)
class Section:
    """One table of RESULTS.md."""

    name: str
    note: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def cells(self, *names: str) -> list[tuple[str, ...]]:
        """Return these columns of the rows that have them all."""
        places = [self.columns.index(name) for name in names]
        return [tuple(row[i] for i in places) for row in self.rows if all(row[i] for i in places)]

    @property
    def misses(self) -> bool:
        """Whether a row of it says that a figure falls short of what was required."""
        return any(_MISSED.search(cell) for row in self.rows for cell in row)


def pages() -> Mapping[str, str]:
    sections = read_sections(RESULTS.read_text())
    texts, listed, short = {}, [], []
    left = list(sections.values())
    for page, title, pattern in GROUPS:
        some = [section for section in left if re.search(pattern, section.name)]
        left = [section for section in left if section not in some]
        if not some:
            continue
        listed.append((page, title))
        drawn = plots_of(page, sections)
        texts.update({f"results/{name}.svg": svg for name, (_, svg) in drawn.items()})
        texts[f"results/{page}.md"] = _page(title, some, {name: says for name, (says, _) in drawn.items()})
        short += [(section.name, page) for section in some if section.misses]
    texts["results/index.md"] = _index(listed, short)
    return texts


def read_sections(text: str) -> dict[str, Section]:
    """Return the sections of a results file by name."""
    found = {}
    for part in re.split(r"(?m)^## ", text)[1:]:
        name, _, rest = part.partition("\n")
        lines = [line for line in rest.splitlines() if line.startswith("|")]
        note = rest.split("\n|", 1)[0].strip()
        if len(lines) >= 2:
            head, _, *rows = [tuple(_cells(line)) for line in lines]
            found[name] = Section(name, note, head, tuple(rows))
    return found


def _cells(line: str) -> Sequence[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def plots_of(page: str, sections: Mapping[str, Section]) -> dict[str, tuple[str, str]]:
    """Return the plots of a page: what to say about each, and its SVG, by name."""
    if page == "gpu":
        says = "Predicted and real reserved peaks of the CUDA caching allocator. On the line they are equal."
        drawn = scatter("Reserved GPU memory", {"runs": gpu_points(sections)}, "MB", "recorded", "predicted")
        return {"gpu": (says, drawn)}
    if page == "host":
        says = "Predicted and measured host peaks of real trainings, with the predicted band."
        return {"host": (says, scatter("Host memory", {"runs": host_points(sections)}, "MB", "measured", "predicted"))}
    if page == "storage" and "Lean storage predicted by a probe" in sections:
        says = "What a probe of a second says lean storage will take, with its band, against the real buffer when full."
        rows = sections["Lean storage predicted by a probe"].cells("run (MB)", "real", "predicted", "low", "high")
        points = [Point(name, *(number(cell) for cell in cells)) for name, *cells in rows]
        return {"lean": (says, scatter("Lean storage, probed", {"runs": points}, "MB", "real", "predicted"))}
    if page == "fit" and "Fitted runs under a limit equal to the budget" in sections:
        says = "Peak of fitted trainings, as a share of the budget, which was also a hard limit of the kernel's."
        rows = sections["Fitted runs under a limit equal to the budget"].cells("run", "used", "end")
        shares = [(name, number(used), used) for name, used, _ in rows]
        return {"fit": (says, bars("Memory used, of the budget", shares, 100.0, "the budget"))}
    return {}


def gpu_points(sections: Mapping[str, Section]) -> list[Point]:
    return [
        Point(name, number(real) / MB, number(predicted) / MB)
        for title, section in sections.items()
        if title.startswith("GPU memory")
        for name, predicted, real in section.cells("run", "predicted reserved", "real reserved")
    ]


def host_points(sections: Mapping[str, Section]) -> list[Point]:
    rows = sections["Host memory of real SB3 runs"].cells("run (MB)", "measured", "predicted", "low", "high")
    return [Point(name, *(number(cell) for cell in cells)) for name, *cells in rows]


def chart() -> str:
    """Return one chart of every prediction that was compared with a measurement, host and GPU."""
    sections = read_sections(RESULTS.read_text())
    gpu, host = gpu_points(sections), host_points(sections)
    series = {f"GPU: {len(gpu)} recorded runs": gpu, f"host: {len(host)} trainings, with bands": host}
    return scatter("Predicted and measured peak memory", series, "MB", "measured", "predicted")


def number(cell: str) -> float:
    """Return the number of a cell: `1,875`, `82%`, `+0.5 %`."""
    return float(re.sub(r"[^\d.eE+-]", "", cell))


def _page(title: str, sections: Sequence[Section], drawn: Mapping[str, str]) -> str:
    parts = [f"# {title}\n"]
    parts += [f"![{says}]({name}.svg)\n\n{says}\n" for name, says in drawn.items()]
    for section in sections:
        parts += [f"## {section.name}\n", section.note + "\n", table(section.columns, section.rows)]
    return "\n".join(parts)


def _index(listed: Sequence[tuple[str, str]], short: Sequence[tuple[str, str]]) -> str:
    rows = "\n".join(f"- [{title}]({page}.md)" for page, title in listed)
    missed = "\n".join(f"- [{name}]({page}.md)" for name, page in short)
    return (
        "# What was measured\n\nEvery table here was written by a bench of the repository (`bench/RESULTS.md`), with "
        "date, versions and the command that makes it again.\n\n"
        f"{rows}\n\n## What falls short\n\nThese tables have a row that misses what was required of it; the row says "
        "so:\n\n"
        f"{missed}\n\n" + tree(*(page for page, _ in listed))
    )
