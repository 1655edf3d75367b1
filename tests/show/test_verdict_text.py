"""What people read: a verdict's text and a run's table. Every printed number reads back as it was measured."""

import re
from typing import Any

import msgspec
import pytest
from gate_samples import (
    CELL,
    ELSEWHERE,
    GIB,
    KILLED,
    METRICS,
    VERSIONS,
    baseline,
    measurement,
    memory,
    times,
)
from hypothesis import given
from hypothesis import strategies as st

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.judge import judge
from perfsuite.records.change import Cause, Change, How, TrialReport
from perfsuite.records.failure import Failure
from perfsuite.records.measurement import Measurement
from perfsuite.records.result import Result
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import Bound, Consent, Limit, Line, LineInterval, Move, Status, Verdict
from perfsuite.show.text.run_summary import asides, line, render_summary, rows, status
from perfsuite.show.text.verdict_text import last_lines, render
from perfsuite.system.units import BYTES, SECONDS, parse_bytes

BASELINE = baseline()

STYLE = """\
t5_base-zero3+bf16-h200_x1: peak memory +9.7 % (20.00 GiB → 21.94 GiB); 1 of 3 metrics regressed
  peak memory    20.00 GiB -> 21.94 GiB   +9.7 %   allowed +0.1 %   REGRESSED   \
(activations +1.94 GiB: T5Attention.softmax)
  step time         412 ms ->    408 ms   -1.0 %   allowed +3.0 %   ok
  TFLOP/s/rank       402.1 ->     406.1   +1.0 %   allowed -3.0 %   ok
changed since the baseline: transformers 5.22.0 -> 5.23.0
accept:  pytest --perf -k t5_base-zero3+bf16-h200_x1 --perf-update=regressed --perf-reason="…"\
"""
GREW = 2_083_059_139  # bytes: 1.94 GiB


def style_line(title: str, unit: str, old: float, new: float, allowed: float, status=Status.OK, **more) -> Line:
    limit = Limit(bound=Bound.BEYOND, value=allowed)
    sides: dict[str, Any] = {"old": old, "new": new, "compared": True, "limit": limit}
    return Line(metric=title, title=title, unit=unit, status=status, **sides, **more)


STYLE_VERDICT = Verdict(
    cell="t5_base-zero3+bf16-h200_x1",
    status=Status.REGRESSED,
    lines=[
        style_line(
            "peak memory",
            BYTES,
            20 * GIB,
            20 * GIB + GREW,
            0.001,
            Status.REGRESSED,
            moves=[
                Move(part="activations", by=GREW),
                Move(part="activations", operator="T5Attention.softmax", by=GREW),
            ],
        ),
        style_line("step time", SECONDS, 0.412, 0.408, 0.03),
        style_line("TFLOP/s/rank", "", 402.1, 406.1, -0.03),
    ],
    changed=[Change("transformers", "5.22.0", "5.23.0")],
    accept=Consent.REGRESSED,
    collect="pytest --perf",
)


def result(new: Measurement, old=BASELINE, updated: str = "") -> Result:
    verdict = judge(new, old, METRICS, strategy="zero3")
    return Result(measurement=new, baseline=old, verdict=verdict, updated=updated)


def text_of(new: Measurement, old=BASELINE) -> str:
    return render(result(new, old).verdict, new.failure)


def test_the_layout_is_that_of_the_style_guide():
    """Sentence, table, suspects, command: to the letter."""
    assert render(STYLE_VERDICT) == STYLE


def test_a_regression_reads_as_a_whole():
    """A judged regression with its suspect and its command, on one screen."""
    versions = VERSIONS | {"transformers": "5.23.0"}
    new = measurement(peak_memory_bytes=memory(22 * GIB, activations=10 * GIB), step_time_seconds=times(0.4, 0.4))

    assert text_of(msgspec.structs.replace(new, versions=versions)) == (
        "t5_tiny-zero3-cpu_x2: peak memory +10.0 % (20.00 GiB → 22.00 GiB); 1 of 4 metrics regressed, 1 open\n"
        "  peak memory   20.00 GiB -> 22.00 GiB   +10.0 %   allowed 0         REGRESSED   (activations +2.00 GiB)\n"
        "  step time        410 ms ->    400 ms    -2.4 %   allowed +3.0 %    open        "
        "(the one run of the baseline cannot rule out 3.0 %)\n"
        "  tokens/step         192 ->       192    +0.0 %   allowed 0         ok\n"
        "  loss                  5 ->         5    +0.0 %   allowed ±0.01 %   ok\n"
        "changed since the baseline: transformers 5.22.0 -> 5.23.0\n"
        'accept:  pytest --perf -k t5_tiny-zero3-cpu_x2 --perf-update=regressed --perf-reason="…"'
    )


def test_a_failure_ends_with_the_rank_s_last_lines():
    """Whose lines they are is said."""
    assert text_of(measurement("failed")) == (
        "t5_tiny-zero3-cpu_x2: failed: Rank 1 was killed by SIGKILL.\nthe last lines of rank 1:\n  | step 3\n  | step 4"
    )


def test_the_server_s_last_lines_are_not_a_rank_s():
    """A failure without a rank is the rank server's, or that of a script's command."""
    failure = Failure(kind="raised", rank=None, message="The rank server failed.", tail="ImportError")
    command = msgspec.structs.replace(failure, of_command=True)

    assert render(STYLE_VERDICT, failure).endswith("the last lines of the rank server:\n  | ImportError")
    assert render(STYLE_VERDICT, command).endswith("the last lines of the command:\n  | ImportError")


def test_a_failure_without_output_has_no_tail():
    """Nothing is announced that does not come."""
    assert render(STYLE_VERDICT, msgspec.structs.replace(KILLED, tail="")) == STYLE


def test_an_oom_reads_as_a_change_of_the_outcome():
    """fits -> oom, the missing bytes, and the command that accepts it."""
    assert text_of(measurement("oom")) == (
        "t5_tiny-zero3-cpu_x2: fits -> oom, at least 2.00 GiB missing: Rank 1: 2.00 GiB do not fit.\n"
        "  outcome   fits -> oom   REGRESSED\n"
        'accept:  pytest --perf -k t5_tiny-zero3-cpu_x2 --perf-update=regressed --perf-reason="…"'
    )


def test_a_metric_without_a_limit_is_left_out():
    """Only what is held is in the text."""
    assert "tokens/s " not in text_of(measurement())


def test_a_missing_metric_reads_as_none():
    """The side that lacks the number says none, not zero."""
    assert re.search(r"loss +5 -> +none +MISSING +\(not measured\)", text_of(measurement(loss=None)))


@pytest.mark.parametrize(("changes", "shout"), [({}, False), ({"peak_memory_bytes": memory(19 * GIB)}, True)])
def test_a_faster_step_alone_is_not_shouted(changes, shout):
    """Capitals are for what makes the cell red."""
    faster = measurement(step_time_seconds=times(0.2, 0.2), **changes)
    said = text_of(msgspec.structs.replace(faster, versions=VERSIONS | {"transformers": "5.23.0"}))

    assert "improved" in said.lower()
    assert ("IMPROVED" in said) == shout


@given(st.integers(2**20, 2**45), st.integers(2**20, 2**45))
def test_printed_memory_reads_back(old, new):
    """Both values, the change and the part's growth, read from the text, are what was measured, within their digits."""
    said = text_of(measurement(peak_memory_bytes=memory(new)), baseline(peak_memory_bytes=memory(old)))
    row = next(row for row in said.splitlines() if row.startswith("  peak memory"))
    size = r"([\d.,]+ \w*B)"
    match = re.search(rf"peak memory +{size} -> +{size} +([+-][\d.e+-]+) % ", row)
    assert match, row
    before, after = (parse_bytes(text.replace(",", "")) for text in match.groups()[:2])

    assert before == pytest.approx(old, rel=0.006)
    assert after == pytest.approx(new, rel=0.006)
    assert float(match[3]) == pytest.approx((new - old) / old * 100, abs=0.051)
    if new != old:
        (grown,) = re.findall(r"\(parameters ([+-])([\d.,]+ \w*B)\)", row)
        amount = parse_bytes(grown[1].replace(",", ""))
        assert amount == pytest.approx(abs(new - old), rel=0.006)
        assert (grown[0] == "+") == (new > old)


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_printed_times_read_back(old, new):
    """Both medians and their change, read from the text."""
    said = text_of(measurement(step_time_seconds=times(new)), baseline(step_time_seconds=times(old, old, old)))
    match = re.search(r"step time +([\d.]+) (m?s) -> +([\d.]+) (m?s) +([+-][\d.e+-]+) % +allowed \+35.2 %", said)
    assert match, said
    before, after = (float(match[i]) / (1000 if match[i + 1] == "ms" else 1) for i in (1, 3))

    assert before == pytest.approx(old, rel=0.006)
    assert after == pytest.approx(new, rel=0.006)
    assert float(match[5]) == pytest.approx((new - old) / old * 100, abs=0.051, rel=1e-6)


def test_every_row_of_the_table_is_a_cell():
    """Cell, status, and each column with its change since the baseline."""
    new = measurement(peak_memory_bytes=memory(22 * GIB), step_time_seconds=times(0.82, 0.82))

    assert rows([result(new)], METRICS) == [
        ["cell", "status", "peak memory", "step time", "tokens/s"],
        [CELL, "regressed", "22.00 GiB (+10.0 %)", "820 ms (+100.0 %)", "468 (=)"],
    ]


def test_times_of_another_machine_have_no_change():
    """Only what is deterministic is compared across machines."""
    _, row = rows([result(measurement(machine=ELSEWHERE))], METRICS)

    assert row == [CELL, "ok", "20.00 GiB (=)", "410 ms", "468"]


@pytest.mark.parametrize("of_step", [{"compared": False}, {"interval": LineInterval(low=1.0, high=1.02, pairs=3)}])
def test_what_follows_from_times_has_no_change_without_them(of_step):
    """Nor next to that of a trial, which compares other steps."""
    whole = result(measurement())
    lines = [
        msgspec.structs.replace(line, **of_step if line.metric == "step_time_seconds" else {})
        for line in whole.verdict.lines
    ]
    verdict = msgspec.structs.replace(whole.verdict, lines=lines)

    assert rows([msgspec.structs.replace(whole, verdict=verdict)], METRICS)[1][4] == "468"
    assert rows([whole], METRICS)[1][4] == "468 (=)"


def test_a_cell_without_a_measurement_has_no_column_of_any_metric():
    """It has a table of its own, with the reason instead of numbers; so its process does not matter."""
    text = render_summary([result(measurement("failed")), result(measurement())], METRICS, 100)
    measured, failed = text.split("\n\n")

    assert CELL in measured and "failed" not in measured
    assert failed == f"cell                  status  why\n{CELL}  failed  Rank 1 was killed by SIGKILL."


def test_cells_of_two_processes_have_two_tables():
    """No row has a column that its process cannot have."""
    columns = {"step_time_seconds": ("training",), "latency_seconds": ("communication",)}
    metrics = [
        Metric(name=name, title=name, unit=SECONDS, column=1, processes=known) for name, known in columns.items()
    ]
    cells = [msgspec.structs.replace(measurement(), readings={name: Reading(value=0.5)}) for name in columns]
    heads = [
        text.splitlines()[0].split() for text in render_summary(list(map(result, cells)), metrics, 100).split("\n\n")
    ]

    assert heads == [["cell", "status", name] for name in columns]


def test_a_new_cell_has_no_change():
    """Without a baseline there is nothing to compare with."""
    _, row = rows([result(measurement(), None)], METRICS)

    assert row == [CELL, "missing", "20.00 GiB", "410 ms", "468"]


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (result(measurement()), "ok"),
        (result(measurement("failed")), "failed"),
        (result(measurement("unsupported"), None), "unsupported"),
        (result(measurement("oom"), baseline("oom")), "oom, ok"),
        (result(measurement(), baseline("oom"), updated="baselines/x.json"), "improved, accepted"),
    ],
)
def test_the_status_names_an_outcome_that_is_not_the_usual_one(one, text):
    """An outcome is named next to the verdict unless it is the usual one."""
    assert status(one) == text


def test_one_line_says_it_all():
    """The line of a cell holds every column's title and value."""
    assert line(result(measurement()), METRICS) == (
        f"{CELL}  ok  peak memory 20.00 GiB (=)  step time 410 ms (=)  tokens/s 468 (=)"
    )


def test_the_line_of_a_failure_is_its_reason():
    """One line, whatever the exception's text contains."""
    failure = Failure(kind="raised", rank=0, message="Rank 0: ValueError:\n  no")
    broken = msgspec.structs.replace(measurement("failed"), failure=failure)

    assert line(result(broken), METRICS) == f"{CELL}  failed  Rank 0: ValueError: no"


RESULTS = [
    result(measurement()),
    result(measurement(peak_memory_bytes=memory(22 * GIB), step_time_seconds=times(0.9, 0.9))),
    result(measurement("oom")),
]
NUMBERS = ("20.00 GiB", "22.00 GiB", "410 ms", "900 ms", "468", "(=)", "(+10.0 %)", "(+119.5 %)")


def test_a_table_that_fits_has_one_line_per_cell():
    """With every column in a log or on a wide terminal, and without a blank at a line's end."""
    assert render_summary(RESULTS, METRICS, 200) == (
        "cell                  status             peak memory          step time  tokens/s  detects slow-down\n"
        "t5_tiny-zero3-cpu_x2  ok               20.00 GiB (=)         410 ms (=)   468 (=)            +82.8 %\n"
        "t5_tiny-zero3-cpu_x2  regressed  22.00 GiB (+10.0 %)  900 ms (+119.5 %)   468 (=)                  –\n"
        "\n"
        "cell                  status          why\n"
        "t5_tiny-zero3-cpu_x2  oom, regressed  fits -> oom, at least 2.00 GiB missing: Rank 1: 2.00 GiB do …"
    )


def test_what_follows_from_other_columns_is_left_out_first():
    """And named, so that nobody looks for it in vain."""
    assert render_summary(RESULTS[:1], METRICS, 78) == (
        "cell                  status    peak memory   step time  detects slow-down\n"
        "t5_tiny-zero3-cpu_x2  ok      20.00 GiB (=)  410 ms (=)            +82.8 %\n"
        "\n"
        "not shown in 78 columns, but in the report (--perf-report): tokens/s"
    )


def test_a_narrow_table_has_two_lines_per_cell():
    """The id with the status, and the numbers."""
    assert render_summary(RESULTS[1:2], METRICS, 60) == (
        "          peak memory          step time  tokens/s\n"
        "t5_tiny-zero3-cpu_x2  regressed\n"
        "  22.00 GiB (+10.0 %)  900 ms (+119.5 %)   468 (=)"
    )


MODELS = ("gpt2_tiny", "llama_tiny_l4", "bloom_tiny_cls")
STRATEGIES = ("zero3+bf16", "pp_interleaved+acc4", "ddp+hf_trainer+quickstart", "wire")


@pytest.mark.parametrize("width", [80, 100, 200])
def test_sixty_cells_fit(width):
    """Neither a long id, nor a long reason, nor a wide terminal makes a line of more than 100 columns."""
    ids = [f"{model}-{strategy}-h100_x{n}" for model in MODELS for strategy in STRATEGIES for n in range(1, 6)]
    cells = [
        msgspec.structs.replace(one, measurement=msgspec.structs.replace(one.measurement, cell=cell))
        for one, cell in zip(RESULTS * 20, ids, strict=True)
    ]
    lines = render_summary(cells, METRICS, width).splitlines()

    assert max(map(len, lines)) <= min(width, 100)
    assert [cell for cell in ids if sum(cell in text.split() for text in lines) != 1] == []
    assert max(len(line(one, METRICS, width)) for one in cells) <= width


def test_a_terminal_gets_colors():
    """Of each status, and of nothing else: without the codes it is the same text."""
    text = render_summary(RESULTS, METRICS, 100, color=True)

    assert "\x1b[32mok\x1b[0m" in text and "\x1b[31mregressed\x1b[0m" in text
    assert re.sub(r"\x1b\[\d+m", "", text) == render_summary(RESULTS, METRICS, 100)


@pytest.mark.parametrize("width", range(10, 100, 4))
def test_no_number_is_broken_at_any_width(width):
    """Every value and every change stands whole on a line, and only the longest of them may exceed the width."""
    lines = render_summary(RESULTS, METRICS, width).splitlines()

    shown = [number for number in NUMBERS if number != "468" or "not shown" not in " ".join(lines)]

    assert all(any(number in printed for printed in lines) for number in shown)
    assert "…" not in "".join(lines[: lines.index("")])
    assert max(map(len, lines)) <= max(width, len("    22.00 GiB (+10.0 %)"), len("(--perf-report):"))


@pytest.mark.parametrize("width", [20, 60, 120])
def test_a_table_at_any_width_names_every_cell(width):
    """An id breaks after its dashes only, so that its parts stay together."""
    words = render_summary(RESULTS, METRICS, width).replace("-\n", "-").split()

    assert "".join(words).count("t5_tiny-") == 3
    assert all(part in " ".join(words) for part in ("t5_tiny-", "zero3-", "cpu_x2"))


def test_an_id_is_not_read_as_markup(monkeypatch):
    """Square brackets and an environment that forces colors change no character."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "20")
    odd = msgspec.structs.replace(measurement(), cell="[red]x[/red]-zero3-cpu_x2")
    text = render_summary([Result(measurement=odd, baseline=None, verdict=STYLE_VERDICT)], METRICS, 120)

    assert "[red]x[/red]-zero3-cpu_x2" in text
    assert "\x1b" not in text


def test_the_reason_why_times_are_not_compared_is_said_once():
    """Two cells of another machine, one sentence; and each cell that is open is counted."""
    strangers = [result(measurement(machine=ELSEWHERE))] * 2
    slow = result(measurement(step_time_seconds=times(4.0, 4.0)))

    assert asides([*strangers, slow]) == [
        "times are not compared in 2 cells: no times from this machine: recorded on another machine (Xeon, 2 cores, "
        "0123456789ab)",
        "open: 1 cell slower than in the baseline's runs, although no change was seen: a quieter machine may not be",
        f"to decide: pytest --perf -k {CELL} --perf-against=abc; to let such cells fail: -o perf_open=fail",
    ]


def test_a_not_held_reason_stands_once_below_the_table():
    """And no percentage is next to another machine's time."""
    said = text_of(measurement(machine=ELSEWHERE, peak_memory_bytes=memory(22 * GIB)))
    row = next(line for line in said.splitlines() if line.startswith("  step time"))

    assert "%" not in row and row.endswith("not compared")
    assert said.count("no times from this machine") == 1


def test_what_a_trial_says_stands_below_what_changed():
    """Line by line, before the command that accepts."""
    trial = TrialReport(
        against=STYLE_VERDICT.changed,
        pairs=4,
        seconds=62.3,
        causes=[Cause(changes=STYLE_VERDICT.changed, how=How.ONLY)],
    )
    tried = msgspec.structs.replace(STYLE_VERDICT, trial=trial)

    assert (
        "changed since the baseline: transformers 5.22.0 -> 5.23.0\n"
        "trial: against transformers 5.22.0: 4 pairs of launches, 62 s\n"
        "trial: caused by transformers 5.22.0 -> 5.23.0\n"
        "accept:"
    ) in render(tried)


def test_an_incomparable_cell_without_a_reason_is_counted():
    """Its times are incomparable, since the other side could not run: the trial says why."""
    lines = [msgspec.structs.replace(line, status=Status.INCOMPARABLE) for line in STYLE_VERDICT.lines[:1]]
    verdict = msgspec.structs.replace(STYLE_VERDICT, status=Status.INCOMPARABLE, lines=lines, reason=None)

    assert render(verdict).splitlines()[0] == f"{verdict.cell}: 1 of 1 metric incomparable"


def test_the_last_lines_of_a_comparison_say_whose_they_are():
    """Both sides may have some."""
    failure = Failure(kind="raised", rank=None, message="It ended.", tail="ImportError")

    assert [last_lines(failure, side)[0] for side in ("A", "B", "")] == [
        "the last lines of the rank server of A:",
        "the last lines of the rank server of B:",
        "the last lines of the rank server:",
    ]
