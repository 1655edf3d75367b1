"""One measurement by itself, as text and as a page."""

import msgspec
from gate_samples import MACHINE

from perfsuite.catalog.definitions import Metric
from perfsuite.records.measurement import Measurement
from perfsuite.records.sample import Reading
from perfsuite.show.html.document import render
from perfsuite.show.html.measured import measured_page
from perfsuite.show.text.measured import render_measured
from perfsuite.system.units import BYTES, NUMBER, SECONDS

METRICS = (
    Metric(name="loss", title="loss", unit=NUMBER, hold="close"),
    Metric(name="peak_memory_bytes", title="peak memory", unit=BYTES, hold="exact", column=1),
    Metric(name="other_seconds", title="other", unit=SECONDS),
    Metric(name="absent", title="absent", unit=BYTES),
)
MEASURED = Measurement(
    cell="train-script-cpu_x1",
    outcome="fits",
    world_size=1,
    readings={
        "loss": Reading(value=2.5, samples=[3.0, None, 2.5]),
        "other_seconds": Reading(value=0.05, phases={"rollout": 0.04}),
        "peak_memory_bytes": Reading(
            value=3072,
            parts={"optimizer_state": 1024, "activations": 2048},
            suspects={"activations: aten::mm @ net": 2048},
        ),
    },
    machine=MACHINE,
    wall_seconds=1.0,
    engine={"optimizers": "torch.optim.adamw.AdamW"},
    uncounted={"gradient_norm": "no warm-up step had gradients"},
    unrepeated={"loss": 2.6},
)


def test_the_text_has_the_peak_first_and_what_does_not_repeat():
    """With the parts, the largest first, and the operators behind them."""
    assert render_measured(MEASURED, METRICS).splitlines() == [
        "  peak memory        3.00 KiB",
        "      activations: 2.00 KiB",
        "      optimizer state: 1.00 KiB",
        "        2.00 KiB activations: aten::mm @ net",
        "  loss                    2.5   (another launch had 2.6)",
        "      step by step: 3 2.5",
        "  other               50.0 ms",
        "      rollout: 40.0 ms",
        "not counted: gradient_norm: no warm-up step had gradients",
        "active: optimizers torch.optim.adamw.AdamW",
    ]


def test_the_page_has_the_same():
    """And no column of other launches if all numbers repeat."""
    page, plain = (
        render(measured_page(one, METRICS)).decode()
        for one in (MEASURED, msgspec.structs.replace(MEASURED, unrepeated={}))
    )

    assert "another launch" in page
    assert "another launch" not in plain
    assert "aten::mm @ net" in page
    assert "train-script-cpu_x1 was measured in 0 launches." in page
