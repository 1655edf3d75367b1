"""The pages of the commands: the same parts, filled with what each command found."""

from dataclasses import replace

import msgspec
from ab_samples import compared, launched
from command_pages import compared_sides, missed, page_of, replayed, upgraded
from gate_samples import GIB, METRICS, memory
from predictions import PREDICTION
from rich.table import Table as TextTable

from perfsuite.catalog.definitions import OF_A_PEAK
from perfsuite.cli.main import main
from perfsuite.features.predict.prediction import Estimate, HeldStorages
from perfsuite.features.predict.prediction_pages import cells_page, memory_page
from perfsuite.show.html.comparisons import comparisons_page


def test_an_ab_shows_both_sides(catalog):
    """The sentence counts the cells; memory differs by category and operator; steps of both sides are one chart."""
    page = page_of(compared_sides(catalog))

    assert "B against A in 1 cell: 1 regressed." in page
    assert '<p class="muted">A: torch==1</p>' in page
    assert "softmax in h.0" in page and "+1.00 GiB (+5.0 %)" in page
    assert page.count("<figcaption>") == 2


def test_an_ab_with_immaterial_differences_has_a_page(catalog):
    """They are green, as in a run; a cell that is worse comes first and gives the colour."""
    metrics = [replace(METRICS[0], materiality=OF_A_PEAK)]
    sides = [launched(1, peak_memory_bytes=memory(20 * GIB + more)) for more in (0, 1, GIB)]
    found = [compared(sides[0], side, metrics=metrics) for side in sides[1:]]
    document = comparisons_page("torch==1", "here", found, catalog.all("metric").values())

    assert document.verdict == "B against A in 2 cells: 1 immaterial, 1 regressed." and document.tone == "red"
    assert [(one.badge, one.tone) for one in document.sections] == [("regressed", "red"), ("immaterial", "green")]
    assert page_of(document).count("immaterial</td>") == 1


def test_a_predicted_cell_is_drawn_as_predicted():
    """Its need, its step and its tensors; nothing looks measured."""
    curve = [("forward", [1000, 0]), ("forward", [1000, 2000]), ("backward", [1000, 500])]
    held = [HeldStorages(category="activations", operator="aten.mul", module="h.0", count=2, bytes=2000)]
    names = ["parameters", "activations"]
    one = msgspec.structs.replace(PREDICTION, curve=curve, categories=names, held=held, capacity_bytes=4 * 2**20)
    page = page_of(memory_page(one, ["As follows."]))

    assert '<span class="badge predicted">' in page and "badge measured" not in page
    assert page.count('class="predicted"') == 2 and ">forward<" in page
    assert "As follows." in page and "aten.mul" in page and "2.00 MiB of 4.00 MiB: fits, 2.00 MiB left." in page


def test_several_cells_are_bars_and_the_terminal_s_table():
    """A sweep and the strategies of `fit`."""
    shown = TextTable("strategy", "needs")
    shown.add_row("single", "2.00 MiB")
    lost = msgspec.structs.replace(PREDICTION, outcome="unsupported", reason="no", parts={})
    page = page_of(cells_page("t", "1 of 2 fit.", ["b2", "b4"], [PREDICTION, lost], shown))

    assert "1 of 2 fit." in page and "<td>single</td>" in page and ">b2</text>" in page and ">b4</text>" not in page


def test_an_estimate_is_a_bar_without_categories():
    """So the largest need is that of all cells; numbers with ≈ are aligned right; what is not in the table is below."""
    shown = TextTable("strategy", "needs", "costs")
    shown.add_row("single", "2.00 MiB", "nothing")
    shown.add_row("ddp", "≈ 4.00 MiB", "an all-reduce of the gradients, which takes long")
    one = msgspec.structs.replace(PREDICTION, capacity_bytes=2**30)
    estimate = Estimate(cell="c", outcome="fits", world_size=1, needed_bytes=2**28, capacity_bytes=2**30, layers=(3, 5))
    page = page_of(cells_page("t", "2 of 2 fit.", ["single", "ddp"], [one, estimate], shown, ["tp needs 2 ranks."]))

    assert "ddp 256.00 MiB" in page and page.count("estimated, of all categories</li>") == 1
    assert '<table class="n1' in page and '<td class="w">nothing</td>' in page
    assert "<p>tp needs 2 ranks.</p>" in page


def test_a_plan_is_written(tmp_path, capsys):
    """The best layout in the first sentence, and a bar with an interval for each."""
    file = tmp_path / "plan.html"
    status = main(["plan", "gpt_1b7", "--hardware=a100_80g_x8", "--tokens=1e9", "--top=3", f"--html={file}"])
    page = file.read_text()

    assert status == 0 and f"{file} is written" in capsys.readouterr().out
    assert '<p class="verdict green">Best: ' in page and page.count("whisker") == 3 + 1  # and one in the style
    assert " min" in page and "interval of 90 %" in page
    assert "One node: steps of one node in half precision were fitted." in page


def test_a_plan_that_fits_nowhere_says_so(tmp_path):
    """No chart of nothing."""
    file = tmp_path / "plan.html"
    main(["plan", "gpt_1t", "--hardware=rtx3090_x1", "--tokens=1e9", f"--html={file}"])

    assert "No layout fits: the smallest needs" in file.read_text() and "<figure>" not in file.read_text()


def test_a_selftest_shows_what_passed_first():
    """Faults in time are shares with intervals."""
    document = missed()
    page = page_of(document)

    assert document.verdict == "1 of 2 exact faults are caught for the right reason."
    assert [one.heading for one in document.sections] == ["Not as expected", "Faults in time", "Every fault"]
    assert "2 of 3" in page and document.tone == "red"


def test_a_replay_shows_each_regression():
    """With its source, its numbers and its commands; what is caught is folded."""
    document = replayed()
    page = page_of(document)

    assert document.verdict == "1 of 1 that ran are caught." and document.sections[1].folded
    assert 'gradient norm <span class="whole">3.58 → 1.97</span>' in page and "perfsuite replay --fresh one" in page


def test_an_upgrade_names_the_cause_of_each_effect():
    """What gets worse is open, what gets better is folded, and the commands are where they belong."""
    document = upgraded()

    assert document.verdict == "1 effect in 2 cells got worse, 1 got better."
    assert [one.folded for one in document.sections] == [False, True, True]
    assert [[command.text for command in one.commands] for one in document.sections[:2]] == [["perfsuite ab …"], []]
    assert 'Caused by lib <span class="whole">1 -&gt; 2</span> (alone).' in page_of(document)
