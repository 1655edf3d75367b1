"""One issue per regression on GitHub, or on a server with its API: opened, kept up to date, and closed when it is gone.

An issue bears a label, and its regression's key and members in comments that no reader sees. Issues that people wrote
are left alone. PyGithub talks to the server.
"""

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from perfsuite.errors import UsageError
from perfsuite.features.nights.news.regressions import News, NightRegression, home_of
from perfsuite.system.units import show_several

LABEL = "perfsuite"
PAUSE = 1.0  # seconds between two writes, as GitHub wants
MOST = 20  # new issues of one report: a broken machine must not open hundreds
GONE = "It is gone."
MOST_MEMBERS = 500  # in an issue: GitHub refuses one above 65,536 characters
_KEY = re.compile(r"\A<!-- perfsuite ([^<>]+) -->(?:\s*<!-- of ([^<>]*) -->)?")
_MEMBER = re.compile(r"[^\s<>;]+ [^\s<>;]+")


@dataclass(frozen=True)
class Done:
    """What happened to one issue: ``opened``, ``updated``, ``closed``, ``moved`` into the issue of its cause, or
    ``left out`` by MOST, which has no number.
    """

    what: str
    title: str
    number: int | None = None
    key: str = ""
    below: tuple[str, ...] = ()

    def __str__(self) -> str:
        title = f"{self.what} {'' if self.number is None else f'#{self.number} '}{self.title}"
        return "\n".join([title, *(f"  {line}" for line in self.below)])


@contextlib.contextmanager
def opened(repository: str, token: str, api: str) -> Iterator[Any]:
    """The repository, as PyGithub knows it. Raises UsageError if the server refuses a request or does not answer."""
    from github import Auth, Github, GithubException
    from requests import RequestException

    auth, between = Auth.Token(token), PAUSE / 4
    hub = Github(base_url=api, auth=auth, retry=2, seconds_between_requests=between, seconds_between_writes=PAUSE)
    try:
        yield hub.get_repo(repository)
    except GithubException as error:
        reason = error.data.get("message", "") if isinstance(error.data, dict) else error.data
        raise UsageError(f"{api} refuses a request for {repository}: {error.status} {reason}.") from error
    except RequestException as error:
        raise UsageError(f"{api} does not answer: {type(error).__name__}.") from error
    finally:
        hub.close()


def keep_issues(news: News, repository: Any, run: str = "") -> list[Done]:
    """Bring the issues of an opened repository up to date. ``run`` is the address of the run, for the reader."""
    # The oldest last: if two issues have one key, the older one is kept up to date.
    labelled = repository.get_issues(state="open", labels=[LABEL], sort="created", direction="desc")
    ours, known = {}, {}
    for issue in labelled:
        if match := _KEY.match(issue.body or ""):
            ours[match[1]] = issue
            known[match[1]] = match[2].split("; ") if match[2] else [match[1]]
    red = news.red(known)
    done, numbers = [], {key: issue.number for key, issue in ours.items()}
    opened = 0
    for key, regression in red.items():
        body = _body(regression, run)
        if key in ours:
            ours[key].edit(title=regression.title, body=body)
            done.append(Done("updated", regression.title, numbers[key], key, regression.below))
        elif opened < MOST:
            opened += 1
            numbers[key] = repository.create_issue(title=regression.title, body=body, labels=[LABEL]).number
            done.append(Done("opened", regression.title, numbers[key], key, regression.below))
        else:
            done.append(Done("left out", regression.title, key=key))
    for key, issue in ours.items():
        if key in red:
            continue
        home, left = home_of(known[key], red), news.left(key, known[key], red)
        if left and left != known[key]:
            issue.edit(body=_KEY.sub(lambda _, key=key, left=left: _head(key, left), issue.body))  # type: ignore[misc]
        if not left and (not home or home in numbers):
            done.append(_close(key, issue, f"It is part of #{numbers[home]} now." if home else GONE, run))
    return done


def say_left_out(count: int) -> str:
    """How many regressions have no issue, and why; empty for none."""
    why = f"one report opens {MOST} issues at most. The next report opens those that are still red."
    return f"… and {show_several(count, 'more regression')}: {why}" if count else ""


def _close(key: str, issue: Any, why: str, run: str) -> Done:
    issue.create_comment(" ".join(filter(None, (why, run))))
    issue.edit(state="closed", state_reason="completed")
    return Done("closed" if why == GONE else "moved", issue.title, issue.number, key)


def _body(regression: NightRegression, run: str) -> str:
    """The key and the members come first, so that no text of a report can be taken for them."""
    seen = f"Last seen: {run}" if run else ""
    return "\n\n".join(filter(None, (_head(regression.key, regression.members), regression.body, seen)))


def _head(key: str, members: Sequence[str]) -> str:
    named = "; ".join([member for member in members if _MEMBER.fullmatch(member)][:MOST_MEMBERS])
    return f"<!-- perfsuite {key} -->" + (f"\n<!-- of {named} -->" if tuple(members) != (key,) else "")
