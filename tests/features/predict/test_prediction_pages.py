"""The pages of `perfsuite memory`, `fit` and `plan`."""

import msgspec
from ab_samples import page_of
from predictions import PREDICTION
from rich.table import Table as TextTable

from perfsuite.cli.main import main
from perfsuite.features.predict.prediction import Estimate, HeldStorages
from perfsuite.features.predict.prediction_pages import cells_page, memory_page


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
