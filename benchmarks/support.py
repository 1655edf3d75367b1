"""Train a cell for every engine × technique, and write docs/support.json. It resumes; what is proven is not run again.

python benchmarks/support.py [--engine fsdp2 …] [--technique clip …] [--fresh]
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from perfsuite.catalog.registry import Catalog
from perfsuite.features.prove.compatibility.pages import matrix
from perfsuite.features.prove.compatibility.pairs import Claim, claims
from perfsuite.features.prove.compatibility.proofs import ProofEntry, Prover
from perfsuite.features.prove.support_table import DEFAULT
from perfsuite.run.runner import Runner, Settings
from perfsuite.show.text.live import LiveLine
from perfsuite.system.changing import changing


def main(words: Sequence[str] | None = None) -> int:
    """Prove and write. Exit code 1 if a cell failed: such a pair neither runs nor is refused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", nargs="+", default=[], metavar="E", help="Only pairs of these engines.")
    parser.add_argument("--technique", nargs="+", default=[], metavar="T", help="Only pairs of these techniques.")
    parser.add_argument("--fresh", action="store_true", help="Measure them again, even if proven.")
    parser.add_argument("--file", type=Path, default=DEFAULT, metavar="JSON", help=f"The proofs ({DEFAULT}).")
    arguments = parser.parse_args(words)
    catalog, settings = Catalog(), Settings(steps=1, warmup=0)
    engines = [catalog.get("engine", name).name for name in arguments.engine]
    techniques = [catalog.get("technique", name).name for name in arguments.technique]
    pairs = claims(catalog)

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


if __name__ == "__main__":
    sys.exit(main())
