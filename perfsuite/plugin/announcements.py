"""What is said while a trial runs."""

from perfsuite.compare.paired import LOOKS, MOST_PAIRS
from perfsuite.run.trial import Announcement
from perfsuite.show.text.words import before_text, release_text
from perfsuite.units import listed


def announcement_text(one: Announcement) -> str:
    """Of what a trial is, against what, and how long it takes; or with which changes it goes on."""
    if one.kept:
        return f"{one.cell}: the trial goes on: only {listed(map(release_text, one.kept))}"
    amount = "one launch of each side"
    if one.pair_seconds is not None:
        amount = f"{LOOKS[0]} to {MOST_PAIRS} pairs of launches, each of {one.pair_seconds:.0f} s or more"
    what, against = listed(one.titles or ["all metrics"]), listed(map(before_text, one.against))
    return f"{one.cell}: a trial of {what} against {against} begins: {amount}"
