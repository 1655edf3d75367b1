"""Pages for a browser: what they say of a run, charts, and text of a stranger that stays text."""

import dataclasses
import html
import re
import subprocess
import sys
from pathlib import Path
from typing import cast

import msgspec
import pytest
from gate_samples import GIB, KILLED, METRICS, OOM, VERSIONS, baseline, measurement, memory, times
from red_night import GROWTH, NOISY, red_night
from rich.table import Table as TextTable
from test_markdown import HOSTILE, result
from whole_reports import write_report

from perfsuite.catalog.registry import Catalog
from perfsuite.cli.main import main
from perfsuite.plugin.report_files import Reports
from perfsuite.rank.memory.anatomy import Mark, whole_steps
from perfsuite.records import codec, report_lines
from perfsuite.records.change import Cause, Change, Fixed, How, Problem, TrialReport
from perfsuite.records.curves import pack, unpack
from perfsuite.records.reasons import InWords, NotAllTried, OtherRelease, Slower, Undecided
from perfsuite.records.result import CellResult, Result
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import (
    Consent,
    EvidenceTrace,
    LineInterval,
    Move,
    Status,
    TraceKind,
    Verdict,
)
from perfsuite.records.verdict import Line as Judged
from perfsuite.show.html import memory_chart
from perfsuite.show.html.axes import BYTES, SECONDS, Quantity, ticks
from perfsuite.show.html.causes import causes, common, operators
from perfsuite.show.html.cell_evidence import Evidence
from perfsuite.show.html.charts import Bar, Stack, bars, stacked_bars
from perfsuite.show.html.curve_chart import Areas, Axes, Band, CurveLine, lines, sparkline
from perfsuite.show.html.document import Document, Section, Table, render
from perfsuite.show.html.markup import Html, join, tag
from perfsuite.show.html.moved import moved, names_of
from perfsuite.show.html.run_report import run_document, verdict_of
from perfsuite.show.text.line_words import note_text, range_text
from perfsuite.show.text.markdown import render_brief
from perfsuite.system import units

NASTY = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"
SMALLEST = 1 << 21  # 2 MiB for 100 cells


@pytest.fixture(scope="module")
def night() -> list[Result]:
    return red_night()


@pytest.fixture(scope="module")
def all_metrics():
    return list(Catalog().all("metric").values())


def page_of(results, metrics=METRICS, waiting=0) -> str:
    return render(run_document(results, metrics, waiting)).decode()


def test_the_verdict_is_one_sentence_and_a_count():
    """Red, open, green, without a baseline, and what has not finished."""
    fatter = result(measurement(peak_memory_bytes=memory(22 * GIB)))
    waiting = msgspec.structs.replace(result(), verdict=Verdict(cell="t5_tiny-zero3-cpu_x2", status=Status.OPEN))
    cells: list[CellResult] = [fatter, result(), waiting, result(old=None), result()]

    assert verdict_of(cells) == "2 of 5 cells are red. 1 open, 2 green, 1 of the red has no baseline."
    assert verdict_of([result()], 99).endswith("99 more cells have no result yet: the run goes on, or it was ended.")
    assert verdict_of([]) == "No cell has a result."


def test_an_accepted_cell_is_not_red():
    """As in the job's summary."""
    assert verdict_of([result(old=None, updated="baselines/x.json")]) == "None of 1 cell is red. 1 green."


def test_each_status_is_counted_by_its_own_word():
    """What is open was compared, and a cell in quarantine is not green: in the page and in a summary."""
    cells = [msgspec.structs.replace(result(measurement(peak_memory_bytes=memory(22 * GIB))), quarantined="2026-12-24")]
    for status in (Status.OPEN, Status.OPEN, Status.NOT_COMPARED, Status.OK):
        verdict = Verdict(cell="t5_tiny-zero3-cpu_x2", status=status)
        cells.append(msgspec.structs.replace(result(), verdict=verdict))

    assert verdict_of(cells) == ("None of 5 cells is red. 2 open, 1 not compared, 1 quarantined, 1 green.")
    assert render_brief(cells).startswith(
        "## Training performance: 1 of 5 cells as good as its baseline (2 open, 1 not compared, 1 quarantined)"
    )


def test_one_rank_waits_for_nobody():
    """Its phases have no bars of waiting, and its memory is not that of the fullest rank; two ranks have both."""
    seconds = {"forward_seconds": Reading(value=0.1), "exposed_communication_seconds": Reading(value=0.0)}
    waiting = seconds | {"exposed_communication_seconds": Reading(value=0.01)}
    peak = Reading(value=8, parts={"activations": 8}, ranks=[8])
    alone = measurement(**seconds, peak_memory_bytes=peak)
    two = measurement(**waiting, peak_memory_bytes=msgspec.structs.replace(peak, ranks=[8, 8]))
    shown, others = ("".join(Evidence(None, one, ("baseline", "now")).charts({})) for one in (alone, two))

    assert "A step by phase" in shown and "waiting" not in shown and "Memory at the peak:" in shown
    assert "waiting" in others and "Memory at the peak, fullest rank:" in others


def test_a_cell_in_quarantine_has_its_own_place():
    """It is neither accepted nor green, and its badge says until when."""
    fatter = measurement(peak_memory_bytes=memory(22 * GIB))
    cells = [msgspec.structs.replace(result(fatter), quarantined="2026-12-24"), result()]
    held, card = run_document(cells, METRICS).sections[:3:2]

    assert (held.heading, len(held.inside)) == ("In quarantine", 1)
    assert card.heading == "Cells that are not green"
    assert (card.inside[0].badge, card.inside[0].tone) == ("regressed, quarantined until 2026-12-24", "yellow")


def test_a_cell_in_quarantine_does_not_hide_the_main_metric(night, all_metrics):
    """The cell that moved most is in quarantine: its group is red all the same, and peak memory stays first."""
    largest = causes(moved(night, names_of(all_metrics)), night)[0].cells[0].verdict.cell
    held = [
        msgspec.structs.replace(one, quarantined="2026-12-24") if one.verdict.cell == largest else one for one in night
    ]

    assert causes(moved(held, names_of(all_metrics)), held)[0].title.startswith("peak memory")


def commands_of(section) -> list[str]:
    return [one.text for card in section.inside for one in card.commands]


def test_an_open_line_of_a_red_cell_offers_no_acceptance():
    """Its memory is red and can be accepted; its time is slower without a change, which nobody can accept."""
    both = result(measurement(peak_memory_bytes=memory(22 * GIB), step_time_seconds=times(4.0, 4.0)))
    red, doubtful = run_document([both], METRICS).sections[:2]

    assert (red.heading, doubtful.heading) == ("What moved", "Neither green nor red")
    assert any("--perf-update=regressed" in text for text in commands_of(red))
    assert commands_of(doubtful) and not any("--perf-update" in text for text in commands_of(doubtful))


def test_a_cell_in_quarantine_shares_no_entry(night, all_metrics):
    """Of the cells that one cause moved, one is in quarantine: it is told apart, and no command accepts it."""
    (moved_,) = [one for one in causes(moved(night, names_of(all_metrics)), night) if one.is_red]
    name = moved_.cells[3].verdict.cell
    cells = [
        msgspec.structs.replace(one, quarantined="2026-12-24") if one.verdict.cell == name else one for one in night
    ]
    red, held = [run_document(cells, all_metrics).sections[at] for at in (0, 2)]

    assert red.inside[0].heading.endswith(f"in {len(moved_.cells) - 1} cells")
    assert not any(name in text for text in commands_of(red))
    assert [held.heading, *(card.heading.rpartition(" in ")[2] for card in held.inside)] == ["In quarantine", "1 cell"]
    assert not any("--perf-update" in text for text in commands_of(held))
    assert red.inside[0].sentences[1].startswith(f"All {len(moved_.cells) - 1} cells with zero3, and no other of 59")


def test_a_slower_machine_is_not_told_as_unconfirmed():
    """There is nothing to confirm by a trial."""
    line = Judged(
        metric="step_time_seconds",
        title="step time",
        status=Status.OPEN,
        unit=units.SECONDS,
        old=1.0,
        new=2.0,
        compared=True,
        reason=Slower(runs=3),
    )
    verdict = Verdict(cell="t5_tiny-zero3-cpu_x2", status=Status.OPEN, lines=[line])
    card = run_document([msgspec.structs.replace(result(), verdict=verdict)], METRICS).sections[0].inside[0]

    assert card.heading == "step time: slower without a change in 1 cell"
    assert card.sentences[0] == f"A change of +100.0 %: {note_text(line)}. There is nothing to try."
    assert note_text(line).endswith("same machine")


def test_a_leak_is_told_as_a_person_would():
    """With the line of the user's code, in the heading, among the suspects and in the row of the cell."""
    move = Move(part="kept", by=65536, operator="aten::mul", module="(other)", line="train.py:14")
    line = Judged(
        metric="grown_bytes",
        title="memory grown/step",
        status=Status.REGRESSED,
        unit=units.BYTES,
        old=0,
        new=65536,
        compared=True,
        moves=[move],
    )
    verdict = Verdict(cell="t5_tiny-zero3-cpu_x2", status=Status.REGRESSED, lines=[line])
    page = run_document([msgspec.structs.replace(result(), verdict=verdict)], METRICS)
    moved_most, cells = page.sections[0].inside[0], page.sections[1].tables[0]
    said = "leaks 64.00 KiB of tensors in every step at train.py:14"

    assert moved_most.heading == f"{said} in 1 cell"
    assert "Suspects: aten::mul at train.py:14." in moved_most.sentences
    assert cells.rows[0][cells.head.index("worst")] == said


def test_one_cause_over_many_cells_is_one(night, all_metrics):
    """The upgrade of the prepared night is one cause, with all ZeRO-3 cells and what else moved in them."""
    first, second = causes(moved(night, names_of(all_metrics)), night)
    zero3 = [one.verdict.cell for one in night if "zero3" in one.verdict.cell]

    assert [one.verdict.cell for one in first.cells] and {one.verdict.cell for one in first.cells} == set(zero3)
    assert first.title == f"peak memory +{GROWTH * 100:.1f} % in {len(zero3)} cells"
    assert first.changed == (Change("deepspeed", "0.19.8", "0.20.0"),)
    assert common(first.cells, night) == f"All {len(zero3)} cells with zero3, and no other of 60."
    assert first.suspects == ["aten::empty_like in (backward); communication buffers +177.00 KiB to +133.89 MiB"]
    assert [group[0].line.title for group in first.also] == ["allocations/step"]
    assert [one.verdict.cell for one in second.cells] == [NOISY]


def test_cells_that_moved_alike_keep_their_order(night, all_metrics):
    """All of them grew by 7.0 %: the page does not sort them by what nobody sees."""
    first = causes(moved(night, names_of(all_metrics)), night)[0]
    names = [one.cell for one in first.moved]

    assert len({one.change for one in first.moved}) > 1
    assert names == sorted(names)


def test_an_effect_is_told_over_its_own_noise(night, all_metrics):
    """Exact metrics have none; a time's effect is a multiple of the spread of its baseline's runs."""
    found = moved(night, names_of(all_metrics))
    told = {one.line.metric: one.effect_text for one in found}

    assert told["peak_memory_bytes"] == "exact"
    assert re.fullmatch(r"[1-9]\.\d × its noise", told["step_time_seconds"])


def test_red_is_before_undecided_and_green_is_folded(night, all_metrics):
    """The order of the page."""
    document = run_document(night, all_metrics)
    moved_, open_, table, loud, quiet = document.sections
    head = [[one.badge for one in section.inside] for section in (moved_, open_, loud)]

    assert head == [["regressed"], ["open"], ["regressed"] * 12 + ["open"]]
    assert (table.heading, quiet.heading, quiet.folded) == ("All cells", "47 cells are green", True)


def test_an_open_cell_is_no_regression(night, all_metrics):
    """First that nothing was shown, with the interval; one sentence for the other metrics; folded below red."""
    card = run_document(night, all_metrics).sections[1].inside[0]

    assert card.heading == "step time: nothing shown in 1 cell" and card.tone == "yellow" and card.folded
    assert card.sentences[0].startswith(
        "No difference was shown: the interval of 16 pairs is -4.1 % to +71.2 %, which includes 0."
    )
    assert card.sentences[1].startswith("Nothing ties it to what changed since the baseline: deepspeed")
    also = card.sentences[-1].removeprefix("Also ").removesuffix(" (open).")
    assert f"Also {also} (open)." == card.sentences[-1]
    assert sorted(also.split(", ")) == ["iteration time", "processor time", "unfenced step"]


@pytest.mark.parametrize(
    ("low", "high", "pairs", "why", "told"),
    [
        (0.989, 1.003, 3, NotAllTried(), ", but a change that cannot be tried here may be slower"),
        (1.002, 1.041, 8, Undecided(worse=True), ": a difference, but perhaps too"),
        (1.183, 1.453, 2, Undecided(worse=True, few_pairs=True), ": a difference, but too few pairs decide it."),
    ],
)
def test_an_open_time_is_told_by_its_interval(low, high, pairs, why, told, night, all_metrics):
    """Nothing is said of it that the interval contradicts: that it includes 0, or that a change is not ruled out."""
    one = next(one for one in moved(night, names_of(all_metrics)) if one.line.status == "open")
    interval = LineInterval(low=low, high=high, pairs=pairs)
    line = msgspec.structs.replace(one.line, interval=interval, reason=why)
    (cause,) = causes([dataclasses.replace(one, line=line)], [])

    assert cause.doubt.startswith(f"The interval of {pairs} pairs is {range_text(interval)}{told}")


def test_what_moved_is_told_in_bytes(night, all_metrics):
    """Both sides, their difference, and the change."""
    shown = run_document(night, all_metrics).sections[0].inside[0].tables[0]
    row = next(row for row in shown.rows if row[0].text == "gpt2_tiny-zero3+bf16-cpu_x2")

    assert shown.head == ["cell", "baseline", "now", "difference", "change", "evidence"]
    assert [*row[1:4], row[4].text] == ["3.94 MiB", "4.21 MiB", "+282.21 KiB", "+7.0 %"]


def test_the_difference_is_that_of_the_two_numbers_beside_it():
    """Of a loss these are those of the first step that differs, not the means."""
    other = Reading(value=9.0, samples=[9.0, 9.0, 9.0])
    one = result(measurement(loss=other))
    shown = run_document([one], METRICS).sections[0].inside[0].tables[0]

    assert shown.rows[0][1:4] == ["6", "9", "+3"]


def test_every_command_collects_the_same_file(night, all_metrics):
    """Also for a cell that has nothing to accept; what accepts says when."""
    sections = run_document(night, all_metrics).sections
    cells = [*sections[3].inside, *sections[4].inside]
    again = [one for cell in cells for one in cell.commands if one.what.startswith("run it again")]
    accept = {one.what for cell in cells for one in cell.commands if "--perf-update" in one.text}

    assert len(again) == 60 and {one.text.partition(" -k ")[0] for one in again} == {
        "pytest --perf benchmarks/test_cells.py"
    }
    assert accept == {"accept it, only if the change is intended"}


def test_the_status_is_sorted_by_severity_and_only_effects_are_coloured(night, all_metrics):
    """The worst first; a change of a trial says so, and one that is harmless has no colour."""
    table = run_document(night, all_metrics).sections[2].tables[0]
    columns = {name: [row[index] for row in table.rows] for index, name in enumerate(table.head)}
    sizes = {one.text: cast(float, one.sort) for one in columns["status"]}

    assert sizes["regressed"] < sizes["open"] < sizes["ok"]
    noisy = next(at for at, one in enumerate(columns["cell"]) if one.text == NOISY)
    assert columns["change of time"][noisy].text == "-4.1 % to +71.2 % (trial)"
    assert {one.tone for one in columns["change of memory"]} == {"red", "muted"}
    assert {one.tone for one in columns["change of time"]} <= {"yellow", "muted", ""}
    assert any(one.text.endswith(" % (trial)") for one in columns["change of time"])


def test_the_prepared_night_fits_together(night):
    """Tokens per second and MFU follow the step time."""
    for one in night:
        sides = [side.readings for side in (one.baseline.measurement, one.measurement)]
        for name in ("tokens_per_second", "mfu"):
            products = [side["step_time_seconds"].value * side[name].value for side in sides if name in side]
            assert products == pytest.approx(products[:1] * len(products))


def test_the_curve_s_legend_says_what_grew(night, all_metrics):
    """In bold, by how much."""
    red = [one for one in night if one.verdict.cell == "gpt2_tiny-zero3+bf16-cpu_x2"]

    assert '<li class="moved"><i class="f4"></i>communication buffers +282.21 KiB</li>' in page_of(red, all_metrics)


@pytest.mark.parametrize(
    ("trace", "shown"),
    [
        (
            EvidenceTrace(kind=TraceKind.PERFETTO, path="perf-traces/x.json.gz"),
            'Trace: <a href="../perf-traces/x.json.gz">perf-traces/x.json.gz</a>: o',
        ),
        (
            EvidenceTrace(kind=TraceKind.PERFETTO, path="javascript:alert(1).json.gz"),
            "Trace: javascript:alert(1).json.gz: open it in https://ui.perfetto.dev.",
        ),
        (
            EvidenceTrace(kind=TraceKind.PERFETTO, path="//h.example/x.json.gz"),
            "Trace: //h.example/x.json.gz: open it in https://ui.perfetto.dev.",
        ),
        (EvidenceTrace(kind=TraceKind.FAILED, message="<b>"), "Trace: the traced launch failed: &lt;b&gt;."),
    ],
)
def test_a_trace_is_a_link_from_the_page(trace, shown):
    """With how to open it; a path that is no file of the run leads nowhere."""
    one = result()
    one = msgspec.structs.replace(one, verdict=msgspec.structs.replace(one.verdict, traces=[trace]))

    assert shown in render(run_document([one], METRICS, folder=Path("out"))).decode()


def test_a_hundred_cells_fit_into_two_mebibytes(night, all_metrics):
    """The promised size, with measurements of real cells that are all red, so that nothing is left out."""
    red = [one for one in night if one.verdict.status == "regressed"]
    size = len(render(run_document((red * 9)[:100], all_metrics)))

    assert size < SMALLEST


def test_the_page_needs_nothing_else(night, all_metrics):
    """No address is fetched: no link, script or image outside of the file, and the browser is told so."""
    page = page_of(night[:3], all_metrics)

    assert not re.search(r'(?:src|href|url)\s*[=(]\s*["\']?(?:https?:)?//', page)
    assert "default-src 'none'" in html.unescape(page)


def test_a_stranger_s_text_stays_text():
    """Messages, titles, operators, versions, tails, commands: escaped, and no script runs that the page does not
    name.
    """
    moves = [Move(part=NASTY, by=1), Move(part=NASTY, operator=NASTY, module=NASTY, by=1)]
    outcome = Judged(metric=NASTY, title=NASTY, status=Status.REGRESSED, unit=NASTY, old=NASTY, new=NASTY)
    numbers = Judged(
        metric="peak_memory_bytes", title=NASTY, status=Status.REGRESSED, unit=NASTY, old=1, new=2, compared=True,
        moves=moves, reason=OtherRelease(release=Change(NASTY, NASTY, NASTY)),
    )  # fmt: skip
    change = Change(NASTY, NASTY, NASTY, files=(NASTY,))
    trial = TrialReport(
        against=[change], causes=[Cause(changes=[change], how=How.ALONE)], problems=[Problem(message=NASTY)],
        unmoved=[NASTY], fixed=[msgspec.structs.replace(change, fixed=Fixed.NOT_KEPT, obstacle=NASTY)],
    )  # fmt: skip
    verdict = Verdict(
        cell="t5_tiny-zero3-cpu_x2",
        status=Status.REGRESSED,
        reason=InWords(message=NASTY),
        lines=[outcome, numbers],
        changed=[change],
        trial=trial,
        traces=[EvidenceTrace(kind=kind, path=NASTY, message=NASTY) for kind in TraceKind],
        accept=Consent.REGRESSED,
        collect=NASTY,
        quarantine_ended=NASTY,
    )
    failure = msgspec.structs.replace(KILLED, tail=NASTY)
    versions = VERSIONS | {"transformers": NASTY, NASTY: HOSTILE}
    measured = msgspec.structs.replace(measurement(), failure=failure, versions=versions)
    page = page_of([Result(measurement=measured, baseline=baseline(), verdict=verdict, updated=NASTY)])

    assert NASTY not in page
    assert "<img" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert page.count("<script") == 1


def test_a_hostile_cell_is_no_attribute():
    """A name that would end its attribute: reports refuse it, and the page does not depend on that."""
    one = msgspec.structs.replace(result(), verdict=Verdict(cell=NASTY, status=Status.FAILED))
    page = page_of([one])

    assert NASTY not in page and "<img" not in page and page.count("<script") == 1


@pytest.mark.parametrize("inside", [(NASTY,), (tag("b", NASTY),), (Html("<i>"), NASTY)])
def test_only_html_is_html(inside):
    """What a template gets as it is has been escaped where it was made."""
    assert NASTY not in join(inside)
    assert NASTY not in tag("p", *inside, class_=NASTY)


def test_a_bar_is_as_long_as_its_value():
    """Half the value is half the length; parts follow each other."""
    drawn = stacked_bars("t", [Stack(label="a", parts={"x": 2, "y": 2}), Stack(label="b", parts={"x": 2})], BYTES)
    widths = [float(width) for width in re.findall(r'<rect x="[\d.]+" y="[\d.]+" width="([\d.]+)"', drawn)]

    assert widths == [174.0, 174.0, 174.0]
    assert 'aria-label="t: a 4 B; b 2 B"' in drawn


def test_a_capacity_far_above_is_a_sentence():
    """Nothing could be seen of bars that are a hundredth of the axis."""
    stacks = [Stack(label="a", parts={"x": 10})]

    assert "limit" not in stacked_bars("t", stacks, BYTES, limit=("capacity", 1000))
    assert "at most 1 % is used" in stacked_bars("t", stacks, BYTES, limit=("capacity", 1000))
    assert 'class="limit"' in stacked_bars("t", stacks, BYTES, limit=("capacity", 20))


def test_a_label_is_drawn_over_the_line_of_a_capacity():
    """With a rim in the page's colour, so the line does not cross it."""
    drawn = stacked_bars("t", [Stack(label="a", parts={"x": 21})], BYTES, limit=("capacity", 20))

    assert re.findall('class="(bar f0|limit|label|label e)"', drawn) == ["bar f0", "limit", "label", "label e"]
    assert "svg text.label { paint-order: stroke; stroke: var(--under, var(--bg))" in page_of([result()])


def test_a_missing_bar_says_why():
    """An out-of-memory is no zero."""
    drawn = bars("t", [Bar(label="a", value=None, text="oom"), Bar(label="b", value=1.0, low=0.9, high=1.1)], SECONDS)

    assert drawn.count('class="bar') == 1 and "oom" in drawn and drawn.count("whisker") == 1


def test_lines_have_titles_with_units_and_a_band():
    """The axes say what they are, the text for screen readers what the chart shows."""
    shown = [CurveLine(name="now", points=[(1, 0.1), (2, 0.2)]), CurveLine(name="before", points=[(1, 0.1)], old=True)]
    axes = Axes(Quantity("step time", units.SECONDS), "timed step")
    drawn = lines("Steps", shown, axes, band=Band(name="usual", low=0.1, high=0.15))

    assert ">step time, ms<" in drawn and ">timed step<" in drawn and 'class="band"' in drawn
    assert "now from 100 ms to 200 ms" in drawn and "dashed: before" in drawn


def test_areas_are_stacked():
    """The highest edge is the sum; another side is a line over it."""
    drawn = Areas(
        points=[(1, 1), (2, 2)],
        names=["a", "b"],
        axes=Axes(BYTES, "order"),
        phases=[("forward", 0, 2)],
        other=("before", [3, 5]),
    ).draw("t")

    assert drawn.count('Z"') == 2
    assert "t: at most 4 B; line: before, at most 5 B" in drawn


def test_a_sparkline_keeps_its_gaps():
    """Two runs of values are two lines; nothing is nothing."""
    assert sparkline("t", [1, 2, None, 3]).count("curve") == 2
    assert sparkline("t", [None]) == ""


@pytest.mark.parametrize(("low", "high", "expected"), [(0, 10, [0, 2.5, 5, 7.5, 10]), (3, 3, [3]), (0.98, 1.02, 5)])
def test_ticks_are_round(low, high, expected):
    """Few, and inside."""
    found = ticks(low, high)

    assert found == expected if isinstance(expected, list) else len(found) <= expected
    assert all(low <= at <= high + 1e-9 for at in found)


def test_a_terminal_s_table_is_the_page_s():
    """Same texts; columns of numbers are aligned right."""
    shown = TextTable("cell", "change")
    shown.add_row("a", "+1 %")

    assert Table.of(shown).rows == [("a", "+1 %")] and Table.of(shown).numbers == {1}


def test_what_cells_share_is_named():
    """An engine that others have too is not the whole answer; nothing shared is said."""
    cells = [
        msgspec.structs.replace(one, verdict=Verdict(cell=name, status=Status.OK))
        for one, name in zip([result()] * 4, ("a-zero3-x", "b-zero3-x", "c-zero3-x", "d-ddp-x"), strict=True)
    ]

    assert common(cells[:3], cells) == "All 3 cells with zero3, and no other of 4."
    assert common(cells[:2], cells) == "All have zero3; 1 other cell with zero3 did not move."
    assert common(cells, cells) == "Every cell of the run."


def test_operators_are_those_of_the_evidence():
    """Each once, without modules and sizes."""
    moves = [
        Move(part="activations", by=3),
        Move(part="activations", operator="aten::mul", module="h.0-3.mlp", by=2),
        Move(part="activations", operator="aten::add", module="h.1", by=1),
        Move(part="gradients", operator="aten::mul", module="h.2", by=1),
    ]
    line = Judged(metric="peak_memory_bytes", title="peak memory", status=Status.REGRESSED, moves=moves)

    assert operators(line) == ["aten::mul", "aten::add"]


def test_nothing_is_drawn_of_a_cell_that_failed():
    """The last lines of its rank are shown instead."""
    failed = result(measurement("failed"))
    page = page_of([failed])

    assert "the last lines of rank 1" in page and "<svg viewBox" not in page


def test_an_out_of_memory_shows_what_was_alive():
    """By category, with the request that was refused."""
    failure = msgspec.structs.replace(OOM, parts={"activations": 3 * GIB, "parameters": GIB})
    page = page_of([result(msgspec.structs.replace(measurement("oom"), failure=failure))])

    assert "Memory when it ran out: rank 1, with the refused request 4.00 GiB" in page


@pytest.mark.parametrize("size", [0, -1, 2**62, 1e308, -1e308, 5e-324])
@pytest.mark.parametrize(
    "change",
    [
        {"ratio": 9e307},
        {"ratio": -9e307},
        {"ratio": 0.0},
        {"old": 0, "new": 5},
        {"old": "x", "new": 5},
        {"compared": False},
        {"interval": LineInterval(low=-1e308, high=1e308, pairs=-1)},
    ],
)
def test_a_stranger_s_numbers_are_drawn_or_left_out(size, change, all_metrics):
    """Any finite number may be in a report; none ends the page."""
    reading = Reading(value=size, parts={"activations": size}, samples=[size, -size], ranks=[size])
    curve = {"phases": "forward x", "activations": f"{size} 1", "batch": "1"}
    readings = dict.fromkeys([one.name for one in all_metrics], reading)
    new = msgspec.structs.replace(measurement(), readings=readings, memory_curve=curve)
    old = msgspec.structs.replace(baseline(), measurement=msgspec.structs.replace(measurement(), readings=readings))
    fields = {"status": Status.REGRESSED, "old": size, "new": -size, "compared": True} | change
    moves = [Move(part="activations", by=size), Move(part="activations", operator="aten::mul", by=size)]
    lines_ = [msgspec.structs.replace(line, moves=moves, **fields) for line in result().verdict.lines]
    verdict = Verdict(cell=new.cell, status=Status.REGRESSED, lines=lines_, accept=Consent.REGRESSED, collect="x -k y")
    page = page_of([Result(measurement=new, baseline=old, verdict=verdict)], all_metrics)

    assert page.endswith("</html>")


def test_summary_writes_the_page(tmp_path, capsys):
    """From lines of JSON, as the Markdown."""
    write_report(tmp_path / "run.jsonl", [result(), result()])
    status = main(["summary", str(tmp_path / "run.jsonl"), "--html", str(tmp_path / "run.html")])

    assert status == 0
    assert "None of 2 cells is red. 2 green." in (tmp_path / "run.html").read_text()


@pytest.mark.parametrize(
    ("name", "reason"), [("run.png", "must be a file *.html"), ("no/x.html", "in an existing folder")]
)
def test_a_page_that_cannot_be_written_is_told_at_once(name, reason, tmp_path, capsys):
    """Before any work."""
    status = main(["summary", "--html", str(tmp_path / name)])

    assert status == 2 and reason in capsys.readouterr().err


def test_a_page_needs_jinja2(tmp_path, monkeypatch, capsys):
    """One sentence with what to install."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    assert main(["summary", "--html", str(tmp_path / "x.html")]) == 2
    assert capsys.readouterr().err == "perfsuite: --html needs jinja2: pip install 'perfsuite[report]'.\n"


def test_jinja2_is_imported_when_a_page_is_written():
    """Plain pytest and other commands do not wait for it."""
    code = "import perfsuite.show.html.run_report, perfsuite.plugin, sys; print('jinja2' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"


def test_other_pages_share_the_parts():
    """A page of another command has the same style, its own sections, and only scripts that it names."""
    document = Document(title="t", verdict="v", sections=[Section(heading="h", sentences=["<b>"], text="<i>")])
    own = render(document, ["let x = 1;"]).decode()

    assert (
        "&lt;b&gt;" in own
        and "&lt;i&gt;" in own
        and own.count("<script>") == 2 == own.split("script-src")[1].split('"')[0].count("sha256")
    )


def test_a_curve_is_kept_as_text():
    """A line per category that is ever alive, and back; a damaged one is none."""
    points = [("forward", [1, 0, 2]), ("backward", [1, 0, 0])]
    kept = pack(points, ["parameters", "batch", "activations"])

    assert kept == {"phases": "forward backward", "parameters": "1 1", "activations": "2 0"}
    assert unpack(kept) == (["forward", "backward"], {"parameters": [1, 1], "activations": [2, 0]})
    assert unpack(kept | {"activations": "2"}) == unpack(kept | {"activations": "2 x"}) == unpack({}) == ([], {})


def test_a_step_that_only_began_is_no_step():
    """The recording ends with the next batch; the curve is of the step before it."""
    marks = {0: Mark("batch"), 1: Mark("forward"), 2: Mark("end"), 3: Mark("batch")}
    step = [(-1, 0, ""), (1, 8, "a"), (-1, 1, ""), (2, 4, "b"), (-1, 2, ""), (2, -4, "")]

    assert whole_steps([*step, (-1, 3, ""), (3, 2, "c")], marks) == step == whole_steps(step, marks)


def test_a_page_that_cannot_be_drawn_does_not_end_the_run(tmp_path, monkeypatch):
    """The lines are written all the same, and the reason is kept for the summary."""
    monkeypatch.setattr("perfsuite.show.html.run_report.verdict_of", lambda *_: 1 / 0)
    reports = Reports(tmp_path / "run.jsonl", tmp_path / "run.html", lambda: METRICS)
    reports.add(result(), 1)
    reports.add(result(), 0)

    assert len(report_lines.read_measured(tmp_path / "run.jsonl")) == 2
    assert "cannot be drawn: ZeroDivisionError" in reports.unwritten and not (tmp_path / "run.html").exists()


def test_the_page_costs_little(tmp_path, monkeypatch):
    """It is written with the first cell and at the end, and in between only if its share of the time allows it."""
    clock = iter([0.0, 0.0, 1.0, 29.0, 31.1, 31.1, 31.2, 32.0, 33.0, 33.0])
    monkeypatch.setattr("perfsuite.plugin.report_files.time.monotonic", lambda: next(clock))
    reports, seen = Reports(None, tmp_path / "run.html", lambda: METRICS), []
    for _ in range(4):
        reports.add(result(), 0)
        seen.append((tmp_path / "run.html").read_text().count('class="card green measured"'))
    reports.finish(0)

    assert seen == [1, 1, 3, 3]
    assert (tmp_path / "run.html").read_text().count('class="card green measured"') == 4


def test_a_disk_that_was_full_costs_no_cell(tmp_path, monkeypatch):
    """A line that could not be written is written with the next one, and no line is left cut off."""
    reports, whole = Reports(tmp_path / "run.jsonl", None, lambda: METRICS), codec.write_lines
    reports.add(result(), 2)

    def cut(path, records, there):
        path.write_bytes(path.read_bytes() + b'{"format"')
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(codec, "write_lines", cut)
    reports.add(result(), 1)
    monkeypatch.setattr(codec, "write_lines", whole)
    reports.add(result(), 0)

    assert len(report_lines.read_measured(tmp_path / "run.jsonl")) == 3 and not report_lines.is_cut(
        tmp_path / "run.jsonl"
    )
    assert "cannot be written: No space left on device." in reports.unwritten


@pytest.mark.parametrize(("grown", "noted"), [(492, True), (0, False)])
def test_a_curve_says_what_its_numbers_compare(grown, noted):
    """The most of each category in a step: the table next to it has another number, of the peak alone."""
    old = {"phases": "forward backward", "gradients": "0 1024", "activations": "2048 0"}
    new = old | {"gradients": f"0 {1024 + grown * 1024}"}
    chart = memory_chart.over_a_step("Live memory", old, new, ("baseline", "now"), "measured")

    assert chart is not None
    assert (f"gradients +{grown}.00 KiB" in chart or f"gradients +{grown} KiB" in chart) == noted
    assert ("the most that it has anywhere in the step" in chart) == noted
