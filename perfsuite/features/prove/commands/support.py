"""``perfsuite support run``: train a cell for every engine × technique and write docs/support.json."""

import argparse
import sys
from collections import Counter
from contextlib import closing

from perfsuite.cli.shared_options import add_settings, add_shared, catalog_of, settings_of
from perfsuite.errors import UsageError
from perfsuite.features.prove.compatibility.pages import matrix
from perfsuite.features.prove.compatibility.pairs import Claim, claims
from perfsuite.features.prove.compatibility.proofs import ProofEntry, Prover
from perfsuite.features.prove.support_table import add_file
from perfsuite.run.runner import Runner
from perfsuite.settings.keys import CATALOG
from perfsuite.show.text.live import LiveLine
from perfsuite.system.changing import changing

HELP = "Prove which engine goes with which technique."
QUESTION = "prove"
EXAMPLES = ("perfsuite support run --engine fsdp2",)
PAGE = "trust"
STARTS_PROCESSES = True


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("action", choices=("run",), help="Prove what is not yet proven with the installed versions.")
    parser.add_argument("--engine", nargs="+", default=[], metavar="E", help="Only pairs of these engines.")
    parser.add_argument("--technique", nargs="+", default=[], metavar="T", help="Only pairs of these techniques.")
    parser.add_argument("--fresh", action="store_true", help="Measure them again, even if proven.")
    add_settings(parser, steps=1, warmup=0)
    add_file(parser)
    add_shared(parser, CATALOG)


def run(arguments: argparse.Namespace) -> int:
    """Prove and write. Exit code 1 if a cell failed: such a pair neither runs nor is refused."""
    catalog = catalog_of(arguments)
    engines = [catalog.get("engine", name).name for name in arguments.engine]
    techniques = [catalog.get("technique", name).name for name in arguments.technique]
    if arguments.file.suffix != ".json" or arguments.file.is_dir():
        raise UsageError(f"--file names {arguments.file}, which is not a .json file.")
    pairs = claims(catalog)
    settings = settings_of(arguments)

    def wanted(claim: Claim) -> bool:
        return (not engines or claim.engine in engines) and (not techniques or claim.technique in techniques)

    with (
        changing(arguments.file),
        closing(LiveLine(settings.all_steps_of)) as live,
        closing(Runner(catalog, settings)) as runner,
    ):

        def tell(entry: ProofEntry, left: int) -> None:
            live.clear()
            reason = f": {entry.reason}" if entry.reason else ""
            print(f"[{left} left] {entry.engine} × {entry.technique}  {entry.state}  {entry.cell}{reason}", flush=True)

        prover = Prover(runner, live.show)
        entries = prover.prove_all(pairs, arguments.file, wanted=wanted, fresh=arguments.fresh, tell=tell)
    known = {(entry.engine, entry.technique): entry for entry in entries}
    unproven = matrix(catalog, pairs, known).unproven
    counts = Counter("unproven" if pair in unproven else entry.state for pair, entry in known.items())
    counts["unproven"] = len(unproven)  # with or without an entry of other versions
    states = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()) if count)
    print(f"{len(pairs)} pairs: {states}. Written: {arguments.file}")
    failures = [entry for entry in entries if entry.state == "failed"]
    for entry in failures:
        print(f"perfsuite: {entry.engine} × {entry.technique} failed ({entry.cell}): {entry.reason}", file=sys.stderr)
    return 1 if failures else 0
