"""Units: what is written is what is meant, and what is printed is read back here."""

import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perfsuite.errors import UsageError
from perfsuite.system import units

GIB = 2**30


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("24GiB", 24 * GIB),
        ("1.5 MiB", 1_572_864),
        ("16GB", 16_000_000_000),
        ("4096B", 4096),
        ("1B", 1),
        ("2kB", 2000),
        ("2KB", 2000),
        ("2KiB", 2048),
        (" 3 TB ", 3 * 10**12),
        ("1TiB", 2**40),
        ("0.25GiB", GIB // 4),
    ],
)
def test_parse_bytes(text: str, count: int) -> None:
    """Binary units are powers of 1024, decimal ones of 1000."""
    assert units.parse_bytes(text) == count


@pytest.mark.parametrize(
    "text",
    ["", "GiB", "24", "24 G", "24gib", "-1GiB", "0", "0GiB", "0.0MB", "1e9", "1.GiB", ".5GiB", "nan", "1 2GiB", "0.5B"],
)
def test_parse_bytes_refuses(text: str) -> None:
    """What is not a positive amount of whole bytes is refused, with the units that there are."""
    with pytest.raises(UsageError, match=r"is not an amount of memory.*GiB, TiB.*e\.g\. 24GiB"):
        units.parse_bytes(text)


@given(st.text() | st.from_regex(r"\s*\d+(\.\d+)?\s*([kKMGT]i?)?B?\s*", fullmatch=True))
@example("9" * 400 + "GiB")
def test_parse_bytes_any_text(text: str) -> None:
    """Whatever is typed is a positive number of bytes or a UsageError."""
    try:
        count = units.parse_bytes(text)
    except UsageError:
        return

    assert isinstance(count, int)
    assert count > 0


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("4096", 4096),
        ("300_000", 300_000),
        ("1e9", 10**9),
        ("1.5E+3", 1500),
        ("2.0", 2),
        (" 7 ", 7),
        ("300B", 300 * 10**9),
        ("1.5k", 1500),
    ],
)
def test_parse_count(text: str, count: int) -> None:
    """A power of ten is a whole number too."""
    found = units.parse_count(text)

    assert (found, type(found)) == (count, int)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "1GB",
        "B",
        "-1",
        "1.5",
        "15e-1",
        "1e",
        "1,000",
        "1__0",
        "_1",
        "1 0",
        "0x10",
        "nan",
        "inf",
        "9.3e18",
        "1e99",
    ],
)
def test_parse_count_refuses(text: str) -> None:
    """What is not whole, or larger than any count, is refused with examples that are accepted."""
    with pytest.raises(UsageError, match=r"is not a count: .*e\.g\. 4096, 300_000, 1e9 or 300B\.") as refused:
        units.parse_count(text)

    assert [units.parse_count(one) for one in re.findall(r"\d\w+", str(refused.value).partition("e.g.")[2])]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        ((18576.0, 16350.0, 24990.0), "5.16 (4.54–6.94) h"),
        ((7199.0, 3600.0, 7200.0), "120 (60.0–120) min"),
        ((2e8, 1e8, 4e8), "2,315 (1,157–4,630) days"),
        ((0.5, 0.25, 1.0), "500 (250–1,000) ms"),
    ],
)
def test_an_interval_has_one_unit(seconds: tuple[float, float, float], text: str) -> None:
    """That of the middle."""
    assert units.show_durations(*seconds) == text


@given(st.integers(1, 2**50))
def test_shown_bytes_read_back(count: int) -> None:
    """What show_bytes prints, parse_bytes reads, to half of the last digit."""
    shown = units.show_bytes(count)
    unit = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[shown.split()[1]]

    if count:
        assert abs(units.parse_bytes(shown) - count) <= 0.005 * unit + 1


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (units.show_bytes, 1_610_612_736, "1.50 GiB"),
        (units.show_bytes, GIB, "1.00 GiB"),
        (units.show_bytes, 20.5 * 2**20, "20.50 MiB"),
        (units.show_bytes, 512, "512 B"),
        (units.show_bytes, 0, "0 B"),
        (units.show_bytes, 2**40, "1024.00 GiB"),
        (units.show_bytes, -1.94 * GIB, "-1.94 GiB"),
        (units.show_seconds, 0.412, "412 ms"),
        (units.show_seconds, 0.00412, "4.12 ms"),
        (units.show_seconds, 0.0000150, "0.0150 ms"),
        (units.show_seconds, 0.9996, "1.00 s"),
        (units.show_seconds, 1.5, "1.50 s"),
        (units.show_seconds, 9.996, "10.0 s"),
        (units.show_seconds, 10, "10.0 s"),
        (units.show_seconds, 0, "0 ms"),
        (units.show_time, 4.3e-6, "4.30 µs"),
        (units.show_time, 2.5e-8, "25.0 ns"),
        (units.show_time, 9.996e-4, "1.00 ms"),
        (units.show_time, 0, "0 ms"),
        (units.show_cost, 6.259, "6.3 s"),
        (units.show_cost, 1234.5, "1,234.5 s"),
        (units.show_flops, 4.021e14, "402 TFLOP/s"),
        (units.show_flops, 1.5e10, "15.0 GFLOP/s"),
        (units.show_flop, 4.021e12, "4.02 TFLOP"),
        (units.show_ratio, 0.437, "43.7 %"),
        (units.show_ratio, 1, "100.0 %"),
        (units.show_ratio, -0.0004, "0.0 %"),
        (units.show_ratio, -0.03, "-3.0 %"),
        (units.show_count, 12345.6, "12,346"),
        (units.show_count, 12.345, "12.3"),
        (units.show_count, 0, "0"),
        (units.show_number, 6.2383246, "6.23832"),
        (units.show_number, math.nan, "nan"),
        (units.show_flops, math.inf, "inf TFLOP/s"),
    ],
)
def test_show(function: Callable[[float], str], value: float, text: str) -> None:
    """Each unit is printed as a person writes it."""
    assert function(value) == text


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (20.0, 21.94, "+9.7 %"),
        (412, 408, "-1.0 %"),
        (-2.0, -1.0, "+50.0 %"),
        (5, 5, "+0.0 %"),
        (1_000_000, 1_000_001, "+0.0001 %"),
        (1_000_000, 999_999, "-0.0001 %"),
        (0, 0, "0 %"),
        (0, 3, "from 0"),
    ],
)
def test_show_change(old: float, new: float, text: str) -> None:
    """A change has its sign, and the smallest one still shows that it is one."""
    assert units.show_change(old, new) == text


def test_percentages_are_written_in_one_way() -> None:
    """With a blank before the sign, by this module: no format of Python's own, which has none."""
    files = Path(units.__file__).parent.rglob("*.py")

    assert [file.name for file in files if re.search(r":[-+.\d]*%\}", file.read_text())] == []


@given(st.floats(1e-6, 9.99e2))
@example(9.996)
@example(99.96)
@example(0.09996)
def test_three_significant_digits(value: float) -> None:
    """show_flop keeps three significant digits, also where rounding carries into a further one."""
    shown, unit = units.show_flop(value * 1e12).split(" ")

    assert float(shown) * {"TFLOP": 1, "GFLOP": 1e-3}[unit] == pytest.approx(value, rel=0.0051)
    assert len(re.sub(r"^0\.0*|\.", "", shown)) == 3


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0 s"), (0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (112, "1 min 52 s"), (7800, "2 h 10 min")],
)
def test_a_countdown(seconds, text):
    """To the second below an hour."""
    assert units.show_remaining(seconds) == text


@pytest.mark.parametrize(
    ("old", "new", "unit", "shown"),
    [
        (21474836480, 21474836481, units.BYTES, ("21,474,836,480 B", "21,474,836,481 B")),
        (21474836480.0, 21474836481.5, units.BYTES, ("21,474,836,480 B", "21,474,836,481.5 B")),
        (258000000001, 258000000002, units.FLOP, ("258,000,000,001 FLOP", "258,000,000,002 FLOP")),
        (6.2725101, 6.2725102, units.NUMBER, ("6.2725101", "6.2725102")),
        (412.00001, 412.00002, "W", ("412.00001 W", "412.00002 W")),
        (0.12497860451275225, 0.12534960333988965, units.SECONDS, ("125 ms", "125 ms")),
        (0.43701, 0.43702, units.RATIO, ("43.7 %", "43.7 %")),
        (None, 1, units.BYTES, ("none", "1 B")),
    ],
)
def test_numbers_that_read_alike_have_all_digits(old, new, unit, shown):
    """With their unit; but 17 digits of a time mean nothing."""
    assert units.show_both(old, new, unit) == shown


def test_counts_are_grammatical():
    """One of anything is no plural, and the verb follows the number."""
    assert [units.show_several(number, "launch", "launches") for number in (0, 1, 2)] == [
        "0 launches",
        "1 launch",
        "2 launches",
    ]
    assert units.show_part(1, 2, "cell", "is", "are") == "1 of 2 cells is"
    assert units.show_part(0, 1, "cell", "is", "are") == "0 of 1 cell is"
    assert units.show_part(1, 1, "cell") == "1 of 1 cell"
