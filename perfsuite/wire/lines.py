"""Lines of JSON over a socket, between the parent and the agent of another node."""

import base64
import contextlib
import json
import select
import socket
import time
from typing import Any

SILENT_SECONDS = 20  # without a sign of the other machine; its kernel gives one even if its process is busy
_PROBES = 3


class Gone(ConnectionError):
    """The other end has closed the connection, or the network between them is cut."""


class Lines:
    """One end of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._pending = b""
        connection.settimeout(SILENT_SECONDS)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL):  # tcp(7)
            connection.setsockopt(socket.IPPROTO_TCP, option, SILENT_SECONDS // (_PROBES + 1))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENT_SECONDS * 1000)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def own_address(self) -> str:
        """This machine's, as the other one reaches it."""
        return str(self._connection.getsockname()[0])

    def fileno(self) -> int:
        """For select()."""
        return self._connection.fileno()

    def send(self, message: dict[str, Any]) -> None:
        """Raises Gone."""
        try:
            self._connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise Gone(error.strerror or str(error)) from error

    def receive(self, seconds: float) -> list[dict[str, Any]]:
        """All whole messages that have arrived; waits at most so long for the first. Raises Gone."""
        if not select.select([self._connection], [], [], max(0.0, seconds))[0]:
            return []
        try:
            data = self._connection.recv(1 << 20)
        except OSError as error:
            raise Gone(error.strerror or str(error)) from error
        if not data:
            raise Gone("the connection was closed")
        *lines, self._pending = (self._pending + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def first(self, seconds: float) -> dict[str, Any]:
        """The first message, within so many seconds. Raises Gone."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if messages := self.receive(deadline - time.monotonic()):
                return messages[0]
        raise Gone(f"there was no answer within {seconds:g} s")

    def close(self) -> None:
        """The other end reads that it is closed."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


def pack(data: bytes) -> str:
    """Bytes as a string of JSON."""
    return base64.b64encode(data).decode()


def unpack(text: str) -> bytes:
    """The bytes again."""
    return base64.b64decode(text)
