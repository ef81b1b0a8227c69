"""Checkpoints that cannot be read: a process killed while it wrote one leaves half a file under the good one's name."""

from __future__ import annotations

import re

from legroom.explaining.frames import innermost
from legroom.explaining.log import Log
from legroom.explaining.reading import Rank, Reading, Recogniser, reading, says

_SUMMARY = (
    "A checkpoint is damaged: the file is cut off or was never finished, as when a process is killed while writing it."
)
_LOADING = re.compile(r"torch/serialization|pickle\.load|joblib|\.load\(|load_from|save_util")
TORCH_LOADING = re.compile(r"torch/(?:serialization|_weights_only_unpickler)\.py")
_SPAWNING = re.compile(r"multiprocessing/(?:spawn|forkserver|reduction)|from_parent|_main\b")
_DATA = re.compile(r"mnist|cifar|dataset|download|\.gz\b|image", re.IGNORECASE)


def _ran_out(log: Log, place: int) -> Reading | None:
    """Read pickle's `Ran out of input`: an empty file, or on Windows a worker whose parent died while starting it."""
    tail = innermost(log, place, 4)
    if _SPAWNING.search(tail):
        return reading(
            place, Rank.ECHO, "worker-died",
            "A worker process got nothing from its parent, which failed first; cause unknown.", certain=False,
        )  # fmt: skip
    return reading(place, Rank.REFUSED, "checkpoint-corrupt", _SUMMARY, certain=bool(_LOADING.search(tail)))


def _reading_torch(log: Log, place: int) -> Reading | None:
    """Read the errors of a cut-off file that PyTorch 2 passes on as they are: an EOFError without text, errno 22."""
    line = log.line(place).strip()
    if not line.startswith(("EOFError", "OSError: [Errno 22]")) or "Ran out of input" in line:
        return None
    tail = innermost(log, place, 3)
    if not TORCH_LOADING.search(tail):
        return None
    return reading(place, Rank.REFUSED, "checkpoint-corrupt", _SUMMARY)


def _unpickling(log: Log, place: int) -> Reading | None:
    message = log.message(place, length=1500)
    if "Weights only load failed" in message:  # a class that is not allowed is refused in the same words
        damaged = "Unsupported operand" in message
        return reading(place, Rank.REFUSED, "checkpoint-corrupt", _SUMMARY, certain=False) if damaged else None
    if not re.search(r"truncated|invalid load key|could not|persistent|EOF|unexpected", message[:160]):
        return None
    tail = innermost(log, place, 4)
    certain = "truncated" in message[:120] or bool(_LOADING.search(tail))
    return reading(place, Rank.REFUSED, "checkpoint-corrupt", _SUMMARY, certain=certain)


def _archive(log: Log, place: int) -> Reading | None:
    tail = innermost(log, place, 5)
    return reading(place, Rank.REFUSED, "checkpoint-corrupt", _SUMMARY, certain=not _DATA.search(tail))


RECOGNISERS = (
    Recogniser(
        "damaged file",
        ("pytorchstreamreader failed", "failed finding central directory", "invalid header or archive is corrupted",
         "the file might be corrupted", "file in archive is not in a subdirectory", "safetensorerror: error while des",
         "metadataincompletebuffer", "headertoolarge", "invalidheaderdeserialization", "invalid magic number; corrupt",
         "storage has wrong size: expected", "truncated file: eof", "file signature not found",
         "file is too short to be an sstable", "unpack failed: incomplete input", "checkpoint file is corrupt",
         "dataloss"),
        says(Rank.REFUSED, "checkpoint-corrupt", _SUMMARY),
    ),
    Recogniser("PyTorch on a cut file", ("eoferror", "errno 22]"), _reading_torch),
    Recogniser("empty pickle", ("ran out of input",), _ran_out),
    Recogniser("cut pickle", ("unpicklingerror", "pickle data was truncated"), _unpickling),
    Recogniser("damaged archive", ("badzipfile", "is not a zip file", "bad crc-32", "bad magic number for file header",
                                   "compressed file ended before the end-of-stream", "zlib.error: error -"), _archive),
    Recogniser("writing failed", ("pytorchstreamwriter failed", "] . unexpected pos "), says(
        Rank.REFUSED, "checkpoint-corrupt",
        "A checkpoint could not be written to its end, most often because the disk is full; what is there is damaged.",
        certain=False,
    )),
)  # fmt: skip
