"""The operating system refusing: Windows' page file, fork, errno 12.

Windows reports in the language of the system, so error 1455 is known by its number and by what the system says in
the languages people write issues in.
"""

from __future__ import annotations

import re

from legroom.explaining.frames import innermost
from legroom.explaining.log import Log
from legroom.explaining.reading import Rank, Reading, Recogniser, reading, says

_PAGE_FILE = (
    "winerror 1455", "error code: <1455>", "error 1455", "(1455)", "error code 1455", "os error 1455",
    "paging file is too small", "页面文件太小", "頁面檔太小", "分頁檔太小", "auslagerungsdatei ist zu klein",
    "fichier de pagination est insuffisant", "fichier d'échange est insuffisant", "файл подкачки слишком мал",
    "archivo de paginación es demasiado pequeño", "arquivo de paginação é muito pequeno", "file di paging",
    "ページング ファイルが小さすぎ", "페이징 파일이 너무 작", "disk belleği dosyası", "wisselbestand is te klein",
    "plik stronicowania jest za mały", "växlingsfilen är för liten",
)  # fmt: skip
_FORKING = re.compile(r"fork|_posixsubprocess|subprocess\.py|posix_spawn|popen_\w+\.py|_launch|Popen|pexpect")
_MAPPING = re.compile(r"\bmmap\b|memmap|mmap_mode|_io|\bread\(|np\.load")
_SHARED = re.compile(r"_posixshmem|shared_memory\.py|shm_open|SharedMemory|ftruncate|multiprocessing/heap")
_FORK = "The system would not start another process: a fork needs as much free memory as the parent process uses."


def _errno_12(log: Log, place: int) -> Reading | None:
    tail = innermost(log, place, 4) + "\n" + log.around(place, before=300, after=0)
    if _SHARED.search(tail):
        return reading(place, Rank.REFUSED, "shm", "Shared memory (/dev/shm) ran out: the system refused a segment.")
    if _FORKING.search(tail):
        return reading(place, Rank.REFUSED, "fork", _FORK)
    if _MAPPING.search(tail):
        return reading(
            place, Rank.REFUSED, "host-allocator",
            "The system refused to map memory: RAM or address space ran out (ulimit -v, overcommit).",
        )  # fmt: skip
    return reading(place, Rank.SAID, "fork", f"{_FORK} Errno 12 alone does not prove it was one.", certain=False)


def _shell_fork(log: Log, place: int) -> Reading | None:
    memory = "cannot allocate" in log.line(place).lower()
    say = _FORK if memory else "The system would not start another process: a limit on processes, or on memory."
    return reading(place, Rank.REFUSED, "fork", say, certain=memory)


_threads = says(
    Rank.SAID, "fork",
    "The system would not start another thread or process: a limit on processes (ulimit -u), or memory.", certain=False,
)  # fmt: skip


def _try_again(log: Log, place: int) -> Reading | None:
    tail = innermost(log, place, 4) + log.line(place)
    return _threads(log, place) if _FORKING.search(tail) else None


RECOGNISERS = (
    Recogniser("Windows page file", _PAGE_FILE, says(
        Rank.REFUSED, "pagefile",
        "Windows ran out of commit memory (RAM plus page file): each worker that imports torch commits gigabytes.",
    )),
    Recogniser("errno 12", ("errno 12]", "errno 12 ", "[errno 12"), _errno_12),
    Recogniser("fork in a shell", ("fork: cannot allocate memory", "fork: retry:", "fork failed", "unable to fork",
                                   "os.fork() failed"), _shell_fork),
    Recogniser("threads", ("can't start new thread", "thread creation failed", "pthread_create failed"), _threads),
    Recogniser("errno 11", ("errno 11]",), _try_again),
)  # fmt: skip
