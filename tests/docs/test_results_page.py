"""If these fail, the page of results says something else than the rows that were measured."""

import re
from pathlib import Path

from bench.results import RESULTS, file_name, read_sections

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"\]\(results/([\w-]+\.json)\) \| (\S+) \| `")


def test_every_table_has_its_line_with_the_date_it_was_measured() -> None:
    said = dict(ROW.findall((ROOT / "bench/RESULTS.md").read_text()))
    measured = {file_name(name): section.date for name, section in read_sections().items()}
    assert said == measured
    assert {file.name for file in RESULTS.glob("*.json")} == set(measured)


def test_every_command_names_a_bench_that_is_there() -> None:
    page = (ROOT / "bench/RESULTS.md").read_text().partition("## Measured before")[0]
    commands = re.findall(r"\| `([^`|]+)` \|\n", page)
    assert len(commands) > 40
    named = re.findall(r"python -m ([\w.]+)|make bench-([\w-]+)", "\n".join(commands))
    files = {ROOT / f"{(module or 'bench.' + bench.replace('-', '_')).replace('.', '/')}.py" for module, bench in named}
    assert not {file for file in files if not file.exists()}


def test_the_benches_stay_small() -> None:
    files = [file.read_text() for file in (ROOT / "bench").glob("*.py")]
    assert len(files) <= 60 and sum(len(text.splitlines()) for text in files) <= 10_000
