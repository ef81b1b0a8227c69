"""Pages that legroom writes, read as a browser does."""

import re
from html.parser import HTMLParser
from pathlib import Path

VOID = {"meta", "br", "line", "rect", "path"}


class Page(HTMLParser):
    """Reads a page as a browser does and keeps its text; raises where an element is closed that was not opened."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.titles: list[str] = []
        self.source = file.read_text()
        self.feed(self.source)
        self.close()
        assert self.open == []
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            assert name not in ("src", "href", "style", "onload") or not value, (tag, name, value)
        if tag not in VOID or (f"<{tag}" in "<line<path<rect" and not self.get_starttag_text().endswith("/>")):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in VOID

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "title":
            self.titles.append(data)
        elif "style" not in self.open:
            self.words.append(data)


def page_of(file: Path) -> Page:
    page = Page(file)
    assert not re.search(r"https?://|<script|@import|url\(", page.source)
    assert "prefers-color-scheme:dark" in page.source and 'name="viewport"' in page.source
    return page
