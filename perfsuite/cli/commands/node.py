"""``perfsuite node``: this machine as one of several nodes on which cells run."""

import argparse
import contextlib
import os
import subprocess
import sys
import time

from perfsuite.errors import UsageError
from perfsuite.launch.agent import START_SECONDS, attend, hello_of
from perfsuite.launch.cluster import listen
from perfsuite.launch.handshake import SECRET, Door, take_secret
from perfsuite.launch.torchrun import LISTENER, NODES, RankGroup, forget
from perfsuite.records.wire_lines import Gone
from perfsuite.system.networks import own_address

HELP = "Run on every node of torchrun: pytest on the first, and what starts ranks on all."
QUESTION = "guard"
EXAMPLES = ("perfsuite node -- pytest --perf --perf-hardware=h100_x8n2",)
PAGE = "cluster"
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
    group = RankGroup.of(os.environ)
    if not group.first_on_node:
        return 0
    secret = take_secret(os.environ)
    hello = hello_of(os.environ) | {"number": group.number}
    forget(os.environ)
    if group.number:
        return 0 if attend(group.address, group.meeting, hello, secret, START_SECONDS) else 1
    return _lead(group, arguments.command, secret)


def _lead(group: RankGroup, command: list[str], secret: str) -> int:
    """Run the command beside this node's own agent, then send away the agents that still wait."""
    address = own_address(group.address)
    listener = listen(address, group.meeting)
    listener.set_inheritable(True)
    variables = {**os.environ, SECRET: secret, LISTENER: str(listener.fileno()), NODES: str(group.nodes)}
    join = [sys.executable, "-m", "perfsuite.launch.agent", address, str(group.meeting)]
    agent = subprocess.Popen(join, env={**os.environ, SECRET: secret, "GROUP_RANK": "0"})
    try:
        code = subprocess.call(command, env=variables, pass_fds=[listener.fileno()])
    finally:
        _send_away(Door(listener, secret))
        agent.terminate()
        agent.wait()
    return code


def _send_away(door: Door) -> None:
    deadline = time.monotonic() + GOODBYE_SECONDS
    while time.monotonic() < deadline:
        for lines in door.admit(deadline - time.monotonic()):
            with contextlib.suppress(Gone):
                lines.send({"bye": True})
            lines.close()
    door.close()
