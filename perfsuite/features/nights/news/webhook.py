"""One message per report to a webhook, about what is red for the first time and what is gone: never the same twice.

With issues, they know what was sent before. Without them, a file in perfsuite's cache folder does.
"""

import hashlib
import itertools
import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from perfsuite.errors import FileError, UsageError
from perfsuite.features.nights.news.forge import Done
from perfsuite.features.nights.news.regressions import News, home_of
from perfsuite.records import codec
from perfsuite.show.text.markdown import code
from perfsuite.system.changing import changing
from perfsuite.system.paths import cache_folder

MOST_TITLES = 20  # of a message for people
SECONDS = 30.0


class Sent(msgspec.Struct):
    """A regression that a message told. A file of an older perfsuite has the title alone."""

    title: str
    members: list[str]


@dataclass
class WebhookMessage:
    """Titles by key: those that are red for the first time, and those that are gone. ``run`` is the run's address,
    ``below`` has the lines of a cause's metrics by its key.
    """

    new: dict[str, str] = field(default_factory=dict)
    gone: dict[str, str] = field(default_factory=dict)
    run: str = ""
    below: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.new or self.gone)

    def body(self) -> dict[str, str]:
        """``{"text": …}`` for Slack and its like. What a report says is code, which has no links or commands."""
        titles = [
            (f"{word}: {_code(title)}", self.below.get(key, ()))
            for word, found in self._words()
            for key, title in found.items()
        ]
        shown = ((title, *(f"  {_code(one)}" for one in below)) for title, below in titles[:MOST_TITLES])
        lines = itertools.chain.from_iterable(shown)
        more = [f"… and {len(titles) - MOST_TITLES} more"] if len(titles) > MOST_TITLES else []
        head = "perfsuite: " + ", ".join(f"{len(found)} {word}" for word, found in self._words() if found)
        return {"text": "\n".join(filter(None, [head, *lines, *more, _escaped(self.run)]))}

    def _words(self) -> list[tuple[str, dict[str, str]]]:
        return [("red", self.new), ("gone", self.gone)]


def _code(text: str) -> str:
    """One line of code in Slack's syntax."""
    return _escaped(code(text))


def _escaped(text: str) -> str:
    """Slack reads ``<…>`` as a link or a command, inside of code too."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def of_issues(done: Sequence[Done], run: str) -> WebhookMessage:
    """What the issues did not know before."""
    titles = {what: {one.key: one.title for one in done if one.what == what} for what in ("opened", "closed")}
    return WebhookMessage(
        titles["opened"], titles["closed"], run, {one.key: one.below for one in done if one.what == "opened"}
    )


def since_last(news: News, address: str, run: str) -> tuple[WebhookMessage, dict[str, Sent]]:
    """What the last message to that address did not tell, and what to remember once it is sent."""
    sent = _sent(address)
    known = {key: one.members for key, one in sent.items()}
    red = news.red(known)
    left = {key: news.left(key, known[key], red) for key in sent if key not in red}
    message = WebhookMessage(
        {key: one.title for key, one in red.items() if key not in sent},
        {key: sent[key].title for key, members in left.items() if not members and not home_of(known[key], red)},
        run,
        {key: one.below for key, one in red.items()},
    )
    kept = {key: Sent(sent[key].title, members) for key, members in left.items() if members}
    now = {key: Sent(sent[key].title if key in sent else one.title, list(one.members)) for key, one in red.items()}
    return message, kept | now


def send_news(news: News, address: str, run: str) -> WebhookMessage:
    """Send what the last message to that address did not tell, and remember it. Raises UsageError as ``send`` does, and
    FileError if the cache folder cannot be written.
    """
    with changing(_file(address)):
        message, sent = since_last(news, address, run)
        if message:
            send(message, address)
        codec.write_text(_file(address), msgspec.json.format(msgspec.json.encode(sent), indent=1).decode())
    return message


def send(message: WebhookMessage, address: str) -> None:
    """Raises UsageError if the server refuses it. The address is a secret, so no message repeats it."""
    head = {"Content-Type": "application/json"}
    request = urllib.request.Request(address, json.dumps(message.body()).encode(), head, method="POST")
    try:
        urllib.request.urlopen(request, timeout=SECONDS).close()
    except urllib.error.HTTPError as error:
        raise UsageError(f"The server of --webhook refuses the message: {error.code} {error.reason}.") from error
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise UsageError(f"The server of --webhook does not answer: {reason}.") from error


def _file(address: str) -> Path:
    """Named by a hash: the address is a secret."""
    return cache_folder() / f"webhook-{hashlib.sha256(address.encode()).hexdigest()[:16]}.json"


def _sent(address: str) -> dict[str, Sent]:
    """By key; empty before the first message. Raises FileError for a damaged file."""
    path = _file(address)
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Sent])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise FileError(
            f"{path} cannot be read: {error}. Remove it: the next message then repeats what is red."
        ) from error
