"""Lines of JSON over a socket, between the parent and the agent of another node.

Nothing is read as JSON before both sides have proven that they know the run's secret (launch/handshake.py). From then
on each line begins with its own proof: an HMAC of the session's key, the sender's side, the line's number and its text.
So a line that somebody injects, repeats, drops or reorders ends the connection.
"""

import base64
import binascii
import contextlib
import hashlib
import hmac
import json
import socket
import time
from typing import Any

import msgspec

from perfsuite.records.codec import check_numbers
from perfsuite.system.waits import wait_readable

SILENT_SECONDS = 20  # without a sign of the other machine; its kernel gives one even if its process is busy
LONGEST_LINE = 1 << 30  # bytes: a rank's log or result is one line
_PROBES = 3
_PROOF = hashlib.sha256().digest_size * 2  # characters of a line's proof, in hexadecimal


class Gone(ConnectionError):
    """The other end has closed the connection, or the network between them is cut, or what it says is not its own."""


class Lines:
    """One end of a connection whose two sides have proven the secret.

    ``key`` is the session's. ``side`` is "parent" or "agent", the name of this end. ``pending`` is what has arrived
    after the proofs.
    """

    def __init__(self, connection: socket.socket, key: bytes, side: str, pending: bytes = b"") -> None:
        self._connection = connection
        self._key, self._side = key, side
        self._other = "agent" if side == "parent" else "parent"
        self._sent = self._received = 0
        self._pending = pending
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
        """For wait_readable()."""
        return self._connection.fileno()

    def send(self, message: dict[str, Any]) -> None:
        """Raises Gone."""
        text = json.dumps(message).encode()
        proof = self._proof(self._side, self._sent, text)
        self._sent += 1
        try:
            self._connection.sendall(proof + text + b"\n")
        except OSError as error:
            raise Gone(error.strerror or str(error)) from error

    def receive(self, seconds: float) -> list[dict[str, Any]]:
        """All whole messages that have arrived; waits at most so long for the first. Raises Gone."""
        if b"\n" not in self._pending:
            if not wait_readable([self._connection], seconds):
                return []
            self._read()
        *lines, self._pending = self._pending.split(b"\n")
        if len(self._pending) > LONGEST_LINE:
            raise Gone(f"a line has more than {LONGEST_LINE:,} bytes")
        return [self._message(line) for line in lines]

    def _read(self) -> None:
        try:
            data = self._connection.recv(1 << 20)
        except OSError as error:
            raise Gone(error.strerror or str(error)) from error
        if not data:
            raise Gone("the connection was closed")
        self._pending += data

    def _message(self, line: bytes) -> dict[str, Any]:
        proof, text = line[:_PROOF], line[_PROOF:]
        if not hmac.compare_digest(proof, self._proof(self._other, self._received, text)):
            raise Gone("a line does not have the proof of the other side")
        self._received += 1
        try:
            message = json.loads(text)
            check_numbers(message)
        except (ValueError, RecursionError, msgspec.ValidationError) as error:
            raise Gone(f"a line is no JSON: {error}") from error
        if not isinstance(message, dict):
            raise Gone(f"a line is a JSON {type(message).__name__}, not an object")
        return message

    def _proof(self, side: str, number: int, text: bytes) -> bytes:
        signed = f"{side} {number} ".encode() + text
        return hmac.new(self._key, signed, hashlib.sha256).hexdigest().encode()

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


def unpack(text: Any) -> bytes:
    """The bytes again. Raises Gone for anything else."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise Gone(f"a line's data is not base64: {error}") from error
