"""`legroom ui` under attack: silent and slow connections, texts that take for ever, and what a kill leaves."""

import asyncio
import gc
import os
import signal
import socket
import subprocess
import sys
import time
import weakref
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256

import psutil
import pytest
from tests.serving.ui_requests import GOOD
from tests.serving.ui_server import LEGROOM, serving, start

from legroom.errors import BadInput
from legroom.serving import server as server_module
from legroom.serving.answering import Answering
from legroom.serving.guard import RequestRefused

CARRIER = 'a:\n  n_timesteps: 1e5\n  policy: MlpPolicy\n  policy_kwargs: "dict(net_arch={})"\n'
TEXTS = {
    "round": CARRIER.format("[round(1, -10**10)]"),
    "doubling": CARRIER.format("[1]" + "+[1]*99999" * 30),
    "sexagesimal": "algo: PPO\nenv: {id: CartPole-v1}\nseed: 1" + ":1" * 100_000,
}


@pytest.fixture(scope="module")
def server():
    with serving("mine:small") as found:
        yield found


def _opened(server, head=b""):
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    connection.sendall(head)
    return connection


def _seconds(server):
    return sum(psutil.Process(server.process.pid).cpu_times()[:2])


def test_a_hundred_silent_connections_do_not_lock_the_page(server):
    silent = [_opened(server, b"GET / HTTP/1.1\r\nX-Slow: " if i % 2 else b"") for i in range(100)]
    began = time.monotonic()
    try:
        assert server.ask("GET", "/").status == 200
        assert server.ask("POST", "/api/predict", GOOD).status == 200
        for connection in silent:  # and they are ended, the silent and those that never finish their headers
            with suppress(ConnectionResetError):
                assert connection.recv(1) == b""
    finally:
        for connection in silent:
            connection.close()
    assert time.monotonic() - began < 20


def test_headers_in_drops_are_ended(server):
    with _opened(server, b"GET / HTTP/1.1\r\n") as connection:
        began = time.monotonic()
        with pytest.raises(OSError):
            while time.monotonic() - began < 15:
                connection.sendall(b"X-Drop: 1\r\n")
                time.sleep(0.2)
    assert time.monotonic() - began < 12


def test_a_body_in_chunks_is_refused_before_it_is_read(server):
    """Chunks of one byte: 1.8 MB of them took two seconds of processor time, in which nobody else was answered."""
    head = f"POST /api/predict HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nTransfer-Encoding: chunked\r\n\r\n"
    before = _seconds(server)
    with _opened(server) as connection:
        connection.sendall(head.encode() + b"1\r\nx\r\n" * 10)
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 411 ")
        with suppress(OSError):
            connection.sendall(b"1\r\nx\r\n" * 300_000)
            while connection.recv(1 << 16):
                pass
    assert server.ask("GET", "/page.css").status == 200
    assert _seconds(server) - before < 1.0


def test_what_connections_leave_in_cycles_is_given_back_soon(monkeypatch):
    """Else it waits for the collector, between things that stay, and the page of a week has grown by megabytes."""

    class Left:
        def __init__(self):
            self.itself, self.body = self, bytes(1 << 20)

    async def leave():
        tidying = asyncio.create_task(server_module._tidy())
        await asyncio.sleep(0)
        left = weakref.ref(Left())
        assert left() is not None
        await asyncio.sleep(0.2)
        tidying.cancel()
        return left()

    monkeypatch.setattr(server_module, "TIDY_EVERY_S", 0.01)
    try:
        assert asyncio.run(leave()) is None
    finally:
        gc.unfreeze()


@pytest.mark.parametrize("name", TEXTS)
def test_a_dropped_file_that_takes_for_ever_is_refused_and_others_are_answered(server, name):
    began = time.monotonic()
    answer = server.ask("POST", "/api/read", {"name": "ppo.yml", "text": TEXTS[name]})
    assert answer.status in (200, 400) and time.monotonic() - began < 10
    assert server.ask("POST", "/api/predict", GOOD).status == 200


def test_requests_whose_clients_have_gone_are_not_worked_out():
    answers = (
        "import sys, time\n"
        "for line in sys.stdin:\n"
        "    time.sleep(0.2)\n"
        '    print(\'{"status": 200, "text": "done", "kind": "text/plain"}\', flush=True)'
    )

    async def left() -> bool:
        return True

    async def asked():
        answering = Answering((sys.executable, "-c", answers))
        try:
            impatient = [answering.ask("/api/read", {}, b"{}", gone=left) for _ in range(50)]
            *dropped, answer = await asyncio.gather(
                *impatient, answering.ask("/api/read", {}, b"{}"), return_exceptions=True
            )
            return dropped, answer, len(answering._all)
        finally:
            await answering.end()

    dropped, answer, children = asyncio.run(asked())
    assert {(type(each), each.status) for each in dropped} == {(RequestRefused, 408)}
    assert (answer.status_code, answer.body, children) == (200, b"done", 1)


def test_an_answer_that_takes_too_long_is_killed_while_others_are_worked_out():
    hangs = "import os, sys, time; print(os.getpid(), file=sys.stderr, flush=True); time.sleep(600)"

    async def asked():
        answering = Answering((sys.executable, "-c", hangs), longest_s=0.5)
        try:
            ticks, waiting = 0, asyncio.create_task(answering.ask("/api/read", {}, b"{}"))
            while not waiting.done():
                ticks += 1
                await asyncio.sleep(0.01)
            with pytest.raises(BadInput, match=r"more than 0\.5 s"):
                waiting.result()
            return ticks, [child.returncode for child in answering._all]
        finally:
            await answering.end()

    ticks, left = asyncio.run(asked())
    assert ticks > 10 and left == []


def test_a_child_that_was_killed_is_replaced_before_anybody_notices(server):
    """Also where all of them were killed, and one while it is asked."""
    for killed_first in (True, False):
        with ThreadPoolExecutor(3) as pool:  # as many children as there may be
            assert {each.status for each in pool.map(lambda _: server.ask("POST", "/api/predict", GOOD), range(9))} == {
                200
            }
            for child in _children(server.process.pid) if killed_first else ():
                child.kill()
            asked = [pool.submit(server.ask, "POST", "/api/predict", GOOD) for _ in range(9)]
            for child in () if killed_first else _children(server.process.pid):
                child.kill()
            assert [each.result().status for each in asked] == [200] * 9


def _children(pid):
    return psutil.Process(pid).children(recursive=True)


def _wait_for(condition, seconds=30.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def _gone(processes):
    return all(not p.is_running() or p.status() == psutil.STATUS_ZOMBIE for p in processes)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_page_that_ends_during_a_traced_prediction_leaves_no_process(number):
    with serving("mine:small") as page:
        run = page.ask("GET", "/api/start").json()["shown"][0]["run"]
        assert page.ask("POST", "/api/trace", {"name": "mine:small", "run": run}).status == 200
        _wait_for(lambda: len(_children(page.process.pid)) >= 2)
        started = _children(page.process.pid)
        page.process.send_signal(number)
        page.process.wait(20)
        _wait_for(lambda: _gone(started))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_traced_prediction_that_is_ended_leaves_no_process(number):
    process = start([*LEGROOM, "predict", "mine:small", "--mode", "trace"])
    try:
        _wait_for(lambda: _children(process.pid))
        started = _children(process.pid)
        process.send_signal(number)
        assert process.wait(20) == -number
        _wait_for(lambda: _gone(started))
    finally:
        process.kill()
        process.communicate()


def test_a_report_loads_nothing_and_runs_nothing(tmp_path):
    file = tmp_path / "report.html"
    command = [*LEGROOM, "predict", "mine:small", "--mode", "arithmetic", "--html", str(file)]
    subprocess.run(command, check=False, capture_output=True, env=dict(os.environ))
    text = file.read_text()
    style = text.partition("<style>")[2].partition("</style>")[0]
    own = b64encode(sha256(style.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{own}'" in text
    assert "<script" not in text and " style=" not in text
