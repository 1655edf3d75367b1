"""``perfsuite prove -- COMMAND``: whether a training script is right, by relations that its runs must satisfy.

Exit codes: 0 if all relations hold that could be tried, 1 if one is broken, 2 if none could be tried.
"""

import argparse
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from perfsuite.catalog.cell_id import HardwareName
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.scripts import check_script
from perfsuite.cli.shared_options import add_shared, value_of
from perfsuite.errors import UsageError
from perfsuite.features.prove.proving import ScriptRuns, prove
from perfsuite.features.prove.relation import OPTIONS, STEPS, ProveRequest, RelationOutcome, relations
from perfsuite.features.prove.relations_text import render_proven
from perfsuite.launch.hardware_here import largest_here, local_hardware
from perfsuite.records import codec
from perfsuite.run.runner import Settings
from perfsuite.settings.keys import KERNELS, PATIENCE, TIMEOUT
from perfsuite.show.text.live import LiveLine
from perfsuite.system.paths import check_output

HELP = "Show that a training script is right, without a baseline: by relations that its runs must satisfy."
QUESTION = "prove"
EXAMPLES = (
    "perfsuite prove -- torchrun --nproc-per-node 2 train.py",
    "perfsuite prove --only accumulation -- python train.py --batch-size 4 --accumulate 2",
)
PAGE = "prove"
STARTS_PROCESSES = True


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help=_COMMAND)
    parser.add_argument("--only", metavar="RELATIONS", help="Try these alone, such as --only trained,ranks.")
    parser.add_argument(
        "--hardware", metavar="H", help="The device and the ranks; by default as many ranks as the script has."
    )
    parser.add_argument("--names", metavar="WHAT=OPTION,…", help=_NAMES)
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write the result as JSON.")
    add_shared(parser, KERNELS, TIMEOUT)


_COMMAND = "What trains, as in a shell: torchrun --nproc-per-node 2 train.py --lr 1e-4."
_NAMES = "The command's options with unusual names: batch=--rows,accumulate=--parts,resume=--go-on."


def run(arguments: argparse.Namespace) -> int:
    """Try the relations, and print what is known of each."""
    words = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    names = _names(arguments.names or "")
    tried = relations(list(filter(None, arguments.only.split(","))) if arguments.only else ())
    check_script(words, Path.cwd())
    check_output("--json", arguments.json)
    timeout = value_of(arguments, TIMEOUT)
    settings = Settings(kernels=value_of(arguments, KERNELS), start_timeout=PATIENCE * timeout, step_timeout=timeout)
    hardware = arguments.hardware or str(HardwareName(largest_here(local_hardware(Catalog())).kind, 1))
    launches = ["", ""]  # which one of all runs, and for what

    def ahead(number: int, count: int, names: Sequence[str]) -> None:
        launches[:] = f"launch {number} of {count}", ", ".join(names)

    with closing(LiveLine(lambda _: STEPS, lambda: "  ".join(launches))) as live, TemporaryDirectory() as folder:
        asked = ProveRequest(tuple(words), names, Path(folder), Path.cwd())
        proven = prove(asked, tried, ScriptRuns(asked, hardware, settings, live.show), ahead)
    if arguments.json:
        codec.write(arguments.json, proven)
    print(render_proven(proven, {relation.name: relation for relation in tried}))
    outcomes = {one.outcome for one in proven.relations}
    if RelationOutcome.BROKEN in outcomes:
        return 1
    return 0 if RelationOutcome.HOLDS in outcomes else 2


def _names(text: str) -> dict[str, str]:
    """The options that a user names, by what they are."""
    pairs = [pair.partition("=") for pair in text.split(",")] if text else []
    if any(what not in OPTIONS or not option for what, _, option in pairs):
        raise UsageError(f"--names={text}: write what an option is, and its name: --names=batch=--rows,resume=--go-on.")
    return {what: option for what, _, option in pairs}
