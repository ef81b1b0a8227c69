"""Chromium on the planner page: what it asks for, what it says, how long it takes.

The browser is Debian's; Playwright drives it. Nothing is injected but axe-core, which looks for what a screen reader or
a keyboard could not use, and for text that cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.serving.ui_server import CHROMIUM, FLAGS

DRAWN = "Number(document.body.dataset.drawn || 0)"
# turn a slider, wait for the new drawing and the frame that shows it; milliseconds of each turn
TURN = """async ([key, turns]) => {
  const slider = document.querySelector(`[data-key="${key}"] input[type=range]`);
  const times = [];
  for (let turn = 0; turn < turns; turn++) {
    const before = Number(document.body.dataset.drawn);
    const began = performance.now();
    slider.value = (Number(slider.value) + 1) % Number(slider.max);
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    while (Number(document.body.dataset.drawn) === before) await new Promise((later) => setTimeout(later, 1));
    await new Promise((shown) => requestAnimationFrame(shown));
    times.push(performance.now() - began);
    await new Promise((later) => setTimeout(later, 30));
  }
  return times;
}"""
# what reaches beyond the screen and is in no box that scrolls by itself
OVERFLOWING = """() => [...document.querySelectorAll("body *")].filter((each) => {
  const box = each.getBoundingClientRect();
  if (!box.width || box.right <= innerWidth + 1 || each.closest(".wide, .skip, svg")) return false;
  return getComputedStyle(each).position !== "absolute";
}).map((each) => `${each.tagName}.${each.className}`).concat(
  document.documentElement.scrollWidth > innerWidth ? [`the page, ${document.documentElement.scrollWidth} px`] : [])"""


@dataclass
class Seen:
    """A page and what it did."""

    page: Any
    console: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)

    def drawn(self, more_than: int = 0) -> int:
        """Wait for a drawing and return how many there were."""
        for _ in range(400):
            number = int(self.page.evaluate(DRAWN))
            if number > more_than:
                return number
            self.page.wait_for_timeout(25)
        raise TimeoutError("the page drew nothing")

    def turn(self, key: str, turns: int = 1) -> list[float]:
        return list(self.page.evaluate(TURN, [key, turns]))

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))

    def overflowing(self) -> list[str]:
        return list(self.page.evaluate(OVERFLOWING))

    def violations(self) -> list[str]:
        """Return what axe-core finds, one line each."""
        self.page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text())
        found = self.page.evaluate("async () => (await axe.run(document)).violations")
        return [f"{each['id']}: {each['help']} ({each['nodes'][0]['html'][:160]})" for each in found]


def is_there() -> bool:
    return Path(CHROMIUM).exists()


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright  # a dev package, and only here

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(
    browser: Any, address: str, *, width: int = 1440, height: int = 900, scheme: str = "light"
) -> Iterator[Seen]:
    """Open the page in a fresh context, whose cache is empty, and wait until it can be used."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, accept_downloads=True
    )
    try:
        seen = Seen(context.new_page())
        seen.page.on("console", lambda message: seen.console.append(f"{message.type}: {message.text}"))
        seen.page.on("pageerror", lambda error: seen.console.append(f"error: {error}"))
        seen.page.on("request", lambda request: seen.hosts.add(urlsplit(request.url).netloc))
        seen.page.goto(address)
        seen.page.wait_for_selector("body[data-ready]", timeout=20_000)
        if seen.page.is_visible("#plan"):
            seen.drawn()
        yield seen
    finally:
        context.close()
