"""``perfsuite node``: this machine as one of several nodes on which cells run."""

import argparse
import os
import socket
import subprocess
import sys
import time

from perfsuite.errors import UsageError
from perfsuite.launch.agent import START_SECONDS, TOKEN, attend, hello_of
from perfsuite.launch.cluster import listen
from perfsuite.launch.torchrun import LISTENER, NODES, Group, forget
from perfsuite.wire.lines import Gone, Lines

HELP = "Run on every node of torchrun: pytest on the first, and what starts ranks on all."
STARTS_PROCESSES = True
GOODBYE_SECONDS = 5.0


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    text = "Write -- before it. It runs on the first node, the one with RANK 0."
    parser.add_argument("command", nargs="*", metavar="COMMAND", help=text)


def run(arguments: argparse.Namespace) -> int:
    """Run the command, or what it needs here. Exit code: the command's; on other nodes 0 if it ended orderly."""
    if not arguments.command:
        raise UsageError("perfsuite node needs a command, as in: perfsuite node -- pytest --perf.")
    group = Group.of(os.environ)
    if not group.first_on_node:
        return 0
    token = os.environ.get(TOKEN) or os.environ.get("TORCHELASTIC_RUN_ID") or str(group.port)
    os.environ[TOKEN] = token
    hello = hello_of(os.environ) | {"number": group.number}
    forget(os.environ)
    if group.number:
        return 0 if attend(group.address, group.meeting, hello, START_SECONDS) else 1
    return _lead(group, arguments.command)


def _lead(group: Group, command: list[str]) -> int:
    """Run the command beside this node's own agent, then send away the agents that still wait."""
    listener = listen("", group.meeting)
    listener.set_inheritable(True)
    variables = {**os.environ, LISTENER: str(listener.fileno()), NODES: str(group.nodes)}
    join = [sys.executable, "-m", "perfsuite.launch.agent", group.address, str(group.meeting)]
    agent = subprocess.Popen(join, env={**os.environ, "GROUP_RANK": "0"})
    try:
        code = subprocess.call(command, env=variables, pass_fds=[listener.fileno()])
    finally:
        _send_away(listener)
        agent.terminate()
        agent.wait()
    return code


def _send_away(listener: socket.socket) -> None:
    listener.settimeout(GOODBYE_SECONDS)
    deadline = time.monotonic() + GOODBYE_SECONDS
    while time.monotonic() < deadline:
        try:
            lines = Lines(listener.accept()[0])
            lines.send({"bye": True})
            lines.close()
        except (TimeoutError, Gone):
            continue
