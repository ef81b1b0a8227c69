"""The little Markdown that generated pages need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; what a cell holds is Markdown already, but for its bars."""
    lines = [list(columns), ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(_cell(str(cell)) for cell in line) + " |" for line in lines) + "\n"


def code(text: str, language: str = "text") -> str:
    return f"```{language}\n{text.strip(chr(10))}\n```\n"


def tree(*pages: str, caption: str = "") -> str:
    """Return a hidden table of contents, so that pages have a place in the navigation."""
    says = f":caption: {caption}\n" if caption else ""
    return "```{toctree}\n:hidden:\n" + says + "\n" + "\n".join(pages) + "\n```\n"


def _cell(text: str) -> str:
    return " ".join(text.replace("\\|", "|").replace("|", "\\|").split())
