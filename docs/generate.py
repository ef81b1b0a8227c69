"""Writes the pages that are made from the code and from measurements, into docs/generated: python docs/generate.py

They are committed, so that links to them lead somewhere on a code host; a test compares them with what this writes.

python docs/generate.py --images writes the README's picture and table of figures, and docs/images/predicted.svg.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent.parent / "src")]

from docs.generators import api, commands, knobs, readme_figures, results, rules, run_file, workloads  # noqa: E402
from docs.generators.readme_figures import with_figures  # noqa: E402
from docs.terminal_svg import readme_picture  # noqa: E402

DOCS = Path(__file__).resolve().parent
GENERATED = DOCS / "generated"
PARTS = (commands, rules, knobs, run_file, readme_figures, workloads, api)


def generate(folder: Path = GENERATED) -> None:
    """Write every generated page, in place of earlier ones."""
    shutil.rmtree(folder, ignore_errors=True)
    for part in PARTS:
        write(folder, part.pages())


def write(folder: Path, texts: Mapping[str, str]) -> None:
    """Write texts by their path in `folder`."""
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    if sys.argv[1:] == ["--images"]:
        readme = DOCS.parent / "README.md"
        readme.write_text(with_figures(readme.read_text()))
        write(DOCS / "images", {"predicted.svg": results.chart(), "terminal.svg": readme_picture(readme)})
    else:
        generate()
