"""``perfsuite ab``: two releases, two revisions or two strategies, launched in turn in one session and compared.

Exit codes in addition to the usual ones: 1 if B is worse than A or a side failed, 3 if the only problem is a time that
could not be decided.
"""

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from perfsuite.catalog.cell import make_cell, parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.strategies import parse_strategy
from perfsuite.cli.cell_options import add_cells, cells_of
from perfsuite.cli.shared_options import (
    add_html,
    add_settings,
    add_shared,
    catalog_of,
    count,
    html_of,
    settings_of,
    value_of,
)
from perfsuite.compare.compare import Comparison
from perfsuite.compare.paired import FEWEST_PAIRS
from perfsuite.compare.pooling import LOOKS
from perfsuite.compare.rounds import Round
from perfsuite.errors import UsageError
from perfsuite.launch.hardware_here import require_here
from perfsuite.records import codec
from perfsuite.records.formats import FORMAT, timestamp
from perfsuite.records.record import Record
from perfsuite.records.verdict import Status
from perfsuite.run.measuring import Measuring
from perfsuite.run.question import Question
from perfsuite.run.sides import Side, kind_of, sides
from perfsuite.settings.keys import CATALOG, TIME_TOLERANCE
from perfsuite.settings.options import LONG
from perfsuite.show.html.comparisons import comparisons_page
from perfsuite.show.html.document import write
from perfsuite.show.text.comparison import render_ab
from perfsuite.show.text.live import LiveLine
from perfsuite.show.text.rounds import round_text
from perfsuite.show.text.trial_words import brought_text
from perfsuite.system.machine import refuse_emulated
from perfsuite.system.paths import check_output
from perfsuite.system.units import show_several

HELP = "Compare two releases, revisions or strategies."
QUESTION = "compare"
EXAMPLES = (
    "perfsuite ab --a transformers==5.22.0 --b here gpt2_tiny-zero3-cpu_x2",
    "perfsuite ab --a zero2 --b zero3 --model gpt2_tiny --hardware cpu_x2",
)
PAGE = "upgrade"
STARTS_PROCESSES = True
EXIT = {Status.FAILED: 1, Status.REGRESSED: 1, Status.OPEN: 3}


class ABReport(Record, frozen=True, kw_only=True):
    """The content of ``--json``: a whole A/B."""

    format: int = FORMAT
    date: str
    a: str
    b: str
    tolerance: float | None
    comparisons: list[Comparison]


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    add_cells(parser)
    for name in ("--a", "--b"):
        parser.add_argument(name, required=True, metavar="SIDE", help=_SIDE)
    parser.add_argument("--model", metavar="M", help="The model, for two strategies.")
    parser.add_argument("--hardware", metavar="H", help="The hardware, for two strategies, e.g. cpu_x2.")
    parser.add_argument("--pairs", type=count, default=LOOKS[-1], metavar="N", help=_PAIRS)
    add_shared(parser, TIME_TOLERANCE)
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="Write everything, including raw samples, to this file too."
    )
    add_settings(parser, steps=20, warmup=3)
    add_shared(parser, LONG)
    add_html(parser)
    add_shared(parser, CATALOG)


_SIDE = "'name==version …', git:REVISION of this repository, a strategy, or here: the installed releases and this code."
_PAIRS = (
    f"Most pairs of launches of a cell ({LOOKS[-1]}); fewer if its times are decided earlier. At least {FEWEST_PAIRS}, "
    "or 0: one launch of each side, without comparing times."
)


def run(arguments: argparse.Namespace) -> int:
    """Compare the exact metrics of each cell, then the times of all, and print what was found."""
    refuse_emulated("perfsuite ab")
    catalog = catalog_of(arguments)
    settings, tolerance = settings_of(arguments), value_of(arguments, TIME_TOLERANCE)
    _check(arguments)
    page = html_of(arguments)
    cells = _cells(arguments, catalog)
    hardware = [parse_cell(cell, catalog).hardware for cell in cells]
    require_here(hardware, catalog)
    a, b = sides((arguments.a, arguments.b), catalog, Path.cwd())
    if a.environment == b.environment and _strategy(a, catalog) == _strategy(b, catalog):
        raise UsageError(f"--a {arguments.a} and --b {arguments.b} are the same, so there is nothing to compare.")
    for letter, side in (("A", a), ("B", b)):
        print(f"{letter}: {side.name}{brought_text(side.brought, side.environment.unmet)}", flush=True)
    comparisons: list[Comparison] = []
    with closing(LiveLine(settings.all_steps_of)) as live:
        how = Measuring(catalog, settings, Path.cwd(), live.show, tolerance, len(cells))
        for comparison in _compared(how, (a, b), cells, arguments, live):
            live.clear()
            comparisons.append(comparison)
            print(f"\n{render_ab(comparison)}", flush=True)
    if arguments.json:
        report = ABReport(date=timestamp(), a=arguments.a, b=arguments.b, tolerance=tolerance, comparisons=comparisons)
        codec.write(arguments.json, report)
    if page:
        write(page, comparisons_page(arguments.a, arguments.b, comparisons, catalog.all("metric").values()))
    counts = Counter(each.verdict.status for each in comparisons)
    statuses = ", ".join(f"{count} {status}" for status, count in counts.items())
    print(f"\nB against A in {show_several(len(comparisons), 'cell')}: {statuses}")
    if Status.OPEN in counts:
        print("To decide the times that are undecided, take more --pairs or a quieter machine.")
    return next((EXIT[status] for status in EXIT if status in counts), 0)


def _compared(
    how: Measuring, both: tuple[Side, Side], cells: Sequence[str], arguments: argparse.Namespace, live: LiveLine
) -> Iterator[Comparison]:
    """The comparison of each cell, after all of them. Raises PerfsuiteError for a cell that a side does not have."""

    def tell(progress: Round) -> None:
        live.clear()
        if progress.cells > 1:
            print(round_text(progress), flush=True)

    most = arguments.pairs or LOOKS[-1]
    question = Question(how, *both, cells, tell=tell, most_pairs=most)
    for error in question.problems.values():
        raise error
    with closing(question):
        question.launch_once()
        if arguments.pairs:
            question.compare_times()
        yield from map(question.comparison, question.names)


def _check(arguments: argparse.Namespace) -> None:
    """Raise UsageError for options that say nothing."""
    if arguments.pairs != 0 and arguments.pairs < FEWEST_PAIRS:
        raise UsageError(f"--pairs must be 0, or {FEWEST_PAIRS} or more, not {arguments.pairs}.")
    check_output("--json", arguments.json)


def _strategy(side: Side, catalog: Catalog) -> str:
    """Its canonical name; empty for the cells' own."""
    return parse_strategy(side.strategy, catalog).name if side.strategy else ""


def _cells(arguments: argparse.Namespace, catalog: Catalog) -> list[str]:
    """Two strategies need a model and hardware; everything else needs cells."""
    strategies = {kind_of(arguments.a), kind_of(arguments.b)} == {"strategy"}
    if not strategies and arguments.model is None and arguments.hardware is None:
        return cells_of(arguments, catalog)
    if None in (arguments.model, arguments.hardware) or arguments.cells or arguments.k is not None:
        raise UsageError(
            "Two strategies need --model and --hardware, and no other cells: --a zero2 --b zero3 --model gpt2_tiny"
            " --hardware cpu_x2. All other sides (transformers==5.22.0, git:main, here) need cells or -k."
        )
    return [make_cell(arguments.model, arguments.a, arguments.hardware, catalog).id]
