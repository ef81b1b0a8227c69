"""Puts the real output of commands into the pages: after every `<!-- run: COMMAND -->` comes what COMMAND prints.

python docs/fill.py                     all that is quick
python docs/fill.py --slow              all
python docs/fill.py --slow README train only pages and commands with one of these words, e.g. after changing a command
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from docs.blocks import _RUN, Session, blocks_of, pages


def fill(page: Path, words: list[str], slow: bool) -> None:
    """Write the output of a page's commands anew."""
    blocks = blocks_of(page)
    about_page = not words or any(word in page.stem or word == page.parent.name for word in words)
    wanted = [
        block
        for block in blocks
        if (slow or not block.slow) and block.can_run and (about_page or any(w in block.command for w in words))
    ]
    if not wanted:
        return
    outputs = {}
    with tempfile.TemporaryDirectory() as folder:
        session = Session(Path(folder))
        for block in wanted:
            sys.stderr.write(f"{block.where} {block.command}\n")
            try:
                outputs[block.command] = session.run(block.command, slow=block.slow)
            except RuntimeError as failed:
                sys.stderr.write(f"FAILED, left as it was: {failed}\n")

    def filled(match) -> str:  # type: ignore[no-untyped-def]
        command = match["command"]
        if command not in outputs:
            return match[0]
        first = match[0].split("\n", 1)[0]
        return f"{first}\n\n```text\n$ {command}\n{outputs[command]}\n```\n"

    page.write_text(_RUN.sub(filled, page.read_text()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="of a page's name or of a command")
    parser.add_argument("--slow", action="store_true", help="trainings and traces too")
    asked = parser.parse_args()
    for page in pages():
        fill(page, asked.words, asked.slow)
