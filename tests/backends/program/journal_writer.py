"""Writes journals as a guest does, with a card that is counted by hand: for tests, and for programs that tests start.

Standard library alone, so that a program in any interpreter can import it.
"""

import json
import os
import struct
import time
from pathlib import Path

MIB = 1 << 20


class JournalWriter:
    """One process's journal; `reserved` is what the test says it is, else the largest allocated so far."""

    def __init__(self, folder=None, pid=None):
        folder = folder or os.environ["LEGROOM_REHEARSAL_FOLDER"]
        self.pid = pid or os.getpid()
        # a guest in the same process has `journal-PID`; another name is as good
        self.path = Path(folder) / f"journal-{self.pid}.9"
        self._began = time.monotonic()
        self._file = self.path.open("w+b")
        self._file.write(struct.pack("<4sIQI", b"LGRH", 1, 0, self.pid).ljust(64, b"\0"))
        self._at, self._blocks, self._number, self._steps, self._sites = 0, {}, 0, 0, {}
        self.allocated, self.reserved = 0, 0
        self._file.flush()

    def site(self, file, line, function="main", module=None, caller=None):
        """Return the number of a place, told once."""
        key = (file, line, function, module)
        if key not in self._sites:
            number = self._sites[key] = len(self._sites) + 1
            frames = [[str(file), line, function], *([caller] if caller else [])]
            content = [frames, module] if module else frames
            self._record(b"S", struct.pack("<I", number) + json.dumps(content).encode())
        return self._sites[key]

    def alloc(self, nbytes, site, *, phase=0, flags=0, device=0, reserved=None):
        """Hand out a block and return its number."""
        self._number += 1
        self.allocated += nbytes
        self.reserved = reserved if reserved is not None else max(self.reserved, self.allocated)
        self._blocks[self._number] = nbytes
        self._record(
            b"A",
            struct.pack(
                "<QQQQQIBBB", self._number, nbytes, nbytes, self.allocated, self.reserved, site, device, phase, flags
            ),
        )
        return self._number

    def free(self, number, device=0):
        self.allocated -= self._blocks.pop(number)
        self._record(b"F", struct.pack("<QQQB", number, self.allocated, self.reserved, device))

    def step(self, t=None):
        self._steps += 1
        self.json("step", n=self._steps, t=t, optimizer=1)

    def json(self, kind, t=None, **content):
        t = time.monotonic() - self._began if t is None else t
        self._record(b"J", json.dumps({"kind": kind, "t": t, **content}).encode())

    def begin(self):
        """Say what a guest says first."""
        self.json("started", argv=[], python="3.11.0", torch="2.6.0", cuda_build=False)
        self.json("torch", version="2.6.0")
        self.json("context", device=0)

    def half_a_record(self):
        """Write the beginning of a record that is never committed, as a kill leaves it."""
        self._file.seek(64 + self._at)
        self._file.write(struct.pack("<cI", b"A", 47) + b"\1\2\3")
        self._file.flush()

    def _record(self, kind, payload):
        data = struct.pack("<cI", kind, len(payload)) + payload
        self._file.seek(64 + self._at)
        self._file.write(data)
        self._at += len(data)
        self._file.seek(8)
        self._file.write(struct.pack("<Q", self._at))
        self._file.flush()
