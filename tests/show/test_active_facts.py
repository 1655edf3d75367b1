"""What a script really uses is shown as a list, and what of it differs is named."""

import msgspec
from gate_samples import baseline, measurement

from perfsuite.catalog.registry import Catalog
from perfsuite.compare.compare import compare
from perfsuite.compare.gather import LaunchFacts, gather
from perfsuite.compare.judge import judge
from perfsuite.compare.terms import terms_of
from perfsuite.records.sample import RankSample, Reading
from perfsuite.show.text.comparison import render_ab
from perfsuite.show.text.measured import render_measured
from perfsuite.show.text.verdict_text import render

CELL = "train-script-cpu_x2"
METRICS = [one for one in Catalog().metrics("script") if one.name == "active_facts"]
FSDP, DDP = "wrappers FSDPLinear", "wrappers DistributedDataParallel"


def facts(*own):
    """A reading of these and one more."""
    return Reading(value=1 + len(own), parts=dict.fromkeys(["autocast off", *own], 1))


def trained(*own):
    """A measurement with these alone."""
    return msgspec.structs.replace(measurement(), cell=CELL, readings={"active_facts": facts(*own)})


def test_a_verdict_names_what_came_and_what_went():
    """Their number is the same."""
    old = msgspec.structs.replace(baseline(), cell=CELL, measurement=trained(FSDP))

    text = render(judge(trained(DDP), old, METRICS, strategy="script"))

    assert f"no longer {FSDP}" in text
    assert f"now {DDP}" in text


def test_an_ab_names_both():
    """That a script ran DDP where FSDP was asked for."""
    made = compare([trained(FSDP)], [trained(DDP)], METRICS, strategies=("script", "script"), terms=terms_of(CELL))
    lines = render_ab(made).splitlines()

    assert {f"  no longer {FSDP}", f"  now {DDP}"} <= set(lines)


def test_a_list_is_no_count():
    """What is active is listed once, and not numbered."""
    text = render_measured(
        msgspec.structs.replace(trained(DDP), engine={"wrappers": "DistributedDataParallel"}), METRICS
    )

    assert text == "active: wrappers DistributedDataParallel"


def test_each_rank_has_its_own_facts():
    """Another wrapper on rank 1 alone is a part of its own."""
    ranks = [
        RankSample(rank=rank, readings={"active_facts": facts(own)}, engine={}, versions={}, phases_seconds={})
        for rank, own in enumerate((FSDP, DDP))
    ]
    made = gather(LaunchFacts(cell=CELL, machine=measurement().machine, wall_seconds=1.0), ranks, METRICS)

    assert made.readings["active_facts"].parts == {"autocast off": 2, FSDP: 1, DDP: 1}
