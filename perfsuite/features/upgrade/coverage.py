"""What an upgrade compared and what it did not, as lines of text."""

from collections.abc import Iterator, Sequence

from perfsuite.features.upgrade.upgrade_outcome import Times, UpgradeReport
from perfsuite.show.text.trial_words import release_text
from perfsuite.system.units import listed, show_several

NAMED = 3  # cells of a line
WHY_NOT: dict[Times, str] = {
    "counts": "not compared, since counts got worse",
    "undecided": "could not be decided",
    "limit": "not compared: the time was used up",
    "not asked": "not compared: --minutes 0",
}


def times_lines(report: UpgradeReport, every: bool) -> Iterator[str]:
    """In how many cells times were compared, and why not in the others. ``every`` names all cells."""
    compared = sum(status == "compared" for status in report.times.values())
    yield f"times were compared in {compared} of {count(len(report.cells))}"
    for status, why in WHY_NOT.items():
        if cells := [cell for cell, outcome in report.times.items() if outcome == status]:
            yield f"times of {count(len(cells))} {why}: {some(cells, every)}"


def left_out_lines(report: UpgradeReport, minutes: float | None, every: bool) -> Iterator[str]:
    """What --minutes left out: of whole cells everything, and what was not tried in others."""
    missing: dict[str, list[str]] = {}
    for cell, attempts in report.left_out.items():
        whole = cell in report.uncompared
        for what in ["everything"] if whole else [listed(map(release_text, kept)) for kept in attempts]:
            missing.setdefault(what, []).append(cell)
    if missing:
        yield f"LEFT OUT, since the {minutes or 0:g} min of --minutes were used up:"
        for what, cells in missing.items():
            yield f"  {what} in {len(cells)} of {count(len(report.cells))}: {some(cells, every)}"
        yield "The same command goes on from here: what was built and measured is kept."


def some(cells: Sequence[str], every: bool) -> str:
    """The first few names, or every one."""
    more = 0 if every else len(cells) - NAMED
    return ", ".join(cells if more <= 0 else cells[:NAMED]) + (f" and {more} more" if more > 0 else "")


def count(cells: int) -> str:
    """``1 cell``, ``2 cells``."""
    return show_several(cells, "cell")
