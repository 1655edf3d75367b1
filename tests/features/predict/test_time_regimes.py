"""The regime of a prediction, and its interval."""

import dataclasses

import pytest

from perfsuite.catalog.definitions import Layout
from perfsuite.features.predict.time import fitted
from perfsuite.features.predict.time.regimes import KINDS, NODES, ONE_NODE, interval, kind_of, regime, was_fitted
from perfsuite.features.predict.time.setup import Setup
from perfsuite.features.predict.time.shape import Experts, decoder, gpt_layers
from perfsuite.features.predict.time.step import Breakdown

GPT = decoder(gpt_layers(24, 1024, 16), 50000)
MIXED = dataclasses.replace(
    GPT, stacks=(dataclasses.replace(GPT.stacks[0], experts=Experts(count=8, chosen=2, width=512)),)
)
STEP, WAITS = Breakdown(compute=1.0), Breakdown(compute=1.0, launch=0.2)


@pytest.mark.parametrize(
    ("shape", "precision", "nodes", "predicted", "wanted"),
    [
        (GPT, "bf16", 1, STEP, "one node"),
        (GPT, "bf16", 4, STEP, "several nodes"),
        (GPT, "mxfp8", 4, STEP, "few bits"),
        (MIXED, "mxfp8", 4, STEP, "experts"),
        (MIXED, "bf16", 1, WAITS, "host-bound"),
    ],
)
def test_the_kind_of_a_step(shape, precision, nodes, predicted, wanted):
    """The first that applies."""
    assert kind_of(shape, Setup(sequence=2048, precision=precision, layout=Layout()), nodes, predicted) == wanted


@pytest.mark.parametrize(
    ("device", "stack", "kind", "known"),
    [
        ("h100", "megatron_core", "one node", True),
        ("a100_80g", "megatron_core", "several nodes", True),
        ("a100_80g", "megatron_core", "host-bound", False),
        ("h100", "megatron_core", "host-bound", True),
        ("rtx3090", "megatron_core", "one node", False),
        ("h100", "deepspeed", "one node", False),
    ],
)
def test_what_is_known(device, stack, kind, known):
    """Rows of the device and of the software; of both together if the host decides."""
    assert was_fitted(device, stack, kind) is known


@pytest.mark.parametrize("kind", KINDS)
def test_an_interval_is_wider_where_nothing_was_fitted(kind):
    """And the prediction is in it."""
    low, high = interval(1.0, regime(kind, new=False))
    lower, higher = interval(1.0, regime(kind, new=True))

    assert low < 1 < high
    assert lower < 1 < higher
    assert higher / lower >= high / low


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_new_in_half_precision_is_new_in_every_kind(kind):
    """So that no interval of new steps is narrower."""
    low, high = interval(1.0, regime(kind, new=True))
    bases = [interval(1.0, regime(base, new=True)) for base in (ONE_NODE, NODES)]

    if kind not in (ONE_NODE, NODES):
        assert low <= min(one[0] for one in bases) and high >= max(one[1] for one in bases)


def test_every_regime_has_an_interval():
    """And says from how many rows."""
    assert (
        fitted.ERRORS.keys() == fitted.COUNTS.keys() == {regime(kind, new) for kind in KINDS for new in (True, False)}
    )
