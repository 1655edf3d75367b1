"""Reports of formats 1 to 4, whose verdicts were texts, as today's records. The only file that reads those texts.

The numbers of a line stay the texts that they were. A change in percent, an interval, a limit and the changes and
causes become data, so an old report is summarised, grouped and drawn as a new one. Sentences of a trial that name no
cause are kept as they are.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from perfsuite.errors import UsageError
from perfsuite.units import parse_bytes

Json = dict[str, Any]
STATUSES = {  # of formats 1 to 5
    **dict.fromkeys(("suspected", "unstable", "excused", "alarm", "undecided", "machine"), "open"),
    **dict.fromkeys(("unheld", "not held"), "not compared"),
    "same": "ok",
}
_CHANGE = re.compile(r"(.+?) (\S+) -> (\S+?)(?: \((.*)\))?")
_PERCENT = re.compile(r"([+-]?\d+(?:\.\d+)?(?:e[+-]?\d{1,2})?) %")
_INTERVAL = re.compile(r"([+-]\S+) % to ([+-]\S+) %, (\d+) pairs?(?:; )?")
_CAUSED = re.compile(
    r"(?:^|; )(?:([^:;]+): )?caused by (.+?)"
    r"( alone|, each alone| together: (?:neither|none) does it alone)?(?=$|; | \()"
)
_AND = re.compile(r", | and ")
_SAME = ": the same in the baseline's environment here"
_ACCEPT = re.compile(r"(.*) -k (\S+) --perf-update=(\w+)")
_LEFT = re.compile(r"(-?)([\d.]+ \w+) of ([\d.]+ \w+) are left")
_TRACE = re.compile(r"(\S+\.json\.gz): open it in \S+")


def is_older(verdict: Mapping[str, Any]) -> bool:
    """Whether the verdict has its sentence as a text, as before format 5."""
    return "headline" in verdict


def modern(line: bytes) -> bytes:
    """The line of a report with today's verdict; the same line if it has one, or is none of a cell."""
    if b'"headline"' not in line:
        return line
    result = msgspec.json.decode(line)
    verdict = result.get("verdict") if isinstance(result, dict) else None
    if not isinstance(verdict, dict) or not is_older(verdict):
        return line
    return msgspec.json.encode(result | {"verdict": verdict_of(verdict)})


def verdict_of(old: Json) -> Json:
    """The verdict, from its texts."""
    cell, lines = str(old.get("cell", "")), [line_of(line) for line in old.get("lines", [])]
    titles = {line["title"]: line["metric"] for line in lines}
    new: Json = {"cell": cell, "status": _status(old.get("status", "")), "lines": lines}
    if not lines:
        message = str(old["headline"]).removeprefix(f"{cell}: ")
        new["reason"] = _message(message)
    new["changed"] = [change_of(text) for text in old.get("changed", [])]
    if trial := old.get("trial"):
        new["trial"] = trial_of(trial, titles)
    new["traces"] = [_trace(text) for text in old.get("traces", [])]
    if accept := _ACCEPT.fullmatch(old.get("accept", "")):
        new |= {"collect": accept[1], "accept": accept[3]}
    if (left := _LEFT.fullmatch(old.get("headroom", ""))) and (sizes := _sizes(left[2], left[3])):
        new["headroom"] = {"left_bytes": -sizes[0] if left[1] else sizes[0], "capacity_bytes": sizes[1]}
    return new


def line_of(old: Json) -> Json:
    """A line, from its texts."""
    new: Json = {name: old[name] for name in ("metric", "title", "old", "new") if name in old}
    new["status"] = _status(old.get("status", ""))
    note = str(old.get("note", ""))
    if change := _PERCENT.match(str(old.get("change", ""))):
        new |= {"compared": True, "ratio": 1 + float(change[1]) / 100}
    if interval := _INTERVAL.match(note):
        low, high = (1 + float(end) / 100 for end in interval.group(1, 2))
        new["interval"] = {"low": low, "high": high, "pairs": int(interval[3])}
        note = note[interval.end() :]
    if limit := _limit(str(old.get("allowed", "")), pairs="interval" in new):
        new["limit"] = limit
    if detects := _PERCENT.match(str(old.get("detects", ""))):
        new["detects"] = float(detects[1]) / 100
    if note:
        new["reason"] = _message(note)
    return new


def change_of(text: str) -> Json:
    """``torch 2.12.0 -> 2.13.0``, or code with its files; a text of another form is a change without sides."""
    match = _CHANGE.fullmatch(text)
    if not match:
        return {"name": text, "before": "", "after": ""}
    name, before, after, files = match.groups()
    kind = "code" if name == "your code" else "own code" if name == "perfsuite's code" else "release"
    return {"name": name, "before": before, "after": after, "kind": kind, "files": files.split(", ") if files else []}


def trial_of(sentences: Iterable[str], titles: Mapping[str, str]) -> Json:
    """The causes and the metrics that were the same, by their names; the other sentences as they are."""
    causes: list[Json] = []
    unmoved: list[str] = []
    said: list[str] = []
    for text in sentences:
        if named := list(_causes(text, titles)):
            causes += named
        elif _SAME in text:
            unmoved += [titles.get(title, title) for title in _AND.split(text.partition(_SAME)[0])]
        else:
            said.append(text)
    return {"causes": causes, "unmoved": unmoved, "said": said}


def _causes(text: str, titles: Mapping[str, str]) -> Iterable[Json]:
    for metrics, changes, how in _CAUSED.findall(text):
        changed = [change_of(one) for one in _AND.split(changes)]
        if all(change["before"] for change in changed):
            kind = "together" if "together" in how else "alone" if how else "only"
            names = [titles.get(title, title) for title in _AND.split(metrics)] if metrics else []
            yield {"changes": changed, "how": kind, "metrics": names}


def _limit(text: str, pairs: bool) -> Json | None:
    share = _PERCENT.match(text.lstrip("±").removeprefix("below "))
    value = float(share[1]) / 100 if share else 0.0
    if text == "0":
        return {"bound": "equal"}
    if not share:
        return None
    both = "pairs" if pairs else "close"
    bound = both if text.startswith("±") else "below" if text.startswith("below") else "beyond"
    return {"bound": bound, "value": value}


def _trace(text: str) -> Json:
    match = _TRACE.fullmatch(text)
    return {"kind": "perfetto", "path": match[1]} if match else {"kind": "not written", "message": text}


def _message(text: str) -> Json:
    return {"because": "in words", "message": text}


def _status(text: str) -> str:
    return STATUSES.get(text, text)


def _sizes(*texts: str) -> list[int]:
    try:
        return [parse_bytes(text.replace(" ", "")) for text in texts]
    except UsageError:
        return []
