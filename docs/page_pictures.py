"""The pictures of the page in the documentation: every view, at three widths, in light and dark.

    python -m docs.page_pictures [FOLDER]    with a folder: every view at every width, to be looked at

The training that is followed is a real one.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image
from tests.serving.ui_browser import Seen, chromium, opened
from tests.serving.ui_server import LEGROOM, serving

ROOT = Path(__file__).parents[1]
PICTURES, FILES = ROOT / "docs" / "images", ROOT / "docs" / "files"
DESK, TABLET, PHONE = (1440, 900), (768, 1024), (360, 780)
CARD = "GeForce RTX 4070"


def take_pictures(folder: Path, to: Path = PICTURES) -> None:
    """Write the pictures of the documentation; what they need is made in `folder`."""
    to.mkdir(parents=True, exist_ok=True)
    runs = _training(folder)
    with serving("--folder", str(runs)) as server, chromium() as browser:
        for name, (size, scheme, prepare) in {
            "ui-start.png": (DESK, "light", lambda seen: None),
            "ui.png": (DESK, "light", _planned),
            "ui-error.png": (TABLET, "dark", _explained),
            "ui-follow.png": (TABLET, "dark", _followed),
            "ui-phone.png": (PHONE, "dark", _turned),
        }.items():
            _take(browser, server.address, to / name, size, scheme, prepare)


def take_all(folder: Path, to: Path) -> None:
    """Write every view at every width in both themes, to be looked at."""
    to.mkdir(parents=True, exist_ok=True)
    runs = _training(folder)
    views: dict[str, Callable[[Seen], None]] = {
        "start": lambda seen: None, "plan": _planned, "turned": _turned, "error": _explained, "follow": _followed,
    }  # fmt: skip
    with serving("--folder", str(runs)) as server, chromium() as browser:
        for size in (DESK, TABLET, PHONE):
            for scheme in ("light", "dark"):
                for name, prepare in views.items():
                    _take(browser, server.address, to / f"{name}-{size[0]}-{scheme}.png", size, scheme, prepare)


def _take(
    browser: Any, address: str, path: Path, size: tuple[int, int], scheme: str, prepare: Callable[[Seen], None]
) -> None:
    with opened(browser, address, width=size[0], height=size[1], scheme=scheme) as seen:
        prepare(seen)
        seen.page.wait_for_timeout(300)
        seen.page.screenshot(path=str(path))
    with Image.open(path) as picture:  # flat colours: a palette takes a third of the bytes
        picture.convert("RGB").quantize(256, kmeans=4, dither=Image.Dither.NONE).save(path, optimize=True)


def _planned(seen: Seen) -> None:
    page = seen.page
    page.click("#examples button >> nth=3")  # the Game Boy, which has a share of every kind
    seen.drawn()
    page.select_option("#card", CARD)
    page.fill("#ram", "16GiB")
    page.click("text=+ compare")
    page.select_option('[data-key="env.workers"] select', "light")
    page.fill('[data-key="hyperparams.n_steps"] input[type=number]', "4096")
    page.wait_for_timeout(1200)
    page.evaluate("scrollTo(0, 0)")


def _turned(seen: Seen) -> None:
    """The planner while a knob is turned: the verdict and the bars are still there."""
    _planned(seen)
    seen.page.focus('[data-key="hyperparams.n_steps"] input[type=range]')
    seen.page.evaluate("document.querySelector('[data-key=\"hyperparams.n_steps\"]').scrollIntoView({block: 'center'})")


def _explained(seen: Seen) -> None:
    seen.page.fill("#paste", (FILES / "cuda.txt").read_text())
    seen.page.click("#read")
    seen.page.wait_for_selector("#result-body table")


def _followed(seen: Seen) -> None:
    seen.page.click("#tab-follow")
    seen.page.wait_for_selector("#follow-body svg")


def _training(folder: Path) -> Path:
    run = FILES / "cartpole.yaml"
    command = [*LEGROOM, "train", str(run), "--out", str(folder / "runs" / "cartpole")]
    subprocess.run(command, capture_output=True, check=True, cwd=folder)
    return folder / "runs"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="legroom-pictures-") as made:
        if sys.argv[1:]:
            take_all(Path(made), Path(sys.argv[1]))
        else:
            take_pictures(Path(made))
