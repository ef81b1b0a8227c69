"""Runs a command with the guest and prints both peaks of its first card: `python -m legroom.hollow.rehearse ppo.py`.

For development and tests; `legroom predict -- command` is what users have.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Iterator


def records(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the records of a journal."""
    data = path.read_bytes() if path.stat().st_size < 1 << 30 else b""
    (committed,) = struct.unpack_from("<Q", data, 8)
    at, end = 64, 64 + committed
    while at < end:
        kind, length = struct.unpack_from("<cI", data, at)
        payload = data[at + 5 : at + 5 + length]
        if kind == b"A":
            yield "A", struct.unpack("<QQQQQIBBB", payload)
        elif kind == b"F":
            yield "F", struct.unpack("<QQQB", payload)
        elif kind == b"S":
            yield "S", (struct.unpack_from("<I", payload)[0], json.loads(payload[4:]))
        else:
            yield "J", json.loads(payload)
        at += 5 + length


def environment(folder: str, plan: dict[str, Any]) -> dict[str, str]:
    guest = str(Path(__file__).parent / "guest")
    path = os.environ.get("PYTHONPATH")
    return {
        **os.environ, "PYTHONPATH": guest + (os.pathsep + path if path else ""), "LEGROOM_REHEARSAL": "1",
        "LEGROOM_REHEARSAL_FOLDER": folder, "LEGROOM_REHEARSAL_PLAN": json.dumps(plan), "WANDB_MODE": "offline",
    }  # fmt: skip


def rehearse(command: list[str], plan: dict[str, Any], timeout_s: float | None = None) -> dict[str, Any]:
    """Run a command on a hollow card and return its peaks, messages, exit code and seconds."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        try:
            code: int | None = subprocess.run(
                command, env=environment(folder, plan), timeout=timeout_s, check=False, stdout=sys.stderr
            ).returncode
        except subprocess.TimeoutExpired:
            code = None
        found: dict[str, Any] = {
            "code": code, "seconds": round(time.monotonic() - began, 1), "allocated": 0, "reserved": 0, "requests": 0,
            "steps": 0, "messages": [], "events": [], "sites": {},
        }  # fmt: skip
        for path in sorted(Path(folder).glob("journal-*")):
            for kind, content in records(path):
                if kind == "A":
                    found["requests"] += 1
                    found["allocated"] = max(found["allocated"], content[3])
                    found["reserved"] = max(found["reserved"], content[4])
                    found["events"].append(("alloc", content[0], content[1], content[5]))
                elif kind == "F":
                    found["events"].append(("free", content[0]))
                elif kind == "S":
                    found["sites"][content[0]] = content[1]
                elif content["kind"] == "step":
                    found["steps"] += 1
                else:
                    found["messages"].append(content)
        return found


def main() -> int:
    words = sys.argv[1:]
    plan: dict[str, Any] = {}
    timeout = None
    while words and words[0].startswith("--"):
        name, _, value = words.pop(0)[2:].partition("=")
        if name == "seconds":
            timeout = float(value)
        else:
            plan[name] = int(value) if value.isdigit() else value
    command = [sys.executable, *words] if words[0].endswith(".py") or words[0] == "-m" else words
    found = rehearse(command, plan, timeout)
    for message in found["messages"]:
        print(
            {key: value for key, value in message.items() if key != "text"} if message["kind"] == "roles" else message
        )
    print(
        f"reserved {found['reserved']:,}  allocated {found['allocated']:,}  requests {found['requests']:,}  "
        f"steps {found['steps']}  code {found['code']}  {found['seconds']} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
