"""Runs a command with the guest alone, and says what its journals hold: peaks of its first card, messages, requests."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from legroom.backends.program.journals import Alloc, Free, Journals, Site
from legroom.backends.program.launching import guest_environment


def rehearse(command: list[str], plan: dict[str, Any], timeout_s: float | None = None) -> dict[str, Any]:
    """Run a command on a hollow card and return its peaks, messages and exit code."""
    with tempfile.TemporaryDirectory() as folder:
        given = {name: value for name, value in guest_environment(Path(folder), plan, os.environ).items()
                 if name not in ("LD_PRELOAD", "JAX_PLATFORMS")}  # fmt: skip
        ended = subprocess.run(command, env=given, timeout=timeout_s, check=False, stdout=sys.stderr)
        found: dict[str, Any] = {
            "code": ended.returncode, "allocated": 0, "reserved": 0, "requests": 0, "steps": 0, "messages": [],
            "events": [],
        }  # fmt: skip
        for _, record in Journals(Path(folder)).new_records():
            if isinstance(record, Alloc):
                found["requests"] += 1
                found["allocated"] = max(found["allocated"], record.allocated)
                found["reserved"] = max(found["reserved"], record.reserved)
                found["events"].append(("alloc", record.block, record.requested))
            elif isinstance(record, Free):
                found["events"].append(("free", record.block))
            elif not isinstance(record, Site):
                found["steps"] += record["kind"] == "step"
                found["messages"] += [record] if record["kind"] != "step" else []
        return found
