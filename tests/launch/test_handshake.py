"""Who does not know the secret of a run gets nothing, costs nothing, and delays nobody."""

import json
import os
import resource
import secrets
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsuite.errors import FileError, UsageError
from perfsuite.launch import handshake
from perfsuite.launch.handshake import SECRET, SECRET_FILE, Door, Proof, new_secret, prove_to, take_secret
from perfsuite.launch.node import NodeAgent, NodeServer
from perfsuite.records.wire_lines import Gone, Lines, unpack
from perfsuite.system.networks import own_address
from perfsuite.system.waits import wait_readable

SECRET_TEXT = new_secret()
HOST = "127.0.0.1"


@pytest.fixture
def door() -> Iterator[Door]:
    """A parent's listener."""
    door = Door(socket.create_server((HOST, 0)), SECRET_TEXT)
    yield door
    door.close()


def address(door: Door) -> tuple[str, int]:
    """Where it listens."""
    return HOST, door.listener.getsockname()[1]


def in_thread(action: Callable[[], object]) -> list[object]:
    """Its result or its error, in a list that has it when the thread has ended."""
    results: list[object] = []

    def run() -> None:
        try:
            results.append(action())
        except Exception as error:
            results.append(error)

    threading.Thread(target=run, daemon=True).start()
    return results


def pair() -> tuple[Lines, Lines]:
    """A parent's end and an agent's end that have proven the secret."""
    ends = socket.socketpair(socket.AF_UNIX)
    listener = socket.create_server((HOST, 0))
    connection = socket.create_connection(listener.getsockname())
    other, _ = listener.accept()
    for end in (*ends, listener):
        end.close()
    key = b"k" * 32
    return Lines(other, key, "parent"), Lines(connection, key, "agent")


def test_both_sides_that_know_the_secret_talk(door: Door) -> None:
    """The proofs are passed, and messages arrive in both directions."""
    joined = in_thread(lambda: prove_to(socket.create_connection(address(door)), SECRET_TEXT))
    (parent,) = door.admit(10)
    while not joined:
        time.sleep(0.01)
    agent = joined[0]
    assert isinstance(agent, Lines)
    agent.send({"hello": 1})
    parent.send({"serve": 2})

    assert parent.first(10) == {"hello": 1}
    assert agent.first(10) == {"serve": 2}


def test_the_secret_is_never_sent() -> None:
    """Neither side's bytes contain it."""
    agent, parent = Proof(SECRET_TEXT, "agent"), Proof(SECRET_TEXT, "parent")
    said = [agent.begin(), parent.begin()]
    said.append(agent.take(said[1]))
    said.append(parent.take(said[0] + said[2]))
    agent.take(said[3])

    assert agent.lines_key == parent.lines_key != b""
    assert SECRET_TEXT.encode() not in b"".join(said)
    assert agent.lines_key.hex().encode() not in b"".join(said)


def test_an_agent_with_another_secret_is_not_admitted(door: Door) -> None:
    """Nor does it learn anything but a nonce."""
    refused = in_thread(lambda: prove_to(socket.create_connection(address(door)), new_secret()))

    assert door.admit(1) == []
    assert isinstance(refused[0], Gone)


def test_a_parent_with_another_secret_is_not_obeyed() -> None:
    """The agent ends the connection."""
    impostor = Door(socket.create_server((HOST, 0)), new_secret())
    refused = in_thread(lambda: prove_to(socket.create_connection(address(impostor)), SECRET_TEXT))

    assert impostor.admit(1) == []
    assert isinstance(refused[0], Gone)


def test_a_proof_cannot_be_reflected() -> None:
    """Who sends an agent its own nonce and its own proof back has proven nothing."""
    agent = Proof(SECRET_TEXT, "agent")
    proof = agent.take(agent.begin())

    with pytest.raises(Gone, match="does not know the secret"):
        agent.take(proof)


def test_a_proof_cannot_be_replayed() -> None:
    """What was heard in one handshake is refused in the next: the nonces differ."""
    first, parent = Proof(SECRET_TEXT, "agent"), Proof(SECRET_TEXT, "parent")
    recorded = first.begin() + first.take(parent.begin())
    parent.take(recorded)

    with pytest.raises(Gone, match="does not know the secret"):
        Proof(SECRET_TEXT, "parent").take(recorded)


STRANGERS = {
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "list": b"[1]\n",
    "null": b'{"hello": null}\n',
    "not ascii": "ü\n".encode(),
    "empty": b"\n",
    "zeros": b"\x00" * 4096,
    "endless": b"a" * 10_000_000,
}


@pytest.mark.parametrize("said", STRANGERS.values(), ids=STRANGERS)
def test_strangers_cost_nothing(door: Door, said: bytes) -> None:
    """They are dropped, and the agent that comes after them is admitted."""
    with socket.create_connection(address(door)) as stranger:
        in_thread(lambda: stranger.sendall(said))
        in_thread(lambda: prove_to(socket.create_connection(address(door)), SECRET_TEXT))

        assert len(door.admit(10)) == 1
        door.admit(0.3)
        assert not door._guests


def test_silent_peers_delay_nobody(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than fit are waiting when the agent comes; it is admitted before the first of them is dropped."""
    monkeypatch.setattr(handshake, "MOST_GUESTS", 8)
    silent = [socket.create_connection(address(door)) for _ in range(20)]
    for _ in silent:
        door._welcome()
    in_thread(lambda: prove_to(socket.create_connection(address(door)), SECRET_TEXT))

    assert len(door.admit(handshake.PROVE_SECONDS / 2)) == 1
    assert len(door._guests) <= 8
    for one in silent:
        one.close()


def test_a_silent_peer_is_dropped_after_its_time(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection is not kept."""
    monkeypatch.setattr(handshake, "PROVE_SECONDS", 0.05)
    with socket.create_connection(address(door)):
        door._welcome()
        assert door._guests
        door.admit(0.5)

    assert not door._guests


def test_waiting_ends_at_its_deadline_beside_a_peer_that_never_stops(door: Door) -> None:
    """A peer that sends a byte at a time does not hold the door open: admit() returns."""
    over = threading.Event()

    def drip() -> None:
        with socket.create_connection(address(door)) as peer:
            while not over.is_set():
                try:
                    peer.sendall(b"0")
                except OSError:
                    return
                time.sleep(0.01)

    in_thread(drip)
    returned = in_thread(lambda: door.admit(0.3))
    deadline = time.monotonic() + 30
    while not returned and time.monotonic() < deadline:
        time.sleep(0.01)
    over.set()

    assert returned == [[]]


@pytest.mark.parametrize("change", ["flip", "repeat", "drop", "swap"])
def test_a_line_that_is_not_the_other_sides_ends_the_connection(change: str) -> None:
    """Each line has the proof of its text and of its place."""
    parent, agent = pair()
    sent: list[bytes] = []
    agent._connection = type("Tap", (), {"sendall": staticmethod(sent.append)})()
    for number in range(3):
        agent.send({"number": number})
    first, second, third = sent
    changed = {
        "flip": first.replace(b"0}", b"9}"),
        "repeat": first + first,
        "drop": first + third,
        "swap": second + first,
    }[change]
    parent._pending = changed

    with pytest.raises(Gone, match="proof"):
        parent.receive(0)


def test_a_line_cannot_be_sent_back() -> None:
    """A parent's own line is no agent's."""
    parent, _ = pair()
    sent: list[bytes] = []
    real, parent._connection = parent._connection, type("Tap", (), {"sendall": staticmethod(sent.append)})()
    parent.send({"serve": {"python": "/bin/sh"}})
    parent._connection, parent._pending = real, sent[0]

    with pytest.raises(Gone, match="proof"):
        parent.receive(0)


def fuzz_proof(side: str, parts: list[bytes]) -> None:
    """No bytes of a stranger make a side believe them, and nothing but Gone is raised."""
    proof = Proof(SECRET_TEXT, side)
    try:
        for part in parts:
            proof.take(part)
    except Gone:
        pass

    assert proof.lines_key == b""


def fuzz_lines(data: bytes) -> None:
    """No bytes of a stranger become a message, and nothing but Gone is raised."""
    parent, agent = pair()
    parent._pending = data + b"\n"
    with pytest.raises(Gone):
        parent.receive(0)
    parent.close()
    agent.close()


HEX = st.binary(min_size=32, max_size=32).map(lambda data: data.hex().encode() + b"\n")
PARTS = st.lists(st.binary(max_size=200) | HEX | HEX.map(lambda line: line * 3), max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
WORDS = st.sampled_from(["file", "at", "data", "gone", "tail", "started", "ended", "status", "error"])


def fuzz_agent(folder: Path, message: dict[str, object]) -> None:
    """A malformed message of an agent ends its connection; it raises nothing and leaves the folder."""
    parent, agent = pair()
    node = NodeAgent(parent, "n0", 0, "")
    server = NodeServer(node, lambda lost: "", lambda: "")
    server._folder = folder
    agent.send(message)
    server._listen(1)
    server.close()
    parent.close()
    agent.close()

    assert not (folder.parent / "outside").exists()


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(["agent", "parent"]), PARTS)
def test_fuzzed_proofs(side: str, parts: list[bytes]) -> None:
    """A sample of the slow test."""
    fuzz_proof(side, parts)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_fuzzed_lines(data: bytes) -> None:
    """A sample of the slow test."""
    fuzz_lines(data)


@pytest.mark.parametrize("name", ["", "..", "../outside", "/outside", "a/b", 7, None, "\x00"])
def test_an_agents_file_is_a_name_alone(tmp_path: Path, name: object) -> None:
    """Nothing is written for any other, and the connection ends."""
    (tmp_path / "cell").mkdir()
    parent, agent = pair()
    server = NodeServer(NodeAgent(parent, "n0", 0, ""), lambda lost: "", lambda: "")
    server._folder = tmp_path / "cell"
    agent.send({"file": name, "at": 0, "data": ""})
    server._listen(1)
    server.close()

    assert "it said what no agent says" in server._agent.lost
    assert list(tmp_path.iterdir()) == [tmp_path / "cell"]
    assert list((tmp_path / "cell").iterdir()) == []


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(WORDS, VALUES, max_size=4))
def test_fuzzed_agents(tmp_path_factory: pytest.TempPathFactory, message: dict[str, object]) -> None:
    """A sample of the slow test."""
    fuzz_agent(tmp_path_factory.mktemp("cell"), message)


@pytest.mark.slow
@settings(max_examples=10_000, deadline=None)
@given(st.sampled_from(["agent", "parent"]), PARTS)
def test_ten_thousand_fuzzed_proofs(side: str, parts: list[bytes]) -> None:
    """Bytes, nonces, and nonces with proofs of nobody."""
    fuzz_proof(side, parts)


@pytest.mark.slow
@settings(max_examples=10_000, deadline=None)
@given(st.binary(max_size=300) | st.binary(max_size=99).map(lambda data: data.hex().encode() + b'{"bye": 1}'))
def test_ten_thousand_fuzzed_lines(data: bytes) -> None:
    """After the proofs too, each line is checked."""
    fuzz_lines(data)


@pytest.mark.slow
@settings(max_examples=10_000, deadline=None)
@given(st.dictionaries(WORDS, VALUES, max_size=4))
def test_ten_thousand_fuzzed_agents(tmp_path_factory: pytest.TempPathFactory, message: dict[str, object]) -> None:
    """Messages of an agent that knows the secret and is broken."""
    fuzz_agent(tmp_path_factory.getbasetemp(), message)


@pytest.mark.parametrize("text", ["ü", 7, None, "a", {}, "===="])
def test_data_that_is_no_base64_is_refused(text: object) -> None:
    """Also what base64 alone would skip."""
    if text == "====":
        text = "=a=="
    with pytest.raises(Gone, match="base64"):
        unpack(text)


def test_a_missing_secret_says_how_to_make_one() -> None:
    """There is no other way in: no run id, no port."""
    with pytest.raises(UsageError, match=r"is missing\. Make a file .* openssl rand"):
        take_secret({"TORCHELASTIC_RUN_ID": "none", "MASTER_PORT": "23456"})


def test_a_short_secret_is_refused() -> None:
    """It could be guessed from a recorded handshake."""
    with pytest.raises(UsageError, match="has 6 characters, but needs 32"):
        take_secret({SECRET: "secret"})


def test_the_secret_is_taken_out_of_the_variables() -> None:
    """So no rank inherits it."""
    variables = {SECRET: SECRET_TEXT, "HOME": "/"}

    assert take_secret(variables) == SECRET_TEXT
    assert variables == {"HOME": "/"}


def test_a_secret_in_a_private_file(tmp_path: Path) -> None:
    """With the line end that an editor leaves."""
    file = tmp_path / "secret"
    file.touch(mode=0o600)
    file.write_text(f"{SECRET_TEXT}\n")

    assert take_secret({SECRET_FILE: str(file)}) == SECRET_TEXT


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    """The file is named, and the way out."""
    file = tmp_path / "secret"
    file.write_text(SECRET_TEXT)
    file.chmod(stat.S_IRUSR | stat.S_IRGRP)

    with pytest.raises(FileError, match=r"secret .* can be read by others: .* chmod 600"):
        take_secret({SECRET_FILE: str(file)})


def test_an_agent_starts_nothing_for_a_foreign_parent(tmp_path: Path) -> None:
    """The attack: somebody listens at the agent's port, and asks it to serve a Python of his own."""
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/was_here\n")
    script.chmod(0o700)
    listener = socket.create_server((HOST, 0))
    port = listener.getsockname()[1]
    join = [sys.executable, "-m", "perfsuite.launch.agent", HOST, str(port)]
    agent = subprocess.Popen(join, env={**os.environ, SECRET: SECRET_TEXT}, stderr=subprocess.PIPE, text=True)
    peer, _ = listener.accept()
    heard = peer.makefile("rb").readline()
    serve = {"device": "cpu", "kernels": "", "python": str(script), "path": [], "overrides": []}
    lie = secrets.token_hex(32).encode()
    peer.sendall(lie + b"\n" + lie + b"\n" + lie + json.dumps({"serve": serve}).encode() + b"\n")
    peer.settimeout(20)
    while peer.recv(4096):  # its proof; then it closes the connection
        pass
    listener.close()
    agent.kill()
    agent.wait()

    assert SECRET_TEXT.encode() not in heard
    assert not (tmp_path / "was_here").exists()


@pytest.mark.parametrize("guess", ["none", "23456", "job-17", ""], ids=["run id", "port", "name", "nothing"])
def test_a_foreign_agent_is_no_node(door: Door, guess: str) -> None:
    """The attack: an agent with what used to be the token is not admitted, so its numbers are never read."""
    with socket.create_connection(address(door)) as peer:
        peer.sendall(json.dumps({"hello": {"node": "evil", "number": 1, "token": guess}}).encode() + b"\n")

        assert door.admit(0.3) == []
    refused = in_thread(lambda: prove_to(socket.create_connection(address(door)), guess))

    assert door.admit(0.5) == []
    assert isinstance(refused[0], Gone)


def test_node_refuses_to_run_without_a_secret() -> None:
    """`perfsuite node` ends with one sentence, and no port is opened."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PERFSUITE_")}
    group = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": HOST, "MASTER_PORT": "29999", "TORCHELASTIC_RUN_ID": "none"}
    command = [sys.executable, "-m", "perfsuite.cli.main", "node", "--", "true"]
    ended = subprocess.run(command, env=variables | group, capture_output=True, text=True, check=False)

    assert ended.returncode == 2
    assert ended.stderr.startswith("perfsuite: The secret that all nodes of this run share is missing.")
    assert ended.stderr.count("\n") == 1


def test_more_than_1024_descriptors_can_be_waited_for() -> None:
    """select() raises for a descriptor of 1,024 and more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1200:
        pytest.skip("this process may not open 1,200 files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    reading, writing = os.pipe()
    opened = [os.dup(reading) for _ in range(1100)]
    try:
        assert max(opened) > 1024
        assert not wait_readable(opened[-1:], 0)
        os.write(writing, b"x")
        assert wait_readable(opened[-1:], 1)
    finally:
        for descriptor in (*opened, reading, writing):
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_nothing_in_the_package_calls_select() -> None:
    """All waits go through wait_readable()."""
    package = Path(handshake.__file__).parents[1]
    calls = [path for path in package.rglob("*.py") if "select.select(" in path.read_text()]

    assert calls == []


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_a_loopback_address_that_was_asked_for_stays(name: str) -> None:
    """Two nodes of a test may be one machine."""
    assert own_address(name) in ("127.0.0.1", "::1")


def test_an_unknown_address_is_named() -> None:
    """Before anything listens."""
    with pytest.raises(UsageError, match=r"The address no-such-host\.invalid of this machine is unknown"):
        own_address("no-such-host.invalid")
