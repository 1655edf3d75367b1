"""Changes, causes and trials as text: only here are their sentences made."""

from collections.abc import Mapping, Sequence

from perfsuite.records.change import Cause, Change, Fixed, How, Problem, TrialReport
from perfsuite.records.verdict import (
    Verdict,
)
from perfsuite.system.units import (
    listed,
    show_rough,
    show_several,
    some,
)

MOST_FILES = 3  # of the user's code that a change names


def release_text(change: Change) -> str:
    """``torch 2.12.0 -> 2.13.0``."""
    return f"{change.name} {change.before} -> {change.after}"


def before_text(change: Change) -> str:
    """``torch 2.12.0`` or ``no triton``: what the other side has."""
    return f"no {change.name}" if change.is_added else f"{change.name} {change.before}"


def text_of_change(change: Change) -> str:
    """The change, with the user's files that differ: ``your code 1f0c93ab -> here (helper.py, net.py and 2 more)``."""
    files = f" ({some(change.files, MOST_FILES)})" if change.files else ""
    return release_text(change) + files


def changes_text(changes: Sequence[Change]) -> str:
    """All of them, separated by commas."""
    return ", ".join(map(text_of_change, changes))


_FIXED = {
    Fixed.NOT_A_PACKAGE: "it is not a package that uv can install",
    Fixed.SET_BY_CODE: "your code or a library sets it",
    Fixed.ONLY_DIGEST: "only a digest of its value was recorded",
    Fixed.NO_GIT: "this is no git repository that has its older content: measure in a clone, or accept the cell anew",
    Fixed.GIT_FAILS: "{}",
    Fixed.NOT_FETCHED: "{} Fetch the history first: git fetch --unshallow",
    Fixed.NOT_KEPT: "the older content of {} is in no commit here: commit what a cell reads, and accept the cell anew",
    Fixed.IN_LFS: "the older content of {} is in git LFS and not here: git lfs fetch --all",
    Fixed.NO_RELEASE: "it is no release of the package index",
    Fixed.ONE_BUILD: "the package index has one build of a release",
    Fixed.BY_PATH: "its shared libraries are loaded by their paths",
    Fixed.OUTSIDE: "it is outside of the repository",
}


def cause_text(cause: Cause) -> str:
    """``caused by transformers 5.22.0 -> 5.23.0 alone``."""
    named = listed(map(release_text, cause.changes))
    if cause.how == How.ALONE:
        return f"caused by {named}" + (", each alone" if len(cause.changes) > 1 else " alone")
    if cause.how == How.TOGETHER:
        return f"caused by {named} together: {'neither' if len(cause.changes) == 2 else 'none'} does it alone"
    if cause.how == How.NEEDED:
        unknown = listed(map(release_text, cause.unknown))
        return f"needs {named}; it is not known whether {unknown} causes it alone"
    if cause.how == How.UNKNOWN:
        return f"it is not known which of {named} caused it"
    return f"caused by {named}"


def trial_texts(trial: TrialReport | None, titles: Mapping[str, str]) -> list[str]:
    """What a trial did and found, a sentence each. ``titles`` are the metrics' by name."""
    if trial is None:
        return []
    said: list[str] = []
    if trial.against:
        changes = listed(map(release_text if trial.whole else before_text, trial.against))
        launches = f"{show_several(trial.pairs, 'pair')} of launches" if trial.pairs else "one launch"
        seconds = "" if trial.seconds is None else f", {trial.seconds:.0f} s"
        said.append(f"against {changes}{brought_text(trial.brought)}: {launches}{seconds}")
    problems = [
        f"with {listed(map(release_text, problem.kept))}: {_problem(problem)}"
        for problem in trial.problems
        if problem.kept
    ]
    blamed = [_of_metrics(cause, trial.causes, titles) for cause in trial.causes]
    if blamed:
        said.append("; ".join(blamed) + (f" ({'; '.join(problems)})" if problems else ""))
    said += [f"the trial could not run: {_problem(problem)}" for problem in trial.problems if not problem.kept]
    if trial.unfinished:
        said.append(f"not decided: {trial.unfinished}{_more(trial)}")
    if trial.unmoved:
        other = "a change that was not tried, " if trial.fixed else ""
        said.append(
            f"{listed(titles.get(name, name) for name in trial.unmoved)}: the same in the baseline's environment here, "
            f"so the cause is {other}the machine or something that the baseline does not record"
        )
    if trial.own_code:
        own = release_text(trial.own_code)
        said.append(f"not tried: {own}: compare its revisions with perfsuite ab --a git:REV --b here")
    elif not (trial.against or trial.problems or trial.fixed):
        said.append("not tried: nothing that a trial can revert has changed since the baseline")
    said += [
        f"not tried: {release_text(one)} cannot be reverted here: {_FIXED[one.fixed].format(one.obstacle)}"
        for one in trial.fixed
        if one.fixed
    ]
    return said


def brought_text(brought: Sequence[Change], unmet: Sequence[tuple[str, str]] = ()) -> str:
    """``(brings numpy 1.26.4; pandas needs numpy>=2)``: what releases move that were asked for, and what they break."""
    moved = [f"brings {', '.join(map(before_text, brought))}"] if brought else []
    parts = [*moved, *(f"{package} needs {requirement}" for package, requirement in unmet)]
    return f" ({'; '.join(parts)})" if parts else ""


def _more(trial: TrialReport) -> str:
    """What would decide the rest: more time, or a quieter machine."""
    if trial.more_seconds is None:
        return ""
    if trial.is_too_noisy:
        return f"; with so much noise it would take about {show_rough(trial.more_seconds)}: try a quieter machine"
    return f"; about {show_rough(trial.more_seconds)} more would decide it"


_ENDED = {"oom": "ran out of memory", "unsupported": "cannot run it"}


def _problem(problem: Problem) -> str:
    """``A failed: Rank 1 was killed by SIGKILL.``."""
    sides = [f"{side} {_ENDED.get(outcome, outcome)}" for side, outcome in problem.ended.items()]
    return f"{listed(sides)}: {problem.message}" if sides else problem.message


def _of_metrics(cause: Cause, causes: Sequence[Cause], titles: Mapping[str, str]) -> str:
    """The cause, with its metrics if there are several causes."""
    if len(causes) == 1:
        return cause_text(cause)
    return f"{listed(titles.get(name, name) for name in cause.metrics)}: {cause_text(cause)}"


def titles_of(verdict: Verdict) -> dict[str, str]:
    """The titles of its metrics by name."""
    return {line.metric: line.title for line in verdict.lines}


def trial_of(verdict: Verdict) -> list[str]:
    """The sentences of its trial."""
    return trial_texts(verdict.trial, titles_of(verdict))
