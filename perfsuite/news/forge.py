"""One issue per regression on GitHub, or on a server with its API: opened, kept up to date, and closed when it is gone.

An issue bears a label, and its regression's key in a comment that no reader sees. Issues that people wrote are left
alone. PyGithub talks to the server.
"""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from perfsuite.errors import UsageError
from perfsuite.news.regressions import News, Regression

LABEL = "perfsuite"
PAUSE = 1.0  # seconds between two writes, as GitHub wants
MOST = 20  # new issues of one report: a broken machine must not open hundreds
_KEY = re.compile(r"\A<!-- perfsuite ([^<>]+) -->")


@dataclass(frozen=True)
class Done:
    """What happened to one issue: ``opened``, ``updated``, ``closed``, or ``left out`` by MOST, which has no number."""

    what: str
    title: str
    number: int | None = None
    key: str = ""

    def __str__(self) -> str:
        return f"{self.what} {'' if self.number is None else f'#{self.number} '}{self.title}"


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
    ours = {match[1]: issue for issue in labelled if (match := _KEY.match(issue.body or ""))}
    done = []
    for key, issue in ours.items():
        if news.is_gone(key):
            issue.create_comment(" ".join(filter(None, ("It is gone.", run))))
            issue.edit(state="closed", state_reason="completed")
            done.append(Done("closed", issue.title, issue.number, key))
    opened = 0
    for key, one in sorted(news.red.items()):
        body = _body(one, run)
        if key in ours:
            ours[key].edit(title=one.title, body=body)
            done.append(Done("updated", one.title, ours[key].number, key))
        elif opened < MOST:
            opened += 1
            issue = repository.create_issue(title=one.title, body=body, labels=[LABEL])
            done.append(Done("opened", one.title, issue.number, key))
        else:
            done.append(Done("left out", one.title, key=key))
    return done


def _body(one: Regression, run: str) -> str:
    """The key comes first, so that no text of a report can be taken for it."""
    seen = f"Last seen: {run}" if run else ""
    return "\n\n".join(filter(None, (f"<!-- perfsuite {one.key} -->", one.body, seen)))
