"""Puts the real output of commands into README.md: after every `<!-- run: COMMAND -->` comes what COMMAND prints.

python docs/fill_readme.py
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"
BLOCK = re.compile(r"(<!-- run: (.+?) -->\n)(?:\n```text\n.*?\n```\n)?", re.DOTALL)


def fill(text: str) -> str:
    """Return the text with every block's output written anew."""
    return BLOCK.sub(lambda match: match[1] + f"\n```text\n$ {match[2]}\n{output_of(match[2])}\n```\n", text)


def output_of(command: str) -> str:
    program, *arguments = shlex.split(command)
    path = Path(sys.executable).parent / program
    done = subprocess.run([str(path), *arguments], capture_output=True, text=True, check=False)
    if done.returncode > 1:
        raise SystemExit(f"{command}: {done.stderr}")
    return done.stdout.rstrip()


if __name__ == "__main__":
    README.write_text(fill(README.read_text()))
