"""What is said while two environments are compared."""

import math

from perfsuite.compare.rounds import Announcement, Round
from perfsuite.show.text.grid_words import effect_text
from perfsuite.show.text.trial_words import before_text, brought_text, release_text
from perfsuite.system.units import listed, show_rough, show_several, some


def wait_text(command: str | None, seconds_held: float, waited: float) -> str:
    """Who holds what a cell waits for, and since when."""
    who = f"held for {show_rough(seconds_held)} by: {command}" if command else "held by another process"
    return f"waiting for {show_rough(waited)} for the machine's turn, {who}"


def announcement_text(announcement: Announcement) -> str:
    """What is compared with what; or with which changes the search for the cause goes on."""
    if announcement.brought or announcement.unmet:
        both = listed(map(before_text, announcement.against))
        return f"the other side: {both}{brought_text(announcement.brought, announcement.unmet)}"
    if announcement.kept:
        return f"the search for the cause goes on: only {listed(map(release_text, announcement.kept))}"
    what, cells = listed(announcement.titles or ["all metrics"]), some(announcement.cells, 1)
    return f"a trial of {what} against {listed(map(before_text, announcement.against))} begins: {cells}"


def round_text(progress: Round) -> str:
    """Which round of pairs begins, how long it takes, how much time is left, and what is known."""
    known = f"a run that was broken off left {show_several(progress.known, 'pair')}; " if progress.known else ""
    ahead = "" if progress.seconds is None else f", about {show_rough(progress.seconds)}"
    left = "" if math.isinf(progress.seconds_left) else f"; {show_rough(progress.seconds_left)} left"
    waiting = f"{progress.waiting} of {show_several(progress.cells, 'cell')}"
    text = f"round {progress.number}: {known}one more pair of launches of {waiting}{ahead}{left}"
    said = [f"{name}: {', '.join(map(effect_text, effects))}" for name, effects in progress.effects.items()]
    return "\n".join([text, *(f"  {line}" for line in said)])
