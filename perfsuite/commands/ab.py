"""``perfsuite ab``: two releases, two revisions or two strategies, launched in turn in one session and compared.

Exit codes beside the usual: 1 where B is worse than A or a side failed, 3 where no more is wrong than that a time could
not be decided.
"""

import argparse
from collections import Counter
from pathlib import Path

from perfsuite import codec, records
from perfsuite.ab import Session, kind_of, sides
from perfsuite.catalog.registry import Catalog
from perfsuite.cell import make_cell, parse_cell
from perfsuite.commands._base import Command, add_catalog, add_settings, catalog_of, check_output, settings_of
from perfsuite.commands._cells import add_cells, cells_of
from perfsuite.errors import UsageError
from perfsuite.gate.compare import Comparison
from perfsuite.gate.paired import CONFIDENCE, MOST_BLOCKS, THRESHOLD, least_blocks
from perfsuite.launch.machine import why_absent
from perfsuite.records import Record
from perfsuite.report.ab import render_ab
from perfsuite.report.live import LiveLine

FORMAT = 1
EXIT = {"failed": 1, "regressed": 1, "undecided": 3}


class ABReport(Record, frozen=True, kw_only=True):
    """A whole A/B. Format 1: 2026-11, first."""

    format: int = FORMAT
    date: str
    a: str
    b: str
    threshold: float
    comparisons: list[Comparison]


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    add_cells(parser)
    for name in ("--a", "--b"):
        parser.add_argument(name, required=True, metavar="SIDE", help=_SIDE)
    parser.add_argument("--model", metavar="M", help="The model of two strategies.")
    parser.add_argument("--hardware", metavar="H", help="The hardware of two strategies, e.g. cpu_x2.")
    parser.add_argument("--blocks", type=int, default=MOST_BLOCKS, metavar="N", help=_BLOCKS)
    parser.add_argument("--threshold", type=float, default=THRESHOLD, metavar="SHARE", help=_THRESHOLD)
    parser.add_argument("--interleave", choices=("steps", "launches"), help=_INTERLEAVE)
    parser.add_argument("--report", type=Path, metavar="FILE", help="Write everything, raw samples included, as JSON.")
    add_settings(parser, steps=100, warmup=3)
    add_catalog(parser)


_SIDE = "'name==version …', git:REVISION of the repository here, a strategy, or here: what is installed and lies here."
_BLOCKS = (
    f"Most blocks of two launches of each side ({MOST_BLOCKS}); fewer once the {CONFIDENCE:.0%} interval is no wider "
    f"than the threshold. At least {least_blocks()}; or 0: one launch of each, which compares no times.".replace(
        "%", "%%"
    )
)
_INTERLEAVE = (
    "What of the two sides alternates: steps, which cancels most of a shared machine's noise and needs the memory of "
    "both at once, or launches. Steps on CPUs, launches elsewhere."
)
_THRESHOLD = f"Relative change of a time that is allowed ({THRESHOLD})."


def run(arguments: argparse.Namespace) -> int:
    """Compare cell by cell and print each as it is done."""
    catalog = catalog_of(arguments)
    settings = settings_of(arguments)
    if arguments.blocks != 0 and arguments.blocks < least_blocks():
        raise UsageError(f"--blocks must be 0, or {least_blocks()} or more, not {arguments.blocks}.")
    if not 0 <= arguments.threshold < 1:
        raise UsageError(f"--threshold must be 0 or more and below 1, 0.02 for 2 %, not {arguments.threshold}.")
    check_output("--report", arguments.report)
    cells = _cells(arguments, catalog)
    hardware = [parse_cell(cell, catalog).hardware for cell in cells]
    if absent := next(filter(None, (why_absent(one, catalog) for one in hardware)), ""):
        raise UsageError(absent)
    a, b = sides((arguments.a, arguments.b), catalog, Path.cwd())
    on_cpu = all(one.kind == "cpu" for one in hardware)
    interleave = arguments.interleave or ("steps" if on_cpu else "launches")
    session = Session(a, b, cells, settings, arguments.threshold, arguments.blocks, interleave)
    live = LiveLine(settings.all_steps_of)
    print(f"A: {arguments.a}\nB: {arguments.b}", flush=True)
    found: list[Comparison] = []
    try:
        for cell in session.cells:
            comparison = session.compare(cell, live.show)
            live.clear()
            found.append(comparison)
            print(f"\n{render_ab(comparison)}", flush=True)
            if arguments.report:
                report = ABReport(
                    date=records.timestamp(),
                    a=arguments.a,
                    b=arguments.b,
                    threshold=arguments.threshold,
                    comparisons=found,
                )
                codec.write(arguments.report, report)
    finally:
        live.clear()
        session.close()
    counts = Counter(one.verdict.status for one in found)
    told = ", ".join(f"{count} {status}" for status, count in counts.items())
    print(f"\n{len(found)} {'cell' if len(found) == 1 else 'cells'}: {told}")
    return next((EXIT[status] for status in EXIT if status in counts), 0)


def _cells(arguments: argparse.Namespace, catalog: Catalog) -> list[str]:
    """Two strategies have their cell by model and hardware; everything else has cells of its own."""
    strategies = {kind_of(arguments.a), kind_of(arguments.b)} == {"strategy"}
    if not strategies and arguments.model is None and arguments.hardware is None:
        return cells_of(arguments, catalog)
    if None in (arguments.model, arguments.hardware) or arguments.cells or arguments.k is not None:
        raise UsageError(
            "Two strategies need --model and --hardware, and no other cells: --a zero2 --b zero3 --model gpt2_tiny"
            " --hardware cpu_x2. Anything else (transformers==5.22.0, git:main, here) needs cells or -k."
        )
    return [make_cell(arguments.model, arguments.a, arguments.hardware, catalog).id]


COMMAND = Command(
    name="ab",
    help="Compare two releases, revisions or strategies.",
    arguments=arguments,
    run=run,
    starts_processes=True,
)
