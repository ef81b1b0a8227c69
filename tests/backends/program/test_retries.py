"""Which handlers of an out-of-memory error try the same again with less, told by their source."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from legroom.backends.program.retries import find_retry

AGAIN = {
    "halved in a loop": """
        while done < 5:
            try:
                step(n)  # here
                done += 1
            except torch.OutOfMemoryError:
                n //= 2
        """,
    "candidates": """
        for n in (64, 32, 16):
            try:
                train(n)  # here
                break
            except RuntimeError:
                print("too large", n)
        """,
    "returned from a loop": """
        def decorated(*args):
            while True:
                try:
                    return function(batch_size, *args)  # here
                except Exception as error:
                    if is_oom(error):
                        batch_size = reduced(batch_size)
                    else:
                        raise
        """,
    "an attribute": """
        for batch in loader:
            try:
                self.step(batch[: self.size])  # here
            except (RuntimeError, ValueError):
                self.size = self.size // 2
        """,
    "pieces in the handler": """
        for batch in loader:
            try:
                step(batch)  # here
            except torch.cuda.OutOfMemoryError:
                torch.cuda.empty_cache()
                for piece in batch.chunk(2):
                    step(piece)
        """,
    "pieces after the handler": """
        for batch in loader:
            failed = False
            try:
                step(batch)  # here
            except torch.OutOfMemoryError:
                failed = True
            if failed:
                for piece in batch.chunk(2):
                    step(piece)
        """,
    "called again": """
        def train(n):
            try:
                run(n)  # here
                return
            except torch.OutOfMemoryError:
                pass
            return train(n // 2)
        """,
}
NOT_AGAIN = {
    "printed": """
        try:
            step(n)  # here
        except Exception as error:
            print(error)
        """,
    "left out": """
        for batch in loader:
            try:
                step(batch)  # here
            except torch.OutOfMemoryError:
                skipped += 1
                optimizer.zero_grad()
                continue
        """,
    "left out, with an end": """
        for batch in loader:
            try:
                step(batch)  # here
                if done:
                    break
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
        """,
    "a loss of zero": """
        for batch in loader:
            try:
                loss = step(batch)  # here
            except torch.OutOfMemoryError:
                loss = torch.zeros(1, device="cuda")
        """,
    "suppressed": """
        while n:
            with contextlib.suppress(RuntimeError):
                step(n)  # here
            n //= 2
        """,
    "of another error": """
        while True:
            try:
                step(n)  # here
                break
            except ValueError:
                n //= 2
        """,
    "raised again": """
        while True:
            try:
                step(n)  # here
                break
            except RuntimeError:
                n //= 2
                raise
        """,
    "in the handler itself": """
        while True:
            try:
                other(n)
                break
            except RuntimeError:
                n //= 2
                step(n)  # here
        """,
    "nothing": "step(n)  # here",
}


def _retry(folder: Path, source: str) -> object:
    script = folder / "program.py"
    script.write_text(textwrap.dedent(source))
    (line,) = [at for at, text in enumerate(script.read_text().splitlines(), 1) if "# here" in text]
    return find_retry([("/gone.py", 3), (str(script), line)])


@pytest.mark.parametrize("name", AGAIN)
def test_a_handler_that_tries_again_with_less(tmp_path: Path, name: str) -> None:
    assert _retry(tmp_path, AGAIN[name]) is not None


@pytest.mark.parametrize("name", NOT_AGAIN)
def test_a_handler_that_does_not(tmp_path: Path, name: str) -> None:
    assert _retry(tmp_path, NOT_AGAIN[name]) is None


HEAD = """
import asyncio, atexit, contextlib, os, subprocess, sys, threading
import torch
net = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def step(n):
    loss = net(torch.ones(n, 1024, device="cuda")).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
BIG, SMALL = 1 << 20, 64
for _ in range(3): step(SMALL)
"""
LOST = {
    "a thread": """
threading.excepthook = lambda *_: None
thread = threading.Thread(target=step, args=(BIG,)); thread.start(); thread.join()
""",
    "a future": """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor() as pool: pool.submit(step, BIG)
""",
    "gather": """
async def work(): step(BIG)
async def main(): await asyncio.gather(work(), work(), return_exceptions=True)
asyncio.run(main())
""",
    "a child": """
if len(sys.argv) == 1: subprocess.run([sys.executable, __file__, "child"], check=False)
else: step(BIG)
""",
    "atexit": "atexit.register(step, BIG)",
    "another hook": "sys.excepthook = lambda *_: os._exit(0)\nstep(BIG)",
    "an exit": "try: step(BIG)\nexcept RuntimeError: sys.exit(0)",
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) for name in LOST if name != "a thread"] + ["a thread"]
)
def test_out_of_memory_is_the_verdict_wherever_the_error_went(tmp_path: Path, name: str) -> None:
    pytest.importorskip("torch")
    script = tmp_path / "program.py"
    script.write_text(HEAD + LOST[name])
    command = [sys.executable, "-m", "legroom.cli.main", "predict", "--json", "--vram", "2GiB", "--ram", "64GiB"]
    done = subprocess.run([*command, "--", sys.executable, str(script)], capture_output=True, text=True, check=False)
    (run,) = json.loads(done.stdout)["runs"]
    assert (done.returncode, run["fits"]) == (1, False), done.stderr
    assert run["program"]["at"] == {"file": str(script), "line": 7}
