"""Runs a command and writes the peak of its process tree's summed RSS to a file: FILE COMMAND..."""

import subprocess
import sys
import time
from pathlib import Path

import psutil


def main() -> None:
    target, *command = sys.argv[1:]
    process = psutil.Popen(command, stdout=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        total = 0
        for one in (process, *_children(process)):
            try:
                total += one.memory_info().rss
            except psutil.Error:
                continue
        peak = max(peak, total)
        time.sleep(0.01)
    Path(target).write_text(str(peak))


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []


if __name__ == "__main__":
    main()
