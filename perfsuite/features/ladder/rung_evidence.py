"""The evidence for a ladder's numbers: a file per rung, written by suites, and read to explain a change.

``FOLDER/<commit>.json`` is {benchmark: {parameters: value}}, with the parameters as asv writes them, joined by ", ". A
value is one or several texts, an object of numbers, or a reading of perfsuite with its metric's name: the changes of
its parts and operators explain it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from perfsuite.catalog.registry import Catalog
from perfsuite.compare.explain import explain
from perfsuite.errors import FileError
from perfsuite.records.codec import write_bytes
from perfsuite.records.sample import Reading
from perfsuite.show.text.line_words import moves_text
from perfsuite.system.changing import changing

Evidence = dict[str, dict[str, Any]]
NAMED = 4  # entries of an object of numbers: those that moved most


def add(folder: Path, commit: str, evidence: Mapping[str, Mapping[str, Any]]) -> None:
    """Add a benchmark's evidence to the rung's file; its earlier evidence is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    path = _path(folder, commit)
    with changing(path):
        known = read(folder, commit)
        for benchmark, values in evidence.items():
            known[benchmark] = known.get(benchmark, {}) | dict(values)
        write_bytes(path, msgspec.json.format(msgspec.json.encode(known), indent=1) + b"\n")


def read(folder: Path, commit: str) -> Evidence:
    """All evidence of a rung; empty if there is none. Raises FileError for an incomplete file."""
    path = _path(folder, commit)
    if not path.exists():
        return {}
    try:
        evidence = msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, Any]])
    except msgspec.DecodeError as error:
        raise FileError(f"{path} is not evidence: {error}.") from error
    return evidence.get("texts", evidence)


def behind(metric: str, reading: Reading, part: str = "") -> dict[str, Any]:
    """A reading as evidence, or one part of it."""
    parts, suspects = reading.parts, reading.suspects
    if part:
        parts = {part: parts.get(part, 0)}
        suspects = {name: size for name, size in suspects.items() if name.startswith(f"{part}: ")}
    value = parts[part] if part else reading.value
    return {"metric": metric, "value": value, "parts": parts, "suspects": suspects}


def why(folder: Path, old: str, new: str, benchmark: str, params: str) -> str:
    """The rungs' evidence for a change from one commit to another, in words; empty if there is none."""
    before, after = (read(folder, commit).get(benchmark, {}).get(params) for commit in (old, new))
    return describe(before, after)


def describe(old: Any, new: Any) -> str:
    """A change in words: ``activations +1.94 GiB: aten.mul.Tensor in transformer.h.0-11.attn``."""
    if isinstance(new, Mapping) and isinstance(old, Mapping):
        if "metric" in new and "metric" in old:
            return _explained(old, new)
        return _moved(old, new)
    if isinstance(new, list):
        return "; ".join(map(str, new))
    return new if isinstance(new, str) else ""


def _explained(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    metrics = {metric.name: metric for metric in Catalog().all("metric").values()}
    readings = [
        Reading(value=side["value"], parts=side.get("parts", {}), suspects=side.get("suspects", {}))
        for side in (new, old)
    ]
    if any(sum(reading.parts.values()) != reading.value for reading in readings):
        return ""  # an old rung without parts: all parts of the other would seem to be new or gone
    metric = metrics[new["metric"]]
    return moves_text(explain(metric, *readings), metric.unit)


def _moved(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    moves = {name: new.get(name, 0) - old.get(name, 0) for name in sorted(old.keys() | new.keys())}
    largest = sorted((name for name in moves if moves[name]), key=lambda name: -abs(moves[name]))
    return ", ".join(f"{name} {_show(old.get(name, 0))} -> {_show(new.get(name, 0))}" for name in largest[:NAMED])


def _show(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:.4g}"


def _path(folder: Path, commit: str) -> Path:
    return folder / f"{commit}.json"
