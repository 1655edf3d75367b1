"""One message per report to a webhook, about what is red for the first time and what is gone: never the same twice.

With issues, they know what was sent before. Without them, a file in perfsuite's cache folder does.
"""

import hashlib
import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perfsuite.errors import FileError, UsageError
from perfsuite.news.forge import Done
from perfsuite.news.regressions import News
from perfsuite.paths import cache_folder
from perfsuite.records import codec

FORMATS = ("slack", "json")
MOST_LINES = 20  # of a message for people
SECONDS = 30.0


@dataclass
class Message:
    """Titles by key: those that are red for the first time, and those that are gone. ``run`` is the run's address."""

    new: dict[str, str] = field(default_factory=dict)
    gone: dict[str, str] = field(default_factory=dict)
    run: str = ""

    def __bool__(self) -> bool:
        return bool(self.new or self.gone)

    def body(self, kind: str) -> dict[str, object]:
        """``{"text": …}`` for Slack and its like, or the fields as they are."""
        if kind == "json":
            listed = {
                word: [{"key": key, "title": title} for key, title in found.items()]
                for word, found in (("new", self.new), ("gone", self.gone))
            }
            return {**listed, "run": self.run}
        lines = [f"{word}: {title}" for word, found in self._words() for title in found.values()]
        more = [f"… and {len(lines) - MOST_LINES} more"] if len(lines) > MOST_LINES else []
        head = "perfsuite: " + ", ".join(f"{len(found)} {word}" for word, found in self._words() if found)
        return {"text": "\n".join(filter(None, [head, *lines[:MOST_LINES], *more, self.run]))}

    def _words(self) -> list[tuple[str, dict[str, str]]]:
        return [("red", self.new), ("gone", self.gone)]


def of_issues(done: Sequence[Done], run: str) -> Message:
    """What the issues did not know before."""
    titles = {what: {one.key: one.title for one in done if one.what == what} for what in ("opened", "closed")}
    return Message(titles["opened"], titles["closed"], run)


def since_last(news: News, address: str, run: str) -> Message:
    """What the last message to that address did not tell."""
    sent = _sent(address)
    new = {key: one.title for key, one in sorted(news.red.items()) if key not in sent}
    return Message(new, {key: title for key, title in sent.items() if news.is_gone(key)}, run)


def remember(message: Message, address: str) -> None:
    """Keep what was sent. Raises FileError if the cache folder cannot be written."""
    left = {key: title for key, title in (_sent(address) | message.new).items() if key not in message.gone}
    codec.write_text(_file(address), json.dumps(left, indent=1))


def send(message: Message, address: str, kind: str) -> None:
    """Raises UsageError if the server refuses it. The address is a secret, so no message repeats it."""
    head = {"Content-Type": "application/json"}
    request = urllib.request.Request(address, json.dumps(message.body(kind)).encode(), head, method="POST")
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


def _sent(address: str) -> dict[str, str]:
    """Titles by key; empty before the first message. Raises FileError for a damaged file."""
    path = _file(address)
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise FileError(
            f"{path} cannot be read: {error}. Remove it: the next message then repeats what is red."
        ) from error
    return {str(key): str(title) for key, title in found.items()}
