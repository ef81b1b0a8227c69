"""The planner page in Chromium: how soon it can be used, how quickly a slider answers, and what it never does.

    python -m bench.ui [--quick] [--pictures]

Times are the browser's own (from the navigation's start; from the slider's event to the frame that shows the new
drawing), of a server that is up, in a context whose cache is empty. The processor is shared with whatever else runs
here, the browser included; medians are given with the extremes. `--pictures` writes those of the documentation.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.results import write_section
from bench.ui_browser import chromium, is_there, opened
from bench.ui_requests import GOOD, malformed
from bench.ui_server import Server, serving

COMMAND = "python -m bench.ui"
MOST_READY_MS, MOST_TURN_MS, MOST_RSS, REQUESTS = 1500.0, 150.0, 70_000_000, 1000
KEYS = ("env.n_envs", "hyperparams.n_steps", "hyperparams.batch_size")
SCREENS = [(width, scheme) for width in (360, 1440) for scheme in ("light", "dark")]
PICTURES = Path(__file__).parents[1] / "docs" / "images"
COLUMNS = ["figure", "required", "measured", "detail", "verdict"]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Figures of the planner page.")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, to try; writes no results")
    parser.add_argument("--pictures", action="store_true", help="write the pictures of the documentation as well")
    options = parser.parse_args(arguments)
    if not is_there():
        print("no /usr/bin/chromium: make test-ui installs it")
        return 1
    with tempfile.TemporaryDirectory(prefix="legroom-bench-ui-") as folder:
        with serving("gameboy:default") as server, chromium() as browser:
            rows = [*_browser_rows(browser, server, 3 if options.quick else 9)]
            if options.pictures:
                _take_pictures(browser, server)
        with serving("gameboy:default") as server:
            rows += _server_rows(server, 200 if options.quick else REQUESTS)
        target = {"path": Path(folder) / "RESULTS.md"} if options.quick else {}
        write_section("Planner page", COLUMNS, rows, COMMAND, **target)
    return 0 if all(row[-1] == "ok" for row in rows) else 1


def _browser_rows(browser: Any, server: Server, times: int) -> Iterator[list[str]]:
    ready, turns, console, hosts = [], [], [], set()
    for _ in range(times):
        with opened(browser, server.address) as seen:
            marks = seen.page.evaluate("performance.getEntriesByName('interactive').map((mark) => mark.startTime)")
            ready.append(float(marks[0]))
            seen.page.select_option("#card", "GeForce RTX 4070")
            seen.drawn(1)
            for key in KEYS:
                turns += seen.turn(key, 10)
            console += seen.console
            hosts |= seen.hosts
    yield _timed("page can be used, cold", MOST_READY_MS, ready)
    yield _timed("slider to new drawing, host and GPU", MOST_TURN_MS, turns)
    others = hosts - {f"127.0.0.1:{server.port}"}
    yield _none("requests to other hosts", others, f"{times} visits")
    yield _none("console errors", console, f"{times} visits")
    wide, unusable = [], []
    for width, scheme in SCREENS:
        with opened(browser, server.address, width=width, scheme=scheme) as seen:
            seen.page.select_option("#card", "GeForce RTX 4070")
            seen.page.click("text=+ compare")
            seen.page.evaluate("document.querySelectorAll('details').forEach((box) => { box.open = true; })")
            seen.page.click("#fit")
            seen.page.wait_for_selector("#fitted .plan")
            seen.page.wait_for_timeout(600)
            wide += seen.overflowing()
            unusable += seen.violations()
    yield _none("elements wider than the screen", wide, "360 and 1440 px, everything open")
    yield _none("violations found by axe-core", unusable, "names, roles, contrast and the rest; light and dark")


def _server_rows(server: Server, count: int) -> Iterator[list[str]]:
    before = server.rss_nbytes()
    answers: Counter[str] = Counter()
    wrong = []
    for kind, request in malformed(count, server.port):
        answer = _sent(server.port, request)
        status = answer.split(b" ", 2)[1].decode("latin-1") if answer.startswith(b"HTTP/") else "none"
        answers[status] += 1
        if status in ("none", "500") or b"Traceback" in answer or b"root:" in answer:
            wrong.append(f"{kind}: {status}")
    alive = server.process.poll() is None and server.ask("POST", "/api/predict", GOOD).status == 200
    told = ", ".join(f"{number} × {status}" for status, number in sorted(answers.items()))
    yield _none(
        f"{count:,} malformed requests: crashes, tracebacks, files", [*wrong, *([] if alive else ["dead"])], told
    )
    for name in ("mine:full", "robot:default", "fire:original"):  # what people do, and then look again
        run = server.ask("GET", f"/api/run?name={name}").json()["run"]
        for path in ("check", "fit"):
            server.ask("POST", f"/api/{path}", {"run": run, "ram": "8GiB", "gpu": "RTX 4070"})
    after, numpy = server.rss_nbytes(), server.has_loaded("numpy")
    detail = f"{before / 1e6:.0f} MB when started; numpy {'loaded' if numpy else 'not loaded'}"
    good = after <= MOST_RSS and not numpy
    yield ["server's RSS after all that", f"≤ {MOST_RSS / 1e6:.0f} MB", f"{after / 1e6:.0f} MB", detail, _verdict(good)]


def _sent(port: int, request: bytes) -> bytes:
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection, suppress(OSError):
        with suppress(OSError):
            connection.sendall(request)
        while chunk := connection.recv(1 << 16):
            answer += chunk
    return answer


def _timed(name: str, most: float, times: Sequence[float]) -> list[str]:
    median = statistics.median(times)
    detail = f"median of {len(times)}; {min(times):.0f} to {max(times):.0f} ms"
    return [name, f"≤ {most:.0f} ms", f"{median:.0f} ms", detail, _verdict(median <= most)]


def _none(name: str, found: Sequence[str] | set[str], detail: str) -> list[str]:
    shown = f"{len(found)}" + (f": {sorted(found)[0][:100]}" if found else "")
    return [name, "0", shown, detail, _verdict(not found)]


def _verdict(good: bool) -> str:
    return "ok" if good else "MISSED"


def _take_pictures(browser: Any, server: Server) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    for width, height, scheme, name in ((1280, 900, "light", "ui.png"), (360, 780, "dark", "ui-phone.png")):
        with opened(browser, server.address, width=width, scheme=scheme) as seen:
            seen.page.set_viewport_size({"width": width, "height": height})
            seen.page.select_option("#card", "GeForce RTX 4070")
            seen.page.fill("#ram", "16GiB")
            seen.page.click("text=+ compare")
            seen.page.select_option('[data-key="env.workers"] select', "light")
            seen.page.fill('[data-key="hyperparams.n_steps"] input[type=number]', "4096")
            seen.page.wait_for_timeout(1200)
            seen.page.evaluate("scrollTo(0, 0)")
            seen.page.screenshot(path=str(PICTURES / name))


if __name__ == "__main__":
    began = time.perf_counter()
    code = main(sys.argv[1:])
    print(f"{(time.perf_counter() - began) / 60:.1f} minutes")
    sys.exit(code)
