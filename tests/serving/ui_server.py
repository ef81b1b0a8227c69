"""A real `legroom ui` for tests: started, asked over real sockets, ended."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LEGROOM = (sys.executable, "-c", "from legroom.cli.main import main; main()")
TIMEOUT_S = 30.0
# as root in a container: no sandbox, and nothing that would ask another host
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Server:
    """One that runs; `address` is what it printed."""

    process: subprocess.Popen[str]
    address: str

    @property
    def port(self) -> int:
        return int(self.address.split("//")[1].partition("/")[0].rpartition(":")[2])

    def ask(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
        """Send one request; a body that is not bytes goes as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        try:
            connection.request(method, path, data, dict(headers or {}))
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def rss_nbytes(self) -> int:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))

    def has_loaded(self, package: str) -> bool:
        """Say whether a library of that package is mapped into the server."""
        return f"/{package}/" in Path(f"/proc/{self.process.pid}/maps").read_text()


@contextmanager
def serving(*arguments: str, environment: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Run `legroom ui` on a free port until the block ends."""
    command = [*LEGROOM, "ui", *arguments, *(() if "--port" in arguments else ("--port", "0"))]
    process = start(command, environment)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"legroom ui did not start: {process.communicate()[1]}")
        yield Server(process, line.split()[-1])
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIMEOUT_S)


def start(command: Sequence[str], environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    every = {**os.environ, **(environment or {})}
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, stdin=subprocess.DEVNULL, text=True, env=every)
