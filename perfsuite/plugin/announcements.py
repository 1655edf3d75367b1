"""What is said while a trial runs, of one cell or of a grid."""

from perfsuite.compare.paired import LOOKS, MOST_PAIRS
from perfsuite.run.grid import Progress
from perfsuite.run.trial import Announcement
from perfsuite.show.text.grid_words import effect_text
from perfsuite.show.text.words import before_text, release_text
from perfsuite.units import listed, show_rough, show_several


def announcement_text(one: Announcement) -> str:
    """Of what a trial is, against what, and how long it takes; or with which changes it goes on."""
    if one.kept:
        return f"{one.cell}: the trial goes on: only {listed(map(release_text, one.kept))}"
    amount = "one launch of each side"
    if one.pair_seconds is not None:
        amount = f"{LOOKS[0]} to {MOST_PAIRS} pairs of launches, each of {one.pair_seconds:.0f} s or more"
    what, against = listed(one.titles or ["all metrics"]), listed(map(before_text, one.against))
    return f"{one.cell}: a trial of {what} against {against} begins: {amount}"


def progress_text(one: Progress) -> str:
    """Which round of a grid trial begins, how long it takes, and what is known."""
    known = f"a run that was broken off left {show_several(one.known, 'pair')}; " if one.known else ""
    ahead = "" if one.seconds is None else f", about {show_rough(one.seconds)}"
    text = f"round {one.number}: {known}one more pair of {one.waiting} of {show_several(one.cells, 'cell')}{ahead}"
    said = [f"{name}: {', '.join(map(effect_text, effects))}" for name, effects in one.effects.items()]
    return "\n".join([text, *(f"  {line}" for line in said)])
