"""Engines without the refusals of perfsuite's own: what their checks must catch."""

import dataclasses

from perfsuite.engines import ddp, fsdp2, zero

LOOPS = frozenset({"accelerate", "hf_trainer", "careless_accelerate", "careless_hf_trainer"})


ENGINES = (
    dataclasses.replace(ddp.ENGINES[0], name="careless_ddp", loops=LOOPS),
    dataclasses.replace(zero.ENGINES[1], name="careless_zero", loops=LOOPS),
    dataclasses.replace(fsdp2.ENGINES[0], name="careless_fsdp2", loops=LOOPS),
)
