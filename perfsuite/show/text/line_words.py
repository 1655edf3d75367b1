"""The lines of a verdict as text: numbers, shares, limits, evidence. Only here are their words made."""

from collections.abc import Sequence

from perfsuite.records.reasons import StepDiffers
from perfsuite.records.suspects import part_name
from perfsuite.records.verdict import (
    Bound,
    Line,
    LineInterval,
    Move,
    Number,
)
from perfsuite.show.text.reasons import most_in, words_of
from perfsuite.system.units import (
    ERROR,
    FACTS,
    SECONDS,
    show,
    show_both,
    show_change,
    show_ratio,
    show_several,
)


def sides_text(line: Line) -> tuple[str, str]:
    """Both sides' numbers, ``3.66 MiB`` and ``4.02 MiB``, or the words that a side has instead."""
    nothing = "overflow" if isinstance(line.reason, StepDiffers) else "none"
    if isinstance(line.old, str) or isinstance(line.new, str):
        return _word(line.old, line.unit, nothing), _word(line.new, line.unit, nothing)
    return show_both(line.old, line.new, line.unit, nothing)


def _word(side: Number | str | None, unit: str, nothing: str) -> str:
    return side if isinstance(side, str) else nothing if side is None else show(side, unit)


def change_text(line: Line) -> str:
    """``+9.8 %``; empty if nothing was compared."""
    if not line.compared:
        return ""
    if line.ratio is not None:
        return show_change(1, line.ratio)
    if isinstance(line.old, int | float) and isinstance(line.new, int | float):
        return show_change(line.old, line.new)
    return ""


def line_text(line: Line) -> str:
    """``peak memory 3.66 MiB → 4.02 MiB (+9.8 %)``; without a share if there is none."""
    change = f" ({change_text(line)})" if line.change is not None else ""
    return f"{line.title} {' → '.join(sides_text(line))}{change}"


def limit_text(line: Line) -> str:
    """What is allowed: ``0``, ``±2 %``, ``+3.0 %``; empty without a limit."""
    if line.limit is None:
        return ""
    value = line.limit.value
    texts = {
        Bound.EQUAL: "0",
        Bound.BELOW: f"below {show_ratio(value)}",
        Bound.CLOSE: f"±{value * 100:g} %",
        Bound.UP_TO: f"up to {show(value, line.unit)}",
        Bound.BEYOND: ("-" if value < 0 else "+") + show_ratio(abs(value)),
        Bound.PAIRS: f"±{show_ratio(value)}",
    }
    return texts[line.limit.bound]


def detects_text(line: Line) -> str:
    """``detects +5.0 %``: the smallest slow-down that the line can show."""
    return "" if line.detects is None else f"detects +{show_ratio(line.detects)}"


def note_text(line: Line) -> str:
    """What explains the line: the interval of a trial, what stored times said, the reason, the evidence."""
    interval = interval_text(line.interval) if line.interval else ""
    found = [interval, stored_text(line), words_of(line.reason) if line.reason else ""]
    return "; ".join(filter(None, [*found, evidence_text(line)]))


def stored_text(line: Line) -> str:
    """``stored times: +38.0 %``, of a time that a trial decided: its change is that of the trial."""
    return "" if line.stored is None else f"stored times: {show_change(1, 1 + line.stored)}"


def tried_text(line: Line) -> str:
    """``+9.8 %``, or ``+9.8 % trial`` if pairs say so, which need not agree with the two numbers beside it."""
    return f"{change_text(line)} trial" if line.interval else change_text(line)


def interval_text(interval: LineInterval) -> str:
    """``-1.1 % to +0.3 %, 3 pairs``."""
    return f"{range_text(interval)}, {show_several(interval.pairs, 'pair')}"


def range_text(interval: LineInterval) -> str:
    """``-1.1 % to +0.3 %``."""
    return f"{show_change(1, interval.low)} to {show_change(1, interval.high)}"


def evidence_text(line: Line) -> str:
    """``activations +1.94 GiB: aten::softmax in transformer.h.0-11.attn``; or the phases of a step."""
    if line.phases:
        return ", ".join(_part(move, SECONDS) for move in line.phases)
    if line.unit == ERROR:
        return most_in({move.operator: move.by for move in line.moves}) if line.moves else ""
    return moves_text(line.moves, line.unit)


def moves_text(moves: Sequence[Move], unit: str) -> str:
    """``activations +1.94 GiB: aten::softmax in transformer.h.0-11.attn``."""
    parts: dict[str, list[Move]] = {}
    for move in moves:
        parts.setdefault(move.part, []).append(move)
    return "; ".join(_evidence(inside, unit) for inside in parts.values())


def _evidence(moves: Sequence[Move], unit: str) -> str:
    whole, *inside = moves
    if not inside:
        return _part(whole, unit)
    if len(inside) == 1:
        return f"{_part(whole, unit)}: {place_text(inside[0])}"
    return f"{_part(whole, unit)}: {', '.join(f'{place_text(one)} {signed(one.by, unit)}' for one in inside)}"


def fact_text(fact: str, by: Number) -> str:
    """``now wrappers DistributedDataParallel``, of what is active."""
    return f"{'now' if by > 0 else 'no longer'} {fact}"


def _part(move: Move, unit: str) -> str:
    if unit == FACTS:
        return fact_text(move.part, move.by)
    at = f" at {move.line}" if move.line else ""
    return f"{part_name(move.part)} {signed(move.by, unit)}{at}"


def place_text(move: Move) -> str:
    """``aten::softmax in transformer.h.0-11.attn``, ``aten::add at train.py:14 in step``. A phase names less than a
    line does.
    """
    is_phase = move.module.startswith("(") and move.line
    module = f" in {move.module}" if move.module and not is_phase else ""
    return f"{move.operator}{module}" + (f" at {move.line}" if move.line else "")


def signed(number: Number, unit: str) -> str:
    """``+1.94 GiB``."""
    return f"{'-' if number < 0 else '+'}{show(abs(number), unit)}"
