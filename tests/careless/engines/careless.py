"""Engines without the refusals of perfsuite's own: what their checks must catch."""

import dataclasses

from perfsuite.engines import ddp, zero

LOOPS = frozenset({"accelerate", "hf_trainer", "careless_accelerate", "careless_hf_trainer"})


class Zero2(zero.Zero):
    """ZeRO stage 2 under another name."""

    stage = 2


ENGINES = (
    dataclasses.replace(ddp.ENGINES[0], name="careless_ddp", loops=LOOPS),
    dataclasses.replace(zero.ENGINES[1], name="careless_zero", trainer=Zero2, loops=LOOPS),
)
