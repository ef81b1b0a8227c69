"""Whether there is a Ray cluster at an address, found out in seconds: Ray itself retries for minutes, and may abort.

Ray's services speak gRPC, which is HTTP/2: a server that answers its greeting with a SETTINGS frame speaks it too.
"""

from __future__ import annotations

import socket
from contextlib import closing

from legroom.errors import BadInput

CONNECT_TIMEOUT_S, ANSWER_TIMEOUT_S = 4.0, 4.0
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # an empty SETTINGS frame
FRAME_HEADER, SETTINGS = 9, 4  # bytes; its type, which is byte 3
CLIENT = "ray://"
DEFAULT_PORT = {CLIENT: 10001, "": 6379}


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port of `HOST[:PORT]` or `ray://HOST[:PORT]`.

    Raises:
        BadInput: it is none.
    """
    scheme = CLIENT if address.startswith(CLIENT) else ""
    host, colon, port = address.removeprefix(scheme).rpartition(":")
    if not colon:
        host, port = port, str(DEFAULT_PORT[scheme])
    if not host or not port.isdigit() or not 0 < int(port) < 65536 or "/" in host:
        raise BadInput(
            f"--cluster {address!r} is not an address of a Ray cluster",
            hint="local, auto, HOST:6379 or ray://HOST:10001",
        )
    return host.strip("[]"), int(port)


def refuse_unreachable(address: str) -> None:
    """Connect to the address and greet it.

    Raises:
        BadInput: nobody answers, or somebody who is not Ray.
    """
    host, port = parse_address(address)
    hint = "is it running? ray start --head starts one; --cluster local needs none"
    try:
        connection = socket.create_connection((host, port), CONNECT_TIMEOUT_S)
    except OSError as error:
        raise BadInput(f"no Ray cluster at {address}: {_reason(error)}", hint=hint) from None
    with closing(connection):
        connection.settimeout(ANSWER_TIMEOUT_S)
        try:
            connection.sendall(GREETING)
            answer = connection.recv(FRAME_HEADER)
        except OSError as error:
            answer, hint = b"", f"{_reason(error)}; {hint}"
    if len(answer) < 4 or answer[3] != SETTINGS:
        raise BadInput(f"{address} answers, but not as a Ray cluster does", hint=hint)


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer"
    return (error.strerror or str(error)).lower()
