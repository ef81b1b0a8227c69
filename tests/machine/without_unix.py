"""`legroom` as on Windows, as far as that can be pretended: the modules and functions of Unix are not there.

python without_unix.py COMMAND...
"""

import os
import signal
import sys

for module in ("fcntl", "grp", "pwd", "resource", "termios", "tty", "pty"):
    sys.modules[module] = None  # an import of it fails
for name in (
    "fork",
    "getpgid",
    "killpg",
    "sched_getaffinity",
    "setsid",
    "statvfs",
    "getuid",
    "geteuid",
    "register_at_fork",
):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGKILL", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGUSR1", "SIGUSR2", "setitimer", "ITIMER_REAL"):
    if hasattr(signal, name):
        delattr(signal, name)

from legroom.cli.main import main  # noqa: E402

main(sys.argv[1:])
