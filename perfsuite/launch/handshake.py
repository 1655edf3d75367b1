"""How the two ends of a connection prove that they know the run's secret, before anything else is said.

    agent  → NONCE            32 random bytes of each side, in hexadecimal
    parent → NONCE
    agent  → HMAC(secret, "agent", both nonces)
    parent → HMAC(secret, "parent", both nonces)

The secret is never sent. Each proof names its side, so that neither can be sent back as the other's, and covers both
nonces, so that none can be repeated (the mutual challenge of ISO/IEC 9798-4, section 7.2.2). The key of the lines that
follow is a third HMAC of the nonces.
"""

import hashlib
import hmac
import os
import re
import secrets
import socket
import stat
import time
from collections.abc import MutableMapping
from pathlib import Path
from typing import NoReturn

from perfsuite.errors import FileError, UsageError
from perfsuite.records.wire_lines import Gone, Lines
from perfsuite.system.waits import wait_readable

SECRET = "PERFSUITE_SECRET"  # a variable: the run's secret, which all of its nodes have
SECRET_FILE = "PERFSUITE_SECRET_FILE"  # a variable: a file with the secret, which only its owner can read
SHORTEST_SECRET = 32  # characters: a shorter one can be guessed from a recorded handshake
PROVE_SECONDS = 10.0  # for one connection
MOST_GUESTS = 256  # connections at once that have not proven the secret; the oldest is dropped for a newer one
_WAIT_SECONDS = 0.2
_LINE = re.compile(rb"[0-9a-f]{64}")
_MOST_BYTES = 2 * 65  # of a peer before it has proven the secret: two lines


def new_secret() -> str:
    """A random secret, for one run."""
    return secrets.token_hex(32)


def take_secret(variables: MutableMapping[str, str]) -> str:
    """The secret that the user gave all nodes, taken out of the variables so that no rank inherits it.

    Raises UsageError if there is none, or one that can be guessed, and FileError for a file that others can read.
    """
    given, file = variables.pop(SECRET, ""), variables.pop(SECRET_FILE, "")
    secret = given or (_read(Path(file)) if file else "")
    if len(secret) < SHORTEST_SECRET:
        why = f"has {len(secret)} characters, but needs {SHORTEST_SECRET}" if secret else "is missing"
        raise UsageError(
            f"The secret that all nodes of this run share {why}. Make a file that only you can read, copy it to every "
            f"node, and name it in {SECRET_FILE}: (umask 077; openssl rand -hex 32 > perfsuite.secret)"
        )
    return secret


def _read(path: Path) -> str:
    """The secret in a file of one's own. The opened file is checked, so it cannot be exchanged in between."""
    try:
        with path.open() as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
                raise FileError(f"{path} ({SECRET_FILE}) can be read by others: chown it to you, and chmod 600 it.")
            return file.read(4096).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path} ({SECRET_FILE}) cannot be read: {error}.") from error


class Proof:
    """One side's part of the handshake, without a socket: it takes bytes and says what to send.

    ``lines_key`` is empty until the other side has proven the secret. Whatever it takes, it raises nothing but Gone.
    """

    def __init__(self, secret: str, side: str) -> None:
        self._secret, self._side = secret.encode(), side
        self._nonce = secrets.token_hex(32).encode()
        self._other_nonce = b""
        self._taken = b""
        self.lines_key = b""
        self.rest = b""  # what came after the proofs

    def begin(self) -> bytes:
        """What this side says first."""
        return self._nonce + b"\n"

    def take(self, data: bytes) -> bytes:
        """What to send after these bytes of the other side. Raises Gone for a peer that does not know the secret."""
        self._taken += data
        answer = b""
        while not self.lines_key and b"\n" in self._taken:
            line, _, self._taken = self._taken.partition(b"\n")
            if not _LINE.fullmatch(line):
                self._refuse()
            answer += self._meet(line) if not self._other_nonce else self._check(line)
        if not self.lines_key and len(self._taken) > _MOST_BYTES:
            self._refuse()
        if self.lines_key:
            self.rest, self._taken = self.rest + self._taken, b""
        return answer

    def _meet(self, nonce: bytes) -> bytes:
        self._other_nonce = nonce
        return self._signed(self._side) + b"\n" if self._side == "agent" else b""

    def _check(self, proof: bytes) -> bytes:
        other = "parent" if self._side == "agent" else "agent"
        if not hmac.compare_digest(proof, self._signed(other)):
            self._refuse()
        self.lines_key = bytes.fromhex(self._signed("lines").decode())
        return b"" if self._side == "agent" else self._signed(self._side) + b"\n"

    def _signed(self, what: str) -> bytes:
        nonces = (self._nonce, self._other_nonce) if self._side == "agent" else (self._other_nonce, self._nonce)
        return hmac.new(self._secret, b" ".join((what.encode(), *nonces)), hashlib.sha256).hexdigest().encode()

    def _refuse(self) -> NoReturn:
        raise Gone("it does not know the secret of this run")


def prove_to(connection: socket.socket, secret: str) -> Lines:
    """An agent's connection to its parent, after both have proven the secret. Raises Gone."""
    proof, deadline = Proof(secret, "agent"), time.monotonic() + PROVE_SECONDS
    try:
        connection.settimeout(PROVE_SECONDS)
        connection.sendall(proof.begin())
        while not proof.lines_key:
            if not wait_readable([connection], deadline - time.monotonic()):
                raise Gone(f"it did not prove the secret of this run within {PROVE_SECONDS:g} s")
            data = connection.recv(4096)
            if not data:
                raise Gone("it closed the connection before it proved the secret of this run")
            connection.sendall(proof.take(data))
    except OSError as error:
        connection.close()
        raise error if isinstance(error, Gone) else Gone(error.strerror or str(error)) from error
    return Lines(connection, proof.lines_key, "agent", proof.rest)


class Door:
    """A parent's listener. Peers prove themselves side by side, so that one that says nothing delays nobody."""

    def __init__(self, listener: socket.socket, secret: str) -> None:
        self.listener = listener
        self.listener.setblocking(False)
        self._secret = secret
        self._guests: dict[socket.socket, tuple[Proof, float]] = {}

    def admit(self, seconds: float) -> list[Lines]:
        """The connections that have proven the secret. Waits at most so long for the first."""
        deadline, admitted = time.monotonic() + seconds, list[Lines]()
        while not admitted and (left := deadline - time.monotonic()) > 0:
            wait_readable([self.listener, *self._guests], min(left, _WAIT_SECONDS))
            self._welcome()
            for guest in list(self._guests):
                if lines := self._hear(guest):
                    admitted.append(lines)
        return admitted

    def close(self) -> None:
        """Nobody comes in any more."""
        for guest in [*self._guests]:
            self._drop(guest)
        self.listener.close()

    def _welcome(self) -> None:
        try:
            guest = self.listener.accept()[0]
        except OSError:  # nobody, or one that is gone again
            return
        while len(self._guests) >= MOST_GUESTS:
            self._drop(next(iter(self._guests)))
        guest.setblocking(False)
        proof = Proof(self._secret, "parent")
        self._guests[guest] = (proof, time.monotonic() + PROVE_SECONDS)
        self._send(guest, proof.begin())

    def _hear(self, guest: socket.socket) -> Lines | None:
        proof, deadline = self._guests[guest]
        try:
            data = guest.recv(4096)
            if not data or not self._send(guest, proof.take(data)):
                self._drop(guest)
        except BlockingIOError:
            if time.monotonic() > deadline:
                self._drop(guest)
        except OSError:
            self._drop(guest)
        if guest not in self._guests or not proof.lines_key:
            return None
        del self._guests[guest]
        return Lines(guest, proof.lines_key, "parent", proof.rest)

    def _send(self, guest: socket.socket, data: bytes) -> bool:
        """Whether all of it fits into the connection's buffer, which takes a hundred times as much of an honest one."""
        try:
            return guest.send(data) == len(data) if data else True
        except OSError:
            self._drop(guest)
            return False

    def _drop(self, guest: socket.socket) -> None:
        self._guests.pop(guest, None)
        guest.close()
