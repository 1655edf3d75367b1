"""ZeRO-1 and ZeRO-2 with offload kept copies of the parameters on the device, until 0.17.0."""

from perfsuite.prove.replay.regression import Regression

REGRESSION = Regression(
    name="deepspeed_7309",
    saw="ZeRO-1 and ZeRO-2 with offload held about three times the fp16 parameters on the device.",
    source="https://github.com/deepspeedai/DeepSpeed/pull/7309",
    good="deepspeed==0.17.0",
    bad="deepspeed==0.16.9",
    fixed="0.17.0",
    why_not="on a CPU, what is moved from the device to the host stays in the same memory",
)
