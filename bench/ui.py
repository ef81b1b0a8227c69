"""The page in Chromium: how soon the start view can be used, how quickly a slider answers, and what it never does.

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
from bench.ui_browser import Seen, chromium, is_there, opened
from bench.ui_pictures import take_pictures
from bench.ui_requests import GOOD, malformed
from bench.ui_server import Server, serving

COMMAND = "python -m bench.ui"
MOST_READY_MS, MOST_TURN_MS, MOST_RSS, REQUESTS = 1000.0, 100.0, 70_000_000, 1000
KEYS = ("env.n_envs", "hyperparams.n_steps", "hyperparams.batch_size")
SCREENS = [(width, scheme) for width in (360, 768, 1440) for scheme in ("light", "dark")]
FILES = Path(__file__).parents[1] / "docs" / "files"
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
        with serving() as bare, serving("gameboy:default") as server, chromium() as browser:
            times = 3 if options.quick else 9
            rows = [*_start_rows(browser, bare, times), *_browser_rows(browser, server, times)]
            rows += [*_screen_rows(browser, bare, server)]
        if options.pictures:
            take_pictures(Path(folder))
        with serving("gameboy:default") as server:
            rows += _server_rows(server, 200 if options.quick else REQUESTS)
        target = {"folder": Path(folder)} if options.quick else {}
        write_section("Planner page", COLUMNS, rows, COMMAND, **target)
    return 0 if all(row[-1] == "ok" for row in rows) else 1


def _start_rows(browser: Any, bare: Server, times: int) -> Iterator[list[str]]:
    ready = []
    for _ in range(times):
        with opened(browser, bare.address) as seen:
            ready.append(_ready_ms(seen))
    yield _timed("start view can be used, cold", MOST_READY_MS, ready)


def _ready_ms(seen: Seen) -> float:
    marks = seen.page.evaluate("performance.getEntriesByName('interactive').map((mark) => mark.startTime)")
    return float(marks[0])


def _browser_rows(browser: Any, server: Server, times: int) -> Iterator[list[str]]:
    ready, turns, console, hosts = [], [], [], set()
    for _ in range(times):
        with opened(browser, server.address) as seen:
            ready.append(_ready_ms(seen))
            seen.page.select_option("#card", "GeForce RTX 4070")
            seen.drawn(1)
            for key in KEYS:
                turns += seen.turn(key, 10)
            console += seen.console
            hosts |= seen.hosts
    yield _timed("planner with a run can be used, cold", MOST_READY_MS, ready)
    yield _timed("slider to new drawing, host and GPU", MOST_TURN_MS, turns)
    others = hosts - {f"127.0.0.1:{server.port}"}
    yield _none("requests to other hosts", others, f"{times} visits")
    yield _none("console errors", console, f"{times} visits")


def _screen_rows(browser: Any, bare: Server, server: Server) -> Iterator[list[str]]:
    wide: list[str] = []
    unusable: list[str] = []
    for width, scheme in SCREENS:
        with opened(browser, bare.address, width=width, scheme=scheme) as seen:
            _look(seen, wide, unusable)
            seen.page.click("#tab-follow")
            _look(seen, wide, unusable)
            seen.page.click("#tab-start")
            seen.page.fill("#paste", (FILES / "cuda.txt").read_text())
            seen.page.click("#read")
            seen.page.wait_for_selector("#result-body table")
            _look(seen, wide, unusable)
        with opened(browser, server.address, width=width, scheme=scheme) as seen:
            seen.page.select_option("#card", "GeForce RTX 4070")
            seen.page.click("text=+ compare")
            seen.page.evaluate("document.querySelectorAll('details').forEach((box) => { box.open = true; })")
            seen.page.click("#fit")
            seen.page.wait_for_selector("#fitted .plan")
            seen.page.wait_for_timeout(600)
            _look(seen, wide, unusable)
    yield _none("elements wider than the screen", wide, "360, 768 and 1440 px; four views, everything open")
    detail = "names, roles, contrast and the rest; four views, three widths, light and dark"
    yield _none("violations found by axe-core", unusable, detail)


def _look(seen: Seen, wide: list[str], unusable: list[str]) -> None:
    wide += seen.overflowing()
    unusable += seen.violations()


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


if __name__ == "__main__":
    began = time.perf_counter()
    code = main(sys.argv[1:])
    print(f"{(time.perf_counter() - began) / 60:.1f} minutes")
    sys.exit(code)
