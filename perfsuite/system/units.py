"""Units: bytes, seconds and FLOP/s inside; this module is the only place that converts them for people."""

import math
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal

from perfsuite.errors import UsageError

_BYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_BYTES |= {"kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


_COUNTS = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}


def parse_count(text: str) -> int:
    """Return the whole number that e.g. ``4096``, ``300_000``, ``1.5e9`` or ``300B`` stands for: K, M, B and T are
    thousands, millions, billions and trillions, as in the sizes of models. Raises UsageError for others.
    """
    match = re.fullmatch(r"([0-9]+(?:_[0-9]+)*(?:\.[0-9]+)?(?:[eE]\+?[0-9]{1,2})?)([KMBTkmbt]?)", text.strip())
    count = Decimal(match[1]) * _COUNTS.get(match[2].upper(), 1) if match else Decimal(-1)
    if not 0 <= count < 2**63 or count % 1:
        raise UsageError(f"{text[:80]!r} is not a count: write a whole number, e.g. 4096, 300_000, 1e9 or 300B.")
    return int(count)


def fitting(number: int) -> str:
    """A clause with the widths that divide a number without a rest: ``1, 2, 4 fit``."""
    return f"{', '.join(str(width) for width in range(1, number + 1) if number % width == 0)} fit"


def _amount(text: str) -> tuple[float, str]:
    """The number and the unit of ``1.5 MiB`` or ``400Gbit/s``; 0 for a text that is neither."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z/]*)\s*", text)
    return (float(match[1]), match[2]) if match else (0.0, "")


def parse_bytes(text: str) -> int:
    """Return the bytes that e.g. ``24GiB``, ``1.5 MiB`` or ``16GB`` stands for.

    Raises UsageError if the text is not a positive amount of bytes. A bare number is refused, since 24 may mean GiB.
    """
    number, unit = _amount(text)
    amount = number * _BYTES.get(unit, 0)
    if not 1 <= amount < 2**63:
        units = ", ".join(_BYTES)
        raise UsageError(f"{text[:80]!r} is not an amount of memory: write a number and a unit of {units}, e.g. 24GiB.")
    return int(amount)


def parse_network(text: str) -> float:
    """Return the bytes per second that e.g. ``400Gbit/s`` or ``50GB/s`` stands for. Raises UsageError for others."""
    number, unit = _amount(text)
    rate = number * {"Gbit/s": 1e9 / 8, "Gbitps": 1e9 / 8, "GB/s": 1e9, "GBps": 1e9}.get(unit, 0.0)
    if not 0 < rate < math.inf:
        raise UsageError(f"{text[:80]!r} is not a network's rate: write e.g. 400Gbit/s or 50GB/s.")
    return rate


def parse_days(text: str) -> float:
    """Return the days that e.g. ``30d`` or ``12h`` stands for. Raises UsageError for others."""
    number, unit = _amount(text)
    days = number / {"d": 1, "h": 24}.get(unit, math.inf)
    if not 0 < days < math.inf:
        raise UsageError(f"{text[:80]!r} is not a time: write days or hours, e.g. 30d or 12h.")
    return days


def parse_duration(text: str) -> float:
    """Return the seconds that e.g. ``20min``, ``90s`` or ``1.5 h`` stands for. Raises UsageError for others.

    A bare number is refused, since 20 may mean minutes or seconds.
    """
    number, unit = _amount(text)
    seconds = number * {"s": 1.0, "min": 60.0, "h": 3600.0}.get(unit, 0.0)
    if not 0 < seconds < math.inf:
        raise UsageError(f"{text[:80]!r} is not a duration: write a number and a unit of s, min, h, e.g. 20min.")
    return seconds


def show_bytes(count: float) -> str:
    """``1610612736`` → ``1.50 GiB``; below one GiB in MiB, and so on down to bytes."""
    for unit in ("GiB", "MiB", "KiB"):
        if abs(count) >= _BYTES[unit]:
            return f"{count / _BYTES[unit]:.2f} {unit}"
    return f"{count:.0f} B"


def show_whole(count: float) -> str:
    """``12345`` → ``12,345``: for counts in which every digit matters."""
    return f"{count:,.0f}"


def show_seconds(seconds: float) -> str:
    """``0.412`` → ``412 ms``, ``8.19`` → ``8.19 s``: three significant digits, in ms below one second."""
    if abs(seconds) < 0.9995:  # what rounds to 1,000 ms is 1.00 s
        return f"{_digits(seconds * 1e3)} ms"
    return f"{seconds:.1f} s" if abs(seconds) >= 9.995 else f"{_digits(seconds)} s"


def show_time(seconds: float) -> str:
    """``4.3e-6`` → ``4.30 µs``: for a single call, which may take less than a millisecond."""
    for unit, size in (("ns", 1e-9), ("µs", 1e-6)):
        if 0 < abs(seconds) < 999.5 * size:
            return f"{_digits(seconds / size)} {unit}"
    return show_seconds(seconds)


def show_cost(seconds: float) -> str:
    """``6.259`` → ``6.3 s``: a cost, whose milliseconds do not matter."""
    return f"{seconds:,.1f} s"


def show_rough(seconds: float) -> str:
    """``40 s``, ``3 min``, ``2 h 10 min``: how long something takes, as a clock on a wall would tell."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def show_remaining(seconds: float) -> str:
    """``58 s``, ``1 min 52 s``, ``2 h 10 min``: what a countdown shows."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


DAY = 86400.0  # seconds
_DURATIONS = {"days": DAY, "h": 3600.0, "min": 60.0, "s": 1.0, "ms": 1e-3}


def show_duration(seconds: float, uncertainty_seconds: float | None) -> str:
    """``(8316.0, 108.0)`` → ``2.310 ± 0.030 h``: in the unit that suits the first, to two digits of the second."""
    unit = _unit_of(seconds)
    value = seconds / _DURATIONS[unit]
    if uncertainty_seconds is None:
        return f"{_digits(value)} ± ? {unit}"
    spread = uncertainty_seconds / _DURATIONS[unit]
    decimals = max(1, 1 - math.floor(math.log10(spread))) if spread > 0 else 2
    return f"{value:.{decimals}f} ± {spread:.{decimals}f} {unit}"


def show_durations(seconds: float, low: float, high: float) -> str:
    """``(18576.0, 16350.0, 24990.0)`` → ``5.16 (4.54–6.94) h``: in the unit that suits the first."""
    unit = _unit_of(seconds)
    middle, *ends = (show_count(one / _DURATIONS[unit]) for one in (seconds, low, high))
    return f"{middle} ({'–'.join(ends)}) {unit}"


def _unit_of(seconds: float) -> str:
    """The largest unit of which it is at least two."""
    return next((unit for unit, size in _DURATIONS.items() if seconds >= 2 * size), "ms")


def show_flops(flops_per_second: float) -> str:
    """``4.021e14`` → ``402 TFLOP/s``: three significant digits, below one TFLOP/s in GFLOP/s."""
    return f"{show_flop(flops_per_second)}/s"


def show_flop(flop: float) -> str:
    """``4.021e12`` → ``4.02 TFLOP``: three significant digits, below one TFLOP in GFLOP."""
    if abs(flop) < 0.9995e12:  # what rounds to 1,000 GFLOP is 1.00 TFLOP
        return f"{_digits(flop / 1e9)} GFLOP"
    return f"{_digits(flop / 1e12)} TFLOP"


def show_rate(bytes_per_second: float) -> str:
    """``2.5e9`` → ``2.50 GB/s``: three significant digits, decimal as links are, below one GB/s in MB/s."""
    if abs(bytes_per_second) < 0.9995e9:
        return f"{_digits(bytes_per_second / 1e6)} MB/s"
    return f"{_digits(bytes_per_second / 1e9)} GB/s"


def show_per_byte(seconds: float) -> str:
    """``1.25e-10`` → ``0.125 ns/B``."""
    return f"{seconds * 1e9:.3g} ns/B"


def show_ratio(ratio: float) -> str:
    """``0.437`` → ``43.7 %``; never ``-0.0 %``."""
    return f"{ratio * 100:z.1f} %"


def show_change(old: float, new: float) -> str:
    """``(20.0, 21.94)`` → ``+9.7 %``; a change too small for one decimal keeps its leading digit."""
    if old == 0:
        return "0 %" if new == 0 else "from 0"
    if old == new:
        return "+0.0 %"
    percent = (new - old) / abs(old) * 100
    if percent and abs(percent) < 0.05:
        return f"{percent:+.1g} %"
    return f"{percent:+.1f} %"


def show_count(count: float) -> str:
    """``12345.6`` → ``12,346``; small numbers keep three significant digits."""
    return f"{count:,.0f}" if abs(count) >= 1000 else _digits(count)


def show_number(number: float) -> str:
    """A plain number such as a loss, with six significant digits."""
    return f"{number:.6g}"


def listed(things: Iterable[object]) -> str:
    """``a, b and c``."""
    *most, last = map(str, things)
    return f"{', '.join(most)} and {last}" if most else last


def some(names: Sequence[str], most: int) -> str:
    """``a, b and 3 more``: at most so many of them by name."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def show_several(count: int, noun: str, plural: str = "") -> str:
    """``1 night``, ``10,000 nights``, ``2 launches`` with their plural."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def show_part(count: int, total: int, noun: str, singular: str = "", plural: str = "") -> str:
    """``1 of 2 cells``, ``0 of 1 cell``; with a verb ``0 of 1 cell has``, ``2 of 2 cells have``."""
    verb = singular if 1 in (count, total) else plural
    return f"{count:,} of {show_several(total, noun)}" + (f" {verb}" if verb else "")


def _digits(value: float) -> str:
    """Three significant digits without an exponent: ``412``, ``4.02``, ``0.0150``."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if 0.001 <= abs(value) < 999.5:
        return f"{value:#.3g}".rstrip(".")
    exponent = int(f"{value:.2e}".partition("e")[2])  # of the rounded value: 9.996 is 10.0
    return f"{value:.{max(0, 2 - exponent)}f}"


# Control characters but the line end and the tab: on a terminal they move the cursor, retitle the window or worse.
_CODES = (*range(0x20), *range(0x7F, 0xA0))
_STYLES = re.compile(r"\x1b\[[\d;]*m")
_CONTROLS = {code: f"\\x{code:02x}" for code in _CODES if chr(code) not in "\n\t"}


def printable(text: str) -> str:
    """Foreign text that a terminal shows and does not obey: ``\\x1b[2J`` instead of a cleared screen. Its colours and
    bold words, such as those of torch.load's errors, are left out.
    """
    return _STYLES.sub("", text).translate(_CONTROLS)


# Units of metrics, and how their numbers read. A unit that is not here is written after a plain number.
BYTES, SECONDS, WHOLE, COUNT, NUMBER = "bytes", "seconds", "whole", "count", "number"
FACTS = "facts"  # its parts are texts, of which each is there or not
RATIO, FLOP, FLOPS, RATE, PER_BYTE, ERROR = "ratio", "FLOP", "FLOP/s", "bytes/s", "s/byte", "error"
_ROUNDED = frozenset({SECONDS, RATIO, FLOPS, RATE, PER_BYTE, ERROR})
_SHOW = {
    BYTES: show_bytes,
    SECONDS: show_seconds,
    WHOLE: show_whole,
    COUNT: show_count,
    NUMBER: show_number,
    RATIO: show_ratio,
    FLOP: show_flop,
    FLOPS: show_flops,
    RATE: show_rate,
    PER_BYTE: show_per_byte,
    ERROR: "{:.2g}".format,
}


def show(number: float, unit: str) -> str:
    """The number of a metric in its unit: ``3.66 MiB``, ``36.6 ms``, ``412 W``."""
    known = _SHOW.get(unit)
    return known(number) if known else f"{show_number(number)} {unit}".rstrip()


def _exact(number: float) -> float:
    return int(number) if float(number).is_integer() else number


def show_both(old: float | None, new: float | None, unit: str, nothing: str = "none") -> tuple[str, str]:
    """Two numbers beside each other. If they differ but read alike, all digits are shown; of a time or a rate they mean
    nothing.
    """
    before, after = (nothing if number is None else show(number, unit) for number in (old, new))
    if before == after and old != new and unit not in _ROUNDED:
        shown = {BYTES: " B", FLOP: " FLOP"}.get(unit, "" if unit in _SHOW else f" {unit}".rstrip())
        before, after = (nothing if number is None else f"{_exact(number):,}{shown}" for number in (old, new))
    return before, after
