"""Does a comparison of any two releases in the stated range run? Twelve pairs per library, small cells on a CPU.

    python benchmarks/releases.py                       # all pairs that docs/releases.jsonl does not have
    python benchmarks/releases.py --pairs 4 deepspeed   # four of them, spread over the range

A new release is one word in RELEASES. Results are kept line by line, so that a later run resumes.
"""

import argparse
import itertools
import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

from perfsuite.catalog.registry import Catalog
from perfsuite.records.measurement import Measurement
from perfsuite.run.releases_compared import Seen, compare_releases, find, keep, load

FILE = Path(__file__).parents[1] / "docs" / "releases.jsonl"
# From the floor to the newest, spread over the range: neighbours are the pairs.
RELEASES = {
    "transformers": "4.44.0 4.45.2 4.46.3 4.47.1 4.48.3 4.50.3 4.52.4 4.54.1 4.57.6 5.0.0 5.8.1 5.16.1 5.23.0",
    "accelerate": "0.34.0 0.34.2 1.0.1 1.1.1 1.2.1 1.4.0 1.6.0 1.8.1 1.10.1 1.12.0 1.13.0 1.14.0 1.15.0",
    "deepspeed": "0.15.0 0.15.4 0.16.2 0.16.4 0.16.9 0.17.2 0.17.5 0.18.0 0.18.3 0.18.6 0.19.0 0.19.4 0.19.8",
    "peft": "0.12.0 0.13.0 0.13.2 0.14.0 0.15.0 0.15.2 0.16.0 0.17.1 0.18.0 0.18.1 0.19.1 0.20.0 0.21.2",
    "bitsandbytes": "0.43.3 0.44.1 0.45.0 0.45.3 0.45.5 0.46.1 0.47.0 0.48.1 0.48.2 0.49.0 0.49.2 0.50.0 0.50.2",
    "torchao": "0.5.0 0.6.1 0.7.0 0.8.0 0.9.0 0.10.0 0.11.0 0.12.0 0.14.1 0.15.0 0.16.0 0.17.0 0.18.0",
    "datasets": "3.1.0 3.2.0 3.3.0 3.4.1 3.5.1 3.6.0 4.0.0 4.2.0 4.4.1 4.6.1 4.8.5 5.0.1 5.2.0",
}
CELLS = {
    "transformers": (
        "t5_tiny-ddp+nodrop-cpu_x2",
        "llama_tiny-tp+nodrop-cpu_x2",
        "gpt2_tiny-ddp+acc2+nodrop+hf_trainer-cpu_x2",
    ),
    "accelerate": ("gpt2_tiny-ddp+acc2+nodrop+accelerate-cpu_x2", "gpt2_tiny-single+nodrop+hf_trainer-cpu_x1"),
    "deepspeed": (
        "gpt2_tiny-zero2+bf16+acc2+nodrop-cpu_x2",
        "gpt2_tiny-zero3+offload+nodrop-cpu_x2",
        "gpt2_tiny-pp_deepspeed+acc2+nodrop-cpu_x2",
        "llama_tiny-autotp+nodrop-cpu_x2",
    ),
    "peft": ("gpt2_tiny-ddp+lora+nodrop-cpu_x2", "t5_tiny-single+lora+nodrop-cpu_x1"),
    "bitsandbytes": ("gpt2_tiny-ddp+adamw8bit+nodrop-cpu_x2",),
    "torchao": ("gpt2_tiny-ddp+adamw8bit_ao+nodrop-cpu_x2",),
    "datasets": ("rows-hf_map-cpu_x2", "rows-hf_iterable-cpu_x2"),
}
NOT_HERE = {
    "torch": "the package index of this machine has a CPU build of 2.13.0 alone; others need gigabytes of CUDA",
}
FIRST = (0, 11, 5, 8, 2, 10, 4, 7, 1, 9, 3, 6)  # so that a few pairs are spread over the range
LEGEND = """- **✓** both releases ran, and the comparison says what differs
- **number** one of them cannot run the cell, for the reason of that number
- **✗ number** the cell failed
- **?** not run yet

The oldest supported releases are {floors}, with Python 3.11 or newer.
torch's is the oldest that has every name which perfsuite uses. The others are the first of each table.
"""


def pairs_of(library: str) -> list[tuple[str, str]]:
    """The neighbours, as sides of an A/B."""
    releases = [f"{library}=={one}" for one in RELEASES[library].split()]
    return list(itertools.pairwise(releases))


def floors() -> dict[str, str]:
    """The oldest supported release of each library, as pyproject.toml has it."""
    project = tomllib.loads((FILE.parents[1] / "pyproject.toml").read_text())["project"]
    wanted = map(Requirement, project["optional-dependencies"]["suite"])
    return {one.name: next(iter(one.specifier)).version for one in wanted if one.specifier}


def sections(records: list[Seen]) -> list[str]:
    """The lines of the docs page: all libraries, then the reasons."""
    reasons: dict[str, int] = {}
    lines = [LEGEND.format(floors=", ".join(f"{name} {version}" for name, version in floors().items()))]
    for library in RELEASES:
        pairs = pairs_of(library)
        seen = [find(records, cell, pair) for pair in pairs for cell in CELLS[library]]
        ran = sum(all(find(records, cell, pair) for cell in CELLS[library]) for pair in pairs)
        failed = sum(bool(one) and "failed" in one.outcomes for one in seen)
        lines += [f"## {library}", "", f"{ran} of {len(pairs)} pairs were run; {failed} comparisons failed.", ""]
        lines += ["| pair | " + " | ".join(f"`{cell}`" for cell in CELLS[library]) + " |"]
        lines += ["|---|" + ":-:|" * len(CELLS[library])]
        for pair in pairs:
            symbols = [_symbol(find(records, cell, pair), reasons) for cell in CELLS[library]]
            names = " → ".join(side.partition("==")[2] for side in pair)
            lines.append(f"| {names} | " + " | ".join(symbols) + " |")
        lines.append("")
    lines += ["## Not compared here", "", *(f"- {library}: {reason}." for library, reason in NOT_HERE.items()), ""]
    lines += ["## Reasons", "", *(f"{number}. {reason}" for reason, number in reasons.items())]
    return lines


def _symbol(seen: Seen | None, reasons: dict[str, int]) -> str:
    if seen is None:
        return "?"
    numbers = [reasons.setdefault(reason, len(reasons) + 1) for reason in dict.fromkeys(seen.reasons) if reason]
    if not numbers:
        return "✓"
    failed = "✗ " if "failed" in seen.outcomes else ""
    return failed + ", ".join(map(str, numbers))


def main() -> None:
    """Run what is not known yet, pair by pair, and write the file after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", nargs="*", help="Only these.")
    parser.add_argument("--pairs", type=int, default=len(FIRST), metavar="N", help="At most so many per library.")
    parser.add_argument("--again", metavar="REGEX", help="Forget what failed or was refused for such a reason.")
    parser.add_argument("--file", type=Path, default=FILE, metavar="JSONL", help="Where results are kept.")
    arguments = parser.parse_args()
    if unknown := set(arguments.libraries) - RELEASES.keys():
        parser.error(f"no releases of {', '.join(sorted(unknown))}: known are {', '.join(RELEASES)}.")
    records = load(arguments.file)
    if arguments.again:
        again = re.compile(arguments.again)
        records = [one for one in records if not any(map(again.search, filter(None, one.reasons)))]
    catalog, kept = Catalog(), dict[tuple[str, str], Measurement]()
    for library in arguments.libraries or RELEASES:
        chosen = [pairs_of(library)[number] for number in FIRST[: arguments.pairs]]
        for cell in CELLS[library]:
            kept.clear()
            for pair in sorted(chosen, key=pairs_of(library).index):
                if find(records, cell, pair):
                    continue
                for seen in compare_releases(pair, [cell], catalog, lambda cell, progress, seconds: None, kept):
                    records = keep(arguments.file, records, seen)
                    said = "; ".join(filter(None, seen.reasons))
                    print(f"{pair[0]} -> {pair[1]}  {cell}  {seen.status}  {seen.seconds:.0f} s  {said}", flush=True)


if __name__ == "__main__":
    main()
